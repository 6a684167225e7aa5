"""The lower bound: confluent-kafka's AdminClient (librdkafka), which decodes no configs and records nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from topicledger.resources.acls.acl import Acl

_SECONDS = 120.0


class Floor:
    """One connection. All batches are passed to librdkafka at once, which sends them concurrently."""

    def __init__(self, servers: Sequence[str], size: int) -> None:
        self._client = AdminClient({"bootstrap.servers": ",".join(servers)})
        self._client.list_topics(timeout=_SECONDS)
        self._size = size

    def create(self, topics: Sequence[str], configs: Mapping[str, str], *, validate_only: bool) -> int:
        """Send CreateTopics for topics of one partition; return the number acknowledged."""
        new = [NewTopic(name, num_partitions=1, replication_factor=1, config=dict(configs)) for name in topics]
        return self._all(
            new,
            lambda batch: self._client.create_topics(
                batch, validate_only=validate_only, operation_timeout=_SECONDS, request_timeout=_SECONDS
            ),
        )

    def alter(self, topics: Sequence[str], configs: Mapping[str, str], *, validate_only: bool) -> int:
        """Set configs with IncrementalAlterConfigs; return the number of topics acknowledged."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()
        ]
        return self._all(
            [ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries) for name in topics],
            lambda batch: self._client.incremental_alter_configs(
                batch, validate_only=validate_only, request_timeout=_SECONDS
            ),
        )

    def delete(self, topics: Sequence[str]) -> int:
        """Send DeleteTopics by name; return the number acknowledged."""
        return self._all(
            list(topics),
            lambda batch: self._client.delete_topics(batch, operation_timeout=_SECONDS, request_timeout=_SECONDS),
        )

    def add_acls(self, acls: Sequence[Acl]) -> int:
        """Send CreateAcls; return the number acknowledged."""
        return self._all(
            [AclBinding(*_words(each)) for each in acls],
            lambda batch: self._client.create_acls(batch, request_timeout=_SECONDS),
        )

    def remove_acls(self, acls: Sequence[Acl]) -> int:
        """Send DeleteAcls with one filter for each ACL; return the number acknowledged."""
        return self._all(
            [AclBindingFilter(*_words(each)) for each in acls],
            lambda batch: self._client.delete_acls(batch, request_timeout=_SECONDS),
        )

    def _all(self, things: list[Any], ask: Callable[[list[Any]], Mapping[Any, Future[Any]]]) -> int:
        asked = [ask(things[start : start + self._size]) for start in range(0, len(things), self._size)]
        acknowledged = 0
        for futures in asked:
            for future in futures.values():
                future.result(timeout=_SECONDS)
                acknowledged += 1
        return acknowledged


def _words(acl: Acl) -> tuple[Any, ...]:
    return (
        ResourceType[acl.resource_type],
        acl.resource_name,
        ResourcePatternType[acl.pattern_type],
        acl.principal,
        acl.host,
        AclOperation[acl.operation],
        AclPermissionType[acl.permission],
    )
