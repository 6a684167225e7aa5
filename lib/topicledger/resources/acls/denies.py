"""Adds of an ALLOW that a declared DENY may restrict: none is made before the DENY exists.

Else the ALLOW would grant more than declared, for as long as the DENY is refused, or outside the scope of runs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.frames import materialised
from topicledger.manifests.rows import ABSENT, PRESENT, Transform
from topicledger.model import Decision
from topicledger.policies.contract import text
from topicledger.resources.acls.acl import ALLOW, DENY
from topicledger.resources.acls.names import AclAction, AclRefusal
from topicledger.resources.acls.overlaps import alike, claims, of_added, of_refused, overlapping
from topicledger.resources.acls.rows import CLAIMED
from topicledger.resources.deciding import decided
from topicledger.resources.ending import stopped
from topicledger.schemas import ACL_KEY

_ADD = AclAction.ACL_ADD.value


@dataclass(frozen=True, kw_only=True)
class Denies:
    """The DENYs that validated rows declare, or may be meant to."""

    refused: DataFrame
    """Claims of refused rows that may be meant as a DENY."""

    def stop(self, rows: DataFrame) -> DataFrame:
        """Refuse adds of an ALLOW that a DENY may restrict which this run doesn't add. In and out: decided rows."""
        row, outside = F.col("resource"), F.col("decision") == Decision.OUTSIDE.value
        missing = rows.where(_declared() & ~F.col("live") & ~decided(_ADD)).select(
            *claims(F.when(outside, _outside(row)).otherwise(_not_added(row)), only_alike=True, permission=F.lit(ALLOW))
        )
        found = (
            _allows(rows)
            .transform(overlapping, self.refused.unionByName(missing))
            .where(alike())
            .groupBy("cluster", "resource")
            .agg(F.min("why").alias("_why"))
        )
        return (
            rows.join(found, on=["cluster", "resource"], how="left")
            .transform(stopped(F.col("_why").isNotNull(), AclRefusal.DENY_MISSING, F.col("_why")))
            .drop("_why")
        )

    def name(self, rows: DataFrame) -> DataFrame:
        """Add `denies` to adds of an ALLOW: the declared DENYs that may restrict it, as JSON (string), or null.

        In: rows that `stop` returned. Out: the same, materialised.
        """
        claimed = rows.where(_declared() & (F.col("live") | decided(_ADD))).select(
            *claims(F.lit(""), only_alike=True, permission=F.lit(ALLOW)), F.col("acl").alias("_deny")
        )
        found = (
            _allows(rows)
            .transform(overlapping, claimed)
            .where(alike())
            .groupBy("cluster", "resource")
            .agg(F.to_json(F.array_sort(F.collect_set("_deny"))).alias(DENIES))
        )
        return rows.join(found, on=["cluster", "resource"], how="left").transform(materialised)


DENIES = "denies"
"""Column that `Denies.name` adds."""


def declared_denies(validated: DataFrame, clusters: Collection[str]) -> Denies | None:
    """Return the DENYs that rows declare; None if there are none. In: the result of `Rows.validate`, materialised."""
    may_deny = ~F.coalesce(F.col("permission") == ALLOW, F.lit(False))
    if validated.where(may_deny & ~F.col("state").eqNullSafe(F.lit(ABSENT))).isEmpty():
        return None
    return Denies(refused=_to_allows(validated.transform(of_refused(clusters, _not_added))))


def denied_since(validated: DataFrame, known: DataFrame, clusters: Collection[str]) -> Transform:
    """Return planned adds of an ALLOW that a row may restrict which was refused or declared since the plan.

    In: planned actions; for the parameters see `Deciding.protected`. Out: also `why`; an add may have several rows.
    """
    refused = validated.transform(of_refused(clusters, _not_added))
    since = _to_allows(refused.unionByName(of_added(validated, known, _declared_since)))

    def transform(planned: DataFrame) -> DataFrame:
        allow = F.struct(*(F.col("after")[name].alias(name) for name in ACL_KEY))
        adds = planned.where(F.col("action") == _ADD).withColumn("old", allow)
        return adds.where(F.col("old.permission") == ALLOW).transform(overlapping, since).where(alike())

    return transform


def _to_allows(claims_of_rows: DataFrame) -> DataFrame:
    """Keep claims that may be meant as a DENY; they then match ALLOWs."""
    permission = F.col("claim.permission")
    fields = {name: F.col(f"claim.{name}") for name in CLAIMED} | {"permission": F.lit(None).cast("string")}
    any_of_them = F.struct(*(each.alias(name) for name, each in fields.items()))
    return claims_of_rows.where(permission.isNull() | (permission == DENY)).withColumn("claim", any_of_them)


def _declared() -> Column:
    """Return whether rows declare a DENY."""
    return (F.col("state") == PRESENT) & (F.col("acl.permission") == DENY)


def _allows(rows: DataFrame) -> DataFrame:
    """Return the adds of an ALLOW: cluster, resource, `old`."""
    adds = rows.where(decided(_ADD) & (F.col("acl.permission") == ALLOW))
    return adds.select("cluster", "resource", F.col("acl").alias("old"))


def _not_added(row: Column) -> Column:
    return text("a DENY that may restrict it isn't added, so it isn't, either: ", row)


def _outside(row: Column) -> Column:
    return text("a DENY outside the scope of this run may restrict it and is missing: ", row, "; plan both in one run")


def _declared_since(row: Column) -> Column:
    return text("a DENY that is declared since the plan may restrict it: ", row, "; plan again")
