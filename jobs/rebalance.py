"""spark-submit entry point: see `topicledger.cli.provisioning.rebalance`."""

from topicledger.cli.provisioning import rebalance

if __name__ == "__main__":
    rebalance()
