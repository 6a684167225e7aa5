"""Requests that move replicas and leaders, and the state of replicas in metadata; all answers are by partition.

AlterPartitionReassignments and ListPartitionReassignments (KIP-455), ElectLeaders (KIP-460).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)

from topicledger.kafka.connection import (
    CLUSTER_AUTHORIZATION_FAILED,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    Connection,
    ErrorAnswered,
    error_name,
    result_of,
    unknown_topic,
)
from topicledger.model import TopicResult

ELECTION_NOT_NEEDED = 84
ELECT_PREFERRED = 1
"""The first version of ElectLeaders that has an election type; version 0 is Kafka 2.2's."""
NO_ALTER = "this principal may not move replicas or leaders: grant it Alter on the cluster"
_ZERO_ID = uuid.UUID(int=0)
_METADATA_BATCH = 10_000
_PREFERRED = 0

Partition: TypeAlias = tuple[str, int]
"""Topic and partition."""
Replicas: TypeAlias = tuple[int, ...]
"""Broker ids, the preferred leader first."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition, as metadata reports it."""

    replicas: Replicas
    isr: frozenset[int]
    leader: int
    """The leader's broker id; -1 if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic's partitions, as metadata reports them."""

    topic_id: str | None = None
    permitted: bool = True
    unknown: str | None = None
    """As in `TopicInfo`."""
    partitions: Mapping[int, PartitionState] = field(default_factory=dict)


def topic_states(connection: Connection, topics: Sequence[str]) -> dict[str, TopicState]:
    """Return the states of the named topics that exist, and of those that brokers don't describe."""
    found: dict[str, TopicState] = {}
    for start in range(0, len(topics), _METADATA_BATCH):
        for each in connection.metadata(topics[start : start + _METADATA_BATCH]).topics:
            topic_id = getattr(each, "topic_id", None)
            unknown = unknown_topic(each)
            if unknown is not None or each.error_code == TOPIC_AUTHORIZATION_FAILED:
                found[each.name] = TopicState(permitted=False, unknown=unknown)
            elif each.error_code == NONE or each.partitions:
                found[each.name] = TopicState(
                    topic_id=str(topic_id) if topic_id not in (None, _ZERO_ID) else None,
                    partitions={
                        part.partition_index: PartitionState(
                            tuple(part.replica_nodes), frozenset(part.isr_nodes), part.leader_id
                        )
                        for part in each.partitions
                    },
                )
    return found


def list_request(timeout_ms: int) -> Any:
    """Build a request that lists every reassignment under way."""
    return ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=None)


def listed(connection: Connection, response: Any) -> dict[Partition, Replicas] | None:
    """Return the target replicas of partitions that are being moved; None if it isn't permitted.

    Raises ErrorAnswered.
    """
    if response.error_code == CLUSTER_AUTHORIZATION_FAILED:
        return None
    if response.error_code != NONE:
        raise ErrorAnswered(
            f"cluster {connection.name}: brokers answer {error_name(response.error_code)} when asked for reassignments"
        )
    return {
        (topic.name, each.partition_index): tuple(b for b in each.replicas if b not in set(each.removing_replicas))
        for topic in response.topics
        for each in topic.partitions
    }


def alter_request(targets: Mapping[Partition, Replicas | None], timeout_ms: int) -> Any:
    """Build a request that moves each partition to the named brokers, or cancels its move if None (R2, R3)."""
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    return AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms,
        topics=[
            topic(
                name=name,
                partitions=[
                    topic.ReassignablePartition(
                        partition_index=number, replicas=None if brokers is None else list(brokers)
                    )
                    for number, brokers in partitions
                ],
            )
            for name, partitions in _by_topic(targets.items())
        ],
    )


def altered(response: Any, asked: Collection[Partition]) -> dict[Partition, TopicResult]:
    """Return an AlterPartitionReassignments response's answers by partition; a top-level error counts for each."""
    found = {
        (topic.name, each.partition_index): result_of(each.error_code, each.error_message, NO_ALTER)
        for topic in response.responses
        for each in topic.partitions
    }
    return _of_all(response, asked, found)


def elect_request(partitions: Iterable[Partition], timeout_ms: int) -> Any:
    """Build a request that elects the first replica of each partition."""
    return ElectLeadersRequest(
        election_type=_PREFERRED,
        topic_partitions=[
            (name, [number for number, _ in numbers])
            for name, numbers in _by_topic((each, None) for each in partitions)
        ],
        timeout_ms=timeout_ms,
    )


def elected(response: Any, asked: Collection[Partition]) -> dict[Partition, TopicResult]:
    """Return an ElectLeaders response's answers by partition (R7)."""
    found = {
        (each.topic, part.partition_id): result_of(part.error_code, part.error_message, NO_ALTER)
        for each in response.replica_election_results
        for part in each.partition_result
    }
    return _of_all(response, asked, found)


def _of_all(
    response: Any, asked: Collection[Partition], found: Mapping[Partition, TopicResult]
) -> dict[Partition, TopicResult]:
    if response.error_code != NONE:
        return dict.fromkeys(asked, result_of(response.error_code, getattr(response, "error_message", None), NO_ALTER))
    return dict(found)


def _by_topic(partitions: Iterable[tuple[Partition, Any]]) -> list[tuple[str, list[tuple[int, Any]]]]:
    found: dict[str, list[tuple[int, Any]]] = {}
    for (name, number), value in partitions:
        found.setdefault(name, []).append((number, value))
    return list(found.items())
