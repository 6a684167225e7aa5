"""spark-submit entry point: see `topicledger.cli.provisioning.apply`."""

from topicledger.cli.provisioning import apply

if __name__ == "__main__":
    apply()
