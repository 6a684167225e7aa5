"""spark-submit entry point: see `topicledger.cli.manifests.load_manifests`."""

from topicledger.cli.manifests import load_manifests

if __name__ == "__main__":
    load_manifests()
