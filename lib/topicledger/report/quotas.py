"""Who owns which client quotas, and how quotas changed: in a run, since the audit before an audit, or in a span."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.ledger.tables import Ledger
from topicledger.manifests import quotas
from topicledger.manifests.rows import PRESENT
from topicledger.model import AccessAction, Outcome, Phase, ResourceType
from topicledger.plan.lines import ROW, in_words
from topicledger.report.access import OwnerQuotas, QuotaChange, Quotas
from topicledger.report.rights import LISTED_OWNERS
from topicledger.report.scope import Scope, changes_told, utc
from topicledger.schemas import AUDIT, QUOTAS

_OF_A_CHANGE = ("action", "resource", "before", "after")


def gather_quotas(ledger: Ledger, asked: Scope, listed: int) -> Quotas | None:
    """None where no quotas are declared and none changed; of changes the newest `listed`."""
    if not ledger.exists(QUOTAS):
        return None
    time = changes_told(ledger, asked)
    declared = ledger.read(QUOTAS).transform(_declared)
    if asked.clusters:
        declared = declared.where(F.col("cluster").isin(*asked.clusters))
    owners = declared.groupBy("cluster", "resource").agg(F.min("owner").alias("owner"))
    changes = (
        time.scope.rows(ledger.read(AUDIT), "completed_at")
        .where(_done())
        .drop("owner")
        .join(owners, on=["cluster", "resource"], how="left")
        .localCheckpoint()
    )
    by_owner = _by_owner(declared.where(F.col("state") == PRESENT), changes).limit(LISTED_OWNERS).collect()
    if not by_owner:
        return None
    newest = changes.orderBy(F.desc("completed_at"), "cluster", "resource").limit(listed).collect()
    return Quotas(
        since=time.words,
        owners=[OwnerQuotas(**row.asDict()) for row in by_owner],
        changes=[
            QuotaChange(
                run_id=row["run_id"],
                cluster=row["cluster"],
                resource=row["resource"],
                what=in_words({**dict.fromkeys(ROW), **{name: row[name] for name in _OF_A_CHANGE}}) or "",
                completed_at=utc(row["completed_at"]),
                owner=row["owner"],
            )
            for row in newest
        ],
        total=len(newest) if len(newest) < listed else changes.count(),
        owners_query=(
            f"SELECT owner, cluster, count(*) AS entities\nFROM {ledger.sql_name(QUOTAS)}\n"
            f"WHERE state IS NULL OR state = '{PRESENT}'\nGROUP BY owner, cluster"
        ),
        query=(
            "SELECT run_id, cluster, resource, before, after, completed_at\n"
            f"FROM {ledger.sql_name(AUDIT)}\n"
            "WHERE resource_type = 'quota' AND phase = 'apply' AND outcome = 'ok'\n"
            f"  AND {time.scope.condition('completed_at')}\nORDER BY completed_at DESC"
        ),
    )


def _declared(rows: DataFrame) -> DataFrame:
    """cluster, resource, state, owner: a row per entity. In: rows of `quotas`."""
    return (
        rows.transform(quotas.complete)
        .withColumns({"resource": quotas.text_of(), "owner": F.nullif(F.btrim("owner"), F.lit(""))})
        .groupBy("cluster", "resource", "state")
        .agg(F.min("owner").alias("owner"))
    )


def _done() -> Column:
    """Rows of `audit` of entities whose quotas were altered."""
    return (
        (F.col("resource_type") == ResourceType.QUOTA.value)
        & (F.col("action") == AccessAction.ALTER_QUOTA.value)
        & (F.col("phase") == Phase.APPLY.value)
        & (F.col("outcome") == Outcome.OK.value)
    )


def _by_owner(declared: DataFrame, changes: DataFrame) -> DataFrame:
    """Columns of `OwnerQuotas`: those whose quotas changed most first."""
    key = (F.col("cluster"), F.coalesce("owner", F.lit("")).alias("owner"))
    have = declared.groupBy(*key).agg(F.count(F.lit(1)).alias("entities"))
    moved = changes.groupBy(*key).agg(F.count(F.lit(1)).alias("changed"))
    counts = ("entities", "changed")
    both: DataFrame = have.join(moved, on=["cluster", "owner"], how="full_outer")
    found = both.withColumns({name: F.coalesce(name, F.lit(0)) for name in counts})
    return found.select("cluster", "owner", *counts).orderBy(F.desc("changed"), F.desc("entities"), "owner", "cluster")
