"""The job on a real Spark standalone cluster: a master and two worker processes of the test's own."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.harness import Estate, topics
from tests.waiting import until
from topicledger.embedded_kafka import EmbeddedKafka

WHERE = """
import sys
import pyarrow as pa
from topicledger.session import get_session

def where(batches):
    import topicledger
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"file": [topicledger.__file__] * batch.num_rows})

spark = get_session("where")
rows = spark.range(4).repartition(4).mapInArrow(where, "file string").collect()
print("\\n".join(row.file for row in rows))
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a master with two workers of one core each."""
    folder = tmp_path_factory.mktemp("standalone")
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
            until(lambda: log.read_text().count("Successfully registered with master") == 2, seconds=60)
            yield address
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(30)


def test_executors_import_the_package_from_the_zip(standalone: str, tmp_path: Path) -> None:
    job = tmp_path / "where.py"
    job.write_text(WHERE)
    done = commands.run([str(commands.SUBMIT), str(job)], SPARK_MASTER=standalone)
    assert done.returncode == 0, done.stderr
    files = done.stdout.split()
    assert len(files) == 4
    assert all("topicledger.zip" in file for file in files), files


def test_a_run_on_two_workers_observes_on_them_and_finishes(
    standalone: str, spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    config = commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers})
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    names = [f"standalone-{number}" for number in range(20)]
    estate.declare(*topics(names, num_partitions=2))
    job = str(commands.REPOSITORY / "jobs" / "provision.py")
    arguments = [str(commands.SUBMIT), job, "--config", str(config), "--run-id", "standalone"]
    done = commands.run(arguments, SPARK_MASTER=standalone)
    assert done.returncode == 0, done.stderr
    assert set(estate.last("standalone").values()) == {("verify", "ok", None)}
    estate.check_invariant("standalone")
