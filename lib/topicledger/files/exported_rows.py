"""Exported rows of one table, whatever kind of resource it declares."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.files.exported import TopicMessage
from topicledger.ledger.sql import same_key
from topicledger.manifests.row_rules import ABSENT
from topicledger.manifests.rows import Transform
from topicledger.model import TOPIC
from topicledger.schemas import Table

REASON, NOTE = "not_exported", "note"
"""Columns: why a row can't be declared, and what it doesn't contain; null otherwise."""
GROUP = "_group"
"""The value by which `TableExport.entries` groups rows."""


def without_absent(table: Table, declared: DataFrame) -> Transform:
    """Leave out resources that a row declares absent: exported, they would be declared present.

    In and out: columns of the table and others.
    """
    absent = declared.where(F.col("state") == ABSENT).select(*table.key)
    on = same_key(table, "live", "absent")
    return lambda rows: rows.alias("live").join(absent.alias("absent"), on=on, how="left_anti").select("live.*")


@dataclass(frozen=True, kw_only=True)
class TableExport:
    """Exported resources of one kind."""

    table: Table
    resource_type: str
    text: Column
    """The name of a row's resource in messages."""
    rows: DataFrame
    """Columns of the table, `REASON`, and perhaps `NOTE`; materialised."""
    problems: Mapping[str, str]
    """Messages by cluster whose resources can't be listed or described."""

    @property
    def exported(self) -> DataFrame:
        """Rows that can be declared, with the columns of the table."""
        return self._declarable.select(*self.table.schema.names)

    @property
    def _declarable(self) -> DataFrame:
        return self.rows.where(F.col(REASON).isNull())

    def without(self, clusters: Collection[str]) -> TableExport:
        """Leave out the rows of clusters."""
        return replace(self, rows=self.rows.where(~F.col("cluster").isin(*clusters))) if clusters else self

    def counts(self) -> Mapping[str, int]:
        """Return the number of exported rows by cluster."""
        return {row["cluster"]: row["count"] for row in self._declarable.groupBy("cluster").count().collect()}

    def messages(self, column: str) -> list[TopicMessage]:
        """Return the messages that rows have in `column`: `REASON` or `NOTE`."""
        if column not in self.rows.columns:
            return []
        named, message = self.text.alias("resource"), F.col(column).alias("message")
        found = self.rows.where(F.col(column).isNotNull()).select("cluster", named, message)
        return [
            TopicMessage(
                cluster=row["cluster"],
                topic=row["resource"] if self.resource_type == TOPIC else None,
                message=row["message"],
                resource_type=self.resource_type,
                resource=None if self.resource_type == TOPIC else row["resource"],
            )
            for row in found.orderBy("cluster", "resource").collect()
        ]

    def entries(self, cluster: str, by: Column | None = None) -> Iterator[Mapping[str, Any]]:
        """Return a cluster's rows, ordered by `by`, which becomes the column `GROUP`, then by key."""
        own = self._declarable.where(F.col("cluster") == cluster)
        if by is not None:
            own = own.withColumn(GROUP, by)
        order = [*([] if by is None else [GROUP]), *self.table.key]
        return (row.asDict(recursive=True) for row in own.orderBy(*order).toLocalIterator())
