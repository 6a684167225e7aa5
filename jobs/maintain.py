"""spark-submit entry point: see `topicledger.cli.maintain`."""

from topicledger.cli import maintain

if __name__ == "__main__":
    maintain()
