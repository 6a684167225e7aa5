"""spark-submit entry point: see `topicledger.cli.maintenance.maintain`."""

from topicledger.cli.maintenance import maintain

if __name__ == "__main__":
    maintain()
