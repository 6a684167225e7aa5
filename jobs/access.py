"""spark-submit entry point: see `topicledger.cli.access`."""

from topicledger.cli.access import access_group

if __name__ == "__main__":
    access_group()
