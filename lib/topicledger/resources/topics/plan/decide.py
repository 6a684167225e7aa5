"""Phase decide: join validated manifests and observed clusters to one decision per (cluster, topic)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.config.patterns import any_matches
from topicledger.manifests.row_rules import ABSENT, PRESENT
from topicledger.manifests.rows import Transform
from topicledger.model import Action, Decision, Outcome, Phase, Refusal
from topicledger.observe.topics import ClusterStatus
from topicledger.phases import DECIDED, ENDED, VIOLATIONS, in_order, null, returned
from topicledger.policies.contract import text
from topicledger.policies.evaluating import warning
from topicledger.resources.ending import ended, lookup


def decide(observed: DataFrame, statuses: Mapping[str, ClusterStatus]) -> Transform:
    """Decide on validated manifest rows.

    In: `phases.DECLARED`, from `manifests.rows.validate`. `observed` has columns of `phases.OBSERVED`, for clusters of
    `statuses`. Out: `phases.DECIDED`, one row per (cluster, topic) of either side; rows refused before are kept.

    A cluster that was lost after its topics were listed is unreachable: its undeclared topics have no row.

    If a topic may not be described, it is unknown whether it exists: `absent` is refused, `present` is tried (M3). If
    brokers answer with another error instead of describing it, both fail. The decision for state absent without such a
    topic is unchanged (D2).
    """

    def transform(manifests: DataFrame) -> DataFrame:
        lost = [name for name, status in statuses.items() if status.problem is not None]
        live = observed.where(~F.col("cluster").isin(*lost)).select(
            F.col("cluster").alias("live_cluster"),
            F.col("topic").alias("live_topic"),
            "topic_id",
            "internal",
            "permitted",
            "unknown",
            F.col("num_partitions").alias("live_num_partitions"),
            F.col("replication_factor").alias("live_replication_factor"),
            F.col("assignments").alias("live_assignments"),
        )
        same = (F.col("cluster") == F.col("live_cluster")) & (F.col("topic") == F.col("live_topic"))
        cluster = F.coalesce("cluster", "live_cluster")
        # A row that only notes an identical copy comes in addition to the valid one: the topic must count only once.
        noted = F.coalesce(F.col("outcome") == Outcome.SKIPPED.value, F.lit(False))
        lives = F.coalesce(F.col("permitted"), F.lit(False)) & ~noted
        kept = ("num_partitions", "replication_factor", "assignments", "configs", "owner", "labels", "placement")
        values: dict[str, Column | str] = {
            **{name: name for name in (*kept, "topic_id")},
            **{name: f"_ended.{name}" for name in ENDED.names},
            "cluster": cluster,
            "cluster_id": lookup({name: status.cluster_id for name, status in statuses.items()}, cluster),
            "topic": F.coalesce("topic", "live_topic"),
            "decision": F.when(F.col("_ended.phase").isNull(), F.col("_decision")),
            "live": F.when(F.col("unknown").isNull(), lives),
            "internal": F.coalesce("internal", F.lit(False)),
            "live_num_partitions": F.when(lives, F.col("live_num_partitions")),
            "live_replication_factor": F.when(lives, F.col("live_replication_factor")),
            "live_min_replicas": F.when(lives, F.array_min(F.transform(F.map_values("live_assignments"), F.size))),
            "validated": F.lit(False),
            "violations": _left_to_others(manifests),
            "waits": F.lit(False),
            "before": F.when(F.col("_decision") == Decision.DELETE.value, shape()),
        }
        rows = (
            manifests.join(live, on=same, how="full_outer")
            .withColumns({"_decision": _decision(), "_ended": _ended(statuses)})
            .select(*in_order(DECIDED, values))
        )
        return returned("decide", rows, DECIDED)

    return transform


IGNORED = "ignored_configs"
"""Name of the warning about declared configs that `changes.ignore` names."""


def _left_to_others(manifests: DataFrame) -> Column:
    """Return `violations`: a warning if a create leaves out declared configs that `changes.ignore` names."""
    if "ignored" not in manifests.columns:
        return null(VIOLATIONS)
    creates = (F.col("_decision") == Action.CREATE.value) & F.col("_ended.phase").isNull()
    message = text("changes.ignore in the settings leaves declared configs to others, so it is created without ")
    return warning(IGNORED, F.when(creates, F.concat(message, F.array_join("ignored", ", "))))


def without_ignored(patterns: Sequence[str]) -> Transform:
    """Decide nothing about undeclared topics that match `scope.ignore_topics`. In and out: `phases.DECIDED`."""
    if not patterns:
        return lambda decisions: decisions
    ignored = (F.col("decision") == Decision.UNMANAGED.value) & any_matches("topic", patterns)
    return lambda decisions: decisions.withColumn(
        "decision", F.when(~F.coalesce(ignored, F.lit(False)), F.col("decision"))
    )


def left_out(kinds: Collection[str]) -> Transform:
    """Set the decision of actions that aren't of these kinds to left_out. In and out: `phases.DECIDED`."""
    others = [each.value for each in Action if each.value not in kinds]

    def transform(decisions: DataFrame) -> DataFrame:
        left = F.col("decision").isin(*others)
        return decisions.withColumns(
            {
                "before": F.when(F.coalesce(~left, F.lit(True)), F.col("before")),
                "decision": F.when(left, F.lit(Decision.LEFT_OUT.value)).otherwise(F.col("decision")),
            }
        )

    return transform if others else lambda decisions: decisions


def shape() -> Column:
    """Return a live topic's counts and assignments (map<string,string>), in the format of `actions.delete.shape`."""
    assignment = F.transform(
        F.array_sort(F.map_entries("live_assignments")),
        lambda each: F.concat_ws(":", each["key"], F.array_join(each["value"].cast("array<string>"), ",")),
    )
    return texts({**live_counts(), "assignments": F.array_join(assignment, ";")})


def live_counts() -> Mapping[str, Column]:
    """Return a live topic's counts by their names in `plans`."""
    return {"num_partitions": F.col("live_num_partitions"), "replication_factor": F.col("live_replication_factor")}


def texts(values: Mapping[str, Column]) -> Column:
    """Return a map<string,string> with these values, as `plans.before` has it."""
    return F.create_map(*(each for name, of in values.items() for each in (F.lit(name), of.cast("string"))))


def _decision() -> Column:
    declared = F.col("state").isNotNull()
    exists = F.col("live_topic").isNotNull() & F.col("permitted")
    return (
        F.when(~declared, F.when(exists & ~F.col("internal"), F.lit(Decision.UNMANAGED.value)))
        .when((F.col("state") == ABSENT) & exists, F.lit(Decision.DELETE.value))
        .when(F.col("state") == ABSENT, F.lit(Decision.UNCHANGED.value))
        .when(~F.coalesce(exists, F.lit(False)), F.lit(Decision.CREATE.value))
        .when(_drifted(), F.lit(Decision.DRIFTED.value))
        .otherwise(F.lit(Decision.UNCHANGED.value))
    )


def _drifted() -> Column:
    def differs(wanted: Column, live: Column) -> Column:
        return wanted.isNotNull() & ~wanted.eqNullSafe(live)

    entries = F.array_sort(F.map_entries("assignments"))
    live_entries = F.array_sort(F.map_entries("live_assignments"))
    return (
        differs(F.col("num_partitions"), F.col("live_num_partitions"))
        | differs(F.col("replication_factor"), F.col("live_replication_factor"))
        | differs(entries, live_entries)
    )


def _ended(statuses: Mapping[str, ClusterStatus]) -> Column:
    """Return the struct that ends a row.

    Causes: the manifest phase, an unreachable or a different cluster, or a topic that isn't described.
    """
    unreachable = {name: status.error for name, status in statuses.items() if status.error is not None}
    refused = {name: status.refused for name, status in statuses.items() if status.refused is not None}
    declared = F.col("state").isin(PRESENT, ABSENT)
    return (
        F.when(F.col("phase").isNotNull(), ended("phase", "outcome", "error", "error_message"))
        .when(
            declared & F.col("cluster").isin(*unreachable),
            ended(
                F.lit(Phase.OBSERVE.value),
                F.lit(Outcome.FAILED.value),
                F.lit(Refusal.CLUSTER_UNREACHABLE.value),
                lookup(unreachable, F.col("cluster")),
            ),
        )
        .when(
            declared & F.col("cluster").isin(*refused),
            ended(
                F.lit(Phase.GUARD.value),
                F.lit(Outcome.REFUSED.value),
                lookup({name: each.error.value for name, each in refused.items()}, F.col("cluster")),
                lookup({name: each.message for name, each in refused.items()}, F.col("cluster")),
            ),
        )
        .when(
            declared & F.col("unknown").isNotNull(),
            ended(
                F.lit(Phase.OBSERVE.value),
                F.lit(Outcome.FAILED.value),
                F.lit(Refusal.NO_ANSWER.value),
                text(
                    "brokers answer ",
                    F.col("unknown"),
                    " about the topic, so it is unknown whether it exists, and nothing is planned for it: look for "
                    "it in their logs, then run again",
                ),
            ),
        )
        .when(
            (F.col("state") == ABSENT) & ~F.col("permitted"),
            ended(
                F.lit(Phase.OBSERVE.value),
                F.lit(Outcome.REFUSED.value),
                F.lit(Refusal.NOT_PERMITTED.value),
                F.lit(
                    "this principal may not describe the topic, so it is unknown whether it exists; grant it Describe"
                ),
            ),
        )
    )
