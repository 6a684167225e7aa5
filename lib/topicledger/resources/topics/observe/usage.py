"""Read size and use of live topics, in one task per cluster on the executors, as configs are.

Reading changes nothing, so a task that Spark runs twice does no harm. If a cluster doesn't answer, each of its topics
has a row with the reason; there is no exception.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, IntegerType, StructType

from topicledger.config.settings import ClusterSettings, KafkaSettings
from topicledger.errors import SecretError, TopicLedgerError
from topicledger.kafka import ClusterAdmin
from topicledger.kafka.usage import MEASURED, TopicUsage
from topicledger.observe.cluster_queries import BATCH_ROWS, UNRESOLVED, ClusterAccess, ask_about, record_batch
from topicledger.schemas import USAGE

MEASUREMENT = (
    StructType([USAGE.schema[name] for name in ("cluster", "topic", "topic_id", "observed_at", *MEASURED)])
    .add("isr", ArrayType(IntegerType()))
    .add(USAGE.schema["reasons"])
)
"""Columns of `usage` that brokers report, and `isr`: the number of in-sync replicas of each partition."""


def observe_usage(
    spark: SparkSession, clusters: Sequence[ClusterSettings], kafka: KafkaSettings, topics: DataFrame
) -> DataFrame:
    """Read size and use of `topics` (cluster, topic; distinct) once: columns of MEASUREMENT, materialised.

    One row per topic that exists. An unknown value is null, with a reason.
    """
    return ask_about(spark, clusters, kafka, topics, _ask, MEASUREMENT)


def _ask(schema: StructType, access: ClusterAccess, topics: Sequence[str]) -> Iterator[pa.RecordBatch]:
    cluster, now = access.cluster.name, datetime.now(UTC)
    left = set(topics)
    held: list[TopicUsage] = []
    try:
        with ClusterAdmin(access.cluster, access.kafka) as admin:
            for each in admin.topic_usage(topics):
                left.discard(each.topic)
                held.append(each)
                if len(held) == BATCH_ROWS:
                    yield _batch(schema, cluster, now, held)
                    held = []
    except TopicLedgerError as error:
        reasons = dict.fromkeys(MEASURED, str(error))
        held += [TopicUsage(topic=topic, topic_id=None, values={}, isr=None, reasons=reasons) for topic in sorted(left)]
        if isinstance(error, SecretError):
            yield _batch(schema, cluster, now, held, unresolved=True)
            return
    if held:
        yield _batch(schema, cluster, now, held)


def _batch(
    schema: StructType, cluster: str, now: datetime, usages: Sequence[TopicUsage], *, unresolved: bool = False
) -> pa.RecordBatch:
    count = len(usages)
    columns: dict[str, Sequence[object]] = {
        "cluster": [cluster] * count,
        "topic": [each.topic for each in usages],
        "topic_id": [each.topic_id for each in usages],
        "observed_at": [now] * count,
        **{name: [each.values.get(name) for each in usages] for name in MEASURED},
        "isr": [each.isr for each in usages],
        "reasons": [list(each.reasons.items()) for each in usages],
        UNRESOLVED.name: [unresolved] * count,
    }
    return record_batch(schema, columns, count)
