"""Digests of rows: the same text whoever makes it, a column at a time or as the example for others does."""

from __future__ import annotations

import importlib.util
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.unit.frames import frame
from topicledger.arrow import arrow_schema
from topicledger.ledger import appended as appending
from topicledger.ledger import digests
from topicledger.ledger.appended import Appended
from topicledger.ledger.digests import RowsDigest, row_texts, text_of_row
from topicledger.schemas import AUDIT, MANIFESTS, PLANS, QUOTAS, RUNS

AT = datetime(2026, 11, 24, 2, 0, 7, 123456, tzinfo=UTC)
SCHEMA = pa.schema(
    {
        "b": pa.string(),
        "a": pa.int64(),
        "é": pa.map_(pa.string(), pa.string()),
        "at": pa.timestamp("us", "UTC"),
        "by": pa.map_(pa.int32(), pa.list_(pa.int32())),
        "of": pa.list_(pa.struct([("name", pa.string()), ("on", pa.bool_())])),
    }
)


@cache
def example() -> Any:
    path = Path(__file__).parents[2] / "examples" / "proof" / "verify_run.py"
    spec = importlib.util.spec_from_file_location("verify_run", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    pytest.importorskip("deltalake")
    spec.loader.exec_module(module)
    return module


def by_others(table: pa.Table) -> list[str]:
    """Return the result of the example for the rows."""
    for i, each in enumerate(table.schema):
        if str(each.type).startswith("timestamp"):
            table = table.set_column(i, each.name, table[each.name].cast("int64"))
    maps = {each.name for each in table.schema if str(each.type).startswith("map")}
    rows = [{name: None if name in maps and not row[name] else row[name] for name in row} for row in table.to_pylist()]
    return [example().row_text(row) for row in rows]


def test_a_row_is_what_the_docs_say() -> None:
    rows = [
        {"a": -5, "b": "é", "é": [("z", None), ("a", "1")], "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)},
        {
            "by": [(10, [1, 2]), (2, None), (3, [])],
            "of": [{"name": "x", "on": True}, None, {"name": None, "on": False}],
        },
        {"é": [], "of": []},
        {},
    ]
    assert row_texts(pa.Table.from_pylist(rows, schema=SCHEMA)) == [
        "1:a2:-52:at7:10000001:b2:é2:é{1:a1:11:z-}",
        "2:by{1:2-1:3[]2:10[1:11:2]}2:of[(1:x4:true)-(-5:false)]",
        "2:of[]",
        "",
    ]
    assert row_texts(pa.Table.from_pylist([], schema=SCHEMA)) == []
    assert row_texts(pa.Table.from_pylist(rows[:1], schema=SCHEMA), less=["a", "é", "at"]) == ["1:b2:é"]


names = st.text(max_size=6)
ROWS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "a": st.none() | st.integers(-(2**63), 2**63 - 1),
            "b": st.none() | names,
            "é": st.none() | st.dictionaries(names, st.none() | names, max_size=4).map(lambda each: list(each.items())),
            "at": st.none() | st.integers(0, 10**9).map(lambda seconds: AT + timedelta(microseconds=seconds)),
            "by": st.none()
            | st.dictionaries(
                st.integers(0, 200), st.none() | st.lists(st.none() | st.integers(0, 99), max_size=3), max_size=12
            ).map(lambda each: list(each.items())),
            "of": st.none()
            | st.lists(
                st.none() | st.fixed_dictionaries({"name": st.none() | names, "on": st.none() | st.booleans()}),
                max_size=3,
            ),
        },
    ),
    max_size=5,
)


@given(ROWS, st.integers(0, 3))
def test_others_make_the_same_of_any_row_and_of_any_part_of_a_batch(rows: list[dict[str, Any]], start: int) -> None:
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    assert row_texts(table) == by_others(table)
    for batch in table.to_batches():
        part = batch.slice(start)
        assert row_texts(part) == by_others(table)[start:]


@pytest.mark.parametrize("table", [PLANS, AUDIT, RUNS], ids=lambda table: table.name)
def test_rows_of_the_tables_have_a_text(table: Any) -> None:
    schema = arrow_schema(table.schema)
    (text,) = row_texts(pa.Table.from_pylist([{"run_id": "r"}], schema=schema))
    assert text == "6:run_id1:r" == text_of_row(table.schema, {"run_id": "r"})


def test_appended_rows_have_a_digest_if_few_and_all_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(appending, "_MANY_HASHES", 3)
    one, two = (pa.Table.from_pylist([{"a": n} for n in numbers], schema=SCHEMA) for numbers in ([1, 2], [3]))
    appended, other_order = Appended(), Appended()
    assert appended.digest == RowsDigest()
    for rows in (one, two):
        appended.add(rows)
    for rows in (two, one):
        other_order.add(rows)
    assert appended.digest == other_order.digest
    assert appended.digest is not None
    assert appended.digest.rows == 3

    appended.add(two)
    assert appended.digest is None, "too many"
    other_order.add(None)
    other_order.add(one)
    assert other_order.digest is None, "one isn't known"


def test_many_rows_without_runs_have_the_digest_that_few_have(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load may remove more rows of declarations than the driver reads."""
    topics = [
        {"cluster": "main", "topic": f"t{number}", "state": "present", "configs": {"retention.ms": "1"}}
        for number in range(3)
    ]
    quotas = [{"cluster": "main", "user": "a", "state": "present", "producer_byte_rate": 0.5}]
    tables = {table.name: frame(spark, table.schema, rows) for table, rows in ((MANIFESTS, topics), (QUOTAS, quotas))}
    few = digests.of_run(tables)
    assert {name: each.rows for name, each in few.items()} == {"manifests": 3, "quotas": 1}
    monkeypatch.setattr(digests, "_FEW_ROWS", 0)
    assert digests.of_run(tables) == few
