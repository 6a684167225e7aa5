"""A storage of tables that fails some commits, before or after writing them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.fault import told
from tests.fault.told import FAULTS, Fault
from tests.harness import Estate, topics
from tests.plugin_storage import FlakyStorage
from topicledger_testing.embedded_kafka import EmbeddedKafka


@pytest.mark.thorough
def test_run_finishes_normally_if_every_second_commit_fails(
    spark: SparkSession, kafka: EmbeddedKafka, flaky_storage: FlakyStorage, tmp_path: Path
) -> None:
    """This covers its row, its plan and counts, its outcomes, its lease, and the creation of tables."""
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    names = [f"storage.{number:02}" for number in range(12)]
    estate.declare(*topics(names, num_partitions=2))
    config = commands.settings_file(tmp_path, {"main": list(kafka.bootstrap_servers)})
    arguments = [str(commands.SUBMIT), "jobs/provision.py", "--config", str(config), "--run-id", "storage"]
    line = Fault(name="storage fails every second commit")
    FAULTS.append(line)

    done = commands.run(arguments, timeout=600, **flaky_storage.environment(every=2))

    assert done.returncode == 0, done.stderr
    failures = flaky_storage.failures()
    line.tried = sum(failures.values())
    assert set(failures) == {"before", "after", "exists"}
    told.check(line, tmp_path / "ledger", "storage", kafka, "storage.", dict.fromkeys(names, True))
    (run,) = told.rows(tmp_path / "ledger", "runs", "storage")
    assert (run["state"], run["exit_code"]) == ("finished", 0)
    assert dict(run["counts"])["ok"] == len(names)
