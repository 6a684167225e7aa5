"""`prune --declared` proposes unused declared topics as a file, from the tables alone."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.broker.invoking import invoke
from tests.harness import UNREACHABLE, Estate
from topicledger.schemas import OBSERVED, USAGE


@pytest.mark.thorough
def test_unused_declared_topics_are_proposed_as_a_file(spark: SparkSession, tmp_path: Path) -> None:
    estate = Estate(spark, tmp_path / "ledger", {"main": UNREACHABLE})
    names = {"quiet": "payments", "quiet.others": "logistics", "busy": "payments", "young": "payments"}
    estate.declare(*({"topic": topic, "owner": owner, "labels": {"tier": "1"}} for topic, owner in names.items()))
    config = commands.settings_file(tmp_path, {"main": [UNREACHABLE]})
    asked = ("prune", "--declared", "--idle-days", "30", "--owner", "Payments", "--config", config)
    none = invoke(*asked)
    assert (none.exit_code, "no audit with usage has run: `drift --usage`" in none.stderr) == (2, True), none.stderr

    now = datetime.now(UTC)
    live = [{"group": "readers", "state": "Stable", "members": 1, "lag": 0}]
    rows = [
        {"cluster": "main", "topic": topic, "topic_id": topic, "observed_at": now - timedelta(days=days), "bytes": 2048,
         "end_offset": 7, "groups": live if topic == "busy" else [], "reasons": {}}
        for topic in names for days in (31, 1) if (topic, days) != ("young", 31)
    ]  # fmt: skip
    until = f"{now - timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"
    live_now = [{"cluster": "main", "topic": topic, "topic_id": topic, "permitted": True} for topic in names]
    estate.ledger.ensure(OBSERVED)
    estate.ledger.append(OBSERVED, estate.ledger.rows(OBSERVED, live_now), app_id="observed", version=1)
    ordered = [tuple(row.get(name) for name in USAGE.schema.names) for row in rows]
    estate.ledger.ensure(USAGE)
    estate.ledger.append(USAGE, spark.createDataFrame(ordered, USAGE.schema), app_id="usage", version=1)
    file = tmp_path / "proposed.yaml"
    done = invoke(*asked, "--to", file, "--result-file", tmp_path / "result.json")
    assert done.exit_code == 0, done.output
    assert "1 of 3 declared topics are unused" in done.stderr
    assert "busy on main: groups had members on it: readers" in done.stderr
    assert "young on main: the memory is too short: audits with usage observe it since " in done.stderr
    assert (
        f'  - topic: "quiet"  # unused in 1 audit until {until}, 2,048 bytes\n    state: "absent"\n' in file.read_text()
    )
    result = json.loads((tmp_path / "result.json").read_text())
    assert [[each["topic"] for each in result[name]] for name in ("unused", "kept")] == [["quiet"], ["busy", "young"]]

    shown = invoke("load-manifests", file, "--dry-run", "--config", config)
    assert (shown.exit_code, "0 added, 1 changed" in shown.stdout) == (0, True), shown.output
    again = invoke(*asked, "--to", file)
    assert (again.exit_code, "name a new file for --to" in again.stderr) == (2, True)
    assert invoke(*asked, "--run-id", "x").exit_code == 2
