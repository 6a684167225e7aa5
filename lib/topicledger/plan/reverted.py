"""Changes that a run made, or may have made, from `plans`, `audit` and `sent_batches`: what `runs revert` undoes."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger import kafka
from topicledger.ledger.outcomes import is_stopped, with_outcomes
from topicledger.ledger.rows import touched
from topicledger.ledger.tables import Ledger
from topicledger.model import Outcome, Phase, Refusal, ReplicaAction
from topicledger.schemas import AUDIT, PLANS, SENT_BATCHES

DONE = ("cluster_id", "topic_id", "action", "before", "after", "known", "failed", "completed_at")
"""Columns of an action of the reverted run. `known`: whether its outcome is known; `failed`: why an action failed that
may have had an effect; `completed_at`: when it was applied, or else planned."""
_OTHER_THAN_PLANNED = (
    kafka.UNKNOWN_TOPIC_OR_PARTITION,
    kafka.TOPIC_ALREADY_EXISTS,
    kafka.INVALID_PARTITIONS,
    kafka.UNKNOWN_TOPIC_ID,
)
"""Error codes for a topic that isn't as planned: an earlier start of the run may have changed it."""


def changed_by(ledger: Ledger, reverted: str, *types: str) -> DataFrame:
    """Return actions on resources of these types that a run carried out, or may have carried out.

    Out: cluster, topic, resource_type, resource, `owner` as declared then, and `DONE`.
    """
    return _carried_out(ledger, F.col("run_id") == reverted, types).drop("run_id")


def changed_later(ledger: Ledger, reverted: str, done: DataFrame, *types: str) -> DataFrame:
    """Return later actions of other runs on the same resources.

    In: `done` from `changed_by` for the run `reverted` and these types. Out: cluster, resource_type, resource, run_id,
    `touched` (names that it set or reset) and `completed_at`.
    """
    key = ["cluster", "resource_type", "resource"]
    since = done.groupBy(*key).agg(F.max("completed_at").alias("_since"))
    return (
        _carried_out(ledger, F.col("run_id") != reverted, types, of=since.select(*key))
        .join(since, on=key, how="inner")
        .where(F.col("completed_at") > F.col("_since"))
        .select(*key, "run_id", touched().alias("touched"), "completed_at")
    )


def _carried_out(ledger: Ledger, of_runs: Column, types: Sequence[str], of: DataFrame | None = None) -> DataFrame:
    """Return actions that runs carried out, or may have carried out.

    `of`: only on these resources (cluster, resource_type, resource). Out: run_id, cluster, topic, resource_type,
    resource, owner, and `DONE`.
    """
    of_types = F.col("resource_type").isin(*types)

    def named(rows: DataFrame) -> DataFrame:
        return rows if of is None else rows.join(of, on=of.columns, how="left_semi")

    audit = named(ledger.read(AUDIT).where(of_runs & of_types & F.col("action").isNotNull()))
    # Leaders follow from the places of replicas: there is nothing to undo.
    undoable = F.col("action").isNotNull() & (F.col("action") != ReplicaAction.ELECT_LEADERS.value)
    planned = named(ledger.read(PLANS).where(of_runs & of_types & undoable & (F.col("phase").isNull() | is_stopped())))
    # Batches that may have been sent, if the run was abandoned during its requests.
    batch = ["run_id", "cluster", "action", "batch"]
    sent = ledger.read(SENT_BATCHES).where(of_runs).select(*batch, F.lit(True).alias("_sent"))
    outcomes = with_outcomes(planned, audit, "run_id", more={"_done_nothing": _done_nothing()})
    rows = outcomes.join(sent.distinct(), on=batch, how="left")
    known = F.col("applied").isNotNull()
    failed = _failed_halfway()
    why = F.coalesce("result.error_message", "result.error", F.lit(Outcome.FAILED.value))
    return rows.where(known | failed | (F.col("_sent") & ~F.coalesce("over", F.lit(False)))).select(
        "run_id",
        "cluster",
        "topic",
        "resource_type",
        "resource",
        "owner",
        "cluster_id",
        F.coalesce("applied.topic_id", "topic_id").alias("topic_id"),
        "action",
        # If an answer was lost, `audit` has no `before`. The plan's is right, since the request was compared with it.
        F.coalesce("applied.before", "before").alias("before"),
        F.coalesce("applied.after", "after").alias("after"),
        (known | failed).alias("known"),
        F.when(failed, why).alias("failed"),
        F.coalesce("applied.completed_at", "planned_at").alias("completed_at"),
    )


def _failed_halfway() -> Column:
    """Return whether an action failed and may have had an effect. In: from `with_outcomes`, with `_done_nothing`."""
    failed = (F.col("result.phase") == Phase.APPLY.value) & (F.col("result.outcome") == Outcome.FAILED.value)
    # A move has several requests, and may have moved some of the partitions.
    moves = F.col("action") == ReplicaAction.REASSIGN.value
    return F.coalesce(failed & (moves | ~F.coalesce("_done_nothing", F.lit(False))), F.lit(False))


def _done_nothing() -> Column:
    """Whether a broker's only answer refused an action, or it was never sent: an aggregate of rows of `audit`.

    The row of an action whose request got lost has a later attempt, or no code of a broker.
    """
    without_room = F.col("error").eqNullSafe(F.lit(Refusal.BUDGET_NOT_FREED.value))
    by_broker = (F.col("error_code") > 0) & (F.col("error_code") != kafka.REQUEST_TIMED_OUT)
    at_once = (F.col("attempt") == 1) & ~F.col("error_code").isin(*_OTHER_THAN_PLANNED)
    return F.bool_or((F.col("phase") == Phase.APPLY.value) & (without_room | (by_broker & at_once)))
