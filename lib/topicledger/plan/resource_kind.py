"""What tells one kind of resource beside topics from another, and what deciding on them has in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from topicledger.actions.safeguards import Guard
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import ClusterSettings, KafkaSettings, Settings
from topicledger.manifests.rows import Transform
from topicledger.model import Decision, Outcome, Phase, Refusal, ResourceType
from topicledger.observe.listed import Listed
from topicledger.observe.topics import ClusterStatus
from topicledger.plan.changes import with_ended
from topicledger.plan.decide import ENDED, ended, lookup
from topicledger.plan.guards import stopped
from topicledger.policies.contract import Subject
from topicledger.policies.judging import WARNING
from topicledger.schemas import Table
from topicledger.schemas.tables import VIOLATIONS

COLUMNS = (
    "cluster", "cluster_id", "resource_type", "resource", "state", "owner", "labels", "decision",
    "phase", "outcome", "error", "error_message", "violations", "before", "after", "waits",
)  # fmt: skip
"""Of a decision about a resource beside topics; `resource` is its text."""

Observe: TypeAlias = Callable[[SparkSession, Sequence[ClusterSettings], KafkaSettings, Mapping[str, str]], Listed]
Decide: TypeAlias = Callable[[Listed, Mapping[str, ClusterStatus], Settings, Transform], Transform]


@dataclass(frozen=True, kw_only=True)
class AsRows:
    """How actions become rows of their kind's table again."""

    live: Transform
    """Rows of `observed` as cluster, resource, and `now`: map<string,string>, as `before` and `after` have values."""
    undo: Transform
    """What undoes actions. In: cluster, resource, `action`, `before`, `after`, `now` (null where the cluster has none
    of it), and more. Out: also the table's columns, and `stale`: how it isn't as the action left it, null where it
    is."""
    asked_by: Transform
    """What planned actions ask for, for policies that judge it again. In: cluster, resource, `action`, `before`,
    `after`, `now`, and more. Out: also the table's columns, less owner and labels."""


@dataclass(frozen=True, kw_only=True)
class ResourceKind:
    """A kind of resources that are declared in a table of their own."""

    resource_type: ResourceType
    table: Table
    """One of `schemas.RESOURCES`."""
    judge: Callable[[Collection[str], Collection[str] | None], Transform]
    """Of the settings' clusters and those that are selected: phase manifest. In: rows of `table`. Out: its columns,
    `resource`, `error`, `error_message`, `phase` and `outcome`; one row per (cluster, resource)."""
    observed: Table
    """What clusters have."""
    observe: Observe
    """Lists it of clusters, with Kafka's id of each."""
    decide: Decide
    """Phases decide, guard and policy; the last argument is what policies do. In: what `judge` returns, materialised.
    Out: `COLUMNS`, and more."""
    subject: Subject | None = None
    """What policies judge of it; None where there are none of it."""
    now: Mapping[str, Callable[[], Column]] = field(default_factory=dict)
    """Of judged rows, what `ActionKind.not_declared` asks about beside their state."""
    undeclared: Callable[[], Column]
    """string, of a planned action that no row asks for: why it isn't asked for any more, null where it is."""
    protected: Callable[[DataFrame, Collection[str]], Transform] | None = None
    """Of what `judge` returns for the latest table, and the settings' clusters: planned actions that a refused row may
    mean to keep from happening, as `intent.REFUSED`; None where no action follows from a row that is missing."""
    manages: Callable[[Settings], bool] = lambda _: False
    """Whether there is something to decide on where nothing is declared."""
    as_rows: AsRows | None = None
    """None where actions can't be reverted, and no policies judge them again."""

    @property
    def counted(self) -> Mapping[str, Decision]:
        """Names of counts of a run, by decision, of what needs nothing."""
        return {f"{self.table.name}_{each.value}": each for each in (Decision.UNCHANGED, Decision.UNMANAGED)}


def beside_live(
    resource_type: ResourceType, live: DataFrame, listed: Listed, clusters: Mapping[str, ClusterStatus]
) -> Transform:
    """Joins judged rows with `live` (cluster, resource, and more): adds `live`, whether it is there, the other columns
    of decisions, and what ended rows whose cluster has resources that aren't known."""

    def transform(declared: DataFrame) -> DataFrame:
        ids = {name: status.cluster_id for name, status in clusters.items()}
        return (
            declared.join(live.withColumn("live", F.lit(True)), on=["cluster", "resource"], how="full_outer")
            .withColumns(
                {
                    "live": F.coalesce("live", F.lit(False)),
                    "cluster_id": lookup(ids, F.col("cluster")),
                    "resource_type": F.lit(resource_type.value),
                    "violations": F.lit(None).cast(VIOLATIONS),
                    "waits": F.lit(False),
                    "_unknown": F.when(F.col("phase").isNull(), _unknown(listed, clusters)),
                }
            )
            .transform(with_ended, "_unknown")
        )

    return transform


def _unknown(listed: Listed, clusters: Mapping[str, ClusterStatus]) -> Column:
    """What ends a declared row of a cluster that can't be reached, is not the one meant, or can't be listed."""
    found = {}
    for name, status in clusters.items():
        each = listed.statuses.get(name)
        if status.error is not None:
            found[name] = (Phase.OBSERVE, Outcome.FAILED, Refusal.CLUSTER_UNREACHABLE, status.error)
        elif status.refused is not None:
            found[name] = (Phase.GUARD, Outcome.REFUSED, status.refused.error, status.refused.message)
        elif each is not None and each.error is not None:
            found[name] = (Phase.OBSERVE, Outcome.REFUSED, each.error, each.message or "")
    rows: Column = F.lit(None).cast(ENDED)
    for name, values in found.items():
        rows = F.when(F.col("cluster") == name, ended(*map(F.lit, map(str, values)))).otherwise(rows)
    return rows


def warned(policy: str, message: Column) -> Transform:
    """Adds a warning to rows that have a `message`: a violation of `policy` that refuses nothing."""
    warning = F.array(F.struct(F.lit(policy).alias("policy"), F.concat(F.lit(WARNING), message).alias("message")))
    also = F.concat(F.coalesce("violations", F.array().cast(VIOLATIONS)), warning.cast(VIOLATIONS))
    return lambda rows: rows.withColumn("violations", F.when(message.isNotNull(), also).otherwise(F.col("violations")))


def decided(action: str) -> Column:
    """Whether a row is decided to need this action, and nothing ended it."""
    return F.coalesce((F.col("decision") == action) & F.col("phase").isNull(), F.lit(False))


def at_most(action: str, guard: Guard, guards: GuardSettings) -> Transform:
    """Stop all such actions of a cluster that has more of them than its guard allows."""
    most: int = getattr(guards, guard.setting)

    def transform(rows: DataFrame) -> DataFrame:
        count = F.sum(decided(action).cast("int")).over(Window.partitionBy("cluster"))
        stop, message = decided(action) & (F.col("_count") > most), guard.message("_count", most)
        return rows.withColumn("_count", count).transform(stopped(stop, guard.error, message)).drop("_count")

    return transform
