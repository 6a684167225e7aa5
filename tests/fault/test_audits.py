"""An audit that is asked to stop: it ends, tells how to continue, and the same run id continues it."""

from __future__ import annotations

import signal
import subprocess
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.fault.proxy import METADATA, Fault, FaultProxy, Frame, hold
from tests.harness import Estate
from topicledger.schemas import DRIFT, RUNS
from topicledger_testing.embedded_kafka import EmbeddedKafka


@pytest.mark.thorough
def test_sigterm_ends_a_waiting_audit_and_the_same_id_resumes_it(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    asked, answers = threading.Event(), threading.Event()

    def keep_waiting(frame: Frame) -> Fault:
        asked.set()
        return hold(answers)

    with FaultProxy(kafka) as proxy:
        estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
        estate.declare({"topic": "audit-stopped.missing"})
        config = commands.settings_file(tmp_path, {"main": proxy.bootstrap_servers}, root=estate.ledger.root)
        audit = commands.command("drift", "--config", str(config), "--run-id", "stopped", "--detailed-exitcode")
        proxy.on(METADATA, "request", times=None, do=keep_waiting)
        with subprocess.Popen(audit, env=commands.environment(), stderr=subprocess.PIPE, text=True) as running:
            assert asked.wait(timeout=200)
            running.send_signal(signal.SIGTERM)
            _, told = running.communicate(timeout=180)
        assert running.returncode == 1, told
        assert "run stopped is not finished; the same command with this id resumes it" in told
        assert "error: interrupted" in told
        assert "Traceback" not in told
        assert [(row["state"], row["exit_code"]) for row in estate.rows(RUNS, "stopped")] == [("planning", None)]

        proxy.clear()
        answers.set()
        again = commands.run(audit)
    assert again.returncode == 3, again.stderr
    assert [row["state"] for row in estate.rows(RUNS, "stopped")] == ["finished"]
    found = {(row["topic"], row["kind"]) for row in estate.rows(DRIFT, "stopped")}
    assert ("audit-stopped.missing", "missing") in found
