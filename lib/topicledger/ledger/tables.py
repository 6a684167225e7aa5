"""The only module that writes to Delta tables.

Every write is retried if another writer was faster or the storage failed (`retries`). An append carries txnAppId and
txnVersion; other writes are idempotent, or check whether they succeeded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame, DataFrameWriter, Row
from pyspark.sql import functions as F

from topicledger.ledger.retries import retried
from topicledger.ledger.sql import (
    affected,
    by_key,
    comparable,
    format_literal,
    inserted,
    key_part,
    same_key,
    sql_differ,
    sql_same_key,
    sql_text,
    sql_value,
    updated,
)
from topicledger.ledger.versions import Versions
from topicledger.schemas import Table

_APPEND_ONLY = "delta.appendOnly"
_LISTING_PARALLELISM = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_LISTING_TASKS = 16
_OF_THE_OBSERVATION = ("run_id", "observed_at")
"""Columns of an observed row with the run and the time of the observation."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """The size of a table."""

    files: int
    bytes: int


class Ledger(Versions):
    """The tables under one root: a path with a folder per table, or `catalog.schema`."""

    def read_if_exists(self, table: Table) -> DataFrame:
        """Read the table; no rows if it doesn't exist yet."""
        return self.read(table) if self.exists(table) else self.rows(table, [])

    def append(self, table: Table, rows: DataFrame, *, app_id: str, version: int) -> int:
        """Append `rows` in one commit, once: a repetition with the same (app_id, version), or a lower one, is ignored.

        Returns the number of tries: metrics that `rows` observe are those of the first try, complete or not.
        """
        tries = 0

        def save() -> None:
            nonlocal tries
            tries += 1
            writer = rows.select(*table.schema.names).write.format("delta").mode("append")
            self._save(table, writer.option("txnAppId", app_id).option("txnVersion", version))

        self._retried(table, "appended to", save)
        return tries

    def replace_clusters(self, table: Table, rows: DataFrame, clusters: Collection[str]) -> None:
        """Replace all rows of `clusters` by `rows`, in one commit; the last of several writers wins.

        `rows` may be computed more than once, and must be the same each time.
        """
        if not clusters:
            return
        names = ", ".join(sql_text(name) for name in sorted(clusters))

        def save() -> None:
            writer = rows.select(*table.schema.names).write.format("delta").mode("overwrite")
            self._save(table, writer.option("replaceWhere", f"cluster IN ({names})"))

        self._retried(table, "written", save)

    def clusters_that_differ(self, table: Table, rows: DataFrame, clusters: Collection[str]) -> Sequence[str]:
        """Return the clusters whose rows in the table differ from `rows`, which are distinct.

        The time and run of the observation (`run_id`, `observed_at`) are not compared.
        """
        said = [each for each in table.schema if each.name not in _OF_THE_OBSERVATION]
        columns = [F.expr(comparable(each)).alias(each.name) for each in said]
        of_clusters = self.read(table).where(F.col("cluster").isin(*clusters))

        def read() -> Sequence[str]:
            both = of_clusters.select(*columns).unionByName(rows.select(*columns))
            counted = both.groupBy(*(each.name for each in said)).agg(F.count(F.lit(1)).alias("_sides"))
            differ = counted.where("_sides <> 2").select("cluster").distinct().collect()
            return sorted(row["cluster"] for row in differ)

        return self._retried(table, "read", read) if clusters else []

    def _save(self, table: Table, writer: DataFrameWriter) -> None:
        if self._in_catalog:
            writer.saveAsTable(self.location(table))
        else:
            writer.save(self.location(table))

    def update(self, table: Table, condition: str, values: Mapping[str, str]) -> int:
        """Set columns of the rows that meet `condition`, all in SQL; returns their number.

        It may be done twice if the response to the first commit was lost: the number is right if updated rows still
        meet `condition`.
        """
        return self._retried(table, "updated", lambda: self._update(table, condition, values))

    def _update(self, table: Table, condition: str, values: Mapping[str, str]) -> int:
        sets = ", ".join(f"{name} = {value}" for name, value in values.items())
        return affected(self.spark.sql(f"UPDATE {self.sql_name(table)} SET {sets} WHERE {condition}"))

    def update_named(self, table: Table, named: DataFrame, condition: str, values: Mapping[str, str]) -> int:
        """As `update`, for rows whose key is in `named`, once each; a join, so that there may be any number of them."""
        same = " AND ".join([condition, *(f"old.{name} <=> new.{name}" for name in named.columns)])
        sets = ", ".join(f"{name} = {value}" for name, value in values.items())
        update = f"WHEN MATCHED THEN UPDATE SET {sets}"
        return self._retried(table, "updated", lambda: self._merge(table, named, same, update))

    def _merge(self, table: Table, rows: DataFrame, same: str, *clauses: str) -> int:
        """Run MERGE with the table as `old` and `rows` as `new`; returns the number of rows that it changed."""
        into, then = f"MERGE INTO {self.sql_name(table)} AS old USING ", f" AS new ON {same} {' '.join(clauses)}"
        # The text is a format string, whose only field is `rows`.
        text = f"{format_literal(into)}{{rows}}{format_literal(then)}"
        return affected(self.spark.sql(text, rows=rows))

    def compare_and_set(self, table: Table, key: str, rows: Sequence[Mapping[str, object]]) -> int:
        """Write `rows`, unless they were changed meanwhile, in one commit; returns the number of written rows.

        `changes` rises by one with every change: a row is written if the table has it with one less, or if it is 1
        and the table has no such row. The table is partitioned by `key`: writers of other keys cause no conflicts.
        No two writers may write the same values to a row: that is how a writer recognises its own.
        """
        if not rows:
            return 0
        keys = ", ".join(sql_value(row[key]) for row in rows)
        names = table.schema.names
        written = " OR ".join(
            f"({' AND '.join(f'{name} <=> {sql_value(row.get(name))}' for name in names)})" for row in rows
        )

        def write() -> int:
            if any(row["changes"] == 1 for row in rows):
                return self._merge_changed(table, key, rows)
            # States of runs are written with UPDATE, too, so Java has compiled it; MERGE only for the first lease.
            known = " OR ".join(f"({key} = {sql_value(row[key])} AND changes = {row['changes']} - 1)" for row in rows)
            values = {name: by_key(key, name, rows) for name in names if name != key}
            return self._update(table, f"{key} IN ({keys}) AND ({known})", values)

        def written_before() -> int | None:
            # One commit writes all rows: if some are missing, another writer changed them since.
            return self.read(table).where(f"{key} IN ({keys}) AND ({written})").count() or None

        what = f"table {self.location(table)} can't be updated"
        return retried(what, write, done=written_before)

    def _merge_changed(self, table: Table, key: str, rows: Sequence[Mapping[str, object]]) -> int:
        keys = ", ".join(sql_value(row[key]) for row in rows)
        clauses = [f"WHEN NOT MATCHED AND new.changes = 1 THEN {inserted(table)}"]
        if any(row["changes"] != 1 for row in rows):
            # Without this clause, Delta reads the rows once instead of twice.
            clauses.insert(0, f"WHEN MATCHED AND old.changes = new.changes - 1 THEN {updated(table)}")
        same = f"old.{key} = new.{key} AND old.{key} IN ({keys})"
        return self._merge(table, self.rows(table, rows), same, *clauses)

    def size(self, table: Table) -> Size:
        """The size of the latest version."""

        def read() -> Row:
            return self._detail(table).select("numFiles", "sizeInBytes").collect()[0]

        row = self._retried(table, "read", read)
        return Size(files=int(row["numFiles"]), bytes=int(row["sizeInBytes"]))

    def count(self, table: Table, condition: str, kept: DataFrame | None = None) -> int:
        """The number of rows that meet `condition`, without those of `kept`; see `delete`."""
        rows = self.read(table).where(condition)
        counted = rows if kept is None else rows.join(kept, on=kept.columns, how="left_anti")
        return self._retried(table, "read", counted.count)

    def delete(self, table: Table, condition: str, kept: DataFrame | None = None) -> int:
        """Delete rows that meet `condition` (SQL), except those of `kept`; returns their number.

        Columns of `kept`: some of the table's, never null, whose values identify a row. The rows are deleted in one
        commit, which is retried if it conflicts with another writer's. Delta can't delete from an append-only
        table: the property is turned off for that commit, and set again whatever its result.
        """
        append_only = table.properties.get(_APPEND_ONLY) == "true"
        rows = self.count(table, condition, kept)
        if rows == 0:
            return 0

        def delete() -> None:
            # Each time: a process that opens the table meanwhile, or another maintenance, makes it append-only again.
            if append_only and self._is_append_only(table):
                self._set_property(table, _APPEND_ONLY, "false")
            if kept is None:
                self.spark.sql(f"DELETE FROM {self.sql_name(table)} WHERE {condition}")
            else:
                same = " AND ".join(f"old.{name} = new.{name}" for name in kept.columns)
                self._merge(table, kept, same, f"WHEN NOT MATCHED BY SOURCE AND ({condition}) THEN DELETE")

        try:
            retried(f"rows of table {self.location(table)} can't be deleted", delete)
        finally:
            if append_only:
                self._keep_append_only(table)
        return rows

    def compact(self, table: Table) -> int:
        """Rewrite small files as large ones; returns the number of files afterwards."""
        self._retried(table, "compacted", lambda: self.spark.sql(f"OPTIMIZE {self.sql_name(table)}"))
        return self.size(table).files

    def vacuum(self, table: Table, hours: int, *, dry_run: bool) -> int:
        """Remove files that no version of the last `hours` uses; returns their number."""
        vacuum = f"VACUUM {self.sql_name(table)} RETAIN {hours} HOURS"
        # VACUUM lists folders, too, such as that of the change data feed.
        name = F.substring_index("path", "/", -1)

        def old_files() -> int:
            return self.spark.sql(f"{vacuum} DRY RUN").where(name.rlike(r"^[^=]*\.(parquet|bin)$")).count()

        with self._listing_in(_LISTING_TASKS):
            files = self._retried(table, "vacuumed", old_files)
            if files and not dry_run:
                self._retried(table, "vacuumed", lambda: self.spark.sql(vacuum))
        return files

    @contextmanager
    def _listing_in(self, tasks: int) -> Iterator[None]:
        """Context in which folders are listed in this number of tasks; VACUUM's default is 10,000."""
        before = self.spark.conf.get(_LISTING_PARALLELISM)
        assert before is not None, "Spark has a default for it"
        self.spark.conf.set(_LISTING_PARALLELISM, tasks)
        try:
            yield
        finally:
            self.spark.conf.set(_LISTING_PARALLELISM, before)

    def merge(
        self, table: Table, rows: DataFrame, *, removed: DataFrame | None = None, then: DataFrame | None = None
    ) -> int:
        """Merge `rows`, one per key, into a table in one MERGE that keeps unchanged rows and other tools' columns.

        `removed`: rows to remove as the caller has read them, whose keys aren't in `rows`. `then`: the table's rows
        that the caller has compared. A row that another commit has added, changed or removed since stays as it is.
        Returns the number of changed rows, which is too low if the response to the first commit was lost.
        """
        present = self._with_columns_of(table, rows)
        # The rows to remove are named: rows that another load adds in the meantime were not counted.
        source = rows.withColumn("_remove", F.lit(False))

        def by_key(read: DataFrame) -> DataFrame:
            key = (key_part(table, name).alias(name) for name in table.key)
            return read.groupBy(*key).agg(F.collect_list(F.struct(*present.schema.names)).alias("_then"))

        as_read = f"AND exists(new._then, each -> NOT ({sql_differ(present, 'old', 'each')}))"
        as_then, not_then = "", ""
        if then is not None:
            as_then, not_then = as_read, "AND size(new._then) = 0"
            both = source.alias("new").join(by_key(then).alias("then"), on=same_key(table, "new", "then"), how="left")
            source = both.select("new.*", F.coalesce("_then", F.array()).alias("_then"))
        differs = sql_differ(present, "old", "new")
        clauses = [
            f"WHEN MATCHED AND NOT new._remove AND {differs} {as_then} THEN {updated(present)}",
            f"WHEN NOT MATCHED AND NOT new._remove {not_then} THEN {inserted(present)}",
        ]
        if removed is not None:
            keys = by_key(removed).withColumn("_remove", F.lit(True))
            source = source.unionByName(keys, allowMissingColumns=True)
            clauses.insert(1, f"WHEN MATCHED AND new._remove {as_read} THEN DELETE")
        same = sql_same_key(table, "old", "new")
        return self._retried(table, "merged into", lambda: self._merge(table, source, same, *clauses))
