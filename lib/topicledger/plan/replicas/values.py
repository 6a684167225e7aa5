"""What the planner takes and returns."""

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
    """The brokers that replicas can be on."""

    racks: Mapping[int, str | None]
    """The rack of each broker that is up; None where it has none: then it counts as a rack of its own."""
    leaving: frozenset[int] = frozenset()
    """Brokers that are to have no replicas any more."""
    rooms: Mapping[int, int] = field(default_factory=dict)
    """Bytes that each broker has room for; one that isn't here has room for anything, as far as is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReplicas:
    """A live topic's replicas."""

    topic: str
    replicas: Mapping[int, Replicas]
    """By partition."""
    sizes: Mapping[int, int] = field(default_factory=dict)
    """Bytes of each partition's largest replica; a partition that isn't here has an unknown size, and counts as 0."""

    def size(self, partition: int) -> int:
        return self.sizes.get(partition, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is wanted of a topic's replicas."""

    placement: Placement = ANYWHERE
    replication_factor: int | None = None
    """How many replicas each partition is to have; None: as many as it has."""
    assignments: Mapping[int, Replicas] | None = None
    """Exactly these, instead of the two above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is to become of a topic's replicas."""

    target: Mapping[int, Replicas] = field(default_factory=dict)
    """By partition, of those that change; empty where the change is refused."""
    crowded: tuple[int, ...] = ()
    """Of these, the partitions that get a rack twice, since no broker of another rack may have them."""
    refused: tuple[Refusal, str] | None = None
    """Why it can't be done."""


def moves(topic: TopicReplicas, change: Change) -> Iterator[tuple[int, int, bool]]:
    """Each replica that a change adds (True) or removes (False): its broker and its bytes."""
    for partition, target in change.target.items():
        now, size = topic.replicas.get(partition, ()), topic.size(partition)
        yield from ((broker, size, True) for broker in target if broker not in now)
        yield from ((broker, size, False) for broker in now if broker not in target)


def bytes_moved(topic: TopicReplicas, change: Change) -> int | None:
    """Bytes that a change copies; None where the size of a partition that gets a replica isn't known."""
    for partition, target in change.target.items():
        if partition not in topic.sizes and not set(target) <= set(topic.replicas.get(partition, ())):
            return None
    return sum(size for _, size, added in moves(topic, change) if added)


def flows(topic: TopicReplicas, change: Change) -> Mapping[int, tuple[int, int]]:
    """By broker, the bytes that it gets, and those that it gives away."""
    found: dict[int, tuple[int, int]] = {}
    for broker, size, added in moves(topic, change):
        comes, goes = found.get(broker, (0, 0))
        found[broker] = (comes + size, goes) if added else (comes, goes + size)
    return found
