"""The only package that talks to Kafka: every request to one cluster.

It sends one request at a time and translates between Kafka's messages and our values. Other packages decide what to
send, in which order and how often. It avoids kafka-python's own admin methods that lose information: they drop
throttle_time_ms, turn a second NOT_CONTROLLER into a RuntimeError (C13, C17), and discard a whole answer because of an
error of one group or one partition.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.admin import ConfigResourceType
from kafka.protocol.admin import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
)
from kafka.protocol.metadata import MetadataRequest

from topicledger.errors import ClusterError
from topicledger.kafka import changes, groups, log_dirs, offsets, reassignments, unseen, usage
from topicledger.kafka.connection import (
    CLUSTER_AUTHORIZATION_FAILED,
    INVALID_PARTITIONS,
    INVALID_REPLICATION_FACTOR,
    INVALID_REQUEST,
    NONE,
    NOT_CONTROLLER,
    POLICY_VIOLATION,
    REQUEST_TIMED_OUT,
    TOPIC_ALREADY_EXISTS,
    TOPIC_AUTHORIZATION_FAILED,
    TOPIC_DELETION_DISABLED,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    Connection,
    RequestLost,
    error_name,
)
from topicledger.kafka.created import CONFIGS_VERSION, LAST_VERSION, CreateTopics, created_topics
from topicledger.kafka.topics import creatable, create_result, entries, infos
from topicledger.model import Broker, GroupUse, LastRecord, Target, TopicConfigs, TopicInfo, TopicResult

__all__ = [
    "INVALID_PARTITIONS",
    "INVALID_REPLICATION_FACTOR",
    "INVALID_REQUEST",
    "NONE",
    "NOT_CONTROLLER",
    "POLICY_VIOLATION",
    "REQUEST_TIMED_OUT",
    "TOPIC_ALREADY_EXISTS",
    "TOPIC_AUTHORIZATION_FAILED",
    "TOPIC_DELETION_DISABLED",
    "UNKNOWN_SERVER_ERROR",
    "UNKNOWN_TOPIC_ID",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "Cluster",
    "ClusterAdmin",
    "RequestLost",
    "Response",
    "error_name",
]

_DESCRIBE_BATCH = 10_000
_CONFIGS_BATCH = 1_000
_DELETE_BY_ID = 6
_METADATA_WITH_IDS = 10


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster's description of itself (M1)."""

    cluster_id: str
    brokers: tuple[Broker, ...]
    gives_topic_ids: bool
    """Whether topics have ids (broker 2.8 and later; D7)."""


@dataclass(frozen=True, kw_only=True)
class Response:
    """One answered CreateTopics or DeleteTopics request."""

    results: Mapping[str, TopicResult]
    """Results by resource, one for each of the request."""
    throttle_time_ms: int
    """Time that the broker asks the client to wait (KIP-599)."""


class ClusterAdmin(Connection):
    """A connection to one cluster, with the permissions of the principal in its settings.

    The constructor connects. If it can't, it raises a ClusterError that names the cluster within `connect_timeout`
    seconds. Each method sends its request and raises RequestLost if no answer arrives.
    """

    create_request: Any = CreateTopics
    """The class of CreateTopics requests, which selects the decoder: kafka-python's own is `CreateTopicsRequest`."""

    def connect_to_controller(self) -> str:
        """Find the controller and connect to it, unless already connected; return the cluster id that it reports.

        Changes nothing on the cluster. The next change is sent at once: it has nothing to find or connect first (C13).
        """
        controller_id = self._admin._controller_id
        if controller_id is None:
            controller_id = self.metadata([]).controller_id
            if controller_id < 0:
                raise RequestLost(f"cluster {self.name} at {self._bootstrap_servers} has no controller at the moment")
        # The controller itself answers: this opens the connection, and returns the id that its address has now.
        cluster_id = str(
            self.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), controller_id).cluster_id
        )
        self._admin._controller_id = controller_id
        return cluster_id

    def change(self, request: Any) -> Any:
        """Return the controller's answer to a request that changes something."""
        if self._admin._controller_id is None:
            self.connect_to_controller()
        response = self._run(self._manager.send, request, self._admin._controller_id)
        names = ("topics", "responses", "results", "filter_results", "entries", "replica_election_results")
        answers = [response, *(each for name in names for each in getattr(response, name, ()))]
        # A controller in ZooKeeper's days answers an election by partition.
        answers += [part for each in answers for part in getattr(each, "partition_result", ())]
        if any(getattr(each, "error_code", NONE) == NOT_CONTROLLER for each in answers):
            # The next request must find out again which broker is the controller (C13).
            self._admin._controller_id = None
        return response

    @property
    def has_default_counts(self) -> bool:
        """Whether a create may leave its counts to the broker (KIP-464, Kafka 2.4; C4)."""
        return bool(self._manager.broker_version >= (2, 4))

    @property
    def returns_configs(self) -> bool:
        """Whether CreateTopics returns partitions, RF and configs (KIP-525, CreateTopics v5; C11)."""
        return self.supports(CreateTopicsRequest, CONFIGS_VERSION)

    @property
    def deletes_by_id(self) -> bool:
        """Whether DeleteTopics takes topic ids (broker 2.8 and later; D7)."""
        return self.supports(DeleteTopicsRequest, _DELETE_BY_ID)

    def describe_cluster(self) -> Cluster:
        """Return the cluster's id and its live brokers with their racks (M1)."""
        response = self.metadata([])
        return Cluster(
            cluster_id=response.cluster_id,
            brokers=tuple(
                Broker(
                    broker_id=broker.node_id,
                    host=broker.host,
                    port=broker.port,
                    rack=broker.rack,
                    controller=broker.node_id == response.controller_id,
                )
                for broker in sorted(response.brokers, key=lambda broker: broker.node_id)
            ),
            gives_topic_ids=self.supports(MetadataRequest, _METADATA_WITH_IDS),
        )

    def list_topics(self) -> Iterator[TopicInfo]:
        """Yield every topic that this principal may describe (M1, M3)."""
        yield from infos(self.metadata(None, operations=True).topics)

    def describe_topics(self, topics: Sequence[str]) -> Iterator[TopicInfo]:
        """Yield the named topics that exist, and those that brokers don't describe (`permitted` is false; M3)."""
        for start in range(0, len(topics), _DESCRIBE_BATCH):
            yield from infos(self.metadata(topics[start : start + _DESCRIBE_BATCH], operations=True).topics)

    def topic_configs(
        self, topics: Sequence[str], names: Mapping[str, Collection[str]] | None = None
    ) -> Iterator[TopicConfigs]:
        """Yield the configs of the named topics, sensitive values as null, or the error if they can't be described.

        `names` lists the configs to describe by topic, by default all; names that the broker doesn't know are left out.
        """
        for start in range(0, len(topics), _CONFIGS_BATCH):
            named = topics[start : start + _CONFIGS_BATCH]
            request = DescribeConfigsRequest(
                resources=[
                    (ConfigResourceType.TOPIC, name, None if names is None else sorted(names[name])) for name in named
                ],
                include_synonyms=False,
            )
            for result in self.ask(request).results:
                described = result.error_code == NONE
                yield TopicConfigs(
                    topic=result.resource_name,
                    error_code=result.error_code,
                    configs=entries(result.configs) if described else None,
                )

    def consumer_groups(self, topics: Collection[str]) -> list[GroupUse]:
        """Return the groups that use the named topics: see `groups.consumer_groups`."""
        return groups.consumer_groups(self, topics)

    def last_records(self, topics: Collection[str]) -> list[LastRecord]:
        """Return end offsets and last records of the named topics: see `offsets.last_records`."""
        return offsets.last_records(self, topics)

    def topic_usage(self, topics: Sequence[str]) -> Iterator[usage.TopicUsage]:
        """Yield size and use of the named topics: see `usage.topic_usage`."""
        return usage.topic_usage(self, topics)

    def unseen_topics(self, on: int | None = None) -> int:
        """Return the number of topics that this principal doesn't see: see `unseen.unseen_topics`."""
        return unseen.unseen_topics(self, on)

    def broker_logs(self) -> list[log_dirs.BrokerLogs]:
        """Describe the log directories of each live broker: see `log_dirs.broker_logs`."""
        brokers = sorted(int(broker.node_id) for broker in self.metadata([]).brokers)
        return [log_dirs.broker_logs(self, broker_id) for broker_id in brokers]

    def partition_sizes(self, topics: Mapping[str, Collection[int]]) -> dict[reassignments.Partition, int]:
        """Return the bytes of partitions: see `log_dirs.partition_sizes`."""
        return log_dirs.partition_sizes(self, topics)

    def replica_sizes(self, topics: Mapping[str, Collection[int]]) -> dict[tuple[str, int, int], int]:
        """Return the bytes of replicas: see `log_dirs.replica_sizes`."""
        return log_dirs.replica_sizes(self, topics)

    @property
    def alters_incrementally(self) -> bool:
        """Whether single configs can be altered (KIP-339, Kafka 2.3); AlterConfigs replaces all configs of a topic."""
        return self.supports(IncrementalAlterConfigsRequest)

    def alter_configs(self, targets: Sequence[Target], *, validate_only: bool) -> Response:
        """Send one IncrementalAlterConfigs request; with `validate_only` it changes nothing (K1)."""
        response = self.change(changes.alter_configs_request(targets, validate_only=validate_only))
        return Response(results=changes.altered(response), throttle_time_ms=response.throttle_time_ms)

    def add_partitions(self, targets: Sequence[Target], *, validate_only: bool) -> Response:
        """Send one CreatePartitions request; with `validate_only` it changes nothing."""
        request = changes.create_partitions_request(targets, self._operation_timeout_ms, validate_only=validate_only)
        response = self.change(request)
        return Response(results=changes.grown(response), throttle_time_ms=response.throttle_time_ms)

    def topics_reassigned_now(self) -> frozenset[str] | None:
        """Return the topics whose replicas are being moved.

        None if this principal lacks Describe on the cluster, or if the brokers are older than 2.4.
        """
        listed = self.list_reassignments()
        return None if listed is None else frozenset(topic for topic, _ in listed)

    @property
    def reassigns(self) -> bool:
        """Whether replicas can be moved by request (KIP-455, Kafka 2.4)."""
        return self.supports(ListPartitionReassignmentsRequest)

    @property
    def elects_leaders(self) -> bool:
        """Whether leaders can be elected by request (KIP-460, Kafka 2.4; in 2.2 only under another name)."""
        return self.supports(ElectLeadersRequest, reassignments.ELECT_PREFERRED)

    def list_reassignments(self) -> dict[reassignments.Partition, reassignments.Replicas] | None:
        """Return the partitions that are being moved, with their targets; None as in `topics_reassigned_now`."""
        if not self.reassigns:
            return None
        if self._admin._controller_id is None:
            self.connect_to_controller()
        response = self.ask(reassignments.list_request(self._operation_timeout_ms), self._admin._controller_id)
        if response.error_code not in (NONE, CLUSTER_AUTHORIZATION_FAILED):
            # The next request must find out again which broker is the controller (C13).
            self._admin._controller_id = None
        return reassignments.listed(self, response)

    def topic_states(self, topics: Sequence[str]) -> dict[str, reassignments.TopicState]:
        """Return replicas, in-sync replicas and leaders of the named topics: see `reassignments.topic_states`."""
        return reassignments.topic_states(self, topics)

    def reassign(
        self, targets: Mapping[reassignments.Partition, reassignments.Replicas | None]
    ) -> tuple[dict[reassignments.Partition, TopicResult], int]:
        """Send one AlterPartitionReassignments request; return the answers by partition, and throttle_time_ms."""
        response = self.change(reassignments.alter_request(targets, self._operation_timeout_ms))
        return reassignments.altered(response, targets), response.throttle_time_ms

    def elect_leaders(
        self, partitions: Collection[reassignments.Partition]
    ) -> tuple[dict[reassignments.Partition, TopicResult], int]:
        """Send one ElectLeaders request for preferred leaders; return answers by partition, and throttle_time_ms."""
        response = self.change(reassignments.elect_request(partitions, self._operation_timeout_ms))
        return reassignments.elected(response, partitions), response.throttle_time_ms

    def broker_configs(self, broker_id: int, names: Collection[str]) -> dict[str, str]:
        """Return a broker's named configs that differ from Kafka's defaults, as that broker reports them (R6)."""
        request = DescribeConfigsRequest(
            resources=[(ConfigResourceType.BROKER, str(broker_id), sorted(names))], include_synonyms=False
        )
        (result,) = self.ask(request, broker_id).results
        if result.error_code == CLUSTER_AUTHORIZATION_FAILED:
            raise ClusterError(
                f"cluster {self.name}: configs of broker {broker_id} can't be read: grant this principal "
                "DescribeConfigs on the cluster, or set replicas.throttle = 0"
            )
        if result.error_code != NONE:
            raise RequestLost(
                f"cluster {self.name}: configs of broker {broker_id} can't be read: {error_name(result.error_code)}"
            )
        found = entries(result.configs)
        return {each.name: str(each.value) for each in found if each.config_source != "DEFAULT_CONFIG"}

    def alter_broker_configs(self, broker_id: int, configs: Mapping[str, str | None]) -> TopicResult:
        """Set configs of a broker, or reset those that are None; the request goes to that broker (R6)."""
        request = changes.alter_broker_request(broker_id, configs)
        if self._manager.cluster.broker_metadata(broker_id) is None:
            self._run(self._manager.cluster.refresh_metadata)
        (result,) = self._run(self._manager.send, request, broker_id).responses
        return TopicResult(error_code=result.error_code, error_message=result.error_message)

    def create_topics(self, targets: Sequence[Target], *, validate_only: bool) -> Response:
        """Send one CreateTopics request; with `validate_only` it creates nothing (C5).

        Drops topic ids that validateOnly returns, since they aren't real (C19). Each topic has its own result (C7).
        """
        request = self.create_request(
            topics=[creatable(target) for target in targets],
            timeout_ms=self._operation_timeout_ms,
            validate_only=validate_only,
            max_version=LAST_VERSION,
        )
        response = created_topics(self.change(request))
        returns_configs = self.returns_configs
        return Response(
            results={topic.name: create_result(topic, returns_configs, validate_only) for topic in response.topics},
            throttle_time_ms=response.throttle_time_ms,
        )

    def delete_topics(self, targets: Sequence[Target]) -> Response:
        """Send one DeleteTopics request, by topic id if the broker knows ids, else by name (D7).

        A request must name each topic only once (D1).
        """
        by_id = self.deletes_by_id and all(target.topic_id for target in targets)
        state = DeleteTopicsRequest.DeleteTopicState
        request = DeleteTopicsRequest(
            topics=[
                state(topic_id=uuid.UUID(target.topic_id)) if by_id else state(name=target.topic) for target in targets
            ],
            timeout_ms=self._operation_timeout_ms,
        )
        response = self.change(request)
        names = {target.topic_id: target.topic for target in targets}
        return Response(
            results={
                names[str(topic.topic_id)] if by_id else topic.name: TopicResult(
                    error_code=topic.error_code,
                    error_message=getattr(topic, "error_message", None),
                    topic_id=str(topic.topic_id) if by_id else None,
                )
                for topic in response.responses
            },
            throttle_time_ms=response.throttle_time_ms,
        )
