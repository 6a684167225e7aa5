"""A ledger written by an older version (tests/data) can be opened, read and written."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests import clusters
from tests.harness import Estate
from tests.ledger.exercise import OLDER, OLDER_CLUSTER_ID
from topicledger import report
from topicledger.ledger.abandoned import abandon
from topicledger.ledger.run import find_run
from topicledger.schemas import AUDIT, PLANS, RUNS, TABLES
from topicledger.schemas.tables import Table


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.thorough)])
def schema_version(request: pytest.FixtureRequest) -> int:
    """Version of the tables' schema."""
    version: int = request.param
    return version


@pytest.fixture(scope="module")
def older(schema_version: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(OLDER[schema_version]) as archive:
        archive.extractall(folder, filter="data")
    return folder / "ledger"


@pytest.fixture(scope="module")
def estate(spark: SparkSession, older: Path) -> Iterator[Estate]:
    kafka = clusters.plain()
    kafka.cluster_id = OLDER_CLUSTER_ID
    with kafka:
        yield Estate(spark, older, {"main": kafka}, max_deletes=1)


def keyed_by_topic(estate: Estate, table: Table) -> set[str]:
    """Return the runs with rows in a table, whose rows all have the topic as the resource."""
    keys = estate.ledger.read(table).select("run_id", "topic", "resource_type", "resource").distinct().collect()
    assert {(row["resource_type"], row["resource"]) for row in keys} == {("topic", row["topic"]) for row in keys}
    return {row["run_id"] for row in keys}


@pytest.mark.thorough
def test_finished_runs_of_an_older_ledger_are_reported(estate: Estate) -> None:
    asked = report.of_run(estate.ledger, "deleted", ())
    found = report.gather(estate.ledger, asked, datetime.now(UTC))
    assert found.outcomes() == {"ok": 2}
    assert "old.gone" in report.render(found).replace("<wbr>", "")
    last = estate.last("created")
    assert last["old.gone"] == ("verify", "ok", None)
    assert last["bad name!"][:2] == ("manifest", "refused")


@pytest.mark.thorough
def test_open_plan_of_an_older_ledger_can_be_abandoned(estate: Estate) -> None:
    abandon(estate.ledger, estate.settings, "planned")
    row = find_run(estate.ledger, "planned")
    assert row is not None
    assert row["state"] == "abandoned"


@pytest.mark.thorough
def test_new_runs_and_audits_are_added_to_an_older_ledger(estate: Estate, schema_version: int) -> None:
    assert estate.run(run_id="today", wait_visible=30.0).exit_code == 0
    assert {topic: row[1] for topic, row in estate.last("today").items()} == {
        "old.kept": "ok",
        "old.next": "ok",
        "old.planned": "ok",
    }
    assert estate.run_audit("today-audit").exit_code == 0
    states = {row["run_id"]: row["state"] for row in estate.ledger.read(RUNS).collect()}
    assert states == {
        **dict.fromkeys(["created", "deleted", *(["audited"] if schema_version > 1 else [])], "finished"),
        "planned": "abandoned",
        "today": "finished",
        "today-audit": "finished",
    }
    for table in (PLANS, AUDIT):
        assert {"created", "today"} <= keyed_by_topic(estate, table)


@pytest.mark.thorough
def test_tables_of_an_older_ledger_get_the_current_columns(estate: Estate) -> None:
    estate.ledger.ensure(*TABLES.values())
    for table in TABLES.values():
        assert [column.name for column in table.schema] == estate.ledger.read(table).columns[: len(table.schema)]
    rows = estate.ledger.read(PLANS).where(F.col("run_id") == "created").collect()
    assert {row["topic"] for row in rows} == {"old.kept", "old.gone", "bad name!"}
    for table in (PLANS, AUDIT):
        assert "created" in keyed_by_topic(estate, table)
