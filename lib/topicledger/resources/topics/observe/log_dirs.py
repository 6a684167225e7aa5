"""Describe the log directories of live brokers, in the driver or on the executors, as topics are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from topicledger.config.settings import ClusterSettings, KafkaSettings
from topicledger.kafka import ClusterAdmin
from topicledger.observe.cluster_queries import ask_each, record_batch

_SCHEMA = StructType(
    [
        StructField("cluster", StringType()),
        StructField("broker_id", IntegerType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("bytes", LongType()),
        StructField("total_bytes", LongType()),
        StructField("usable_bytes", LongType()),
        StructField("error", StringType()),
        StructField("error_message", StringType()),
    ]
)
"""One row per replica; topic is null in one row per broker; broker_id is null in the error row of a cluster."""


@dataclass(frozen=True, kw_only=True)
class LogDirs:
    """Brokers' answers, materialised: reading them asks no cluster again."""

    sizes: DataFrame
    """cluster, broker_id, topic, partition, bytes: one row per replica on a live broker."""
    rooms: DataFrame
    """cluster, broker_id, total_bytes, usable_bytes: one row per live broker; bytes are null before Kafka 3.3."""
    errors: Mapping[str, str]
    """Messages by cluster that isn't in the DataFrames above."""


def observe_log_dirs(spark: SparkSession, clusters: Sequence[ClusterSettings], kafka: KafkaSettings) -> LogDirs:
    """Ask every live broker (DescribeLogDirs), for each cluster completely or not at all.

    Needs Describe on the cluster.
    """
    found = ask_each(spark, clusters, kafka, _ask, _SCHEMA)
    failed = found.where(F.col("error").isNotNull()).select("cluster", "error_message").collect()
    errors = {row["cluster"]: row["error_message"] for row in failed}
    known = found.where(~F.col("cluster").isin(*errors)) if errors else found
    return LogDirs(
        sizes=known.where(F.col("topic").isNotNull()).select("cluster", "broker_id", "topic", "partition", "bytes"),
        rooms=known.where(F.col("topic").isNull()).select("cluster", "broker_id", "total_bytes", "usable_bytes"),
        errors=errors,
    )


def _ask(admin: ClusterAdmin) -> Iterator[pa.RecordBatch]:
    for logs in admin.broker_logs():
        count = len(logs.sizes)
        replicas: dict[str, Sequence[object]] = {
            "cluster": [admin.name] * count,
            "broker_id": [logs.broker_id] * count,
            "topic": [topic for topic, _ in logs.sizes],
            "partition": [partition for _, partition in logs.sizes],
            "bytes": list(logs.sizes.values()),
        }
        yield record_batch(_SCHEMA, replicas, count)
        room: dict[str, Sequence[object]] = {
            "cluster": [admin.name],
            "broker_id": [logs.broker_id],
            "total_bytes": [logs.total_bytes],
            "usable_bytes": [logs.usable_bytes],
        }
        yield record_batch(_SCHEMA, room, 1)
