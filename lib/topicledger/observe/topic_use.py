"""Who uses topics, when they were last written to, and how many are hidden: what policies ask clusters.

Only the given topics are asked about, each cluster by an executor. A cluster that can't answer gives a row that says
why for each of its topics, never an exception and never no row: no row means that nobody uses a topic.
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
"""What `read_consumer_groups` returns: the fields of GroupUse, or an error."""

LAST_RECORDS = StructType(
    [
        StructField("cluster", StringType()),
        StructField("topic", StringType()),
        StructField("end_offset", LongType()),
        StructField("last_record_at", TimestampType()),
        StructField("error", StringType()),
    ]
)
"""What `read_last_records` returns: the fields of LastRecord."""

UNSEEN_TOPICS = StructType(
    [
        StructField("cluster", StringType()),
        StructField("topic", StringType()),
        StructField("unseen", LongType()),
        StructField("error", StringType()),
    ]
)
"""What `read_unseen_topics` returns, and an empty topic."""

_Question: TypeAlias = Callable[
    [ClusterAdmin, Sequence[str]], Sequence[GroupUse] | Sequence[LastRecord] | Sequence[Unseen]
]


def read_consumer_groups(
    spark: SparkSession, clusters: Sequence[ClusterSettings], kafka: KafkaSettings, topics: DataFrame
) -> DataFrame:
    """Which consumer groups use `topics` (cluster, topic), asked once and now: columns of CONSUMER_GROUPS.

    A row per topic and group that uses it, none for a topic that nobody uses. Where a cluster didn't answer, one row
    for each of its topics with `error`, the rest null. Topics of clusters that are not among `clusters` give no rows.
    """
    return _read(spark, clusters, kafka, topics, ClusterAdmin.consumer_groups, CONSUMER_GROUPS)


def read_last_records(
    spark: SparkSession, clusters: Sequence[ClusterSettings], kafka: KafkaSettings, topics: DataFrame
) -> DataFrame:
    """How far `topics` (cluster, topic) were written, and when last, asked once and now: columns of LAST_RECORDS.

    One row per topic; `last_record_at` is null where no record is kept. Where a cluster didn't answer, `error` is set
    and the rest null. Topics of clusters that are not among `clusters` give no rows.
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
    """How many topics of the clusters `named` (cluster) this principal doesn't see, asked once and now (M3).

    `on`: only topics that have replicas on this broker; if it is down, those of all brokers that are up. Columns
    cluster, unseen and error: one row per cluster. If it isn't known, `error` has what to grant and `unseen` is null.
    Clusters that are not among `clusters` give no rows.
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
