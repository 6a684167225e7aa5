"""What a cluster has, told by librdkafka straight from its brokers: another client than the job's, by another way."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.waiting import until
from topicledger.testing.embedded_kafka import EmbeddedKafka

_SECONDS = 30.0


@dataclass(frozen=True)
class Live:
    """A topic that the cluster has."""

    num_partitions: int
    replication_factor: int
    topic_id: str


class AnotherClient:
    """Asks a cluster's brokers, none of them through a proxy."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self._client = AdminClient({"bootstrap.servers": ",".join(kafka.bootstrap_servers)})

    def names(self, prefix: str) -> set[str]:
        """The topics that are listed under a prefix."""
        return {name for name in self._client.list_topics(timeout=_SECONDS).topics if name.startswith(prefix)}

    def topics(self, prefix: str) -> dict[str, Live]:
        """The topics under a prefix, with their ids as the job writes them."""
        names = sorted(self.names(prefix))
        if not names:
            return {}
        described = self._client.describe_topics(TopicCollection(names), request_timeout=_SECONDS)
        return {
            name: Live(len(topic.partitions), len(topic.partitions[0].replicas), _as_uuid(topic.topic_id))
            for name, topic in ((name, future.result(_SECONDS)) for name, future in described.items())
        }

    def config(self, name: str, topics: set[str]) -> dict[str, str]:
        """The value that each topic has for a config."""
        asked = self._client.describe_configs([ConfigResource(ResourceType.TOPIC, topic) for topic in topics])
        return {resource.name: future.result(_SECONDS)[name].value for resource, future in asked.items()}

    def await_names(self, prefix: str, expected: set[str], seconds: float = _SECONDS) -> None:
        """Wait until exactly these are listed: acknowledged is not listed yet (C21)."""

        def as_expected() -> bool:
            return self.names(prefix) == expected

        until(as_expected, seconds=seconds)

    def await_topics(self, prefix: str, expected: Mapping[str, Live]) -> None:
        """Wait until exactly these are listed, then compare all of what they are."""
        self.await_names(prefix, set(expected))
        assert self.topics(prefix) == dict(expected)


def _as_uuid(topic_id: object) -> str:
    text = str(topic_id)
    return str(uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))))
