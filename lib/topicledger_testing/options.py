"""Options of an embedded cluster, and its brokers' server.properties."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from topicledger.errors import TopicLedgerError

HOST = "127.0.0.1"


class EmbeddedKafkaError(TopicLedgerError):
    """The embedded Kafka can't be started or failed; shows the end of the broker's log."""


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A listener for clients, beside the plain one."""

    protocol: str
    """SSL, SASL_SSL, SASL_PLAINTEXT or PLAINTEXT."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """The listener's server properties, without the prefix `listener.name.NAME.`."""


@dataclass(frozen=True, kw_only=True)
class KafkaOptions:
    """Options of an embedded cluster."""

    brokers: int = 1
    """Number of brokers; node ids are 1..n."""
    racks: tuple[str, ...] = ()
    """One rack per broker, in order; empty for none."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Additional server properties; they override the defaults."""
    sasl_users: Mapping[str, str] = field(default_factory=dict)
    """Name -> password. With users, clients need SASL/PLAIN and ACLs are enforced; the first user is the super user."""
    listeners: Mapping[str, Listener] = field(default_factory=dict)
    """Additional listeners of each broker by name, on free ports; see `addresses`."""
    classpath: tuple[Path, ...] = ()
    """Additional jars and folders of classes, e.g. a CreateTopicPolicy."""
    heap: str = "512m"
    """Each broker's maximum heap, for Java's -Xmx."""

    def __post_init__(self) -> None:
        if self.brokers < 1:
            raise EmbeddedKafkaError(f"An embedded Kafka needs at least one broker, not {self.brokers}.")
        if self.racks and len(self.racks) != self.brokers:
            raise EmbeddedKafkaError(f"{self.brokers} brokers need {self.brokers} racks, not {len(self.racks)}.")


@dataclass(frozen=True, kw_only=True)
class Broker:
    """The current state of one broker."""

    node_id: int
    port: int
    """The port for clients."""
    rack: str | None
    pid: int | None
    """The Java process; None while the broker is stopped."""
    log: Path
    """The broker's log, with warnings and errors."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A broker's identity, ports and folder, which stay the same when it is stopped and started again."""

    node_id: int
    rack: str | None
    client_port: int
    controller_port: int
    broker_port: int
    further_ports: Mapping[str, int]
    """Ports by listener."""
    folder: Path

    @property
    def name(self) -> str:
        return f"broker-{self.node_id}"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def properties_file(self) -> Path:
        return self.folder / "server.properties"


def server_properties(node: Node, nodes: Collection[Node], options: KafkaOptions) -> dict[str, str]:
    """Return a broker's server.properties; `nodes` are all brokers of its cluster."""
    copies = str(min(3, options.brokers))
    sasl = bool(options.sasl_users)
    protocols = {"CLIENT": "SASL_PLAINTEXT" if sasl else "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
    listeners = {"CLIENT": node.client_port, "CONTROLLER": node.controller_port}
    if sasl:
        protocols["BROKER"] = "PLAINTEXT"
        listeners["BROKER"] = node.broker_port
    further: dict[str, str] = {}
    for name, listener in options.listeners.items():
        protocols[name], listeners[name] = listener.protocol, node.further_ports[name]
        prefix = f"listener.name.{name.lower()}."
        further |= {f"{prefix}{key}": value for key, value in listener.properties.items()}
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "controller.quorum.voters": ",".join(f"{each.node_id}@{HOST}:{each.controller_port}" for each in nodes),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "BROKER" if sasl else "CLIENT",
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "log.dirs": str(node.folder / "data"),
        "auto.create.topics.enable": "false",
        "num.partitions": "1",
        "default.replication.factor": "1",
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "num.network.threads": "2",
        "num.io.threads": "4",
        # An idle broker takes half as much CPU, 1.0 instead of 1.9 % of a core: no empty record every 0.5 s.
        "metadata.max.idle.interval.ms": "0",
    }
    if node.rack is not None:
        properties["broker.rack"] = node.rack
    return properties | (_sasl_properties(options) if sasl else {}) | further | dict(options.properties)


def _sasl_properties(options: KafkaOptions) -> dict[str, str]:
    users = options.sasl_users
    known = " ".join(f"user_{name}={_jaas_quoted(password)}" for name, password in users.items())
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {known};"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # Brokers and controllers talk to each other without authentication, on their own listeners.
        "super.users": f"User:{next(iter(users))};User:ANONYMOUS",
    }


def as_properties(properties: Mapping[str, str]) -> str:
    """Format a Java properties file; in our values, only backslashes need escaping."""
    return "".join(f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in properties.items())


def _jaas_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
