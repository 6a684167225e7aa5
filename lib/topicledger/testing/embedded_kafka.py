"""A real Kafka in KRaft mode on this machine, from its jars: for the demo, for tests, for trying things out.

Brokers are plain `java -cp` processes on loopback, each broker and controller in one. They never outlive this Python,
however it ends (see `process_keeper`).
`python -m topicledger.testing.embedded_kafka --jars DIR` runs one in the foreground.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from topicledger.errors import ExitCode, TopicLedgerError
from topicledger.testing import process_keeper

HOST = "127.0.0.1"
START_SECONDS = 60.0
STOP_SECONDS = 30.0
_POLL_SECONDS = 0.05
_BIND_ATTEMPTS = 4
# Below Linux's ephemeral range: no outgoing connection can take a stopped broker's port before it is started again.
_PORTS = range(20000, 32000)
_JVM_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)


class EmbeddedKafkaError(TopicLedgerError):
    """The embedded Kafka can't be started or did not do what it was asked; shows the end of the broker's log."""


class _PortTakenError(EmbeddedKafkaError):
    """Another process took a port after it was found free and before the broker bound it."""


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A way for clients to come in, beside the plain one."""

    protocol: str
    """SSL, SASL_SSL, SASL_PLAINTEXT or PLAINTEXT."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Its server properties, without their prefix `listener.name.NAME.`."""


@dataclass(frozen=True, kw_only=True)
class KafkaOptions:
    """What kind of cluster to run."""

    brokers: int = 1
    """How many; node ids are 1..n."""
    racks: tuple[str, ...] = ()
    """One per broker, in order; empty for none."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Further server properties; they win over the defaults."""
    sasl_users: Mapping[str, str] = field(default_factory=dict)
    """Name -> password. If any, clients need SASL/PLAIN and ACLs are enforced; the first user is the super user."""
    listeners: Mapping[str, Listener] = field(default_factory=dict)
    """Further listeners of each broker by name, on free ports; `addresses` has them."""
    classpath: tuple[Path, ...] = ()
    """Further jars and folders of classes, e.g. a CreateTopicPolicy."""
    heap: str = "512m"
    """Each broker's largest heap, as Java's -Xmx takes it."""

    def __post_init__(self) -> None:
        if self.brokers < 1:
            raise EmbeddedKafkaError(f"An embedded Kafka needs at least one broker, not {self.brokers}.")
        if self.racks and len(self.racks) != self.brokers:
            raise EmbeddedKafkaError(f"{self.brokers} brokers need {self.brokers} racks, not {len(self.racks)}.")


@dataclass(frozen=True, kw_only=True)
class Broker:
    """One broker as it is now."""

    node_id: int
    port: int
    """Where clients connect."""
    rack: str | None
    pid: int | None
    """The Java process; None while the broker is stopped."""
    log: Path
    """What it writes, warnings and worse."""


@dataclass(frozen=True, kw_only=True)
class _Node:
    """A broker's place: what stays the same when it is stopped and started again."""

    node_id: int
    rack: str | None
    client_port: int
    controller_port: int
    broker_port: int
    further_ports: Mapping[str, int]
    """By listener."""
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


class EmbeddedKafka:
    """A Kafka cluster that lives as long as this object's `with` block, and never longer than this process.

    Without `folder` its data is in a temporary folder that goes when it stops; a given folder is kept and must be
    empty. Stopping kills: nothing of the data is meant to be used again.
    """

    def __init__(self, jars: Path, options: KafkaOptions | None = None, folder: Path | None = None) -> None:
        self.jars = jars
        self.options = options if options is not None else KafkaOptions()
        self.cluster_id = _random_kafka_uuid()
        self._kept_folder = folder
        self._keeper: _Keeper | None = None
        self._nodes: dict[int, _Node] = {}
        self._pids: dict[int, int] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> list[str]:
        """Every broker's `host:port`, running or not."""
        return [f"{HOST}:{node.client_port}" for node in self._nodes.values()]

    def addresses(self, listener: str) -> list[str]:
        """Every broker's `host:port` of one of the further listeners."""
        return [f"{HOST}:{node.further_ports[listener]}" for node in self._nodes.values()]

    @property
    def folder(self) -> Path:
        """Where properties, logs and data are, a folder for each broker."""
        return self._running().folder

    @property
    def brokers(self) -> list[Broker]:
        """Every broker, in order of node id."""
        return [
            Broker(
                node_id=node.node_id,
                port=node.client_port,
                rack=node.rack,
                pid=self._pids.get(node.node_id),
                log=node.log,
            )
            for node in self._nodes.values()
        ]

    def client_options(self, user: str | None = None) -> dict[str, Any]:
        """Return kafka-python's options for a client of this cluster; with SASL as `user`, else as the super user."""
        options: dict[str, Any] = {"bootstrap_servers": self.bootstrap_servers}
        if self.options.sasl_users:
            name = user if user is not None else next(iter(self.options.sasl_users))
            options |= {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "PLAIN",
                "sasl_plain_username": name,
                "sasl_plain_password": self.options.sasl_users[name],
            }
        return options

    def start(self) -> None:
        """Start all brokers and return when each of them answers and knows of the others.

        Raises:
            EmbeddedKafkaError: Java or the jars are missing, or the cluster was not ready within START_SECONDS.
        """
        if self._keeper is not None:
            raise EmbeddedKafkaError("This embedded Kafka is running already.")
        java = _java()
        if not any(self.jars.glob("kafka-server-*.jar")):
            raise EmbeddedKafkaError(f"There are no Kafka jars in {self.jars}: run `make setup`.")
        if self._kept_folder is not None:
            self._kept_folder.mkdir(parents=True, exist_ok=True)
            if any(self._kept_folder.iterdir()):
                raise EmbeddedKafkaError(f"The folder {self._kept_folder} is not empty.")
        deadline = time.monotonic() + START_SECONDS
        try:
            self._keeper = _Keeper(self._kept_folder)
            for attempt in range(1, _BIND_ATTEMPTS + 1):
                try:
                    self._start_all(java, deadline)
                    return
                except _PortTakenError:
                    if attempt == _BIND_ATTEMPTS:
                        raise
                    self._kill_all()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill the brokers and remove the temporary folder. Harmless when nothing runs."""
        keeper, self._keeper = self._keeper, None
        self._pids.clear()
        if keeper is not None:
            keeper.close()

    def wait(self) -> None:
        """Block until a broker ends of itself.

        Raises:
            EmbeddedKafkaError: always, when it returns at all: a broker ended that should not have.
        """
        while True:
            for node_id in list(self._pids):
                self._refuse_if_dead(self._nodes[node_id])
            time.sleep(1)

    def stop_broker(self, node_id: int) -> None:
        """Let one broker shut down in good order, and wait until it has; its data stays."""
        self._end_broker(node_id, signal.SIGTERM)

    def kill_broker(self, node_id: int) -> None:
        """Kill one broker with SIGKILL, as a crash would, and wait until it is gone; its data stays."""
        self._end_broker(node_id, signal.SIGKILL)

    def start_broker(self, node_id: int) -> None:
        """Start a stopped broker again, on the same ports and data, and wait until it answers.

        It waits for the controller to give up the broker's old session, `broker.session.timeout.ms`, 9 s by default.
        """
        if node_id in self._pids:
            raise EmbeddedKafkaError(f"Broker {node_id} is running already.")
        node = self._node(node_id)
        self._launch(_java(), node)
        self._await_ready([node], time.monotonic() + START_SECONDS)

    def _running(self) -> _Keeper:
        if self._keeper is None:
            raise EmbeddedKafkaError("This embedded Kafka is not running.")
        return self._keeper

    def _node(self, node_id: int) -> _Node:
        if node_id not in self._nodes:
            raise EmbeddedKafkaError(f"There is no broker {node_id}; there are {sorted(self._nodes)}.")
        return self._nodes[node_id]

    def _start_all(self, java: str, deadline: float) -> None:
        folder = self._running().folder
        with _free_ports((3 + len(self.options.listeners)) * self.options.brokers) as ports:
            self._nodes = {
                node_id: _Node(
                    node_id=node_id,
                    rack=self.options.racks[node_id - 1] if self.options.racks else None,
                    client_port=ports.pop(),
                    controller_port=ports.pop(),
                    broker_port=ports.pop(),
                    further_ports={name: ports.pop() for name in self.options.listeners},
                    folder=folder / f"broker-{node_id}",
                )
                for node_id in range(1, self.options.brokers + 1)
            }
            for node in self._nodes.values():
                node.folder.mkdir(parents=True)
                node.properties_file.write_text(_as_properties(self._server_properties(node)), encoding="utf-8")
            self._format(java, deadline)
        # The ports are ours until here; from here on a broker that can't bind says so in its log.
        for node in self._nodes.values():
            self._launch(java, node)
        self._await_ready(list(self._nodes.values()), deadline)

    def _format(self, java: str, deadline: float) -> None:
        """Give every broker's folder its ids, all at once: each of these is a JVM that mostly waits."""
        keeper = self._running()
        for node in self._nodes.values():
            tool = ["kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", str(node.properties_file)]
            argv = self._java_command(java, node, "-XX:TieredStopAtLevel=1", *tool)
            keeper.start(f"format-{node.node_id}", argv, node.log)
        for node in self._nodes.values():
            name = f"format-{node.node_id}"
            _await(lambda name=name: keeper.poll(name) is not None, deadline)  # type: ignore[misc]
            if keeper.poll(name) != 0:
                raise EmbeddedKafkaError(f"Broker {node.node_id}'s storage can't be formatted.{_tail(node.log)}")

    def _launch(self, java: str, node: _Node) -> None:
        argv = self._java_command(java, node, f"-Xmx{self.options.heap}", "kafka.Kafka", str(node.properties_file))
        self._pids[node.node_id] = self._running().start(node.name, argv, node.log)

    def _java_command(self, java: str, node: _Node, *arguments: str) -> list[str]:
        classpath = os.pathsep.join([*map(str, self.options.classpath), f"{self.jars}{os.sep}*"])
        return [java, *_JVM_OPTIONS, f"-Djava.io.tmpdir={node.folder}", "-cp", classpath, *arguments]

    def _await_ready(self, nodes: Sequence[_Node], deadline: float) -> None:
        """Wait until every node answers ApiVersions and is in the cluster's own list of brokers."""
        waiting = list(nodes)

        def all_answer() -> bool:
            for node in waiting:
                self._refuse_if_dead(node)
            waiting[:] = [node for node in waiting if not _answers(node.client_port)]
            return not waiting

        expected = {node.node_id for node in nodes}

        def all_listed() -> bool:
            for node in nodes:
                self._refuse_if_dead(node)
            return expected <= self._listed_brokers(nodes[0])

        if not (_await(all_answer, deadline) and _await(all_listed, deadline)):
            slow = (waiting or nodes)[0]
            raise EmbeddedKafkaError(
                f"Broker {slow.node_id} was not ready within {START_SECONDS:.0f} s.{_tail(slow.log)}"
            )

    def _refuse_if_dead(self, node: _Node) -> None:
        code = self._running().poll(node.name)
        if code is None:
            return
        tail = _tail(node.log)
        kind = _PortTakenError if "Address already in use" in tail else EmbeddedKafkaError
        raise kind(f"Broker {node.node_id} ended with exit code {code} unasked.{tail}")

    def _listed_brokers(self, node: _Node) -> set[int]:
        options = self.client_options() | {"bootstrap_servers": [f"{HOST}:{node.client_port}"]}
        try:
            with closing(KafkaAdminClient(**options, bootstrap_timeout_ms=10_000, request_timeout_ms=10_000)) as admin:
                described = admin.describe_cluster()
        except (KafkaError, OSError):
            return set()
        if described["cluster_id"] != self.cluster_id:
            raise _PortTakenError(f"Another cluster, {described['cluster_id']}, answers on port {node.client_port}.")
        return {broker["broker_id"] for broker in described["brokers"]}

    def _end_broker(self, node_id: int, number: signal.Signals) -> None:
        node, keeper = self._node(node_id), self._running()
        if node_id not in self._pids:
            raise EmbeddedKafkaError(f"Broker {node_id} is not running.")
        keeper.signal(node.name, number)
        if not _await(lambda: keeper.poll(node.name) is not None, time.monotonic() + STOP_SECONDS):
            # Without a majority of controllers a shutdown in good order never ends.
            keeper.signal(node.name, signal.SIGKILL)
            _await(lambda: keeper.poll(node.name) is not None, time.monotonic() + STOP_SECONDS)
        del self._pids[node_id]

    def _kill_all(self) -> None:
        for node_id in list(self._pids):
            self.kill_broker(node_id)
        for node in self._nodes.values():
            shutil.rmtree(node.folder)

    def _server_properties(self, node: _Node) -> dict[str, str]:
        options = self.options
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
            "controller.quorum.voters": ",".join(
                f"{each.node_id}@{HOST}:{each.controller_port}" for each in self._nodes.values()
            ),
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
        }
        if node.rack is not None:
            properties["broker.rack"] = node.rack
        return properties | (self._sasl_properties() if sasl else {}) | further | dict(options.properties)

    def _sasl_properties(self) -> dict[str, str]:
        users = self.options.sasl_users
        known = " ".join(f"user_{name}={_jaas_quoted(password)}" for name, password in users.items())
        return {
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.client.plain.sasl.jaas.config": (
                f"org.apache.kafka.common.security.plain.PlainLoginModule required {known};"
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # Brokers and controllers talk to each other unauthenticated, on listeners of their own.
            "super.users": f"User:{next(iter(users))};User:ANONYMOUS",
        }


class _Keeper:
    """This side of the conversation with `process_keeper`; any thread may use it."""

    def __init__(self, folder: Path | None) -> None:
        self._lock = threading.Lock()
        arguments = [str(os.getpid()), *([str(folder)] if folder is not None else [])]
        # -I and -S: nothing of the package, the environment or site-packages, so that it starts in milliseconds.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(process_keeper.__file__)), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            # Ctrl-C in a terminal reaches this process only; the keeper follows in its own way.
            start_new_session=True,
        )
        self.folder = Path(self._answer()["folder"])

    def start(self, name: str, argv: Sequence[str], log: Path) -> int:
        """Start a process and return its id."""
        return int(self._ask(start=name, argv=list(argv), log=str(log))["pid"])

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a process that this keeper started; none if it has ended."""
        self._ask(signal=name, number=int(number))

    def poll(self, name: str) -> int | None:
        """Return a process's exit code, None while it runs."""
        code = self._ask(poll=name)["returncode"]
        return None if code is None else int(code)

    def close(self) -> None:
        """Let the keeper kill what runs, remove its folder and end."""
        with closing(self._pipe(self._process.stdout)), self._lock:
            with suppress(BrokenPipeError):
                self._pipe(self._process.stdin).close()
            self._process.wait()

    def _ask(self, **request: object) -> dict[str, Any]:
        with self._lock:
            requests = self._pipe(self._process.stdin)
            try:
                requests.write(json.dumps(request) + "\n")
                requests.flush()
            except BrokenPipeError:
                raise EmbeddedKafkaError("The embedded Kafka's keeper has ended, and the brokers with it.") from None
            return self._answer()

    def _answer(self) -> dict[str, Any]:
        line = self._pipe(self._process.stdout).readline()
        if not line:
            raise EmbeddedKafkaError("The embedded Kafka's keeper has ended, and the brokers with it.")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EmbeddedKafkaError(f"The embedded Kafka's keeper reports: {answer['error']}")
        return answer

    @staticmethod
    def _pipe(pipe: Any) -> TextIO:
        assert pipe is not None, "opened with PIPE"
        opened: TextIO = pipe
        return opened


def _random_kafka_uuid() -> str:
    """A random id the way Kafka writes one; like Kafka, none that could pass for a command line option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise EmbeddedKafkaError(f"There is no java {where}: install Java 17 or newer, e.g. openjdk-17-jre-headless.")
    return java


@contextmanager
def _free_ports(count: int) -> Iterator[list[int]]:
    """Yield `count` ports that nothing else can bind while the context is open."""
    held: list[socket.socket] = []
    try:
        for port in random.sample(_PORTS, len(_PORTS)):
            candidate = socket.socket()
            held.append(candidate)
            try:
                candidate.bind((HOST, port))
            except OSError:
                held.pop().close()
            if len(held) == count:
                break
        else:
            raise EmbeddedKafkaError(f"Fewer than {count} ports from {_PORTS.start} to {_PORTS.stop - 1} are free.")
        yield [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


def _answers(port: int) -> bool:
    """Whether a broker answers ApiVersions (version 0, which every broker speaks, before any authentication)."""
    api_key, version, correlation_id, client = 18, 0, 1, b"probe"
    request = struct.pack(">hhih", api_key, version, correlation_id, len(client)) + client
    try:
        with socket.create_connection((HOST, port), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.makefile("rb").read(10)
    except OSError:
        return False
    return len(answer) == 10 and struct.unpack(">iih", answer)[1:] == (correlation_id, 0)


def _await(condition: Callable[[], bool], deadline: float) -> bool:
    """Wait until `condition` holds; False if it does not by `deadline` on the monotonic clock."""
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _tail(log: Path, lines: int = 25) -> str:
    """The end of a broker's log, to follow a sentence of an error."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        text = ""
    last = text.splitlines()[-lines:]
    return "\n".join([" Its log ends:", *(f"    {line}" for line in last)]) if last else " Its log is empty."


def _as_properties(properties: Mapping[str, str]) -> str:
    """A Java properties file; backslashes are the one character in our values that it would eat."""
    return "".join(f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in properties.items())


def _jaas_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _end_on_signal(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a cluster in the foreground until Ctrl-C or SIGTERM; its address is the one line on standard output."""
    parser = argparse.ArgumentParser(prog="topicledger.testing.embedded_kafka", description=main.__doc__)
    parser.add_argument("--jars", type=Path, required=True, help="folder of Kafka's jars")
    parser.add_argument("--brokers", type=int, default=1, help="how many brokers (default: 1)")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _end_on_signal)
    try:
        with EmbeddedKafka(given.jars, KafkaOptions(brokers=given.brokers)) as kafka:
            print(",".join(kafka.bootstrap_servers), flush=True)
            print("Kafka is up. Ctrl-C stops it; its data goes with it.", file=sys.stderr)
            kafka.wait()
    except KeyboardInterrupt:
        return ExitCode.DONE
    except TopicLedgerError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
