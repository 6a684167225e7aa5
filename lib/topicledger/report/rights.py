"""Who owns which rights, and how rights changed: in a run, since the audit before an audit, or in a span."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.ledger.tables import Ledger
from topicledger.manifests import acls
from topicledger.manifests.rows import PRESENT, Transform
from topicledger.model import AccessAction, Outcome, Phase, ResourceType
from topicledger.report.access import OwnerRights, RightChange, Rights
from topicledger.report.scope import Scope, changes_told, utc
from topicledger.schemas import ACLS, AUDIT

LISTED_OWNERS = 2_000


def gather_rights(ledger: Ledger, asked: Scope, listed: int) -> Rights | None:
    """None where no rights are declared and none changed; of changes the newest `listed`."""
    if not ledger.exists(ACLS):
        return None
    time = changes_told(ledger, asked)
    declared = ledger.read(ACLS).transform(_declared)
    if asked.clusters:
        declared = declared.where(F.col("cluster").isin(*asked.clusters))
    changes = time.scope.rows(ledger.read(AUDIT), "completed_at").transform(_changes(declared)).localCheckpoint()
    by_owner = declared.where(F.col("state") == PRESENT).transform(_by_owner(changes)).limit(LISTED_OWNERS).collect()
    if not by_owner:
        return None
    newest = changes.orderBy(F.desc("completed_at"), "cluster", "resource").limit(listed).collect()
    return Rights(
        since=time.words,
        owners=[OwnerRights(**row.asDict()) for row in by_owner],
        changes=[_change(row["completed_at"], row.asDict()) for row in newest],
        total=len(newest) if len(newest) < listed else changes.count(),
        owners_query=(
            "SELECT owner, cluster, count(*) AS rights, count(DISTINCT principal) AS principals\n"
            f"FROM {ledger.sql_name(ACLS)}\nWHERE state IS NULL OR state = '{PRESENT}'\nGROUP BY owner, cluster"
        ),
        query=(
            "SELECT run_id, cluster, action, resource, completed_at\n"
            f"FROM {ledger.sql_name(AUDIT)}\n"
            "WHERE resource_type = 'acl' AND phase = 'apply' AND outcome = 'ok'\n"
            f"  AND {time.scope.condition('completed_at')}\nORDER BY completed_at DESC"
        ),
    )


def _change(completed_at: datetime, row: dict[str, str]) -> RightChange:
    return RightChange(**{**row, "completed_at": utc(completed_at)})  # type: ignore[arg-type]


def _declared(rows: DataFrame) -> DataFrame:
    """cluster, resource, principal, state, owner: a row per right. In: rows of `acls`."""
    owner = F.nullif(F.btrim("owner"), F.lit(""))
    return (
        rows.transform(acls.complete)
        .withColumns({"resource": acls.text_of(), "owner": owner})
        .groupBy("cluster", "resource", "principal", "state")
        .agg(F.min("owner").alias("owner"))
    )


def _changes(declared: DataFrame) -> Transform:
    """Rows of `audit` -> columns of `RightChange`: what was added and removed, with the owner as `acls` has it."""

    def transform(audit: DataFrame) -> DataFrame:
        done = (
            (F.col("resource_type") == ResourceType.ACL.value)
            & (F.col("phase") == Phase.APPLY.value)
            & (F.col("outcome") == Outcome.OK.value)
        )
        change = F.when(F.col("action") == AccessAction.ACL_ADD.value, F.lit("added")).otherwise(F.lit("removed"))
        principal = F.coalesce(F.col("after")["principal"], F.col("before")["principal"])
        owners = declared.groupBy("cluster", "resource").agg(F.min("owner").alias("owner"))
        return (
            audit.where(done)
            .select(
                "run_id", "cluster", "resource", change.alias("change"), principal.alias("principal"), "completed_at"
            )
            .join(owners, on=["cluster", "resource"], how="left")
        )

    return transform


def _by_owner(changes: DataFrame) -> Transform:
    """Declared rights -> columns of `OwnerRights`: those whose rights changed most first."""

    def transform(declared: DataFrame) -> DataFrame:
        key = (F.col("cluster"), F.coalesce("owner", F.lit("")).alias("owner"))
        have = declared.groupBy(*key).agg(
            F.count(F.lit(1)).alias("rights"), F.count_distinct("principal").alias("principals")
        )
        moved = changes.groupBy(*key).agg(
            F.count_if(F.col("change") == "added").alias("added"),
            F.count_if(F.col("change") == "removed").alias("removed"),
        )
        counts = ("rights", "principals", "added", "removed")
        both: DataFrame = have.join(moved, on=["cluster", "owner"], how="full_outer")
        found = both.withColumns({name: F.coalesce(name, F.lit(0)) for name in counts})
        most = F.col("added") + F.col("removed")
        return found.select("cluster", "owner", *counts).orderBy(F.desc(most), F.desc("rights"), "owner", "cluster")

    return transform
