"""CreateTopics responses, decoded here from version 5 on, since they are most of the data that a run reads.

`CreateTopics` and kafka-python's own request are exchangeable: `created_topics` takes the response of either.

Nearly all of a topic's thirty configs equal those of the previous topic (KIP-525). kafka-python makes an object of
each; this module makes each distinct entry once and finds it again by its bytes. The layout is that of Kafka's
CreateTopicsResponse.json.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka.protocol.admin import CreateTopicsRequest, CreateTopicsResponse

from topicledger.kafka.entries import config_entry
from topicledger.model import ConfigEntry

CONFIGS_VERSION = 5
"""The first version with configs, and the first that this module decodes."""
LAST_VERSION = 7
_TOPIC_ID_VERSION = 7
_CONFIG_ERROR_TAG = 0
_ZERO_ID = bytes(16)
_KNOWN_ENTRIES = 100_000
"""Number of distinct entries to keep; beyond it, all are dropped."""

_INT16 = struct.Struct(">h").unpack_from
_INT32 = struct.Struct(">i").unpack_from
_COUNTS = struct.Struct(">ih").unpack_from


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """One topic of a response, with Kafka's field names."""

    name: str
    topic_id: uuid.UUID | None
    error_code: int
    error_message: str | None
    num_partitions: int
    replication_factor: int
    configs: tuple[ConfigEntry, ...] | None
    topic_config_error_code: int


@dataclass(frozen=True, slots=True)
class CreatedTopics:
    """A CreateTopics response."""

    throttle_time_ms: int
    topics: tuple[CreatedTopic, ...]


def created_topics(response: Any) -> CreatedTopics:
    """Return the CreatedTopics of a response that this module or kafka-python decoded.

    Before `CONFIGS_VERSION`, responses have no configs.
    """
    if isinstance(response, CreatedTopics):
        return response
    return CreatedTopics(response.throttle_time_ms, tuple(map(_by_kafka_python, response.topics or ())))


def _by_kafka_python(topic: Any) -> CreatedTopic:
    topic_id = getattr(topic, "topic_id", None)
    configs = getattr(topic, "configs", None)
    return CreatedTopic(
        name=topic.name,
        topic_id=topic_id if topic_id is not None and topic_id.int else None,
        error_code=topic.error_code,
        error_message=getattr(topic, "error_message", None),
        num_partitions=getattr(topic, "num_partitions", -1),
        replication_factor=getattr(topic, "replication_factor", -1),
        configs=None
        if configs is None
        else tuple(
            config_entry(each.name, each.value, each.read_only, each.config_source, each.is_sensitive)
            for each in configs
        ),
        topic_config_error_code=getattr(topic, "topic_config_error_code", None) or 0,
    )


class CreateTopics(CreateTopicsRequest, init=False):  # type: ignore[call-arg, misc]
    """kafka-python's request, with responses decoded as `CreatedTopics` from `CONFIGS_VERSION` on."""

    @property
    def header(self) -> Any:
        """The header that kafka-python keeps for a request until its response arrives."""
        header = super().header
        if header is None or header.request_api_version < CONFIGS_VERSION:
            return header
        return _Header(header)


class _Header:
    """A request header that selects this module's decoder for the response."""

    def __init__(self, header: Any) -> None:
        self._header = header

    def __getattr__(self, name: str) -> Any:
        return getattr(self._header, name)

    def get_response_class(self) -> _Response:
        return _Response(self._header.request_api_version)


@dataclass(frozen=True)
class _Response:
    version: int

    def parse_header(self, data: Any) -> Any:
        return CreateTopicsResponse.parse_header(data, version=self.version)

    def decode(self, data: Any) -> CreatedTopics:
        return decode(data.read(), self.version)


def decode(data: bytes, version: int) -> CreatedTopics:
    """Decode a response of versions 5 to 7, without its header. Raises ValueError if the bytes aren't one."""
    try:
        return _decode(data, version)
    except (IndexError, struct.error) as error:
        raise ValueError(f"a CreateTopics response of {len(data)} bytes ends too early: {error}") from error


def _decode(data: bytes, version: int) -> CreatedTopics:
    (throttle_time_ms,) = _INT32(data, 0)
    count, pos = _uvarint(data, 4)
    topics = []
    for _ in range(count - 1):
        topic, pos = _topic(data, pos, version)
        topics.append(topic)
    _tags(data, pos)
    return CreatedTopics(throttle_time_ms, tuple(topics))


def _topic(data: bytes, pos: int, version: int) -> tuple[CreatedTopic, int]:
    name, pos = _string(data, pos)
    if name is None:
        raise ValueError("a CreateTopics response has a topic without a name")
    topic_id = None
    if version >= _TOPIC_ID_VERSION:
        raw = data[pos : pos + 16]
        topic_id = None if raw == _ZERO_ID else uuid.UUID(bytes=raw)
        pos += 16
    (error_code,) = _INT16(data, pos)
    error_message, pos = _string(data, pos + 2)
    num_partitions, replication_factor = _COUNTS(data, pos)
    configs, pos = _configs(data, pos + 6)
    tags, pos = _tags(data, pos)
    config_error = tags.get(_CONFIG_ERROR_TAG)
    topic = CreatedTopic(
        name=name,
        topic_id=topic_id,
        error_code=error_code,
        error_message=error_message,
        num_partitions=num_partitions,
        replication_factor=replication_factor,
        configs=configs,
        topic_config_error_code=0 if config_error is None else _INT16(config_error, 0)[0],
    )
    return topic, pos


_entries: dict[bytes, ConfigEntry] = {}


def _configs(data: bytes, pos: int) -> tuple[tuple[ConfigEntry, ...] | None, int]:
    count, pos = _uvarint(data, pos)
    if count == 0:
        return None, pos
    entries = []
    for _ in range(count - 1):
        start = pos
        # The fields are name, value, read only, source, sensitive, no tags. Nearly all lengths take one byte.
        name = data[pos]
        value = data[pos + name]
        end = pos + name + (value or 1) + 4
        if name > 0x7F or value > 0x7F or data[end - 1] != 0:
            end = _end_of_entry(data, start)
        raw = data[start:end]
        entry = _entries.get(raw)
        if entry is None:
            entry = _remember(raw)
        entries.append(entry)
        pos = end
    return tuple(entries), pos


def _end_of_entry(data: bytes, pos: int) -> int:
    for _ in ("name", "value"):
        length, pos = _uvarint(data, pos)
        pos += max(length - 1, 0)
    _, pos = _tags(data, pos + 3)
    return pos


def _remember(raw: bytes) -> ConfigEntry:
    name, pos = _string(raw, 0)
    value, pos = _string(raw, pos)
    if name is None:
        raise ValueError("a CreateTopics response has a config without a name")
    read_only, source, sensitive = struct.unpack_from(">?b?", raw, pos)
    entry = config_entry(name, value, read_only, source, sensitive)
    if len(_entries) >= _KNOWN_ENTRIES:
        _entries.clear()
    if not sensitive:
        _entries[raw] = entry
    return entry


def _uvarint(data: bytes, pos: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7
        if shift > 28:
            raise ValueError("a CreateTopics response has a length of more than five bytes")


def _string(data: bytes, pos: int) -> tuple[str | None, int]:
    length, pos = _uvarint(data, pos)
    if length == 0:
        return None, pos
    end = pos + length - 1
    if end > len(data):
        raise ValueError("a CreateTopics response ends within a text")
    return data[pos:end].decode("utf-8"), end


def _tags(data: bytes, pos: int) -> tuple[Mapping[int, bytes], int]:
    count, pos = _uvarint(data, pos)
    if count == 0:
        return {}, pos
    tags = {}
    for _ in range(count):
        tag, pos = _uvarint(data, pos)
        size, pos = _uvarint(data, pos)
        tags[tag] = data[pos : pos + size]
        pos += size
    if pos > len(data):
        raise ValueError("a CreateTopics response ends within a tagged field")
    return tags, pos
