"""The policies that find out whether a topic is used, and what plans and audits saw of topics without records."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.ledger.run import Run
from topicledger.policies.delete import END_OFFSET
from topicledger.schemas import PLANS, USAGE

USED = ("in_use", "no_consumer_groups", "no_recent_records")
"""The policies that find out whether a topic is used."""


def seen_since(run: Run) -> DataFrame:
    """Return end offsets that plans and audits saw: cluster, topic, topic_id, end_offset, and the first time."""
    key = ("cluster", "topic", "topic_id")
    by_plans = (
        run.ledger.read(PLANS)
        .where(F.col("before")[END_OFFSET].isNotNull())
        .select(*key, F.col("before")[END_OFFSET].cast("long").alias("end_offset"), F.col("planned_at").alias("_at"))
    )
    by_audits = run.ledger.read_if_exists(USAGE).where(F.col("end_offset").isNotNull())
    seen = by_plans.unionByName(by_audits.select(*key, "end_offset", F.col("observed_at").alias("_at")))
    return seen.groupBy(*key, "end_offset").agg(F.min("_at").alias("seen_since"))
