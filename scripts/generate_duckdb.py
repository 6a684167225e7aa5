"""Write what DuckDB needs before views.sql: Spark's functions that it lacks, and empty tables."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from topicledger.schemas import TABLES

FILE = Path(__file__).parents[1] / "lib" / "topicledger" / "queries" / "duckdb.sql"
_HEAD = """\
-- What DuckDB needs before views.sql: Spark's functions that it lacks, and empty tables with all columns. Then fill the
-- tables that exist, such as: INSERT INTO usage BY NAME SELECT * FROM delta_scan('/data/ledger/usage');
-- Made by `python -m scripts.generate_duckdb`.
CREATE MACRO explode(items) AS unnest(items);
CREATE MACRO array_repeat(item, times) AS [item FOR number IN range(times)];
CREATE MACRO unix_seconds(moment) AS CAST(floor(epoch(moment)) AS BIGINT);
"""
_TYPES = {"string": "VARCHAR", "timestamp": "TIMESTAMP WITH TIME ZONE"}


def text() -> str:
    """Return the file's text."""
    tables = (f"CREATE TABLE {table.name} ({_columns(table.schema)});\n" for table in TABLES.values())
    return _HEAD + "".join(tables)


def _columns(of: StructType) -> str:
    return ", ".join(f'"{each.name}" {_type(each.dataType)}' for each in of)


def _type(found: DataType) -> str:
    """Return DuckDB's name of a type."""
    if isinstance(found, MapType):
        return f"MAP({_type(found.keyType)}, {_type(found.valueType)})"
    if isinstance(found, ArrayType):
        return f"{_type(found.elementType)}[]"
    if isinstance(found, StructType):
        return f"STRUCT({_columns(found)})"
    return _TYPES.get(found.simpleString(), found.simpleString().upper())


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
