"""Describe the configs of live topics, in batches on the executors.

Describing changes nothing, so a task that Spark runs twice does no harm. If a cluster doesn't answer, a row gives the
reason; there is no exception.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from topicledger.config.settings import ClusterSettings, KafkaSettings
from topicledger.errors import SecretError, TopicLedgerError
from topicledger.kafka import ClusterAdmin, error_name
from topicledger.ledger.rows import configs_column
from topicledger.model import AUTHORIZATION_FAILED, TopicConfigs
from topicledger.observe.cluster_queries import (
    BATCH_ROWS,
    UNRESOLVED,
    ClusterAccess,
    ask_about,
    asked_again,
    record_batch,
)
from topicledger.schemas import CONFIGS

_TASKS = 4
"""Tasks per cluster: Python takes about 0.3 ms to read a topic's 33 configs, so a large cluster needs several."""

_SCHEMA = StructType(
    [
        StructField("cluster", StringType()),
        StructField("topic", StringType()),
        StructField("configs", CONFIGS),
        StructField("config_error_code", IntegerType()),
        StructField("config_error", StringType()),
        StructField("error", StringType()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class ConfigObservation:
    """Described configs, materialised: reading them asks no cluster again."""

    configs: DataFrame
    """Columns of `observed_configs` without run_id: one row per permitted topic of the clusters that answered."""
    errors: Mapping[str, str]
    """Messages for the user, by cluster that didn't answer."""


def observe_configs(
    spark: SparkSession, clusters: Sequence[ClusterSettings], kafka: KafkaSettings, topics: DataFrame
) -> ConfigObservation:
    """Describe the configs of `topics` (columns of `observed`) once, for each cluster completely or not at all.

    If a topic's configs may not be described, `config_error_code` and `config_error` are set and configs is null.
    """
    asked = topics.where("permitted").select("cluster", "topic", "cluster_id", "topic_id")
    response = ask_about(spark, clusters, kafka, asked, _describe, _SCHEMA, tasks=_TASKS)
    failed = response.where("error is not null").groupBy("cluster").agg(F.any_value("error").alias("error")).collect()
    errors = {row["cluster"]: row["error"] for row in failed}
    configs = (
        response.where(~F.col("cluster").isin(*errors))
        .join(asked, on=["cluster", "topic"], how="inner")
        .select(
            "cluster", "cluster_id", "topic", "topic_id", "configs", "config_error_code", "config_error",
            F.lit(datetime.now(UTC)).alias("observed_at"),
        )
    )  # fmt: skip
    return ConfigObservation(configs=configs, errors=errors)


def _describe(schema: StructType, access: ClusterAccess, topics: Sequence[str]) -> Iterator[pa.RecordBatch]:
    cluster = access.cluster.name
    held: list[TopicConfigs] = []
    try:
        with ClusterAdmin(access.cluster, access.kafka) as admin:
            for each in asked_again(admin.topic_configs(topics), admin.topic_configs, _is_answered):
                held.append(each)
                if len(held) == BATCH_ROWS:
                    yield _batch(schema, cluster, held)
                    held = []
        if held:
            yield _batch(schema, cluster, held)
    except SecretError as error:
        yield _failed(schema, cluster, topics, error, unresolved=True)
    except TopicLedgerError as error:
        yield _failed(schema, cluster, topics[:1], error)


def _is_answered(configs: TopicConfigs) -> bool:
    return configs.error_code in (0, *AUTHORIZATION_FAILED)


def _batch(schema: StructType, cluster: str, described: Sequence[TopicConfigs]) -> pa.RecordBatch:
    codes = [each.error_code for each in described]
    columns: dict[str, Sequence[object]] = {
        "cluster": [cluster] * len(described),
        "topic": [each.topic for each in described],
        "configs": configs_column([each.configs for each in described]),
        "config_error_code": codes,
        "config_error": [error_name(code) if code else None for code in codes],
    }
    return record_batch(schema, columns, len(described))


def _failed(
    schema: StructType, cluster: str, topics: Sequence[str], error: TopicLedgerError, *, unresolved: bool = False
) -> pa.RecordBatch:
    count = len(topics)
    columns: dict[str, Sequence[object]] = {
        "cluster": [cluster] * count,
        "topic": list(topics),
        "error": [str(error)] * count,
        UNRESOLVED.name: [unresolved] * count,
    }
    return record_batch(schema, columns, count)
