"""Requests that move replicas and leaders, and what metadata says of replicas meanwhile; each answer is by partition.

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
    RequestLost,
    error_name,
)
from topicledger.model import TopicResult

ELECTION_NOT_NEEDED = 84
ELECT_PREFERRED = 1
"""The first version of ElectLeaders that has an election type; version 0 is of Kafka 2.2."""
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
    """One partition, as metadata shows it."""

    replicas: Replicas
    isr: frozenset[int]
    leader: int
    """-1 if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic's partitions, as metadata shows them."""

    topic_id: str | None = None
    permitted: bool = True
    partitions: Mapping[int, PartitionState] = field(default_factory=dict)


def topic_states(connection: Connection, topics: Sequence[str]) -> dict[str, TopicState]:
    """By topic, those that brokers list, or that may not be described."""
    found: dict[str, TopicState] = {}
    for start in range(0, len(topics), _METADATA_BATCH):
        for each in connection.metadata(topics[start : start + _METADATA_BATCH]).topics:
            topic_id = getattr(each, "topic_id", None)
            if each.error_code == TOPIC_AUTHORIZATION_FAILED:
                found[each.name] = TopicState(permitted=False)
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
    """Every reassignment that is under way."""
    return ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=None)


def listed(connection: Connection, response: Any) -> dict[Partition, Replicas] | None:
    """Return the target by partition that is moved; None if this principal may not list them. Raises RequestLost."""
    if response.error_code == CLUSTER_AUTHORIZATION_FAILED:
        return None
    if response.error_code != NONE:
        raise RequestLost(
            f"cluster {connection.name}: reassignments can't be listed: {error_name(response.error_code)}"
        )
    return {
        (topic.name, each.partition_index): tuple(b for b in each.replicas if b not in set(each.removing_replicas))
        for topic in response.topics
        for each in topic.partitions
    }


def alter_request(targets: Mapping[Partition, Replicas | None], timeout_ms: int) -> Any:
    """Moves each partition to the brokers named; None cancels what is under way for it (R2, R3)."""
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
    """By partition, what an AlterPartitionReassignments response says; an error of the whole counts for each."""
    found = {
        (topic.name, each.partition_index): _result(each.error_code, each.error_message)
        for topic in response.responses
        for each in topic.partitions
    }
    return _of_all(response, asked, found)


def elect_request(partitions: Iterable[Partition], timeout_ms: int) -> Any:
    """Has the first replica of each partition lead it."""
    return ElectLeadersRequest(
        election_type=_PREFERRED,
        topic_partitions=[
            (name, [number for number, _ in numbers])
            for name, numbers in _by_topic((each, None) for each in partitions)
        ],
        timeout_ms=timeout_ms,
    )


def elected(response: Any, asked: Collection[Partition]) -> dict[Partition, TopicResult]:
    """By partition, what an ElectLeaders response says (R7)."""
    found = {
        (each.topic, part.partition_id): _result(part.error_code, part.error_message)
        for each in response.replica_election_results
        for part in each.partition_result
    }
    return _of_all(response, asked, found)


def _of_all(
    response: Any, asked: Collection[Partition], found: Mapping[Partition, TopicResult]
) -> dict[Partition, TopicResult]:
    if response.error_code != NONE:
        return dict.fromkeys(asked, _result(response.error_code, getattr(response, "error_message", None)))
    return dict(found)


def _result(error_code: int, message: str | None) -> TopicResult:
    # The broker's own message of 31 dumps what is inside of it.
    words = NO_ALTER if error_code == CLUSTER_AUTHORIZATION_FAILED else message
    return TopicResult(error_code=error_code, error_message=words)


def _by_topic(partitions: Iterable[tuple[Partition, Any]]) -> list[tuple[str, list[tuple[int, Any]]]]:
    found: dict[str, list[tuple[int, Any]]] = {}
    for (name, number), value in partitions:
        found.setdefault(name, []).append((number, value))
    return list(found.items())
