"""spark-submit entry point: see `topicledger.cli.clusters_group`."""

from topicledger.cli import clusters_group

if __name__ == "__main__":
    clusters_group()
