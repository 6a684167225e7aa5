"""Phase guard: limits on what a run does to each cluster. A run that a guard stops has exit code 5."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from topicledger.actions.safeguards import MAX_CHANGES, MAX_DISRUPTIONS, MAX_LOSSES
from topicledger.manifests.rows import Transform
from topicledger.model import Action, ReplicaAction
from topicledger.policies.contract import CHANGES, is_one_of_actions
from topicledger.resources.limiting import limited
from topicledger.resources.topics.actions.delete import MAX_DELETES
from topicledger.resources.topics.actions.reassign import MAX_MOVES
from topicledger.resources.topics.plan import effects


def max_deletes(most: int) -> Transform:
    """Stop all deletes of a cluster if there are more than `most`; creates continue.

    In and out: `phases.DECIDED`. Deletes that a policy refused don't count.
    """
    return limited(MAX_DELETES, most, F.col("decision") == Action.DELETE.value)


def max_changes(most: int | None) -> Transform:
    """Stop all changes of a cluster if more than `most` topics would be changed; None: no limit.

    In and out: `phases.DECIDED`, with a row per action. Changes that a policy refused don't count.
    """
    if most is None:
        return lambda decisions: decisions
    return limited(MAX_CHANGES, most, is_one_of_actions(CHANGES), by_topic=True)


def max_losses(most: int) -> Transform:
    """Stop all actions of a cluster that can lose something if more than `most` topics have such actions.

    These are altered configs, added partitions, and moves to fewer replicas; the election of a topic's leaders is
    stopped with its move. In and out: `phases.DECIDED`, with a row per action. Actions that a policy refused don't
    count.
    """

    def transform(decisions: DataFrame) -> DataFrame:
        lost = F.col("_loss").isNotNull()
        fewer = lost & (F.col("decision") == ReplicaAction.REASSIGN.value)
        why = F.concat(F.coalesce("_loss", F.lit("its replicas would be fewer")), F.lit("; "))
        return (
            decisions.withColumn("_loss", F.when(_may_be_sent(), effects.losses()))
            .transform(limited(MAX_LOSSES, most, lost, by_topic=True, also=_elects_after(fewer), why=why))
            .select(*decisions.columns)
        )

    return transform


def max_disruptions(most: int) -> Transform:
    """Stop all actions of a cluster that can refuse writes or fill disks if more than `most` topics have such actions.

    These are altered configs, and moves that leave no spare replica; the election of a topic's leaders is stopped with
    its move. In and out: `phases.DECIDED`, with a row per action. Actions that another guard or a policy stopped don't
    count.
    """

    def transform(decisions: DataFrame) -> DataFrame:
        disrupts = F.col("_disruption").isNotNull()
        moved = disrupts & (F.col("decision") == ReplicaAction.REASSIGN.value)
        why = F.concat(F.coalesce("_disruption", F.lit("its replicas would be fewer")), F.lit("; "))
        return (
            decisions.withColumn("_disruption", F.when(_may_be_sent(), effects.disruptions()))
            .transform(limited(MAX_DISRUPTIONS, most, disrupts, by_topic=True, also=_elects_after(moved), why=why))
            .select(*decisions.columns)
        )

    return transform


def _may_be_sent() -> Column:
    """Return whether nothing but guards stopped an action: an approval may still allow it."""
    return F.col("phase").isNull() | F.col("guards").isNotNull()


def _elects_after(moved: Column) -> Column:
    """Return whether a row elects leaders of a topic that has such a move."""
    of_topic = F.max(F.coalesce(moved, F.lit(False))).over(Window.partitionBy("cluster", "topic"))
    return of_topic & (F.col("decision") == ReplicaAction.ELECT_LEADERS.value)


def max_moves(most: int) -> Transform:
    """Stop all moves of replicas on a cluster if more than `most` partitions would be moved.

    The election of a topic's leaders is stopped with its moves. In and out: `phases.DECIDED`, with a row per action.
    """
    moves = moved_partitions().isNotNull()
    elects = _elects_after(moves & _may_be_sent())
    return limited(MAX_MOVES, most, moves, number=moved_partitions(), also=elects)


def moved_partitions() -> Column:
    """Return the number of partitions that a reassignment moves (int); null for other actions."""
    return F.when(F.col("decision") == ReplicaAction.REASSIGN.value, F.size("moves"))
