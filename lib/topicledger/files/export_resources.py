"""Export resources of live clusters beside topics, as rows of their tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.config.settings import ClusterSettings, Settings
from topicledger.files.changes import KEPT, as_declared
from topicledger.files.exported import ExportRequest
from topicledger.files.exported_rows import REASON, TableExport, without_absent
from topicledger.frames import materialised
from topicledger.ledger.sql import same_key
from topicledger.ledger.tables import Ledger
from topicledger.manifests.row_rules import PRESENT
from topicledger.manifests.rows import Transform, as_columns, with_reasons
from topicledger.resources.ignoring import without_ignored
from topicledger.resources.kind import ResourceKind


def export(
    ledger: Ledger,
    kind: ResourceKind,
    clusters: Sequence[ClusterSettings],
    settings: Settings,
    ids: Mapping[str, str],
    request: ExportRequest,
    declared: DataFrame,
) -> TableExport:
    """List one kind on `clusters`. `ids`: Kafka's cluster ids by name; `declared`: the rows of the kind's table."""
    listed = kind.observed.observe(ledger.spark, clusters, settings.kafka, ids)
    rows = listed.rows.transform(without_ignored(kind, settings.scope))
    declared = declared.transform(kind.rows.complete)
    if request.unmanaged:
        same = same_key(kind.table, "live", "declared")
        rows = rows.alias("live").join(declared.alias("declared"), on=same, how="left_anti")
    option = kind.names.export_option
    problems = {
        name: f"{name}: its {kind.table.name} can't be listed: {status.message}; to export the rest, omit {option}"
        for name, status in listed.statuses.items()
        if status.error is not None
    }
    kept = KEPT if request.owner is not None else (*KEPT, "owner")
    exported = rows.transform(_as_rows(kind, request.owner)).transform(as_declared(kind.table, declared, kept))
    if listed.undescribed is not None:
        unknown = listed.undescribed.transform(without_ignored(kind, settings.scope))
        reasons = unknown.select(*kind.table.key, F.col("error_message").alias(REASON))
        exported = exported.unionByName(reasons, allowMissingColumns=True)
    return TableExport(
        table=kind.table,
        resource_type=kind.resource_type,
        text=kind.rows.text_of(),
        rows=exported.transform(without_absent(kind.table, declared)).transform(materialised),
        problems=problems,
    )


def _as_rows(kind: ResourceKind, owner: str | None) -> Transform:
    values = {"state": F.lit(PRESENT), "owner": F.lit(owner), "labels": F.lit(None)}

    def transform(live: DataFrame) -> DataFrame:
        declared = (
            values.get(field.name, F.col(field.name)).cast(field.dataType).alias(field.name)
            for field in kind.table.schema
        )
        return (
            live.select(*declared)
            .transform(with_reasons(as_columns(kind.rows.rules)))
            .select(*kind.table.schema.names, F.col("error_message").alias(REASON))
        )

    return transform
