"""First and end offsets of topics, the time of their last record, and their producers."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kafka.protocol.admin import DescribeProducersRequest
from kafka.protocol.consumer import ListOffsetsRequest

from topicledger.kafka.connection import (
    FENCED_LEADER_EPOCH,
    KAFKA_STORAGE_ERROR,
    LEADER_NOT_AVAILABLE,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_NOT_AVAILABLE,
    REQUEST_TIMED_OUT,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_FOR_MESSAGE_FORMAT,
    UNSUPPORTED_VERSION,
    Connection,
    RequestLost,
    error_name,
)
from topicledger.model import LastRecord

_LATEST, _EARLIEST, _MAX_TIMESTAMP = -1, -2, -3
_MAX_TIMESTAMP_VERSION = 7
_TOPICS_BATCH = 1_000
_PARTITIONS_BATCH = 1_000
_PAUSE_SECONDS = 0.2
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_IN_MOTION = frozenset(
    {
        # A broker that has just become the leader, or has just ceased to be, answers this, too.
        UNKNOWN_TOPIC_OR_PARTITION,
        LEADER_NOT_AVAILABLE,
        NOT_LEADER_OR_FOLLOWER,
        REQUEST_TIMED_OUT,
        KAFKA_STORAGE_ERROR,
        FENCED_LEADER_EPOCH,
        UNKNOWN_LEADER_EPOCH,
        OFFSET_NOT_AVAILABLE,
    }
)
_OLD = frozenset({UNSUPPORTED_VERSION, UNSUPPORTED_FOR_MESSAGE_FORMAT})
_TOO_OLD = (
    "its brokers or its records are too old to return the time (Kafka 3.0 and later do, for records of 0.10 and later)"
)

_Partition = tuple[str, int]


def last_records(connection: Connection, topics: Collection[str]) -> list[LastRecord]:
    """Return one LastRecord per topic, ordered by name.

    If the last record is unknown, `error` gives the reason: the topic doesn't exist, a partition had no leader for
    `operation_timeout`, the principal may not describe the topic, or its brokers or records are too old to return
    timestamps (before Kafka 3.0, or records from before 0.10). Raises RequestLost if a broker gave no answer.
    """
    deadline: float | None = None
    found: dict[str, LastRecord] = {}
    waiting = sorted(set(topics))
    while waiting:
        later: dict[str, str] = {}
        for start in range(0, len(waiting), _TOPICS_BATCH):
            for record in _read_records(connection, waiting[start : start + _TOPICS_BATCH], later):
                found[record.topic] = record
        # Asking about all topics once may take longer than the time for those whose leader is changing.
        deadline = deadline or time.monotonic() + connection.operation_timeout
        if later and time.monotonic() >= deadline:
            found |= {
                topic: _unknown(connection, topic, f"{why}; it was asked for {connection.operation_timeout:g} s")
                for topic, why in later.items()
            }
            break
        waiting = sorted(later)
        if waiting:
            time.sleep(_PAUSE_SECONDS)
    return [found[topic] for topic in sorted(found)]


def _unknown(connection: Connection, topic: str, why: str) -> LastRecord:
    return LastRecord(topic=topic, error=f"cluster {connection.name}: the last record of {topic} is unknown: {why}")


def _read_records(connection: Connection, topics: Sequence[str], later: dict[str, str]) -> Iterator[LastRecord]:
    """Ask about each topic once; put topics that are changing into `later`, with the reason."""
    leaders: dict[_Partition, int] = {}
    later |= dict.fromkeys(topics, "no broker gave an answer about it")
    for topic in connection.metadata(topics).topics:
        later.pop(topic.name, None)
        leaderless = sorted(each.partition_index for each in topic.partitions if each.leader_id < 0)
        if topic.error_code == TOPIC_AUTHORIZATION_FAILED:
            yield _unknown(
                connection, topic.name, forbidden(connection, topic.error_code, f"Describe on topic {topic.name}")
            )
        elif topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
            yield _unknown(connection, topic.name, "there is no such topic")
        elif topic.error_code not in (NONE, LEADER_NOT_AVAILABLE):
            yield _unknown(connection, topic.name, error_name(topic.error_code))
        elif leaderless or not topic.partitions:
            later[topic.name] = f"partitions {leaderless} have no leader"
        else:
            leaders |= {(topic.name, each.partition_index): each.leader_id for each in topic.partitions}

    for name, found in read_offsets(connection, leaders).items():
        why = ", ".join(sorted(set(found.unknown.values())))
        if found.moving:
            later[name] = why
        elif found.unknown:
            yield _unknown(connection, name, why)
        else:
            yield LastRecord(topic=name, end_offset=found.end_offset, last_record_at=found.last_record_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOffsets:
    """The offsets of one topic's partitions; what is unknown is None, with the reason in `unknown`."""

    ends: Mapping[int, int]
    """End offsets by partition, if they are known."""
    start_offset: int | None
    """Sum of the first offsets."""
    end_offset: int | None
    """Sum of the end offsets."""
    last_record_at: datetime | None
    """As in LastRecord; also None if no record is retained."""
    unknown: Mapping[str, str]
    """Reasons by the names of these fields."""
    moving: bool
    """Whether the answers may be complete a moment later: a partition's leader is changing."""


def read_offsets(
    connection: Connection, leaders: Mapping[_Partition, int], lost: dict[int, str] | None = None
) -> dict[str, TopicOffsets]:
    """Return the offsets of topics, whose partitions' `leaders` are asked once.

    Raises RequestLost if a broker gave no answer. With `lost` it doesn't: the broker's id and the reason are added, and
    the brokers that are there already aren't asked.
    """
    # The time is read last, so that it includes a record written in between.
    earliest = _offsets(connection, leaders, _EARLIEST, lost)
    latest = _offsets(connection, leaders, _LATEST, lost)
    if connection.supports(ListOffsetsRequest, _MAX_TIMESTAMP_VERSION):
        newest = _offsets(connection, leaders, _MAX_TIMESTAMP, lost)
    else:
        newest = dict.fromkeys(leaders, _Answer(error_code=UNSUPPORTED_VERSION))
    partitions: dict[str, list[_Partition]] = {}
    for partition in leaders:
        partitions.setdefault(partition[0], []).append(partition)
    return {topic: _topic_offsets(own, earliest, latest, newest) for topic, own in partitions.items()}


def _topic_offsets(
    own: Sequence[_Partition],
    earliest: Mapping[_Partition, _Answer],
    latest: Mapping[_Partition, _Answer],
    newest: Mapping[_Partition, _Answer],
) -> TopicOffsets:
    # Records that DeleteRecords removed stay in their segment for a while, and so do their timestamps.
    kept = [each for each in own if earliest[each].offset < latest[each].offset]
    starts, ends = [earliest[each] for each in own], [latest[each] for each in own]
    times = [newest[each] for each in kept]
    asked = {"start_offset": starts, "end_offset": ends, "last_record_at": [*starts, *ends, *times]}
    unknown = {name: why for name, answers in asked.items() if (why := _why_unknown(answers)) is not None}
    codes = {answer.error_code for answers in asked.values() for answer in answers} - {NONE}
    if any(each.error_code == NONE and each.lost is None and each.timestamp < 0 for each in times):
        unknown.setdefault("last_record_at", "a partition has records without timestamps")
    timestamp = max((each.timestamp for each in times), default=-1)
    last_record_at = None
    if "last_record_at" not in unknown and timestamp >= 0:
        try:
            last_record_at = _EPOCH + timedelta(milliseconds=timestamp)
        except OverflowError:
            unknown["last_record_at"] = f"its largest timestamp, {timestamp} ms, is not a date"
    return TopicOffsets(
        ends={partition: latest[topic, partition].offset for topic, partition in own if latest[topic, partition].known},
        start_offset=None if "start_offset" in unknown else sum(each.offset for each in starts),
        end_offset=None if "end_offset" in unknown else sum(each.offset for each in ends),
        last_record_at=last_record_at,
        unknown=unknown,
        moving=bool(codes) and codes <= _IN_MOTION,
    )


def _why_unknown(answers: Sequence[_Answer]) -> str | None:
    """Return why some of a topic's answers are missing; None if none is."""
    lost = {each.lost for each in answers if each.lost is not None}
    codes = {each.error_code for each in answers} - {NONE}
    if not codes or lost:
        return min(lost, default=None)
    return _TOO_OLD if codes <= _OLD else ", ".join(sorted(error_name(code) for code in codes - _IN_MOTION or codes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    error_code: int = NONE
    offset: int = -1
    timestamp: int = -1
    lost: str | None = None
    """Why the partition's leader gave no answer."""

    @property
    def known(self) -> bool:
        return self.error_code == NONE


def _offsets(
    connection: Connection, leaders: Mapping[_Partition, int], timestamp: int, lost: dict[int, str] | None
) -> dict[_Partition, _Answer]:
    """Return each partition leader's answer for one of ListOffsets' special timestamps."""
    found = dict.fromkeys(leaders, _Answer(error_code=UNKNOWN_SERVER_ERROR))
    for leader, partitions in _by_leader(leaders):
        answer = _asked(connection, _request(connection, partitions, timestamp), leader, lost)
        if answer is None:
            missing = _Answer(error_code=REQUEST_TIMED_OUT, lost=(lost or {})[leader])
            found |= dict.fromkeys(partitions, missing)
            continue
        for topic in answer.topics:
            for each in topic.partitions:
                found[topic.name, each.partition_index] = _Answer(
                    error_code=each.error_code, offset=each.offset, timestamp=each.timestamp
                )
    return found


def _by_leader(leaders: Mapping[_Partition, int]) -> Iterator[tuple[int, Sequence[_Partition]]]:
    """Yield partitions that one request can ask about, with their leader."""
    by_leader: dict[int, list[_Partition]] = {}
    for partition, leader in leaders.items():
        by_leader.setdefault(leader, []).append(partition)
    for leader, partitions in by_leader.items():
        for start in range(0, len(partitions), _PARTITIONS_BATCH):
            yield leader, partitions[start : start + _PARTITIONS_BATCH]


def _asked(connection: Connection, request: Any, leader: int, lost: dict[int, str] | None) -> Any:
    """Return a broker's answer; None if it is in `lost`, or gets there."""
    if lost is None:
        return connection.ask(request, leader)
    if leader not in lost:
        try:
            return connection.ask(request, leader)
        except RequestLost as error:
            lost[leader] = f"broker {leader} gave no answer: {error}"
    return None


def producers(connection: Connection, leaders: Mapping[_Partition, int], lost: dict[int, str]) -> dict[str, int | str]:
    """Return the number of idempotent producers that the partitions of each topic remember, or why it is unknown.

    Producers without a producer id aren't seen (KIP-664). `lost` is as in `read_offsets`.
    """
    topics = {topic for topic, _ in leaders}
    if not connection.supports(DescribeProducersRequest):
        return dict.fromkeys(topics, "the brokers are older than Kafka 2.8 and don't report producers")
    found: dict[str, set[int]] = {topic: set() for topic in topics}
    answered: set[_Partition] = set()
    unknown: dict[str, str] = {}
    asked = DescribeProducersRequest.TopicRequest
    for leader, partitions in _by_leader(leaders):
        named = [asked(name=topic, partition_indexes=own) for topic, own in _by_topic(partitions).items()]
        answer = _asked(connection, DescribeProducersRequest(topics=named), leader, lost)
        if answer is None:
            unknown |= dict.fromkeys((topic for topic, _ in partitions), lost[leader])
            continue
        for topic in answer.topics:
            for each in topic.partitions:
                answered.add((topic.name, each.partition_index))
                if each.error_code == TOPIC_AUTHORIZATION_FAILED:
                    unknown[topic.name] = forbidden(connection, each.error_code, f"Read on topic {topic.name}")
                elif each.error_code != NONE:
                    unknown[topic.name] = error_name(each.error_code)
                found[topic.name].update(producer.producer_id for producer in each.active_producers)
    for topic, _ in leaders.keys() - answered:
        unknown.setdefault(topic, "no broker gave an answer about it")
    return {topic: unknown.get(topic, len(ids)) for topic, ids in found.items()}


def forbidden(connection: Connection, error_code: int, permission: str) -> str:
    """Return why something is unknown that needs `permission`."""
    return f"{error_name(error_code)}: {connection.needs(permission)}"


def _by_topic(partitions: Sequence[_Partition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found


def _request(connection: Connection, partitions: Sequence[_Partition], timestamp: int) -> Any:
    asked = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[
            asked(
                name=topic,
                partitions=[asked.ListOffsetsPartition(partition_index=each, timestamp=timestamp) for each in own],
            )
            for topic, own in _by_topic(partitions).items()
        ],
        timeout_ms=round(connection.operation_timeout * 1000),
    )
