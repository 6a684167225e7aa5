"""spark-submit entry point: see `topicledger.cli.provisioning.prune`."""

from topicledger.cli.provisioning import prune

if __name__ == "__main__":
    prune()
