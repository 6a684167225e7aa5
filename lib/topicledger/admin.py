"""The one module that talks to Kafka: metadata, CreateTopics, DeleteTopics, DescribeConfigs of one cluster.

It sends one request at a time and translates both ways between Kafka's messages and our values. What to send, in which
order and how often is decided elsewhere. kafka-python's own admin methods are by-passed where they lose something: they
drop throttle_time_ms and turn a second NOT_CONTROLLER into a RuntimeError (C13, C17).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Any, Self

from kafka import errors as kafka_errors
from kafka.admin import ACLOperation, ConfigResourceType, KafkaAdminClient
from kafka.admin._configs import ConfigSourceType
from kafka.protocol.admin import CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest
from kafka.protocol.metadata import MetadataRequest

from topicledger.errors import ClusterError
from topicledger.model import Broker, ConfigEntry, Target, TopicInfo, TopicResult
from topicledger.secrets import redact, resolve_client_options, secret_values
from topicledger.settings import ClusterSettings, KafkaSettings

log = logging.getLogger(__name__)


class _LastWords(logging.Handler):
    """Keeps kafka-python's last error by thread: its exception only says that a cluster can't be bootstrapped."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.by_thread: dict[int | None, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "kafka.net.connection":
            self.by_thread[record.thread] = record.getMessage().rpartition(">: ")[2]


_last_words = _LastWords()
_kafka_log = logging.getLogger("kafka")
# kafka-python prints its whole configuration, passwords included, at DEBUG: whatever level a user turns on, not that.
_kafka_log.setLevel(logging.ERROR)
_kafka_log.propagate = False
_kafka_log.addHandler(_last_words)

NONE = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
REQUEST_TIMED_OUT = 7
TOPIC_AUTHORIZATION_FAILED = 29
TOPIC_ALREADY_EXISTS = 36
NOT_CONTROLLER = 41
INVALID_REQUEST = 42
POLICY_VIOLATION = 44
TOPIC_DELETION_DISABLED = 73
UNKNOWN_TOPIC_ID = 100

_ZERO_ID = uuid.UUID(int=0)
_OPERATIONS_UNKNOWN = 31
"""The bit that is set when the broker doesn't tell what a principal may do (the field's default, -2^31)."""
_KNOWN_OPERATIONS = frozenset(int(operation) for operation in ACLOperation) - {0, 1, 2}
_DESCRIBE_BATCH = 10_000
_CONFIGS_BATCH = 1_000
_CREATE_RETURNS_CONFIGS = 5
_DELETE_BY_ID = 6

# Where kafka-python's name for a code isn't Kafka's own (org.apache.kafka.common.protocol.Errors, 4.3.1).
_KAFKA_NAMES = {
    -1: "UNKNOWN_SERVER_ERROR",
    0: "NONE",
    6: "NOT_LEADER_OR_FOLLOWER",
    10: "MESSAGE_TOO_LARGE",
    17: "INVALID_TOPIC_EXCEPTION",
    39: "INVALID_REPLICA_ASSIGNMENT",
    128: "INVALID_REGULAR_EXPRESSION",
    129: "REBOOTSTRAP_REQUIRED",
    133: "SHARE_SESSION_LIMIT_REACHED",
}


class RequestLost(ClusterError):
    """A request got no answer: what it did is unknown, and it may be sent again."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What a cluster says of itself (M1)."""

    cluster_id: str
    brokers: tuple[Broker, ...]


@dataclass(frozen=True, kw_only=True)
class Response:
    """One answered CreateTopics or DeleteTopics request."""

    results: Mapping[str, TopicResult]
    """By topic name, for every topic of the request."""
    throttle_time_ms: int
    """How long the broker asks to wait (KIP-599)."""


def error_name(error_code: int) -> str:
    """Kafka's name for an error code, e.g. TOPIC_ALREADY_EXISTS."""
    if error_code in _KAFKA_NAMES:
        return _KAFKA_NAMES[error_code]
    return str(kafka_errors.for_code(error_code).message or f"ERROR_{error_code}")


class ClusterAdmin:
    """A connection to one cluster, with the rights of the principal in its settings.

    Making one connects and raises ClusterError, naming the cluster, within `connect_timeout` seconds.
    Each method sends what it says and raises RequestLost when no answer came.
    """

    def __init__(self, cluster: ClusterSettings, kafka: KafkaSettings) -> None:
        self.name = cluster.name
        self._bootstrap_servers = ", ".join(cluster.bootstrap_servers)
        self._operation_timeout_ms = max(1, round(kafka.operation_timeout * 1000))
        self._secrets = secret_values(cluster)
        options: dict[str, object] = {
            "client_id": "topicledger",
            # The client waits longer than it lets the broker take, so that the broker's own answer comes first.
            "request_timeout_ms": self._operation_timeout_ms + 10_000,
            **resolve_client_options(cluster),
            "bootstrap_servers": list(cluster.bootstrap_servers),
            "bootstrap_timeout_ms": round(kafka.connect_timeout * 1000),
        }
        # Made in two steps, so that a client that can't connect can still be asked why, and closed.
        self._admin = KafkaAdminClient.__new__(KafkaAdminClient)
        try:
            self._admin.__init__(**options)
        except (kafka_errors.KafkaError, OSError, ValueError, AssertionError) as error:
            raise self._unreachable(self._why_not(error), kafka.connect_timeout) from None
        self._manager = self._admin._manager

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection to the cluster."""
        self._admin.close()

    def _why_not(self, error: Exception) -> str:
        network = getattr(self._admin, "_net", None)
        if network is None:
            return str(error)
        thread = network._io_thread
        self._manager = self._admin._manager
        self._manager.close()
        network.stop()
        words = _last_words.by_thread.get(thread.ident if thread else None, str(error))
        if "socket disconnected" in words and str(self._admin.config["security_protocol"]).startswith("SASL"):
            # kafka-python shows a refused login so: brokers close the connection without a word it passes on.
            words += "; a wrong user or password looks like this"
        return words

    def _unreachable(self, error: str, connect_timeout: float) -> ClusterError:
        return ClusterError(
            redact(
                f"cluster {self.name} can't be reached at {self._bootstrap_servers} within {connect_timeout:g} s "
                f"({error}): check clusters.{self.name} in the settings, and that the brokers are up",
                self._secrets,
            )
        )

    def _run(self, send: Callable[..., Any], *arguments: object) -> Any:
        try:
            return self._manager.run(send, *arguments)
        except (kafka_errors.KafkaError, OSError) as error:
            self._admin._controller_id = None
            raise RequestLost(
                redact(f"cluster {self.name} at {self._bootstrap_servers} gave no answer: {error}", self._secrets)
            ) from None

    def _forget_controller(self, error_codes: Iterable[int]) -> None:
        """After NOT_CONTROLLER the next request must ask anew who the controller is (C13)."""
        if NOT_CONTROLLER in error_codes:
            self._admin._controller_id = None

    def _version(self, request: type) -> int:
        return int(self._manager.broker_version_data.api_version(request))

    @property
    def has_default_counts(self) -> bool:
        """Whether a create may leave its counts to the broker (KIP-464, Kafka 2.4; C4)."""
        return bool(self._manager.broker_version >= (2, 4))

    @property
    def returns_configs(self) -> bool:
        """Whether CreateTopics returns partitions, RF and configs (KIP-525, CreateTopics v5; C11)."""
        return self._version(CreateTopicsRequest) >= _CREATE_RETURNS_CONFIGS

    @property
    def deletes_by_id(self) -> bool:
        """Whether DeleteTopics takes topic ids (broker 2.8 and later; D7)."""
        return self._version(DeleteTopicsRequest) >= _DELETE_BY_ID

    # -- metadata ---------------------------------------------------------------------------------------------------

    def _metadata(self, topics: Sequence[str] | None, *, operations: bool) -> Any:
        named = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(
            topics=named,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=operations,
        )
        return self._run(self._manager.send, request)

    def describe_cluster(self) -> Cluster:
        """The cluster's id and its live brokers with their racks (M1)."""
        response = self._metadata([], operations=False)
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
        )

    def list_topics(self) -> Iterator[TopicInfo]:
        """Every topic that this principal may describe (M1, M3)."""
        yield from _infos(self._metadata(None, operations=True).topics)

    def describe_topics(self, topics: Sequence[str]) -> Iterator[TopicInfo]:
        """The named topics: one that doesn't exist is left out, one that may not be described says so (29; M3)."""
        for start in range(0, len(topics), _DESCRIBE_BATCH):
            yield from _infos(self._metadata(topics[start : start + _DESCRIBE_BATCH], operations=True).topics)

    def describe_configs(self, topics: Sequence[str]) -> dict[str, tuple[ConfigEntry, ...]]:
        """Every config of the named topics, sensitive values null; topics that may not be described are left out."""
        found: dict[str, tuple[ConfigEntry, ...]] = {}
        for start in range(0, len(topics), _CONFIGS_BATCH):
            named = topics[start : start + _CONFIGS_BATCH]
            request = DescribeConfigsRequest(
                resources=[(ConfigResourceType.TOPIC, name, None) for name in named], include_synonyms=False
            )
            for result in self._run(self._manager.send, request).results:
                if result.error_code == NONE:
                    found[result.resource_name] = _entries(result.configs)
        return found

    # -- changes ----------------------------------------------------------------------------------------------------

    def create_topics(self, targets: Sequence[Target], *, validate_only: bool) -> Response:
        """One CreateTopics request; with `validate_only` nothing is created (C5).

        An id that validateOnly returns is dropped: it isn't real (C19). The result of every topic is its own (C7).
        """
        request = CreateTopicsRequest(
            topics=[_creatable(target) for target in targets],
            timeout_ms=self._operation_timeout_ms,
            validate_only=validate_only,
        )
        response = self._run(self._admin._send_request_to_controller, request)
        self._forget_controller(topic.error_code for topic in response.topics)
        told = self.returns_configs
        return Response(
            results={topic.name: _created(topic, told, validate_only) for topic in response.topics},
            throttle_time_ms=response.throttle_time_ms,
        )

    def delete_topics(self, targets: Sequence[Target]) -> Response:
        """One DeleteTopics request, by topic id where the broker knows ids, else by name (D7).

        Two requests for the same topic are one (D1): the caller sends each once.
        """
        by_id = self.deletes_by_id and all(target.topic_id for target in targets)
        state = DeleteTopicsRequest.DeleteTopicState
        request = DeleteTopicsRequest(
            topics=[
                state(topic_id=uuid.UUID(target.topic_id)) if by_id else state(name=target.topic) for target in targets
            ],
            timeout_ms=self._operation_timeout_ms,
        )
        response = self._run(self._admin._send_request_to_controller, request)
        self._forget_controller(topic.error_code for topic in response.responses)
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


def _creatable(target: Target) -> Any:
    topic = CreateTopicsRequest.CreatableTopic
    return topic(
        name=target.topic,
        num_partitions=-1 if target.num_partitions is None else target.num_partitions,
        replication_factor=-1 if target.replication_factor is None else target.replication_factor,
        assignments=[
            topic.CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in sorted((target.assignments or {}).items())
        ],
        configs=[topic.CreatableTopicConfig(name=name, value=value) for name, value in target.configs.items()],
    )


def _created(topic: Any, told: bool, validate_only: bool) -> TopicResult:
    topic_id = getattr(topic, "topic_id", None)
    real_id = not validate_only and topic_id not in (None, _ZERO_ID)
    if not told or topic.error_code != NONE:
        return TopicResult(error_code=topic.error_code, error_message=topic.error_message)
    return TopicResult(
        error_code=topic.error_code,
        error_message=topic.error_message,
        topic_id=str(topic_id) if real_id else None,
        num_partitions=topic.num_partitions if topic.num_partitions >= 0 else None,
        replication_factor=topic.replication_factor if topic.replication_factor >= 0 else None,
        configs=_entries(topic.configs) if topic.configs else None,
        topic_config_error_code=topic.topic_config_error_code,
    )


def _infos(topics: Sequence[Any]) -> Iterator[TopicInfo]:
    for topic in topics:
        if topic.error_code == TOPIC_AUTHORIZATION_FAILED:
            yield TopicInfo(topic=topic.name, permitted=False)
        elif topic.error_code == NONE or topic.partitions:
            topic_id = getattr(topic, "topic_id", None)
            yield TopicInfo(
                topic=topic.name,
                topic_id=str(topic_id) if topic_id not in (None, _ZERO_ID) else None,
                internal=bool(topic.is_internal),
                assignments={
                    partition.partition_index: tuple(partition.replica_nodes)
                    for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
                },
                leaderless=sum(partition.leader_id < 0 for partition in topic.partitions),
                authorized_operations=_operations(frozenset(getattr(topic, "authorized_operations", None) or ())),
            )


@lru_cache(maxsize=1024)
def _operations(bits: frozenset[int]) -> tuple[str, ...] | None:
    if not bits or _OPERATIONS_UNKNOWN in bits:
        return None
    return tuple(sorted(ACLOperation(bit).name for bit in bits if bit in _KNOWN_OPERATIONS))


def _entries(configs: Sequence[Any]) -> tuple[ConfigEntry, ...]:
    return tuple(
        _entry(config.name, config.value, config.read_only, getattr(config, "config_source", -1), config.is_sensitive)
        for config in configs
    )


@lru_cache(maxsize=100_000)
def _entry(name: str, value: str | None, read_only: bool, source: int, sensitive: bool) -> ConfigEntry:
    # Most topics share the same thirty entries: one object each, compared by identity later on.
    return ConfigEntry(
        name=name,
        value=None if sensitive else value,
        read_only=bool(read_only),
        config_source=_source_name(source),
        is_sensitive=bool(sensitive),
    )


def _source_name(source: int) -> str:
    try:
        return str(ConfigSourceType(source).name)
    except ValueError:
        return "UNKNOWN"
