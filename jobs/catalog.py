"""spark-submit entry point: see `topicledger.cli.queries.catalog`."""

from topicledger.cli.queries import catalog

if __name__ == "__main__":
    catalog()
