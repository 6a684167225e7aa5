"""Phase guard: limits on a run as a whole. What a guard stops ends in exit code 5."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from topicledger.config.guards import GuardSettings
from topicledger.manifests.rows import Transform
from topicledger.model import Action, Outcome, Phase, Refusal, ReplicaAction
from topicledger.plan import losses
from topicledger.policies.contract import CHANGES, is_one_of_actions


def max_deletes(most: int) -> Transform:
    """All deletes of a cluster are stopped where there are more than `most` of them; creates go on.

    In and out: `contract.COLUMNS`. Deletes that a policy refused don't count.
    """

    def transform(decisions: DataFrame) -> DataFrame:
        delete = F.coalesce((F.col("decision") == Action.DELETE.value) & F.col("phase").isNull(), F.lit(False))
        counted = decisions.withColumn("_deletes", F.sum(delete.cast("int")).over(Window.partitionBy("cluster")))
        message = F.concat(
            F.lit("planned deletes of this cluster: "),
            F.col("_deletes"),
            F.lit(f", guards.max_deletes is {most}; raise it if they are meant"),
        )
        stop = delete & (F.col("_deletes") > most)
        return counted.transform(stopped(stop, Refusal.MAX_DELETES_EXCEEDED, message)).drop("_deletes")

    return transform


def changes(settings: GuardSettings) -> Transform:
    """All changes of a cluster are stopped where more topics than `max_changes` are to be changed; and all changes that
    can lose something where there are more topics of these than `max_losses`. The others go on.

    In and out: `contract.COLUMNS`, with a row per action. Changes that a policy refused don't count.
    """

    def transform(decisions: DataFrame) -> DataFrame:
        change = F.coalesce(is_one_of_actions(CHANGES) & F.col("phase").isNull(), F.lit(False))
        loss = F.when(change, losses.found())
        of_cluster = Window.partitionBy("cluster")

        def first(where: Column) -> Column:
            """Whether it is the first such row of its topic: one that grows and is altered has two."""
            rows = Window.partitionBy("cluster", "topic").orderBy(where.desc(), "decision")
            return (where & (F.row_number().over(rows) == 1)).cast("int")

        counted = (
            decisions.withColumn("_loss", loss)
            .withColumns({"_first": first(change), "_first_loss": first(F.col("_loss").isNotNull())})
            .withColumns(
                {"_changes": F.sum("_first").over(of_cluster), "_losses": F.sum("_first_loss").over(of_cluster)}
            )
        )
        too_many = F.concat(
            F.lit("topics of this cluster that are to be changed: "),
            F.col("_changes"),
            F.lit(f", guards.max_changes is {settings.max_changes}; raise it if they are meant"),
        )
        too_risky = F.concat(
            F.col("_loss"),
            F.lit("; topics of this cluster with such changes: "),
            F.col("_losses"),
            F.lit(f", guards.max_losses is {settings.max_losses}; raise it if they are meant"),
        )
        if settings.max_changes is not None:
            stop = change & (F.col("_changes") > settings.max_changes)
            counted = counted.transform(stopped(stop, Refusal.MAX_CHANGES_EXCEEDED, too_many))
        stop = F.col("_loss").isNotNull() & (F.col("_losses") > settings.max_losses)
        counted = counted.transform(stopped(stop, Refusal.MAX_LOSSES_EXCEEDED, too_risky))
        return counted.select(*decisions.columns)

    return transform


def max_moves(most: int) -> Transform:
    """All moves of replicas on a cluster are stopped where more than `most` partitions are to be moved, and with a
    topic's moves the election of its leaders.

    In and out: `contract.COLUMNS`, with a row per action.
    """

    def transform(decisions: DataFrame) -> DataFrame:
        moved = F.when(F.col("phase").isNull(), moved_partitions())
        of_topic = F.max(moved.isNotNull()).over(Window.partitionBy("cluster", "topic"))
        of_cluster = F.sum(moved).over(Window.partitionBy("cluster"))
        counted = decisions.withColumns({"_moves": of_cluster, "_moved": of_topic})
        elects = F.col("_moved") & (F.col("decision") == ReplicaAction.ELECT_LEADERS.value)
        message = F.concat(
            F.lit("partitions of this cluster whose replicas are to be moved: "),
            F.col("_moves"),
            F.lit(f", guards.max_moves is {most}; raise it if they are meant"),
        )
        stop = (moved.isNotNull() | elects) & (F.col("_moves") > most)
        return counted.transform(stopped(stop, Refusal.MAX_MOVES_EXCEEDED, message)).drop("_moves", "_moved")

    return transform


def moved_partitions() -> Column:
    """Partitions that a reassignment moves (int); null of other actions."""
    moved = F.size(F.split(F.col("after")["assignments"], ";"))
    return F.when(F.col("decision") == ReplicaAction.REASSIGN.value, moved)


def stopped(stop: Column, error: Refusal, message: Column) -> Transform:
    """Ends open rows that are to `stop`: refused, in phase guard."""
    stop = F.coalesce(stop & F.col("phase").isNull(), F.lit(False))
    return lambda rows: (
        rows.withColumn("_stop", stop)
        .withColumns(
            {
                "error": F.when(F.col("_stop"), F.lit(error.value)).otherwise(F.col("error")),
                "error_message": F.when(F.col("_stop"), message).otherwise(F.col("error_message")),
                "outcome": F.when(F.col("_stop"), F.lit(Outcome.REFUSED.value)).otherwise(F.col("outcome")),
                "phase": F.when(F.col("_stop"), F.lit(Phase.GUARD.value)).otherwise(F.col("phase")),
            }
        )
        .drop("_stop")
    )
