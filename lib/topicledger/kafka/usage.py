"""Size and use of topics: what brokers report about each topic, and why the rest is unknown.

Unknown is never zero: a value that the principal may not read, that brokers don't report, or that is changing, is None
with a reason.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from topicledger.errors import ClusterError
from topicledger.kafka.connection import TOPIC_AUTHORIZATION_FAILED, Connection
from topicledger.kafka.groups import known_groups
from topicledger.kafka.log_dirs import KnownSizes, known_sizes
from topicledger.kafka.offsets import TopicOffsets, forbidden, producers, read_offsets
from topicledger.kafka.reassignments import TopicState, topic_states
from topicledger.model import GroupUse

MEASURED = (
    "partitions",
    "replication_factor",
    "bytes",
    "bytes_one_copy",
    "start_offset",
    "end_offset",
    "last_record_at",
    "groups",
    "producers",
    "under_replicated",
    "offline",
)
"""Columns of the table `usage` that are read from brokers."""

_BATCH = 10_000
_TIMES = 4
"""How often topics are asked about while partitions of theirs have no leader, or change their leader."""
_PAUSE_SECONDS = 0.5
NO_RECORDS = "no record is retained"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicUsage:
    """The size and use of one topic."""

    topic: str
    topic_id: str | None
    values: Mapping[str, object]
    """Values by the names in MEASURED; a name is missing if its value is unknown."""
    isr: Sequence[int] | None
    """The number of in-sync replicas of each partition; None if it is unknown."""
    reasons: Mapping[str, str]
    """Why values are missing, by the same names."""


@dataclass(frozen=True, kw_only=True)
class _Cluster:
    """Answers about a whole cluster, which are read once."""

    groups: Mapping[str, Sequence[GroupUse]]
    """Groups by topic."""
    no_groups: str | None
    """Why groups are unknown; None if they are known."""
    unsure: str | None
    """Which groups may use topics on which they have no committed offsets; None if there are none."""
    sizes: Mapping[int, KnownSizes]
    """Sizes by the id of each live broker."""


def topic_usage(connection: Connection, topics: Sequence[str]) -> Iterator[TopicUsage]:
    """Yield the usage of each named topic that exists.

    Each broker is asked once for the sizes of all its replicas, and then for offsets and producers of up to a thousand
    partitions at a time. Groups are read before end offsets, so that no lag is negative. Raises RequestLost if no
    broker describes the topics; any other value that can't be read is missing.
    """
    cluster = _read_cluster(connection, topics)
    lost: dict[int, str] = {}
    for start in range(0, len(topics), _BATCH):
        yield from _batch(connection, topics[start : start + _BATCH], cluster, lost)


def _read_cluster(connection: Connection, topics: Sequence[str]) -> _Cluster:
    groups: dict[str, list[GroupUse]] = {}
    why = unsure = None
    try:
        known = known_groups(connection, topics)
        unsure = known.unknown
        for use in known.uses:
            groups.setdefault(use.topic, []).append(use)
    except ClusterError as error:
        why = str(error)
    brokers = sorted(int(broker.node_id) for broker in connection.metadata([]).brokers)
    sizes = {each: known_sizes(connection, each) for each in brokers}
    return _Cluster(groups=groups, no_groups=why, unsure=unsure, sizes=sizes)


def _batch(
    connection: Connection, topics: Sequence[str], cluster: _Cluster, lost: dict[int, str]
) -> Iterator[TopicUsage]:
    waiting = list(topics)
    for attempt in range(1, _TIMES + 1):
        # A topic that was deleted meanwhile has no state.
        states = topic_states(connection, waiting)
        leaders = {
            (topic, partition): each.leader
            for topic, state in states.items()
            for partition, each in state.partitions.items()
            if each.leader >= 0
        }
        offsets = read_offsets(connection, leaders, lost)
        writing = producers(connection, leaders, lost)
        waiting = []
        for topic, state in states.items():
            found = offsets.get(topic)
            moving = state.unknown is not None or bool(_leaderless(state)) or (found is not None and found.moving)
            if moving and attempt < _TIMES:
                waiting.append(topic)
            elif state.permitted:
                yield _usage(topic, state, found, writing.get(topic), cluster)
            else:
                why = state.unknown or forbidden(connection, TOPIC_AUTHORIZATION_FAILED, f"Describe on topic {topic}")
                yield TopicUsage(topic=topic, topic_id=None, values={}, isr=None, reasons=dict.fromkeys(MEASURED, why))
        if not waiting:
            return
        time.sleep(_PAUSE_SECONDS)


def _leaderless(state: TopicState) -> list[int]:
    return sorted(partition for partition, each in state.partitions.items() if each.leader < 0)


def _usage(
    topic: str, state: TopicState, offsets: TopicOffsets | None, writing: int | str | None, cluster: _Cluster
) -> TopicUsage:
    parts = state.partitions.values()
    values: dict[str, object] = {
        "partitions": len(parts),
        "replication_factor": max((len(each.replicas) for each in parts), default=0),
        "under_replicated": sum(len(each.isr) < len(each.replicas) for each in parts),
        "offline": len(_leaderless(state)),
    }
    reasons: dict[str, str] = {}
    _add_sizes(topic, state, cluster.sizes, values, reasons)
    if leaderless := _leaderless(state):
        gone = f"partitions {leaderless} have no leader"
        reasons |= dict.fromkeys(("start_offset", "end_offset", "last_record_at", "producers"), gone)
    elif offsets is not None:
        read = {"start_offset": offsets.start_offset, "end_offset": offsets.end_offset}
        values |= {name: value for name, value in read.items() if value is not None}
        if offsets.last_record_at is not None:
            values["last_record_at"] = offsets.last_record_at
        reasons |= {"last_record_at": NO_RECORDS} if "last_record_at" not in values else {}
        reasons |= offsets.unknown
        if isinstance(writing, int):
            values["producers"] = writing
        else:
            reasons["producers"] = str(writing)
    uses = cluster.groups.get(topic, ())
    # A live group shows use, whatever else there is.
    no_groups = cluster.no_groups or (None if any(use.members for use in uses) else cluster.unsure)
    if no_groups is not None:
        reasons["groups"] = no_groups
    else:
        ends = {} if offsets is None else offsets.ends
        values["groups"] = [_group(use, state, ends) for use in uses]
    return TopicUsage(
        topic=topic, topic_id=state.topic_id, values=values, isr=[len(each.isr) for each in parts], reasons=reasons
    )


def _add_sizes(
    topic: str,
    state: TopicState,
    sizes: Mapping[int, KnownSizes],
    values: dict[str, object],
    reasons: dict[str, str],
) -> None:
    """Add the bytes of all replicas and of the leaders to `values`, or why they are unknown to `reasons`."""
    total = of_leaders = 0
    for partition, each in sorted(state.partitions.items()):
        for broker in {*each.replicas, each.leader}:
            answered = sizes.get(broker)
            size = None if answered is None else answered.sizes.get((topic, partition))
            if size is None:
                why = f"broker {broker} is down" if answered is None else answered.unknown
                why = f"partition {partition} has no leader" if broker < 0 else f"partition {partition}: {why}"
                if broker >= 0:
                    reasons.setdefault("bytes", why)
                if broker == each.leader:
                    reasons.setdefault("bytes_one_copy", why)
                continue
            total += size
            of_leaders += size if broker == each.leader else 0
    for name, value in (("bytes", total), ("bytes_one_copy", of_leaders)):
        if name not in reasons:
            values[name] = value


def _group(use: GroupUse, state: TopicState, ends: Mapping[int, int]) -> dict[str, object]:
    # Offsets outlive the partitions of a topic that was made again with fewer.
    own = {} if use.offsets is None else {each: at for each, at in use.offsets.items() if each in state.partitions}
    # Beyond the end are offsets of an earlier topic of the same name, or of records that were lost.
    known = bool(own) and all(each in ends and at <= ends[each] for each, at in own.items())
    lag = sum(ends[each] - at for each, at in own.items()) if known else None
    return {"group": use.group, "state": use.state, "members": use.members, "lag": lag}
