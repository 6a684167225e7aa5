"""spark-submit entry point: see `topicledger.cli.runs_group`."""

from topicledger.cli import runs_group

if __name__ == "__main__":
    runs_group()
