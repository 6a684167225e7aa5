"""The proof of runs: findings of `runs verify`, and digests that other programs can recompute."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from tests.harness import delta_table
from topicledger.config.proof import ProofSettings
from topicledger.config.settings import Settings, TablesSettings
from topicledger.errors import ExitCode, SecretError, UsageError
from topicledger.ledger import appended, digests, maintain, proof, runs
from topicledger.ledger.abandoned import abandon
from topicledger.ledger.run import Run, find_run
from topicledger.ledger.tables import Ledger
from topicledger.ledger.verified import Verified, render
from topicledger.ledger.verifying import verify
from topicledger.model import ConfigEntry, Outcome, Phase, PhaseResult, RunState, Target, TopicResult, Violation
from topicledger.schemas import AUDIT, PLANS, RUNS, Table

DOCS = Path(__file__).parents[2] / "examples" / "proof" / "README.md"
TRANSCRIPT = Path(os.environ["TOPICLEDGER_TRANSCRIPT"]) if "TOPICLEDGER_TRANSCRIPT" in os.environ else None
"""File for the printed output, to be copied into docs."""
KEY = "0123456789abcdef" * 4
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
    """Write a finished run with rows."""
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
    return delta_table(ledger, table)


@pytest.fixture(scope="module")
def three_runs(spark: SparkSession, pristine: Ledger, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Provide a ledger with three consecutive runs, to be copied."""
    root = tmp_path_factory.mktemp("three") / "ledger"
    shutil.copytree(pristine.root, root)
    ledger = Ledger(spark, str(root))
    for number in range(3):
        ended(ledger, f"run-{number}")
    return ledger


@pytest.fixture
def three(three_runs: Ledger, tmp_path: Path) -> Ledger:
    shutil.copytree(three_runs.root, tmp_path / "three")
    return Ledger(three_runs.spark, str(tmp_path / "three"))


def example() -> ModuleType:
    path = Path(__file__).parents[2] / "examples" / "proof" / "verify_run.py"
    spec = importlib.util.spec_from_file_location("verify_run", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_changed_row_is_found_here_and_with_delta_rs_alone(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROOF_KEY", KEY)
    first = ended(ledger, "run-0", "env:PROOF_KEY")
    settings = settings_of(ledger, "env:PROOF_KEY")
    other = example()
    verified = verify(ledger, settings)
    assert (found(verified), verified.runs, verified.signed) == ([], 1, 1)
    assert other.verify(ledger.root, "run-0", KEY) == []
    assert other.verify(ledger.root, "run-0", "another key") == ["runs"]
    assert first.row["digest"] in verified.heads

    tampered(ledger, AUDIT).update("topic = 'plain'", {"outcome": "'failed'"})
    assert found(verify(ledger, settings)) == [("run-0", "rows_changed", "audit")]
    assert other.verify(ledger.root, "run-0", KEY) == ["audit"]


def printed(verified: Verified) -> str:
    """Return the output of `runs verify` with shortened digests, as in docs."""
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


SHOWN = (one_changed, run_removed)
"""Manipulations whose output is in examples/proof/README.md."""


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
@pytest.mark.parametrize("key", [None, "env:PROOF_KEY"], ids=["without a key", "with a key"])
def test_manipulation_is_found_and_names_the_run(
    key: str | None,
    manipulate: Callable[[Ledger], None],
    findings: list[tuple[str, str, str]],
    request: pytest.FixtureRequest,
) -> None:
    ledger: Ledger = request.getfixturevalue("three" if key is None else "signed")
    assert found(verify(ledger, settings_of(ledger, key))) == []
    manipulate(ledger)
    verified = verify(ledger, settings_of(ledger, key))
    assert found(verified) == findings
    if manipulate in SHOWN and key is None:
        assert printed(verified) in DOCS.read_text(encoding="utf-8"), "the page has what is printed"


@pytest.mark.thorough
def test_optimize_and_vacuum_do_not_change_digests(three: Ledger) -> None:
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
    assert printed(verified) in DOCS.read_text(encoding="utf-8"), "the page has what is printed"
    one_removed(three)
    later = verify(three, settings_of(three), since="run-2")
    assert (found(later), later.runs) == ([], 1)
    with pytest.raises(UsageError, match="no run nobody with a digest"):
        verify(three, settings_of(three), since="nobody")


@pytest.mark.thorough
def test_removal_of_the_last_run_shows_only_by_a_kept_digest(three: Ledger) -> None:
    (digest,) = verify(three, settings_of(three)).heads
    for table in (PLANS, AUDIT, RUNS):
        tampered(three, table).delete("run_id = 'run-2'")
    assert found(verify(three, settings_of(three))) == []
    assert found(verify(three, settings_of(three), expected=[digest])) == [(None, "not_found", "runs")]


@pytest.fixture(scope="module")
def signed_runs(spark: SparkSession, pristine: Ledger, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Provide a ledger with three signed runs, to be copied."""
    root = tmp_path_factory.mktemp("signed") / "ledger"
    shutil.copytree(pristine.root, root)
    ledger = Ledger(spark, str(root))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PROOF_KEY", KEY)
        for number in range(3):
            ended(ledger, f"run-{number}", "env:PROOF_KEY")
    return ledger


@pytest.fixture
def signed(signed_runs: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.setenv("PROOF_KEY", KEY)
    shutil.copytree(signed_runs.root, tmp_path / "signed")
    return Ledger(signed_runs.spark, str(tmp_path / "signed"))


def forge(ledger: Ledger, run_id: str, *, of: str = "run-1", rows: bool = True, **columns: object) -> None:
    """Add a copy of another run with some different columns, and with rows of `audit`."""
    found = ledger.stored(RUNS).where(F.col("run_id") == of).withColumn("run_id", F.lit(run_id))
    for name, value in columns.items():
        found = found.withColumn(name, F.lit(value).cast(RUNS.schema[name].dataType))
    ledger.append(RUNS, found, app_id=f"runs of {run_id}", version=1)
    if rows:
        audited = ledger.stored(AUDIT).where(F.col("run_id") == of).withColumn("run_id", F.lit(run_id))
        ledger.append(AUDIT, audited, app_id=f"audit of {run_id}", version=1)


def led_back_by_another_key(ledger: Ledger) -> None:
    """The run before --since-run refers to a forged newest run; both claim to be signed with a different key."""
    digests = {row["run_id"]: row["digest"] for row in ledger.read(RUNS).collect()}
    foreign = "map('algorithm', 'HMAC-SHA256', 'key_id', '0badc0de')"
    set_in_runs(ledger, "run_id = 'run-0'", proof=foreign, previous_digest=f"'{digests['run-2']}'")
    set_in_runs(ledger, "run_id = 'run-2'", proof=foreign, requested_by="'bob'")


def set_in_runs(ledger: Ledger, condition: str, **values: str) -> None:
    tampered(ledger, RUNS).update(condition, values)


ABANDONED = RunState.ABANDONED.value
OTHER_ROWS = [("forged", "rows_removed", "plans"), ("forged", "rows_changed", "audit")]
"""Findings for a forged run with the digest of another run, since its rows have a different run id."""


LED_BACK = [
    ("run-0", "other_key", "runs"),
    ("run-0", "rows_added", "plans"),
    ("run-0", "rows_added", "audit"),
    ("run-2", "other_key", "runs"),
    ("run-2", "rows_added", "plans"),
    ("run-2", "rows_added", "audit"),
]


def second_row(ledger: Ledger) -> None:
    forge(ledger, "run-0", of="run-0", rows=False, digest=None, requested_by="bob")


def row_copied(ledger: Ledger) -> None:
    forge(ledger, "run-0", of="run-0", rows=False)


def abandoned_forged(ledger: Ledger) -> None:
    forge(ledger, "forged", state=ABANDONED, digest=None)


def abandoned_forged_before_all(ledger: Ledger) -> None:
    forge(ledger, "forged", state=ABANDONED, digest=None, started_at=datetime(2020, 1, 1, tzinfo=UTC))


def digest_copied(ledger: Ledger) -> None:
    forge(ledger, "forged", of="run-0")


def newest_abandoned(ledger: Ledger) -> None:
    set_in_runs(ledger, "run_id = 'run-2'", state=f"'{ABANDONED}'")


def newest_abandoned_without_digest(ledger: Ledger) -> None:
    set_in_runs(ledger, "run_id = 'run-2'", state=f"'{ABANDONED}'", digest="NULL", finished_at="NULL")


def newest_in_no_state(ledger: Ledger) -> None:
    set_in_runs(ledger, "run_id = 'run-2'", state="NULL", digest="NULL", finished_at="NULL")


def newest_open_but_ended(ledger: Ledger) -> None:
    set_in_runs(ledger, "run_id = 'run-2'", state="'applying'", digest="NULL")


def all_digests_removed(ledger: Ledger) -> None:
    set_in_runs(ledger, "true", digest="NULL", proof="NULL", previous_digest="NULL")


def ends_moved_back(ledger: Ledger) -> None:
    set_in_runs(ledger, "run_id = 'run-2'", finished_at="started_at - INTERVAL 9 DAYS")


def forged_with_an_early_end(ledger: Ledger) -> None:
    forge(ledger, "forged", finished_at=datetime(2020, 1, 1, tzinfo=UTC), proof=None, digest="0" * 64)


def nonsense(ledger: Ledger) -> None:
    """Write values that could break a reader."""
    forge(ledger, "forged", digest="\u00e9", finished_at=None, started_at=None, previous_digest=",,x")
    never = tampered(ledger, RUNS)
    never.update("run_id = 'forged'", {"finished_at": "timestamp_micros(9223372036854775807)"})
    rows = ledger.stored(AUDIT).where("run_id = 'run-1'").withColumn("run_id", F.lit(None).cast("string"))
    ledger.append(AUDIT, rows, app_id="nobody", version=1)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("manipulate", "since", "findings"),
    [
        (second_row, None, [("run-0", "run_added", "runs")]),
        (row_copied, None, [("run-0", "run_added", "runs")]),
        (abandoned_forged, None, [("forged", "no_digest", "runs")]),
        (abandoned_forged_before_all, None, [("forged", "no_digest", "runs")]),
        (abandoned_forged, "run-1", [("forged", "no_digest", "runs")]),
        (digest_copied, "run-1", [("forged", "run_changed", "runs"), *OTHER_ROWS]),
        (newest_abandoned, None, [("run-2", "run_changed", "runs")]),
        (newest_abandoned_without_digest, None, [("run-2", "no_digest", "runs")]),
        (newest_in_no_state, None, [("run-2", "no_digest", "runs")]),
        (newest_open_but_ended, None, [("run-2", "no_digest", "runs")]),
        (all_digests_removed, None, [(f"run-{number}", "no_digest", "runs") for number in range(3)]),
        (ends_moved_back, "run-1", [("run-2", "run_changed", "runs")]),
        (led_back_by_another_key, "run-1", LED_BACK),
        (forged_with_an_early_end, "run-1", [("forged", "not_signed", "runs"), ("forged", "rows_added", "audit")]),
        (
            nonsense,
            "run-1",
            [
                ("forged", "run_changed", "runs"),
                ("forged", "run_removed", "runs"),
                *OTHER_ROWS,
                (None, "run_removed", "runs"),
            ],
        ),
    ],
)
def test_runs_cannot_be_forged_or_hidden_without_the_key(
    signed: Ledger, manipulate: Callable[[Ledger], None], since: str | None, findings: list[tuple[str, str, str]]
) -> None:
    manipulate(signed)
    assert found(verify(signed, settings_of(signed, "env:PROOF_KEY"), since=since)) == findings


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("manipulate", "findings"),
    [
        (second_row, [("run-0", "run_added", "runs")]),
        (abandoned_forged, [("forged", "no_digest", "runs")]),
        (newest_abandoned, [("run-2", "run_changed", "runs")]),
        (newest_abandoned_without_digest, [("run-2", "no_digest", "runs")]),
    ],
)
def test_forgery_without_digests_is_found_without_a_key(
    three: Ledger, manipulate: Callable[[Ledger], None], findings: list[tuple[str, str, str]]
) -> None:
    manipulate(three)
    assert found(verify(three, settings_of(three))) == findings


@pytest.mark.thorough
def test_from_follows_digests_and_not_times_in_rows(signed: Ledger) -> None:
    settings = settings_of(signed, "env:PROOF_KEY")
    clean = verify(signed, settings, since="run-2")
    assert (found(clean), clean.runs, clean.earlier) == ([], 1, 2)
    forged_with_an_early_end(signed)
    second_row(signed)
    ends_moved_back(signed)
    assert found(verify(signed, settings, since="run-1")) == [
        ("run-0", "run_added", "runs"),
        ("forged", "not_signed", "runs"),
        ("forged", "rows_added", "audit"),
        ("run-2", "run_changed", "runs"),
    ]
    assert found(verify(signed, settings, since="run-2"))[-1] == ("run-2", "run_changed", "runs")


@pytest.mark.thorough
def test_with_a_key_every_run_without_a_digest_is_a_finding(signed: Ledger) -> None:
    settings = settings_of(signed, "env:PROOF_KEY")
    abandoned_forged_before_all(signed)
    all_digests_removed(signed)
    verified = verify(signed, settings)
    assert found(verified) == [(run_id, "no_digest", "runs") for run_id in ("forged", "run-0", "run-1", "run-2")]
    advice = "if proof.key was set later, verify with --since-run RUN, the first signed run"
    assert advice in verified.findings[-1].message
    set_in_runs(signed, "true", state="'applying'", finished_at="NULL")
    verified = verify(signed, settings)
    assert (found(verified), verified.open_runs) == ([], ["forged", "run-0", "run-1", "run-2"])
    assert verified.exit_code == ExitCode.CHANGES_PENDING
    assert "nothing proves 4 open runs with rows" in printed(verified)


@pytest.mark.thorough
def test_abandoned_run_is_proven_like_a_finished_one(signed: Ledger) -> None:
    settings = settings_of(signed, "env:PROOF_KEY")
    request = runs.Request(command="provision", run_id="given-up")
    run = runs.begin(signed, settings, request, {"command": "provision"})
    run.append_audit(signed.rows(AUDIT, rows(run, {"topic": "x", "action": "delete"}, phase="apply")))
    before = verify(signed, settings)
    assert (found(before), before.unproven_runs) == ([], ["given-up"])

    abandon(signed, settings, "given-up")
    row = find_run(signed, "given-up")
    assert row is not None
    assert (row["state"], row["proof"]["audit_rows"]) == ("abandoned", "1")
    verified = verify(signed, settings)
    assert (found(verified), verified.runs, verified.unproven, verified.heads) == ([], 4, 0, [row["digest"]])

    # The state that an older topicledger would leave; abandoning the run again gives it its digest.
    set_in_runs(signed, "run_id = 'given-up'", digest="NULL", proof="NULL", previous_digest="NULL")
    assert found(verify(signed, settings)) == [("given-up", "no_digest", "runs")]
    abandon(signed, settings, "given-up")
    assert found(verify(signed, settings)) == []
    tampered(signed, AUDIT).update("run_id = 'given-up'", {"outcome": "'ok'"})
    assert found(verify(signed, settings)) == [("given-up", "rows_changed", "audit")]
    signed.append(AUDIT, signed.rows(AUDIT, rows(run, {"topic": "y"}, phase="apply")), app_id="its driver", version=1)
    assert found(verify(signed, settings)) == [("given-up", "rows_added", "audit")]


@pytest.mark.thorough
def test_a_row_changed_before_its_runs_end_has_the_digest_of_the_changed_row(signed: Ledger) -> None:
    """Open runs aren't proven. When a run was announced isn't either: `notified` is written after its end."""
    settings = settings_of(signed, "env:PROOF_KEY")
    run = runs.begin(signed, settings, runs.Request(command="provision", run_id="open"), {"command": "provision"})
    run.append_audit(signed.rows(AUDIT, rows(run, {"topic": "x", "action": "delete"}, phase="apply")))
    tampered(signed, AUDIT).update("run_id = 'open'", {"outcome": "'failed'"})
    abandon(signed, settings, "open")
    assert found(verify(signed, settings)) == []
    set_in_runs(signed, "run_id = 'open'", notified="'finished:9c0d'")
    assert found(verify(signed, settings)) == []


@pytest.mark.thorough
def test_a_run_of_another_ledger_with_the_same_key_is_found(ledger: Ledger, signed: Ledger) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    ended(ledger, "elsewhere", "env:PROOF_KEY", at=later)
    for table in (RUNS, PLANS, AUDIT):
        signed.append(table, ledger.stored(table).where("run_id = 'elsewhere'"), app_id="somebody", version=1)
    assert found(verify(signed, settings_of(signed, "env:PROOF_KEY"))) == [("elsewhere", "run_added", "runs")]


@pytest.mark.thorough
def test_open_run_is_named_as_not_proven(signed: Ledger) -> None:
    """The newest run, made open again, looks like an open run; only a digest kept elsewhere reveals it."""
    settings = settings_of(signed, "env:PROOF_KEY")
    (digest,) = verify(signed, settings).heads
    set_in_runs(signed, "run_id = 'run-2'", state="'applying'", digest="NULL", finished_at="NULL")
    verified = verify(signed, settings, expected=[digest])
    assert (found(verified), verified.open_runs) == ([(None, "not_found", "runs")], ["run-2"])


@pytest.mark.thorough
def test_from_leaves_out_runs_from_before_the_key(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROOF_KEY", KEY)
    settings = settings_of(ledger, "env:PROOF_KEY")
    ended(ledger, "unsigned")
    ended(ledger, "signed", "env:PROOF_KEY")
    forge(ledger, "older", of="unsigned", digest=None, proof=None, started_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert found(verify(ledger, settings)) == [("unsigned", "not_signed", "runs"), ("older", "no_digest", "runs")]
    verified = verify(ledger, settings, since="signed")
    assert (found(verified), verified.earlier, verified.unproven_runs) == ([], 1, ["older"])
    assert verified.exit_code == ExitCode.CHANGES_PENDING, "only its row says that it began before the key"


@pytest.mark.thorough
def test_the_newest_run_unsealed_and_moved_back_is_not_proven(signed: Ledger) -> None:
    """Only a digest kept elsewhere tells it from a run that is older than the key."""
    settings = settings_of(signed, "env:PROOF_KEY")
    (digest,) = verify(signed, settings).heads
    none = {"digest": "NULL", "proof": "NULL", "previous_digest": "NULL"}
    set_in_runs(signed, "run_id = 'run-2'", started_at="TIMESTAMP '2020-01-01'", **none)
    tampered(signed, AUDIT).update("run_id = 'run-2'", {"outcome": "'failed'"})
    assert found(verify(signed, settings)) == [("run-2", "no_digest", "runs")]
    verified = verify(signed, settings, since="run-1")
    assert (found(verified), verified.exit_code) == ([], ExitCode.CHANGES_PENDING)
    line = "1 runs with rows have no digest; their rows say that they began before the run of --since-run: run-2"
    assert line in printed(verified)
    assert found(verify(signed, settings, since="run-1", expected=[digest])) == [(None, "not_found", "runs")]


@pytest.mark.thorough
def test_short_key_verifies_old_runs_but_signs_nothing(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(ledger, "env:PROOF_KEY")
    monkeypatch.setenv("PROOF_KEY", "s3cret")
    with monkeypatch.context() as older:
        older.setattr(proof, "LEAST_KEY_BYTES", 1)
        ended(ledger, "signed", "env:PROOF_KEY")
    verified = verify(ledger, settings)
    assert (found(verified), verified.signed) == ([], 1)
    with pytest.raises(SecretError, match="shorter than 32 bytes") as refused:
        runs.start(ledger, settings, runs.Request(command="plan"))
    assert "s3cret" not in str(refused.value)


@pytest.mark.thorough
def test_key_is_required_and_runs_cannot_be_forged_without_it(signed: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(signed, "env:PROOF_KEY")
    ended(signed, "forged")
    assert found(verify(signed, settings)) == [("forged", "not_signed", "runs")]
    with pytest.raises(UsageError, match=r"run run-0 is signed: set \[proof\] key"):
        verify(signed, settings_of(signed))
    monkeypatch.setenv("PROOF_KEY", KEY[::-1])
    verified = verify(signed, settings)
    assert found(verified)[0] == ("run-0", "other_key", "runs")
    assert f"--other-key {proof.Signer(KEY.encode()).about[proof.KEY_ID]}" in verified.findings[0].message
    monkeypatch.delenv("PROOF_KEY")
    with pytest.raises(SecretError, match="environment variable PROOF_KEY is not set"):
        runs.start(signed, settings, runs.Request(command="plan"))


@pytest.mark.thorough
def test_simultaneous_ends_are_a_fork_that_the_next_run_joins(ledger: Ledger) -> None:
    ended(ledger, "before")
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda number: ended(Ledger(ledger.spark, ledger.root), f"at-once-{number}"), range(3)))
    ended(ledger, "after")
    verified = verify(ledger, settings_of(ledger))
    assert (found(verified), verified.runs, len(verified.heads)) == ([], 5, 1)


@pytest.mark.thorough
def test_rows_removed_by_maintain_are_not_a_forgery(ledger: Ledger) -> None:
    past = datetime.now(UTC) - timedelta(days=40)
    # A run that ended 40 days ago.
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
    request = maintain.MaintenanceRequest(execute=True, retention_days={"audit": 30})
    done = maintain.maintain(ledger, settings_of(ledger), request)
    assert {each.table: each.rows_deleted for each in done.tables if each.rows_deleted} == {"audit": 1}
    verified = verify(ledger, settings_of(ledger))
    assert verified.retention == ["aged"]
    assert found(verified) == []


@pytest.mark.thorough
def test_rows_that_a_killed_maintenance_removed_are_not_a_forgery(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row isn't sealed, but its start was signed before any row was removed."""
    monkeypatch.setenv("PROOF_KEY", KEY)
    settings = settings_of(ledger, "env:PROOF_KEY")
    past = datetime.now(UTC) - timedelta(days=40)
    run = runs.begin(ledger, settings, runs.Request(command="provision", run_id="aged"), {"command": "provision"})
    ledger.update(RUNS, "run_id = 'aged'", {"started_at": f"TIMESTAMP '{past:%Y-%m-%d %H:%M:%S.%f} UTC'"})
    run.row = {**run.row, "started_at": past}
    deleted = rows(run, {"topic": "x", "action": "delete"}, completed_at=past, phase="apply")
    run.append_audit(ledger.rows(AUDIT, deleted))
    columns = {"finished_at": past + timedelta(minutes=1), "exit_code": 0}
    run.commit_state(RunState.FINISHED, **proof.sealed(run, proof.ending(run), columns))

    def killed(_: Ledger, table: Table) -> int:
        if table is AUDIT:
            raise KeyboardInterrupt
        return 1

    monkeypatch.setattr(Ledger, "compact", killed)
    monkeypatch.setattr(Ledger, "vacuum", lambda *_, **__: 0)
    request = maintain.MaintenanceRequest(execute=True, run_id="sweeping", retention_days={"audit": 30})
    with pytest.raises(KeyboardInterrupt):
        maintain.maintain(ledger, settings, request)
    assert ledger.read(AUDIT).isEmpty()
    verified = verify(ledger, settings)
    assert (found(verified), verified.retention) == ([], ["aged"])
    ledger.update(RUNS, "run_id = 'sweeping'", {"proof": "NULL"})
    assert found(verify(ledger, settings)) == [("aged", "rows_removed", "audit")]


@pytest.mark.thorough
def test_executors_compute_the_same_digests(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr(Run, "digests", lambda _: {})
    assert proof.ending(run).proof == by_driver
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


@pytest.mark.thorough
def test_incremental_hashes_equal_those_of_the_rows_in_the_table(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runs.begin(ledger, settings_of(ledger), runs.Request(command="provision"), {"command": "provision"})
    ledger.append(PLANS, ledger.rows(PLANS, rows(run, *ACTIONS)), app_id="x", version=1)
    for phase in (Phase.VALIDATE, Phase.APPLY):
        run.append_outcomes([answered(topic, phase) for topic in (HOSTILE, "plain")], None)
    assert [*run.digests()] == [AUDIT.name]
    made = proof.ending(run).proof
    assert (made["plans_rows"], made["audit_rows"]) == ("2", "4")
    with monkeypatch.context() as read_again:
        read_again.setattr(Run, "digests", lambda _: {})
        assert proof.ending(run).proof == made

    monkeypatch.setattr(appended, "FEW_ROWS", 0)
    run.append_audit(ledger.rows(AUDIT, [{"run_id": run.run_id, "cluster": "main", "topic": "refused"}]))
    assert run.digests() == {}, "the driver hasn't got these rows"
    assert proof.ending(run).proof["audit_rows"] == "5"


def in_order(rows: DataFrame) -> list[dict[str, Any]]:
    return sorted((row.asDict(recursive=True) for row in rows.collect()), key=str)


@pytest.mark.thorough
def test_rows_that_were_just_written_are_not_read_back(ledger: Ledger) -> None:
    run = runs.begin(ledger, settings_of(ledger), runs.Request(command="provision"), {"command": "provision"})
    run.append_plan(ledger.rows(PLANS, rows(run, *ACTIONS, planned_at=datetime.now(UTC))), few=True)
    run.append_outcomes([answered(HOSTILE, Phase.VALIDATE)], None)
    run.append_audit(ledger.rows(AUDIT, rows(run, {"topic": "plain", "action": "delete"}, phase="policy")))
    mine = F.col("run_id") == run.run_id
    for table, kept in ((PLANS, run.plans()), (AUDIT, run.audit())):
        assert kept.inputFiles() == [], table.name
        assert in_order(kept) == in_order(ledger.read(table).where(mine))
    made = proof.ending(run).proof
    later = replace(run, found=RunState.PLANNING)
    assert later.plans().inputFiles() != []
    assert proof.ending(later).proof == made


@pytest.mark.thorough
def test_later_start_reads_rows_of_the_first_start(ledger: Ledger) -> None:
    ledger.ensure(PLANS, AUDIT)
    request = runs.Request(command="provision", run_id="twice")
    first = runs.start(ledger, settings_of(ledger), request)
    first.append_outcomes([answered("of the first", Phase.VALIDATE)], None)
    first.settle()
    second = runs.start(ledger, settings_of(ledger), request)
    second.append_outcomes([answered("of the second", Phase.APPLY)], None)
    assert second.digests() == {}
    assert proof.ending(second).proof["audit_rows"] == "2"
