"""After the last commit of a command, nothing that fails ends it as failed: the work is done."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.after_commits import recorded
from tests.broker.invoking import invoke
from tests.harness import UNREACHABLE, Estate
from topicledger.config.reading import load_settings
from topicledger.ledger import runs
from topicledger.plan import approvals
from topicledger.schemas import OBSERVED, PLANS, USAGE


@pytest.fixture
def config(spark: SparkSession, tmp_path: Path) -> Path:
    """Settings with a plan `R` of one delete, which waits for an approval, and an unused topic."""
    config = commands.settings_file(tmp_path, {"main": [UNREACHABLE]}, more="[guards]\napprovals = 1\n")
    estate = Estate(spark, tmp_path / "ledger", {"main": UNREACHABLE})
    estate.declare({"topic": "t"})
    run = runs.start(estate.ledger, load_settings(config), runs.Request(command="plan", run_id="R", requested_by="ann"))
    run.commit_state(run.state, observed_at=datetime.now(UTC))
    planned = {"run_id": "R", "cluster": "main", "topic": "t", "resource": "t", "resource_type": "topic"}
    plans = estate.ledger.rows(PLANS, [{**planned, "action": "delete", "topic_id": "an-id"}])
    estate.ledger.append(PLANS, plans, app_id="test", version=1)
    seen = {"cluster": "main", "topic": "t", "topic_id": "t", "bytes": 1, "end_offset": 1, "groups": [], "reasons": {}}
    times = [datetime.now(UTC) - timedelta(days=days) for days in (31, 1)]
    usage = estate.ledger.rows(USAGE, [{**seen, "observed_at": each} for each in times])
    live = estate.ledger.rows(OBSERVED, [{"cluster": "main", "topic": "t", "topic_id": "t", "permitted": True}])
    for table, rows in ((USAGE, usage), (OBSERVED, live)):
        estate.ledger.ensure(table)
        estate.ledger.append(table, rows, app_id="test", version=1)
    return config


@pytest.mark.thorough
def test_commands_read_and_print_their_results_as_display_only(config: Path, tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text("cluster: main\ntopics: [{topic: loaded}]\n")
    asked = {
        ("load-manifests", file): (),
        # Whether the approval came in time decides what it is worth.
        ("runs", "approve", "R", "--by", "bob"): ("_require_in_time",),
        ("prune", "--declared", "--idle-days", "30", "--to", tmp_path / "p.yaml"): (),
        ("report", "R", "--out", tmp_path / "r.html", "--index", tmp_path): (),
        ("runs", "abandon", "R"): ("_take_away_throttles",),
    }
    for arguments, work in asked.items():
        with recorded() as found:
            done = invoke(*arguments, "--config", config)
        assert done.exit_code == 0, done.output
        assert found.exposed(work=work) == [], arguments


@pytest.mark.thorough
def test_a_maintenance_prints_its_result_as_display_only(config: Path) -> None:
    with recorded() as found:
        done = invoke("maintain", "--execute", "--config", config)
    assert done.exit_code == 0, done.output
    assert found.exposed() == []


@pytest.mark.thorough
def test_an_approval_that_cannot_be_read_again_is_done(
    config: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, calls = approvals.of_run, list[Any]()

    def second_fails(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) > 1:
            raise OSError("the storage is gone")
        return real(*arguments)

    monkeypatch.setattr(approvals, "of_run", second_fails)
    done = invoke("runs", "approve", "R", "--by", "bob", "--config", config)
    assert (done.exit_code, done.stdout, len(calls)) == (0, "", 2)
    assert "the approval of run R can't be shown" in done.stderr
    assert "`runs approve` shows it again" in done.stderr
