"""spark-submit entry point: see `topicledger.cli.policies_group`."""

from topicledger.cli import policies_group

if __name__ == "__main__":
    policies_group()
