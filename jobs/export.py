"""spark-submit entry point: see `topicledger.cli.export`."""

from topicledger.cli import export

if __name__ == "__main__":
    export()
