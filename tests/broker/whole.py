"""Everything that a cluster keeps, asked by librdkafka, to show that nothing else changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

from tests.broker import quotas
from tests.fault.another_client import AnotherClient, options_of
from tests.waiting import until
from topicledger_testing.embedded_kafka import EmbeddedKafka

_SECONDS = 60.0

Whole = Mapping[tuple[str, Any], Any]
"""Kind and name of a resource -> its state."""


def whole(kafka: EmbeddedKafka) -> Whole:
    """Return every topic with id, replicas and own configs, every ACL, and every client quota; no internal topics."""
    client = AdminClient(options_of(kafka))
    names = [name for name in client.list_topics(timeout=_SECONDS).topics if not name.startswith("__")]
    described = client.describe_topics(TopicCollection(names), request_timeout=_SECONDS) if names else {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    configured = client.describe_configs(resources, request_timeout=_SECONDS) if names else {}
    configs = {resource.name: future.result(_SECONDS) for resource, future in configured.items()}
    found: dict[tuple[str, Any], Any] = {("acl", acl): True for acl in AnotherClient(kafka).acls()}
    found |= {("quota", quotas.text(entity)): limits for entity, limits in quotas.live(kafka).items()}
    for name, future in described.items():
        topic = future.result(_SECONDS)
        found["topic", name] = (
            str(topic.topic_id),
            {each.id: [node.id for node in each.replicas] for each in topic.partitions},
            {key: each.value for key, each in configs[name].items() if _is_own(each.source)},
        )
    return found


def _is_own(source: int) -> bool:
    return source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value


def changed(before: Whole, after: Whole) -> set[tuple[str, Any]]:
    """Return what differs, was added, or is gone."""
    return {key for key in {*before, *after} if before.get(key) != after.get(key)}


def await_only(kafka: EmbeddedKafka, before: Whole, expected: Collection[tuple[str, Any]]) -> Whole:
    """Wait until exactly the expected resources of the cluster differ from `before`; return all of them."""
    after: Whole = {}

    def differs() -> bool:
        nonlocal after
        after = whole(kafka)
        return changed(before, after) >= set(expected)

    # Acknowledged changes may not be listed yet (C21, A6).
    until(differs, seconds=_SECONDS)
    assert changed(before, after) == set(expected)
    return after
