"""Announcements of runs, by command and through the tables."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.harness import UNREACHABLE, Estate
from tests.receiver import receiver
from topicledger.config.notify import NotifySettings
from topicledger.ledger import runs
from topicledger.notify import announce
from topicledger.notify.announcement import of_run
from topicledger.schemas import RUNS
from topicledger_testing.embedded_kafka import EmbeddedKafka


@pytest.mark.thorough
def test_a_run_that_is_started_again_announces_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estate = Estate(spark, tmp_path / "ledger", {"main": UNREACHABLE})
    estate.settings = replace(estate.settings, kafka=replace(estate.settings.kafka, connect_timeout=1.0))
    estate.declare({"topic": "announced.one"})
    with receiver() as received:
        monkeypatch.setenv("HOOK", received.url)
        to = [NotifySettings(url="env:HOOK"), NotifySettings(url="env:HOOK", format="slack")]
        for _ in range(2):
            summary = estate.run(run_id="open", requested_by="alice")
            assert summary.exit_code == 1
            run = runs.start(estate.ledger, estate.settings, runs.Request(command="provision", run_id="open"))
            announce(run, to, partial(of_run, summary, "alice", datetime.now(UTC)))
            run.settle()
    assert sorted(kind for kind, _ in received.posts) == ["application/cloudevents+json", "application/json"]
    (row,) = estate.rows(RUNS, "open")
    assert row["notified"].partition(":")[0] == "failed"


@pytest.mark.thorough
def test_commands_announce_and_no_address_stands_anywhere(
    kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests = tmp_path / "topics.yaml"
    manifests.write_text(
        "cluster: main\ntopics:\n  - {topic: announced.fine}\n  - {topic: announced.copies, replication_factor: 3}\n"
    )
    with receiver() as received:
        more = '[[notify]]\nurl = "env:HOOK"\nreport = "https://reports/{run_id}.html"\n'
        config = str(commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers}, more=more))

        def run(*arguments: str) -> int:
            result = commands.run(commands.command(*arguments, "--config", config), HOOK=received.url)
            assert "s3cret" not in result.stdout + result.stderr
            return result.returncode

        assert run("load_manifests", str(manifests)) == 0
        assert run("plan", "--run-id", "seen") == 4
        assert run("apply", "--run-id", "seen") == 4
        assert run("apply", "--run-id", "seen") == 4
        assert run("drift", "--run-id", "looked") == 0
    found = [(event["subject"], event["data"]["event"]) for _, event in received.posts]
    assert sorted(found) == [("looked", "drift"), ("seen", "approval_wanted"), ("seen", "failed")]
    assert received.posts[0][1]["data"]["report"] == "https://reports/seen.html"
    written = b"".join(path.read_bytes() for path in (tmp_path / "ledger").rglob("*") if path.is_file())
    assert b"s3cret" not in written
