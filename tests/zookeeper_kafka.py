"""A Kafka of before KRaft: brokers and their ZooKeeper, all from the brokers' own jars."""

from __future__ import annotations

import json
import socket
import subprocess
import time

from topicledger_testing.embedded_kafka import HOST, START_SECONDS, EmbeddedKafka, EmbeddedKafkaError
from topicledger_testing.machine import awaited, tail
from topicledger_testing.options import Node, as_properties, server_properties


class ZooKeeperKafka(EmbeddedKafka):
    """ZooKeeper listens where a KRaft controller of the first broker would, and ends when the cluster does."""

    _zookeeper_port: int | None = None

    def _format(self, java: str, deadline: float) -> None:
        """ZooKeeper takes the place of what KRaft formats, once its port isn't held for it any more."""

    def _launch(self, java: str, node: Node) -> None:
        first = next(iter(self._nodes.values()))
        if self._zookeeper_port != first.controller_port:
            self._start_zookeeper(java, first)
            self._zookeeper_port = first.controller_port
        node.properties_file.write_text(as_properties(self._properties(node)), encoding="utf-8")
        super()._launch(java, node)

    def _properties(self, node: Node) -> dict[str, str]:
        kraft = server_properties(node, self._nodes.values(), self.options)
        listeners = [each for each in kraft["listeners"].split(",") if not each.startswith("CONTROLLER:")]
        ours = {
            "broker.id": str(node.node_id),
            "zookeeper.connect": f"{HOST}:{self._zookeeper_port}",
            "listeners": ",".join(listeners),
        }
        if self.options.sasl_users:
            ours["authorizer.class.name"] = "kafka.security.authorizer.AclAuthorizer"
        of_kraft = ("controller.", "process.", "node.")
        return {**{key: value for key, value in kraft.items() if not key.startswith(of_kraft)}, **ours}

    def _start_zookeeper(self, java: str, node: Node) -> None:
        """Start it, with the cluster's id where a first broker would put a random one."""
        keeper, port = self._running(), node.controller_port
        log = node.folder / "zookeeper.log"
        server = "org.apache.zookeeper.server.ZooKeeperServerMain"
        data = node.folder / "zookeeper"
        options = "-Dzookeeper.admin.enableServer=false"
        keeper.start("zookeeper", self._java_command(java, node, options, server, str(port), str(data)), log)
        if not awaited(lambda: _listens(port), time.monotonic() + START_SECONDS):
            raise EmbeddedKafkaError(f"ZooKeeper doesn't listen on port {port}.{tail(log)}")
        cluster_id = json.dumps({"version": "1", "id": self.cluster_id})
        for path, content in (("/cluster", "x"), ("/cluster/id", cluster_id)):
            create = ["org.apache.zookeeper.ZooKeeperMain", "-server", f"{HOST}:{port}", "create", path, content]
            command = self._java_command(java, node, *create)
            # It doesn't wait for its connection, and fails where that takes a moment.
            if not awaited(lambda command=command: _succeeds(command), time.monotonic() + START_SECONDS):  # type: ignore[misc]
                raise EmbeddedKafkaError(f"ZooKeeper doesn't take {path}.{tail(log)}")


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, check=False, capture_output=True, timeout=60).returncode == 0


def _listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=2).close()
    except OSError:
        return False
    return True
