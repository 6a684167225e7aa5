"""The one module that writes Delta: the ledger's tables, created when missing, checked when present.

Every append carries txnAppId and txnVersion, so that doing it again changes nothing.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from delta.tables import DeltaTable
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from topicledger.errors import TableError, UsageError
from topicledger.schemas import MANIFESTS, RUNS, SCHEMA_VERSION, SCHEMA_VERSION_PROPERTY, TABLES, Table

_CATALOG_ROOT = re.compile(r"\w+\.\w+")
_CONFLICT_RETRIES = 10
_CAUSE = re.compile(r"^\s*Caused by: (?:[a-z]\w*\.)+[A-Z]\w*: (.+)$", re.MULTILINE)
_TOLD_BY_THEIR_CAUSE = ("[TASK_WRITE_FAILED]", "[FAILED_READ_FILE", "Job aborted")
"""How messages begin that say where something failed, and not why."""
_APPEND_ONLY = "delta.appendOnly"
_LISTING_PARALLELISM = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_LISTING_TASKS = 16
_S3 = ("s3", "s3a", "s3n")
_S3_LOG_STORE = "io.delta.storage.S3DynamoDBLogStore"

log = logging.getLogger(__name__)

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large a table is."""

    files: int
    bytes: int


class Ledger:
    """The tables under one root: a path with a folder per table, or `catalog.schema`."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.spark = spark
        self._in_catalog = bool(_CATALOG_ROOT.fullmatch(root))
        # Spark's SQL takes no relative path for a table; executors may have another working directory.
        relative = not self._in_catalog and ":" not in root
        self.root = str(Path(root).absolute()) if relative else root.rstrip("/")
        self._ensured: set[str] = set()

    # -- names -------------------------------------------------------------------------------------------------------

    def location(self, table: Table) -> str:
        """The table's path, or its name in the catalog."""
        return f"{self.root}.{table.name}" if self._in_catalog else f"{self.root}/{table.name}"

    def sql_name(self, table: Table) -> str:
        """How the table is named in a SQL query."""
        if self._in_catalog:
            return self.location(table)
        return f"delta.`{self.location(table).replace('`', '``')}`"

    def _local(self) -> Path | None:
        if self._in_catalog:
            return None
        scheme, found, rest = self.root.partition(":")
        if not found:
            return Path(self.root)
        return Path(re.sub(r"^/+", "/", rest)) if scheme == "file" else None

    # -- creating and checking ---------------------------------------------------------------------------------------

    def require_root(self) -> None:
        """Raises TableError where a local root isn't there: a mistyped root must not pass for an empty estate."""
        local = self._local()
        if local is not None and not local.is_dir():
            raise TableError(
                f"tables root {self.root} does not exist: correct tables.root in the settings, "
                "or load manifests first, which creates it"
            )

    def require_atomic_commits(self, *, refuse: bool) -> None:
        """Of tables on S3, warns where two drivers can overwrite each other's commits, or raises UsageError.

        Delta's LogStore for S3 knows only its own driver's commits, unless it is the one with a table in DynamoDB.
        Reads nothing where the root is an address; of a catalog's schema, where its tables are.
        """
        for address in self._addresses():
            scheme = address.partition(":")[0].lower()
            log_store = f"spark.delta.logStore.{scheme}.impl"
            if scheme not in _S3 or self.spark.conf.get(log_store, None) == _S3_LOG_STORE:
                continue
            problem = (
                f"tables in {address}: on S3 two drivers can overwrite each other's commits, leases among them. "
                f"Set {log_store} to {_S3_LOG_STORE} for every driver, or [tables] single_writer = true in the "
                "settings where never more than one command runs at a time"
            )
            if refuse:
                raise UsageError(f"{problem}. Nothing was read or sent")
            log.warning("%s", problem)
            return

    def _addresses(self) -> Sequence[str]:
        """Where the tables are: the root, or what a catalog says of those that are there and of its schema."""
        if not self._in_catalog:
            return [self.root]
        with _errors(f"the location of {self.root} can't be read"):
            tables = [self.location(table) for table in (RUNS, MANIFESTS) if self.exists(table)]
            told = [
                self.spark.sql(f"DESCRIBE TABLE EXTENDED {name}").toDF("name", "value", "comment") for name in tables
            ]
            if not tables and self.spark.catalog.databaseExists(self.root):
                # A first run makes its tables there.
                told = [self.spark.sql(f"DESCRIBE SCHEMA {self.root}").toDF("name", "value")]
            return [str(row["value"]) for rows in told for row in rows.where("name = 'Location'").collect()]

    def ensure(self, *tables: Table) -> None:
        """Create the tables that are missing and check those present, each once.

        Nullable columns that a table of an older topicledger lacks are added. Raises TableError naming the table where
        its columns differ in any other way from its schema.
        """
        for table in tables:
            if table.name not in self._ensured:
                with _errors(f"table {self.location(table)} can't be opened or created"):
                    self._create_if_missing(table)
                self._check(table)
                if table.properties.get(_APPEND_ONLY) == "true" and self._keep_append_only(table):
                    log.warning("%s was not append-only: made so again after a killed `maintain`", self.location(table))
                self._ensured.add(table.name)

    def _create_if_missing(self, table: Table) -> None:
        if self.exists(table):
            return
        properties = {
            "delta.enableDeletionVectors": "false",
            SCHEMA_VERSION_PROPERTY: str(SCHEMA_VERSION),
            **table.properties,
        }
        if self._in_catalog:
            # Delta's builder takes no name of three parts.
            self.spark.sql(f"CREATE TABLE IF NOT EXISTS {self.location(table)} {_definition(table, properties)}")
            return
        builder = DeltaTable.createIfNotExists(self.spark).addColumns(table.schema).comment(table.comment)
        builder = builder.location(self.location(table))
        if table.partitioned_by:
            builder = builder.partitionedBy(*table.partitioned_by)
        for name, value in properties.items():
            builder = builder.property(name, value)
        builder.execute()

    def exists(self, table: Table) -> bool:
        """Whether the table is there; asks, and creates nothing."""
        with _errors(f"table {self.location(table)} can't be read"):
            if self._in_catalog:
                return self.spark.catalog.tableExists(self.location(table))
            return DeltaTable.isDeltaTable(self.spark, self.location(table))

    def _check(self, table: Table) -> None:
        problems, missing = self._compare(table)
        if missing and not problems:
            self._add_columns(table)
            problems, missing = self._compare(table)
        if problems or missing:
            if self._schema_version(table) > SCHEMA_VERSION:
                raise TableError(
                    f"table {self.location(table)} was written by a newer topicledger, this one knows tables up to "
                    f"schema {SCHEMA_VERSION}: use a newer topicledger. Nothing was changed"
                )
            problems = [*(f"no column {each.name}" for each in missing), *problems]
            raise TableError(
                f"table {self.location(table)} is not as topicledger's schema {SCHEMA_VERSION} says: "
                f"{'; '.join(problems)}. Nothing was changed; point tables.root elsewhere or mend the table"
            )

    def _compare(self, table: Table) -> tuple[list[str], list[StructField]]:
        """How the table differs from its schema: what is wrong, and the columns that can simply be added."""
        with _errors(f"table {self.location(table)} can't be read"):
            found = self.read(table).schema
        missing = [each for each in table.schema if each.name not in found.names]
        addable = [each for each in missing if each.nullable and each.name not in table.partitioned_by]
        problems = [f"no column {each.name}" for each in missing if each not in addable]
        problems += _other_types(table.schema, found)
        extra = [name for name in found.names if name not in table.schema.names]
        if extra and not table.shared:
            problems.append(f"unknown columns {', '.join(extra)}")
        return problems, addable

    def _add_columns(self, table: Table) -> None:
        """Add the columns that an older topicledger didn't know; another process may do the same at once."""
        if self._schema_version(table) < SCHEMA_VERSION:
            # First: whoever is stopped in between finds the columns still missing, and goes on.
            self._alter(table, lambda: self._set_property(table, SCHEMA_VERSION_PROPERTY, str(SCHEMA_VERSION)))

        def add() -> None:
            _, missing = self._compare(table)
            if missing:
                columns = ", ".join(map(_column, missing))
                log.info("adding columns to %s: %s", self.location(table), ", ".join(each.name for each in missing))
                self.spark.sql(f"ALTER TABLE {self.sql_name(table)} ADD COLUMNS ({columns})")

        self._alter(table, add)

    def _alter(self, table: Table, alter: Callable[[], object]) -> None:
        """Alter a table, again where another writer's commit came in between."""
        for attempt in range(_CONFLICT_RETRIES):
            try:
                with _errors(f"table {self.location(table)} can't be altered"):
                    alter()
                return
            except TableError:
                # Delta's error differs by who was how far: that of a conflict, or of a column that is there by now.
                if attempt == _CONFLICT_RETRIES - 1:
                    raise
                time.sleep(random.uniform(0.05, 0.5))

    def _schema_version(self, table: Table) -> int:
        """The version of the schema that the table was made or last altered with; 0 for a table of somebody else."""
        return int(self._properties(table).get(SCHEMA_VERSION_PROPERTY, 0))

    def _properties(self, table: Table) -> Mapping[str, str]:
        with _errors(f"table {self.location(table)} can't be read"):
            rows = self.spark.sql(f"SHOW TBLPROPERTIES {self.sql_name(table)}").collect()
        return {row["key"]: row["value"] for row in rows}

    # -- reading -----------------------------------------------------------------------------------------------------

    def read(self, table: Table, version: int | None = None) -> DataFrame:
        """The table, at `version` where one is given."""
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.table(self.location(table)) if self._in_catalog else reader.load(self.location(table))

    def latest_version(self, table: Table) -> int:
        """The number of the table's last commit."""
        with _errors(f"table {self.location(table)} can't be read"):
            return int(self._delta(table).history(1).collect()[0]["version"])

    def _delta(self, table: Table) -> DeltaTable:
        if self._in_catalog:
            return DeltaTable.forName(self.spark, self.location(table))
        return DeltaTable.forPath(self.spark, self.location(table))

    # -- writing -----------------------------------------------------------------------------------------------------

    def rows(self, table: Table, rows: Sequence[Mapping[str, object]]) -> DataFrame:
        """Rows of `table` from Python, without a Python worker; what isn't given is null."""
        arrow = to_arrow_schema(table.schema, timezone="UTC")
        return self.spark.createDataFrame(pa.Table.from_pylist(list(rows), schema=arrow), table.schema)

    def append(self, table: Table, rows: DataFrame, *, app_id: str, version: int) -> None:
        """Append `rows` in one commit, once: the same (app_id, version) again, or a lower one, changes nothing."""

        def append() -> None:
            writer = (
                rows.select(*table.schema.names)
                .write.format("delta")
                .mode("append")
                .option("txnAppId", app_id)
                .option("txnVersion", version)
            )
            self._save(table, writer)

        self._again(f"table {self.location(table)} can't be appended to", append)

    def replace_clusters(self, table: Table, rows: DataFrame, clusters: Collection[str]) -> None:
        """Replace everything the table says of `clusters` by `rows`, in one commit."""
        if not clusters:
            return
        names = ", ".join(sql_text(name) for name in sorted(clusters))
        with _errors(f"table {self.location(table)} can't be written"):
            writer = (
                rows.select(*table.schema.names)
                .write.format("delta")
                .mode("overwrite")
                .option("replaceWhere", f"cluster IN ({names})")
            )
            self._save(table, writer)

    def _save(self, table: Table, writer: DataFrameWriter) -> None:
        if self._in_catalog:
            writer.saveAsTable(self.location(table))
        else:
            writer.save(self.location(table))

    def update(self, table: Table, condition: str, values: Mapping[str, str]) -> int:
        """Set columns of the rows that meet `condition`, all in SQL; returns how many rows it was.

        Another writer's commit in between is waited out, and the rows are looked at again.
        """
        sets = ", ".join(f"{name} = {value}" for name, value in values.items())
        update = f"UPDATE {self.sql_name(table)} SET {sets} WHERE {condition}"
        return self._again_after_conflicts(table, lambda: self.spark.sql(update))

    def compare_and_set(self, table: Table, key: str, rows: Sequence[Mapping[str, object]]) -> int:
        """Make rows what `rows` say where nobody changed them meanwhile, in one commit; returns how many it was.

        `changes` rises by one with every change: a row is written if the table has it with one less, or where it is 1
        and the table has none. `key` is what the table is partitioned by: writers of other keys aren't in the way.
        """
        keys = ", ".join(sql_value(row[key]) for row in rows)
        if all(row["changes"] != 1 for row in rows):
            # The states of runs go this way too: Java has run it before, and MERGE only for the first lease.
            known = " OR ".join(f"({key} = {sql_value(row[key])} AND changes = {row['changes']} - 1)" for row in rows)
            values = {name: _by_key(key, name, rows) for name in table.schema.names if name != key}
            return self.update(table, f"{key} IN ({keys}) AND ({known})", values)
        new: dict[str, str | Column] = {name: F.col(f"new.{name}") for name in table.schema.names}

        def merge() -> DataFrame:
            wanted = self.rows(table, rows).alias("new")
            found = self._delta(table).alias("old")
            made = found.merge(wanted, f"old.{key} = new.{key} AND old.{key} IN ({keys})")
            made = made.whenNotMatchedInsert("new.changes = 1", new)
            if any(row["changes"] != 1 for row in rows):
                # Without this clause Delta looks at the rows once instead of twice.
                made = made.whenMatchedUpdate("old.changes = new.changes - 1", new)
            return made.execute()

        return self._again_after_conflicts(table, merge)

    def _again(self, what: str, write: Callable[[], object]) -> None:
        """Write, begun again where another writer's commit came in between; `what` begins the error's message."""
        for attempt in range(_CONFLICT_RETRIES):
            try:
                with _errors(what):
                    write()
                return
            except TableError as error:
                if not _is_conflict(error) or attempt == _CONFLICT_RETRIES - 1:
                    raise
                time.sleep(random.uniform(0.05, 0.5))

    def _again_after_conflicts(self, table: Table, write: Callable[[], DataFrame]) -> int:
        """How many rows `write` changed, begun again where another writer's commit came in between."""
        for attempt in range(_CONFLICT_RETRIES):
            try:
                with _errors(f"table {self.location(table)} can't be updated"):
                    return int(write().collect()[0]["num_affected_rows"])
            except TableError as error:
                if "Concurrent" not in type(error.__cause__).__name__ or attempt == _CONFLICT_RETRIES - 1:
                    raise
                time.sleep(random.uniform(0.05, 0.5))
        raise AssertionError("unreachable")

    # -- maintaining -------------------------------------------------------------------------------------------------

    def size(self, table: Table) -> Size:
        """How large the latest version is."""
        with _errors(f"table {self.location(table)} can't be read"):
            row = self._delta(table).detail().select("numFiles", "sizeInBytes").collect()[0]
        return Size(files=int(row["numFiles"]), bytes=int(row["sizeInBytes"]))

    def count(self, table: Table, condition: Column, kept: DataFrame | None = None) -> int:
        """How many rows meet `condition`, but for those of `kept`, as `delete` takes it."""
        with _errors(f"table {self.location(table)} can't be read"):
            rows = self.read(table).where(condition)
            return (rows if kept is None else rows.join(kept, on=kept.columns, how="left_anti")).count()

    def delete(self, table: Table, condition: Column, kept: DataFrame | None = None) -> int:
        """Delete rows that meet `condition`, but for those of `kept`; returns how many it was.

        Columns of `kept`: some of the table's, none of them null, whose values tell a row. The rows go in one commit,
        begun again where another writer's came in between. Delta has no way to delete from an append-only table: the
        property is lifted for that commit, and set again whatever becomes of it.
        """
        append_only = table.properties.get(_APPEND_ONLY) == "true"
        rows = self.count(table, condition, kept)
        if rows == 0:
            return 0

        def delete() -> None:
            # Whoever opens the table meanwhile sets the property again.
            if append_only and self._is_append_only(table):
                self._set_property(table, _APPEND_ONLY, "false")
            if kept is None:
                self._delta(table).delete(condition)
            else:
                same = reduce(and_, (F.col(f"found.{name}") == F.col(f"kept.{name}") for name in kept.columns))
                merge = self._delta(table).alias("found").merge(kept.alias("kept"), same)
                merge.whenNotMatchedBySourceDelete(condition).execute()

        try:
            self._again(f"rows of table {self.location(table)} can't be deleted", delete)
        finally:
            if append_only:
                self._keep_append_only(table)
        return rows

    def _is_append_only(self, table: Table) -> bool:
        return self._properties(table).get(_APPEND_ONLY) == "true"

    def _keep_append_only(self, table: Table) -> bool:
        """Make a table append-only where it isn't; returns whether it wasn't."""
        if self._is_append_only(table):
            return False
        self._alter(table, lambda: self._set_property(table, _APPEND_ONLY, "true"))
        return True

    def _set_property(self, table: Table, name: str, value: str) -> None:
        told = f"{sql_text(name)} = {sql_text(value)}"
        self.spark.sql(f"ALTER TABLE {self.sql_name(table)} SET TBLPROPERTIES ({told})")

    def compact(self, table: Table) -> int:
        """Rewrite small files as large ones; returns how many files there are then."""
        with _errors(f"table {self.location(table)} can't be compacted"):
            self._delta(table).optimize().executeCompaction()
        return self.size(table).files

    def vacuum(self, table: Table, hours: int, *, dry_run: bool) -> int:
        """Remove files that no version of the last `hours` has; returns how many it is."""
        vacuum = f"VACUUM {self.sql_name(table)} RETAIN {hours} HOURS"
        with _errors(f"table {self.location(table)} can't be vacuumed"), self._listing_in(_LISTING_TASKS):
            # It lists folders, too: that of the change data feed every time.
            name = F.substring_index("path", "/", -1)
            files = self.spark.sql(f"{vacuum} DRY RUN").where(name.rlike(r"^[^=]*\.(parquet|bin)$")).count()
            if files and not dry_run:
                self.spark.sql(vacuum)
        return files

    @contextmanager
    def _listing_in(self, tasks: int) -> Iterator[None]:
        """Within it, folders are listed in so many tasks: VACUUM takes 10,000 by default, however few there are."""
        before = self.spark.conf.get(_LISTING_PARALLELISM)
        assert before is not None, "Spark has a default for it"
        self.spark.conf.set(_LISTING_PARALLELISM, tasks)
        try:
            yield
        finally:
            self.spark.conf.set(_LISTING_PARALLELISM, before)

    def merge_manifests(self, rows: DataFrame, *, replace_clusters: Collection[str]) -> None:
        """Make `manifests` say what `rows` say, in one MERGE that leaves unchanged rows and others' columns alone.

        Rows of `replace_clusters` that aren't in `rows` are removed.
        """
        names = MANIFESTS.schema.names
        values: dict[str, str | Column] = {name: F.col(f"new.{name}") for name in names}
        with _errors(f"table {self.location(MANIFESTS)} can't be merged into"):
            merge = (
                self._delta(MANIFESTS)
                .alias("old")
                .merge(rows.alias("new"), "old.cluster = new.cluster AND old.topic = new.topic")
                .whenMatchedUpdate(manifests_differ("old", "new"), values)
                .whenNotMatchedInsert(values=values)
            )
            if replace_clusters:
                merge = merge.whenNotMatchedBySourceDelete(F.col("old.cluster").isin(*replace_clusters))
            merge.execute()


def _is_conflict(error: TableError) -> bool:
    """Whether it may go well when it is tried again; an append-only table is one that was made so again meanwhile."""
    cause = type(error.__cause__).__name__
    return cause.startswith(("Concurrent", "MetadataChanged")) or "DELTA_CANNOT_MODIFY_APPEND_ONLY" in str(error)


def manifests_differ(left: str, right: str) -> Column:
    """Whether the manifest rows of two aliases differ in any column."""
    columns = ((f"{left}.{name}", f"{right}.{name}") for name in MANIFESTS.schema.names)
    return reduce(lambda one, other: one | other, (~_same_value(*pair) for pair in columns))


def _same_value(left: str, right: str) -> Column:
    """Whether two columns of a manifest agree, nulls and maps included (Spark can't compare maps)."""
    if left.rsplit(".", 1)[-1] in ("assignments", "configs", "labels"):
        return F.array_sort(F.map_entries(left)).eqNullSafe(F.array_sort(F.map_entries(right)))
    return F.col(left).eqNullSafe(F.col(right))


def all_tables(ledger: Ledger) -> None:
    """Create or check every table of the ledger."""
    ledger.ensure(*TABLES.values())


def _definition(table: Table, properties: Mapping[str, str]) -> str:
    """A table as CREATE TABLE describes it."""
    columns = ", ".join(map(_column, table.schema))
    partitioned = f"PARTITIONED BY ({', '.join(table.partitioned_by)}) " if table.partitioned_by else ""
    told = ", ".join(f"{sql_text(name)} = {sql_text(value)}" for name, value in properties.items())
    return f"({columns}) USING delta {partitioned}COMMENT {sql_text(table.comment)} TBLPROPERTIES ({told})"


def _column(field: StructField) -> str:
    """A column as CREATE TABLE and ALTER TABLE describe it."""
    comment = f" COMMENT {sql_text(field.metadata['comment'])}" if "comment" in field.metadata else ""
    return f"`{field.name}` {field.dataType.simpleString()}{'' if field.nullable else ' NOT NULL'}{comment}"


def sql_text(text: str) -> str:
    """A string literal of Spark SQL."""
    # Spark puts variables and the environment in place of ${...}, in literals too.
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024") + "'"


def sql_value(value: object) -> str:
    """A text, a number, a moment, null, or a map of such as Spark SQL has it; an empty map is null."""
    if isinstance(value, Mapping) and value:
        return f"map({', '.join(sql_value(part) for item in value.items() for part in item)})"
    if value is None or value == {}:
        return "NULL"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f} UTC'"
    return str(value) if isinstance(value, int) else sql_text(str(value))


def _by_key(key: str, name: str, rows: Sequence[Mapping[str, object]]) -> str:
    """The value of a column by the row's key, in SQL; what isn't given is null."""
    values = {sql_value(row[key]): sql_value(row.get(name)) for row in rows}
    if len(set(values.values())) == 1:
        return next(iter(values.values()))
    return f"CASE {key} {' '.join(f'WHEN {one} THEN {value}' for one, value in values.items())} END"


def _other_types(wanted: StructType, found: StructType) -> list[str]:
    types = {each.name: each.dataType for each in found}
    return [
        f"column {each.name} is {types[each.name].simpleString()}, not {each.dataType.simpleString()}"
        for each in wanted
        if each.name in types and not _same_type(each.dataType, types[each.name])
    ]


def _same_type(wanted: DataType, found: DataType) -> bool:
    """Whether types agree but for nullability, which other writers may see differently."""
    return _without_nullability(wanted) == _without_nullability(found)


def _without_nullability(data_type: DataType) -> DataType:
    if isinstance(data_type, ArrayType):
        return ArrayType(_without_nullability(data_type.elementType))
    if isinstance(data_type, MapType):
        return MapType(_without_nullability(data_type.keyType), _without_nullability(data_type.valueType))
    if isinstance(data_type, StructType):
        return StructType([StructField(each.name, _without_nullability(each.dataType)) for each in data_type])
    return data_type


@contextmanager
def _errors(what: str) -> Iterator[None]:
    """Turn Spark's and Delta's exceptions into a TableError of one readable sentence."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise TableError(f"{what}: {first_sentence(error)}") from error


def first_sentence(error: Exception) -> str:
    """The first line that means something to a user, without Java's class names and stack trace."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if isinstance(error, Py4JError):
        lines = [line.removeprefix(": ") for line in lines if not line.startswith("An error occurred while calling")]
    first = lines[0] if lines else type(error).__name__
    told = re.sub(r"^(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ", "", first).split(" SQLSTATE")[0]
    causes = (
        _CAUSE.findall(getattr(error, "_stackTrace", None) or text) if told.startswith(_TOLD_BY_THEIR_CAUSE) else []
    )
    return f"{told} {causes[-1].strip()}" if causes else told
