"""ACLs and quotas by owner, and their changes: in a run, since the audit before an audit, or in a span."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.ledger.outcomes import is_acknowledged
from topicledger.ledger.tables import Ledger
from topicledger.manifests.rows import PRESENT, Transform
from topicledger.model import AccessAction, ResourceType
from topicledger.plan.lines import change_in_words
from topicledger.report.access import (
    ChangeT,
    Owned,
    OwnerQuotas,
    OwnerRights,
    OwnerT,
    QuotaChange,
    Quotas,
    RightChange,
    Rights,
)
from topicledger.report.scope import Scope, changes_told, utc
from topicledger.resources.acls import rows as acls
from topicledger.resources.quotas import rows as quotas
from topicledger.schemas import ACLS, AUDIT, QUOTAS, Table

LISTED_OWNERS = 2_000
_ADD = AccessAction.ACL_ADD.value
_AUDITED = ("run_id", "cluster", "resource", "action", "before", "after", "completed_at")


@dataclass(frozen=True, kw_only=True)
class _Kind(Generic[OwnerT, ChangeT]):
    """The properties in which ACLs and quotas differ here."""

    table: Table
    resource_type: ResourceType
    complete: Transform
    text_of: Callable[[], Column]
    """The text by which `plans` and `audit` name the resource of a table row."""
    have: Mapping[str, str]
    """Name -> SQL of a count of an owner's declarations, the main one first. In: table rows, one per resource."""
    moved: Mapping[str, str]
    """Name -> SQL of a count of changes. In: rows of `audit`."""
    owner: Callable[..., OwnerT]
    change: Callable[[Mapping[str, Any]], ChangeT]
    """Builds a change from the values of `_AUDITED` and owner, by name."""
    listed: str
    """Columns of `audit` in the query for changes."""
    also: Sequence[str] = ()
    """Further columns of the table that `have` reads."""


def _right_change(row: Mapping[str, Any]) -> RightChange:
    added = row["action"] == _ADD
    acl = row["after"] or row["before"] or {}
    return RightChange(
        **_of_a_change(row), change="added" if added else "removed", principal=dict(acl).get("principal")
    )


def _quota_change(row: Mapping[str, Any]) -> QuotaChange:
    what = change_in_words(row["action"], row["resource"], row["before"], row["after"])
    return QuotaChange(**_of_a_change(row), what=what or "")


def _of_a_change(row: Mapping[str, Any]) -> dict[str, Any]:
    own = {name: row[name] for name in ("run_id", "cluster", "resource", "owner")}
    return own | {"completed_at": utc(row["completed_at"])}


_RIGHTS = _Kind(
    table=ACLS,
    resource_type=ResourceType.ACL,
    complete=acls.complete,
    text_of=acls.text_of,
    have={"rights": "count(*)", "principals": "count(DISTINCT principal)"},
    moved={"added": f"count_if(action = '{_ADD}')", "removed": f"count_if(action <> '{_ADD}')"},
    owner=OwnerRights,
    change=_right_change,
    listed="run_id, cluster, action, resource, completed_at",
    also=("principal",),
)
_QUOTAS = _Kind(
    table=QUOTAS,
    resource_type=ResourceType.QUOTA,
    complete=quotas.complete,
    text_of=quotas.text_of,
    have={"entities": "count(*)"},
    moved={"changed": "count(*)"},
    owner=OwnerQuotas,
    change=_quota_change,
    listed="run_id, cluster, resource, before, after, completed_at",
)


def gather_rights(ledger: Ledger, asked: Scope, listed: int) -> Rights | None:
    """ACLs by owner, with the newest `listed` changes; None if no ACLs are declared and none changed."""
    return _gather(ledger, asked, listed, _RIGHTS)


def gather_quotas(ledger: Ledger, asked: Scope, listed: int) -> Quotas | None:
    """Client quotas by owner; see `gather_rights`."""
    return _gather(ledger, asked, listed, _QUOTAS)


def _gather(ledger: Ledger, asked: Scope, listed: int, kind: _Kind[OwnerT, ChangeT]) -> Owned[OwnerT, ChangeT] | None:
    if not ledger.exists(kind.table):
        return None
    time = changes_told(ledger, asked)
    declared = ledger.read(kind.table).transform(_declared(kind))
    if asked.clusters:
        declared = declared.where(F.col("cluster").isin(*asked.clusters))
    done = time.scope.rows(ledger.read(AUDIT), "completed_at").where(_done(kind.resource_type)).select(*_AUDITED)
    owners = declared.groupBy("cluster", "resource").agg(F.min("owner").alias("owner"))
    changes = done.join(owners, on=["cluster", "resource"], how="left").localCheckpoint()
    present = declared.where(F.col("state") == PRESENT)
    by_owner = _by_owner(present, changes, kind).limit(LISTED_OWNERS).collect()
    if not by_owner:
        return None
    newest = changes.orderBy(F.desc("completed_at"), "cluster", "resource").limit(listed).collect()
    counted = ", ".join(f"{sql} AS {name}" for name, sql in kind.have.items())
    return Owned(
        since=time.words,
        owners=[kind.owner(**row.asDict()) for row in by_owner],
        changes=[kind.change(row.asDict()) for row in newest],
        total=len(newest) if len(newest) < listed else changes.count(),
        owners_query=(
            f"SELECT owner, cluster, {counted}\nFROM {ledger.sql_name(kind.table)}\n"
            f"WHERE state IS NULL OR state = '{PRESENT}'\nGROUP BY owner, cluster"
        ),
        query=(
            f"SELECT {kind.listed}\nFROM {ledger.sql_name(AUDIT)}\n"
            f"WHERE resource_type = '{kind.resource_type.value}' AND phase = 'apply' AND outcome = 'ok'\n"
            f"  AND {time.scope.condition('completed_at')}\nORDER BY completed_at DESC"
        ),
    )


def _declared(kind: _Kind[Any, Any]) -> Transform:
    """Table rows -> cluster, resource, state, `also`, owner: one row per ACL or entity."""

    def transform(rows: DataFrame) -> DataFrame:
        owner = F.nullif(F.btrim("owner"), F.lit(""))
        return (
            rows.transform(kind.complete)
            .withColumns({"resource": kind.text_of(), "owner": owner})
            .groupBy("cluster", "resource", "state", *kind.also)
            .agg(F.min("owner").alias("owner"))
        )

    return transform


def _done(resource_type: ResourceType) -> Column:
    """Condition for rows of `audit` about successful changes."""
    return (F.col("resource_type") == resource_type.value) & is_acknowledged()


def _by_owner(declared: DataFrame, changes: DataFrame, kind: _Kind[Any, Any]) -> DataFrame:
    """Columns of `kind.owner`, the owners with the most changes first."""
    key = (F.col("cluster"), F.coalesce("owner", F.lit("")).alias("owner"))
    have, moved = (
        rows.groupBy(*key).agg(*(F.expr(sql).alias(name) for name, sql in counted.items()))
        for rows, counted in ((declared, kind.have), (changes, kind.moved))
    )
    both: DataFrame = have.join(moved, on=["cluster", "owner"], how="full_outer")
    found = both.withColumns({name: F.coalesce(name, F.lit(0)) for name in (*kind.have, *kind.moved)})
    most = sum((F.col(name) for name in kind.moved), F.lit(0))
    return found.select("cluster", "owner", *kind.have, *kind.moved).orderBy(
        F.desc(most), F.desc(next(iter(kind.have))), "owner", "cluster"
    )
