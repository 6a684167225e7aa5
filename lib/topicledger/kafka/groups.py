"""Groups that use a topic: classic, consumer (KIP-848), share (KIP-932) and streams groups (KIP-1071).

Unknown must never look like "no groups": groups that are changing are read again, and everything else is an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest

from topicledger.errors import ClusterError
from topicledger.kafka.connection import Connection, RequestLost
from topicledger.kafka.listing import Later, ListedGroup, list_groups, refuse_partial_sight, settled
from topicledger.kafka.members import Members, classic, consumer, share, streams
from topicledger.kafka.messages import (
    ConsumerGroupDescribeRequest,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
    StreamsGroupDescribeRequest,
)
from topicledger.model import GroupUse
from topicledger.text import listed

_MANY_GROUPS_FETCH = 8
_GROUPS_BATCH = 100
_PAUSE_SECONDS = 0.2
_SHOWN = 3


def consumer_groups(connection: Connection, topics: Collection[str]) -> list[GroupUse]:
    """Return one GroupUse per topic and group that uses it, ordered by both; none for an unused topic.

    A group uses a topic if live members are assigned to it or subscribed to it, or if the group has committed offsets
    on it. Consumers that have no group and commit nothing are not seen: Kafka doesn't know them.

    While a group changes (a rebalance of the classic protocol, a coordinator that loads) it is read again, for
    `operation_timeout`; then RequestLost names what is unknown.

    Raises ClusterError, naming what is missing, if the principal may not see everything: it needs Describe on the
    cluster, on every group, on __consumer_offsets, on the topics, and for groups of the newer protocols on every topic
    that their members subscribe to. Also raises ClusterError for brokers older than Kafka 2.8, which don't report
    whether a listing is complete.
    """
    return _known(connection, topics, by_offsets=False).uses


@dataclass(frozen=True, kw_only=True)
class KnownUses:
    """Groups that use some topics, as far as they are known."""

    uses: list[GroupUse]
    unknown: str | None
    """Which groups may use further topics; None if there are none."""


def known_groups(connection: Connection, topics: Collection[str]) -> KnownUses:
    """As `consumer_groups`, but a group that keeps rebalancing counts where it has committed offsets, if it has any."""
    return _known(connection, topics, by_offsets=True)


def _known(connection: Connection, topics: Collection[str], *, by_offsets: bool) -> KnownUses:
    wanted = frozenset(topics)
    if not wanted:
        return KnownUses(uses=[], unknown=None)
    refuse_partial_sight(connection, wanted)
    deadline: float | None = None
    uses: dict[str, list[GroupUse]] = {}
    committed: dict[str, list[GroupUse]] = {}
    while True:
        later: Later = {}
        found = [each for each in list_groups(connection, later) if each.group not in uses]
        for batch in _batches(found):
            uses |= _read(connection, batch, wanted, later, committed)
        # Reading thousands of groups once may take longer than the time for those that are rebalancing.
        deadline = deadline or time.monotonic() + connection.operation_timeout
        late = time.monotonic() >= deadline
        unsure: Later = {}
        if late and by_offsets:
            unsure = {_subject(group): later.pop(_subject(group)) for group in committed if _subject(group) in later}
            uses |= {group: of_group for group, of_group in committed.items() if _subject(group) in unsure}
        if not later:
            known = sorted((use for each in uses.values() for use in each), key=lambda use: (use.topic, use.group))
            return KnownUses(uses=known, unknown=_undecided(connection, unsure) if unsure else None)
        if late:
            raise RequestLost(_undecided(connection, later))
        time.sleep(_PAUSE_SECONDS)


def _undecided(connection: Connection, later: Later) -> str:
    shown = listed([f"{subject}: {why}" for subject, why in sorted(later.items())], most=_SHOWN, between="; ")
    return (
        f"cluster {connection.name}: after {connection.operation_timeout:g} s it is still unknown which groups use "
        f"its topics ({shown}): try again when these groups are stable"
    )


def _batches(found: Iterable[ListedGroup]) -> Iterator[list[ListedGroup]]:
    """Yield groups that one request can ask about: those of one coordinator and one kind."""
    together: dict[tuple[int, str], list[ListedGroup]] = {}
    for each in found:
        together.setdefault((each.broker_id, each.kind), []).append(each)
    for groups in together.values():
        for start in range(0, len(groups), _GROUPS_BATCH):
            yield groups[start : start + _GROUPS_BATCH]


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """How to read what groups of one type use."""

    request: Any
    """The request that describes groups."""
    names: str
    """The request's field for group names."""
    members: Callable[[Any], Members]
    offsets: Callable[[Connection, int, Sequence[str]], Iterable[_Offsets]]
    shares: bool = False
    """Whether the offsets are those from which records are shared, which are no committed ones."""


@dataclass(frozen=True, kw_only=True)
class _Offsets:
    """A coordinator's answer about the offsets of one group."""

    group: str
    error_code: int
    partitions: tuple[tuple[str, int, int, int], ...]
    """Topic, partition, offset (-1 for none) and error code."""


def _read(
    connection: Connection,
    batch: Sequence[ListedGroup],
    wanted: Collection[str],
    later: Later,
    by_offsets: dict[str, list[GroupUse]],
) -> dict[str, list[GroupUse]]:
    """Return the known uses of each group of a batch, empty lists included; put the other groups into `later`.

    Their uses by committed offsets, if they have any, are put into `by_offsets`.
    """
    broker_id, kind = batch[0].broker_id, _KINDS.get(batch[0].kind)
    if kind is None:
        raise ClusterError(
            f"cluster {connection.name}: group {batch[0].group} has a type that this topicledger doesn't know, "
            f"{batch[0].kind}: it is unknown which groups use the cluster's topics"
        )
    members = {each.group: Members() for each in batch if each.empty}
    alive = [each.group for each in batch if not each.empty]
    if alive:
        members |= _members(connection, broker_id, kind, alive, later)
    # Offsets are read after members, so that the offsets of a member that commits and leaves in between are seen.
    committed = _committed(connection, broker_id, kind, sorted(members), later) if members else {}
    found: dict[str, list[GroupUse]] = {}
    for group, offsets in committed.items():
        if members[group].unknown and not all(topic in offsets for topic in wanted):
            later[_subject(group)] = str(members[group].unknown)
            if offsets:
                by_offsets[group] = _uses(group, members[group], offsets, wanted, shares=kind.shares)
        else:
            found[group] = _uses(group, members[group], offsets, wanted, shares=kind.shares)
    for each in batch:
        if each.group not in found:
            later.setdefault(_subject(each.group), "its coordinator gave no answer about it")
    return found


def _subject(group: str) -> str:
    return f"group {group}"


def _uses(
    group: str, members: Members, committed: Mapping[str, dict[int, int]], wanted: Collection[str], *, shares: bool
) -> list[GroupUse]:
    return [
        GroupUse(
            topic=topic,
            group=group,
            members=members.count if members.unknown else members.assigned[topic] or members.subscribed[topic],
            committed=topic in committed,
            state=members.state,
            offsets=None if shares else committed.get(topic, {}),
        )
        for topic in {*committed, *members.assigned, *members.subscribed}.intersection(wanted)
    ]


def _members(
    connection: Connection, broker_id: int, kind: _Kind, groups: Sequence[str], later: Later
) -> dict[str, Members]:
    found: dict[str, Members] = {}
    for each in connection.ask(kind.request(**{kind.names: list(groups)}), broker_id).groups:
        if not settled(connection, _subject(each.group_id), each.error_code, later):
            continue
        if each.group_state == "Dead":
            # The group is gone, and won't be listed the next time; or the request doesn't know its kind.
            later[_subject(each.group_id)] = "its coordinator doesn't know it"
        else:
            found[each.group_id] = kind.members(each)
    return found


def _committed(
    connection: Connection, broker_id: int, kind: _Kind, groups: Sequence[str], later: Later
) -> dict[str, dict[str, dict[int, int]]]:
    """Return the offsets of each group: topic -> partition -> offset."""
    found: dict[str, dict[str, dict[int, int]]] = {}
    for each in kind.offsets(connection, broker_id, groups):
        codes = {each.error_code, *(error_code for *_, error_code in each.partitions)}
        if all(settled(connection, _subject(each.group), code, later) for code in codes):
            own = found[each.group] = {}
            for topic, partition, offset, _ in each.partitions:
                if offset >= 0:
                    own.setdefault(topic, {})[partition] = offset
    return found


def _fetched(connection: Connection, broker_id: int, groups: Sequence[str]) -> Iterator[_Offsets]:
    # Reads everything a group committed: named topics would make each answer as long as all their partitions.
    if connection.supports(OffsetFetchRequest, _MANY_GROUPS_FETCH):
        named = OffsetFetchRequest.OffsetFetchRequestGroup
        request = OffsetFetchRequest(
            groups=[named(group_id=group, topics=None) for group in groups],
            min_version=_MANY_GROUPS_FETCH,
            # Later versions identify topics by id, and the id of a deleted topic is unknown.
            max_version=_MANY_GROUPS_FETCH + 1,
        )
        answers = [(each.group_id, each) for each in connection.ask(request, broker_id).groups]
    else:
        answers = []
        for group in groups:
            request = OffsetFetchRequest(group_id=group, topics=None, min_version=2, max_version=_MANY_GROUPS_FETCH - 1)
            answers.append((group, connection.ask(request, broker_id)))
    for group, answer in answers:
        yield _Offsets(
            group=group,
            error_code=answer.error_code,
            partitions=tuple(
                (topic.name, each.partition_index, each.committed_offset, each.error_code)
                for topic in answer.topics
                for each in topic.partitions
            ),
        )


def _share_offsets(connection: Connection, broker_id: int, groups: Sequence[str]) -> Iterator[_Offsets]:
    named = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    request = DescribeShareGroupOffsetsRequest(groups=[named(group_id=group, topics=None) for group in groups])
    for answer in connection.ask(request, broker_id).groups:
        yield _Offsets(
            group=answer.group_id,
            error_code=answer.error_code,
            partitions=tuple(
                (topic.topic_name, each.partition_index, each.start_offset, each.error_code)
                for topic in answer.topics
                for each in topic.partitions
            ),
        )


_KINDS = {
    "classic": _Kind(request=DescribeGroupsRequest, names="groups", members=classic, offsets=_fetched),
    "consumer": _Kind(request=ConsumerGroupDescribeRequest, names="group_ids", members=consumer, offsets=_fetched),
    "share": _Kind(
        request=ShareGroupDescribeRequest, names="group_ids", members=share, offsets=_share_offsets, shares=True
    ),
    "streams": _Kind(request=StreamsGroupDescribeRequest, names="group_ids", members=streams, offsets=_fetched),
}
