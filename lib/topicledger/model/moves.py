"""Planned moves of replicas, and the throttles that are set on a cluster meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from topicledger.model.refusals import Refusal

Assignments: TypeAlias = Mapping[int, tuple[int, ...]]
"""Partition -> broker ids; the first is the preferred leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """A broker that goes, or one that comes: what a run moves replicas for, instead of what manifests say."""

    broker: int
    fills: bool
    """True if the broker is filled with its share; false if it must lose all its replicas."""

    def __str__(self) -> str:
        return f"{'fill' if self.fills else 'drain'} {self.broker}"


def parse_rebalance(text: str) -> Rebalance:
    """What `str` of one makes."""
    name, _, broker = text.partition(" ")
    return Rebalance(broker=int(broker), fills=name == "fill")


BROKER, TOPIC = "broker", "topic"
"""Types of resources that throttles are set on."""
LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
"""Configs of a broker: bytes a second that throttled replicas are read from it, and written to it."""
LEADER_REPLICAS, FOLLOWER_REPLICAS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
"""Configs of a topic: which replicas are throttled, as `partition:broker,...`."""


def parse_assignments(text: str) -> dict[int, tuple[int, ...]]:
    """Assignments of `plans.before` and `plans.after`, such as `0:1,2;1:2,3`."""
    found = {}
    for each in filter(None, text.split(";")):
        partition, _, brokers = each.partition(":")
        found[int(partition)] = tuple(map(int, brokers.split(",")))
    return found


def assignments_text(assignments: Assignments) -> str:
    """What `parse_assignments` reads."""
    return ";".join(f"{each}:{','.join(map(str, brokers))}" for each, brokers in sorted(assignments.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """Why nothing more of a topic is moved than is under way: the plan is too old, or no longer asked for."""

    error: Refusal
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """A config that is set while replicas move, and what it was before."""

    resource_type: str
    """`broker` or `topic`."""
    resource: str
    """The broker's id, or the topic."""
    config: str
    before: str | None
    """None if it wasn't set."""
    value: str


class ThrottleRecords(Protocol):
    """Where throttles of one cluster are written down."""

    def intend(self, throttles: Sequence[Throttle]) -> None:
        """Returns when it is committed that these are going to be set."""

    def left(self) -> Sequence[Throttle]:
        """Those that may be set, by whichever run."""

    def removed(self, throttles: Sequence[Throttle]) -> None:
        """Returns when it is committed that these aren't set any more."""


@dataclass(kw_only=True)
class Move:
    """One partition's move from its current to its planned replicas."""

    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    size: int = 0
    """Bytes of a replica of it."""

    @property
    def adding(self) -> frozenset[int]:
        return frozenset(self.after) - frozenset(self.before)

    @property
    def total(self) -> int:
        """Bytes that are copied."""
        return self.size * len(self.adding)

    @property
    def work(self) -> Mapping[int, int]:
        """By broker, the bytes that it reads or writes: they are read from one of `before`, as a rule the first."""
        if not self.adding:
            return {}
        return {**dict.fromkeys(self.before[:1], self.total), **dict.fromkeys(self.adding, self.size)}


@dataclass(kw_only=True)
class UnderWay:
    """Moves under way by broker, within limits."""

    max_partitions: int
    """Per broker."""
    max_bytes: int
    """Per broker; a larger partition is moved alone."""
    partitions: dict[int, int] = field(default_factory=dict)
    size: dict[int, int] = field(default_factory=dict)

    def take(self, move: Move) -> bool:
        """Whether a move may begin now; it counts from then on. A broker without one may begin any."""
        for broker, size in move.work.items():
            count = self.partitions.get(broker, 0)
            if count >= self.max_partitions:
                return False
            if count and self.size.get(broker, 0) + size > self.max_bytes:
                return False
        self.add(move)
        return True

    def add(self, move: Move) -> None:
        """Count a move that is under way."""
        for broker, size in move.work.items():
            self.partitions[broker] = self.partitions.get(broker, 0) + 1
            self.size[broker] = self.size.get(broker, 0) + size
