"""spark-submit entry point: see `topicledger.cli.manifests.export`."""

from topicledger.cli.manifests import export

if __name__ == "__main__":
    export()
