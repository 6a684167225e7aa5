"""Other tools' published ways to assign replicas, restated: what ours is compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

Replicas = tuple[int, ...]


def generate(
    racks: Mapping[int, str | None], partitions: int, replication_factor: int, start: int, shift: int
) -> dict[int, Replicas]:
    """kafka-reassign-partitions --generate: `AdminUtils.assignReplicasToBrokers` of Kafka (KIP-36), whose two random
    numbers are `start` and `shift`. It takes a topic's number of partitions and knows nothing of where replicas are."""
    brokers = _alternated(racks) if all(racks.values()) else sorted(racks)
    count = len(brokers)
    names = [racks[broker] or str(broker) for broker in brokers]
    assigned: dict[int, Replicas] = {}
    for partition in range(partitions):
        if partition and partition % count == 0:
            shift += 1
        first = (partition + start) % count
        replicas = [brokers[first]]
        k = 0
        while len(replicas) < replication_factor:
            index = _replica_index(first, shift * len(set(names)) if all(racks.values()) else shift, k, count)
            k += 1
            broker, used = brokers[index], {racks[each] for each in replicas}
            rack_taken = racks[broker] in used and len(used) < len(set(names))
            if all(racks.values()) and (rack_taken or (broker in replicas and len(replicas) < count)):
                continue
            replicas.append(broker)
        assigned[partition] = tuple(replicas)
    return assigned


def _replica_index(first: int, second_shift: int, index: int, count: int) -> int:
    return (first + 1 + (second_shift + index) % (count - 1)) % count


def _alternated(racks: Mapping[int, str | None]) -> list[int]:
    """Brokers, one of each rack in turns."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(str(racks[broker]), []).append(broker)
    result: list[int] = []
    turn = 0
    while len(result) < len(racks):
        for rack in sorted(by_rack):
            if turn < len(by_rack[rack]):
                result.append(by_rack[rack][turn])
        turn += 1
    return result


def rebuild(
    racks: Mapping[int, str | None], replicas: Mapping[int, Replicas], replication_factor: int, allowed: Sequence[int]
) -> dict[int, Replicas]:
    """topicmappr rebuild, by count: replicas on brokers that stay keep their place, each place that is left goes to the
    broker with the fewest replicas whose rack the partition doesn't use yet, whichever topic these are of."""
    used = Counter(broker for each in replicas.values() for broker in each if broker in allowed)
    assigned: dict[int, Replicas] = {}
    for partition, now in sorted(replicas.items()):
        places: list[int | None] = [b if b in allowed else None for b in now[:replication_factor]]
        places += [None] * (replication_factor - len(places))
        for place, broker in enumerate(places):
            if broker is None:
                taken = [each for each in places if each is not None]
                racks_taken = {racks[each] for each in taken}
                free = [b for b in allowed if b not in taken]
                best = [b for b in free if racks[b] not in racks_taken] or free
                chosen = min(best, key=lambda b: (used[b], b))
                places[place] = chosen
                used[chosen] += 1
        assigned[partition] = tuple(each for each in places if each is not None)
    return assigned
