"""Count the topics of a cluster that this principal doesn't see (M3).

A listing silently omits topics that the principal may not describe. But with Describe on the cluster, a principal can
list brokers' log directories, whatever it may do to topics (*measured*, 4.3.1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any
from uuid import uuid4

from kafka.admin import ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourceType
from kafka.protocol.admin import DescribeAclsRequest

from topicledger.errors import ClusterError
from topicledger.kafka import log_dirs
from topicledger.kafka.connection import (
    CLUSTER_AUTHORIZATION_FAILED,
    NONE,
    SECURITY_DISABLED,
    TOPIC_AUTHORIZATION_FAILED,
    Connection,
    error_name,
    unknown_topic,
)
from topicledger.kafka.listing import denied

_TOPICS_BATCH = 10_000
_EVERY = "*"
"""The name in a permission on all topics."""


def unseen_topics(connection: Connection, on: int | None = None) -> int:
    """Count topics with replicas on live brokers that this principal may not describe.

    `on`: read only this broker, if it is up. Topics with replicas only on brokers that are down aren't counted: if `on`
    is down, this raises ClusterError unless none can be hidden. It also does, naming the permission to grant, if the
    brokers don't answer.
    """
    up = [int(broker.node_id) for broker in connection.metadata([]).brokers]
    asked = [on] if on in up else up
    # Topics are described by name: one deleted in the meantime doesn't exist, and one created since isn't hidden.
    hidden = _hidden(connection, {topic for broker in asked for topic in _topics_of_broker(connection, broker)})
    if on not in (None, *up) and not hidden and _hidden(connection, {*_names_in_permissions(connection)}):
        raise ClusterError(
            f"cluster {connection.name}: broker {on} is down and may have topics that no other broker has, and this "
            "principal may not describe every topic: grant it Describe on all topics, or start the broker"
        )
    return hidden


def _hidden(connection: Connection, topics: Collection[str]) -> int:
    """Count the names that this principal may not describe, whether or not there are such topics."""
    names = sorted(topics)
    found = [
        topic
        for start in range(0, len(names), _TOPICS_BATCH)
        for topic in connection.metadata(names[start : start + _TOPICS_BATCH]).topics
    ]
    for topic in found:
        unknown = unknown_topic(topic)
        if unknown is not None:
            raise ClusterError(
                f"cluster {connection.name}: brokers answer {unknown} about topic {topic.name}, which may or may not "
                "exist: look for it in their logs"
            )
    return sum(topic.error_code == TOPIC_AUTHORIZATION_FAILED for topic in found)


def _topics_of_broker(connection: Connection, broker_id: int) -> set[str]:
    what = "which topics there are"
    answer = log_dirs.describe(connection, broker_id, f"{what} can't be read", gone=what)
    return {topic.name for each in answer.results for topic in each.topics}


def _names_in_permissions(connection: Connection) -> Iterator[str]:
    """Yield names such that a principal that may describe all of them may describe any topic.

    The names in permissions and denials, one that begins with each prefix in them, and one that none of them names.
    Without an authorizer, none.
    """
    request = DescribeAclsRequest(
        resource_type_filter=ResourceType.TOPIC,
        resource_name_filter=None,
        pattern_type_filter=ACLResourcePatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
    )
    answer: Any = connection.ask(request)
    if answer.error_code == SECURITY_DISABLED:
        return
    what = "permissions on topics can't be listed"
    if answer.error_code == CLUSTER_AUTHORIZATION_FAILED:
        raise denied(connection, answer.error_code, what, "Describe on the cluster")
    if answer.error_code != NONE:
        raise ClusterError(f"cluster {connection.name}: {what} ({error_name(answer.error_code)})")
    new = f"Q{uuid4().hex}"
    yield new
    for each in answer.resources:
        if each.pattern_type == ACLResourcePatternType.PREFIXED:
            yield f"{each.resource_name}{new}"
        elif each.resource_name != _EVERY:
            yield each.resource_name
