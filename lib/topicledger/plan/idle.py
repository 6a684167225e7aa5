"""The policies that find out whether a topic is used, and what earlier plans saw of topics without records."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.ledger.run import Run
from topicledger.policies.delete import END_OFFSET
from topicledger.schemas import PLANS

USED = ("in_use", "no_consumer_groups", "no_recent_records")
"""The policies that find out whether a topic is used."""


def seen_since(run: Run) -> DataFrame:
    """Return the end offsets that earlier plans saw: cluster, topic, topic_id, end_offset, and the first time."""
    return (
        run.ledger.read(PLANS)
        .where(F.col("before")[END_OFFSET].isNotNull())
        .groupBy("cluster", "topic", "topic_id", F.col("before")[END_OFFSET].cast("long").alias("end_offset"))
        .agg(F.min("planned_at").alias("seen_since"))
    )
