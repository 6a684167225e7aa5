"""The contract of policies: a rule evaluates every action of its kind in a run (P1 to P4)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.config.settings import Mode, Needs
from topicledger.ledger.rows import has_no_row
from topicledger.manifests.owners import is_one_of, owner_key
from topicledger.model import Action, Refusal, ReplicaAction
from topicledger.naming import ActionName
from topicledger.phases import DECIDED

_NOT_SHOWN = (
    "phase",
    "outcome",
    "error",
    "error_message",
    "violations",
    "waits",
    "live_configs",
    "alters",
    "moves",
    "guards",
    "undeclared",
    "live_min_replicas",
)

TOPICS = (*(name for name in DECIDED.names if name not in _NOT_SHOWN), "asked", "open")
"""The columns that a set rule sees: one row per declared or existing (cluster, topic).

cluster, cluster_id, topic, topic_id (live); decision: create, delete, add_partitions, alter_configs, or what needs
nothing; before and after (map<string,string>): of a change, what it replaces and by what, as in `plans`. As declared:
num_partitions, replication_factor, assignments, configs, owner, labels. As it lives: live, internal,
live_num_partitions, live_replication_factor. As the broker resolved it by validateOnly: resolved_num_partitions,
resolved_replication_factor, resolved_configs; null before that, and where it didn't return them (C10, C11); `validated`
tells the two apart. asked: this policy evaluates the row: an action of its kind that nothing ended before, within its
clusters, owners and labels. open: no policy evaluated so far refuses this create or delete; an open
delete is how a topic is marked for deletion (M1).
"""

Evaluated: TypeAlias = ActionName
"""The kinds of actions that policies are about."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The subject of a list of policies: topics, or another kind of resources."""

    actions: tuple[str, ...]
    """Decisions that are actions."""
    key: str
    """The column that names one of them on its cluster."""
    columns: tuple[str, ...]
    """The columns that a rule about several together sees."""


OF_TOPICS = Subject(actions=(*Action, ReplicaAction.REASSIGN), key="topic", columns=TOPICS)

CHANGES = (Action.ADD_PARTITIONS, Action.ALTER_CONFIGS)
"""Actions that change a topic that exists: the subject of [[policies.change]]."""

MAKE_PARTITIONS = (Action.CREATE, Action.ADD_PARTITIONS)
"""Actions that use the room that deletes leave: evaluated together."""

ADDED = ("reason", "unjudgeable", "needs_freed", "inputs")
"""The columns that a set rule may add; `reason` it must."""


@dataclass(frozen=True, kw_only=True)
class RowRule:
    """A rule about one topic at a time."""

    reason: Column
    """string: null when fine, else what is broken and what would be allowed."""
    unjudgeable: Column | None = None
    """string: the missing knowledge. For a create it only counts after validate, when it is final."""
    inputs: Column | None = None
    """string: the evaluated values, for `policies explain`."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Data that a set rule may read in addition to the topics. Nothing is read before a rule asks for it."""

    brokers: DataFrame
    """cluster, cluster_id, broker_id, rack, host, port, controller, observed_at: the brokers that are up."""
    usages: DataFrame
    """The table `usages`: cluster, topic, consumer, valid_until, note (P2)."""
    now: datetime
    """The time (UTC) that all rules use."""
    consumer_groups: Callable[[DataFrame], DataFrame]
    """Asks the clusters who consumes these topics (cluster, topic). Returns cluster, topic, group, members, committed;
    error is set, and the rest null, if a cluster didn't answer."""
    last_records: Callable[[DataFrame], DataFrame]
    """Asks the clusters for the last record of these topics (cluster, topic). Returns cluster, topic, end_offset,
    last_record_at, one row a topic; error is set, and the rest null, if a cluster didn't answer."""
    unseen_topics: Callable[[DataFrame], DataFrame]
    """Asks these clusters (cluster) how many topics exist that this principal doesn't see (M3). Returns cluster and
    unseen, one row a cluster; error says what to grant, and unseen is null, if that is unknown."""
    manifests: Callable[[], DataFrame]
    """Reads the table `manifests`: its rows as they were written, including refused ones."""
    clusters: Collection[str]
    """Names of the settings' clusters."""


SetRule: TypeAlias = Callable[[DataFrame, Facts], DataFrame]
"""A rule about topics together: takes `TOPICS`, returns the same rows with the columns of `ADDED` that it has.

`reason` and `unjudgeable` as in `RowRule`; `needs_freed` (boolean): fits only because an open delete makes room, so the
create waits until that delete was acknowledged. Only open rows may use anything up. It never drops or adds a row.
"""


@dataclass(frozen=True)
class FullSight:
    """A set rule that allows too much if topics are hidden from the principal: return `FullSight(rule)`.

    On a cluster with topics that may be hidden, the actions it evaluates are UNJUDGEABLE, unless the settings of the
    policy say `needs = "visible"`. They can ask the same of any other set rule, by `needs = "full"`.
    """

    rule: SetRule

    def __call__(self, topics: DataFrame, facts: Facts) -> DataFrame:
        return self.rule(topics, facts)


Rule: TypeAlias = Column | RowRule | SetRule
"""The result of a factory; a Column is the `reason` of a `RowRule`."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A rule with the settings of a run."""

    name: str
    """As in `violations.policy`: a built-in's name, or the user's `package.module:factory` or entry point."""
    action: Evaluated
    """The kind of action it evaluates."""
    rule: Rule
    """How it evaluates actions."""
    mode: Mode = "refuse"
    """`refuse` ends the action, `warn` only notes the violation."""
    needs: Needs | None = None
    """The part of a cluster that must be visible; None leaves it to the rule."""
    error: Refusal = Refusal.POLICY_VIOLATION
    """The audit's `error` if it is the first rule broken."""
    clusters: tuple[str, ...] = ()
    """Only topics of these clusters; empty: all."""
    owners: tuple[str, ...] = ()
    """Only topics of these owners; empty: all."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Only topics that have all of these."""
    concerns: Column | None = None
    """boolean: which actions of its kind it evaluates; None: all."""
    users_own: bool = False
    """Whether it is a user's own policy, whose results must be checked."""
    settings: Mapping[str, object] | None = None
    """The settings from which it was made; None for a rule that no setting made."""

    @property
    def options(self) -> Mapping[str, object]:
        """Its settings; empty for a rule that no setting made."""
        return self.settings or {}

    @property
    def needs_full_sight(self) -> bool:
        """Whether it evaluates only if every topic of the cluster is visible."""
        return self.needs == "full" or (self.needs is None and isinstance(self.rule, FullSight))

    def asked(self) -> Column:
        """Return whether the policy evaluates a row: an action of its kind, within its clusters, owners and labels."""
        asked = (F.col("decision") == self.action.value) & F.col("phase").isNull()
        if self.clusters:
            asked &= F.col("cluster").isin(*self.clusters)
        unknown = self._may_have_any_label()
        if self.owners:
            asked &= is_one_of(F.col("owner"), self.owners) | (unknown & F.col("owner").isNull())
        if self.concerns is not None:
            asked &= self.concerns
        for name, value in self.labels.items():
            asked &= unknown | (F.col("labels")[name] == value)
        return F.coalesce(asked, F.lit(False))

    def _may_have_any_label(self) -> Column:
        """Return whether an action is about what no row declares: its labels, and perhaps its owner, are unknown."""
        undeclared = F.coalesce("undeclared", F.lit(False))
        return undeclared | has_no_row() if self.action is Action.DELETE else undeclared


def partitions() -> Column:
    """Partitions that a topic gets (int): as declared, else as the broker resolved them; null if unknown."""
    return F.coalesce(_if_any(F.size("assignments")), F.col("num_partitions"), F.col("resolved_num_partitions"))


def replicas() -> Column:
    """Replication factor (int). For a create: as declared, else as the broker resolved it; else null. For a changed
    topic: the live one. For a topic whose replicas are moved: the one it will have."""
    lives = F.when(is_one_of_actions(CHANGES), F.col("live_replication_factor")).when(is_move(), moved_replicas())
    return F.coalesce(lives, created_replicas())


def fewest_replicas() -> Column:
    """Replicas that every partition of a live topic keeps (int): those of the partition with the fewest, or as declared
    if those are fewer, since the plan may also move the topic to that number. Null if the live ones are unknown."""
    live = F.least("live_replication_factor", "live_min_replicas")
    return F.when(live.isNotNull(), F.least(live, created_replicas()))


def fewer_replicas() -> Column:
    """Partitions that a move leaves with fewer replicas (array<struct<partition,before,after>>, counts).

    Null for other actions.
    """
    return F.filter(_replica_counts(), lambda each: each["after"] < each["before"])


def changes_replication_factor() -> Column:
    """Whether a move changes the number of replicas of a partition; null for other actions."""
    return F.exists(_replica_counts(), lambda each: each["after"] != each["before"])


def moved_replicas() -> Column:
    """Least number of replicas that a partition has after a move (int); null for other actions."""
    return F.array_min(F.transform(_replica_counts(), lambda each: each["after"]))


def _replica_counts() -> Column:
    counts = F.transform(
        "moves",
        lambda each: F.struct(
            each["partition"].alias("partition"),
            F.size(each["before"]).alias("before"),
            F.size(each["after"]).alias("after"),
        ),
    )
    return F.when(is_move(), counts)


def added_replicas() -> Column:
    """Number of replicas that a move adds, less those that it removes (bigint); null for other actions."""
    added = F.transform(_replica_counts(), lambda each: (each["after"] - each["before"]).cast("bigint"))
    return F.aggregate(added, F.lit(0).cast("bigint"), lambda total, each: total + each)


def is_move() -> Column:
    """Whether the decision is a move of replicas; false if there is none."""
    return F.coalesce(F.col("decision") == ReplicaAction.REASSIGN.value, F.lit(False))


def is_one_of_actions(actions: Sequence[Action]) -> Column:
    """Whether the decision is one of these actions; null if there is none."""
    return F.col("decision").isin(*(each.value for each in actions))


def created_replicas() -> Column:
    """Replication factor of a create (int): as declared, else as the broker resolved it; else null."""
    assigned = _if_any(F.size(F.try_element_at(F.map_values("assignments"), F.lit(1))))
    return F.coalesce(assigned, F.col("replication_factor"), F.col("resolved_replication_factor"))


def config(name: str) -> Column:
    """A config (string): as declared, else as the broker resolved it, or as a topic whose configs are altered has it
    afterwards; null if neither is known. For a move: as its topic has it once the run's alters are done."""
    return F.coalesce(F.when(~is_move(), F.col("configs")[name]), F.col("resolved_configs")[name])


def owned() -> Column:
    """Whether a topic has an owner: one that is blank is none."""
    return owner_key(F.col("owner")).isNotNull()


def without_owner(what: str) -> Column:
    """The reason if a topic has no owner to count `what` by; null if it has one."""
    return F.when(~owned(), F.lit(f"has no owner, and {what} are limited by owner; declare the team or service"))


def not_known(what: str, value: Column) -> Column:
    """The message of a value that is left to the broker, which doesn't return it; null if it is known."""
    return F.when(
        value.isNull(),
        F.lit(f"{what} is left to the broker, which does not return it: declare it, or grant DescribeConfigs"),
    )


def text(*parts: Column | str | int | float) -> Column:
    """A message from strings and columns; nulls are rendered as "null"."""
    return F.concat(
        *(F.coalesce(p.cast("string"), F.lit("null")) if isinstance(p, Column) else F.lit(str(p)) for p in parts)
    )


def listed(values: Column) -> Column:
    """An array of strings as text: the first 20 in alphabetical order, and the number of the others."""
    ordered = F.array_sort(values)
    more = F.when(F.size(values) > 20, text(" and ", F.size(values) - 20, " more")).otherwise("")
    return F.concat(F.array_join(F.slice(ordered, 1, 20), ", "), more)


def _if_any(size: Column) -> Column:
    return F.when(size > 0, size)
