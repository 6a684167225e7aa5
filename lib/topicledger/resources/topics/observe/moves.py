"""List the partitions that are being moved, in the driver or on the executors, as topics are."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from topicledger.config.settings import ClusterSettings, KafkaSettings
from topicledger.kafka import ClusterAdmin
from topicledger.model import Refusal
from topicledger.observe.cluster_queries import ask_each, failure, record_batch

log = logging.getLogger(__name__)

_SCHEMA = StructType(
    [
        StructField("cluster", StringType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("error", StringType()),
        StructField("error_message", StringType()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class ObservedMoves:
    """The partitions that are being moved on some clusters."""

    rows: DataFrame
    """cluster, topic, partition."""
    unknown: Mapping[str, str]
    """Cluster that didn't say -> why."""


def observe_moves(spark: SparkSession, clusters: Sequence[ClusterSettings], kafka: KafkaSettings) -> ObservedMoves:
    """List partitions that are being moved (ListPartitionReassignments). Warns about clusters that don't answer."""
    found = ask_each(spark, clusters, kafka, _ask, _SCHEMA)
    failed = found.where(F.col("error").isNotNull()).collect()
    unknown = {row["cluster"]: str(row["error_message"]) for row in failed}
    for cluster, why in unknown.items():
        log.warning("cluster %s: it is unknown which replicas are being moved: %s", cluster, why)
    rows = found.where(F.col("topic").isNotNull()).select("cluster", "topic", "partition")
    return ObservedMoves(rows=rows, unknown=unknown)


def _ask(admin: ClusterAdmin) -> Iterator[pa.RecordBatch]:
    listed = admin.list_reassignments()
    if listed is None:
        why = "grant this principal Describe on the cluster (Kafka 2.4 or later)"
        yield failure(_SCHEMA, admin.name, Refusal.NOT_PERMITTED.value, why)
    elif listed:
        columns: dict[str, Sequence[object]] = {
            "cluster": [admin.name] * len(listed),
            "topic": [topic for topic, _ in listed],
            "partition": [partition for _, partition in listed],
        }
        yield record_batch(_SCHEMA, columns, len(listed))
