"""The boundaries between phases: their columns, and the check of what a phase returns."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from tests.unit.frames import dicts, frame
from topicledger import schemas
from topicledger.ledger.rows import read_moves, read_violations, written_violations
from topicledger.model.moves import assignments_text
from topicledger.phases import BOUNDARIES, CHANGE, DECIDED, EVALUATED, MOVES, VIOLATIONS, in_order, returned

GOLDEN = Path(__file__).with_name("golden_phases.txt")
WANTED = StructType([StructField("a", StringType()), StructField("b", ArrayType(StringType()))])


def test_a_result_with_the_columns_of_its_boundary_is_returned(spark: SparkSession) -> None:
    """Whether a value may be null is not compared, nor the order."""
    rows = spark.sql("SELECT array('1') AS b, 'x' AS a")
    assert returned("decide", rows, WANTED) is rows


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT 'x' AS a", "the result of phase decide lacks b array<string>"),
        ("SELECT 'x' AS a, array(1) AS b", "has b as array<int>, not array<string>"),
        ("SELECT 'x' AS a, array('1') AS b, 1 AS c", "has c, which the boundary doesn't know"),
    ],
)
def test_another_result_is_an_error(spark: SparkSession, query: str, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        returned("decide", spark.sql(query), WANTED)


def test_a_kind_may_add_columns_of_its_own(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 'x' AS a, array('1') AS b, 1 AS c")
    assert returned("decide", rows, WANTED, or_more=True) is rows


def test_columns_without_a_value_are_null_of_their_type(spark: SparkSession) -> None:
    rows = spark.range(1).select(*in_order(DECIDED, {"cluster": "id", "topic": "id"}))
    assert rows.columns == DECIDED.names
    rest = [each for each in DECIDED if each.name not in ("cluster", "topic")]
    assert [rows.schema[each.name].dataType.simpleString() for each in rest] == [
        each.dataType.simpleString() for each in rest
    ]


def test_tables_tell_warnings_by_their_messages(spark: SparkSession) -> None:
    """What `plans` and `audit` have is read as it was written."""
    found = [{"policy": "p", "message": "no owner", "warns": True}, {"policy": "q", "message": "no", "warns": False}]
    rows = frame(spark, StructType([StructField("violations", VIOLATIONS)]), [{"violations": found}, {}])
    tables = rows.select(written_violations(F.col("violations")).alias("violations"))
    assert dicts(tables) == [
        {"violations": [{"policy": "p", "message": "warning: no owner"}, {"policy": "q", "message": "no"}]},
        {"violations": None},
    ]
    assert tables.schema["violations"].dataType.simpleString() == schemas.VIOLATIONS.simpleString()
    assert dicts(tables.select(read_violations(F.col("violations")).alias("violations"))) == [
        {"violations": found},
        {"violations": None},
    ]


def test_tables_tell_moves_by_before_and_after(spark: SparkSession) -> None:
    before, after = ({0: (1, 2), 12: (3,)}, {0: (2,), 12: (1, 3)})
    values = {name: {"assignments": assignments_text(each)} for name, each in (("before", before), ("after", after))}
    rows = frame(spark, CHANGE, [values, {"before": {"a": "1"}, "after": {}}, {}])
    found = rows.select(read_moves().alias("moves"))
    assert found.schema["moves"].dataType.simpleString() == MOVES.simpleString()
    one, *others = dicts(found)
    assert one["moves"] == [
        {"partition": 0, "before": [1, 2], "after": [2]},
        {"partition": 12, "before": [3], "after": [1, 3]},
    ]
    assert others == [{"moves": None}, {"moves": None}]


def test_every_column_of_a_boundary_says_what_it_is() -> None:
    for schema in BOUNDARIES.values():
        assert all(each.metadata["comment"] for each in schema)
    assert EVALUATED.names[:-1] == DECIDED.names


def test_the_rows_between_phases_are_as_in_their_golden_file() -> None:
    """The pipeline's documentation: `TOPICLEDGER_GOLDEN=write` writes it."""
    found = "".join(
        f"{name}\n"
        + "".join(f"  {each.name} {each.dataType.simpleString()}: {each.metadata['comment']}\n" for each in schema)
        for name, schema in BOUNDARIES.items()
    )
    if os.environ.get("TOPICLEDGER_GOLDEN") == "write":
        GOLDEN.write_text(found, encoding="utf-8")
    assert found == GOLDEN.read_text(encoding="utf-8")
