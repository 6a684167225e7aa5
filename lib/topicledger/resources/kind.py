"""A kind of resources beside topics: all that generic code needs of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession

from topicledger.config.settings import ClusterSettings, KafkaSettings, Settings
from topicledger.manifests.rows import Transform
from topicledger.model import Decision, ResourceType
from topicledger.observe.listed import Listed
from topicledger.observe.topics import ClusterStatus
from topicledger.policies.contract import Subject
from topicledger.schemas import Table

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
    """Phase manifest, from the settings' clusters and the selected ones. In: rows of `table`. Out: its columns,
    `resource`, `error`, `error_message`, `phase` and `outcome`; one row per (cluster, resource)."""
    observed: Table
    """What clusters have."""
    observe: Observe
    """Lists it of clusters, with Kafka's id of each."""
    decide: Decide
    """Phases decide, guard and policy; the last argument is what policies do. In: what `judge` returns, materialised.
    Out: `phases.DECIDED_RESOURCE`, and more."""
    subject: Subject | None = None
    """What policies judge of it; None where there are none of it."""
    now: Mapping[str, Callable[[], Column]] = field(default_factory=dict)
    """Columns of evaluated rows that `ActionKind.not_declared` asks about beside their state."""
    undeclared: Callable[[], Column]
    """string, of a planned action that no row asks for: why it isn't asked for any more, null where it is."""
    protected: Callable[[DataFrame, Collection[str]], Transform] | None = None
    """Finds planned actions that a refused row may mean to prevent, as `ending.REFUSED`. Arguments: the result of
    `judge` for the latest table, and the settings' clusters. None if no action follows from a missing row."""
    manages: Callable[[Settings], bool] = lambda _: False
    """Whether there is something to decide on where nothing is declared."""
    as_rows: AsRows | None = None
    """None where actions can't be reverted, and no policies judge them again."""

    @property
    def counted(self) -> Mapping[str, Decision]:
        """Names of counts of a run, by decision, of what needs nothing."""
        return {f"{self.table.name}_{each.value}": each for each in (Decision.UNCHANGED, Decision.UNMANAGED)}
