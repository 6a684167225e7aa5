"""The job on a real Spark standalone cluster: a master and two worker processes of the test's own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.harness import Estate, topics
from tests.standalone import standalone_cluster
from topicledger_testing.embedded_kafka import EmbeddedKafka

WHERE = """
import sys
import pyarrow as pa
from topicledger.ledger.session import get_session

def where(batches):
    import topicledger
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"file": [topicledger.__file__] * batch.num_rows})

spark = get_session("where")
rows = spark.range(4).repartition(4).mapInArrow(where, "file string").collect()
print("\\n".join(row.file for row in rows))
"""


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a master with two workers of one core each."""
    with standalone_cluster(tmp_path_factory.mktemp("standalone")) as address:
        yield address


@pytest.mark.thorough
def test_executors_import_the_package_from_the_zip(standalone: str, tmp_path: Path) -> None:
    job = tmp_path / "where.py"
    job.write_text(WHERE)
    done = commands.run([str(commands.SUBMIT), str(job)], SPARK_MASTER=standalone)
    assert done.returncode == 0, done.stderr
    files = done.stdout.split()
    assert len(files) == 4
    assert all("topicledger.zip" in file for file in files), files


@pytest.mark.thorough
def test_a_run_on_two_workers_observes_on_them_and_finishes(
    standalone: str, spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    servers = {"main": kafka.bootstrap_servers}
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    names = [f"standalone-{number}" for number in range(20)]
    estate.declare(*topics(names, num_partitions=2))
    job = str(commands.REPOSITORY / "jobs" / "provision.py")

    def provision(*, single_writer: bool) -> subprocess.CompletedProcess[str]:
        config = commands.settings_file(tmp_path, servers, single_writer=single_writer)
        arguments = [str(commands.SUBMIT), job, "--config", str(config), "--run-id", "standalone"]
        return commands.run(arguments, SPARK_MASTER=standalone)

    refused = provision(single_writer=False)
    assert refused.returncode == 2
    assert f"since Spark's master is {standalone}" in refused.stderr
    done = provision(single_writer=True)
    assert done.returncode == 0, done.stderr
    assert set(estate.last("standalone").values()) == {("verify", "ok", None)}
    estate.check_invariant("standalone")


@pytest.mark.thorough
def test_spark_itself_takes_no_python_there_in_deploy_mode_cluster(standalone: str, tmp_path: Path) -> None:
    """Why `spark-submit.sh` refuses it. Where this fails, Spark takes it by now: test runs in that mode instead."""
    script = tmp_path / "nothing.py"
    script.write_text("")
    spark_submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    done = commands.run([spark_submit, "--master", standalone, "--deploy-mode", "cluster", str(script)])
    assert done.returncode == 1
    assert "not supported for python applications on standalone clusters" in done.stderr
