"""Changes that loading a plan's files would make to a table of declarations: they count as if they were made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.ledger.sql import differ, same_key
from topicledger.schemas import Table


@dataclass(frozen=True, kw_only=True)
class Unloaded:
    """The changes of one table."""

    rows: DataFrame
    """Rows of the files, one per key."""
    removed: DataFrame | None = None
    """Rows of the table that the load would remove; None without `--replace`."""

    def changed(self, table: Table, before: DataFrame) -> DataFrame:
        """Return the rows that the load would add, change or remove. `before`: the rows of the table."""
        added = F.col("there.cluster").isNull()
        both = self.rows.alias("file").join(before.alias("there"), on=same_key(table, "file", "there"), how="left")
        found = both.where(added | differ(table, "there", "file")).select("file.*")
        return self._with_removed(found)

    def over(self, table: Table, before: DataFrame) -> DataFrame:
        """Return the rows of the table as they would be after the load. `before`: its rows."""
        gone = self._with_removed(self.rows).select(*table.key).alias("gone")
        others = before.alias("there").join(gone, on=same_key(table, "there", "gone"), how="left_anti")
        return others.select(*self.rows.columns).unionByName(self.rows)

    def _with_removed(self, rows: DataFrame) -> DataFrame:
        return rows if self.removed is None else rows.unionByName(self.removed.select(*rows.columns))


def as_if_loaded(unloaded: Mapping[str, Unloaded], table: Table, rows: DataFrame) -> DataFrame:
    """Return the rows of `table` as they would be after the load. `unloaded`: by table name."""
    change = unloaded.get(table.name)
    return rows if change is None else change.over(table, rows)
