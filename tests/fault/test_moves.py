"""Drivers of runs that move replicas: killed, suspended, asked to stop, and the moves and throttles that are left."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests import commands
from tests.broker.direct import admin_of
from tests.broker.moving import replicas, text, throttles_on, with_data
from tests.harness import Estate
from tests.processes import family, kill_all, send
from tests.waiting import until
from topicledger.config.reading import load_settings
from topicledger.config.settings import ChangeSettings
from topicledger.ledger.sql import sql_value
from topicledger.model import RunState
from topicledger.schemas import AUDIT, PLANS, RUNS, THROTTLES
from topicledger_testing.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.thorough

BEFORE = {0: (1,), 1: (1,), 2: (2,)}
AFTER = {0: (1, 3), 1: (3,), 2: (2, 1)}


def planned_moves(
    spark: SparkSession, root: Path, kafka: EmbeddedKafka, topic: str, run_id: str, more: str, size: int = 1_500_000
) -> tuple[Estate, Path]:
    """Save a plan that moves a topic's replicas, made from one that alters a config; return its settings file, too.

    A partition has about `size` bytes.
    """
    config = commands.settings_file(root, {"main": kafka.bootstrap_servers}, more=more)
    estate = Estate(spark, root / "ledger", {"main": kafka})
    estate.settings = load_settings(config)
    assert estate.settings.changes == {"main": ChangeSettings(configs="declared")}
    with_data(kafka, topic, BEFORE, size)
    estate.declare({"topic": topic, "configs": {"retention.ms": "1209600000"}})
    assert estate.run("plan", run_id=run_id).pending_changes == 1
    change = {
        "action": sql_value("reassign"),
        "before": sql_value({"assignments": text(BEFORE)}),
        "after": sql_value({"assignments": text(AFTER), "bytes": str(3 * size)}),
    }
    assert estate.ledger.update(PLANS, f"run_id = {sql_value(run_id)}", change) == 1
    validated = estate.ledger.read(AUDIT).where(F.col("run_id") == run_id).withColumn("action", F.lit("reassign"))
    estate.ledger.append(AUDIT, validated, app_id=f"by hand {datetime.now(UTC)}", version=1)
    return estate, config


SETTINGS = '[changes]\nconfigs = "declared"\n[replicas]\nthrottle = {}\n'


def state_of(estate: Estate, run_id: str) -> str:
    return str(estate.rows(RUNS, run_id)[0]["state"])


def begin(config: Path, run_id: str, *more: str) -> subprocess.Popen[bytes]:
    """Start a driver that applies the plan, as a separate process."""
    return subprocess.Popen(
        commands.command("apply", "--config", str(config), "--run-id", run_id, *more),
        cwd=commands.REPOSITORY,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def written(estate: Estate, kafka: EmbeddedKafka, topic: str) -> bool:
    """Whether a throttle is recorded; it may not be set yet."""
    return estate.ledger.exists(THROTTLES) and bool(estate.rows(THROTTLES))


def is_set(estate: Estate, kafka: EmbeddedKafka, topic: str) -> bool:
    """Whether a throttle is set; moves may not have started yet."""
    return topic in throttles_on(kafka, [topic])


def moved_now(estate: Estate, kafka: EmbeddedKafka, topic: str) -> bool:
    """Whether the first wave is under way."""
    with admin_of(kafka) as admin:
        return topic in (admin.topics_reassigned_now() or ())


MOMENTS = {"written": written, "set": is_set, "moved": moved_now}


def check_moved(estate: Estate, kafka: EmbeddedKafka, topic: str, run_id: str) -> None:
    """Check that the topic was moved as planned, with one row, and that no throttle is left."""
    assert replicas(kafka, topic) == AFTER
    until(lambda: throttles_on(kafka) == {}, seconds=30)
    assert None not in {row["removed_at"] for row in estate.rows(THROTTLES)}
    rows = [row for row in estate.rows(AUDIT, run_id) if row["action"] == "reassign"]
    (applied,) = [row for row in rows if row["phase"] == "apply"]
    assert (applied["outcome"], applied["before"]["assignments"]) == ("ok", text(BEFORE))
    assert (applied["after"]["partitions"], applied["after"]["assignments"]) == ("3", text(AFTER))
    assert [row["outcome"] for row in rows if row["phase"] == "verify"] == ["ok"]


def go_on(config: Path, run_id: str) -> None:
    """Resume the run at a higher rate, until it ends."""
    config.write_text(config.read_text().replace("throttle = 100000", "throttle = 20_000_000"))
    ended = commands.run(commands.command("apply", "--config", str(config), "--run-id", run_id, "--format", "json"))
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert json.loads(ended.stdout)["exit_code"] == 0


@pytest.mark.parametrize("moment", MOMENTS)
def test_driver_killed_during_moves_is_resumed_without_throttles_left(
    spark: SparkSession, kafka_three: EmbeddedKafka, tmp_path: Path, moment: str
) -> None:
    """R2, R4, R6: killed at three moments; records produced between the two starts can be read afterwards."""
    topic = f"killed.{moment}"
    estate, config = planned_moves(spark, tmp_path, kafka_three, topic, "killed", SETTINGS.format(100_000))
    producer = KafkaProducer(bootstrap_servers=kafka_three.bootstrap_servers, acks="all", retries=20)
    sent = 0
    driver = begin(config, "killed")
    try:
        until(lambda: MOMENTS[moment](estate, kafka_three, topic), seconds=180, every=0.2)
    finally:
        kill_all(driver.pid)
        driver.wait()
    assert None in {row["removed_at"] for row in estate.rows(THROTTLES)}
    assert state_of(estate, "killed") == RunState.APPLYING
    for _ in range(20):
        producer.send(topic, str(sent).encode(), partition=sent % 3)
        sent += 1
        time.sleep(0.05)
    go_on(config, "killed")
    producer.flush()
    producer.close()
    check_moved(estate, kafka_three, topic, "killed")
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=kafka_three.bootstrap_servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=10_000,
    )
    found = {record.value for record in consumer if len(record.value) < 20}
    consumer.close()
    assert found == {str(each).encode() for each in range(sent)}


def test_driver_that_was_suspended_does_nothing_when_resumed(
    spark: SparkSession, kafka_three: EmbeddedKafka, tmp_path: Path
) -> None:
    """Its lease is lost; a later start has moved everything, and no throttle is set again."""
    estate, config = planned_moves(spark, tmp_path, kafka_three, "asleep.one", "asleep", SETTINGS.format(100_000))
    driver = begin(config, "asleep")
    try:
        until(lambda: moved_now(estate, kafka_three, "asleep.one"), seconds=180, every=0.2)
        send(family(driver.pid), signal.SIGSTOP)
        go_on(config, "asleep")
        send(family(driver.pid), signal.SIGCONT)
        assert driver.wait(timeout=120) != 0
    finally:
        kill_all(driver.pid)
        driver.wait()
    check_moved(estate, kafka_three, "asleep.one", "asleep")


def test_abandoned_run_leaves_throttles_until_its_moves_end(
    spark: SparkSession, kafka_three: EmbeddedKafka, tmp_path: Path
) -> None:
    """R4, R6: the next run of any kind then removes them."""
    estate, config = planned_moves(spark, tmp_path, kafka_three, "given.up", "given", SETTINGS.format(100_000))
    driver = begin(config, "given")
    try:
        until(lambda: moved_now(estate, kafka_three, "given.up"), seconds=180, every=0.2)
    finally:
        kill_all(driver.pid)
        driver.wait()
    ended = commands.run(commands.command("runs", "abandon", "--config", str(config), "--run-id", "given"))
    assert ended.returncode == 0, ended.stderr[-3000:]
    with admin_of(kafka_three) as admin:
        if admin.list_reassignments():
            assert "throttles stay set on cluster main; the next run there removes them" in ended.stdout
            assert throttles_on(kafka_three)
        until(lambda: admin.list_reassignments() == {}, seconds=120)
    assert estate.run().exit_code == 0
    until(lambda: throttles_on(kafka_three) == {}, seconds=30)
    assert None not in {row["removed_at"] for row in estate.rows(THROTTLES)}
    until(lambda: replicas(kafka_three, "given.up") == AFTER, seconds=60)


@pytest.mark.parametrize("cancel", [False, True], ids=["left", "cancelled"])
@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "deadline"])
def test_stopped_run_leaves_or_cancels_moves_and_can_be_resumed(
    spark: SparkSession, kafka_three: EmbeddedKafka, tmp_path: Path, how: str, cancel: bool
) -> None:
    """R2, R3, R6: moves continue at the same rate with their throttles; with --cancel the replicas are moved back."""
    topic = f"stopped.{how}-{cancel}".lower()
    # The moves take minutes at this throttle, longer than any start of a driver.
    estate, config = planned_moves(spark, tmp_path, kafka_three, topic, "stop", SETTINGS.format(100_000), 12_000_000)
    driver = begin(
        config, "stop", *(["--cancel"] if cancel else []), *(["--deadline", "100"] if how == "deadline" else [])
    )
    try:
        until(lambda: moved_now(estate, kafka_three, topic), seconds=180, every=0.2)
        if how != "deadline":
            driver.send_signal(signal.Signals[how])
        assert driver.wait(timeout=120) == 1
    finally:
        kill_all(driver.pid)
        driver.wait()
    assert state_of(estate, "stop") == RunState.APPLYING
    if cancel:
        check_cancelled(estate, kafka_three, topic, "stop")
        return
    with admin_of(kafka_three) as admin:
        listed = admin.list_reassignments() or {}
    assert {(topic, part): AFTER[part] for _, part in listed} == listed != {}
    assert topic in throttles_on(kafka_three, [topic])
    assert None in {row["removed_at"] for row in estate.rows(THROTTLES)}
    go_on(config, "stop")
    check_moved(estate, kafka_three, topic, "stop")


def check_cancelled(estate: Estate, kafka: EmbeddedKafka, topic: str, run_id: str) -> None:
    """Check that the topic is in its previous place, with one row that reports it, and that no throttle is left."""
    assert replicas(kafka, topic) == BEFORE
    until(lambda: throttles_on(kafka) == {}, seconds=30)
    assert None not in {row["removed_at"] for row in estate.rows(THROTTLES)}
    (applied,) = [row for row in estate.rows(AUDIT, run_id) if row["phase"] == "apply"]
    assert (applied["outcome"], applied["error"], applied["error_code"]) == ("failed", "CANCELLED", -1)
    assert applied["error_message"] == "cancelled; 0 of 3 partitions moved"
    assert (applied["after"]["partitions"], applied["after"]["assignments"]) == ("0", text(BEFORE))


def test_stopped_run_can_cancel_moves_under_way(
    spark: SparkSession, kafka_three: EmbeddedKafka, tmp_path: Path
) -> None:
    """R3: SIGTERM with --cancel; the same run id then finishes."""
    estate, config = planned_moves(spark, tmp_path, kafka_three, "told.cancel", "told", SETTINGS.format(100_000))
    driver = begin(config, "told", "--cancel")
    try:
        until(lambda: moved_now(estate, kafka_three, "told.cancel"), seconds=180, every=0.2)
        driver.send_signal(signal.SIGTERM)
        assert driver.wait(timeout=120) == 1
    finally:
        kill_all(driver.pid)
        driver.wait()
    check_cancelled(estate, kafka_three, "told.cancel", "told")
    assert state_of(estate, "told") == RunState.APPLYING
    ended = commands.run(commands.command("apply", "--config", str(config), "--run-id", "told"))
    assert ended.returncode == 4, ended.stderr[-3000:]
    check_cancelled(estate, kafka_three, "told.cancel", "told")


def test_abandoned_run_can_cancel_moves_under_way(
    spark: SparkSession, kafka_three: EmbeddedKafka, tmp_path: Path
) -> None:
    """R3: after a driver was killed, with different settings.

    The command waits for the dead driver's lease, so the moves must take longer than that. A replica fetches up to 1 MB
    at once, then nothing until the rate of the last 11 s is below the throttle; no throttle makes it slower.
    """
    settings = SETTINGS.format(5_000)
    estate, config = planned_moves(spark, tmp_path, kafka_three, "given.back", "back", settings, 30_000_000)
    driver = begin(config, "back")
    try:
        until(lambda: moved_now(estate, kafka_three, "given.back"), seconds=180, every=0.2)
    finally:
        kill_all(driver.pid)
        driver.wait()
    config.write_text(config.read_text().replace('configs = "declared"', 'configs = "exact"'))
    ended = commands.run(commands.command("runs", "abandon", "--config", str(config), "--run-id", "back", "--cancel"))
    assert ended.returncode == 0, ended.stderr[-3000:]
    check_cancelled(estate, kafka_three, "given.back", "back")
    assert state_of(estate, "back") == RunState.ABANDONED
