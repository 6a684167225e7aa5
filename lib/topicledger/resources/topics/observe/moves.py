"""List the partitions that are being moved, in the driver or on the executors, as topics are.

While a partition is being moved, brokers count its old and new replicas.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from topicledger.config.settings import ClusterSettings, KafkaSettings
from topicledger.errors import SecretError, TopicLedgerError
from topicledger.kafka import ClusterAdmin
from topicledger.model import Refusal
from topicledger.observe.cluster_queries import UNRESOLVED, ClusterAccess, ask_about, ask_each, failure, record_batch
from topicledger.schemas import OBSERVED

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
_PLACES = StructType([each for each in OBSERVED.schema if each.name in ("cluster", "topic", "assignments")])
_SHOWN_SECONDS = 1.0
"""How long brokers may show the replicas of a move that is no longer listed (R4)."""


@dataclass(frozen=True, kw_only=True)
class ObservedMoves:
    """The partitions that are being moved on some clusters."""

    rows: DataFrame
    """cluster, topic, partition."""
    unknown: Mapping[str, str]
    """Cluster that didn't say -> why."""


@dataclass(frozen=True, kw_only=True)
class Unsettled:
    """Topics whose numbers of replicas may be those of a move."""

    topics: DataFrame
    """cluster, topic; distinct."""
    unknown: Mapping[str, str]
    """Cluster that didn't say which partitions are being moved -> why."""


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


def observe_unsettled(
    spark: SparkSession, clusters: Sequence[ClusterSettings], kafka: KafkaSettings, topics: DataFrame
) -> Unsettled:
    """Return the topics that are being moved, or that have other replicas now than when they were observed.

    `topics`: columns of `observed`. A move that ended since, or right before, is in no listing any more.
    """
    moves = observe_moves(spark, clusters, kafka)
    time.sleep(_SHOWN_SECONDS)
    key = ["cluster", "topic"]
    now = ask_about(spark, clusters, kafka, topics, _describe, _PLACES).withColumnRenamed("assignments", "_now")
    same = _as_array("assignments").eqNullSafe(_as_array("_now"))
    moved = topics.join(now, on=key, how="left").where(~same).select(*key)
    return Unsettled(topics=moves.rows.select(*key).unionByName(moved).distinct(), unknown=moves.unknown)


def _as_array(places: str) -> Column:
    """Return a map as an array, since Spark compares no maps."""
    return F.array_sort(F.map_entries(places))


def _describe(schema: StructType, access: ClusterAccess, topics: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield where replicas are; nothing if the cluster doesn't answer: then it is unknown whether they moved."""
    columns: dict[str, Sequence[object]] = {"topic": topics, UNRESOLVED.name: [True] * len(topics)}
    try:
        with ClusterAdmin(access.cluster, access.kafka) as admin:
            found = [info for info in admin.describe_topics(topics) if info.permitted]
        columns = {
            "topic": [info.topic for info in found],
            "assignments": [list(info.assignments.items()) for info in found],
        }
    except SecretError:
        pass
    except TopicLedgerError as error:
        log.warning("cluster %s: it is unknown which replicas were being moved: %s", access.cluster.name, error)
        return
    count = len(columns["topic"])
    yield record_batch(schema, {"cluster": [access.cluster.name] * count, **columns}, count)
