"""The tables without Spark: the deltalake package reads all of them, and writes those shared with other tools."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from tests.unit.frames import dicts, frame
from topicledger.arrow import arrow_schema
from topicledger.ledger.tables import Ledger
from topicledger.manifests.rows import validate
from topicledger.schemas import AUDIT, MANIFESTS, OBSERVED, TABLES, USAGES, Table

CONFIG = {
    "name": "retention.ms",
    "value": None,
    "read_only": False,
    "config_source": "DYNAMIC_TOPIC_CONFIG",
    "is_sensitive": True,
}


@pytest.mark.parametrize("name", TABLES)
def test_every_table_can_be_read(pristine: Ledger, name: str) -> None:
    found = DeltaTable(pristine.location(TABLES[name])).to_pyarrow_table()
    assert found.schema.names == TABLES[name].schema.names
    assert found.num_rows == 0


def test_delta_rs_reads_the_same_rows_as_spark(spark: SparkSession, ledger: Ledger) -> None:
    now = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
    row = {"run_id": "run-1", "topic": "a", "outcome": "ok", "completed_at": now, "configs": [CONFIG]}
    ledger.append(AUDIT, frame(spark, AUDIT.schema, [row]), app_id="run-1", version=1)
    observed = {"cluster": "it's/here", "topic": "a", "assignments": {0: [1, 2]}, "authorized_operations": ["DELETE"]}
    ledger.replace_clusters(OBSERVED, frame(spark, OBSERVED.schema, [observed]), ["it's/here"])

    (found,) = DeltaTable(ledger.location(AUDIT)).to_pyarrow_table().to_pylist()
    assert {name: found[name] for name in row} == row
    (found,) = DeltaTable(ledger.location(OBSERVED)).to_pyarrow_table().to_pylist()
    assert {name: found[name] for name in observed} == {**observed, "assignments": [(0, [1, 2])]}


def rows_of(table: Table, *rows: dict[str, Any]) -> pa.Table:
    schema = arrow_schema(table.schema)
    complete = [{name: row.get(name) for name in schema.names} for row in rows]
    columns = [pa.array([row[field.name] for row in complete], type=field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def test_manifests_appended_by_other_tools_are_read_and_validated(spark: SparkSession, ledger: Ledger) -> None:
    rows = rows_of(
        MANIFESTS,
        {"cluster": "main", "topic": "a", "state": "present", "configs": [("a", "1")], "assignments": [(0, [1])]},
        {"cluster": "main", "topic": "b c", "state": "gone"},
        {"cluster": "main", "topic": "d", "state": "present", "configs": [("a", "1"), ("a", "2")]},
    )
    location = ledger.location(MANIFESTS)
    write_deltalake(location, rows, mode="append")
    ledger.ensure(MANIFESTS)
    table = ledger.read(MANIFESTS)
    first = table.where("topic = 'a'").collect()[0].asDict(recursive=True)
    assert (first["configs"], first["assignments"]) == ({"a": "1"}, {0: [1]})
    errors = {row["topic"]: row["error"] for row in dicts(table.transform(validate(["main"], None)))}
    assert errors == {"a": None, "b c": "INVALID_TOPIC", "d": "INVALID_CONFIGS"}
    changes = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1).load(location)
    assert {row["topic"]: row["_change_type"] for row in dicts(changes)} == dict.fromkeys(("a", "b c", "d"), "insert")


@pytest.mark.thorough
def test_columns_added_by_other_tools_are_kept(ledger: Ledger) -> None:
    rows = rows_of(MANIFESTS, {"cluster": "main", "topic": "a", "state": "present"})
    with_ticket = rows.append_column("ticket", pa.array(["T-1"]))
    write_deltalake(ledger.location(MANIFESTS), with_ticket, mode="append", schema_mode="merge")
    ledger.ensure(MANIFESTS)
    changed = ledger.read(MANIFESTS).drop("ticket").replace("present", "absent", subset=["state"])
    ledger.merge(MANIFESTS, changed.localCheckpoint())
    (row,) = dicts(ledger.read(MANIFESTS))
    assert (row["state"], row["ticket"]) == ("absent", "T-1")


@pytest.mark.thorough
def test_usages_appended_by_other_tools_are_read(ledger: Ledger) -> None:
    until = datetime(2027, 1, 1, tzinfo=UTC)
    rows = rows_of(
        USAGES,
        {"cluster": "main", "topic": "a", "consumer": "billing", "valid_until": until},
        {"cluster": "main", "topic": "b", "consumer": "search"},
    )
    write_deltalake(ledger.location(USAGES), rows, mode="append")
    ledger.ensure(USAGES)
    found = ledger.read(USAGES).selectExpr("topic", "cast(valid_until as string) as until").orderBy("topic")
    assert [tuple(row) for row in found.collect()] == [("a", "2027-01-01 00:00:00"), ("b", None)]
