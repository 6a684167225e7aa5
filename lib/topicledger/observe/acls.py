"""The ACLs of live clusters, and the principal they see in this client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from topicledger.config.settings import ClusterSettings, KafkaSettings
from topicledger.kafka import ClusterAdmin
from topicledger.observe.listed import Columns, Listed, list_each
from topicledger.schemas import ACL_KEY, OBSERVED_ACLS


def observe_acls(
    spark: SparkSession, clusters: Sequence[ClusterSettings], kafka: KafkaSettings, ids: Mapping[str, str]
) -> Listed:
    """List the ACLs of `clusters`. `ids`: Kafka's id of each, by name."""
    return list_each(spark, clusters, kafka, ids, OBSERVED_ACLS, _describe)


def _describe(admin: ClusterAdmin) -> tuple[Columns, int]:
    acls = sorted(set(admin.describe_acls()))
    return {name: [getattr(each, name) for each in acls] for name in ACL_KEY}, len(acls)
