"""spark-submit entry point: see `topicledger.cli.topics`."""

from topicledger.cli.topics import topics_group

if __name__ == "__main__":
    topics_group()
