"""The planner's answers (`moving.planned`) as actions among the decisions."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from topicledger.kafka.config_values import values_by_name
from topicledger.manifests.rows import Transform
from topicledger.model import Action, Decision, Outcome, Phase, ReplicaAction
from topicledger.model.placement import ANYWHERE
from topicledger.observe.topics import Observation
from topicledger.phases import DECIDED
from topicledger.policies.evaluating import together, warning
from topicledger.resources.ending import lookup
from topicledger.resources.topics.plan.moving import GROWS

_DECLARED = ("num_partitions", "replication_factor", "assignments", "configs", "owner", "labels", "placement")


def to_place() -> Column:
    """Return whether a row is a create whose replicas the planner must place (boolean)."""
    asks = F.col("placement").isNotNull() & (F.col("placement") != str(ANYWHERE))
    is_create = (F.col("decision") == Action.CREATE.value) & F.col("phase").isNull()
    return is_create & asks & F.col("assignments").isNull()


def with_placed_creates(answers: DataFrame) -> Transform:
    """Give creates the assignments that the planner chose, or refuse them. In and out: `phases.DECIDED`."""
    found = answers.where(F.col("decision") == Action.CREATE.value).select(
        "cluster",
        "topic",
        *(F.col(name).alias(f"_{name}") for name in ("assignments", "error", "error_message", "warning")),
    )

    def transform(decisions: DataFrame) -> DataFrame:
        placed = F.coalesce(to_place(), F.lit(False))
        rows = decisions.join(found, on=["cluster", "topic"], how="left").withColumn("_placed", placed)
        refused, crowded = F.col("_placed") & F.col("_error").isNotNull(), F.when(F.col("_placed"), F.col("_warning"))
        values = {
            "assignments": F.when(F.col("_placed"), F.col("_assignments")).otherwise(F.col("assignments")),
            "violations": together(F.col("violations"), warning("placement", crowded)),
            **_refused(refused, F.col("_error"), F.col("_error_message")),
        }
        return rows.withColumns(values).select(*decisions.columns)

    return transform


def _refused(refused: Column, error: Column, message: Column) -> dict[str, Column]:
    values = {
        "phase": F.lit(Phase.POLICY.value),
        "outcome": F.lit(Outcome.REFUSED.value),
        "error": error,
        "error_message": message,
    }
    return {name: F.when(refused, value).otherwise(F.col(name)) for name, value in values.items()}


def with_moves(answers: DataFrame, validated: DataFrame, seen: Observation, configs: DataFrame | None) -> Transform:
    """Add moves and elections as separate actions; they replace the row of a topic that needs no other action.

    In and out: `phases.DECIDED`. `validated` is from `manifests.rows.validate`, and `configs` from `changes.describe`.
    `resolved_configs` of a move are the topic's configs after the run's open alters; `live_configs` those of now.
    Adds `GROWS`, for `without_growing`.
    """
    accepted = validated.where(F.col("phase").isNull()).withColumn("undeclared", F.lit(False))
    declared = accepted.select("cluster", "topic", *_DECLARED, "undeclared")
    counts = (F.col(name).alias(f"live_{name}") for name in ("num_partitions", "replication_factor"))
    live = seen.topics.select("cluster", "topic", "topic_id", *counts)
    actions = F.col("decision").isin(*ReplicaAction, Decision.OUTSIDE.value) & F.col("cluster").isin(*seen.known)
    ids = {name: status.cluster_id for name, status in seen.statuses.items()}
    empty = {name: F.lit(None).cast("string") for name in ("phase", "outcome")}
    moves = (
        answers.where(actions)
        .drop("assignments")
        .join(declared, on=["cluster", "topic"], how="left")
        .join(live, on=["cluster", "topic"], how="inner")
        .transform(_with_live_configs(configs))
        .withColumns(
            {
                **empty,
                "cluster_id": lookup(ids, F.col("cluster")),
                "undeclared": F.coalesce("undeclared", F.lit(True)),
                "live": F.lit(True),
                "waits": F.lit(False),
                "violations": warning("placement", F.col("warning")),
            }
        )
        .transform(
            lambda rows: rows.withColumns(_refused(F.col("error").isNotNull(), F.col("error"), F.col("error_message")))
        )
    )

    def transform(decisions: DataFrame) -> DataFrame:
        own = moves.select(*(name for name in (*DECIDED.names, GROWS) if name in moves.columns))
        acted = own.select("cluster", "topic", F.lit(True).alias("_acted")).distinct()
        nothing = (Decision.UNCHANGED, Decision.DRIFTED, Decision.UNMANAGED)
        nothing_else = F.col("decision").isin(*(each.value for each in nothing))
        replaced = nothing_else & F.col("phase").isNull() & F.col("_acted").isNotNull()
        rest = decisions.join(acted, on=["cluster", "topic"], how="left").where(~F.coalesce(replaced, F.lit(False)))
        rest = rest.drop("_acted").withColumn(GROWS, F.lit(False))
        return rest.unionByName(own, allowMissingColumns=True).withColumn("resolved_configs", _altered())

    return transform


def without_growing(decisions: DataFrame) -> DataFrame:
    """Leave out moves of topics that get partitions: a later run moves them. Drops `GROWS`.

    Topics whose added partitions are refused or stopped are moved, since otherwise they never would be. Then a later
    run elects their leaders.
    """
    adds = (F.col("decision") == Action.ADD_PARTITIONS.value) & F.col("phase").isNull()
    added = F.max(F.coalesce(adds, F.lit(False))).over(Window.partitionBy("cluster", "topic"))
    moves = F.col("decision").eqNullSafe(F.lit(ReplicaAction.REASSIGN.value))
    later = F.coalesce(GROWS, F.lit(False)) & (F.col("_added") == moves)
    return decisions.withColumn("_added", added).where(~later).drop("_added", GROWS)


def _with_live_configs(configs: DataFrame | None) -> Transform:
    if configs is None:
        return lambda rows: rows.withColumn("resolved_configs", F.lit(None).cast("map<string,string>"))
    shown = F.filter("configs", lambda each: ~each["is_sensitive"])
    values = values_by_name(shown).alias("resolved_configs")
    described = configs.select("cluster", "topic", F.col("configs").alias("live_configs"), values)
    return lambda rows: rows.join(described, on=["cluster", "topic"], how="left")


def _altered() -> Column:
    """Return `resolved_configs`: for a move, those of the topic's open alter if there is one."""
    decision, of_topic = F.col("decision"), Window.partitionBy("cluster", "topic")
    alters = (decision == Action.ALTER_CONFIGS.value) & F.col("phase").isNull()
    altered = F.first(F.when(alters, F.col("resolved_configs")), ignorenulls=True).over(of_topic)
    move = decision.eqNullSafe(F.lit(ReplicaAction.REASSIGN.value))
    return F.when(move, F.coalesce(altered, F.col("resolved_configs"))).otherwise(F.col("resolved_configs"))
