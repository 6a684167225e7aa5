"""Planned moves of replicas, and the throttles that are set while they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from topicledger.model.refusals import Refusal

Assignments: TypeAlias = Mapping[int, tuple[int, ...]]
"""Partition -> broker ids; the first is the preferred leader."""


LEADER_ADVICE = "start a broker with a replica in sync; if all are lost, elect an unclean leader or delete the topic"
"""The advice for a partition without a leader: nothing can be copied from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """A broker to drain or fill: a run moves replicas for it, instead of as manifests declare."""

    broker: int
    fills: bool
    """True to give the broker its share of replicas; false to move all replicas away from it."""

    def __str__(self) -> str:
        return f"{'fill' if self.fills else 'drain'} {self.broker}"


def parse_rebalance(text: str) -> Rebalance:
    """Parse what `str` of a Rebalance returns."""
    name, _, broker = text.partition(" ")
    return Rebalance(broker=int(broker), fills=name == "fill")


BROKER, TOPIC = "broker", "topic"
"""Resource types that throttles are set on."""
LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
"""Configs of a broker: bytes per second of throttled replicas that are read from it, and written to it."""
LEADER_REPLICAS, FOLLOWER_REPLICAS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
"""Configs of a topic: its throttled replicas, as `partition:broker,...`."""


def parse_assignments(text: str) -> dict[int, tuple[int, ...]]:
    """Parse assignments from `plans.before` or `plans.after`, such as `0:1,2;1:2,3`."""
    found = {}
    for each in filter(None, text.split(";")):
        partition, _, brokers = each.partition(":")
        found[int(partition)] = tuple(map(int, filter(None, brokers.split(","))))
    return found


def assignments_text(assignments: Assignments) -> str:
    """Format assignments as `parse_assignments` reads them."""
    return ";".join(f"{each}:{','.join(map(str, brokers))}" for each, brokers in sorted(assignments.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """Why no more of an action is sent that an earlier start may have sent: its plan is too old, or not asked for."""

    error: Refusal
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """A config that is set while replicas move, and its previous value."""

    resource_type: str
    """`broker` or `topic`."""
    resource: str
    """The broker's id, or the topic."""
    config: str
    before: str | None
    """None if it wasn't set."""
    value: str
    run_id: str | None = None
    set_at: int | None = None
    """Microseconds since 1970. With `run_id`, it names the row of the record; None before it is recorded."""


class ThrottleRecords(Protocol):
    """The record of one cluster's throttles."""

    def intend(self, throttles: Sequence[Throttle]) -> None:
        """Commit that these throttles will be set."""

    def left(self) -> Sequence[Throttle]:
        """Return the throttles that may still be set, by any run."""

    def removed(self, throttles: Sequence[Throttle]) -> None:
        """Commit that these throttles are no longer set."""


@dataclass(kw_only=True)
class Move:
    """One partition's move from its current to its planned replicas."""

    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    size: int = 0
    """Bytes of one replica of the partition."""

    @property
    def adding(self) -> frozenset[int]:
        return frozenset(self.after) - frozenset(self.before)

    @property
    def total(self) -> int:
        """Bytes that the move copies."""
        return self.size * len(self.adding)

    @property
    def work(self) -> Mapping[int, int]:
        """Bytes read or written, by broker; they are usually read from the first broker of `before`."""
        if not self.adding:
            return {}
        return {**dict.fromkeys(self.before[:1], self.total), **dict.fromkeys(self.adding, self.size)}


@dataclass(kw_only=True)
class UnderWay:
    """Moves under way, counted by broker and kept within limits."""

    max_partitions: int
    """Limit for each broker."""
    max_bytes: int
    """Limit for each broker; a larger partition is moved alone."""
    partitions: dict[int, int] = field(default_factory=dict)
    size: dict[int, int] = field(default_factory=dict)

    def take(self, move: Move) -> bool:
        """Count a move if it may begin now, and return whether it may. An idle broker may begin any move."""
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
