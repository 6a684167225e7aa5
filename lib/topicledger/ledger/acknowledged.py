"""The last acknowledged change of a topic in `audit`, which shows whether the topic is ours."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.ledger.outcomes import is_acknowledged
from topicledger.ledger.tables import Ledger
from topicledger.model import Action, Maker
from topicledger.schemas import AUDIT


def last_creates(audit: DataFrame) -> DataFrame:
    """Topics whose last acknowledged create or delete is a create of ours.

    In: columns of `audit`. Out: cluster, topic, cluster_id, and topic_id and run_id of the create.
    """
    done = audit.where(is_acknowledged() & F.col("action").isin(Action.CREATE.value, Action.DELETE.value))
    last = F.max_by(F.struct("action", "topic_id", "run_id"), "completed_at").alias("last")
    return (
        done.groupBy("cluster", "topic", "cluster_id")
        .agg(last)
        .where(F.col("last.action") == Action.CREATE.value)
        .select("cluster", "topic", "cluster_id", "last.topic_id", "last.run_id")
    )


def created_by(ledger: Ledger, cluster: str, cluster_id: str, topics: Collection[str]) -> Mapping[str, Maker]:
    """Topics among `topics` whose last acknowledged apply in `audit` is a create of ours -> its run (C21, M3)."""
    wanted = ledger.spark.createDataFrame([(topic,) for topic in topics], "topic string")
    of_cluster = (F.col("cluster") == cluster) & (F.col("cluster_id") == cluster_id)
    rows = ledger.read(AUDIT).where(of_cluster).join(wanted, on="topic", how="left_semi")
    return {row["topic"]: Maker(row["run_id"], row["topic_id"]) for row in last_creates(rows).collect()}
