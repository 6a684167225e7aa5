"""A real Spark standalone cluster: a master and two workers, processes of the test's own."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests import commands
from tests.waiting import until


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[str]:
    """Within it a master with two workers of one core each is up; yields its address."""
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    port = free_port()
    deploy = "org.apache.spark.deploy"
    environment = commands.environment(
        SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable, SPARK_WORKER_DIR=str(folder / "work")
    )
    address = f"spark://127.0.0.1:{port}"
    master = [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = [f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
    processes: list[subprocess.Popen[bytes]] = []
    log = folder / "log"
    with log.open("wb") as output:
        try:
            for arguments in (master, [*worker, address], [*worker, address]):
                processes.append(
                    subprocess.Popen([spark_class, *arguments], env=environment, stdout=output, stderr=output)
                )
            until(lambda: log.read_text().count("Successfully registered with master") == 2, seconds=180)
            yield address
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(30)
