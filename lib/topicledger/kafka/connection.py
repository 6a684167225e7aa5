"""A connection to one cluster, and the parts that all requests share."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

from kafka import errors as kafka_errors
from kafka.admin import KafkaAdminClient
from kafka.protocol.metadata import MetadataRequest

from topicledger.config.secrets import foreign_code, redact, resolve_client_options, secret_values, words_of
from topicledger.config.settings import ClusterSettings, KafkaSettings
from topicledger.errors import ClusterError
from topicledger.kafka.tokens import options_with, provider_of
from topicledger.model import TopicResult

_DISCONNECTED = "socket disconnected"
_TELLING_LITTLE = ("KafkaTimeoutError", "Connection timed out", "RequestTimedOutError", _DISCONNECTED)
"""Messages of kafka-python that explain little, the least specific first; every other message is more specific."""


class _LastWords(logging.Handler):
    """Keeps kafka-python's last error by thread: its exception only reports that the bootstrap failed.

    A broker that refuses a login returns the reason and closes the connection. Which of the two kafka-python sees first
    is up to chance, and its last attempt may time out. So a less specific message never replaces a more specific one.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.by_thread: WeakKeyDictionary[threading.Thread, str] = WeakKeyDictionary()

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != "kafka.net.connection":
            return
        if isinstance(record.args, tuple):
            record.args = tuple(words_of(each) if isinstance(each, BaseException) else each for each in record.args)
        words, thread = record.getMessage().rpartition(">: ")[2], threading.current_thread()
        if _telling(words) >= _telling(self.by_thread.get(thread, _TELLING_LITTLE[0])):
            self.by_thread[thread] = words


def _telling(words: str) -> int:
    return next((rank for rank, little in enumerate(_TELLING_LITTLE) if little in words), len(_TELLING_LITTLE))


_last_words = _LastWords()
_kafka_log = logging.getLogger("kafka")
# At DEBUG, kafka-python logs its whole configuration, passwords included, so its level doesn't follow the user's.
_kafka_log.setLevel(logging.ERROR)
_kafka_log.propagate = False
_kafka_log.addHandler(_last_words)

UNKNOWN_SERVER_ERROR = -1
NONE = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
NOT_LEADER_OR_FOLLOWER = 6
REQUEST_TIMED_OUT = 7
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
INVALID_TOPIC = 17
TOPIC_AUTHORIZATION_FAILED = 29
GROUP_AUTHORIZATION_FAILED = 30
CLUSTER_AUTHORIZATION_FAILED = 31
UNSUPPORTED_VERSION = 35
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
NOT_CONTROLLER = 41
INVALID_REQUEST = 42
UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
POLICY_VIOLATION = 44
SECURITY_DISABLED = 54
KAFKA_STORAGE_ERROR = 56
GROUP_ID_NOT_FOUND = 69
TOPIC_DELETION_DISABLED = 73
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
OFFSET_NOT_AVAILABLE = 78
UNKNOWN_TOPIC_ID = 100

THROTTLE_MARGIN_SECONDS = 0.05
"""kafka-python refuses to send to a throttled broker until its own timer has run."""
_REFUSED_TIMES = 2
_REFUSED_PAUSE_SECONDS = 0.5
_REFUSED_SECONDS = 2.0
"""Seconds that a connection may take before it counts as not refused."""
_BROKERS_GONE = 3
"""How often a request that any broker may answer is sent to another broker if one is gone."""
_ANSWER_SECONDS = 5.0
"""Seconds that an answer may take in addition to the broker's work on it."""

# Codes whose name in kafka-python differs from Kafka's (org.apache.kafka.common.protocol.Errors, 4.3.1).
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
    """A request got no answer: its effect is unknown, and it may be sent again."""


class ErrorAnswered(RequestLost):
    """A request was answered, but with an error that doesn't tell what was asked."""


class Disconnected(RequestLost):
    """A request got no answer because there was no connection, or it was closed: the broker may be gone."""


class ApiMissing(ClusterError):
    """The brokers don't know a request or the version it needs; it was not sent."""


class NotListed(ClusterError):
    """A cluster's resources can't be listed: they are unknown, not absent."""


class TooOld(NotListed):
    """A cluster's brokers are too old for a kind of resource."""


_ABSENT = frozenset({UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC, UNKNOWN_TOPIC_ID})
"""Metadata's errors for a topic that doesn't exist."""


def unknown_topic(topic: Any) -> str | None:
    """Return Kafka's name of the error after which it is unknown whether a topic of Metadata exists, or None.

    A topic that this principal may not describe (TOPIC_AUTHORIZATION_FAILED) isn't meant.
    """
    code = topic.error_code
    if code in (NONE, TOPIC_AUTHORIZATION_FAILED, *_ABSENT) or (topic.partitions and code != UNKNOWN_SERVER_ERROR):
        return None
    return error_name(code)


def error_name(error_code: int) -> str:
    """Return Kafka's name for an error code, e.g. TOPIC_ALREADY_EXISTS."""
    if error_code in _KAFKA_NAMES:
        return _KAFKA_NAMES[error_code]
    return str(kafka_errors.for_code(error_code).message or f"ERROR_{error_code}")


def result_of(error_code: int, message: str | None, not_permitted: str) -> TopicResult:
    """Return a broker's answer, with the message `not_permitted` if the principal may not change the cluster."""
    if error_code == CLUSTER_AUTHORIZATION_FAILED:
        # The broker's own message is a dump of its request context.
        message = not_permitted
    return TopicResult(error_code=error_code, error_message=message or None)


def request_timeout(cluster: ClusterSettings, kafka: KafkaSettings) -> float:
    """Return the seconds to wait for an answer: the client option `request_timeout_ms` if it is set.

    The default is longer than the broker may take, so that the broker's own answer arrives first.
    """
    given = cluster.client.get("request_timeout_ms")
    return float(given) / 1000 if isinstance(given, int | float) else kafka.operation_timeout + _ANSWER_SECONDS


def _refuses(server: str) -> bool:
    """Whether every host behind `host:port` refuses a connection."""
    host, _, port = server.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REFUSED_SECONDS, all_errors=True).close()
    except ExceptionGroup as errors:
        return all(isinstance(each, ConnectionRefusedError) for each in errors.exceptions)
    except OSError:
        return False
    return False


def known_principal(options: Mapping[str, object], hosts: Iterable[str]) -> str | None:
    """Return the principal that brokers on these hosts see with kafka-python's options: `User:` and the user name.

    None if it is unknown, because a certificate, a ticket, a token or an API key determines it.
    """
    protocol, mechanism = str(options["security_protocol"]), str(options["sasl_mechanism"])
    if protocol == "PLAINTEXT":
        return "User:ANONYMOUS"
    if not (protocol.startswith("SASL") and mechanism.startswith(("PLAIN", "SCRAM"))):
        return None
    if any(host.casefold().rstrip(".").endswith(_OF_API_KEYS) for host in hosts):
        return None
    return f"User:{options['sasl_plain_username']}"


_OF_API_KEYS = ".confluent.cloud"
"""End of the names of brokers whose user names are API keys: they know the account of the key, such as User:sa-123abc.
"""


class Connection:
    """A connection to one cluster, with the permissions of the principal in its settings.

    The constructor connects. If it can't, it raises a ClusterError that names the cluster within `connect_timeout`
    seconds.
    """

    def __init__(self, cluster: ClusterSettings, kafka: KafkaSettings) -> None:
        self.name = cluster.name
        self._principal = cluster.principal
        self.operation_timeout = kafka.operation_timeout
        """Seconds that the broker may spend on a request."""
        self._bootstrap_servers = ", ".join(cluster.bootstrap_servers)
        self._operation_timeout_ms = max(1, round(kafka.operation_timeout * 1000))
        self._secrets = secret_values(cluster)
        try:
            self._connect(cluster, kafka)
        except ClusterError:
            raise
        except Exception as error:
            # Every error here concerns only this cluster.
            raise self._unreachable(f": {words_of(error)}") from None
        self._manager = self._admin._manager

    def _connect(self, cluster: ClusterSettings, kafka: KafkaSettings) -> None:
        provider = provider_of(cluster)
        options: dict[str, object] = {
            "client_id": "topicledger",
            **options_with(provider),
            **resolve_client_options(cluster),
            "request_timeout_ms": round(request_timeout(cluster, kafka) * 1000),
            "bootstrap_servers": list(cluster.bootstrap_servers),
            "bootstrap_timeout_ms": round(kafka.connect_timeout * 1000),
        }
        if not (options.get("proxy_url") or options.get("socks5_proxy")):
            self._fail_where_refused(cluster.bootstrap_servers)
        if provider is not None:
            # kafka-python would try again until `connect_timeout`.
            provider.token()
        # Created in two steps, so that a client that can't connect can still report the reason, and be closed.
        self._admin = KafkaAdminClient.__new__(KafkaAdminClient)
        try:
            self._admin.__init__(**options)
        except Exception as error:
            if provider is not None:
                provider.forget()
            raise self._unreachable(f" within {kafka.connect_timeout:g} s ({self._why_not(error)})") from None

    def needs(self, permission: str) -> str:
        """Return the end of a message that something isn't permitted: the ACL that the principal needs."""
        return f"the principal in clusters.{self.name}.client needs the ACL {permission}"

    @property
    def principal(self) -> str | None:
        """The principal that brokers see: the one in the settings, else that of `known_principal`."""
        if self._principal is not None:
            return self._principal
        brokers = (broker.host for broker in self._manager.cluster.brokers())
        bootstrap = (server.rpartition(":")[0] for server in self._bootstrap_servers.split(", "))
        return known_principal(self._admin.config, [*bootstrap, *brokers])

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
            return words_of(error)
        thread = network._io_thread
        self._manager = self._admin._manager
        self._manager.close()
        network.stop()
        words = _last_words.by_thread.get(thread, words_of(error)) if thread else words_of(error)
        if _DISCONNECTED in words and str(self._admin.config["security_protocol"]).startswith("SASL"):
            words += "; a wrong user or password looks like this"
        return words

    def _fail_where_refused(self, servers: Sequence[str]) -> None:
        """Raise ClusterError if each address refuses the connection twice: no broker is running there.

        kafka-python would try again until `connect_timeout`. It handles every other behaviour of an address.
        """
        for attempt in range(_REFUSED_TIMES):
            if attempt:
                time.sleep(_REFUSED_PAUSE_SECONDS)
            if not all(map(_refuses, servers)):
                return
        raise self._unreachable(": each of these addresses refused the connection")

    def _unreachable(self, why: str) -> ClusterError:
        return ClusterError(
            redact(
                f"cluster {self.name} can't be reached at {self._bootstrap_servers}{why}: "
                f"check clusters.{self.name} in the settings, and that the brokers are up",
                self._secrets,
            )
        )

    def _run(self, send: Callable[..., Any], *arguments: object) -> Any:
        try:
            return self._manager.run(send, *arguments)
        except Exception as error:
            if isinstance(error, kafka_errors.IncompatibleBrokerVersion):
                raise ApiMissing(
                    f"the brokers of cluster {self.name} are too old: {words_of(error)} Nothing was sent; upgrade "
                    "the brokers, or leave this out"
                ) from None
            self._admin._controller_id = None
            if isinstance(error, kafka_errors.UnknownBrokerIdError):
                # The broker joined after we connected; kafka-python refreshes by itself only every five minutes.
                with suppress(Exception):
                    self._manager.run(self._manager.cluster.refresh_metadata)
            gone = isinstance(error, kafka_errors.KafkaConnectionError | OSError) and foreign_code(error) is None
            words = f"cluster {self.name} at {self._bootstrap_servers} gave no answer: {words_of(error)}"
            raise (Disconnected if gone else RequestLost)(redact(words, self._secrets)) from None

    def _any_broker(self, request: Any) -> Any:
        """Return any broker's answer to a request that only reads; if a broker is gone, ask the next one."""
        for _ in range(_BROKERS_GONE):
            with suppress(Disconnected):
                return self._run(self._manager.send, request)
        return self._run(self._manager.send, request)

    def ask(self, request: Any, broker_id: int | None = None) -> Any:
        """Send a request that only reads, and return the named broker's answer, or any broker's if none is named.

        If the answer asks to wait (throttle), waits before it returns. Raises RequestLost if no answer arrives.
        """
        if broker_id is not None and self._manager.cluster.broker_metadata(broker_id) is None:
            # The broker joined after we connected; kafka-python refreshes by itself only every five minutes.
            self._run(self._manager.cluster.refresh_metadata)
        response = self._any_broker(request) if broker_id is None else self._run(self._manager.send, request, broker_id)
        if response.throttle_time_ms > 0:
            # kafka-python refuses to send to a throttled broker instead of waiting.
            time.sleep(response.throttle_time_ms / 1000 + THROTTLE_MARGIN_SECONDS)
        return response

    def metadata(self, topics: Collection[str] | None, *, operations: bool = False) -> Any:
        """Return Kafka's MetadataResponse with brokers and the named topics; all topics if `topics` is None (M1)."""
        named = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(
            topics=named,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=operations,
        )
        return self._any_broker(request)

    @property
    def broker_version(self) -> tuple[int, ...]:
        """The newest version of Kafka whose requests the brokers know, or `api_version` of the settings."""
        return tuple(self._manager.broker_version)

    def supports(self, request: type, version: int = 0) -> bool:
        """Whether both sides know a request in `version` or a newer one."""
        try:
            return bool(self._manager.broker_version_data.api_version(request) >= version)
        except kafka_errors.IncompatibleBrokerVersion:
            return False
