"""Phase guard: limits on a run as a whole. A run that a guard stops has exit code 5."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from topicledger.actions.delete import MAX_DELETES
from topicledger.actions.reassign import MAX_MOVES
from topicledger.actions.safeguards import MAX_CHANGES, MAX_DISRUPTIONS, MAX_LOSSES
from topicledger.manifests.rows import Transform
from topicledger.model import Action, ReplicaAction
from topicledger.plan import effects
from topicledger.policies.contract import CHANGES, is_one_of_actions
from topicledger.resources.ending import stopped


def max_deletes(most: int) -> Transform:
    """Stop all deletes of a cluster if there are more than `most`; creates continue.

    In and out: `phases.DECIDED`. Deletes that a policy refused don't count.
    """

    def transform(decisions: DataFrame) -> DataFrame:
        delete = F.coalesce((F.col("decision") == Action.DELETE.value) & F.col("phase").isNull(), F.lit(False))
        counted = decisions.withColumn("_deletes", F.sum(delete.cast("int")).over(Window.partitionBy("cluster")))
        stop, guard = delete & (F.col("_deletes") > most), MAX_DELETES
        return counted.transform(stopped(stop, guard.error, guard.message("_deletes", most))).drop("_deletes")

    return transform


def max_changes(most: int | None) -> Transform:
    """Stop all changes of a cluster if more than `most` topics would be changed; None: no limit.

    In and out: `phases.DECIDED`, with a row per action. Changes that a policy refused don't count.
    """

    def transform(decisions: DataFrame) -> DataFrame:
        if most is None:
            return decisions
        change = F.coalesce(is_one_of_actions(CHANGES) & F.col("phase").isNull(), F.lit(False))
        counted = decisions.withColumn("_first", _first(change)).withColumn("_changes", _in_cluster("_first"))
        message, stop = MAX_CHANGES.message("_changes", most), change & (F.col("_changes") > most)
        return counted.transform(stopped(stop, MAX_CHANGES.error, message)).select(*decisions.columns)

    return transform


def max_losses(most: int) -> Transform:
    """Stop all actions of a cluster that can lose something if more than `most` topics have such actions.

    These are altered configs, added partitions, and moves to fewer replicas; the election of a topic's leaders is
    stopped with its move. In and out: `phases.DECIDED`, with a row per action. Actions that a policy refused don't
    count.
    """

    def transform(decisions: DataFrame) -> DataFrame:
        loss = F.when(F.col("phase").isNull(), effects.losses())
        counted = (
            decisions.withColumn("_loss", loss)
            .withColumn("_first", _first(F.col("_loss").isNotNull()))
            .withColumn("_losses", _in_cluster("_first"))
        )
        message = F.concat(
            F.coalesce("_loss", F.lit("its replicas would be fewer")),
            F.lit("; "),
            MAX_LOSSES.message("_losses", most),
        )
        lost = F.col("_loss").isNotNull()
        fewer = lost & (F.col("decision") == ReplicaAction.REASSIGN.value)
        stop = (lost | _elects_after(fewer)) & (F.col("_losses") > most)
        return counted.transform(stopped(stop, MAX_LOSSES.error, message)).select(*decisions.columns)

    return transform


def max_disruptions(most: int) -> Transform:
    """All altered configs of a cluster that can refuse writes or fill disks are stopped, if more than `most` topics
    have any.

    In and out: `phases.DECIDED`, with a row per action. Actions that another guard or a policy stopped don't count.
    """

    def transform(decisions: DataFrame) -> DataFrame:
        found = F.when(F.col("phase").isNull(), effects.disruptions())
        disrupts = F.col("_disruption").isNotNull()
        counted = (
            decisions.withColumn("_disruption", found)
            .withColumn("_first", _first(disrupts))
            .withColumn("_disruptions", _in_cluster("_first"))
        )
        message = F.concat("_disruption", F.lit("; "), MAX_DISRUPTIONS.message("_disruptions", most))
        stop = disrupts & (F.col("_disruptions") > most)
        return counted.transform(stopped(stop, MAX_DISRUPTIONS.error, message)).select(*decisions.columns)

    return transform


def _first(where: Column) -> Column:
    """Return 1 for the first such row of a topic, else 0: a topic that grows and is altered has two rows."""
    rows = Window.partitionBy("cluster", "topic").orderBy(where.desc(), "decision")
    return (where & (F.row_number().over(rows) == 1)).cast("int")


def _in_cluster(count: str) -> Column:
    return F.sum(count).over(Window.partitionBy("cluster"))


def _elects_after(moved: Column) -> Column:
    """Return whether a row elects leaders of a topic that has such a move."""
    of_topic = F.max(F.coalesce(moved, F.lit(False))).over(Window.partitionBy("cluster", "topic"))
    return of_topic & (F.col("decision") == ReplicaAction.ELECT_LEADERS.value)


def max_moves(most: int) -> Transform:
    """Stop all moves of replicas on a cluster if more than `most` partitions would be moved.

    The election of a topic's leaders is stopped with its moves. In and out: `phases.DECIDED`, with a row per action.
    """

    def transform(decisions: DataFrame) -> DataFrame:
        moved = F.when(F.col("phase").isNull(), moved_partitions())
        of_cluster = F.sum(moved).over(Window.partitionBy("cluster"))
        counted = decisions.withColumns({"_moves": of_cluster, "_elects": _elects_after(moved.isNotNull())})
        message = MAX_MOVES.message("_moves", most)
        stop = (moved.isNotNull() | F.col("_elects")) & (F.col("_moves") > most)
        return counted.transform(stopped(stop, MAX_MOVES.error, message)).drop("_moves", "_elects")

    return transform


def moved_partitions() -> Column:
    """Return the number of partitions that a reassignment moves (int); null for other actions."""
    return F.when(F.col("decision") == ReplicaAction.REASSIGN.value, F.size("moves"))
