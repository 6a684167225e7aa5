"""Plans the replicas of each partition: fewest moves first, then balance."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from topicledger.model import Refusal
from topicledger.model.moves import LEADER_ADVICE
from topicledger.model.placement import ANYWHERE, Placement, PlacementKind
from topicledger.resources.topics.plan.replicas.level import level_leaders, level_replicas, separate_racks
from topicledger.resources.topics.plan.replicas.loads import Loads
from topicledger.resources.topics.plan.replicas.values import Change, LiveCluster, Replicas, TopicReplicas, Wish


class _Refused(Exception):
    """The wish for a topic can't be fulfilled."""

    def __init__(self, error: Refusal, message: str) -> None:
        super().__init__(message)
        self.error = error


def plan(cluster: LiveCluster, topics: Iterable[TopicReplicas], wishes: Mapping[str, Wish]) -> Mapping[str, Change]:
    """Plan the replicas of topics with wishes; returns the changes by topic.

    `topics`: all topics of the cluster, since others count as load. The same input gives the same plan, and after it is
    carried out no further changes are planned. Kept replicas keep their order, and a leader that stays keeps leading.
    """
    known = sorted(topics, key=lambda each: each.topic)
    loads = Loads(cluster, known)
    changes = {}
    for topic in known:
        wish = wishes.get(topic.topic)
        if wish is not None:
            change = _planned(cluster, loads, topic, wish)
            if change.target or change.refused is not None:
                changes[topic.topic] = change
    return changes


def create(
    cluster: LiveCluster, topics: Iterable[TopicReplicas], wanted: Mapping[str, tuple[int, Wish]]
) -> Mapping[str, Change]:
    """Plan the replicas of topics to create, from the number of partitions and the wish of each.

    A wish includes the replication factor. `topics`: those that the cluster has, as load.
    """
    loads = Loads(cluster, topics)
    return {
        name: _planned(cluster, loads, TopicReplicas(topic=name, replicas=dict.fromkeys(range(count), ())), wish)
        for name, (count, wish) in sorted(wanted.items())
    }


def _planned(cluster: LiveCluster, loads: Loads, topic: TopicReplicas, wish: Wish) -> Change:
    loads.begin(topic)
    work = _Work(cluster, loads, topic, wish.placement)
    try:
        if wish.assignments is not None:
            work.assign(wish.assignments)
        else:
            work.place(wish.replication_factor)
        work.require_leaders()
        return Change(target=work.changed(), crowded=work.crowded(distinct=wish.assignments is None))
    except _Refused as refused:
        work.undo()
        return Change(refused=(refused.error, str(refused)))


@dataclass(frozen=True, slots=True)
class _Allowed:
    """The brokers that may have replicas of a topic."""

    gets: Sequence[int]
    """Brokers that may get one."""
    keeps: Collection[int]
    """Brokers that may keep one."""
    strict: bool
    """No rack may have two replicas of a partition."""


def _allowed(cluster: LiveCluster, placement: Placement) -> _Allowed:
    up = [broker for broker in sorted(cluster.racks) if broker not in cluster.leaving]
    if placement.kind is PlacementKind.RACK:
        up = [broker for broker in up if cluster.racks[broker] == placement.rack]
        if not up:
            message = f"no broker that is up, and stays, is in rack {placement.rack}"
            raise _Refused(Refusal.BROKERS_UNAVAILABLE, message)
    elif placement.kind is PlacementKind.BROKERS:
        away = sorted(placement.brokers - set(up))
        if away:
            raise _Refused(
                Refusal.BROKERS_UNAVAILABLE,
                f"placement {placement} names brokers that are down or unknown, or that are drained: {_ids(away)}",
            )
        up = sorted(placement.brokers)
    elif placement.kind is PlacementKind.RACKS:
        up = [broker for broker in up if cluster.racks[broker]]
    return _Allowed(gets=up, keeps=frozenset(up), strict=placement.kind is PlacementKind.RACKS)


class _Work:
    """One topic during planning."""

    def __init__(self, cluster: LiveCluster, loads: Loads, topic: TopicReplicas, placement: Placement) -> None:
        self._cluster, self._loads, self._topic, self._placement = cluster, loads, topic, placement
        self._target: dict[int, Replicas] = dict(topic.replicas)

    def changed(self) -> Mapping[int, Replicas]:
        return {
            partition: target
            for partition, target in sorted(self._target.items())
            if target != self._topic.replicas[partition]
        }

    def crowded(self, *, distinct: bool) -> tuple[int, ...]:
        """Changed partitions that get two replicas in one rack; none if assignments ask for this."""
        if not distinct or self._placement.kind is PlacementKind.RACK:
            return ()
        rack = self._loads.rack
        return tuple(p for p, target in self.changed().items() if len(set(map(rack, target))) < len(target))

    def undo(self) -> None:
        for partition, now in self._topic.replicas.items():
            self._set(partition, now)

    def _set(self, partition: int, target: Replicas) -> None:
        now, planned, size = self._topic.replicas[partition], self._target[partition], self._topic.size(partition)
        if planned != now:
            self._loads.undo(now, planned, size)
        if target != now:
            self._loads.replace(now, target, size)
        self._target[partition] = target

    def assign(self, assignments: Mapping[int, Replicas]) -> None:
        """Assign exactly these replicas to the existing partitions."""
        for partition, replicas in sorted(assignments.items()):
            if partition not in self._topic.replicas or replicas == self._topic.replicas[partition]:
                continue
            away = sorted({*replicas} & self._cluster.leaving | {*replicas} - set(self._cluster.racks))
            if away:
                message = f"assignments name brokers that are down or unknown, or that are drained: {_ids(away)}"
                raise _Refused(Refusal.BROKERS_UNAVAILABLE, message)
            size = self._topic.size(partition)
            full = [b for b in replicas if b not in self._topic.replicas[partition] and not self._has_room(b, size)]
            if full:
                raise _no_room(partition, size, full)
            self._set(partition, replicas)

    def place(self, replication_factor: int | None) -> None:
        """Place this number of replicas of each partition, or as many as it has, by the placement."""
        allowed = _allowed(self._cluster, self._placement)
        most = max((len(each) for each in self._topic.replicas.values()), default=0)
        self._require_enough(allowed, most if replication_factor is None else replication_factor)
        for partition in sorted(self._topic.replicas):
            self._place_partition(partition, replication_factor, allowed)
        spreads = self._placement.kind is PlacementKind.SPREAD
        if spreads:
            separate_racks(self, allowed.gets)
        level_replicas(self, allowed.gets, everything=spreads)
        level_leaders(self, everything=spreads)
        self._require_up()

    def _require_enough(self, allowed: _Allowed, count: int) -> None:
        if len(allowed.gets) < count and not allowed.strict:
            where = "" if self._placement == ANYWHERE else f" that placement {self._placement} allows"
            raise _Refused(
                Refusal.TOO_FEW_BROKERS,
                f"{count} replicas need {count} brokers, and {len(allowed.gets)}{where} are up and not drained",
            )
        racks = len({self._loads.rack(broker) for broker in allowed.gets})
        if allowed.strict and racks < count:
            raise _Refused(
                Refusal.TOO_FEW_RACKS,
                f"placement racks needs {count} racks for {count} replicas, and brokers that are up are in {racks}",
            )

    def _place_partition(self, partition: int, replication_factor: int | None, allowed: _Allowed) -> None:
        now, size = self._target[partition], self._topic.size(partition)
        count = len(now) if replication_factor is None else replication_factor
        kept = [broker for broker in now if self._may_stay(broker, allowed)]
        if allowed.strict:
            # The first of each rack: the leader is kept.
            first = {self._loads.rack(broker): broker for broker in reversed(kept)}
            kept = [broker for broker in kept if first[self._loads.rack(broker)] == broker]
        while len(kept) > count:
            kept.remove(self._worst(kept))
        added: list[int] = []
        while len(kept) + len(added) < count:
            replicas = [*kept, *added]
            free = [broker for broker in allowed.gets if broker not in replicas]
            if allowed.strict:
                used = set(map(self._loads.rack, replicas))
                free = [broker for broker in free if self._loads.rack(broker) not in used]
            fits = [broker for broker in free if broker in now or self._has_room(broker, size)]
            if not fits:
                if free:
                    raise _no_room(partition, size, free)
                raise _Refused(Refusal.TOO_FEW_BROKERS, f"no broker is left for a replica of partition {partition}")
            added.append(self._loads.best(fits, replicas))
        self._set(partition, self._led(now, kept, added))

    def _led(self, now: Replicas, kept: Sequence[int], added: Sequence[int]) -> Replicas:
        """Order the replicas: the previous leader first if it stays, else one of those that have the data."""
        if kept and kept[0] == now[0]:
            return (*kept, *added)
        leader = min(kept or added, key=self._loads.leading_order)
        return (leader, *(broker for broker in (*kept, *added) if broker != leader))

    def _may_stay(self, broker: int, allowed: _Allowed) -> bool:
        if broker in self._cluster.leaving:
            return False
        if broker in self._cluster.racks:
            return broker in allowed.keeps
        # It is down, and its rack is unknown: its replicas stay where they are.
        return self._placement.kind is not PlacementKind.BROKERS

    def _worst(self, kept: Sequence[int]) -> int:
        """Choose the replica to remove: never the first, preferably one in a shared rack, the most loaded."""
        racks = [self._loads.rack(broker) for broker in kept]
        return max(kept[1:], key=lambda broker: (racks.count(self._loads.rack(broker)), self._load(broker)))

    def _load(self, broker: int) -> tuple[int, int, int, int]:
        # A broker that is down counts as the most loaded: its replica is out of sync.
        return self._loads.order(broker) if broker in self._cluster.racks else (2**31, 0, 0, broker)

    def _has_room(self, broker: int, size: int) -> bool:
        return self._loads.has_room(broker, size)

    def _require_up(self) -> None:
        away = sorted({b for target in self.changed().values() for b in target if b not in self._cluster.racks})
        if away:
            raise _Refused(
                Refusal.BROKERS_UNAVAILABLE,
                f"brokers that have replicas of partitions to be changed are down: {_ids(away)}; run again when they "
                "are up, or drain them",
            )

    def require_leaders(self) -> None:
        """Refuse to move partitions without a leader: their moves would never end."""
        leaderless = sorted(self._topic.leaderless & self.changed().keys())
        if leaderless:
            words = f"no leader to copy from (partitions {_ids(leaderless)}): {LEADER_ADVICE}; then plan again"
            raise _Refused(Refusal.BROKERS_UNAVAILABLE, words)

    # The protocol `level.Topic`.

    @property
    def loads(self) -> Loads:
        return self._loads

    @property
    def target(self) -> Mapping[int, Replicas]:
        return self._target

    def now(self, partition: int) -> Replicas:
        """The replicas that a partition has."""
        return self._topic.replicas[partition]

    def size(self, partition: int) -> int:
        return self._topic.size(partition)

    def set(self, partition: int, target: Replicas) -> None:
        """Change the planned replicas of a partition."""
        self._set(partition, target)

    def may_get(self, partition: int, broker: int, instead_of: int) -> bool:
        """Whether a broker may get a partition's replica from another broker without sharing more racks than now."""
        target = self._target[partition]
        if broker in target:
            return False
        if broker not in self._topic.replicas[partition] and not self._has_room(broker, self.size(partition)):
            return False
        rack = self._loads.rack
        others = [rack(each) for each in target if each != instead_of]
        return rack(broker) not in others or rack(instead_of) in others


def _no_room(partition: int, size: int, brokers: Sequence[int]) -> _Refused:
    return _Refused(
        Refusal.NO_ROOM, f"partition {partition} has {size} bytes, and brokers {_ids(brokers)} have no room for it"
    )


def _ids(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))
