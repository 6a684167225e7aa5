"""spark-submit entry point: see `topicledger.cli.provisioning.plan`."""

from topicledger.cli.provisioning import plan

if __name__ == "__main__":
    plan()
