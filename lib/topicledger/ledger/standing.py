"""How the planned actions of a run stand, by its rows of `plans` and `audit`: every phase and resume go by it."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.ledger.run import Run
from topicledger.model import Outcome, Phase


def without(rows: DataFrame, ended: DataFrame) -> DataFrame:
    """`rows` less the actions that `ended` has."""
    return rows.join(ended.select("cluster", "topic", "action"), on=["cluster", "topic", "action"], how="left_anti")


def passed(run: Run) -> DataFrame:
    """Planned actions that passed validate, and the policies after it, and have no apply row."""
    audit = run.audit()
    valid = audit.where((F.col("phase") == Phase.VALIDATE.value) & (F.col("outcome") == Outcome.OK.value))
    rows = run.open_actions().join(
        valid.select("cluster", "topic", "action"), on=["cluster", "topic", "action"], how="left_semi"
    )
    refused = (F.col("phase") == Phase.POLICY.value) & (F.col("outcome") != Outcome.OK.value)
    return without(rows, audit.where((F.col("phase") == Phase.APPLY.value) | refused))


def applied(run: Run) -> DataFrame:
    """Planned actions that were applied and not verified yet, with `applied_id` and `applied_num_partitions`: what the
    answer returned."""
    audit = run.audit()
    done = audit.where((F.col("phase") == Phase.APPLY.value) & (F.col("outcome") == Outcome.OK.value))
    returned = done.select(
        "cluster",
        "topic",
        "action",
        F.col("topic_id").alias("applied_id"),
        F.col("num_partitions").alias("applied_num_partitions"),
    )
    return without(
        run.open_actions().join(returned, on=["cluster", "topic", "action"], how="inner"),
        audit.where(F.col("phase") == Phase.VERIFY.value),
    )
