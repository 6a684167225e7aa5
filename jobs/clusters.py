"""spark-submit entry point: see `topicledger.cli.clusters.clusters_group`."""

from topicledger.cli.clusters import clusters_group

if __name__ == "__main__":
    clusters_group()
