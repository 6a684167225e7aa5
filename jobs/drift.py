"""spark-submit entry point: see `topicledger.cli.drift.drift`."""

from topicledger.cli.drift import drift

if __name__ == "__main__":
    drift()
