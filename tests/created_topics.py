"""What a CreateTopics response says, told in one way by kafka-python's decoder and by ours."""

from __future__ import annotations

from typing import Any

from kafka.protocol.admin import CreateTopicsResponse

from topicledger.kafka.created import CreatedTopics
from topicledger.kafka.entries import config_entry


def by_kafka_python(data: bytes, version: int) -> tuple[Any, ...]:
    """The same, with its configs as ours."""
    response = CreateTopicsResponse.decode(data, version=version)
    return response.throttle_time_ms, [
        (
            topic.name,
            topic.topic_id if version >= 7 else None,
            topic.error_code,
            topic.error_message,
            topic.num_partitions,
            topic.replication_factor,
            None
            if topic.configs is None
            else [
                config_entry(each.name, each.value, each.read_only, each.config_source, each.is_sensitive)
                for each in topic.configs
            ],
            topic.topic_config_error_code,
        )
        for topic in response.topics or ()
    ]


def by_us(response: CreatedTopics) -> tuple[Any, ...]:
    return response.throttle_time_ms, [
        (
            topic.name,
            topic.topic_id,
            topic.error_code,
            topic.error_message,
            topic.num_partitions,
            topic.replication_factor,
            None if topic.configs is None else list(topic.configs),
            topic.topic_config_error_code,
        )
        for topic in response.topics
    ]
