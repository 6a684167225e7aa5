"""A cluster's state as reported to librdkafka directly by its brokers, independently of the job's client."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import TopicCollection
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from tests.waiting import until
from topicledger.resources.acls.acl import Acl
from topicledger_testing.embedded_kafka import EmbeddedKafka

_SECONDS = 30.0


@dataclass(frozen=True)
class Live:
    """A live topic of the cluster."""

    num_partitions: int
    replication_factor: int
    topic_id: str


def options_of(kafka: EmbeddedKafka, user: str | None = None) -> dict[str, str]:
    """Return librdkafka's options for a client of this cluster; with SASL as `user`, else as the super user."""
    options = kafka.client_options(user)
    words = {
        "security_protocol": "security.protocol",
        "sasl_mechanism": "sasl.mechanism",
        "sasl_plain_username": "sasl.username",
        "sasl_plain_password": "sasl.password",
    }
    own = {words[name]: value for name, value in options.items() if name in words}
    return {"bootstrap.servers": ",".join(kafka.bootstrap_servers), **own}


class AnotherClient:
    """Asks a cluster's brokers directly, without a proxy."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self._client = AdminClient(options_of(kafka))

    def names(self, prefix: str) -> set[str]:
        """Return the names of the listed topics with a prefix."""
        return {name for name in self._client.list_topics(timeout=_SECONDS).topics if name.startswith(prefix)}

    def topics(self, prefix: str) -> dict[str, Live]:
        """Return the topics with a prefix, with ids in the job's form."""
        names = sorted(self.names(prefix))
        if not names:
            return {}
        described = self._client.describe_topics(TopicCollection(names), request_timeout=_SECONDS)
        return {
            name: Live(len(topic.partitions), len(topic.partitions[0].replicas), _as_uuid(topic.topic_id))
            for name, topic in ((name, future.result(_SECONDS)) for name, future in described.items())
        }

    def config(self, name: str, topics: set[str]) -> dict[str, str]:
        """Return each topic's value of a config."""
        asked = self._client.describe_configs([ConfigResource(ResourceType.TOPIC, topic) for topic in topics])
        return {resource.name: future.result(_SECONDS)[name].value for resource, future in asked.items()}

    def acls(self, principal: str | None = None) -> set[Acl]:
        """Return the ACLs of a principal; of all principals if none is given."""
        every = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, principal, None, AclOperation.ANY, AclPermissionType.ANY
        )
        return {
            Acl(
                each.principal,
                each.permission_type.name,
                each.operation.name,
                # librdkafka uses the name of brokers for the resource type cluster, 4.
                "CLUSTER" if each.restype is ResourceType.BROKER else each.restype.name,
                each.resource_pattern_type.name,
                each.name,
                each.host,
            )
            for each in self._client.describe_acls(every).result(timeout=_SECONDS)
        }

    def await_acls(self, principal: str, expected: set[Acl]) -> None:
        """Wait until a principal has exactly these ACLs, since acknowledged ACLs may not be listed yet (A6)."""

        def as_expected() -> bool:
            return self.acls(principal) == expected

        until(as_expected, seconds=60)

    def await_names(self, prefix: str, expected: set[str], seconds: float = _SECONDS) -> None:
        """Wait until exactly these topics are listed, since acknowledged topics may not be listed yet (C21)."""

        def as_expected() -> bool:
            return self.names(prefix) == expected

        until(as_expected, seconds=seconds)

    def await_topics(self, prefix: str, expected: Mapping[str, Live]) -> None:
        """Wait until exactly these topics are listed, then compare them completely."""
        self.await_names(prefix, set(expected))
        assert self.topics(prefix) == dict(expected)


def _as_uuid(topic_id: object) -> str:
    text = str(topic_id)
    return str(uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))))
