"""Versions of tables: which there are, when each was the latest, what changed, and rows that are read only once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, is_remote
from pyspark.sql import functions as F

from topicledger.errors import UsageError
from topicledger.ledger.appended import Kept, few_rows
from topicledger.ledger.definitions import Definitions
from topicledger.ledger.retries import first_sentence
from topicledger.ledger.sql import iso_times
from topicledger.schemas import Table
from topicledger.text import iso_time


class Versions(Definitions):
    """The tables under one root, with their versions."""

    def all_rows(self, table: Table) -> Sequence[Row]:
        """Collect a small table, once for each of its versions: a read takes Delta several queries."""
        version = self.latest_version(table)
        if self._collected.get(table.name, (None, ()))[0] != version:
            rows = self.read(table, version).select(*table.schema.names)
            self._collected[table.name] = version, self._retried(table, "read", rows.collect)
        return self._collected[table.name][1]

    def read_at(self, table: Table, version: int | None) -> DataFrame:
        """Read the table at `version`; no rows if it is None: the table didn't exist then."""
        return self.rows(table, []) if version is None else self.read(table, version)

    def read_once(self, table: Table, version: int | None, kept: Kept) -> DataFrame:
        """As `read_at`, the columns of `table.schema`; if there are few rows, `kept` has them for the next time.

        A read takes Delta several queries, and rows that Spark has in memory are planned faster. A client of Spark
        Connect would send them with each query, so it reads the table each time.
        """
        rows = self.read_at(table, version).select(*table.schema.names)
        if version is None or is_remote():
            return rows
        key = table.name, version
        if key not in kept:
            try:
                kept[key] = few_rows(rows)
            except (PySparkException, ValueError):
                # Few rows may still be too large for the driver. If they can't be read, the caller's query tells why.
                kept[key] = None
        known = kept[key]
        return rows if known is None else self.spark.createDataFrame(known, rows.schema)

    def latest_version(self, table: Table) -> int:
        """The number of the table's last commit."""
        return self._retried(table, "read", lambda: self._latest_version(table))

    def version_as_of(self, table: Table, time: datetime) -> int:
        """The version that was the latest at `time` (UTC); raises UsageError if the table's history doesn't have it."""
        if time > datetime.now(UTC):
            raise UsageError(f"{iso_time(time)} is in the future: give a time that has passed")

        def read() -> Row:
            versions = self._history(table).select("version", "timestamp")
            found = F.max(F.when(F.col("timestamp") <= F.lit(time), F.col("version"))).alias("found")
            first = iso_times(F.min("timestamp")).alias("first")
            return versions.agg(found, first).collect()[0]

        row = self._retried(table, "read", read)
        if row["found"] is None:
            raise UsageError(
                f"table {self.location(table)} has no version of {iso_time(time)}: the oldest that "
                f"its history knows is of {row['first']}"
            )
        return int(row["found"])

    def last_moment(self, table: Table, version: int) -> datetime | None:
        """The last moment (UTC) at which `version` was the table's latest; None if it is the latest now.

        Raises UsageError if the table's history no longer has it.
        """

        def read() -> Row:
            history = self._history(table).where(F.col("version") > version)
            ended = (F.min("version").alias("next"), F.min_by("timestamp", "version").alias("at"))
            return history.agg(*ended).collect()[0]

        row = self._retried(table, "read", read)
        if row["next"] is None:
            return None
        if row["next"] != version + 1:
            raise UsageError(
                f"table {self.location(table)} no longer says when version {version} was the latest: the next version "
                f"that its history knows is {row['next']}"
            )
        # PySpark returns naive timestamps in this process's own time zone.
        at: datetime = row["at"].astimezone(UTC)
        return at - timedelta(milliseconds=1)

    def version_at(self, table: Table, time: datetime) -> int | None:
        """As `version_as_of`; None if the table didn't exist yet."""

        def read() -> Row:
            versions = self._history(table).select("version", "timestamp")
            found = F.max(F.when(F.col("timestamp") <= F.lit(time), F.col("version"))).alias("found")
            return versions.agg(found, F.min("version").alias("first")).collect()[0]

        row = self._retried(table, "read", read)
        return None if row["found"] is None and row["first"] == 0 else self.version_as_of(table, time)

    def require_version(self, table: Table, version: int, *, latest: int) -> None:
        """Raise UsageError if `version` of a table, whose latest is `latest`, can't be read."""
        if not 0 <= version <= latest:
            raise UsageError(f"table {self.location(table)} has no version {version}; the latest is {latest}")
        try:
            self._load(table, version).write.format("noop").mode("overwrite").save()
        except PySparkException as error:
            raise UsageError(
                f"version {version} of table {self.location(table)} can't be read: {first_sentence(error)}; what "
                "VACUUM or the expiry of Delta's log removed is gone: give a later version"
            ) from error

    def oldest_changes(self, table: Table, since: datetime | None = None) -> int | None:
        """The first version whose changes the table's history may still have; None if there are none.

        `since`: only versions that were committed since then (UTC).
        """
        if self._properties(table).get("delta.enableChangeDataFeed") != "true":
            return None

        def read() -> int | None:
            versions = self._history(table)
            kept = versions if since is None else versions.where(F.col("timestamp") >= F.lit(since))
            first: int | None = kept.agg(F.min("version").alias("first")).collect()[0]["first"]
            return first

        return self._retried(table, "read", read)

    def changes(self, table: Table, since: int) -> DataFrame:
        """Read the table's change data feed from a version on.

        Columns: the table's, `_change_type`, `_commit_version` and `_commit_timestamp`.
        """
        reader = self.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", since)
        return reader.table(self.location(table)) if self._in_catalog else reader.load(self.location(table))


def latest_if_exists(ledger: Versions, table: Table) -> int | None:
    """Return the number of the table's last commit; None if there is no table. Raises TableError."""
    return ledger.latest_version(table) if ledger.exists(table) else None
