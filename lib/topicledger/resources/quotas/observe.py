"""The client quotas of live clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from topicledger.config.settings import ClusterSettings, KafkaSettings
from topicledger.kafka import ClusterAdmin
from topicledger.observe.listed import Columns, Listed, list_each
from topicledger.resources.quotas import requests
from topicledger.resources.quotas.entity import ENTITY, LIMITS
from topicledger.schemas import OBSERVED_QUOTAS


def observe_quotas(
    spark: SparkSession, clusters: Sequence[ClusterSettings], kafka: KafkaSettings, ids: Mapping[str, str]
) -> Listed:
    """List the quotas of `clusters`. `ids`: Kafka's cluster ids by name."""
    return list_each(spark, clusters, kafka, ids, OBSERVED_QUOTAS, _describe)


def _describe(admin: ClusterAdmin) -> tuple[Columns, int]:
    # Limits without a column are ignored, so an entity that has only such limits has no row.
    quotas = [(each, limits) for each, limits in requests.describe_quotas(admin).items() if limits.keys() & set(LIMITS)]
    entities = {name: [getattr(each, name) for each, _ in quotas] for name in ENTITY}
    return {**entities, **{name: [limits.get(name) for _, limits in quotas] for name in LIMITS}}, len(quotas)
