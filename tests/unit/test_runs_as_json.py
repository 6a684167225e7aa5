"""`runs list` and `runs show` print documents, as every other command does."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.unit.frames import frame
from topicledger.cli import show
from topicledger.schemas import TABLES

AT = datetime(2026, 11, 20, 8, 0, 2, tzinfo=UTC)


def a_ledger(spark: SparkSession, **rows: list[dict[str, Any]]) -> Any:
    """Return a ledger whose tables have these rows."""
    return SimpleNamespace(
        spark=spark,
        ensure=lambda *_: None,
        read=lambda table: frame(spark, TABLES[table.name].schema, rows.get(table.name, [])),
    )


def test_runs_list_is_a_document(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        {"run_id": "r", "arguments": {"command": "plan"}, "state": "planned", "started_at": AT, "counts": {"ok": 1}}
    ]
    assert show.list_runs(a_ledger(spark, runs=runs), 5, as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    (run,) = found.pop("runs")
    assert found == {"format_version": 1, "exit_code": 0}
    assert (run["run_id"], run["command"], run["started_at"]) == ("r", "plan", "2026-11-20T08:00:02Z")


def test_runs_show_is_a_document(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = {"run_id": "r", "state": "finished", "observed_at": AT}
    monkeypatch.setattr(show, "_few_or_many", lambda *_: contextlib.nullcontext(ended))
    action = {
        "run_id": "r",
        "cluster": "main",
        "resource_type": "TOPIC",
        "resource": "t",
        "topic": "t",
        "action": "create",
    }
    done = {**action, "phase": "validate", "outcome": "ok"}
    assert show.show_actions(a_ledger(spark, plans=[action], audit=[done]), "r") == 0
    found = json.loads(capsys.readouterr().out)
    (planned,) = found.pop("actions")
    assert found == {"format_version": 1, "exit_code": 0, "run_id": "r", "plan_digest": None}
    assert (planned["resource"], [each["outcome"] for each in planned["phases"]]) == ("t", ["ok"])
