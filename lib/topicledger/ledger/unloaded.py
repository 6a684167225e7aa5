"""Changes that loading a plan's files would make to a table of declarations: they count as if they were made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class Unloaded:
    """The changes of one table."""

    rows: DataFrame
    """Rows of the files, one per key."""
    removed: DataFrame | None = None
    """Rows of the table that the load would remove; None without `--replace`."""

    @property
    def touched(self) -> DataFrame:
        """The rows that the load would write or remove."""
        return self.rows if self.removed is None else self.rows.unionByName(self.removed.select(*self.rows.columns))

    def over(self, table: DataFrame, key: Sequence[str]) -> DataFrame:
        """Return the rows of `table` as they would be after the load."""
        left, gone = table, self.touched.select(*key)
        same = [left[name].eqNullSafe(gone[name]) for name in key]
        others = left.join(gone, on=same, how="left_anti")
        return others.select(*self.rows.columns).unionByName(self.rows)
