"""spark-submit entry point: see `topicledger.cli.load_manifests`."""

from topicledger.cli import load_manifests

if __name__ == "__main__":
    load_manifests()
