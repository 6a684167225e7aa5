"""spark-submit entry point: see `topicledger.cli.plans.prune`."""

from topicledger.cli.plans import prune

if __name__ == "__main__":
    prune()
