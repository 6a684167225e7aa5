"""Arrow's types for Spark's, and the project's use of public APIs only."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ByteType, StructField, StructType

from topicledger.arrow import arrow_schema, over_arrow
from topicledger.config.patterns import matches
from topicledger.schemas import TABLES, Table

REPOSITORY = Path(__file__).parents[2]
PRIVATE = re.compile(r"pyspark\.sql\.pandas|from pyspark[\w.]* import _|pyspark[\w.]*\._(?!_)")
"""Names of modules that differ between versions of Spark."""
JAVA = re.compile(r"\b_(?:jvm|jsc|sc|jdf|jc|jsparkSession|jreader|jwrite|gateway)\b")
"""Attributes that lead to Java, which sessions of Spark Connect don't have."""


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_rows_of_each_table_pass_between_arrow_and_spark(spark: SparkSession, table: Table) -> None:
    schema = StructType([StructField(each.name, each.dataType) for each in table.schema])
    arrow = arrow_schema(schema)
    empty = spark.createDataFrame(pa.Table.from_pylist([{}], schema=arrow), schema)
    assert empty.schema == schema
    assert empty.toArrow().schema.equals(arrow)


def test_timestamps_are_in_utc(spark: SparkSession) -> None:
    schema = StructType.fromDDL("at timestamp")
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    table = pa.Table.from_pylist([{"at": moment}], schema=arrow_schema(schema))
    rows = spark.createDataFrame(table, schema).select(F.unix_timestamp("at")).collect()
    assert rows[0][0] == int(moment.timestamp())


def test_unknown_type_is_an_error_that_names_it() -> None:
    with pytest.raises(TypeError, match="tinyint has no Arrow type"):
        arrow_schema(StructType([StructField("a", ByteType())]))


@pytest.mark.parametrize("spark_4_0", [False, True])
def test_function_over_arrow_arrays_keeps_nulls(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, spark_4_0: bool
) -> None:
    if spark_4_0:
        # Spark 4.0 itself doesn't have it.
        monkeypatch.delattr(F, "arrow_udf", raising=False)

    def doubled(names: pa.Array) -> pa.Array:
        return pa.array([None if each is None else each * 2 for each in names.to_pylist()], pa.string())

    rows = spark.createDataFrame([("a",), (None,)], "name string").select(over_arrow(doubled, "string", "name"))
    assert [row[0] for row in rows.collect()] == ["aa", None]
    nulls = spark.createDataFrame([(None,), (None,)], "name string").select(matches("name", "a+"))
    assert [row[0] for row in nulls.collect()] == [None, None]


def test_code_uses_public_apis_of_spark_only() -> None:
    own = ("lib", "jobs", "schemas", "benchmarks", "scripts", "examples")
    assert [*_lines(PRIVATE, *own, "tests"), *_lines(JAVA, *own)] == []


def _lines(private: re.Pattern[str], *folders: str) -> list[str]:
    return [
        f"{path.relative_to(REPOSITORY)}:{number}: {line.strip()}"
        for folder in folders
        for path in sorted((REPOSITORY / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if private.search(line) and path != Path(__file__)
    ]
