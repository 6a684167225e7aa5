"""Changes that rows of files make to the tables of declarations: compared first, then made by one MERGE per table."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from topicledger.arrow import arrow_schema
from topicledger.frames import materialised
from topicledger.ledger.sql import differ, key_part, same_key
from topicledger.ledger.tables import Ledger
from topicledger.manifests.files import FileRow
from topicledger.manifests.owners import is_one_of
from topicledger.manifests.rows import Transform
from topicledger.schemas import DECLARING, MANIFESTS, Table
from topicledger.text import listed, show

log = logging.getLogger(__name__)

_SHOWN = 20
KEPT = ("labels", "replaces", "description")
"""Columns whose values no cluster knows."""


@dataclass(frozen=True, kw_only=True)
class TableChanges:
    """The changes that a load makes to one table."""

    table: Table
    rows: DataFrame
    counts: Mapping[str, int]
    """Numbers of rows: added, changed, unchanged, removed."""
    removed: DataFrame | None = None
    """The rows that no file has, materialised; None without --replace. A row that has changed since stays."""
    then: DataFrame | None = None
    """The table's rows that were compared: a row that has changed since stays as it is. None: it is overwritten."""

    @property
    def any(self) -> bool:
        """Whether there are any changes."""
        return self._expected > 0

    @property
    def _expected(self) -> int:
        return sum(self.counts[name] for name in ("added", "changed", "removed"))

    def make(self, ledger: Ledger) -> TableChanges:
        """Make the changes in one commit, or in none if there are no changes; returns them without rows that stay."""
        if not self.any:
            return self
        changed = ledger.merge(self.table, self.rows, removed=self.removed, then=self.then)
        if changed >= self._expected:
            return self
        there = ledger.read(self.table).alias("old")
        return self._without_kept(there)._without_overtaken(there)

    def _without_kept(self, there: DataFrame) -> TableChanges:
        """Return the changes without the rows that aren't removed, since another commit changed them; log these."""
        if self.removed is None:
            return self
        same = same_key(self.table, "old", "new")
        stay = self.removed.alias("new").join(there, on=same, how="left_semi").select(*self.table.key)
        stay = stay.transform(materialised)
        if not (count := self._log_staying(stay, "read, so they aren't removed")):
            return self
        left = self.removed.alias("old").join(stay.alias("new"), on=same, how="left_anti")
        return replace(self, removed=left, counts={**self.counts, "removed": self.counts["removed"] - count})

    def _without_overtaken(self, there: DataFrame) -> TableChanges:
        """Return the changes without the rows that aren't loaded, since another commit changed them; log these."""
        if self.then is None:
            return self
        other = F.col("old.cluster").isNull() | differ(self.table, "old", "new")
        stay = self.rows.alias("new").join(there, on=same_key(self.table, "old", "new"), how="left").where(other)
        stay = stay.select(*(F.col(f"new.{name}") for name in self.table.key)).transform(materialised)
        if not (count := self._log_staying(stay, "compared, so they aren't loaded")):
            return self
        same = same_key(self.table, "new", "then")
        changed = stay.alias("new").join(self.then.alias("then"), on=same, how="left_semi").count()
        less = {"added": count - changed, "changed": changed}
        return replace(self, counts={name: each - less.get(name, 0) for name, each in self.counts.items()})

    def _log_staying(self, keys: DataFrame, why: str) -> int:
        """Log which rows stay as they are, if there are any; return their number."""
        if not (count := keys.count()):
            return 0
        first = [
            " ".join(show(str(part)) for part in row if part is not None)
            for row in keys.orderBy(*self.table.key).limit(_SHOWN).collect()
        ]
        names = listed(first, count, most=_SHOWN)
        log.warning("rows of %s changed after they were %s: %s", self.table.name, why, names)
        return count


def counts_of(made: Sequence[TableChanges]) -> dict[str, int]:
    """Return the counts of the changes made, by name; those of `manifests` have no prefix."""
    counts = dict.fromkeys(("added", "changed", "unchanged", "removed"), 0)
    for each in made:
        prefix = "" if each.table is MANIFESTS else f"{each.table.name}_"
        counts |= {f"{prefix}{name}": count for name, count in each.counts.items()}
    return counts


def frames(spark: SparkSession, declared: Mapping[str, Sequence[FileRow]]) -> Mapping[str, DataFrame]:
    """Return the declared rows of each table, one per key, without tables that aren't in `declared`.

    `read` has checked the rows.
    """
    return {table.name: _frame(spark, table, declared[table.name]) for table in DECLARING if table.name in declared}


def _frame(spark: SparkSession, table: Table, rows: Sequence[FileRow]) -> DataFrame:
    def values(column: str) -> Iterator[object]:
        for row in rows:
            value = row.value(column)
            yield list(value.items()) if isinstance(value, Mapping) else value

    schema = arrow_schema(table.schema)
    columns = [pa.array(values(field.name), type=field.type) for field in schema]
    arrow = pa.Table.from_arrays(columns, schema=schema)
    return spark.createDataFrame(arrow, table.schema).dropDuplicates([*table.key])


def difference(
    ledger: Ledger,
    table: Table,
    rows: DataFrame,
    removed: DataFrame | None = None,
    then: DataFrame | None = None,
) -> TableChanges:
    """Return the changes that `rows`, one per key, make to a table, which need not exist, or to its rows `then`.

    `removed`, `then`: see `TableChanges`.
    """
    there = ledger.read_if_exists(table) if then is None else then
    old, differs = F.col("old.cluster").isNotNull(), differ(table, "old", "new")
    counts = (
        there.alias("old")
        .join(rows.alias("new"), on=same_key(table, "old", "new"), how="right")
        .agg(
            F.count_if(~old).alias("added"),
            F.count_if(old & differs).alias("changed"),
            F.count_if(old & ~differs).alias("unchanged"),
        )
        .collect()[0]
        .asDict()
    )
    counts["removed"] = 0 if removed is None else removed.count()
    return TableChanges(table=table, rows=rows, counts=counts, removed=removed, then=then)


def gone(
    table: Table, there: DataFrame, rows: DataFrame, clusters: Sequence[str], owners: tuple[str, ...]
) -> DataFrame:
    """Return the rows of a table, as it is `there`, in these clusters that `rows` lack.

    `owners`: only rows of these owners; empty for all.
    """
    old = there.alias("old").where(F.col("old.cluster").isin(*clusters))
    if owners:
        old = old.where(is_one_of(F.col("old.owner"), owners))
    found = old.join(rows.alias("new"), on=same_key(table, "old", "new"), how="left_anti")
    return found.select(*table.schema.names)


def as_declared(table: Table, declared: DataFrame, names: Collection[str] = KEPT) -> Transform:
    """Give rows about live resources, one per key, the values of `names` that their declarations have."""
    found = [name for name in names if name in table.schema.names]
    same = same_key(table, "live", "known")

    def transform(rows: DataFrame) -> DataFrame:
        key = (key_part(table, name).alias(name) for name in table.key)
        known = declared.groupBy(*key).agg(*(F.any_value(name, ignoreNulls=True).alias(name) for name in found))
        columns = (
            F.coalesce(f"known.{name}", f"live.{name}").alias(name) if name in found else F.col(f"live.{name}")
            for name in rows.columns
        )
        return rows.alias("live").join(known.alias("known"), on=same, how="left").select(*columns)

    return transform


def adopt(ledger: Ledger, table: Table, rows: DataFrame, owner: str | None, declared: DataFrame) -> Mapping[str, int]:
    """Merge rows about live resources, one per key, into their table, in one commit or in none; return the counts.

    `declared`: the table's rows as they were when the resources were observed. Rows that changed since stay. Keeps the
    owners that the table has if no `owner` is given.
    """
    ledger.ensure(table)
    if owner is None:
        rows = rows.transform(as_declared(table, declared, ["owner"]))
    return difference(ledger, table, rows, then=declared).make(ledger).counts
