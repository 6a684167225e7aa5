"""Log directories of brokers (DescribeLogDirs, KIP-113, KIP-827): bytes by replica, and free space."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kafka.protocol.admin import DescribeLogDirsRequest

from topicledger.errors import ClusterError
from topicledger.kafka.connection import CLUSTER_AUTHORIZATION_FAILED, NONE, Connection, RequestLost, error_name
from topicledger.kafka.listing import denied

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class BrokerLogs:
    """One broker's log directories."""

    broker_id: int
    sizes: Mapping[tuple[str, int], int]
    """Bytes by (topic, partition) of its replicas; a replica that moves between its directories counts once."""
    total_bytes: int | None
    """Sum of the sizes of the directories' volumes; None before Kafka 3.3. Two directories on one volume count twice:
    brokers don't report which directories share a volume."""
    usable_bytes: int | None
    """Free bytes of the same volumes, without cordoned directories; None before Kafka 3.3."""


def describe(
    connection: Connection, broker_id: int, what: str, *, gone: str, topics: Mapping[str, Collection[int]] | None = None
) -> Any:
    """Return a broker's answer to DescribeLogDirs, for every topic or for the named partitions.

    Raises ClusterError if the broker doesn't answer, or if one of its directories is offline. The error begins with
    `what`, e.g. "sizes can't be read", or names `gone` if the brokers lack the request (before Kafka 1.0).
    """
    answer = _answered(connection, broker_id, what, gone, topics)
    code = _offline(answer)
    if code != NONE:
        raise ClusterError(f"cluster {connection.name}: {what} from broker {broker_id} ({error_name(code)})")
    return answer


def _answered(
    connection: Connection, broker_id: int, what: str, gone: str, topics: Mapping[str, Collection[int]] | None
) -> Any:
    if not connection.supports(DescribeLogDirsRequest):
        raise ClusterError(f"cluster {connection.name}: its brokers are older than Kafka 1.0 and don't report {gone}")
    named = None if topics is None else [(topic, sorted(partitions)) for topic, partitions in topics.items()]
    answer = connection.ask(DescribeLogDirsRequest(topics=named), broker_id)
    # Before version 3, an empty answer means that it isn't permitted: every broker has a log directory.
    code = getattr(answer, "error_code", NONE) or (NONE if answer.results else CLUSTER_AUTHORIZATION_FAILED)
    if code == CLUSTER_AUTHORIZATION_FAILED:
        raise denied(connection, code, what, "Describe on the cluster")
    if code != NONE:
        raise ClusterError(f"cluster {connection.name}: {what} from broker {broker_id} ({error_name(code)})")
    return answer


def _offline(answer: Any) -> int:
    """Return the error of the first directory that the broker can't read; NONE if it reads all of them."""
    return next((int(each.error_code) for each in answer.results if each.error_code != NONE), NONE)


@dataclass(frozen=True, kw_only=True)
class KnownSizes:
    """The sizes that one broker knows."""

    sizes: Mapping[tuple[str, int], int]
    """Bytes by (topic, partition) of its replicas."""
    unknown: str
    """Why the size of another replica on this broker is unknown."""


def known_sizes(connection: Connection, broker_id: int) -> KnownSizes:
    """Return the sizes that a broker knows; none, with the reason, if it doesn't answer or refuses to."""
    try:
        answer = _answered(connection, broker_id, "sizes of replicas can't be read", "how large replicas are", None)
    except ClusterError as error:
        return KnownSizes(sizes={}, unknown=str(error))
    unknown = f"broker {broker_id} doesn't report the size of its replica"
    if (code := _offline(answer)) != NONE:
        unknown += f"; one of its log directories can't be read ({error_name(code)})"
    return KnownSizes(sizes=dict(_sizes(answer)), unknown=unknown)


def broker_logs(connection: Connection, broker_id: int) -> BrokerLogs:
    """Describe a broker's log directories. Raises ClusterError if it doesn't answer."""
    answer = describe(connection, broker_id, "sizes of replicas can't be read", gone="how large replicas are")
    sizes = dict(_sizes(answer))
    totals = [getattr(each, "total_bytes", -1) for each in answer.results]
    # A cordoned directory gets no new replicas (KIP-1066).
    usable = [
        0 if getattr(each, "is_cordoned", False) else getattr(each, "usable_bytes", -1) for each in answer.results
    ]
    known = min(totals) >= 0 and min(usable) >= 0
    return BrokerLogs(
        broker_id=broker_id,
        sizes=sizes,
        total_bytes=sum(totals) if known else None,
        usable_bytes=sum(usable) if known else None,
    )


def partition_sizes(connection: Connection, topics: Mapping[str, Collection[int]]) -> dict[tuple[str, int], int]:
    """Return the bytes of the largest replica by (topic, partition); empty if brokers don't report sizes.

    A replica that is being copied is smaller than its source.
    """
    found: dict[tuple[str, int], int] = {}
    for (topic, partition, _), size in replica_sizes(connection, topics).items():
        found[topic, partition] = max(size, found.get((topic, partition), 0))
    return found


def replica_sizes(connection: Connection, topics: Mapping[str, Collection[int]]) -> dict[tuple[str, int, int], int]:
    """Return the bytes of replicas by (topic, partition, broker); empty if brokers don't report sizes."""
    found: dict[tuple[str, int, int], int] = {}
    for broker in connection.metadata([]).brokers:
        try:
            answer = describe(
                connection,
                broker.node_id,
                "sizes of partitions can't be read",
                gone="how large replicas are",
                topics=topics,
            )
        except RequestLost:
            # The broker may be down; other replicas of its partitions are as large.
            continue
        except ClusterError as error:
            log.info("%s: bytes under way are estimated", error)
            return {}
        for (topic, partition), size in _sizes(answer):
            key = topic, partition, int(broker.node_id)
            found[key] = max(size, found.get(key, 0))
    return found


def _sizes(answer: Any) -> Iterator[tuple[tuple[str, int], int]]:
    for log_dir in answer.results:
        for topic in log_dir.topics:
            for each in topic.partitions:
                if not each.is_future_key:
                    yield (topic.name, each.partition_index), each.partition_size
