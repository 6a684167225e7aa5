"""spark-submit entry point: see `topicledger.cli.runs.runs_group`."""

from topicledger.cli.runs import runs_group

if __name__ == "__main__":
    runs_group()
