"""The group configs of live clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from topicledger.config.settings import ClusterSettings, KafkaSettings
from topicledger.kafka import ClusterAdmin
from topicledger.observe.listed import Columns, Listed, list_each
from topicledger.resources.group_configs import requests
from topicledger.schemas import OBSERVED_GROUP_CONFIGS


def observe_groups(
    spark: SparkSession, clusters: Sequence[ClusterSettings], kafka: KafkaSettings, ids: Mapping[str, str]
) -> Listed:
    """List the group configs of `clusters`. `ids`: Kafka's cluster ids by name."""
    return list_each(spark, clusters, kafka, ids, OBSERVED_GROUP_CONFIGS, _describe)


def _describe(admin: ClusterAdmin) -> tuple[Columns, int]:
    found = requests.describe_groups(admin, requests.list_groups(admin))
    # A group whose last config went away meanwhile has none.
    groups = {group: configs for group, configs in found.items() if configs}
    return {"group": list(groups), "configs": [list(each.items()) for each in groups.values()]}, len(groups)
