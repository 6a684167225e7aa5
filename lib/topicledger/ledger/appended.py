"""Rows that the driver has: what was just written isn't read back, and few rows of declarations are read once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from topicledger.arrow import arrow_schema
from topicledger.ledger.definitions import filled
from topicledger.ledger.digests import RowsDigest, hashes_of, of_hashes
from topicledger.schemas import AUDIT, Table

FEW_ROWS = 10_000
"""Most rows of a table that the driver keeps: some 40 MB with all configs of a topic."""
_MANY_HASHES = 200_000
"""Most hashes of appended rows that the driver keeps: some 30 MB."""


Kept: TypeAlias = dict[tuple[str, int], pa.Table | None]
"""Table and version -> the rows that were read; None if they are many."""


class Appended:
    """A start's rows of one table: the rows themselves if they are few, and their hashes if they aren't too many."""

    def __init__(self) -> None:
        self._rows: list[pa.Table] | None = []
        self._hashes: list[str] | None = []

    def add(self, rows: pa.Table | None) -> None:
        """Note that `rows` are appended; None if the driver doesn't have them."""
        if rows is None:
            self._rows = self._hashes = None
        if rows is not None and self._hashes is not None:
            self._hashes += hashes_of(rows)
            if len(self._hashes) > _MANY_HASHES:
                self._hashes = None
        if rows is not None and self._rows is not None:
            self._rows.append(rows)
            if sum(each.num_rows for each in self._rows) > FEW_ROWS:
                self._rows = None

    def read(self, spark: SparkSession, table: Table) -> DataFrame | None:
        """Return all appended rows, which are of `table`; None if they are too many, or unknown."""
        if self._rows is None:
            return None
        known = pa.concat_tables([arrow_schema(table.schema).empty_table(), *self._rows])
        return filled(table, spark.createDataFrame(known, table.schema))

    @property
    def digest(self) -> RowsDigest | None:
        """The digest of all appended rows; None if unknown."""
        return None if self._hashes is None else of_hashes(self._hashes)


@dataclass(frozen=True, kw_only=True)
class Known:
    """The rows that the driver has in a run."""

    appended: dict[str, Appended] = field(default_factory=lambda: {AUDIT.name: Appended()})
    """The rows that this start appends, by table: to `audit`, and, once it has made a plan, to `plans`."""
    kept: Kept = field(default_factory=dict)
    """Rows of declarations."""


def collected(table: Table, rows: DataFrame) -> pa.Table | None:
    """Bring rows of a table to the driver; None if they are too many."""
    few = few_rows(rows.select(*table.schema.names))
    return None if few is None else few.cast(arrow_schema(table.schema))


def few_rows(rows: DataFrame) -> pa.Table | None:
    """Bring rows to the driver; None if they are too many."""
    few = rows.limit(FEW_ROWS + 1).toArrow()
    return few if few.num_rows <= FEW_ROWS else None
