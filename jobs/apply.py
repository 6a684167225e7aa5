"""spark-submit entry point: see `topicledger.cli.apply`."""

from topicledger.cli import apply

if __name__ == "__main__":
    apply()
