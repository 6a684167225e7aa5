"""Size and use of topics, which an audit with usage appends to the table `usage`.

It is append-only: the rows of earlier audits tell how much was written since, and since when a topic is unused.
"""

from __future__ import annotations

import logging

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.drift.scoping import on_topics
from topicledger.kafka.config_values import by_name
from topicledger.kafka.usage import MEASURED, NO_RECORDS
from topicledger.ledger.run import Run
from topicledger.manifests.rows import Transform
from topicledger.policies.contract import text
from topicledger.resources.ending import lookup
from topicledger.resources.topics.drift.find import Estate
from topicledger.resources.topics.observe.usage import observe_usage
from topicledger.schemas import USAGE

log = logging.getLogger(__name__)

_MIN_ISR = "min.insync.replicas"


def record_usage(run: Run, estate: Estate, validated: DataFrame) -> None:
    """Read size and use of the live topics in an audit's scope, and append them in one commit.

    `validated`: from `manifests.rows.validate`. Clusters that an earlier start of this audit read are left out.
    """
    run.ledger.ensure(USAGE)
    own = F.col("run_id") == run.run_id
    done = [row["cluster"] for row in run.ledger.read(USAGE).where(own).select("cluster").distinct().collect()]
    clusters = [each for each in run.clusters if each.name in estate.cluster_ids and each.name not in done]
    # Topics that the settings leave to others have a size, too.
    live = estate.topics.where(F.col("cluster").isin(*(each.name for each in clusters)) & F.col("permitted"))
    topics = live.select("cluster", "topic", "internal", F.col("topic_id").alias("_listed_id"))
    topics = topics.transform(on_topics(run, validated))
    measured = observe_usage(run.spark, clusters, run.settings.kafka, topics.select("cluster", "topic"))
    _warn_of_unknown(measured)
    rows = (
        measured.join(topics, on=["cluster", "topic"], how="inner")
        .withColumn("topic_id", F.coalesce("topic_id", "_listed_id"))
        .withColumn("run_id", F.lit(run.run_id))
        .withColumn("cluster_id", lookup(estate.cluster_ids, F.col("cluster")))
        .transform(with_at_min_isr(estate.configs))
        .transform(with_growth(run.ledger.read(USAGE).where(~own)))
        .select(*(F.col(each.name).cast(each.dataType) for each in USAGE.schema))
    )
    run.keep_row()
    run.require_ownership()
    run.ledger.append(USAGE, rows, app_id=run.run_id, version=run.next_version())


def with_at_min_isr(configs: DataFrame) -> Transform:
    """Add `at_min_isr`, and to `reasons` why it is null.

    In: `resources.topics.observe.usage.MEASUREMENT`. `configs`: columns of `observed_configs`.
    """
    value = by_name("configs")[_MIN_ISR]["value"].cast("int")
    by_topic = configs.select("cluster", "topic", value.alias("_min_isr"), F.col("config_error").alias("_config_error"))
    config_error = F.coalesce("_config_error", F.lit("brokers don't describe it"))
    why = F.coalesce(F.col("reasons")["partitions"], text(f"the topic's {_MIN_ISR} is unknown: ", config_error))
    counted = F.size(F.filter("isr", lambda size: size <= F.col("_min_isr")))
    known = F.col("isr").isNotNull() & F.col("_min_isr").isNotNull()
    return lambda rows: (
        rows.join(by_topic, on=["cluster", "topic"], how="left")
        .withColumn("at_min_isr", F.when(known, counted))
        .transform(_with_reasons(at_min_isr=why))
    )


def with_growth(earlier: DataFrame) -> Transform:
    """Add `since`, `records_since` and `bytes_since`, and to `reasons` why they are null.

    In: cluster, topic_id, end_offset, bytes and reasons. `earlier`: rows of `usage`; those without an end offset don't
    count.
    """
    then = F.struct("observed_at", "end_offset", "bytes")
    last = (
        earlier.where(F.col("end_offset").isNotNull() & F.col("topic_id").isNotNull())
        .groupBy("cluster", "topic_id")
        .agg(F.max_by(then, "observed_at").alias("_then"))
    )
    before, now, size = F.col("_then.end_offset"), F.col("end_offset"), F.col("bytes")
    first = F.when(F.col("topic_id").isNull(), F.lit("brokers before Kafka 2.8 give topics no ids")).when(
        F.col("_then").isNull(), F.lit("no earlier audit read the end offset of this topic")
    )
    lost = text("the end offset was ", before, " at the previous audit and is ", now, ": records were lost")
    records = F.coalesce(first, F.col("reasons")["end_offset"], lost)
    no_bytes = F.lit("the previous audit couldn't read the topic's bytes")
    return lambda rows: (
        rows.join(last, on=["cluster", "topic_id"], how="left")
        .withColumn("since", F.col("_then.observed_at"))
        .withColumn("records_since", F.when(now >= before, now - before))
        .withColumn("bytes_since", size - F.col("_then.bytes"))
        .transform(
            _with_reasons(
                since=first, records_since=records, bytes_since=F.coalesce(first, F.col("reasons")["bytes"], no_bytes)
            )
        )
    )


def _with_reasons(**reasons: Column) -> Transform:
    """Add the reasons of those columns that are null."""
    named = [F.when(F.col(name).isNull(), why) for name, why in reasons.items()]
    every = F.map_from_arrays(F.array(*map(F.lit, reasons)), F.array(*named))
    own = F.map_filter(every, lambda _, why: why.isNotNull())
    return lambda rows: rows.withColumn("reasons", F.map_concat("reasons", own))


def _warn_of_unknown(measured: DataFrame) -> None:
    """Warn once about each cluster and column that is unknown for some topics."""
    unknown = (
        measured.select("cluster", F.explode("reasons").alias("column", "why"))
        .where(F.col("column").isin(*MEASURED) & (F.col("why") != NO_RECORDS))
        .groupBy("cluster", "why")
        .agg(F.array_sort(F.collect_set("column")).alias("columns"), F.count("*").alias("count"))
    )
    worst = unknown.groupBy("cluster", "columns").agg(F.sum("count").alias("count"), F.min("why").alias("why"))
    for row in worst.orderBy("cluster", "columns").collect():
        topics = row["count"] // len(row["columns"])
        log.warning(
            "cluster %s: %s of %s topics: unknown: %s", row["cluster"], ", ".join(row["columns"]), topics, row["why"]
        )
