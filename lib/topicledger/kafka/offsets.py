"""End offsets of topics, and the time of their last record."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

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
    deadline = time.monotonic() + connection.operation_timeout
    found: dict[str, LastRecord] = {}
    waiting = sorted(set(topics))
    while waiting:
        later: dict[str, str] = {}
        for start in range(0, len(waiting), _TOPICS_BATCH):
            for record in _read_records(connection, waiting[start : start + _TOPICS_BATCH], later):
                found[record.topic] = record
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
            needed = connection.needs(f"Describe on topic {topic.name}")
            yield _unknown(connection, topic.name, f"{error_name(topic.error_code)}: {needed}")
        elif topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
            yield _unknown(connection, topic.name, "there is no such topic")
        elif topic.error_code not in (NONE, LEADER_NOT_AVAILABLE):
            yield _unknown(connection, topic.name, error_name(topic.error_code))
        elif leaderless or not topic.partitions:
            later[topic.name] = f"partitions {leaderless} have no leader"
        else:
            leaders |= {(topic.name, each.partition_index): each.leader_id for each in topic.partitions}

    # The time is read last, so that it includes a record written in between.
    earliest = _offsets(connection, leaders, _EARLIEST)
    latest = _offsets(connection, leaders, _LATEST)
    if connection.version(ListOffsetsRequest) >= _MAX_TIMESTAMP_VERSION:
        newest = _offsets(connection, leaders, _MAX_TIMESTAMP)
    else:
        newest = dict.fromkeys(leaders, _Answer(error_code=UNSUPPORTED_VERSION))

    partitions: dict[str, list[_Partition]] = {}
    for partition in leaders:
        partitions.setdefault(partition[0], []).append(partition)
    for topic, own in partitions.items():
        kept = [each for each in own if earliest[each].offset < latest[each].offset]
        # Records that DeleteRecords removed stay in their segment for a while, and so do their timestamps.
        answers = [earliest[each] for each in own] + [latest[each] for each in own] + [newest[each] for each in kept]
        codes = {answer.error_code for answer in answers} - {NONE}
        names = ", ".join(sorted(error_name(code) for code in codes - _IN_MOTION or codes))
        if codes and codes <= _IN_MOTION:
            later[topic] = names
        elif codes:
            yield _unknown(connection, topic, _TOO_OLD if codes <= _OLD else names)
        else:
            end_offset = sum(latest[each].offset for each in own)
            yield _record(connection, topic, end_offset, max((newest[each].timestamp for each in kept), default=-1))


def _record(connection: Connection, topic: str, end_offset: int, timestamp: int) -> LastRecord:
    try:
        last_record_at = _EPOCH + timedelta(milliseconds=timestamp) if timestamp >= 0 else None
    except OverflowError:
        return _unknown(connection, topic, f"its largest timestamp, {timestamp} ms, is not a date")
    return LastRecord(topic=topic, end_offset=end_offset, last_record_at=last_record_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    error_code: int = NONE
    offset: int = -1
    timestamp: int = -1


def _offsets(connection: Connection, leaders: Mapping[_Partition, int], timestamp: int) -> dict[_Partition, _Answer]:
    """Return each partition leader's answer for one of ListOffsets' special timestamps."""
    by_leader: dict[int, list[_Partition]] = {}
    for partition, leader in leaders.items():
        by_leader.setdefault(leader, []).append(partition)
    found = dict.fromkeys(leaders, _Answer(error_code=UNKNOWN_SERVER_ERROR))
    for leader, partitions in by_leader.items():
        for start in range(0, len(partitions), _PARTITIONS_BATCH):
            request = _request(connection, partitions[start : start + _PARTITIONS_BATCH], timestamp)
            for topic in connection.ask(request, leader).topics:
                for each in topic.partitions:
                    found[topic.name, each.partition_index] = _Answer(
                        error_code=each.error_code, offset=each.offset, timestamp=each.timestamp
                    )
    return found


def _request(connection: Connection, partitions: Sequence[_Partition], timestamp: int) -> Any:
    asked = ListOffsetsRequest.ListOffsetsTopic
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[
            asked(
                name=topic,
                partitions=[asked.ListOffsetsPartition(partition_index=each, timestamp=timestamp) for each in own],
            )
            for topic, own in by_topic.items()
        ],
        timeout_ms=round(connection.operation_timeout * 1000),
    )
