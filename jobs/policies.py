"""spark-submit entry point: see `topicledger.cli.policies.policies_group`."""

from topicledger.cli.policies import policies_group

if __name__ == "__main__":
    policies_group()
