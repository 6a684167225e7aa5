"""Topics in requests and responses: fields of CreateTopics, and topics in metadata."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from kafka.admin import ACLOperation
from kafka.protocol.admin import CreateTopicsRequest

from topicledger.kafka.connection import NONE, TOPIC_AUTHORIZATION_FAILED, unknown_topic
from topicledger.kafka.created import CreatedTopic
from topicledger.kafka.entries import config_entry
from topicledger.model import INTERNAL_TOPICS, ConfigEntry, Target, TopicInfo, TopicResult

_ZERO_ID = uuid.UUID(int=0)
_OPERATIONS_UNKNOWN = 31
"""The bit that is set when the broker doesn't return what a principal may do (the field's default, -2^31)."""
_OPERATION_BITS = frozenset(int(operation) for operation in ACLOperation) - {0, 1, 2}


def creatable(target: Target) -> Any:
    topic = CreateTopicsRequest.CreatableTopic
    # The plan of a topic with a placement has both counts and assignments; assignments imply the counts (C1).
    counted = not target.assignments
    return topic(
        name=target.topic,
        num_partitions=target.num_partitions if counted and target.num_partitions is not None else -1,
        replication_factor=target.replication_factor if counted and target.replication_factor is not None else -1,
        assignments=[
            topic.CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in sorted((target.assignments or {}).items())
        ],
        configs=[topic.CreatableTopicConfig(name=name, value=value) for name, value in target.configs.items()],
    )


def create_result(topic: CreatedTopic, returns_configs: bool, validate_only: bool) -> TopicResult:
    if not returns_configs or topic.error_code != NONE:
        return TopicResult(error_code=topic.error_code, error_message=topic.error_message)
    return TopicResult(
        error_code=topic.error_code,
        error_message=topic.error_message,
        topic_id=None if validate_only or topic.topic_id is None else str(topic.topic_id),
        num_partitions=topic.num_partitions if topic.num_partitions >= 0 else None,
        replication_factor=topic.replication_factor if topic.replication_factor >= 0 else None,
        configs=topic.configs or None,
        topic_config_error_code=topic.topic_config_error_code,
    )


def infos(topics: Sequence[Any]) -> Iterator[TopicInfo]:
    for topic in topics:
        unknown = unknown_topic(topic)
        if unknown is not None or topic.error_code == TOPIC_AUTHORIZATION_FAILED:
            yield TopicInfo(topic=topic.name, permitted=False, unknown=unknown)
        elif topic.error_code == NONE or topic.partitions:
            topic_id = getattr(topic, "topic_id", None)
            yield TopicInfo(
                topic=topic.name,
                topic_id=str(topic_id) if topic_id not in (None, _ZERO_ID) else None,
                internal=bool(topic.is_internal) or topic.name in INTERNAL_TOPICS,
                assignments={
                    partition.partition_index: tuple(partition.replica_nodes)
                    for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
                },
                other_leaders={
                    partition.partition_index: partition.leader_id
                    for partition in topic.partitions
                    if partition.leader_id != next(iter(partition.replica_nodes), None)
                },
                authorized_operations=operations(frozenset(getattr(topic, "authorized_operations", None) or ())),
            )


@lru_cache(maxsize=1024)
def operations(bits: frozenset[int]) -> tuple[str, ...] | None:
    """Return the names of the operations that a broker reports; None if it reports none."""
    if not bits or _OPERATIONS_UNKNOWN in bits:
        return None
    return tuple(sorted(ACLOperation(bit).name for bit in bits if bit in _OPERATION_BITS))


def entries(configs: Sequence[Any]) -> tuple[ConfigEntry, ...]:
    return tuple(
        config_entry(
            config.name, config.value, config.read_only, getattr(config, "config_source", -1), config.is_sensitive
        )
        for config in configs
    )
