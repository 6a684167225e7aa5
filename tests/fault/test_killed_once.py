"""A driver killed in the middle: the same run id finishes what is open, and nothing is done twice."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.harness import Estate, topics
from tests.waiting import until
from topicledger.admin import ClusterAdmin
from topicledger.embedded_kafka import EmbeddedKafka
from topicledger.settings import KafkaSettings

NAMES = [f"killed-{number:04}" for number in range(1000)]


@pytest.mark.timeout(1200)
def test_a_driver_killed_amid_1000_creates_finishes_with_one_apply_row_a_topic(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """C18, D7: SIGKILL between requests and rows; the topics that were created meanwhile are RECOVERED."""
    # Small batches, so that the kill finds some topics created and others not.
    small = "[kafka]\nmax_batch_records = 60\n"
    config = commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers}, more=small)
    kafka_settings = KafkaSettings(max_batch_records=60, connect_timeout=30.0)
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka}, kafka=kafka_settings)
    estate.declare(*topics(NAMES, num_partitions=1, configs={"retention.ms": "1000"}))
    arguments = ["provision", "--config", str(config), "--run-id", "killed"]

    job = subprocess.Popen(
        commands.command(*arguments), env=commands.environment(), start_new_session=True, stderr=subprocess.DEVNULL
    )
    with ClusterAdmin(estate.settings.clusters["main"], KafkaSettings()) as admin:

        def created() -> int:
            assert job.poll() is None, "the run ended before it could be killed"
            return sum(info.topic.startswith("killed-") for info in admin.list_topics())

        try:
            until(lambda: created() >= 100, seconds=400, every=0.02)
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        assert sum(info.topic.startswith("killed-") for info in admin.list_topics()) < len(NAMES)

        again = commands.run(commands.command(*arguments))
        assert again.returncode == 0, again.stderr
        live = {info.topic for info in admin.list_topics() if info.topic.startswith("killed-")}
    assert live == set(NAMES)
    estate.check_invariant("killed")
    audit = estate.audit("killed")
    assert {topic for topic, phase in audit if phase == "apply"} == set(NAMES)
    applied = [audit[name, "apply"] for name in NAMES]
    assert {row["outcome"] for row in applied} == {"ok"}
    assert any(row["error"] == "RECOVERED" for row in applied)
    assert all(row["num_partitions"] == 1 and row["replication_factor"] == 1 and row["configs"] for row in applied)

    finished = commands.run(commands.command(*arguments, "--format", "json"))
    assert finished.returncode == 0
    assert '"ok": 1000' in finished.stdout
