"""Maintenance of the tables: nothing without --execute, no rows of open runs, only whole days."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import functions as F
from rich.console import Console

from tests import commands
from tests.harness import delta_table
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import Settings, TablesSettings
from topicledger.config.severities import Severity
from topicledger.drift.summary import ClusterDrift, summarise
from topicledger.errors import UsageError
from topicledger.ledger import expired
from topicledger.ledger.acknowledged import created_by
from topicledger.ledger.expired import abandon_expired
from topicledger.ledger.maintain import (
    Maintained,
    MaintenanceRequest,
    TableMaintained,
    _open_runs,
    _pinned,
    maintain,
    render,
)
from topicledger.ledger.run import Run
from topicledger.ledger.tables import Ledger
from topicledger.model import RunState
from topicledger.model.renames import REPLACED_BY, REPLACES
from topicledger.model.scope import EVERYTHING, Scope
from topicledger.resources.topics.drift import find as drift
from topicledger.schemas import AUDIT, DECLARING, DRIFT, LEASES, MANIFESTS, OBSERVED_CONFIGS, PLANS, RUNS, TABLES, Table


def midnight() -> datetime:
    """Return the start of today, since a test run may last past midnight."""
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def write(ledger: Ledger, table: Table, *rows: Mapping[str, Any]) -> None:
    """Append rows, each in a separate file; missing columns are null."""
    for row in rows:
        ordered = tuple(row.get(name) for name in table.schema.names)
        frame = ledger.spark.createDataFrame([ordered], table.schema, verifySchema=False)
        frame.write.format("delta").mode("append").save(ledger.location(table))


def run_row(run_id: str, state: str, started_at: datetime | None = None) -> Mapping[str, Any]:
    return {"run_id": run_id, "state": state, "started_at": started_at or midnight(), "epoch": 1}


def audit_row(run_id: str, topic: str, completed_at: datetime) -> Mapping[str, Any]:
    return {"run_id": run_id, "topic": topic, "phase": "apply", "outcome": "ok", "completed_at": completed_at}


def settings(ledger: Ledger) -> Settings:
    return Settings(path=Path("tests.toml"), tables=TablesSettings(root=ledger.root), clusters={})


def of(maintained: Maintained, table: Table) -> TableMaintained:
    (found,) = [each for each in maintained.tables if each.table == table.name]
    assert found.error is None
    return found


def topics(ledger: Ledger, table: Table) -> set[str]:
    return {row["topic"] for row in ledger.read(table).collect()}


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    """Provide a ledger with only a few tables, since maintenance processes all existing ones."""
    for table in TABLES.values():
        if table not in (AUDIT, LEASES, MANIFESTS, PLANS, RUNS):
            shutil.rmtree(ledger.location(table))
    return ledger


@pytest.fixture
def aged(ledger: Ledger) -> Ledger:
    """Rows of two days ago, yesterday and today, of a finished run, an open run and an unknown run."""
    write(ledger, RUNS, run_row("over", "finished"), run_row("open", "applying"))
    write(
        ledger,
        AUDIT,
        audit_row("over", "before", midnight() - timedelta(days=1, microseconds=1)),
        audit_row("over", "at-midnight", midnight() - timedelta(days=1)),
        audit_row("over", "today", midnight()),
        audit_row("open", "still-open", midnight() - timedelta(days=9)),
        audit_row("forgotten", "long-ago", midnight() - timedelta(days=99)),
    )
    return ledger


@pytest.mark.thorough
def test_dry_run_reports_and_changes_nothing(aged: Ledger) -> None:
    versions = {table.name: aged.latest_version(table) for table in (AUDIT, RUNS)}
    told = maintain(aged, settings(aged), MaintenanceRequest(retention_days={"audit": 1}))
    assert (told.executed, told.run_id, told.exit_code) == (False, None, 0)
    assert (of(told, AUDIT).rows_deleted, of(told, AUDIT).files, of(told, AUDIT).files_after) == (2, 5, None)
    assert {table.name: aged.latest_version(table) for table in (AUDIT, RUNS)} == versions
    assert of(told, AUDIT).work == ["delete 2 rows"]
    needed, idle = (printed(each) for each in (told, maintain(aged, settings(aged), MaintenanceRequest())))
    assert "work is needed on audit: maintain --execute does it" in needed
    assert [title for title in ("rows deleted", "files now", "note") if title in needed] == []
    assert "no work is needed" in idle


def printed(maintained: Maintained) -> str:
    console = Console(file=io.StringIO(), width=200)
    render(maintained, console)
    return cast(io.StringIO, console.file).getvalue()


@pytest.mark.thorough
def test_old_rows_are_deleted_by_whole_days_and_recorded(aged: Ledger) -> None:
    done = maintain(
        aged, settings(aged), MaintenanceRequest(execute=True, retention_days={"audit": 1}, requested_by="the auditor")
    )
    assert of(done, AUDIT).rows_deleted == 2
    assert of(done, AUDIT).files_after == 1
    assert topics(aged, AUDIT) == {"at-midnight", "today", "still-open"}
    (row,) = aged.read(RUNS).where(F.col("run_id") == done.run_id).collect()
    assert (row["state"], row["exit_code"], row["requested_by"]) == ("finished", 0, "the auditor")
    assert row["counts"] == {"audit_rows_deleted": 2}
    assert (row["arguments"]["command"], row["arguments"]["audit_retention_days"]) == ("maintain", "1")


@pytest.mark.thorough
def test_audit_stays_append_only(aged: Ledger) -> None:
    maintain(aged, settings(aged), MaintenanceRequest(execute=True, retention_days={"audit": 1}))
    with pytest.raises(Exception, match="append"):
        delta_table(aged, AUDIT).delete()
    assert topics(aged, AUDIT) == {"at-midnight", "today", "still-open"}


@pytest.mark.thorough
def test_without_retention_nothing_is_deleted(aged: Ledger) -> None:
    write(aged, PLANS, {"run_id": "over", "topic": "planned", "planned_at": midnight() - timedelta(days=500)})
    done = maintain(aged, settings(aged), MaintenanceRequest(execute=True))
    assert [each.rows_deleted for each in done.tables] == [0] * len(done.tables)
    assert len(topics(aged, AUDIT)) == 5
    assert topics(aged, PLANS) == {"planned"}


@pytest.mark.thorough
def test_files_of_expired_versions_are_removed(ledger: Ledger) -> None:
    """Includes files of a writer that died before its commit, but not files that were just compacted."""
    write(ledger, LEASES, {"cluster_id": "one", "changes": 1}, {"cluster_id": "one", "changes": 2})
    assert ledger.compact(LEASES) == 1
    folder = Path(ledger.location(LEASES))
    written = sorted(folder.rglob("*.parquet"))
    old = (datetime.now(UTC) - timedelta(days=8)).timestamp()
    left = [path.with_name(f"part-left-{number}.parquet") for number, path in enumerate(written[:2])]
    for path, copied in zip(written, left, strict=False):
        shutil.copy(path, copied)
        os.utime(copied, (old, old))
    assert of(maintain(ledger, settings(ledger), MaintenanceRequest()), LEASES).files_vacuumed == 2
    assert all(path.exists() for path in left)
    assert of(maintain(ledger, settings(ledger), MaintenanceRequest(execute=True)), LEASES).files_vacuumed == 2
    assert sorted(folder.rglob("*.parquet")) == written
    assert ledger.read(LEASES).count() == 2


@pytest.mark.thorough
def test_versions_that_open_runs_read_are_not_vacuumed(ledger: Ledger) -> None:
    pinned = (*DECLARING, OBSERVED_CONFIGS)
    for table in pinned:
        ledger.ensure(table)
    write(ledger, RUNS, run_row("slow", "planned", midnight() - timedelta(days=30)))
    told = maintain(ledger, settings(ledger), MaintenanceRequest())
    assert of(told, AUDIT).note is None
    for table in pinned:
        assert "run slow is open" in str(of(told, table).note)
    late = {f"slow-{number}": midnight() - timedelta(days=30) for number in range(7)}
    assert "runs slow-0, slow-1, slow-2 and 4 more are open" in str(_pinned(MANIFESTS, MaintenanceRequest(), late))
    assert of(maintain(ledger, settings(ledger), MaintenanceRequest(vacuum_hours=24 * 60)), MANIFESTS).note is None


@pytest.mark.thorough
def test_open_runs_that_are_never_resumed_pin_nothing_and_earlier_manifests_at_once(ledger: Ledger) -> None:
    """A killed load stays open in `runs`; a plan may read a version that was replaced long before it began."""

    def row(run_id: str, command: str, days: int, **more: str) -> Mapping[str, Any]:
        began = midnight() - timedelta(days=days)
        return {**run_row(run_id, "planned", began), "arguments": {"command": command, **more}}

    write(ledger, RUNS, row("load", "load_manifests", 30), row("accept", "clusters accept", 30), row("new", "plan", 0))
    assert list(_open_runs(ledger, [])) == ["new"]
    assert _pinned(MANIFESTS, MaintenanceRequest(vacuum_hours=72), _open_runs(ledger, [])) is None
    write(ledger, RUNS, row("back", "plan", 0, manifest_version="3"))
    assert "run back is open" in str(_pinned(MANIFESTS, MaintenanceRequest(), _open_runs(ledger, [])))


@pytest.mark.thorough
def test_failing_table_is_reported_and_the_others_are_maintained(aged: Ledger) -> None:
    for part in Path(aged.location(PLANS), "_delta_log").glob("*.*"):
        part.unlink()
    Path(aged.location(PLANS), "_delta_log", "00000000000000000000.json").write_text("{}\n")
    done = maintain(aged, settings(aged), MaintenanceRequest(execute=True, retention_days={"audit": 1}))
    assert done.exit_code == 1
    assert [each.table for each in done.tables if each.error] == ["plans"]
    assert "still-open" in topics(aged, AUDIT)
    assert "long-ago" not in topics(aged, AUDIT)


@pytest.mark.thorough
def test_existing_run_id_is_refused(aged: Ledger) -> None:
    with pytest.raises(UsageError, match="run over already exists"):
        maintain(aged, settings(aged), replace(MaintenanceRequest(execute=True), run_id="over"))


@pytest.mark.thorough
def test_stdout_contains_only_the_result(ledger: Ledger, tmp_path: Path) -> None:
    """VACUUM prints to Java's stdout, and lists the folder of the change data feed among the old files."""
    write(ledger, MANIFESTS, {"cluster": "main", "topic": "one", "state": "present"})
    ledger.update(MANIFESTS, "topic = 'one'", {"owner": "'somebody'"})
    assert Path(ledger.location(MANIFESTS), "_change_data").is_dir()
    old = (datetime.now(UTC) - timedelta(days=8)).timestamp()
    left = Path(ledger.location(MANIFESTS), "part-left.parquet")
    left.touch()
    os.utime(left, (old, old))
    config = commands.settings_file(tmp_path, {"main": ["localhost:9092"]}, root=ledger.root)
    maintained = commands.command("maintain", "--config", str(config), "--execute", "--format", "json")
    done = commands.run(maintained)
    assert done.returncode == 0, done.stderr
    tables = {each["table"]: each for each in json.loads(done.stdout)["tables"]}
    assert tables["manifests"]["files_vacuumed"] == 1
    assert not left.exists()


def append_only(ledger: Ledger, table: Table) -> str:
    return ledger._properties(table)["delta.appendOnly"]


def until(met: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if met():
            return
        time.sleep(0.05)
    raise AssertionError("waited in vain")


@pytest.mark.thorough
def test_append_during_a_delete_from_audit_is_repeated(
    aged: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lifting delta.appendOnly is a commit that makes every earlier pending append fail once."""
    begun, go_on = tmp_path / "begun", tmp_path / "go_on"

    @F.udf("string")
    def slowly(topic: str) -> str:
        begun.touch()
        while not go_on.exists():
            time.sleep(0.05)
        return topic

    rows = aged.rows(AUDIT, [audit_row("open", "meanwhile", midnight())]).withColumn("topic", slowly("topic"))
    set_property = Ledger._set_property

    def lifted(self: Ledger, table: Table, name: str, value: str) -> None:
        set_property(self, table, name, value)
        if value == "false":
            go_on.touch()
            # It fails, and the next append is committed before the delete begins.
            appended.result()

    monkeypatch.setattr(Ledger, "_set_property", lifted)
    with ThreadPoolExecutor(1) as pool:
        appended = pool.submit(aged.append, AUDIT, rows, app_id="open", version=1)
        until(begun.exists)
        assert aged.delete(AUDIT, "topic = 'long-ago'") == 1
    assert topics(aged, AUDIT) == {"before", "at-midnight", "today", "still-open", "meanwhile"}
    assert append_only(aged, AUDIT) == "true"


@pytest.mark.thorough
def test_appends_to_audit_continue_while_old_rows_are_deleted(aged: Ledger) -> None:
    # Fewer appends than a delete is retried for.
    names = [f"meanwhile-{number}" for number in range(4)]

    def append() -> None:
        for version, name in enumerate(names, start=1):
            rows = aged.rows(AUDIT, [audit_row("open", name, midnight())])
            aged.append(AUDIT, rows, app_id="open", version=version)

    with ThreadPoolExecutor(1) as pool:
        appended = pool.submit(append)
        done = maintain(aged, settings(aged), MaintenanceRequest(execute=True, retention_days={"audit": 1}))
        appended.result()
    assert of(done, AUDIT).rows_deleted == 2
    assert topics(aged, AUDIT) == {"at-midnight", "today", "still-open", *names}
    assert append_only(aged, AUDIT) == "true"


@pytest.mark.thorough
def test_delete_lifts_append_only_again_if_a_run_restored_it(aged: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """This happens when a run opens `audit` between the two commits of a maintenance."""
    set_property, lifted = Ledger._set_property, []

    def interfere(self: Ledger, table: Table, name: str, value: str) -> None:
        set_property(self, table, name, value)
        if value == "false":
            lifted.append(name)
            if len(lifted) == 1:
                Ledger(self.spark, self.root).ensure(table)

    monkeypatch.setattr(Ledger, "_set_property", interfere)
    assert aged.delete(AUDIT, "topic = 'long-ago'") == 1
    assert len(lifted) == 2
    assert topics(aged, AUDIT) == {"before", "at-midnight", "today", "still-open"}
    assert append_only(aged, AUDIT) == "true"


KILLED = """
import os, signal, sys
from topicledger.ledger.maintain import MaintenanceRequest, maintain
from topicledger.ledger.session import get_session
from topicledger.config.reading import load_settings
from topicledger.ledger.tables import Ledger
from pathlib import Path

set_property = Ledger._set_property

def killed(self, table, name, value):
    set_property(self, table, name, value)
    os.killpg(0, signal.SIGKILL)

Ledger._set_property = killed
settings = load_settings(Path(sys.argv[1]))
ledger = Ledger(get_session("killed"), settings.tables.root)
maintain(ledger, settings, MaintenanceRequest(execute=True, retention_days={"audit": 1}))
"""


@pytest.mark.thorough
def test_run_restores_append_only_after_killed_maintenance(
    aged: Ledger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = commands.settings_file(tmp_path, {"main": ["localhost:9092"]}, root=aged.root)
    # The JVM is in the same process group.
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(config)],
        env=commands.environment(),
        cwd=commands.REPOSITORY,
        start_new_session=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert append_only(aged, AUDIT) == "false"
    Ledger(aged.spark, aged.root).ensure(AUDIT)
    assert append_only(aged, AUDIT) == "true"
    assert "was not append-only" in caplog.text
    assert "long-ago" in topics(aged, AUDIT)
    caplog.clear()
    Ledger(aged.spark, aged.root).ensure(AUDIT)
    assert caplog.text == ""


@pytest.mark.thorough
def test_rows_that_prove_topic_ownership_are_kept(ledger: Ledger) -> None:
    """C21, M3, and the drift kind `recreated` still work as before."""
    since = midnight() - timedelta(days=9)

    def row(topic: str, hours: int, action: str = "create", **given: Any) -> Mapping[str, Any]:
        told = {"cluster": "main", "cluster_id": "K", "action": action, "topic_id": f"id-{topic}-{hours}"}
        return {**audit_row(f"run-{hours}", topic, since + timedelta(hours=hours)), **told, **given}

    rows = [
        row("ours", 1),
        row("ours", 1, phase="validate"),
        row("ours", 1, phase="verify"),
        row("deleted", 1),
        row("deleted", 2, "delete"),
        row("anew", 1),
        row("anew", 2, "delete"),
        row("anew", 3),
        row("anew", 4, "delete", outcome="failed"),
        row("deleted-lately", 1),
        row("deleted-lately", 300, "delete", completed_at=midnight()),
        row("failed", 1, outcome="failed"),
        row("moved", 1, cluster_id="before"),
        row("moved", 2, "delete"),
        row("elsewhere", 1, cluster="other"),
    ]
    ledger._save(AUDIT, ledger.rows(AUDIT, rows).write.format("delta").mode("append"))

    def answers() -> tuple[set[tuple[Any, ...]], set[str]]:
        wanted = {row["topic"] for row in rows}
        known = {tuple(row)[:4] for row in drift._known_ids(ledger.read(AUDIT)).collect()}
        return known, set(created_by(ledger, "main", "K", wanted))

    before = answers()
    assert before[0] == {
        ("main", "ours", "K", "id-ours-1"),
        ("main", "anew", "K", "id-anew-3"),
        ("main", "moved", "before", "id-moved-1"),
        ("other", "elsewhere", "K", "id-elsewhere-1"),
    }
    assert before[1] == {"ours", "anew"}
    request = MaintenanceRequest(retention_days={"audit": 1})
    assert of(maintain(ledger, settings(ledger), request), AUDIT).rows_deleted == 10
    assert of(maintain(ledger, settings(ledger), replace(request, execute=True)), AUDIT).rows_deleted == 10
    assert answers() == before
    kept = ledger.read(AUDIT).select("topic", "action", "phase").collect()
    assert {tuple(row) for row in kept} == {
        *((topic, "create", "apply") for topic in ("ours", "anew", "moved", "elsewhere")),
        ("deleted-lately", "delete", "apply"),
    }
    assert of(maintain(ledger, settings(ledger), request), AUDIT).rows_deleted == 0


@pytest.mark.thorough
def test_plans_that_remember_replaced_topics_are_kept(ledger: Ledger) -> None:
    """Else a topic that a row replaced once would never be deleted, however idle."""
    old = midnight() - timedelta(days=9)

    def row(topic: str, hours: int, action: str, before: Mapping[str, str]) -> Mapping[str, Any]:
        key = {"run_id": f"run-{hours}", "cluster": "main", "topic": topic, "action": action}
        return {**key, "planned_at": old + timedelta(hours=hours), "before": before}

    rows = [
        row("new", 1, "create", {REPLACES: "old"}),
        row("never-made", 1, "create", {REPLACES: "other"}),
        row("old", 2, "delete", {REPLACED_BY: "new"}),
        row("old", 3, "delete", {REPLACED_BY: "new"}),
        row("gone", 3, "delete", {}),
    ]
    ledger._save(PLANS, ledger.rows(PLANS, rows).write.format("delta").mode("append"))
    made = {"cluster": "main", "cluster_id": "K", "action": "create"}
    ledger._save(
        AUDIT, ledger.rows(AUDIT, [{**audit_row("run-1", "new", old), **made}]).write.format("delta").mode("append")
    )
    request = MaintenanceRequest(execute=True, retention_days={"plans": 1})
    assert of(maintain(ledger, settings(ledger), request), PLANS).rows_deleted == 3
    kept = ledger.read(PLANS).select("run_id", "topic").collect()
    assert {tuple(row) for row in kept} == {("run-1", "new"), ("run-3", "old")}


@pytest.mark.thorough
def test_the_last_known_drift_of_each_cluster_is_kept(ledger: Ledger) -> None:
    """Else a cluster that no audit has reached for so long would look clean."""
    ledger.ensure(DRIFT)
    old = midnight() - timedelta(days=9)

    def audit(run_id: str, days: int, audited: str, scope: Scope = EVERYTHING, **more: Any) -> Mapping[str, Any]:
        began = run_row(run_id, "finished", old + timedelta(days=days))
        arguments = {"command": "audit", "clusters": "", **({"audited": audited} if audited else {})}
        return {**began, "manifest_version": 1, "arguments": arguments, "scope": scope.to_json(), **more}

    counts = {"missing": 3, "manifests_refused": 1, "ignored_topics": 5}
    write(
        ledger,
        RUNS,
        audit("oldest", 0, ""),
        audit("older", 1, "main,dark", counts=counts, exit_code=3),
        audit("owner's", 2, "main,dark", Scope(owners=("a",))),
        audit("later", 3, "main"),
    )
    found = [
        ("oldest", "main"), ("oldest", "gone"), ("older", "main"), ("older", "main"), ("older", "dark"),
        ("owner's", "dark"), ("later", "main"), ("forgotten", "dark"),
    ]  # fmt: skip
    usual = {"kind": "missing", "severity": "error", "observed_at": old, "since": old}
    rows = [{"run_id": run_id, "cluster": cluster, **usual} for run_id, cluster in found]
    ledger._save(DRIFT, ledger.rows(DRIFT, rows).write.format("delta").mode("append"))
    request = MaintenanceRequest(execute=True, retention_days={"drift": 1})
    assert of(maintain(ledger, settings(ledger), request), DRIFT).rows_deleted == 5
    kept = ledger.read(DRIFT).select("run_id", "cluster").collect()
    assert {tuple(row) for row in kept} == {("oldest", "gone"), ("older", "dark"), ("later", "main")}
    row = ledger.read(RUNS).where("run_id = 'older'").collect()[0].asDict()
    audited = Run(run_id="older", ledger=ledger, settings=settings(ledger), row=row, found=RunState.FINISHED)
    told = summarise(audited, 1, ["main", "dark"])
    assert (told.kinds, told.drift_count, told.removed, told.exit_code) == ({"missing": 3}, 3, 2, 3)
    assert told.clusters == [ClusterDrift(cluster="dark", kinds={"missing": 1})]
    # Removed rows may have had any severity.
    assert summarise(replace(audited, row={**row, "exit_code": 0}), 1, ["main"], fail_on=Severity.ERROR).exit_code == 3


def states(ledger: Ledger) -> dict[str, str]:
    commands = F.coalesce(F.col("arguments")["command"], F.lit("")) != "maintain"
    return {row["run_id"]: row["state"] for row in ledger.read(RUNS).where(commands).collect()}


@pytest.mark.thorough
def test_expired_plans_are_abandoned(ledger: Ledger) -> None:
    old, young = datetime.now(UTC) - timedelta(days=30), datetime.now(UTC) - timedelta(hours=23)

    def run(run_id: str, state: str, started_at: datetime, command: str) -> Mapping[str, Any]:
        return {**run_row(run_id, state, started_at), "arguments": {"command": command}}

    write(
        ledger,
        RUNS,
        run("saved", "planned", old, "plan"),
        run("stopped", "planning", old, "provision"),
        run("young", "planned", young, "plan"),
        run("over", "finished", old, "provision"),
        run("dead", "planning", old, "maintain"),
    )
    before = states(ledger)
    told = maintain(ledger, settings(ledger), MaintenanceRequest())
    assert (told.abandoned, of(told, MANIFESTS).note, states(ledger)) == (["saved", "stopped"], None, before)
    write(
        ledger,
        RUNS,
        run("applied", "applying", old, "plan"),
        run("audited", "planning", old, "audit"),
        run("audited lately", "planning", datetime.now(UTC) - timedelta(hours=167), "audit"),
        run("audited once", "finished", old, "audit"),
    )
    before = states(ledger)
    told = maintain(ledger, settings(ledger), MaintenanceRequest())
    assert (told.abandoned_audits, states(ledger)) == (["audited"], before)
    assert "audits open for longer than --vacuum-hours, abandoned by --execute: audited" in printed(told)
    done = maintain(ledger, settings(ledger), MaintenanceRequest(execute=True))
    assert (done.abandoned, done.abandoned_audits) == (["saved", "stopped"], ["audited"])
    assert states(ledger) == {**before, **dict.fromkeys(("saved", "stopped", "audited"), "abandoned")}
    assert "run applied is open" in str(of(done, MANIFESTS).note)
    (row,) = ledger.read(RUNS).where(F.col("run_id") == done.run_id).collect()
    assert row["counts"] == {"runs_abandoned": 3}
    assert json.loads(done.to_json())["abandoned"] == ["saved", "stopped"]
    assert "saved, stopped" in printed(done)
    assert maintain(ledger, settings(ledger), MaintenanceRequest(execute=True)).abandoned == []


@pytest.mark.thorough
def test_partly_applied_old_plan_is_reported_and_not_abandoned(ledger: Ledger) -> None:
    """Anybody could add such a run, but only a digest, with the key if there is one, would prove it."""
    old = datetime.now(UTC) - timedelta(days=30)
    write(ledger, RUNS, {**run_row("forged", "planned", old), "arguments": {"command": "plan"}})
    write(ledger, AUDIT, audit_row("forged", "deleted", old))
    found = abandon_expired(ledger, settings(ledger), execute=True)
    assert (found.abandoned, found.contradicted) == ([], ["forged"])
    (row,) = ledger.read(RUNS).collect()
    assert (row["state"], row["digest"]) == ("planned", None)
    told = maintain(ledger, settings(ledger), MaintenanceRequest())
    assert (told.contradicted, told.abandoned, told.exit_code) == (["forged"], [], 1)
    assert "not abandoned, since audit has applied actions of these plans: forged" in printed(told)


@pytest.mark.thorough
@pytest.mark.parametrize("outcome", ["refused", "skipped"])
def test_an_old_plan_of_which_nothing_was_sent_is_abandoned(ledger: Ledger, outcome: str) -> None:
    """`apply` found that the declarations or the cluster had changed, and ended without sending anything."""
    old = datetime.now(UTC) - timedelta(days=30)
    write(ledger, RUNS, {**run_row("withdrawn", "planned", old), "arguments": {"command": "plan"}})
    write(ledger, AUDIT, {**audit_row("withdrawn", "kept", old), "outcome": outcome})
    found = abandon_expired(ledger, settings(ledger), execute=True)
    assert (found.abandoned, found.contradicted) == (["withdrawn"], [])


@pytest.mark.thorough
def test_plans_that_a_killed_maintenance_abandoned_are_sealed_by_the_next(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else `runs verify` would report them for ever. A run that sent something may be forged: a person must look."""
    old = datetime.now(UTC) - timedelta(days=30)

    def run(run_id: str, state: str, command: str = "plan") -> Mapping[str, Any]:
        return {**run_row(run_id, state, old), "arguments": {"command": command}}

    sent, empty = run("sent", "abandoned"), run("empty", "abandoned")
    write(ledger, RUNS, run("saved", "planned"), sent, empty, run("audited", "abandoned", "audit"))
    write(ledger, PLANS, *({"run_id": name, "topic": "t", "action": "create"} for name in ("saved", "sent")))
    write(ledger, AUDIT, audit_row("sent", "t", old))

    def sealed() -> list[str]:
        return [row["run_id"] for row in ledger.read(RUNS).where("digest IS NOT NULL").collect()]

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killing:
        killing.setattr(expired.proof, "seal_abandoned", killed)
        with pytest.raises(KeyboardInterrupt):
            abandon_expired(ledger, settings(ledger), execute=True)
    assert (states(ledger)["saved"], sealed()) == ("abandoned", [])
    assert abandon_expired(ledger, settings(ledger), execute=False).abandoned == []
    assert sealed() == []
    assert abandon_expired(ledger, settings(ledger), execute=True).abandoned == []
    assert sealed() == ["saved"]


@pytest.mark.thorough
def test_plans_expire_according_to_the_settings(ledger: Ledger) -> None:
    row = run_row("saved", "planned", datetime.now(UTC) - timedelta(days=30))
    write(ledger, RUNS, {**row, "arguments": {"command": "plan"}})
    patient = replace(settings(ledger), guards=GuardSettings(max_plan_age=timedelta(days=31).total_seconds()))
    kept = maintain(ledger, patient, MaintenanceRequest(execute=True))
    assert (kept.abandoned, states(ledger)) == ([], {"saved": "planned"})
    assert "run saved is open" in str(of(kept, MANIFESTS).note)
