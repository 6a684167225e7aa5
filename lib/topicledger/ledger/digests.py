"""Digests of rows, the same whoever computes them: docs/proof.md describes them, examples/proof has them in Python.

A value as text: `-` for null; `[...]` for an array, `(...)` for a struct, `{...}` for a map's keys and values,
sorted by key; anything else as its length in UTF-8 bytes, a colon and itself: integers in decimal, `true` and `false`,
moments as microseconds since 1970 UTC. A row: the name and the value of each column, by name, without nulls and empty
maps. So a column that a later version adds changes no digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, DataType, MapType, StructField, StructType, TimestampType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class RowsDigest:
    """Some rows of a table, whatever their order."""

    rows: int = 0
    sha256: str = hashlib.sha256(b"").hexdigest()
    """SHA-256 (hex): see `of_runs`."""


def of_runs(tables: Mapping[str, DataFrame]) -> Mapping[tuple[str, str], RowsDigest]:
    """By table and run id, all rows of a run; none of a run without rows.

    Each row's text has a SHA-256 (hex). Those that begin with the same two digits are sorted and put together: the
    SHA-256 of that is a part's. The parts, sorted by these digits, have the SHA-256 of all rows.
    """
    hashed = [
        rows.select(F.lit(name).alias("table"), "run_id", F.sha2(row_text(rows.schema), 256).alias("hash"))
        for name, rows in tables.items()
    ]
    together = reduce(DataFrame.unionByName, hashed)
    part = F.substring("hash", 1, 2)
    parts = together.groupBy("table", "run_id", part.alias("part")).agg(
        F.count(F.lit(1)).alias("rows"), _sha256_of(F.array_sort(F.collect_list("hash"))).alias("sha256")
    )
    of_parts = F.transform(F.array_sort(F.collect_list(F.struct("part", "sha256"))), lambda each: each["sha256"])
    found = parts.groupBy("table", "run_id").agg(F.sum("rows").alias("rows"), _sha256_of(of_parts).alias("sha256"))
    return {
        (row["table"], row["run_id"]): RowsDigest(rows=row["rows"], sha256=row["sha256"]) for row in found.collect()
    }


def _sha256_of(texts: Column) -> Column:
    return F.sha2(F.array_join(texts, ""), 256)


def row_text(schema: StructType, less: Sequence[str] = ()) -> Column:
    """A row as text (string), without the columns `less`."""
    return F.concat(*(_named(each) for each in _by_name(schema, less)))


def _by_name(schema: StructType, less: Sequence[str]) -> Sequence[StructField]:
    return sorted((each for each in schema if each.name not in less), key=lambda each: each.name)


def _named(field: StructField) -> Column:
    value = F.col(field.name)
    there = value.isNotNull()
    if isinstance(field.dataType, MapType):
        there = there & (F.size(value) > 0)
    return F.when(there, F.concat(F.lit(_text_of(field.name)), _text(value, field.dataType))).otherwise("")


def _text(value: Column, data_type: DataType) -> Column:
    if isinstance(data_type, ArrayType):
        of = data_type.elementType
        text = _in("[", F.array_join(F.transform(value, lambda each: _text(each, of)), ""), "]")
    elif isinstance(data_type, StructType):
        text = _in("(", F.concat(*(_text(value[each.name], each.dataType) for each in data_type)), ")")
    elif isinstance(data_type, MapType):
        key_type, value_type = data_type.keyType, data_type.valueType

        def pair(each: Column) -> Column:
            return F.concat(_text(each["key"], key_type), _text(each["value"], value_type))

        text = _in("{", F.array_join(F.transform(F.array_sort(F.map_entries(value)), pair), ""), "}")
    elif isinstance(data_type, BooleanType):
        text = F.when(value, "4:true").when(~value, "5:false")
    else:
        plain = F.unix_micros(value) if isinstance(data_type, TimestampType) else value
        text = F.concat(F.octet_length(plain.cast("string")).cast("string"), F.lit(":"), plain.cast("string"))
    return F.coalesce(text, F.lit("-"))


def _in(opening: str, text: Column, closing: str) -> Column:
    return F.concat(F.lit(opening), text, F.lit(closing))


def text_of_row(schema: StructType, row: Mapping[str, object], less: Sequence[str] = ()) -> str:
    """The same of a row of texts, numbers, moments and maps of such, in Python."""
    given = [(each.name, row.get(each.name)) for each in _by_name(schema, less)]
    return "".join(_text_of(name) + _text_of(value) for name, value in given if value is not None and value != {})


def _text_of(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        return "{" + "".join(_text_of(part) for pair in sorted(value.items()) for part in pair) + "}"
    if isinstance(value, datetime):
        # PySpark gives the moment in this process's own time zone, without saying so.
        value = (value.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
    assert isinstance(value, str | int), "a column of `runs`"
    text = str(value)
    return f"{len(text.encode())}:{text}"
