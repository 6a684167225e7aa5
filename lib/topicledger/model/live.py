"""Observed topics with their configs and use, and brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config of a topic as the broker returned it (C9)."""

    name: str
    value: str | None
    """None if sensitive."""
    read_only: bool
    config_source: str
    """Kafka's name, e.g. DYNAMIC_TOPIC_CONFIG."""
    is_sensitive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A live topic, as its cluster's metadata describes it (M1)."""

    topic: str
    permitted: bool = True
    """False: brokers don't describe it to this principal (TOPIC_AUTHORIZATION_FAILED), or not at all (`unknown`). It
    may exist or not (M3).
    """
    unknown: str | None = None
    """Kafka's name of the error that brokers answer instead, such as UNKNOWN_SERVER_ERROR; None for
    TOPIC_AUTHORIZATION_FAILED."""
    topic_id: str | None = None
    internal: bool = False
    assignments: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    other_leaders: Mapping[int, int] = field(default_factory=dict)
    """Leaders of the partitions that their preferred replica doesn't lead; -1 if there is no leader (C3, M2)."""
    authorized_operations: tuple[str, ...] | None = None
    """Kafka's operation names, None if the broker doesn't return them."""

    @property
    def leaderless(self) -> int:
        """Partitions without a leader (M2)."""
        return sum(leader < 0 for leader in self.other_leaders.values())

    @property
    def num_partitions(self) -> int:
        return len(self.assignments)

    @property
    def replication_factor(self) -> int:
        return max((len(replicas) for replicas in self.assignments.values()), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigs:
    """Every config of a topic as its broker describes it, or the broker's error."""

    topic: str
    error_code: int = 0
    configs: tuple[ConfigEntry, ...] | None = None
    """None if there is an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupUse:
    """A group that uses a topic: it has live members or committed offsets on it, or both."""

    topic: str
    group: str
    members: int
    """Live members that have partitions of the topic assigned; if there are none, members subscribed to it."""
    committed: bool
    """Whether it has offsets on the topic that have not expired."""
    state: str = field(default="", compare=False)
    """The group's state, with Kafka's name, such as Stable or Empty."""
    offsets: Mapping[int, int] | None = field(default=None, compare=False)
    """Committed offsets by partition; None for share groups, which commit none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRecord:
    """A topic's end offset, and the time of its last record."""

    topic: str
    end_offset: int | None = None
    """Sum of the partitions' end offsets: 0 if no record was ever written, None if it is unknown."""
    last_record_at: datetime | None = None
    """The largest timestamp of the retained records (KIP-734), UTC; None if no record is retained.
    With message.timestamp.type=CreateTime, producers set it."""
    error: str | None = None
    """Why the last record is unknown; then the other fields are None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """The part of a cluster that is hidden from this principal (M3)."""

    unseen: int
    """Number of existing topics that the principal may not describe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A live broker (M1)."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    controller: bool
