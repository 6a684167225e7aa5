"""A run that is asked to stop: the batch under way ends, and its outcomes are recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.fault.proxy import CREATE_TOPICS, Fault, FaultProxy, Frame, hold
from tests.harness import Estate
from tests.processes import family, is_alive, kill_all
from tests.waiting import until
from topicledger.schemas import AUDIT, RUNS
from topicledger_testing.embedded_kafka import EmbeddedKafka


@pytest.mark.thorough
@pytest.mark.parametrize("send", [os.kill, os.killpg])
def test_batch_under_way_is_recorded_if_all_processes_are_asked_to_end(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path, send: Callable[[int, int], None]
) -> None:
    """As `timeout` and systemd do it. Java, which ignores the signal, ends with the command."""
    asked, answers = threading.Event(), threading.Event()

    def keep_waiting(frame: Frame) -> Fault | None:
        if frame.validate_only:
            return None
        asked.set()
        return hold(answers)

    names = [f"stopped.{send.__name__}-{number}" for number in range(3)]
    with FaultProxy(kafka) as proxy:
        estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
        estate.declare(*({"topic": name} for name in names))
        few = "[kafka]\nmax_batch_records = 1\n"
        config = commands.settings_file(tmp_path, {"main": proxy.bootstrap_servers}, root=estate.ledger.root, more=few)
        provision = commands.command("provision", "--config", str(config), "--run-id", "stopped")
        proxy.on(CREATE_TOPICS, "response", times=None, do=keep_waiting)
        with subprocess.Popen(
            provision, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as running:
            try:
                assert asked.wait(timeout=200)
                processes = family(running.pid)
                send(running.pid, signal.SIGTERM)
                # Time in which Java would end.
                with pytest.raises(subprocess.TimeoutExpired):
                    running.communicate(timeout=3)
                answers.set()
                shown, told = running.communicate(timeout=180)
            finally:
                answers.set()
                kill_all(running.pid)
        until(lambda: not any(map(is_alive, processes)), seconds=30)
    assert running.returncode == 1, told
    assert (shown, told.splitlines()[-1]) == ("", "error: run stopped was stopped; start it again with its id")
    assert "Spark" not in told
    applied = [row["outcome"] for row in estate.rows(AUDIT, "stopped") if row["phase"] == "apply"]
    assert applied == ["ok"]
    assert [(row["state"], row["exit_code"]) for row in estate.rows(RUNS, "stopped")] == [("applying", None)]
