"""The example DAG, run by Airflow against a real broker: green, nothing to do, refused, killed and retried."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests import commands
from tests.airflow.conftest import Airflow
from tests.broker import quotas
from tests.fault.another_client import AnotherClient
from tests.fault.proxy import CREATE_TOPICS, FaultProxy, Frame
from tests.harness import Estate, topics
from tests.processes import command_line, family, send
from topicledger.schemas import APPROVALS, AUDIT, DRIFT, RUNS
from topicledger_testing.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.timeout(1800)


def prepared(
    spark: SparkSession, kafka: EmbeddedKafka, folder: Path, *names: str, proxy: FaultProxy | None = None
) -> tuple[Estate, Path]:
    """Prepare a ledger with declared topics, and settings for it."""
    estate = Estate(spark, folder / "ledger", {"main": kafka})
    estate.declare(*topics(names, num_partitions=2))
    servers = (proxy or kafka).bootstrap_servers
    # Plans without an approval aren't applied.
    more = "[guards]\napprovals = 1\nmax_quota_changes = 1\n"
    return estate, commands.settings_file(folder, {"main": servers}, root=estate.ledger.root, more=more)


def states(told: Mapping[str, Any]) -> dict[str, str]:
    return {name: each["state"] for name, each in told["tasks"].items()}


def tries(told: Mapping[str, Any]) -> dict[str, int]:
    return {name: each["tries"] for name, each in told["tasks"].items()}


@pytest.mark.thorough
def test_declared_topics_are_planned_approved_applied_and_audited(
    spark: SparkSession, kafka: EmbeddedKafka, airflow: Airflow, tmp_path: Path
) -> None:
    names = ["airflow-green.a", "airflow-green.b"]
    estate, config = prepared(spark, kafka, tmp_path, *names)
    quotas.declare(estate, {"user": "airflow\r\rhidden", "producer_byte_rate": 1e6})
    told = airflow.run(config)
    assert set(states(told).values()) == {"success"}, told["log"][-20_000:]
    assert (told["state"], set(tries(told).values())) == ("success", {1})
    assert "has no LocalFiles" not in told["log"], "two drivers could overwrite each other's commits"
    assert set(names) <= AnotherClient(kafka).names("airflow-")
    # Each change is a line of code: a name's own lines begin no other.
    (asked,) = told["asked"]
    assert asked.splitlines()[0] == "3 changes; all of them, as a diff:"
    shown = [line.strip() for line in asked.splitlines()[4:] if line.startswith("    ")]
    assert [line.split(" ", 2)[:2] for line in shown] == [
        ["main", "create"],
        ["main", "create"],
        ["main", "alter_quota"],
    ]
    assert shown[2].startswith("main alter_quota user=airflow")
    assert shown[2].endswith("hidden producer_byte_rate none -> 1000000")
    runs = {row["run_id"]: row.asDict() for row in estate.ledger.read(RUNS).collect()}
    assert set(runs) == {told["run_id"], f"audit-{told['run_id']}"}
    assert {(row["state"], row["exit_code"], row["requested_by"]) for row in runs.values()} == {
        ("finished", 0, "airflow")
    }
    (approval,) = estate.ledger.read(APPROVALS).collect()
    assert (approval["run_id"], approval["by"], approval["note"]) == (told["run_id"], "bob", "in Airflow")
    assert f"--plan={approval['plan_digest']}" in told["log"], "the digest that the plan's result had"
    assert estate.ledger.read(DRIFT).where(F.col("topic").isin(names)).count() == 0

    again = airflow.run(config)
    assert again["state"] == "success"
    assert states(again) == {
        "plan": "success",
        "pending": "success",
        "approve": "skipped",
        "record": "skipped",
        "apply": "skipped",
        "drift": "success",
        "outcome": "success",
    }


@pytest.mark.thorough
def test_refused_topic_fails_the_dag_run_after_the_others_are_done(
    spark: SparkSession, kafka: EmbeddedKafka, airflow: Airflow, tmp_path: Path
) -> None:
    estate, config = prepared(spark, kafka, tmp_path, "airflow-refused.good")
    estate.declare(*topics(["airflow-refused.copies"], replication_factor=3))
    told = airflow.run(config)
    assert states(told) == {
        "plan": "success",
        "pending": "success",
        "approve": "success",
        "record": "success",
        "apply": "success",
        "drift": "success",
        "outcome": "failed",
    }, told["log"][-20_000:]
    assert (told["state"], set(tries(told).values())) == ("failed", {1})
    assert "1 topics failed or were refused" in told["log"]
    found = AnotherClient(kafka).names("airflow-refused.")
    assert "airflow-refused.good" in found
    assert "airflow-refused.copies" not in found


@pytest.mark.thorough
def test_permanent_failures_are_not_retried(airflow: Airflow, tmp_path: Path) -> None:
    config = tmp_path / "settings.toml"
    config.write_text("[tables]\nrot = 'ledger'\n", encoding="utf-8")
    told = airflow.run(config)
    assert (told["state"], states(told)["plan"], tries(told)["plan"]) == ("failed", "failed", 1)
    assert "exit code 2" in told["log"]


@pytest.mark.thorough
def test_killed_driver_is_retried_and_loses_nothing(
    spark: SparkSession, kafka: EmbeddedKafka, airflow: Airflow, tmp_path: Path
) -> None:
    """C18: the driver is killed while the answer to its creates is in transit."""
    names = [f"airflow-killed.{number}" for number in range(5)]
    with FaultProxy(kafka) as proxy:
        estate, config = prepared(spark, kafka, tmp_path, *names, proxy=proxy)
        with airflow.start(config) as run:
            killed: list[str] = []

            def kill(frame: Frame) -> None:
                if frame.validate_only or killed:
                    return
                driver = {pid: line for pid in family(run.process.pid) if "apply.py" in (line := command_line(pid))}
                killed.extend(driver.values())
                send(driver, signal.SIGKILL)

            proxy.on(CREATE_TOPICS, "response", times=None, do=kill)
            told = run.wait()
    assert any("SparkSubmit" in each for each in killed), killed
    assert set(states(told).values()) == {"success"}, told["log"][-20_000:]
    assert tries(told) == {"plan": 1, "pending": 1, "approve": 1, "record": 1, "apply": 2, "drift": 1, "outcome": 1}
    applied = (
        estate.ledger.read(AUDIT).where((F.col("phase") == "apply") & (F.col("run_id") == told["run_id"])).collect()
    )
    assert sorted(row["topic"] for row in applied) == names
    assert {row["outcome"] for row in applied} == {"ok"}
    assert set(names) <= AnotherClient(kafka).names("airflow-")
