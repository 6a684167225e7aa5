"""The ledger's tables: missing ones are created and existing ones are checked before anything is read or written."""

from __future__ import annotations

import errno
import logging
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from topicledger.arrow import arrow_schema
from topicledger.config.roots import is_in_catalog, missing_root
from topicledger.errors import TableError, UsageError
from topicledger.ledger.retries import SPARK_ERRORS, condition, retried
from topicledger.ledger.session import is_local
from topicledger.ledger.sql import column_definition, definition, other_types, run_on_create, sql_text
from topicledger.schemas import MANIFESTS, RUNS, SCHEMA_VERSION, SCHEMA_VERSION_PROPERTY, Table

_NOT_EMPTY = "[DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION]"
_NO_TABLE = {"PATH_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST", "DELTA_TABLE_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE"}
"""Delta's conditions if a folder has no table, or doesn't exist."""
_NO_VERSION = 2**62
_VERSION_NOT_FOUND = "DELTA_VERSION_NOT_FOUND"
_APPEND_ONLY = "delta.appendOnly"
_LOCAL_FILES = "spark.hadoop.fs.file.impl"
_S3 = ("s3", "s3a", "s3n")
_S3_LOG_STORES = ("ConditionalS3LogStore", "io.delta.storage.S3DynamoDBLogStore")
"""Log stores with which any number of drivers may commit."""

log = logging.getLogger(__name__)

_T = TypeVar("_T")


def require_root(root: str) -> None:
    """Raise TableError if a local root doesn't exist: a mistyped root must not pass for an empty estate."""
    if (missing := missing_root(root)) is not None:
        raise TableError(
            f"tables root {missing} does not exist: correct tables.root in the settings, or load manifests first, "
            "which creates it"
        )


def _links(folder: Path) -> bool:
    """Whether hard links work in a folder, or where it will be created; True if this user can't write there."""
    folder = next(each for each in (folder, *folder.parents) if each.is_dir())
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".topicledger-") as own:
            (one := Path(own, "one")).touch()
            Path(own, "other").hardlink_to(one)
    except OSError as error:
        return error.errno in (errno.EACCES, errno.EROFS)
    return True


class Definitions:
    """The tables under one root: created, checked, found and read."""

    def __init__(self, spark: SparkSession, root: str, on_create: Sequence[str] = ()) -> None:
        self.spark, self._on_create = spark, on_create
        self._in_catalog = is_in_catalog(root)
        # Spark's SQL takes no relative path for a table; executors may have another working directory.
        relative = not self._in_catalog and ":" not in root
        self.root = str(Path(root).absolute()) if relative else root.rstrip("/")
        self._ensured: set[str] = set()
        self._collected: dict[str, tuple[int, Sequence[Row]]] = {}

    def location(self, table: Table) -> str:
        """The table's path, or its name in the catalog."""
        return f"{self.root}.{table.name}" if self._in_catalog else f"{self.root}/{table.name}"

    def sql_name(self, table: Table) -> str:
        """The table's name in a SQL query."""
        if self._in_catalog:
            return self.location(table)
        return f"delta.`{self.location(table).replace('`', '``')}`"

    def require_atomic_commits(self, *, refuse: bool) -> None:
        """Raise UsageError if two drivers can overwrite each other's commits; only warn unless `refuse`.

        On S3, Delta's own LogStore knows only its own driver's commits. ConditionalS3LogStore has S3 refuse the second
        of two, and S3DynamoDBLogStore a table in DynamoDB. On files of this machine LocalFiles makes a commit by a
        hard link, which the file system refuses if the name is taken; only drivers with a local master have it.
        Reads nothing if the root is an address; for a catalog's schema, reads the locations of its tables.
        """
        addresses = self._addresses()
        problem = next(filter(None, map(self._overwrites, addresses)), None)
        if problem is None:
            local = [each for each in addresses if each.startswith(("/", "file:"))]
            if local and self.spark.conf.get(_LOCAL_FILES, None) != "LocalFiles":
                hint = "run one command at a time, since this session has no LocalFiles (docs/installation.md)"
                log.warning("tables in %s: %s", local[0], hint)
            return
        problem += ", or [tables] single_writer = true in the settings where never more than one command runs at a time"
        if refuse:
            raise UsageError(f"{problem}. Nothing was read or sent")
        log.warning("%s", problem)

    def _overwrites(self, address: str) -> str | None:
        """Why drivers can overwrite each other's commits in a place, and the remedy; None if they can't."""
        scheme = "file" if address.startswith("/") else address.partition(":")[0].lower()
        log_store = f"spark.delta.logStore.{scheme}.impl"
        if scheme in _S3 and self.spark.conf.get(log_store, None) not in _S3_LOG_STORES:
            return (
                f"tables in {address}: on S3 two drivers can overwrite each other's commits, leases among them. "
                f"Set {log_store} to {' or '.join(_S3_LOG_STORES)} for every driver"
            )
        if scheme != "file":
            return None
        overwrite = f"tables in {address}: two drivers can overwrite each other's commits, leases among them"
        if not is_local(self._master):
            return (
                f"{overwrite}, since Spark's master is {self._master} and the files are on a disk that machines share. "
                "Keep the tables in HDFS, S3 or another object storage, use a local master"
            )
        if not _links(Path(address.removeprefix("file:"))):
            return f"{overwrite}, since this file system makes no hard links. Keep the tables on one that does"
        return None

    @property
    def _master(self) -> str:
        return self.spark.conf.get("spark.master", None) or "unknown"

    def _addresses(self) -> Sequence[str]:
        """Locations of the tables: the root, or, for a catalog, those of existing tables and of its schema."""
        if not self._in_catalog and (":" in self.root or is_local(self._master)):
            return [self.root]

        def located() -> Sequence[str]:
            # A path belongs to Hadoop's default file system, which a cluster may have set.
            tables = [table for table in (RUNS, MANIFESTS) if self.exists(table)]
            return [str(self._detail(table).collect()[0]["location"]) for table in tables]

        def ask() -> Sequence[str]:
            tables = [self.location(table) for table in (RUNS, MANIFESTS) if self.exists(table)]
            found = [
                self.spark.sql(f"DESCRIBE TABLE EXTENDED {name}").toDF("name", "value", "comment") for name in tables
            ]
            if not tables and self.spark.catalog.databaseExists(self.root):
                # A first run creates its tables there.
                found = [self.spark.sql(f"DESCRIBE SCHEMA {self.root}").toDF("name", "value")]
            return [str(row["value"]) for rows in found for row in rows.where("name = 'Location'").collect()]

        return retried(f"the location of {self.root} can't be read", ask if self._in_catalog else located)

    def ensure(self, *tables: Table) -> None:
        """Create the tables that are missing and check those present, each once.

        Nullable columns that a table of an older topicledger lacks are added, except to tables that others write, too.
        Raises TableError naming the table if its columns differ in any other way from its schema.
        """
        for table in tables:
            if table.name not in self._ensured:
                if self._retried(table, "opened or created", partial(self._create_if_missing, table)):
                    run_on_create(self.spark, self._on_create, self.sql_name(table))
                self._check(table)
                if table.properties.get(_APPEND_ONLY) == "true" and self._keep_append_only(table):
                    log.warning("%s was not append-only: made so again after a killed `maintain`", self.location(table))
                self._ensured.add(table.name)

    def _retried(self, table: Table, done_to_it: str, action: Callable[[], _T]) -> _T:
        return retried(f"table {self.location(table)} can't be {done_to_it}", action)

    def _create_if_missing(self, table: Table) -> bool:
        """Return whether this process created it; another process may have created it at the same time."""
        if self._is_there(table):
            return False
        properties = {
            "delta.enableDeletionVectors": "false",
            SCHEMA_VERSION_PROPERTY: str(SCHEMA_VERSION),
            **table.properties,
        }
        try:
            self._create(table, properties)
        except PySparkException as error:
            # Delta's error depends on how far another process was that created it at the same time.
            if self._is_there(table) or (str(error).startswith(_NOT_EMPTY) and self._is_made_soon(table, properties)):
                return False
            raise
        # Delta takes a folder that isn't empty for a table, and does nothing.
        if self._in_catalog or self._is_there(table) or self._is_made_soon(table, properties):
            return True
        if self._has_files(table):
            raise TableError(f"table {self.location(table)} can't be opened or created: its folder has other files")
        self._make_of_empty_log(table, properties)
        return True

    def _has_files(self, table: Table) -> bool:
        """Whether the folder of a table has files outside Delta's log."""
        files = self.spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(self.location(table))
        return not files.select("path").isEmpty()

    def _is_made_soon(self, table: Table, properties: Mapping[str, str]) -> bool:
        """Wait for a table that another process has begun to create; returns whether it exists then.

        It waits three seconds, or half a minute if the storage is behind a network.
        """
        pauses = (0.2, 0.4, 0.8, 1.6)
        for pause in (*pauses, 3.2, 6.4, 6.4, 6.4) if ":" in self.root else pauses:
            time.sleep(pause)
            try:
                self._create(table, properties)
            except PySparkException as error:
                if not str(error).startswith(_NOT_EMPTY):
                    raise
            if self._is_there(table):
                return True
        return False

    def _make_of_empty_log(self, table: Table, properties: Mapping[str, str]) -> None:
        """Create a table whose log folder exists without a commit: its creator was stopped, or the storage failed.

        Delta can't create a table in a folder that isn't empty, but an append can.
        """
        writer = self.rows(table, []).write.format("delta").mode("append").partitionBy(*table.partitioned_by)
        for name in filter(lambda name: name.startswith("delta."), properties):
            writer = writer.option(name, properties[name])
        writer.save(self.location(table))
        for name, value in {"comment": table.comment, **properties}.items():
            if not name.startswith("delta."):
                self._set_property(table, name, value)

    def _create(self, table: Table, properties: Mapping[str, str]) -> None:
        self.spark.sql(f"CREATE TABLE IF NOT EXISTS {self.sql_name(table)} {definition(table, properties)}")

    def exists(self, table: Table) -> bool:
        """Whether the table exists; reads the storage, and creates nothing."""
        return self._retried(table, "read", partial(self._is_there, table))

    def _is_there(self, table: Table) -> bool:
        if self._in_catalog:
            return self.spark.catalog.tableExists(self.location(table))
        try:
            # Asks the storage for its schema.
            return len(self._load(table).schema) > 0
        except PySparkException as error:
            if condition(error) in _NO_TABLE:
                return False
            raise

    def _check(self, table: Table) -> None:
        if self._in_catalog and not any(name.startswith("delta.") for name in self._properties(table)):
            raise TableError(
                f"table {self.location(table)} is not a Delta table: rename it, or set another tables.root. Nothing "
                "was changed"
            )
        problems, missing = self._compare(table)
        if table.shared and not problems:
            # Its rows are read with null for what it lacks; only a load that has values for a column adds it.
            return
        if missing and not problems:
            self._add_columns(table, [each.name for each in missing])
            problems, missing = self._compare(table)
        if problems or missing:
            if self._schema_version(table) > SCHEMA_VERSION:
                raise TableError(
                    f"table {self.location(table)} was written by a newer topicledger, this one knows tables up to "
                    f"schema {SCHEMA_VERSION}: use a newer topicledger. Nothing was changed"
                )
            problems = [*(f"no column {each.name}" for each in missing), *problems]
            raise TableError(
                f"table {self.location(table)} doesn't match topicledger's schema {SCHEMA_VERSION}: "
                f"{'; '.join(problems)}. Nothing was changed; correct the table, or set another tables.root"
            )

    def _compare(self, table: Table) -> tuple[list[str], list[StructField]]:
        """How the table differs from its schema: what is wrong, and the columns that can simply be added."""
        found = self._retried(table, "read", lambda: self._load(table).schema)
        missing = [each for each in table.schema if each.name not in found.names]
        addable = [each for each in missing if each.nullable]
        problems = [f"no column {each.name}" for each in missing if each not in addable]
        problems += other_types(table.schema, found)
        extra = [name for name in found.names if name not in table.schema.names]
        if extra and not table.shared:
            problems.append(f"unknown columns {', '.join(extra)}")
        return problems, addable

    def _add_columns(self, table: Table, names: Collection[str]) -> None:
        """Add columns that the table lacks; another process may do so at the same time."""
        if self._schema_version(table) < SCHEMA_VERSION:
            # First: a process that is stopped in between finds the columns still missing when it restarts.
            self._set_property(table, SCHEMA_VERSION_PROPERTY, str(SCHEMA_VERSION))

        def lacking() -> Sequence[StructField]:
            return [each for each in self._compare(table)[1] if each.name in names]

        def add() -> None:
            missing = lacking()
            if not missing:
                return
            columns = ", ".join(map(column_definition, missing))
            try:
                self.spark.sql(f"ALTER TABLE {self.sql_name(table)} ADD COLUMNS ({columns})")
            except PySparkException:
                # Delta's error depends on how far another process was that added them at the same time.
                if lacking():
                    raise
            log.info("columns of %s were added: %s", self.location(table), ", ".join(each.name for each in missing))

        self._retried(table, "altered", add)

    def _with_columns_of(self, table: Table, rows: DataFrame) -> Table:
        """Add columns that the table lacks and `rows` have values for; return it as it is then."""

        def lacking() -> Sequence[str]:
            found = self._load(table).columns
            return [name for name in table.schema.names if name not in found]

        lacks = self._retried(table, "read", lacking)
        if not lacks:
            return table
        counts = self._retried(table, "read", rows.agg(*(F.count(name).alias(name) for name in lacks)).collect)[0]
        needed = [name for name in lacks if counts[name]]
        if needed:
            self._add_columns(table, needed)
        kept = [each for each in table.schema if each.name not in lacks or each.name in needed]
        return replace(table, schema=StructType(kept))

    def _schema_version(self, table: Table) -> int:
        """The schema version with which the table was created or last altered; 0 for a table of another tool."""
        return int(self._properties(table).get(SCHEMA_VERSION_PROPERTY, 0))

    def _properties(self, table: Table) -> Mapping[str, str]:
        show = f"SHOW TBLPROPERTIES {self.sql_name(table)}"
        rows = self._retried(table, "read", lambda: self.spark.sql(show).collect())
        return {row["key"]: row["value"] for row in rows}

    def _detail(self, table: Table) -> DataFrame:
        return self.spark.sql(f"DESCRIBE DETAIL {self.sql_name(table)}")

    def _history(self, table: Table) -> DataFrame:
        """The table's commits, the latest one first."""
        return self.spark.sql(f"DESCRIBE HISTORY {self.sql_name(table)}")

    def _latest_version(self, table: Table) -> int:
        # Delta's error for a version that no table has names the latest one. The table's history would take four
        # executions of Spark SQL.
        latest = None
        try:
            _ = self._load(table, _NO_VERSION).schema
        except SPARK_ERRORS as error:
            # Delta only says that it finds no file of a missing table; the history says that there is no table.
            if isinstance(error, PySparkException) and condition(error) == _VERSION_NOT_FOUND:
                latest = (error.getMessageParameters() or {}).get("latest")
        return int(latest if latest is not None else self._history(table).limit(1).collect()[0]["version"])

    def read(self, table: Table, version: int | None = None) -> DataFrame:
        """Read the table, at `version` if given; missing values in older rows are as in `Table.defaults`, or null."""
        return filled(table, self._load(table, version))

    def stored(self, table: Table) -> DataFrame:
        """Read the table as it is stored, without defaults for missing values in older rows."""
        return self._load(table)

    def _load(self, table: Table, version: int | None = None) -> DataFrame:
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.table(self.location(table)) if self._in_catalog else reader.load(self.location(table))

    def rows(self, table: Table, rows: Sequence[Mapping[str, object]]) -> DataFrame:
        """Convert rows from Python to a DataFrame without a Python worker; values not given are null."""
        arrow = arrow_schema(table.schema)
        return self.spark.createDataFrame(pa.Table.from_pylist(list(rows), schema=arrow), table.schema)

    def _is_append_only(self, table: Table) -> bool:
        return self._properties(table).get(_APPEND_ONLY) == "true"

    def _keep_append_only(self, table: Table) -> bool:
        """Make a table append-only; returns whether it was not."""
        if self._is_append_only(table):
            return False
        self._set_property(table, _APPEND_ONLY, "true")
        return True

    def _set_property(self, table: Table, name: str, value: str) -> None:
        alter = f"ALTER TABLE {self.sql_name(table)} SET TBLPROPERTIES ({sql_text(name)} = {sql_text(value)})"
        self._retried(table, "altered", lambda: self.spark.sql(alter))


def filled(table: Table, rows: DataFrame) -> DataFrame:
    """Add missing values of older rows: as in `Table.defaults`, or null."""
    lacking = {field.name: F.lit(None).cast(field.dataType) for field in table.schema if field.name not in rows.columns}
    defaults = {
        name: F.coalesce(name, F.expr(default)) if name in rows.columns else F.expr(default)
        for name, default in table.defaults.items()
    }
    return rows.withColumns(lacking | defaults) if lacking or defaults else rows
