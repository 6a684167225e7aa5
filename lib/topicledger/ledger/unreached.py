"""Clusters that could not be reached when a run was planned."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.model import Phase, Refusal


def is_planned(plans: DataFrame) -> Mapping[str, bool]:
    """Return whether each cluster that has rows in `plans` has a plan: false if it was never reached.

    `plans`: rows of one run.
    """
    unreached = (F.col("phase") == Phase.OBSERVE.value) & (F.col("error") == Refusal.CLUSTER_UNREACHABLE.value)
    decided = F.col("action").isNotNull() | F.col("phase").isin(Phase.POLICY.value, Phase.GUARD.value)
    rows = plans.groupBy("cluster").agg(F.bool_or(unreached).alias("unreached"), F.bool_or(decided).alias("planned"))
    return {row["cluster"]: (row["unreached"], row["planned"]) != (True, False) for row in rows.collect()}
