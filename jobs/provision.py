"""spark-submit entry point: see `topicledger.cli.provisioning.provision`."""

from topicledger.cli.provisioning import provision

if __name__ == "__main__":
    provision()
