"""Load resources beside topics into their tables: compare them first, then run one MERGE for each table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from topicledger.arrow import arrow_schema
from topicledger.ledger.tables import Ledger, differ
from topicledger.manifests.files import ResourceRow
from topicledger.manifests.owners import is_one_of
from topicledger.schemas import RESOURCES, Table


@dataclass(frozen=True, kw_only=True)
class ResourceChanges:
    """The changes that a load makes to one table."""

    table: Table
    rows: DataFrame
    counts: Mapping[str, int]
    """Numbers of rows: added, changed, unchanged, removed."""
    removed: DataFrame | None = None
    """Keys of the rows that no file has; None without --replace."""


def frames(spark: SparkSession, declared: Mapping[str, Sequence[ResourceRow]]) -> Mapping[str, DataFrame]:
    """Return the declared rows of each table, one per key, without tables that files have no entries for.

    `resource_reasons` has checked the rows.
    """
    return {table.name: _frame(spark, table, rows) for table in RESOURCES if (rows := declared.get(table.name))}


def _frame(spark: SparkSession, table: Table, rows: Sequence[ResourceRow]) -> DataFrame:
    def values(row: ResourceRow) -> dict[str, object]:
        own = {name: getattr(row, name) for name in ("cluster", "state", "owner", "labels")}
        found = {**own, **row.values}
        return {name: list(each.items()) if isinstance(each, Mapping) else each for name, each in found.items()}

    arrow = pa.Table.from_pylist([values(row) for row in rows], schema=arrow_schema(table.schema))
    return spark.createDataFrame(arrow, table.schema).dropDuplicates([*table.key])


def difference(
    declared: Table, table: DataFrame, rows: DataFrame, clusters: Sequence[str], owners: tuple[str, ...] | None
) -> ResourceChanges:
    """Return the changes that `rows` make to `table`, the current rows of `declared`.

    `owners`: owners whose rows of `clusters` are removed if `rows` lack them; empty for all owners, None for none.
    """
    key = declared.key
    same = [F.col(f"old.{name}").eqNullSafe(F.col(f"new.{name}")) for name in key]
    old, differs = F.col("old.cluster").isNotNull(), differ(declared, "old", "new")
    counts = (
        table.alias("old")
        .join(rows.alias("new"), on=same, how="right")
        .agg(
            F.count_if(~old).alias("added"),
            F.count_if(old & differs).alias("changed"),
            F.count_if(old & ~differs).alias("unchanged"),
        )
        .collect()[0]
        .asDict()
    )
    if owners is None:
        return ResourceChanges(table=declared, rows=rows, counts={**counts, "removed": 0})
    removable = table.where(F.col("cluster").isin(*clusters))
    if owners:
        removable = removable.where(is_one_of(F.col("owner"), owners))
    gone = removable.alias("old").join(rows.alias("new"), on=same, how="left_anti").select(*key).localCheckpoint()
    return ResourceChanges(table=declared, rows=rows, counts={**counts, "removed": gone.count()}, removed=gone)


def make(ledger: Ledger, changes: ResourceChanges) -> None:
    """Make the changes in one commit, or in none if there are no changes."""
    if any(changes.counts[name] for name in ("added", "changed", "removed")):
        ledger.merge(changes.table, changes.table.key, changes.rows, removed=changes.removed)
