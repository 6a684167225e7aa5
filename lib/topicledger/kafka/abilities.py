"""The requests and operations that a cluster allows this principal, as far as brokers report them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.admin import DescribeClusterRequest
from kafka.protocol.metadata import MetadataRequest

from topicledger.errors import ClusterError
from topicledger.kafka import ClusterAdmin
from topicledger.kafka.connection import NONE, error_name
from topicledger.kafka.topics import operations
from topicledger.model import TopicInfo

_METADATA_WITH_OPERATIONS = 8
_PROVIDERS = {
    ".amazonaws.com": "AWS MSK",
    ".confluent.cloud": "Confluent Cloud",
    ".servicebus.windows.net": "Azure Event Hubs",
    ".aivencloud.com": "Aiven",
    ".cloud.redpanda.com": "Redpanda Cloud",
    ".managedkafka": "Google Cloud Managed Kafka",
}
"""Part of a broker's host name -> provider. Brokers don't report it."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The requests and operations that a feature needs from brokers."""

    requests: Mapping[type, int] = field(default_factory=dict)
    """Requests, each with the least version."""
    since: str = ""
    """The first version of Kafka that has the requests."""
    cluster: Sequence[str] = ()
    """Operations on the cluster, by Kafka's names."""
    topics: Sequence[str] = ()
    """Operations on each topic."""


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """Answers of a cluster about itself and this principal."""

    cluster_id: str
    brokers: int
    version: str
    """The newest version of Kafka whose requests the brokers know, such as `4.3`; set by `api_version` if that is set.
    """
    provider: str | None
    """The company or product that runs it, by the names of hosts and of the cluster; None if they don't tell."""
    on_cluster: frozenset[str] | None
    """Operations on the cluster; empty without Describe on it, None if the brokers are too old to tell."""
    topics: int
    """Number of visible topics, without internal ones."""
    on_topics: Mapping[str, int] | None
    """Operation -> number of visible topics that allow it; None if the brokers are too old to tell."""
    without: Mapping[str, str]
    """Operation -> one of the visible topics that don't allow it."""


def abilities_of(admin: ClusterAdmin) -> Abilities:
    """Ask a cluster; changes nothing. Raises ClusterError if it doesn't answer."""
    cluster = admin.describe_cluster()
    topics = [each for each in admin.list_topics() if each.permitted and not each.internal]
    allowed: Counter[str] = Counter(name for each in topics for name in each.authorized_operations or ())
    hosts = (broker.host for broker in cluster.brokers)
    return Abilities(
        cluster_id=cluster.cluster_id,
        brokers=len(cluster.brokers),
        version=".".join(map(str, admin.broker_version)),
        provider=provider_of(cluster.cluster_id, *hosts),
        on_cluster=_on_cluster(admin),
        topics=len(topics),
        on_topics=None if any(each.authorized_operations is None for each in topics) else allowed,
        without=_without(topics),
    )


def provider_of(cluster_id: str | None, *hosts: str) -> str | None:
    """Return the provider that names suggest."""
    if (cluster_id or "").startswith("redpanda."):
        return "Redpanda"
    return next((name for part, name in _PROVIDERS.items() if any(part in host for host in hosts)), None)


def _without(topics: Sequence[TopicInfo]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in ("ALTER", "ALTER_CONFIGS", "DELETE", "DESCRIBE_CONFIGS", "READ"):
        lacking = (each.topic for each in topics if name not in (each.authorized_operations or ()))
        first = next(lacking, None)
        if first is not None:
            found[name] = first
    return found


def _on_cluster(admin: ClusterAdmin) -> frozenset[str] | None:
    answer: Any
    if admin.supports(DescribeClusterRequest):
        answer = admin.ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
        if answer.error_code != NONE:
            raise ClusterError(f"cluster {admin.name}: it can't be described: {error_name(answer.error_code)}")
    elif admin.supports(MetadataRequest, _METADATA_WITH_OPERATIONS):
        answer = admin.ask(
            MetadataRequest(
                topics=[],
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=True,
                include_topic_authorized_operations=False,
            )
        )
    else:
        return None
    bits = frozenset(answer.authorized_operations or ())
    return frozenset(operations(bits) or ()) if bits else frozenset()
