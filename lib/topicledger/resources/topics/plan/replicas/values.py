"""The input and output of the planner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from topicledger.model import Refusal
from topicledger.model.placement import ANYWHERE, Placement

Replicas: TypeAlias = tuple[int, ...]
"""The broker ids of a partition; the first is the preferred leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCluster:
    """The brokers that can have replicas."""

    racks: Mapping[int, str | None]
    """Broker that is up -> its rack; None if it has none: it then counts as a separate rack."""
    leaving: frozenset[int] = frozenset()
    """Brokers that should no longer have replicas."""
    rooms: Mapping[int, int] = field(default_factory=dict)
    """Broker -> free bytes; a broker that isn't here has unlimited room, as far as known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReplicas:
    """A live topic's replicas."""

    topic: str
    replicas: Mapping[int, Replicas]
    """Partition -> replicas."""
    sizes: Mapping[int, int] = field(default_factory=dict)
    """Bytes of each partition's largest replica; a partition that isn't here has an unknown size, and counts as 0."""
    leaderless: frozenset[int] = frozenset()
    """Partitions without a leader: nothing can be copied from them."""

    def size(self, partition: int) -> int:
        return self.sizes.get(partition, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The wanted replicas of a topic."""

    placement: Placement = ANYWHERE
    replication_factor: int | None = None
    """The wanted number of replicas of each partition; None: as many as it has."""
    assignments: Mapping[int, Replicas] | None = None
    """Exactly these replicas, instead of the two above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The planned replicas of a topic."""

    target: Mapping[int, Replicas] = field(default_factory=dict)
    """Changed partition -> replicas; empty if the change is refused."""
    crowded: tuple[int, ...] = ()
    """Changed partitions with two replicas in one rack, since no broker in another rack may have them."""
    refused: tuple[Refusal, str] | None = None
    """The reason why it is refused."""


def moves(topic: TopicReplicas, change: Change) -> Iterator[tuple[int, int, bool]]:
    """Replicas that a change adds (True) or removes (False): broker and bytes of each."""
    for partition, target in change.target.items():
        now, size = topic.replicas.get(partition, ()), topic.size(partition)
        yield from ((broker, size, True) for broker in target if broker not in now)
        yield from ((broker, size, False) for broker in now if broker not in target)


def bytes_moved(topic: TopicReplicas, change: Change) -> int | None:
    """Bytes that a change copies; None if the size of a partition that gets a replica is unknown."""
    for partition, target in change.target.items():
        if partition not in topic.sizes and not set(target) <= set(topic.replicas.get(partition, ())):
            return None
    return sum(size for _, size, added in moves(topic, change) if added)


def flows(topic: TopicReplicas, change: Change) -> Mapping[int, tuple[int, int]]:
    """Broker -> bytes that it gets and bytes that it gives away."""
    found: dict[int, tuple[int, int]] = {}
    for broker, size, added in moves(topic, change):
        comes, goes = found.get(broker, (0, 0))
        found[broker] = (comes + size, goes) if added else (comes, goes + size)
    return found
