"""The wheel as its users have it: installed beside the Spark that they chose, far from any checkout."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.standalone import free_port
from tests.waiting import until

DELTA_SETTINGS: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_OF_THIS_PROCESS = ("PYSPARK", "PYTHON", "SPARK", "TOPICLEDGER", "VIRTUAL_ENV")
"""Prefixes of environment variables that users don't have."""


@dataclass(frozen=True, kw_only=True)
class Installed:
    """An environment with pyspark and the wheel, and Delta's jars for that Spark."""

    spark: str
    folder: Path
    delta: Sequence[Path]

    @property
    def python(self) -> Path:
        """The Python of the environment."""
        return self.folder / "bin" / "python"

    @property
    def pyspark(self) -> Path:
        """The folder of the package pyspark."""
        return next(self.folder.glob("lib/python*/site-packages/pyspark"))

    @property
    def jars(self) -> str:
        """The value of `spark.jars` that gives Spark Delta."""
        return ",".join(map(str, self.delta))

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a user's process."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith(_OF_THIS_PROCESS)}
        return {**ours, "SPARK_LOCAL_IP": "127.0.0.1", **more}

    def run(self, folder: Path, *arguments: str, timeout: float = 600, **more: str) -> subprocess.CompletedProcess[str]:
        """Run the command `topicledger` in a folder to its end."""
        command = [str(self.folder / "bin" / "topicledger"), *arguments]
        return subprocess.run(
            command, cwd=folder, env=self.environment(**more), capture_output=True, text=True, timeout=timeout
        )

    @contextmanager
    def connect_server(self, folder: Path, settings: Mapping[str, str], **more: str) -> Iterator[str]:
        """Within it a server of Spark Connect is up, from pyspark's own jars; yields its address.

        `settings`: Spark's. `more`: its environment, which the clients don't have.
        """
        port = free_port()
        given = {
            "spark.master": "local[2]",
            "spark.driver.memory": "1500m",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "4",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
            **settings,
        }
        arguments = [part for name, value in given.items() for part in ("--conf", f"{name}={value}")]
        server = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", *arguments, "spark-internal"]
        environment = self.environment(SPARK_HOME=str(self.pyspark), PYSPARK_PYTHON=str(self.python), **more)
        with (
            (folder / "server.log").open("wb") as log,
            subprocess.Popen(
                [self.pyspark / "bin" / "spark-submit", *server], cwd=folder, env=environment, stdout=log, stderr=log
            ) as process,
        ):
            try:
                until(lambda: listens(port) or process.poll() is not None, seconds=120)
                assert process.poll() is None, (folder / "server.log").read_text(errors="replace")
                yield f"sc://127.0.0.1:{port}"
            finally:
                process.terminate()


def listens(port: int) -> bool:
    """Whether a process of this machine listens on the port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def given_to_spark(folder: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with which Spark reads these settings, as a cluster's own `spark-defaults.conf`."""
    folder.mkdir()
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")
    return {"SPARK_CONF_DIR": str(folder)}
