"""A real Kafka in KRaft mode on this machine, started from its jars, for tests, the demo and experiments.

Brokers are plain `java -cp` processes on loopback; each is both broker and controller. They never outlive this Python
process, however it ends (see `process_keeper`).
`python -m topicledger_testing.embedded_kafka --jars DIR` runs one in the foreground.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from topicledger.errors import ExitCode, TopicLedgerError
from topicledger_testing import machine
from topicledger_testing.keeper import Keeper
from topicledger_testing.machine import answers, awaited, free_ports, random_kafka_uuid, tail
from topicledger_testing.options import (
    HOST,
    Broker,
    EmbeddedKafkaError,
    KafkaOptions,
    Listener,
    Node,
    as_properties,
    server_properties,
)

__all__ = ["HOST", "Broker", "EmbeddedKafka", "EmbeddedKafkaError", "KafkaOptions", "Listener"]

START_SECONDS = 180.0
STOP_SECONDS = 30.0
_BIND_ATTEMPTS = 4
_JVM_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    # Java's reasons why an archive lacks some classes, or isn't used, help nobody.
    "-Xlog:cds=off",
    "-Xlog:cds+dynamic=off",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)

ARCHIVE = "classes.jsa"
"""File beside the jars, if there is one, with a broker's classes, already parsed and verified."""


class _PortTakenError(EmbeddedKafkaError):
    """Another process took a port between the check that it is free and the broker's start."""


class EmbeddedKafka:
    """A Kafka cluster that lives as long as this object's `with` block, and never longer than this process.

    Without `folder`, its data is in a temporary folder that is removed when it stops. A given folder must be empty, and
    is kept. Stopping kills the brokers: their data isn't meant to be used again.
    """

    def __init__(self, jars: Path, options: KafkaOptions | None = None, folder: Path | None = None) -> None:
        self.jars = jars
        self.options = options if options is not None else KafkaOptions()
        self.cluster_id = random_kafka_uuid()
        self._kept_folder = folder
        self._keeper: Keeper | None = None
        self._nodes: dict[int, Node] = {}
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
        """Return every broker's `host:port` of one of the additional listeners."""
        return [f"{HOST}:{node.further_ports[listener]}" for node in self._nodes.values()]

    @property
    def folder(self) -> Path:
        """The folder of properties, logs and data, with a folder for each broker."""
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
        """Start all brokers and return when each of them answers and lists the others.

        Raises EmbeddedKafkaError if Java or the jars are missing, or the cluster isn't ready within START_SECONDS.
        """
        if self._keeper is not None:
            raise EmbeddedKafkaError("This embedded Kafka is already running.")
        java = machine.java()
        if not any(self.jars.glob("kafka_2.*.jar")):
            raise EmbeddedKafkaError(f"There are no Kafka jars in {self.jars}: run `make setup`.")
        if self._kept_folder is not None:
            self._kept_folder.mkdir(parents=True, exist_ok=True)
            if any(self._kept_folder.iterdir()):
                raise EmbeddedKafkaError(f"The folder {self._kept_folder} is not empty.")
        deadline = time.monotonic() + START_SECONDS
        try:
            self._keeper = Keeper(self._kept_folder)
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
        """Kill the brokers and remove the temporary folder. Does nothing if no broker runs."""
        keeper, self._keeper = self._keeper, None
        self._pids.clear()
        if keeper is not None:
            keeper.close()

    def wait(self) -> None:
        """Block until a broker ends by itself, then raise EmbeddedKafkaError."""
        while True:
            for node_id in list(self._pids):
                self._refuse_if_dead(self._nodes[node_id])
            time.sleep(1)

    def stop_broker(self, node_id: int) -> None:
        """Shut one broker down cleanly, and wait until it has ended; its data stays."""
        self._end_broker(node_id, signal.SIGTERM)

    def kill_broker(self, node_id: int) -> None:
        """Kill one broker with SIGKILL, as a crash would, and wait until it is gone; its data stays."""
        self._end_broker(node_id, signal.SIGKILL)

    def start_broker(self, node_id: int) -> None:
        """Start a stopped broker again, with the same ports and data, and wait until it answers.

        This includes waiting for the end of its old session, after `broker.session.timeout.ms`, 9 s by default.
        """
        if node_id in self._pids:
            raise EmbeddedKafkaError(f"Broker {node_id} is already running.")
        node = self._node(node_id)
        self._launch(machine.java(), node)
        self._await_ready([node], time.monotonic() + START_SECONDS)

    def _running(self) -> Keeper:
        if self._keeper is None:
            raise EmbeddedKafkaError("This embedded Kafka is not running.")
        return self._keeper

    def _node(self, node_id: int) -> Node:
        if node_id not in self._nodes:
            raise EmbeddedKafkaError(f"There is no broker {node_id}; there are {sorted(self._nodes)}.")
        return self._nodes[node_id]

    def _start_all(self, java: str, deadline: float) -> None:
        folder = self._running().folder
        with free_ports((3 + len(self.options.listeners)) * self.options.brokers) as ports:
            self._nodes = {
                node_id: Node(
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
                node.properties_file.write_text(
                    as_properties(server_properties(node, self._nodes.values(), self.options)), encoding="utf-8"
                )
            self._format(java, deadline)
        # The ports are reserved until here; from now on, a broker that can't bind one logs an error.
        for node in self._nodes.values():
            self._launch(java, node)
        self._await_ready(list(self._nodes.values()), deadline)

    def _format(self, java: str, deadline: float) -> None:
        """Format every broker's folder in parallel, since each JVM mostly waits."""
        keeper = self._running()
        for node in self._nodes.values():
            tool = ["kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", str(node.properties_file)]
            argv = self._java_command(java, node, "-XX:TieredStopAtLevel=1", *tool)
            keeper.start(f"format-{node.node_id}", argv, node.log)
        for node in self._nodes.values():
            name = f"format-{node.node_id}"
            awaited(lambda name=name: keeper.poll(name) is not None, deadline)  # type: ignore[misc]
            if keeper.poll(name) != 0:
                raise EmbeddedKafkaError(f"Broker {node.node_id}'s storage can't be formatted.{tail(node.log)}")

    def _launch(self, java: str, node: Node) -> None:
        argv = self._java_command(java, node, f"-Xmx{self.options.heap}", "kafka.Kafka", str(node.properties_file))
        self._pids[node.node_id] = self._running().start(node.name, argv, node.log)

    def _java_command(self, java: str, node: Node, *arguments: str) -> list[str]:
        # The archive was made with the jars alone: Java takes it if the class path begins with them.
        classpath = os.pathsep.join([f"{self.jars}{os.sep}*", *map(str, self.options.classpath)])
        archive = self.jars / ARCHIVE
        shared = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
        return [java, *_JVM_OPTIONS, *shared, f"-Djava.io.tmpdir={node.folder}", "-cp", classpath, *arguments]

    def _await_ready(self, nodes: Sequence[Node], deadline: float) -> None:
        """Wait until every node answers ApiVersions and lists all of them."""
        waiting = list(nodes)

        def all_answer() -> bool:
            for node in waiting:
                self._refuse_if_dead(node)
            waiting[:] = [node for node in waiting if not answers(node.client_port)]
            return not waiting

        expected = {node.node_id for node in nodes}

        def all_listed() -> bool:
            for node in nodes:
                self._refuse_if_dead(node)
            # All nodes are checked: a node may list the others before they list it.
            return all(expected <= self._listed_brokers(node) for node in nodes)

        if not (awaited(all_answer, deadline) and awaited(all_listed, deadline)):
            slow = (waiting or nodes)[0]
            raise EmbeddedKafkaError(
                f"Broker {slow.node_id} was not ready within {START_SECONDS:.0f} s.{tail(slow.log)}"
            )

    def _refuse_if_dead(self, node: Node) -> None:
        code = self._running().poll(node.name)
        if code is None:
            return
        said = tail(node.log)
        kind = _PortTakenError if "Address already in use" in said else EmbeddedKafkaError
        raise kind(f"Broker {node.node_id} ended unexpectedly with exit code {code}.{said}")

    def _listed_brokers(self, node: Node) -> set[int]:
        # Uses Metadata, as Kafka 2.7 does: kafka-python can't read the DescribeCluster of brokers before 3.7.
        options = self.client_options() | {"bootstrap_servers": [f"{HOST}:{node.client_port}"], "api_version": (2, 7)}
        try:
            with closing(KafkaAdminClient(**options, bootstrap_timeout_ms=10_000, request_timeout_ms=10_000)) as admin:
                # This node's own bootstrap answer, since later requests may go to any broker that it listed.
                listed = {broker.node_id for broker in admin._manager.cluster.brokers()}
                found = admin.describe_cluster()["cluster_id"]
        except (KafkaError, OSError):
            return set()
        if found != self.cluster_id:
            raise _PortTakenError(f"Another cluster, {found}, answers on port {node.client_port}.")
        return listed

    def _end_broker(self, node_id: int, number: signal.Signals) -> None:
        node, keeper = self._node(node_id), self._running()
        if node_id not in self._pids:
            raise EmbeddedKafkaError(f"Broker {node_id} is not running.")
        keeper.signal(node.name, number)
        if not awaited(lambda: keeper.poll(node.name) is not None, time.monotonic() + STOP_SECONDS):
            # Without a majority of controllers, a clean shutdown never ends.
            keeper.signal(node.name, signal.SIGKILL)
            awaited(lambda: keeper.poll(node.name) is not None, time.monotonic() + STOP_SECONDS)
        del self._pids[node_id]

    def _kill_all(self) -> None:
        for node_id in list(self._pids):
            self.kill_broker(node_id)
        for node in self._nodes.values():
            shutil.rmtree(node.folder)


def _end_on_signal(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


USERS = {name: f"{name}-secret" for name in ("admin", "alice", "bob")}
"""Users with `--authorizer`, and their passwords; the first is the super user, the others have no ACLs at first."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a cluster in the foreground until Ctrl-C or SIGTERM; its address is the only line on standard output."""
    parser = argparse.ArgumentParser(prog="topicledger_testing.embedded_kafka", description=main.__doc__)
    parser.add_argument("--jars", type=Path, required=True, help="folder of Kafka's jars")
    parser.add_argument("--brokers", type=int, default=1, help="number of brokers (default: 1)")
    parser.add_argument(
        "--authorizer", action="store_true", help="enforce ACLs for users, who authenticate with SASL/PLAIN"
    )
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _end_on_signal)
    options = KafkaOptions(brokers=given.brokers, sasl_users=USERS if given.authorizer else {})
    print("Starting Kafka; its address follows.", file=sys.stderr, flush=True)
    try:
        with EmbeddedKafka(given.jars, options) as kafka:
            print(",".join(kafka.bootstrap_servers), flush=True)
            if given.authorizer:
                print(_sign_in(kafka), file=sys.stderr)
            print("Kafka is up. Ctrl-C stops it and removes its data.", file=sys.stderr)
            kafka.wait()
    except KeyboardInterrupt:
        return ExitCode.DONE
    except TopicLedgerError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return ExitCode.DONE


def _sign_in(kafka: EmbeddedKafka) -> str:
    """Return client options for the settings file, and the list of users."""
    client = {name: value for name, value in kafka.client_options().items() if name != "bootstrap_servers"}
    others = ", ".join(f"{name} ({password})" for name, password in [*USERS.items()][1:])
    return "\n".join(
        [
            "[clusters.NAME.client]",
            *(f'{name} = "{value}"' for name, value in client.items()),
            f"admin is a super user. Other users (and their passwords), who may do nothing until an ACL allows it: "
            f"{others}.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
