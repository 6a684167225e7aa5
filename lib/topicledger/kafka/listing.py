"""List every group of a cluster, with proof that none is missing, or the reason why that is unknown.

Brokers silently omit groups from a listing: those that the principal may not see, and those stored in a partition of
__consumer_offsets that the broker has just gained or given away. So the principal must be allowed to see all. Before
and after its listing, each coordinator is also asked about one probe group for each partition that it leads. Unlike a
listing, such a request fails if the coordinator isn't ready.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kafka.admin import ACLOperation
from kafka.protocol.admin import DescribeClusterRequest, DescribeGroupsRequest, ListGroupsRequest

from topicledger.errors import ClusterError
from topicledger.kafka.connection import (
    CLUSTER_AUTHORIZATION_FAILED,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    GROUP_AUTHORIZATION_FAILED,
    GROUP_ID_NOT_FOUND,
    NONE,
    NOT_COORDINATOR,
    TOPIC_AUTHORIZATION_FAILED,
    Connection,
    error_name,
    unknown_topic,
)

_OFFSETS_TOPIC = "__consumer_offsets"
_IN_MOTION = frozenset({COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, GROUP_ID_NOT_FOUND})
_TOPICS_BATCH = 10_000
_LIST = "the list of groups"

Later = dict[str, str]
"""Reasons by the subject that is still unknown."""


@dataclass(frozen=True, kw_only=True)
class ListedGroup:
    """A group as its coordinator lists it."""

    group: str
    kind: str
    """classic, consumer, share, streams, or a type of a future Kafka version."""
    broker_id: int
    """The group's coordinator."""
    empty: bool
    """Whether the group has no members."""


def denied(connection: Connection, error_code: int, what: str, permission: str) -> ClusterError:
    """Return the error that names what can't be read, and the missing permission."""
    return ClusterError(f"cluster {connection.name}: {what} ({error_name(error_code)}): {connection.needs(permission)}")


def settled(connection: Connection, subject: str, error_code: int, later: Later) -> bool:
    """Return whether a code means success.

    Notes the subject in `later` if a later attempt may succeed. Raises ClusterError if none will.
    """
    if error_code == NONE:
        return True
    if error_code in _IN_MOTION:
        later[subject] = error_name(error_code)
        return False
    what = f"{subject} can't be read"
    if error_code == GROUP_AUTHORIZATION_FAILED:
        raise denied(connection, error_code, what, "Describe on every group")
    if error_code == TOPIC_AUTHORIZATION_FAILED:
        raise denied(connection, error_code, what, "Describe on every topic that the group's members subscribe to")
    if error_code == CLUSTER_AUTHORIZATION_FAILED:
        raise denied(connection, error_code, what, "Describe on the cluster")
    raise ClusterError(f"cluster {connection.name}: {what} ({error_name(error_code)})")


def refuse_partial_sight(connection: Connection, topics: Collection[str]) -> None:
    """Raise ClusterError if the principal may not see every group, or offsets that groups committed on `topics`."""
    if not connection.supports(DescribeClusterRequest):
        raise ClusterError(
            f"cluster {connection.name}: its brokers are older than Kafka 2.8 and don't report whether they list every "
            "consumer group: it is unknown which groups use its topics"
        )
    cluster = connection.ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
    if cluster.error_code != NONE or int(ACLOperation.DESCRIBE) not in cluster.authorized_operations:
        what = "not every consumer group can be listed"
        raise denied(connection, cluster.error_code or CLUSTER_AUTHORIZATION_FAILED, what, "Describe on the cluster")
    names = sorted(topics)
    for start in range(0, len(names), _TOPICS_BATCH):
        for topic in connection.metadata(names[start : start + _TOPICS_BATCH]).topics:
            if topic.error_code == TOPIC_AUTHORIZATION_FAILED:
                what = f"offsets that groups committed on topic {topic.name} can't be read"
                raise denied(connection, topic.error_code, what, f"Describe on topic {topic.name}")


def list_groups(connection: Connection, later: Later) -> list[ListedGroup]:
    """List every group from every broker; note in `later` if some may be missing."""
    leaders, broker_ids = _coordinators(connection, later)
    probes = _probes(len(leaders))
    leaderless = sorted(partition for partition, leader in leaders.items() if leader not in broker_ids)
    if leaderless:
        later[_LIST] = f"partitions {leaderless} of {_OFFSETS_TOPIC} have no leader"
    listed: list[ListedGroup] = []
    for broker_id in broker_ids:
        kept_here = [probes[partition] for partition, leader in leaders.items() if leader == broker_id]
        _probe(connection, broker_id, kept_here, later)
        answer = connection.ask(ListGroupsRequest(), broker_id)
        _probe(connection, broker_id, kept_here, later)
        if settled(connection, f"{_LIST} of broker {broker_id}", answer.error_code, later):
            listed.extend(_listed(each, broker_id) for each in answer.groups if each.group_state != "Dead")
    return listed


def _listed(group: Any, broker_id: int) -> ListedGroup:
    return ListedGroup(
        group=group.group_id,
        # Brokers that return no type know only one.
        kind=group.group_type.lower() or "classic",
        broker_id=broker_id,
        empty=group.group_state == "Empty",
    )


def _coordinators(connection: Connection, later: Later) -> tuple[dict[int, int], list[int]]:
    """Return leaders by partition of __consumer_offsets (none if there is no such topic), and the live brokers.

    Notes in `later` if brokers don't tell whether there is one.
    """
    response = connection.metadata([_OFFSETS_TOPIC])
    leaders: dict[int, int] = {}
    for topic in response.topics:
        if topic.error_code == TOPIC_AUTHORIZATION_FAILED:
            what = "it is unknown whether every consumer group is listed"
            raise denied(connection, topic.error_code, what, f"Describe on topic {_OFFSETS_TOPIC}")
        unknown = unknown_topic(topic)
        if unknown is not None:
            later[_LIST] = f"brokers answer {unknown} about topic {_OFFSETS_TOPIC}"
        leaders |= {each.partition_index: each.leader_id for each in topic.partitions}
    return leaders, sorted(broker.node_id for broker in response.brokers)


def _probe(connection: Connection, broker_id: int, groups: Sequence[str], later: Later) -> None:
    if not groups:
        return
    for each in connection.ask(DescribeGroupsRequest(groups=list(groups)), broker_id).groups:
        # The group doesn't exist, and only a working coordinator can answer so.
        if each.error_code != GROUP_ID_NOT_FOUND:
            settled(connection, f"{_LIST} of broker {broker_id}", each.error_code, later)


@lru_cache(maxsize=16)
def _probes(partitions: int) -> tuple[str, ...]:
    """Return a group name for each partition of __consumer_offsets that Kafka would store in that partition."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < partitions:
        name = f"topicledger-asks-{number}"
        found.setdefault(_partition(name, partitions), name)
        number += 1
    return tuple(found[partition] for partition in range(partitions))


def _partition(group: str, partitions: int) -> int:
    # Kafka's Utils.abs(group.hashCode()) % partitions, of ASCII names.
    code = 0
    for character in group:
        code = (31 * code + ord(character)) % 2**32
    signed = code - 2**32 if code >= 2**31 else code
    return 0 if signed == -(2**31) else abs(signed) % partitions
