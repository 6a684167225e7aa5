"""Balances replicas that were placed one by one, until no single move or change of leaders improves it."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from topicledger.resources.topics.plan.replicas.loads import Loads
from topicledger.resources.topics.plan.replicas.values import Replicas


class Topic(Protocol):
    """A topic during planning."""

    @property
    def loads(self) -> Loads: ...
    @property
    def target(self) -> Mapping[int, Replicas]: ...
    def now(self, partition: int) -> Replicas: ...
    def size(self, partition: int) -> int: ...
    def set(self, partition: int, target: Replicas) -> None: ...
    def may_get(self, partition: int, broker: int, instead_of: int) -> bool: ...


def separate_racks(topic: Topic, brokers: Sequence[int]) -> None:
    """Move replicas of partitions that use a rack twice to `brokers` in unused racks, as far as there is room.

    Followers are moved before the leader, to the least loaded broker.
    """
    loads = topic.loads
    for partition in sorted(topic.target):
        while True:
            target = topic.target[partition]
            racks = Counter(map(loads.rack, target))
            shared = [broker for broker in reversed(target) if racks[loads.rack(broker)] > 1]
            free = [
                broker
                for broker in brokers
                if loads.rack(broker) not in racks and shared and topic.may_get(partition, broker, shared[0])
            ]
            if not free:
                break
            best = min(free, key=loads.order)
            topic.set(partition, tuple(best if each == shared[0] else each for each in target))


def level_replicas(topic: Topic, brokers: Sequence[int], *, everything: bool) -> None:
    """Move replicas from brokers with many of the topic to `brokers` with at least two fewer, while any may be moved.

    Only replicas that the plan adds are moved, or, with `everything`, all. The smallest partitions are moved first, and
    followers before leaders.
    """
    counts = topic.loads.topic_replicas
    while _differ(counts[each] for each in brokers) and _moved(topic, brokers, everything):
        pass


def _differ(counts: Iterator[int]) -> bool:
    found = list(counts)
    return bool(found) and max(found) - min(found) >= 2


def _moved(topic: Topic, brokers: Sequence[int], everything: bool) -> bool:
    loads, counts = topic.loads, topic.loads.topic_replicas
    by_load = sorted(brokers, key=loads.order)
    for source in reversed(by_load):
        if counts[source] - counts[by_load[0]] < 2:
            return False
        movable = sorted(
            (target[0] == source, topic.size(partition), partition)
            for partition, target in topic.target.items()
            if source in target and (everything or source not in topic.now(partition))
        )
        for broker in by_load:
            if counts[source] - counts[broker] < 2:
                break
            for _, _, partition in movable:
                if topic.may_get(partition, broker, source):
                    target = topic.target[partition]
                    topic.set(partition, tuple(broker if each == source else each for each in target))
                    return True
    return False


def level_leaders(topic: Topic, *, everything: bool) -> None:
    """Change preferred leaders until no change, or chain of changes, makes them more even.

    Changed are partitions whose leader leaves, to replicas that have the data; with `everything`, all partitions, and a
    replica that will be copied may lead, too, since a second plan would choose it.
    """
    counts = topic.loads.topic_leaders
    free = [
        partition
        for partition, target in topic.target.items()
        if everything or (target != topic.now(partition) and target[0] not in topic.now(partition)[:1])
    ]
    while free:
        led: dict[int, list[int]] = defaultdict(list)
        for partition in free:
            led[topic.target[partition][0]].append(partition)
        if not any(
            _turned(topic, source, led, everything) for source in sorted(led, key=lambda each: (-counts[each], each))
        ):
            return


def _turned(topic: Topic, source: int, led: Mapping[int, Sequence[int]], everything: bool) -> bool:
    """Make the first chain of handovers from `source` to a broker that leads at least two fewer partitions.

    Each broker in between hands one lead over and gets one. Return whether there was a chain.
    """
    counts = topic.loads.topic_leaders
    came: dict[int, tuple[int, int]] = {}
    waiting = deque([source])
    while waiting:
        leader = waiting.popleft()
        for partition in led.get(leader, ()):
            for broker in topic.target[partition] if everything else _with_data(topic, partition):
                if broker == source or broker in came:
                    continue
                came[broker] = (leader, partition)
                if counts[source] - counts[broker] >= 2:
                    _turn(topic, broker, source, came)
                    return True
                waiting.append(broker)
    return False


def _with_data(topic: Topic, partition: int) -> Sequence[int]:
    """A partition's replicas that have its data; all if none has."""
    target, now = topic.target[partition], topic.now(partition)
    return [broker for broker in target if broker in now] or target


def _turn(topic: Topic, broker: int, source: int, came: Mapping[int, tuple[int, int]]) -> None:
    while broker != source:
        leader, partition = came[broker]
        rest = [each for each in topic.target[partition] if each != broker]
        topic.set(partition, (broker, *rest))
        broker = leader
