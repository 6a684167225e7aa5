"""The load of each broker during planning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import permutations

from topicledger.resources.topics.plan.replicas.values import LiveCluster, Replicas, TopicReplicas


class Loads:
    """Replicas, leaders and bytes of each broker, of the whole cluster and of the topic that is being planned.

    The topic comes first wherever brokers are compared, so that each topic is spread by itself; then the cluster.
    """

    def __init__(self, cluster: LiveCluster, topics: Iterable[TopicReplicas]) -> None:
        names = {rack: number for number, rack in enumerate(sorted({r for r in cluster.racks.values() if r}))}
        # A broker without a rack, or one that is down, counts as a separate rack.
        self._racks = {broker: names[rack] if rack else -1 - broker for broker, rack in cluster.racks.items()}
        self.rooms = dict(cluster.rooms)
        self.replicas: Counter[int] = Counter()
        self.leaders: Counter[int] = Counter()
        self.bytes: Counter[int] = Counter()
        self.topic_replicas: Counter[int] = Counter()
        self.topic_leaders: Counter[int] = Counter()
        self._together: Counter[tuple[int, int]] = Counter()
        self._shared: Counter[tuple[int, int]] = Counter()
        self._order: dict[int, tuple[int, int, int]] = {}
        for topic in topics:
            for partition, replicas in topic.replicas.items():
                self._count(replicas, topic.size(partition), 1)

    def rack(self, broker: int) -> int:
        """A number for the broker's rack, the same for brokers that share one."""
        return self._racks.get(broker, -1 - broker)

    def begin(self, topic: TopicReplicas) -> None:
        """Start planning a topic."""
        self.topic_replicas = Counter(broker for replicas in topic.replicas.values() for broker in replicas)
        self.topic_leaders = Counter(replicas[0] for replicas in topic.replicas.values() if replicas)
        self._together = Counter(pair for replicas in topic.replicas.values() for pair in permutations(replicas, 2))
        self._order = {broker: self._order_of(broker) for broker in self._racks}

    def move(self, now: Replicas, target: Replicas, size: int) -> None:
        """Move a partition from `now` to `target`; added replicas take room, removed ones don't free any yet."""
        for broker in target:
            if broker not in now and broker in self.rooms:
                self.rooms[broker] -= size
        self._count(now, size, -1)
        self._count(target, size, 1)

    def replace(self, now: Replicas, target: Replicas, size: int) -> None:
        """As `move`, for a partition of the topic that is being planned."""
        self.move(now, target, size)
        self._of_topic(now, target)

    def undo(self, now: Replicas, target: Replicas, size: int) -> None:
        """Undo `replace` with the same arguments."""
        for broker in target:
            if broker not in now and broker in self.rooms:
                self.rooms[broker] += size
        self._count(target, size, -1)
        self._count(now, size, 1)
        self._of_topic(target, now)

    def _of_topic(self, now: Replicas, target: Replicas) -> None:
        self.topic_replicas.subtract(now)
        self.topic_replicas.update(target)
        self.topic_leaders.subtract(now[:1])
        self.topic_leaders.update(target[:1])
        self._together.subtract(permutations(now, 2))
        self._together.update(permutations(target, 2))
        for broker in {*now, *target}:
            self._order[broker] = self._order_of(broker)

    def _count(self, replicas: Replicas, size: int, sign: int) -> None:
        for broker in replicas:
            self.replicas[broker] += sign
            self.bytes[broker] += sign * size
        shared = self._shared
        for pair in permutations(replicas, 2):
            shared[pair] += sign
        if replicas:
            self.leaders[replicas[0]] += sign

    def has_room(self, broker: int, size: int) -> bool:
        """Whether a replica of this size in bytes fits on a broker, as far as known."""
        room = self.rooms.get(broker)
        return room is None or room >= size

    def order(self, broker: int) -> tuple[int, int, int, int]:
        """Sort key: brokers that should get a replica first come first."""
        return (*self._order[broker], broker)

    def _order_of(self, broker: int) -> tuple[int, int, int]:
        return (self.topic_replicas[broker], self.replicas[broker], self.bytes[broker])

    def leading_order(self, broker: int) -> tuple[int, int, int]:
        """Sort key: brokers that should lead first come first."""
        return (self.topic_leaders[broker], self.leaders[broker], broker)

    def best(self, candidates: Sequence[int], replicas: Sequence[int]) -> int:
        """Choose the broker of `candidates`, at least one, that gets another replica of a partition on `replicas`.

        It is the least loaded in a rack with the fewest of them. Among equal ones, it is the one that shares the fewest
        partitions with `replicas`, of the topic, then of the cluster: so a lost broker's load is shared by many.
        """
        used = Counter(map(self.rack, replicas))
        racks, order, together, shared = self._racks, self._order, self._together, self._shared
        for count in range(len(replicas) + 1):
            # No lambda: planning spends most of its time here.
            found = [broker for broker in candidates if used.get(racks[broker], 0) == count]
            if found:
                least = min(map(order.__getitem__, found))
                equal = [broker for broker in found if order[broker] == least]
                if len(equal) == 1:
                    return equal[0]
                return min(
                    equal,
                    key=lambda broker: (
                        sum(together[broker, each] for each in replicas),
                        sum(shared[broker, each] for each in replicas),
                        broker,
                    ),
                )
        raise ValueError("no candidates")
