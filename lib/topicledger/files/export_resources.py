"""Export resources of live clusters beside topics, as rows of their tables.

Topics have a pipeline of their own in `export`: it also describes their configs, and proposes owners.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.config.settings import ClusterSettings, Settings
from topicledger.files.changes import as_declared
from topicledger.files.exported import TopicMessage
from topicledger.frames import materialised
from topicledger.ledger.tables import Ledger
from topicledger.manifests.rows import PRESENT, Transform, with_reasons
from topicledger.resources.ignoring import without_ignored
from topicledger.resources.kind import ResourceKind

REASON = "not_exported"


@dataclass(frozen=True, kw_only=True)
class ResourceExport:
    """Exported resources of one kind."""

    kind: ResourceKind
    rows: DataFrame
    """Columns of the kind's table and `not_exported`, why a row can't be declared (else null); materialised."""
    problems: Mapping[str, str]
    """Messages by cluster that can't be listed."""

    @property
    def exported(self) -> DataFrame:
        """Rows that can be declared, with the columns of the kind's table."""
        return self.rows.where(F.col(REASON).isNull()).select(*self.kind.table.schema.names)

    def left_out(self) -> list[TopicMessage]:
        """Return a message about each resource that can't be declared."""
        found = self.rows.where(F.col(REASON).isNotNull()).select(
            "cluster", self.kind.rows.text_of().alias("resource"), F.col(REASON).alias("message")
        )
        listed = found.orderBy("cluster", "resource").collect()
        return [TopicMessage(**row.asDict(), topic=None, resource_type=self.kind.resource_type) for row in listed]

    def entries(self, cluster: str) -> Iterator[Mapping[str, Any]]:
        """Return a cluster's rows, ordered by key."""
        own = self.exported.where(F.col("cluster") == cluster).orderBy(*self.kind.table.key)
        return (row.asDict() for row in own.toLocalIterator())


def export(
    ledger: Ledger,
    kind: ResourceKind,
    clusters: Sequence[ClusterSettings],
    settings: Settings,
    ids: Mapping[str, str],
    *,
    owner: str | None,
    unmanaged: bool,
) -> ResourceExport:
    """List one kind on `clusters`; `unmanaged`: only resources that no row of its table names."""
    listed = kind.observed.observe(ledger.spark, clusters, settings.kafka, ids)
    rows = listed.rows.transform(without_ignored(kind, settings.scope))
    declared = ledger.read_if_exists(kind.table).transform(kind.rows.complete)
    if unmanaged:
        same = [rows[name].eqNullSafe(declared[name]) for name in kind.table.key]
        rows = rows.join(declared, on=same, how="left_anti")
    option = kind.names.export_option
    problems = {
        name: f"{name}: its {kind.table.name} can't be listed: {status.message}; to export the rest, omit {option}"
        for name, status in listed.statuses.items()
        if status.error is not None
    }
    exported = rows.transform(_as_rows(kind, owner)).transform(as_declared(kind.table, declared))
    if listed.undescribed is not None:
        unknown = listed.undescribed.transform(without_ignored(kind, settings.scope))
        reasons = unknown.select(*kind.table.key, F.col("error_message").alias(REASON))
        exported = exported.unionByName(reasons, allowMissingColumns=True)
    return ResourceExport(kind=kind, rows=exported.transform(materialised), problems=problems)


def _as_rows(kind: ResourceKind, owner: str | None) -> Transform:
    values = {"state": F.lit(PRESENT), "owner": F.lit(owner), "labels": F.lit(None)}

    def transform(live: DataFrame) -> DataFrame:
        columns = (
            values.get(field.name, F.col(field.name)).cast(field.dataType).alias(field.name)
            for field in kind.table.schema
        )
        return (
            live.select(*columns)
            .transform(with_reasons(kind.rows.rules()))
            .select(*kind.table.schema.names, F.col("error_message").alias(REASON))
        )

    return transform
