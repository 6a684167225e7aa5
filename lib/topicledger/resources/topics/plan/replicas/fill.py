"""Gives a new broker its share of replicas and leaders, with the fewest moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from topicledger.resources.topics.plan.replicas.loads import Loads
from topicledger.resources.topics.plan.replicas.values import Change, LiveCluster, Replicas, TopicReplicas


@dataclass(slots=True)
class _Donor:
    """Replicas that a broker can give away, the smallest partitions last."""

    led: list[tuple[int, str, int]] = field(default_factory=list)
    """(bytes, topic, partition) of replicas with which it is the preferred leader."""
    followed: list[tuple[int, str, int]] = field(default_factory=list)


def fill(
    cluster: LiveCluster,
    topics: Iterable[TopicReplicas],
    brokers: Collection[int],
    movable: Collection[str] | None = None,
) -> Mapping[str, Change]:
    """Plan the replicas that `brokers` get, by topic, from the brokers that have the most.

    Each broker gets replicas until it has its share, or there is no further partition that it may have. A partition is
    moved at most once, racks are shared no more than now, and topics don't become less even. `movable`: the topics
    whose replicas it may get, by default all.
    """
    known = {each.topic: each for each in topics}
    work = _Fill(cluster, known, known if movable is None else movable)
    for broker in sorted(brokers):
        work.fill(broker)
    return {name: Change(target=dict(sorted(target.items()))) for name, target in sorted(work.target.items())}


class _Fill:
    def __init__(self, cluster: LiveCluster, topics: Mapping[str, TopicReplicas], movable: Collection[str]) -> None:
        self._cluster, self._topics, self._movable = cluster, topics, movable
        self._loads = Loads(cluster, topics.values())
        self._up = [broker for broker in sorted(cluster.racks) if broker not in cluster.leaving]
        self._counts = {
            name: Counter(broker for replicas in topic.replicas.values() for broker in replicas)
            for name, topic in topics.items()
        }
        self._donors: Mapping[int, _Donor] = {}
        self.target: dict[str, dict[int, Replicas]] = {}

    def _all_donors(self) -> Mapping[int, _Donor]:
        donors = {broker: _Donor() for broker in self._up}
        for name, topic in self._topics.items():
            for partition, replicas in topic.replicas.items():
                led = partition not in topic.leaderless
                if name not in self._movable or not led or not set(replicas) <= set(donors):
                    # One of its brokers is down or leaving, or it has no leader: it is left as it is.
                    continue
                for broker in replicas:
                    donor = donors[broker]
                    (donor.led if broker == replicas[0] else donor.followed).append(
                        (topic.size(partition), name, partition)
                    )
        for donor in donors.values():
            donor.led.sort(reverse=True)
            donor.followed.sort(reverse=True)
        return donors

    def fill(self, broker: int) -> None:
        self._donors = self._all_donors()
        replicas, leaders = self._loads.replicas, self._loads.leaders
        share = sum(replicas[each] for each in self._up) // len(self._up)
        leading_share = sum(leaders[each] for each in self._up) // len(self._up)
        while replicas[broker] < share:
            leads = leaders[broker] < leading_share
            if not any(self._given(donor, broker, leads) for donor in self._givers(broker)):
                return

    def _givers(self, broker: int) -> Sequence[int]:
        replicas = self._loads.replicas
        richer = [each for each in self._up if replicas[each] - replicas[broker] >= 2]
        return sorted(richer, key=lambda each: (-replicas[each], each))

    def _given(self, donor: int, broker: int, leads: bool) -> bool:
        for name, partition in self._candidates(donor, leads):
            now, size = self._topics[name].replicas[partition], self._topics[name].size(partition)
            if self._may_go(name, partition, donor, broker, size):
                target = tuple(broker if each == donor else each for each in now)
                self.target.setdefault(name, {})[partition] = target
                self._loads.move(now, target, size)
                self._counts[name].subtract([donor])
                self._counts[name].update([broker])
                return True
        return False

    def _candidates(self, donor: int, leads: bool) -> Iterator[tuple[str, int]]:
        of_donor = self._donors[donor]
        for offered in (of_donor.led, of_donor.followed) if leads else (of_donor.followed, of_donor.led):
            # A replica that the broker can't get now is not offered again: offering would take most of the time.
            while offered:
                _, name, partition = offered.pop()
                yield name, partition

    def _may_go(self, name: str, partition: int, donor: int, broker: int, size: int) -> bool:
        now, counts, rack = self._topics[name].replicas[partition], self._counts[name], self._loads.rack
        if partition in self.target.get(name, ()) or broker in now or counts[donor] <= counts[broker]:
            return False
        others = [rack(each) for each in now if each != donor]
        return self._loads.has_room(broker, size) and (rack(broker) not in others or rack(donor) in others)
