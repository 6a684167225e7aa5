"""Maintenance of the tables: nothing without --execute, no row of a run that isn't over, whole days only."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from tests import commands
from topicledger.errors import UsageError
from topicledger.maintaining import Maintained, Request, TableMaintained, maintain
from topicledger.schemas import AUDIT, LEASES, MANIFESTS, PLANS, RUNS, TABLES, Table
from topicledger.settings import Settings, TablesSettings
from topicledger.tables import Ledger


def midnight() -> datetime:
    """When today began: a test run may last from one day into the next."""
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def write(ledger: Ledger, table: Table, *rows: Mapping[str, Any]) -> None:
    """Append rows, each in a file of its own; what isn't given is null."""
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
    """A few tables are enough: a maintenance goes through all that are there."""
    for table in TABLES.values():
        if table not in (AUDIT, LEASES, MANIFESTS, PLANS, RUNS):
            shutil.rmtree(ledger.location(table))
    return ledger


@pytest.fixture
def aged(ledger: Ledger) -> Ledger:
    """Two days ago, yesterday and today; of a run that is over, one that isn't, and one that nobody knows any more."""
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


def test_a_dry_run_tells_and_does_nothing(aged: Ledger) -> None:
    versions = {table.name: aged.latest_version(table) for table in (AUDIT, RUNS)}
    told = maintain(aged, settings(aged), Request(retention_days={"audit": 1}))
    assert (told.executed, told.run_id, told.exit_code) == (False, None, 0)
    assert (of(told, AUDIT).rows_deleted, of(told, AUDIT).files, of(told, AUDIT).files_after) == (2, 5, None)
    assert {table.name: aged.latest_version(table) for table in (AUDIT, RUNS)} == versions


def test_old_rows_go_by_whole_days_and_a_row_in_runs_tells_of_it(aged: Ledger) -> None:
    done = maintain(
        aged, settings(aged), Request(execute=True, retention_days={"audit": 1}, requested_by="the auditor")
    )
    assert of(done, AUDIT).rows_deleted == 2
    assert of(done, AUDIT).files_after == 1
    assert topics(aged, AUDIT) == {"at-midnight", "today", "still-open"}
    (row,) = aged.read(RUNS).where(F.col("run_id") == done.run_id).collect()
    assert (row["state"], row["exit_code"], row["requested_by"]) == ("finished", 0, "the auditor")
    assert row["counts"] == {"audit_rows_deleted": 2}
    assert (row["arguments"]["command"], row["arguments"]["audit_retention_days"]) == ("maintain", "1")


def test_audit_stays_append_only(aged: Ledger) -> None:
    maintain(aged, settings(aged), Request(execute=True, retention_days={"audit": 1}))
    with pytest.raises(Exception, match="append"):
        aged._delta(AUDIT).delete()
    assert topics(aged, AUDIT) == {"at-midnight", "today", "still-open"}


def test_without_retention_nothing_is_deleted(aged: Ledger) -> None:
    write(aged, PLANS, {"run_id": "over", "topic": "planned", "planned_at": midnight() - timedelta(days=500)})
    done = maintain(aged, settings(aged), Request(execute=True))
    assert [each.rows_deleted for each in done.tables] == [0] * len(done.tables)
    assert len(topics(aged, AUDIT)) == 5
    assert topics(aged, PLANS) == {"planned"}


def test_files_that_no_late_version_has_are_removed(ledger: Ledger) -> None:
    """Those of a writer that died before its commit; and none of what was compacted just now."""
    write(ledger, LEASES, {"cluster_id": "one", "changes": 1}, {"cluster_id": "one", "changes": 2})
    assert ledger.compact(LEASES) == 1
    folder = Path(ledger.location(LEASES))
    written = sorted(folder.rglob("*.parquet"))
    old = (datetime.now(UTC) - timedelta(days=8)).timestamp()
    left = [path.with_name(f"part-left-{number}.parquet") for number, path in enumerate(written[:2])]
    for path, copied in zip(written, left, strict=False):
        shutil.copy(path, copied)
        os.utime(copied, (old, old))
    assert of(maintain(ledger, settings(ledger), Request()), LEASES).files_vacuumed == 2
    assert all(path.exists() for path in left)
    assert of(maintain(ledger, settings(ledger), Request(execute=True)), LEASES).files_vacuumed == 2
    assert sorted(folder.rglob("*.parquet")) == written
    assert ledger.read(LEASES).count() == 2


def test_what_an_open_run_reads_by_its_version_is_not_vacuumed(ledger: Ledger) -> None:
    write(ledger, RUNS, run_row("slow", "planned", midnight() - timedelta(days=30)))
    told = maintain(ledger, settings(ledger), Request())
    assert "run slow isn't over" in str(of(told, MANIFESTS).note)
    assert of(told, AUDIT).note is None
    assert of(maintain(ledger, settings(ledger), Request(vacuum_hours=24 * 60)), MANIFESTS).note is None


def test_a_table_that_can_not_be_maintained_is_told_and_the_others_are(aged: Ledger) -> None:
    for part in Path(aged.location(PLANS), "_delta_log").glob("*.*"):
        part.unlink()
    Path(aged.location(PLANS), "_delta_log", "00000000000000000000.json").write_text("{}\n")
    done = maintain(aged, settings(aged), Request(execute=True, retention_days={"audit": 1}))
    assert done.exit_code == 1
    assert [each.table for each in done.tables if each.error] == ["plans"]
    assert "still-open" in topics(aged, AUDIT)
    assert "long-ago" not in topics(aged, AUDIT)


def test_a_run_id_that_is_taken_is_refused(aged: Ledger) -> None:
    with pytest.raises(UsageError, match="there is a run over already"):
        maintain(aged, settings(aged), replace(Request(execute=True), run_id="over"))


def test_on_stdout_is_the_result_and_nothing_of_sparks_and_a_folder_is_no_old_file(
    ledger: Ledger, tmp_path: Path
) -> None:
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
