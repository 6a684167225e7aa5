"""spark-submit entry point: see `topicledger.cli.plan`."""

from topicledger.cli import plan

if __name__ == "__main__":
    plan()
