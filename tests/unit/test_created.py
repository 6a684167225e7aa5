"""CreateTopics responses as decoded here, beside what kafka-python makes of the same bytes."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka.protocol.admin import CreateTopicsResponse

from topicledger.kafka import created
from topicledger.kafka.created import CONFIGS_VERSION, LAST_VERSION, CreatedTopics, created_topics, decode

TOPIC = CreateTopicsResponse.CreatableTopicResult
CONFIG = TOPIC.CreatableTopicConfigs

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
texts = st.text(max_size=8) | st.sampled_from(["x" * length for length in (126, 127, 128, 129, 300, 20_000)])
configs = st.builds(
    CONFIG,
    name=texts,
    value=st.none() | texts,
    read_only=st.booleans(),
    config_source=st.integers(-1, 127),
    is_sensitive=st.booleans(),
)
topics = st.builds(
    TOPIC,
    name=texts,
    topic_id=st.none() | st.uuids(),
    error_code=int16,
    error_message=st.none() | texts,
    topic_config_error_code=st.just(0) | int16,
    num_partitions=int32,
    replication_factor=int16,
    configs=st.none() | st.lists(configs, max_size=3),
)
many = TOPIC(
    name="many",
    error_code=0,
    num_partitions=1,
    replication_factor=1,
    configs=[CONFIG(name=str(n), value=None, read_only=True, config_source=5, is_sensitive=False) for n in range(200)],
)
responses = st.builds(CreateTopicsResponse, throttle_time_ms=int32, topics=st.lists(topics, max_size=4))
versions = st.integers(CONFIGS_VERSION, LAST_VERSION)


def by_kafka_python(data: bytes, version: int) -> CreatedTopics:
    return created_topics(CreateTopicsResponse.decode(data, version=version))


@settings(deadline=None)
@example(CreateTopicsResponse(throttle_time_ms=1, topics=[many, many]), 5)
@given(responses, versions)
def test_a_response_says_what_kafka_python_reads_in_it(response: Any, version: int) -> None:
    data = bytes(response.encode(version=version))
    assert decode(data, version) == by_kafka_python(data, version)


@settings(deadline=None, max_examples=200)
@given(responses, versions, st.data())
def test_bytes_that_went_wrong_are_refused_or_read_as_kafka_python_does(
    response: Any, version: int, draw: st.DataObject
) -> None:
    data = bytearray(response.encode(version=version))
    for _ in range(draw.draw(st.integers(1, 3))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    cut = bytes(data[: draw.draw(st.integers(0, len(data)) | st.just(len(data)))])
    try:
        ours = decode(cut, version)
    except ValueError:
        return
    assert ours == by_kafka_python(cut, version)


@pytest.mark.parametrize("version", range(CONFIGS_VERSION, LAST_VERSION + 1))
def test_a_response_that_ends_too_early_is_refused_wherever_that_is(version: int) -> None:
    config = CONFIG(name="cleanup.policy", value="compact", read_only=False, config_source=1, is_sensitive=False)
    topic = TOPIC(name="topic", topic_id=uuid.UUID(int=1), error_code=0, error_message="a", topic_config_error_code=29)
    topic.num_partitions, topic.replication_factor, topic.configs = 1, 1, [config, config]
    data = bytes(CreateTopicsResponse(throttle_time_ms=0, topics=[topic]).encode(version=version))
    decode(data, version)
    for end in range(len(data)):
        with pytest.raises(ValueError, match=r"CreateTopics response|utf-8|16-char"):
            decode(data[:end], version)


def test_entries_are_made_once_and_sensitive_ones_are_not_kept() -> None:
    def answer(name: str) -> bytes:
        entries = [
            CONFIG(name="retention.ms", value="1", read_only=False, config_source=1, is_sensitive=False),
            CONFIG(name="password", value="hunter2", read_only=False, config_source=1, is_sensitive=True),
        ]
        topic = TOPIC(name=name, error_code=0, num_partitions=1, replication_factor=1, configs=entries)
        return bytes(CreateTopicsResponse(throttle_time_ms=0, topics=[topic]).encode(version=7))

    (one,), (other,) = (decode(answer(name), 7).topics for name in ("one", "other"))
    assert one.configs is not None
    assert other.configs is not None
    assert one.configs[0] is other.configs[0]
    assert [entry.value for entry in one.configs] == ["1", None]
    assert not any(b"hunter2" in raw for raw in created._entries)
