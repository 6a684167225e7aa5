"""spark-submit entry point: see `topicledger.cli.plans.rebalance`."""

from topicledger.cli.plans import rebalance

if __name__ == "__main__":
    rebalance()
