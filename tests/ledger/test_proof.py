"""The proof of runs: what `runs verify` finds, and that others compute the same digests."""

from __future__ import annotations

import importlib.util
import io
import os
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import functions as F
from rich.console import Console

from topicledger.config.proof import ProofSettings
from topicledger.config.settings import Settings, TablesSettings
from topicledger.errors import SecretError, UsageError
from topicledger.ledger import digests, maintain, proof, runs
from topicledger.ledger.run import Run
from topicledger.ledger.tables import Ledger
from topicledger.ledger.verifying import Verified, render, verify
from topicledger.model import ConfigEntry, Outcome, Phase, PhaseResult, RunState, Target, TopicResult, Violation
from topicledger.schemas import AUDIT, PLANS, RUNS, Table

DOCS = Path(__file__).parents[2] / "docs" / "proof.md"
TRANSCRIPT = Path(os.environ["TOPICLEDGER_TRANSCRIPT"]) if "TOPICLEDGER_TRANSCRIPT" in os.environ else None
"""A file that gets what is printed, to be put into docs."""
HOSTILE = "t\u0001\n`é\U0001f600'"
ACTIONS = (
    {
        "topic": HOSTILE,
        "action": "create",
        "num_partitions": 3,
        "assignments": {0: [1, 2], 10: [2, 1], 2: []},
        "configs": {"b": "2", "a": "1:", "c": None},
        "violations": [{"policy": "p", "message": None}],
    },
    {"topic": "plain", "action": "delete", "before": {}, "after": {"x": ""}},
)
CONFIG: Mapping[str, Any] = {"name": "a", "value": None, "read_only": False, "config_source": "X", "is_sensitive": True}


def settings_of(ledger: Ledger, key: str | None = None) -> Settings:
    return Settings(
        path=Path("tests.toml"), tables=TablesSettings(root=ledger.root), clusters={}, proof=ProofSettings(key=key)
    )


def rows(run: Run, *given: Mapping[str, Any], **more: Any) -> list[dict[str, Any]]:
    fixed = {"run_id": run.run_id, "cluster": "main", "resource_type": "topic"}
    return [{**fixed, "resource": each["topic"], **each, **more} for each in given]


def ended(ledger: Ledger, run_id: str, key: str | None = None, at: datetime | None = None) -> Run:
    """A run with rows, as its end leaves it."""
    at = at or datetime.now(UTC)
    request = runs.Request(command="provision", run_id=run_id, requested_by="ann")
    run = runs.begin(ledger, settings_of(ledger, key), request, {"command": "provision", "about": HOSTILE})
    planned = ledger.rows(PLANS, rows(run, *ACTIONS, planned_at=at))
    ledger.append(PLANS, planned, app_id=run_id, version=run.next_version())
    of_audit = rows(run, *ACTIONS, phase="apply", outcome="ok", error_code=0, completed_at=at)
    for each in of_audit:
        each.pop("assignments", None)
        each["configs"] = [CONFIG]
    run.append_audit(ledger.rows(AUDIT, of_audit))
    columns = {"finished_at": at, "exit_code": 0, "counts": {"ok": 2}}
    run.commit_state(RunState.FINISHED, **proof.sealed(run, proof.ending(run), columns))
    return run


def found(verified: Verified) -> list[tuple[str | None, str, str]]:
    return [(each.run_id, each.kind.value, each.table) for each in verified.findings]


def tampered(ledger: Ledger, table: Table) -> DeltaTable:
    ledger.spark.sql(f"ALTER TABLE {ledger.sql_name(table)} SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
    return ledger._delta(table)


@pytest.fixture
def three(ledger: Ledger) -> Ledger:
    """A ledger with three runs that ended one after the other."""
    for number in range(3):
        ended(ledger, f"run-{number}")
    return ledger


def example() -> ModuleType:
    path = Path(__file__).parents[2] / "examples" / "proof" / "verify_run.py"
    spec = importlib.util.spec_from_file_location("verify_run", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_row_that_is_changed_is_found_here_and_by_others_with_delta_rs_alone(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROOF_KEY", "a key of tests")
    first = ended(ledger, "run-0", "env:PROOF_KEY")
    settings = settings_of(ledger, "env:PROOF_KEY")
    other = example()
    verified = verify(ledger, settings)
    assert (found(verified), verified.runs, verified.signed) == ([], 1, 1)
    assert other.verify(ledger.root, "run-0", "a key of tests") == []
    assert other.verify(ledger.root, "run-0", "another key") == ["runs"]
    assert first.row["digest"] in verified.heads

    tampered(ledger, AUDIT).update("topic = 'plain'", {"outcome": "'failed'"})
    assert found(verify(ledger, settings)) == [("run-0", "rows_changed", "audit")]
    assert other.verify(ledger.root, "run-0", "a key of tests") == ["audit"]


def printed(verified: Verified) -> str:
    """What `runs verify` prints, as docs show it: digests shortened."""
    console = Console(file=io.StringIO(), width=160)
    render(verified, console)
    lines = re.sub("[0-9a-f]{64}", "5f0c...", console.file.getvalue())
    if TRANSCRIPT is not None:
        with TRANSCRIPT.open("a") as out:
            out.write(f"{lines}\n")
    return lines


def one_changed(ledger: Ledger) -> None:
    tampered(ledger, AUDIT).update("run_id = 'run-1' AND topic = 'plain'", {"outcome": "'failed'"})


def one_removed(ledger: Ledger) -> None:
    tampered(ledger, PLANS).delete("run_id = 'run-1' AND topic = 'plain'")


def one_added(ledger: Ledger) -> None:
    row = ledger.read(AUDIT).where("run_id = 'run-1' AND topic = 'plain'").withColumn("topic", F.lit("more"))
    ledger.append(AUDIT, row, app_id="somebody", version=1)


def one_doubled(ledger: Ledger) -> None:
    ledger.append(AUDIT, ledger.read(AUDIT).where("run_id = 'run-1'"), app_id="somebody", version=1)


def run_removed(ledger: Ledger) -> None:
    for table in (PLANS, AUDIT, RUNS):
        tampered(ledger, table).delete("run_id = 'run-1'")


def only_the_row_of_the_run_removed(ledger: Ledger) -> None:
    tampered(ledger, RUNS).delete("run_id = 'run-2'")


def another_asked(ledger: Ledger) -> None:
    tampered(ledger, RUNS).update("run_id = 'run-1'", {"requested_by": "'bob'"})


def digest_taken_away(ledger: Ledger) -> None:
    tampered(ledger, RUNS).update("run_id = 'run-2'", {"digest": "NULL"})


def restored(ledger: Ledger) -> None:
    version = ledger.latest_version(AUDIT) - 1
    tampered(ledger, AUDIT).restoreToVersion(version)


SHOWN = (one_changed, one_removed, one_added, run_removed, only_the_row_of_the_run_removed, restored)
"""What docs/proof.md shows the words of."""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("manipulate", "findings"),
    [
        (one_changed, [("run-1", "rows_changed", "audit")]),
        (one_removed, [("run-1", "rows_removed", "plans")]),
        (one_added, [("run-1", "rows_added", "audit")]),
        (one_doubled, [("run-1", "rows_added", "audit")]),
        (run_removed, [("run-2", "run_removed", "runs")]),
        (only_the_row_of_the_run_removed, [("run-2", "run_removed", "runs")]),
        (another_asked, [("run-1", "run_changed", "runs")]),
        (digest_taken_away, [("run-2", "no_digest", "runs")]),
        (restored, [("run-2", "rows_removed", "audit")]),
    ],
)
def test_a_manipulation_is_found_and_named_by_its_run(
    three: Ledger, manipulate: Callable[[Ledger], None], findings: list[tuple[str, str, str]]
) -> None:
    assert found(verify(three, settings_of(three))) == []
    manipulate(three)
    verified = verify(three, settings_of(three))
    assert found(verified) == findings
    if manipulate in SHOWN:
        assert printed(verified) in DOCS.read_text(encoding="utf-8"), "docs/proof.md has what is printed"


@pytest.mark.thorough
def test_optimize_and_vacuum_change_no_digest_and_only_later_runs_can_be_verified(three: Ledger) -> None:
    for table in (PLANS, AUDIT, RUNS):
        three.compact(table)
    three.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        for table in (PLANS, AUDIT, RUNS):
            three.vacuum(table, 0, dry_run=False)
    finally:
        three.spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    verified = verify(three, settings_of(three))
    assert found(verified) == []
    assert printed(verified) in DOCS.read_text(encoding="utf-8"), "docs/proof.md has what is printed"
    one_removed(three)
    later = verify(three, settings_of(three), since="run-2")
    assert (found(later), later.runs) == ([], 1)
    with pytest.raises(UsageError, match="no run nobody with a digest"):
        verify(three, settings_of(three), since="nobody")


@pytest.mark.thorough
def test_the_last_run_can_be_removed_unseen_but_for_its_digest_kept_elsewhere(three: Ledger) -> None:
    (digest,) = verify(three, settings_of(three)).heads
    for table in (PLANS, AUDIT, RUNS):
        tampered(three, table).delete("run_id = 'run-2'")
    assert found(verify(three, settings_of(three))) == []
    assert found(verify(three, settings_of(three), expected=[digest])) == [(None, "not_found", "runs")]


@pytest.mark.thorough
def test_who_has_no_key_cannot_forge_a_run_and_the_key_is_asked_for(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROOF_KEY", "right")
    settings = settings_of(ledger, "env:PROOF_KEY")
    ended(ledger, "signed", "env:PROOF_KEY")
    ended(ledger, "forged")
    assert found(verify(ledger, settings)) == [("forged", "not_signed", "runs")]
    with pytest.raises(UsageError, match=r"run signed is signed: set \[proof\] key"):
        verify(ledger, settings_of(ledger))
    monkeypatch.setenv("PROOF_KEY", "wrong")
    assert found(verify(ledger, settings))[0] == ("signed", "other_key", "runs")
    monkeypatch.delenv("PROOF_KEY")
    with pytest.raises(SecretError, match="environment variable PROOF_KEY is not set"):
        runs.start(ledger, settings, runs.Request(command="plan"))


@pytest.mark.thorough
def test_runs_that_end_at_once_are_a_fork_that_the_next_one_joins(ledger: Ledger) -> None:
    ended(ledger, "before")
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda number: ended(Ledger(ledger.spark, ledger.root), f"at-once-{number}"), range(3)))
    ended(ledger, "after")
    verified = verify(ledger, settings_of(ledger))
    assert (found(verified), verified.runs, len(verified.heads)) == ([], 5, 1)


@pytest.mark.thorough
def test_rows_that_maintain_removed_by_age_are_no_forgery(ledger: Ledger) -> None:
    past = datetime.now(UTC) - timedelta(days=40)
    # A run of 40 days ago, as it would have ended then.
    run = runs.begin(ledger, settings_of(ledger), runs.Request(command="provision", run_id="aged"), {"command": "plan"})
    run.row = {**run.row, "started_at": past}
    ledger.update(RUNS, "run_id = 'aged'", {"started_at": f"TIMESTAMP '{past:%Y-%m-%d %H:%M:%S.%f} UTC'"})
    run.append_audit(
        ledger.rows(AUDIT, rows(run, {"topic": "x", "action": "delete"}, completed_at=past, phase="apply"))
    )
    columns = {"finished_at": past + timedelta(minutes=1), "exit_code": 0}
    run.commit_state(RunState.FINISHED, **proof.sealed(run, proof.ending(run), columns))
    ended(ledger, "new")
    assert found(verify(ledger, settings_of(ledger))) == []
    request = maintain.Request(execute=True, retention_days={"audit": 30})
    done = maintain.maintain(ledger, settings_of(ledger), request)
    assert {each.table: each.rows_deleted for each in done.tables if each.rows_deleted} == {"audit": 1}
    verified = verify(ledger, settings_of(ledger))
    assert verified.retention == ["aged"]
    assert found(verified) == []


@pytest.mark.thorough
def test_of_many_rows_executors_make_the_same_digests(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    run = runs.begin(ledger, settings_of(ledger), runs.Request(command="provision"), {"command": "provision"})
    many = [{**ACTIONS[0], "topic": f"t{number}"} for number in range(1_000)]
    ledger.append(PLANS, ledger.rows(PLANS, rows(run, *many)), app_id="x", version=1)
    audited = [{**each, "configs": [CONFIG] * 33} for each in rows(run, *many)]
    for each in audited:
        each.pop("assignments")
    for phase in ("validate", "apply", "verify"):
        run.append_audit(ledger.rows(AUDIT, [{**each, "phase": phase} for each in audited]))
    by_driver = proof.ending(run).proof
    assert (by_driver["plans_rows"], by_driver["audit_rows"]) == ("1000", "3000")
    monkeypatch.setattr(digests, "_FEW_ROWS", 999)
    assert proof.ending(run).proof == by_driver


def answered(topic: str, phase: Phase) -> PhaseResult:
    configs = (ConfigEntry(**CONFIG), ConfigEntry(**{**CONFIG, "name": "b", "value": HOSTILE, "read_only": True}))
    return PhaseResult(
        cluster="main",
        cluster_id=None,
        target=Target(resource=topic, action="create", batch=7),
        phase=phase,
        outcome=Outcome.OK,
        result=TopicResult(num_partitions=3, configs=configs, before={}, after={"z": "", "a": HOSTILE}),
        violations=(Violation(policy="p", message=HOSTILE),),
        requested_at=datetime(2026, 11, 25, 2, 0, 7, 123456, tzinfo=UTC),
        completed_at=datetime(2026, 11, 25, 4, 0, 7, 1, tzinfo=timezone(timedelta(hours=2))),
    )


def test_hashes_made_as_outcomes_are_appended_are_those_of_the_rows_in_the_table(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runs.begin(ledger, settings_of(ledger), runs.Request(command="provision"), {"command": "provision"})
    ledger.append(PLANS, ledger.rows(PLANS, rows(run, *ACTIONS)), app_id="x", version=1)
    for phase in (Phase.VALIDATE, Phase.APPLY):
        run.append_outcomes([answered(topic, phase) for topic in (HOSTILE, "plain")], None)
    assert run.audit_digest is not None
    made = proof.ending(run).proof
    assert (made["plans_rows"], made["audit_rows"]) == ("2", "4")
    with monkeypatch.context() as read_again:
        read_again.setattr(Run, "audit_digest", None)
        assert proof.ending(run).proof == made

    run.append_audit(ledger.rows(AUDIT, [{"run_id": run.run_id, "cluster": "main", "topic": "refused"}]))
    assert run.audit_digest is None, "the driver hasn't got these rows"
    assert proof.ending(run).proof["audit_rows"] == "5"


def test_a_start_that_is_not_the_first_reads_what_the_first_appended(ledger: Ledger) -> None:
    ledger.ensure(PLANS, AUDIT)
    request = runs.Request(command="provision", run_id="twice")
    first = runs.start(ledger, settings_of(ledger), request)
    first.append_outcomes([answered("of the first", Phase.VALIDATE)], None)
    first.settle()
    second = runs.start(ledger, settings_of(ledger), request)
    second.append_outcomes([answered("of the second", Phase.APPLY)], None)
    assert second.audit_digest is None
    assert proof.ending(second).proof["audit_rows"] == "2"
