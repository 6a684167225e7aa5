"""spark-submit entry point: see `topicledger.cli.provision`."""

from topicledger.cli import provision

if __name__ == "__main__":
    provision()
