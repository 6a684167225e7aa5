"""Queries of policies: consumer groups and last records of topics, and the number of hidden topics.

Each cluster is asked by an executor, and only about the given topics. If a cluster can't answer, each of its topics has
a row with the reason. There is no exception, and no row is missing: no row means that a topic is unused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from topicledger.config.settings import ClusterSettings, KafkaSettings
from topicledger.errors import SecretError, TopicLedgerError
from topicledger.kafka import ClusterAdmin
from topicledger.model import GroupUse, LastRecord, Unseen
from topicledger.observe.cluster_queries import BATCH_ROWS, UNRESOLVED, ClusterAccess, ask_about, record_batch

CONSUMER_GROUPS = StructType(
    [
        StructField("cluster", StringType()),
        StructField("topic", StringType()),
        StructField("group", StringType()),
        StructField("members", IntegerType()),
        StructField("committed", BooleanType()),
        StructField("error", StringType()),
    ]
)
"""Columns of `read_consumer_groups`: the fields of GroupUse, or an error."""

LAST_RECORDS = StructType(
    [
        StructField("cluster", StringType()),
        StructField("topic", StringType()),
        StructField("end_offset", LongType()),
        StructField("last_record_at", TimestampType()),
        StructField("error", StringType()),
    ]
)
"""Columns of `read_last_records`: the fields of LastRecord."""

UNSEEN_TOPICS = StructType(
    [
        StructField("cluster", StringType()),
        StructField("topic", StringType()),
        StructField("unseen", LongType()),
        StructField("error", StringType()),
    ]
)
"""Columns of `read_unseen_topics`, and an empty topic."""

_Question: TypeAlias = Callable[
    [ClusterAdmin, Sequence[str]], Sequence[GroupUse] | Sequence[LastRecord] | Sequence[Unseen]
]


def read_consumer_groups(
    spark: SparkSession, clusters: Sequence[ClusterSettings], kafka: KafkaSettings, topics: DataFrame
) -> DataFrame:
    """Read the consumer groups that use `topics` (cluster, topic), once and immediately: columns of CONSUMER_GROUPS.

    One row per topic and group that uses it; none for an unused topic. If a cluster didn't answer, each of its topics
    has one row with `error`, and the rest is null. Topics of clusters that aren't among `clusters` have no rows.
    """
    return _read(spark, clusters, kafka, topics, ClusterAdmin.consumer_groups, CONSUMER_GROUPS)


def read_last_records(
    spark: SparkSession, clusters: Sequence[ClusterSettings], kafka: KafkaSettings, topics: DataFrame
) -> DataFrame:
    """Read end offsets and last records of `topics` (cluster, topic), once and immediately: columns of LAST_RECORDS.

    One row per topic; `last_record_at` is null if no record is retained. If a cluster didn't answer, `error` is set and
    the rest is null. Topics of clusters that aren't among `clusters` have no rows.
    """
    return _read(spark, clusters, kafka, topics, ClusterAdmin.last_records, LAST_RECORDS)


def read_unseen_topics(
    spark: SparkSession,
    clusters: Sequence[ClusterSettings],
    kafka: KafkaSettings,
    named: DataFrame,
    *,
    on: int | None = None,
) -> DataFrame:
    """Count the topics of clusters `named` (cluster) that this principal doesn't see, once and immediately (M3).

    `on`: only topics with replicas on this broker; if it is down, on all live brokers, and the number is unknown unless
    none can be hidden. Columns cluster, unseen and error, one row per cluster. If the number is unknown, `unseen` is
    null and `error` names what to grant. Clusters that aren't among `clusters` have no rows.
    """
    one_each = named.select("cluster", F.lit("").alias("topic"))
    return _read(spark, clusters, kafka, one_each, partial(_unseen, on=on), UNSEEN_TOPICS).drop("topic")


def _unseen(admin: ClusterAdmin, _: Sequence[str], *, on: int | None) -> Sequence[Unseen]:
    return [Unseen(unseen=admin.unseen_topics(on))]


def _read(
    spark: SparkSession,
    clusters: Sequence[ClusterSettings],
    kafka: KafkaSettings,
    topics: DataFrame,
    question: _Question,
    schema: StructType,
) -> DataFrame:
    asked = topics.select("cluster", "topic").distinct()
    return ask_about(spark, clusters, kafka, asked, partial(_answer, question), schema)


def _answer(
    question: _Question, schema: StructType, access: ClusterAccess, topics: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    cluster = access.cluster.name
    rows: list[dict[str, object]]
    try:
        with ClusterAdmin(access.cluster, access.kafka) as admin:
            rows = [asdict(each) for each in question(admin, topics)]
    except SecretError as error:
        rows = [{"topic": topic, "error": str(error), UNRESOLVED.name: True} for topic in topics]
    except TopicLedgerError as error:
        rows = [{"topic": topic, "error": str(error)} for topic in topics]
    for start in range(0, len(rows), BATCH_ROWS):
        part = rows[start : start + BATCH_ROWS]
        columns = {name: [row.get(name) for row in part] for name in schema.names}
        yield record_batch(schema, columns | {"cluster": [cluster] * len(part)}, len(part))
