"""The types that all phases share: actions, phases, outcomes, our own refusals, and answers to requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from topicledger.kinds import NAMES
from topicledger.model.live import Broker, ConfigEntry, GroupUse, LastRecord, TopicConfigs, TopicInfo, Unseen
from topicledger.model.moves import Assignments, parse_assignments
from topicledger.model.refusals import Note, Refusal
from topicledger.naming import ActionName

__all__ = [
    "AUTHORIZATION_FAILED",
    "INTERNAL_TOPICS",
    "OURS",
    "SET_ON_TOPIC",
    "TOPIC",
    "Action",
    "Broker",
    "ConfigEntry",
    "Decision",
    "GroupUse",
    "Key",
    "LastRecord",
    "Note",
    "Outcome",
    "Phase",
    "PhaseResult",
    "Refusal",
    "ReplicaAction",
    "Results",
    "RunState",
    "Target",
    "TopicConfigs",
    "TopicInfo",
    "TopicResult",
    "Unseen",
    "Violation",
    "Work",
    "resource_type_of",
]


class Action(ActionName):
    """Kinds of actions on topics that policies evaluate, in that order; `registry.ACTIONS` has every kind."""

    DELETE = "delete"
    CREATE = "create"
    ADD_PARTITIONS = "add_partitions"
    ALTER_CONFIGS = "alter_configs"


class ReplicaAction(ActionName):
    """The kinds of actions on the placement of replicas and leaders."""

    REASSIGN = "reassign"
    ELECT_LEADERS = "elect_leaders"


TOPIC = "topic"
"""The resource type of topics; the others are in `kinds.NAMES`."""
_RESOURCE_TYPES: Mapping[str, str] = {action: kind.resource_type for kind in NAMES for action in kind.actions}
"""Resource types by the name of a kind of action; all other kinds are about topics."""


def resource_type_of(action: str) -> str:
    """Return the type of an action's resource."""
    return _RESOURCE_TYPES.get(action, TOPIC)


class Decision(StrEnum):
    """The decision for a (cluster, topic); the first four are actions; `--only` excludes one that is `left_out`."""

    CREATE = "create"
    DELETE = "delete"
    ADD_PARTITIONS = "add_partitions"
    ALTER_CONFIGS = "alter_configs"
    UNCHANGED = "unchanged"
    DRIFTED = "drifted"
    UNMANAGED = "unmanaged"
    LEFT_OUT = "left_out"
    OUTSIDE = "outside"
    """A change is pending outside the run's scope."""
    DECLARED = "declared"
    """For a prune: the topic matches a pattern but is kept, because a manifest names it."""


class Phase(StrEnum):
    """The phases that an action can end in, in order; its result is that of its last phase.

    Policies are evaluated before validate and again after it. If they refuse before, validate is skipped; if they
    refuse after it, its result doesn't count.
    """

    MANIFEST = "manifest"
    OBSERVE = "observe"
    GUARD = "guard"
    VALIDATE = "validate"
    POLICY = "policy"
    APPLY = "apply"
    VERIFY = "verify"


class Outcome(StrEnum):
    """How a phase ended for a topic."""

    OK = "ok"
    FAILED = "failed"
    REFUSED = "refused"
    SKIPPED = "skipped"
    PENDING = "pending"


class RunState(StrEnum):
    """The states of a run: planning -> planned -> applying -> finished, or abandoned by hand."""

    PLANNING = "planning"
    PLANNED = "planned"
    APPLYING = "applying"
    FINISHED = "finished"
    ABANDONED = "abandoned"


OPEN_STATES = (RunState.PLANNING, RunState.PLANNED, RunState.APPLYING)
"""States of runs that aren't over."""


OURS = -1
"""The `error_code` of a refusal that is ours, not the broker's."""


SET_ON_TOPIC = "DYNAMIC_TOPIC_CONFIG"
"""The `config_source` of a config that is set on the topic itself; every other source is a default of the broker."""

INTERNAL_TOPICS = frozenset(
    {
        "__consumer_offsets",
        "__transaction_state",
        "__share_group_state",
        "__cluster_metadata",
        "__remote_log_metadata",
    }
)
"""Topics that Kafka creates itself, with its own configs. CreateTopics accepts most of these names, too (I1).

Brokers don't mark `__remote_log_metadata` as internal (KIP-405): without its records all tiered data is lost.
"""

AUTHORIZATION_FAILED = (29, 31)
"""Kafka's codes TOPIC_ and CLUSTER_AUTHORIZATION_FAILED: this principal may not do it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A rule that an action breaks (P3)."""

    policy: str
    """The policy's name; `broker` for the broker's own policy (C8)."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One planned action on one resource."""

    resource: str
    """The name of the topic, or the text of another resource; see `resource_type`."""
    action: str
    """The name of the action's kind."""
    topic_id: str | None = None
    num_partitions: int | None = None
    replication_factor: int | None = None
    assignments: Mapping[int, tuple[int, ...]] | None = None
    configs: Mapping[str, str] = field(default_factory=dict)
    violations: tuple[Violation, ...] = ()
    """Violations of policies that only warn."""
    batch: int = 0
    before: Mapping[str, str] = field(default_factory=dict)
    """The state at planning time.

    For a delete: its `shape`, with configs only if the broker has no topic ids (D7). For a change: `num_partitions`, or
    the touched configs that are set on the topic."""
    after: Mapping[str, str] = field(default_factory=dict)
    """The values a change sets in place of `before`; a missing config is reset to the broker's default."""
    maybe_sent: bool = False
    """Whether an earlier start of the run may have sent the action (C18)."""

    @property
    def resource_type(self) -> str:
        """The type of the action's resource."""
        return resource_type_of(self.action)

    @property
    def topic(self) -> str:
        """The topic of an action on a topic."""
        return self.resource

    @property
    def grows_from(self) -> int:
        """The partition count before an action that adds partitions."""
        return int(self.before["num_partitions"])

    @property
    def grows_to(self) -> int:
        """The partition count after an action that adds partitions."""
        return int(self.after["num_partitions"])

    @property
    def replicas_before(self) -> Assignments:
        """The replicas of each partition before a reassignment."""
        return parse_assignments(self.before.get("assignments", ""))

    @property
    def replicas_after(self) -> Assignments:
        """The planned replicas of each partition that a reassignment moves."""
        return parse_assignments(self.after.get("assignments", ""))

    @property
    def touched(self) -> frozenset[str]:
        """Names of the configs or limits that a change sets or resets."""
        return frozenset(self.before) | frozenset(self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResult:
    """A broker's answer for one topic of a request."""

    error_code: int = 0
    error_message: str | None = None
    topic_id: str | None = None
    num_partitions: int | None = None
    replication_factor: int | None = None
    configs: tuple[ConfigEntry, ...] | None = None
    topic_config_error_code: int | None = None
    before: Mapping[str, str] | None = None
    """The values a change replaces, read immediately before it."""
    after: Mapping[str, str] | None = None
    """The values a change sent; in verify, the values that were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseResult:
    """How a phase ended for an action: a row of `audit`, without the columns that the whole run shares."""

    cluster: str
    cluster_id: str | None
    target: Target
    phase: Phase
    outcome: Outcome
    result: TopicResult
    """The broker's answer, or `OURS` as its error code."""
    error: str | None = None
    """Kafka's name for the error code, or ours."""
    error_message: str | None = None
    violations: tuple[Violation, ...] = ()
    attempt: int = 1
    requested_at: datetime
    completed_at: datetime

    @property
    def topic(self) -> str | None:
        return self.target.topic if self.resource_type == TOPIC else None

    @property
    def resource_type(self) -> str:
        return self.target.resource_type

    @property
    def resource(self) -> str:
        return self.target.resource

    @property
    def action(self) -> str:
        return self.target.action

    @property
    def batch(self) -> int:
        return self.target.batch

    @property
    def error_code(self) -> int:
        return self.result.error_code

    @property
    def topic_id(self) -> str | None:
        return self.target.topic_id or self.result.topic_id

    @property
    def num_partitions(self) -> int | None:
        return self.result.num_partitions

    @property
    def replication_factor(self) -> int | None:
        return self.result.replication_factor

    @property
    def configs(self) -> tuple[ConfigEntry, ...] | None:
        return self.result.configs

    @property
    def before(self) -> Mapping[str, str] | None:
        return self.result.before

    @property
    def after(self) -> Mapping[str, str] | None:
        return self.result.after

    @property
    def topic_config_error_code(self) -> int | None:
        return self.result.topic_config_error_code


@dataclass(frozen=True, slots=True)
class Maker:
    """The run that created a topic, by `audit`."""

    run_id: str
    topic_id: str | None
    """Id of the topic that it created; another topic may have the name by now."""


Work: TypeAlias = Mapping[str, tuple[str, Sequence[Sequence[Target]]]]
"""Batches by cluster: the cluster id at planning time, and the batches in order."""
Key: TypeAlias = tuple[str, str, str]
"""(cluster, resource, action): identifies an action of a run."""
Results: TypeAlias = Mapping[Key, TopicResult]
"""Answers by action: the topic's id and its number of partitions."""
