"""The rows of a query as a table for terminals, as CSV or as JSON. Control characters in values are escaped."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, Row
from rich.console import Console

from topicledger.errors import ExitCode, UsageError
from topicledger.text import cell, console, counted, document, grid_of, json_array, json_value, printable

MOST_ROWS = 200
"""Rows of a table for terminals; CSV and JSON have all rows."""
_WIDTH = 200
"""Columns of a table that isn't printed on a terminal."""


def print_table(rows: DataFrame) -> None:
    """Print the first rows as a table. All rows aren't counted, since that would run the query twice."""
    found = rows.limit(MOST_ROWS + 1).collect()
    render(rows.columns, found, console(_WIDTH))


def render(names: Sequence[str], rows: Sequence[Sequence[object]], out: Console) -> None:
    """Print the first rows with these columns as a table."""
    grid = grid_of(*map(cell, names))
    for row in rows[:MOST_ROWS]:
        grid.add_row(*(cell(_as_text(value)) for value in row))
    out.print(grid)
    complete = len(rows) <= MOST_ROWS
    out.print(counted(len(rows), "row") if complete else f"the first {MOST_ROWS} rows; all of them: --format csv")


def csv_lines(rows: DataFrame) -> Iterator[str]:
    """Yield a header and each row as CSV; null is empty, and values of nested types are JSON."""
    yield _csv_line(rows.columns)
    for row in rows.toLocalIterator():
        yield _csv_line([_as_text(value) for value in row])


def json_lines(rows: DataFrame) -> Iterator[str]:
    """Yield a result document with an object for each row. Raises UsageError if two columns have the same name."""
    names = rows.columns
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"two columns are named {printable(twice)}, which JSON can't have: name one of them with AS")
    objects = (dict(zip(names, map(_plain, row), strict=True)) for row in rows.toLocalIterator())
    yield f'{document(ExitCode.DONE, {}, indent=None).removesuffix("}")}, "rows": '
    yield from json_array(f" {json.dumps(each, default=json_value)}" for each in objects)
    yield "}\n"


def _csv_line(values: Sequence[str | None]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(["" if value is None else printable(value) for value in values])
    return buffer.getvalue()


def _as_text(value: object) -> str | None:
    """Return a value as text: nested values as JSON, moments as ISO 8601 in UTC."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, bool | Mapping | Sequence):
        return json.dumps(_plain(value), default=json_value, ensure_ascii=False)
    return json_value(value)


def _plain(value: Any) -> Any:
    """Return a value without Spark's rows; keys of maps are texts."""
    if isinstance(value, Row):
        return {name: _plain(each) for name, each in zip(value.__fields__, value, strict=True)}
    if isinstance(value, Mapping):
        return {str(_as_text(_plain(key))): _plain(each) for key, each in value.items()}
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return json_value(value) if isinstance(value, datetime) else value
