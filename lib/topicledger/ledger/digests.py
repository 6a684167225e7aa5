"""Reproducible digests of rows: docs/proof.md describes them, examples/proof computes them in Python.

A value as text is `-` for null, `[...]` for an array, `(...)` for a struct, `{...}` for a map's keys and values,
sorted by key; anything else is its length in UTF-8 bytes, a colon and the value: integers in decimal, `true` and
`false`, timestamps as microseconds since 1970 UTC. A row is the name and the value of each column, by name, without
nulls and empty maps. So a column that a later version adds changes no digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial, reduce
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from topicledger.ledger.sql import EPOCH

_FEW_ROWS = 10_000
"""Most rows of a table that the driver reads and hashes: some 40 MB with all configs of a topic."""


@dataclass(frozen=True, kw_only=True)
class RowsDigest:
    """The digest of some rows of a table, whatever their order."""

    rows: int = 0
    sha256: str = hashlib.sha256(b"").hexdigest()
    """SHA-256 (hex): see `of_runs`."""


def of_run(tables: Mapping[str, DataFrame]) -> Mapping[str, RowsDigest]:
    """Compute the digests of all rows of each table: those of one run, or of a table without runs.

    For few rows, the driver does the work of `of_runs` itself, which saves a Python worker and a sort.
    """
    found = {}
    for name, rows in tables.items():
        few = rows.limit(_FEW_ROWS + 1).toArrow()
        if few.num_rows > _FEW_ROWS:
            (found[name],) = of_runs({name: rows}).values()
        else:
            found[name] = of_hashes(hashes_of(few))
    return found


def of_hashes(hashes: Iterable[str]) -> RowsDigest:
    """Combine hashes as `of_runs` does."""
    ordered = sorted(hashes)
    parts = [_hash("".join(each)) for _, each in groupby(ordered, key=lambda text: text[:2])]
    return RowsDigest(rows=len(ordered), sha256=_hash("".join(parts)))


def of_runs(tables: Mapping[str, DataFrame]) -> Mapping[tuple[str, str], RowsDigest]:
    """Compute the digests of all rows of each run, by table and run id; runs without rows have none.

    All rows of a table without the column `run_id` are one run's, whose id is None.

    Each row's text is hashed with SHA-256 (hex). The hashes with the same first two digits are sorted and concatenated;
    the SHA-256 of that is a part. The SHA-256 of all rows is that of the parts, sorted by these digits.
    """
    hashed = [
        rows.mapInArrow(partial(_hashed, name), "table string, run_id string, hash string")
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


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def hashes_of(rows: pa.RecordBatch | pa.Table) -> list[str]:
    """SHA-256 (hex) of each row's text."""
    return [_hash(text) for text in row_texts(rows)]


def _sha256_of(texts: Column) -> Column:
    return F.sha2(F.array_join(texts, ""), 256)


def _hashed(table: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """table, run_id (null if the table has none), hash: SHA-256 (hex) of each row's text."""
    for batch in batches:
        hashes = hashes_of(batch)
        run_ids = batch.column("run_id") if "run_id" in batch.schema.names else [None] * len(hashes)
        columns = {"table": [table] * len(hashes), "run_id": run_ids, "hash": hashes}
        yield pa.RecordBatch.from_pydict({name: pa.array(column, pa.string()) for name, column in columns.items()})


def row_texts(rows: pa.RecordBatch | pa.Table, less: Sequence[str] = ()) -> list[str]:
    """Convert each row to text, without the columns `less`; works by column, since rows have many configs."""
    batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
    return [text for batch in batches for text in _batch_texts(batch, less).to_pylist()]


def _batch_texts(rows: pa.RecordBatch, less: Sequence[str]) -> pa.Array:
    """The text of each row (string)."""
    named = []
    for name in sorted(each for each in rows.schema.names if each not in less):
        column = rows.column(name)
        there = column.is_valid()
        if pa.types.is_map(column.type):
            there = pc.greater(_lengths(_pairs(column)), 0)
        named.append(pc.if_else(there, pc.binary_join_element_wise(_text_of(name), _texts(column), ""), ""))
    return pc.binary_join_element_wise(*named, "") if named else pa.array([""] * rows.num_rows, pa.string())


def _texts(values: pa.Array) -> pa.Array:
    """The text of each value."""
    kind = values.type
    if pa.types.is_map(kind):
        lists = _pairs(values)
        keys, items = lists.flatten().flatten()
        entries = pa.table({"row": pc.list_parent_indices(lists), "key": keys})
        order = pc.sort_indices(entries, [("row", "ascending"), ("key", "ascending")])
        text = _joined(lists, "{", pc.binary_join_element_wise(_texts(keys), _texts(items), "").take(order), "}")
    elif pa.types.is_list(kind):
        text = _joined(values, "[", _texts(values.flatten()), "]")
    elif pa.types.is_struct(kind):
        text = pc.binary_join_element_wise("(", *map(_texts, values.flatten()), ")", "")
    elif pa.types.is_boolean(kind):
        text = pc.if_else(values, "4:true", "5:false")
    else:
        plain = values.cast(pa.int64()) if pa.types.is_timestamp(kind) else values
        plain = plain.cast(pa.string())
        text = pc.binary_join_element_wise(pc.binary_length(plain).cast(pa.string()), plain, ":")
    return pc.if_else(values.is_valid(), text, "-")


def _pairs(values: pa.MapArray) -> pa.ListArray:
    """Maps as lists of structs."""
    kind = values.type
    return values.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))


def _lengths(lists: pa.ListArray) -> pa.Array:
    """The number of entries of each list; 0 for null."""
    return pc.fill_null(pc.list_value_length(lists), 0)


def _joined(lists: pa.ListArray, opening: str, texts: pa.Array, closing: str) -> pa.Array:
    """Join the texts of each list's entries; `texts` has those of all lists in sequence."""
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(_lengths(lists))])
    inner = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), "")
    return pc.binary_join_element_wise(opening, inner, closing, "")


def text_of_row(schema: StructType, row: Mapping[str, object], less: Sequence[str] = ()) -> str:
    """As `row_texts`, in Python, for one row of texts, numbers, timestamps and maps of these."""
    given = [(name, row.get(name)) for name in sorted(schema.names) if name not in less]
    return "".join(_text_of(name) + _text_of(value) for name, value in given if value is not None and value != {})


def _text_of(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        return "{" + "".join(_text_of(part) for pair in sorted(value.items()) for part in pair) + "}"
    if isinstance(value, datetime):
        # PySpark returns naive timestamps in this process's own time zone.
        value = (value.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)
    assert isinstance(value, str | int), "a column of `runs`"
    text = str(value)
    return f"{len(text.encode())}:{text}"
