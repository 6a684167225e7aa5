"""What `audit` says last of a topic: only the last acknowledged change shows whether the topic is ours."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.model import Action, Outcome, Phase


def last_creates(audit: DataFrame) -> DataFrame:
    """Topics whose last acknowledged change is a create of ours.

    In: columns of `audit`. Out: cluster, topic, cluster_id, and of that create topic_id and run_id.
    """
    done = audit.where((F.col("phase") == Phase.APPLY.value) & (F.col("outcome") == Outcome.OK.value))
    last = F.max_by(F.struct("action", "topic_id", "run_id"), "completed_at").alias("last")
    return (
        done.groupBy("cluster", "topic", "cluster_id")
        .agg(last)
        .where(F.col("last.action") == Action.CREATE.value)
        .select("cluster", "topic", "cluster_id", "last.topic_id", "last.run_id")
    )
