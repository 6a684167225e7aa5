"""The job on a real YARN, with its driver here (deploy mode client) and in a container (deploy mode cluster)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import clusters, commands
from tests.broker.direct import admin_of, set_quota
from tests.harness import Estate, topics
from tests.waiting import until
from tests.yarn.cluster import Yarn
from topicledger.kafka import ClusterAdmin
from topicledger.schemas import RUNS
from topicledger_testing.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.thorough

APPLICATION = re.compile(r"Submitted application (application_\d+_\d+)")
RATE = 5.0
"""Partitions a second that the slow broker creates, after a burst of eleven times as many."""
WHERE = """
import os
import sys
import pyarrow as pa
from topicledger.ledger.session import get_session

def where(batches):
    import topicledger
    here = os.environ["CONTAINER_ID"] + " " + topicledger.__file__
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"here": [here] * batch.num_rows})

spark = get_session("where")
rows = spark.range(8).repartition(8).mapInArrow(where, "here string").collect()
print("\\n".join(row.here for row in rows))
sys.exit(int(sys.argv[1]))
"""


def job(name: str) -> str:
    return str(commands.REPOSITORY / "jobs" / f"{name}.py")


def in_cluster(yarn: Yarn, *options: str) -> dict[str, str]:
    """The environment in which a job is submitted in deploy mode cluster."""
    arguments = " ".join([yarn.environment["TOPICLEDGER_SUBMIT_ARGS"], "--deploy-mode cluster", *options])
    return {**yarn.environment, "TOPICLEDGER_SUBMIT_ARGS": arguments}


def submit(arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return commands.run([str(commands.SUBMIT), *arguments], **environment)


def application(output: str) -> str:
    """The application's id, out of what spark-submit said."""
    found = APPLICATION.search(output)
    assert found, output
    return found[1]


def test_executors_are_containers_that_import_the_package_from_the_zip(yarn: Yarn, tmp_path: Path) -> None:
    script = tmp_path / "where.py"
    script.write_text(WHERE)
    done = submit([str(script), "3"], yarn.environment)
    assert done.returncode == 3, done.stderr
    places = [line.split() for line in done.stdout.splitlines()]
    assert len(places) == 8
    assert all(container.startswith("container_") for container, _ in places), places
    assert all("topicledger.zip" in file for _, file in places), places


def ten_and_one_too_wide(spark: SparkSession, kafka: EmbeddedKafka, folder: Path, name: str) -> tuple[Path, Estate]:
    """The settings and the tables of a run of which one topic fails."""
    servers = {"main": kafka.bootstrap_servers}
    config = commands.settings_file(folder, servers, single_writer=True, more='[kafka]\nobserve = "executors"\n')
    estate = Estate(spark, folder / "ledger", {"main": kafka})
    names = [f"{name}-{number}" for number in range(10)]
    estate.declare(*topics(names), {"topic": f"{name}-wide", "replication_factor": 3})
    return config, estate


def check_only_the_wide_one_failed(estate: Estate, name: str, run_id: str) -> None:
    last = estate.last(run_id)
    assert last.pop(f"{name}-wide") == ("validate", "failed", "INVALID_REPLICATION_FACTOR")
    assert last == {f"{name}-{number}": ("verify", "ok", None) for number in range(10)}
    estate.check_invariant(run_id)


def test_a_client_mode_run_observes_in_containers_and_keeps_its_exit_code(
    yarn: Yarn, spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    config, estate = ten_and_one_too_wide(spark, kafka, tmp_path, "yarn-client")
    done = submit([job("provision"), "--config", str(config), "--run-id", "client"], yarn.environment)
    assert done.returncode == 4, done.stderr
    check_only_the_wide_one_failed(estate, "yarn-client", "client")


@dataclass(frozen=True)
class Slow:
    """A run that isn't over."""

    command: list[str]
    submitted: subprocess.Popen[bytes]
    application: str
    names: list[str]
    estate: Estate
    admin: ClusterAdmin

    def check(self, *, epoch: int) -> None:
        """It is over by its `epoch`th start: every topic was created, once."""
        assert self.estate.last("slow") == dict.fromkeys(self.names, ("verify", "ok", None))
        self.estate.check_invariant("slow")
        (run,) = self.estate.rows(RUNS)
        assert run["epoch"] == epoch


def attempts(yarn: Yarn, application: str) -> list[Path]:
    """The folder of each attempt's driver."""
    return [container for container in yarn.containers(application) if container.name.endswith("_000001")]


def test_a_driver_in_a_container_leaves_result_log_and_exit_code_and_its_second_attempt_does_nothing(
    yarn: Yarn, spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """YARN takes exit code 4 for a failure, and starts the driver of the finished run again."""
    config, estate = ten_and_one_too_wide(spark, kafka, tmp_path, "yarn-cluster")
    result = tmp_path / "result.json"
    arguments = ["--config", config.name, "--run-id", "cluster", "--result-file", str(result)]
    done = submit([job("provision"), *arguments], in_cluster(yarn, f"--files {config}"))
    assert done.returncode == 4, done.stderr
    assert json.loads(result.read_text())["exit_code"] == 4
    check_only_the_wide_one_failed(estate, "yarn-cluster", "cluster")
    (run,) = estate.rows(RUNS)
    assert (run["exit_code"], run["epoch"]) == (4, 1)
    assert "run cluster: finished" not in done.stdout + done.stderr
    started = application(done.stderr)
    said = [(driver / "stdout").read_text() for driver in attempts(yarn, started)]
    assert ["run cluster: finished" in text for text in said] == [True, True]
    assert ["run cluster has already finished" in text for text in said] == [False, True]
    until(lambda: "run cluster: finished" in yarn.log(started), seconds=60, every=1)


def test_wrong_settings_end_with_2_where_the_driver_is_in_a_container(yarn: Yarn) -> None:
    done = submit([job("plan"), "--config", "nowhere.toml"], in_cluster(yarn, "--conf spark.yarn.maxAppAttempts=1"))
    assert done.returncode == 2, done.stderr
    (driver,) = attempts(yarn, application(done.stderr))
    assert "nowhere.toml: no such file" in (driver / "stdout").read_text()


@pytest.fixture
def slow(yarn: Yarn, spark: SparkSession, tmp_path: Path) -> Iterator[Slow]:
    """A run in deploy mode cluster that is amid its creates, on a broker of its own that takes its time."""
    with clusters.plain() as kafka, admin_of(kafka) as admin:
        config = commands.settings_file(
            tmp_path,
            {"main": kafka.bootstrap_servers},
            single_writer=True,
            more="[kafka]\nmax_batch_records = 40\n",
        )
        estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
        names = [f"slow-{number:03}" for number in range(140)]
        estate.declare(*topics(names, num_partitions=1))
        set_quota(admin, RATE)
        log = tmp_path / "submit.log"
        command = [str(commands.SUBMIT), job("provision"), "--config", str(config), "--run-id", "slow"]
        with log.open("wb") as output:
            environment = commands.environment(**in_cluster(yarn))
            submitted = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
            until(lambda: len(list(admin.list_topics())) >= 70 or submitted.poll() is not None, seconds=300)
            yield Slow(command, submitted, application(log.read_text()), names, estate, admin)
            submitted.kill()


def test_yarn_restarts_a_dead_driver_and_the_run_continues(yarn: Yarn, slow: Slow) -> None:
    driver = yarn.driver(slow.application, 1)
    assert driver is not None
    os.kill(driver, signal.SIGKILL)
    assert slow.submitted.wait(300) == 0
    assert len(attempts(yarn, slow.application)) == 2
    slow.check(epoch=2)
