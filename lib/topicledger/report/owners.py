"""Resources by owner, and their changes: in a run, since the audit before an audit, or in a span."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.frames import materialised
from topicledger.ledger.outcomes import is_acknowledged
from topicledger.ledger.tables import Ledger
from topicledger.manifests.row_rules import PRESENT
from topicledger.manifests.rows import Transform
from topicledger.model import Target
from topicledger.model.scope import Scope
from topicledger.report.limits import of_declared
from topicledger.report.resources import Owned, OwnedChange, OwnerCounts
from topicledger.report.scope import ReportScope, changes_told, utc
from topicledger.resources.kind import ResourceKind
from topicledger.resources.registry import KINDS
from topicledger.schemas import AUDIT

LISTED_OWNERS = 2_000
_AUDITED = ("run_id", "cluster", "resource", "action", "before", "after", "completed_at")


def gather_owned(ledger: Ledger, asked: ReportScope, listed: int) -> Sequence[Owned]:
    """Each kind of resource with declarations or changes, with the newest `listed` changes."""
    found = (_gather(ledger, asked, listed, kind) for kind in KINDS)
    return [each for each in found if each is not None]


def _gather(ledger: Ledger, asked: ReportScope, listed: int, kind: ResourceKind) -> Owned | None:
    if not ledger.exists(kind.table):
        return None
    time = changes_told(ledger, asked)
    declared = ledger.read(kind.table).transform(_declared(kind, asked.limits))
    if asked.clusters:
        declared = declared.where(F.col("cluster").isin(*asked.clusters))
    done = time.scope.rows(ledger.read(AUDIT), "completed_at").where(_done(kind.resource_type)).select(*_AUDITED)
    owners = declared.groupBy("cluster", "resource").agg(F.min("owner").alias("owner"))
    changes = done.join(owners, on=["cluster", "resource"], how="left").transform(materialised)
    present = declared.where(F.col("state") == PRESENT)
    by_owner = _by_owner(present, changes, kind).limit(LISTED_OWNERS).collect()
    if not by_owner:
        return None
    newest = changes.orderBy(F.desc("completed_at"), "cluster", "resource").limit(listed).collect()
    counted = ", ".join(f"{sql} AS {name}" for name, sql in kind.owners.have.items())
    return Owned(
        kind=kind,
        since=time.words,
        owners=[_counts(kind, row.asDict()) for row in by_owner],
        changes=[_change(kind, row.asDict()) for row in newest],
        total=len(newest) if len(newest) < listed else changes.count(),
        owners_query=(
            f"SELECT owner, cluster, {counted}\nFROM {ledger.sql_name(kind.table)}\n"
            f"WHERE state IS NULL OR state = '{PRESENT}'\nGROUP BY owner, cluster"
        ),
        query=(
            f"SELECT {kind.owners.audited}\nFROM {ledger.sql_name(AUDIT)}\n"
            f"WHERE resource_type = '{kind.resource_type}' AND phase = 'apply' AND outcome = 'ok'\n"
            f"  AND {time.scope.condition('completed_at')}\nORDER BY completed_at DESC"
        ),
    )


def _counts(kind: ResourceKind, row: Mapping[str, Any]) -> OwnerCounts:
    counts = {name: row[name] for name in (*kind.owners.have, *kind.owners.moved)}
    return OwnerCounts(cluster=row["cluster"], owner=row["owner"], counts=counts)


def _change(kind: ResourceKind, row: Mapping[str, Any]) -> OwnedChange:
    before, after = dict(row["before"] or {}), dict(row["after"] or {})
    target = Target(resource=row["resource"], action=row["action"], before=before, after=after)
    return OwnedChange(
        run_id=row["run_id"],
        cluster=row["cluster"],
        resource=row["resource"],
        owner=row["owner"],
        what=kind.owners.what(target),
        values=after or before,
        completed_at=utc(row["completed_at"]),
    )


def _declared(kind: ResourceKind, limits: Scope) -> Transform:
    """Table rows -> cluster, resource, state, `also`, owner: one row per resource."""

    def transform(rows: DataFrame) -> DataFrame:
        owner = F.nullif(F.btrim("owner"), F.lit(""))
        return (
            rows.transform(kind.rows.complete)
            .transform(of_declared(kind, limits))
            .withColumns({"resource": kind.rows.text_of(), "owner": owner})
            .groupBy("cluster", "resource", "state", *kind.owners.also)
            .agg(F.min("owner").alias("owner"))
        )

    return transform


def _done(resource_type: str) -> Column:
    """Condition for rows of `audit` about successful changes."""
    return (F.col("resource_type") == resource_type) & is_acknowledged()


def _by_owner(declared: DataFrame, changes: DataFrame, kind: ResourceKind) -> DataFrame:
    """cluster, owner, and the counts of `kind.owners`, the owners with the most changes first."""
    key = (F.col("cluster"), F.coalesce("owner", F.lit("")).alias("owner"))
    have, moved = (
        rows.groupBy(*key).agg(*(F.expr(sql).alias(name) for name, sql in counted.items()))
        for rows, counted in ((declared, kind.owners.have), (changes, kind.owners.moved))
    )
    both: DataFrame = have.join(moved, on=["cluster", "owner"], how="full_outer")
    found = both.withColumns({name: F.coalesce(name, F.lit(0)) for name in (*kind.owners.have, *kind.owners.moved)})
    most = sum((F.col(name) for name in kind.owners.moved), F.lit(0))
    return found.select("cluster", "owner", *kind.owners.have, *kind.owners.moved).orderBy(
        F.desc(most), F.desc(next(iter(kind.owners.have))), "owner", "cluster"
    )
