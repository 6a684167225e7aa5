"""Adds of an ALLOW that a declared DENY may restrict: none is made before the DENY exists.

Else the ALLOW would grant more than declared, for as long as the DENY is refused, or outside the scope of runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.frames import materialised
from topicledger.manifests.row_rules import ABSENT, PRESENT
from topicledger.manifests.rows import Transform
from topicledger.model import Decision, Refusal
from topicledger.observe.listed import Listed
from topicledger.policies.contract import text
from topicledger.resources.acls.acl import ALLOW, DENY, WILDCARD
from topicledger.resources.acls.cluster_acls import CLUSTER
from topicledger.resources.acls.names import AclAction, AclRefusal
from topicledger.resources.acls.overlaps import claims, of_added, of_refused, overlapping, with_implied
from topicledger.resources.acls.rows import CLAIMED, text_of
from topicledger.resources.deciding import decided
from topicledger.resources.ending import lookup, stopped
from topicledger.schemas import ACL_KEY

_ADD = AclAction.ACL_ADD.value
_ROW = ("cluster", "resource", "state", "phase", "outcome", "error", *ACL_KEY)


@dataclass(frozen=True, kw_only=True)
class Denies:
    """The DENYs that rows declare, or may be meant to."""

    refused: DataFrame
    """Claims of refused rows that may be meant as a DENY."""
    beside: DataFrame | None
    """The declared DENYs that the decided rows don't have: cluster, resource, `acl`, and whether it is `live`."""
    own: Mapping[str, str | None]
    """Cluster -> the run's own principal. Its ALLOWs on the cluster itself wait for nothing: it needs them."""

    def stop(self, rows: DataFrame) -> DataFrame:
        """Refuse adds of an ALLOW that a DENY may restrict which this run doesn't add. In and out: decided rows."""
        row, outside = F.col("resource"), F.col("decision") == Decision.OUTSIDE.value
        missing = rows.where(_declared() & ~F.col("live") & ~decided(_ADD)).select(
            *_claims(F.when(outside, _outside(row)).otherwise(_not_added(row)))
        )
        if self.beside is not None:
            missing = missing.unionByName(self.beside.where(~F.col("live")).select(*_claims(_outside(row))))
        found = (
            self._allows(rows)
            .transform(overlapping, self.refused.unionByName(missing))
            .where(_restricts())
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
        named = (*_claims(F.lit("")), F.col("acl").alias("_deny"))
        claimed = rows.where(_declared() & (F.col("live") | decided(_ADD))).select(*named)
        if self.beside is not None:
            claimed = claimed.unionByName(self.beside.where("live").select(*named))
        found = (
            self._allows(rows)
            .transform(overlapping, claimed)
            .where(_restricts())
            .groupBy("cluster", "resource")
            .agg(F.to_json(F.array_sort(F.collect_set("_deny"))).alias(DENIES))
        )
        return rows.join(found, on=["cluster", "resource"], how="left").transform(materialised)

    def _allows(self, rows: DataFrame) -> DataFrame:
        """Return the adds of an ALLOW that may have to wait: cluster, resource, `old`."""
        is_own = F.col("acl.principal").eqNullSafe(lookup(self.own, F.col("cluster")))
        needed = is_own & (F.col("acl.resource_type") == CLUSTER)
        adds = rows.where(decided(_ADD) & (F.col("acl.permission") == ALLOW) & ~needed)
        return adds.select("cluster", "resource", F.col("acl").alias("old"))


DENIES = "denies"
"""Column that `Denies.name` adds."""


def declared_denies(validated: DataFrame, seen: Listed, clusters: Collection[str]) -> Denies | None:
    """Return the DENYs that rows declare; None if there are none. In: the result of `Rows.validate`, materialised."""
    rows = validated.select(*_ROW)
    others = None if seen.declared is None else _beside(seen.declared, validated)
    if others is not None:
        rows = rows.unionByName(others)
    if rows.where(_may_deny()).isEmpty():
        return None
    live = seen.rows.select("cluster", text_of().alias("resource"), F.lit(True).alias("live"))
    beside = None if others is None else _declared_beside(others, live)
    own = {name: status.own_principal for name, status in seen.statuses.items()}
    return Denies(refused=_refused(rows, clusters), beside=beside, own=own)


def denied_since(validated: DataFrame, known: DataFrame, clusters: Collection[str]) -> Transform:
    """Return planned adds of an ALLOW that a row may restrict which was refused or declared since the plan.

    In: planned actions; for the parameters see `Deciding.protected`. Out: also `why`; an add may have several rows.
    """
    added = validated.transform(of_added, known, _declared_since)
    since = _refused(validated, clusters).unionByName(_to_allows(added.where(F.col("claim.permission") == DENY)))

    def transform(planned: DataFrame) -> DataFrame:
        allow = F.struct(*(F.col("after")[name].alias(name) for name in ACL_KEY))
        adds = planned.where(F.col("action") == _ADD).withColumn("old", allow)
        found = adds.where(F.col("old.permission") == ALLOW).transform(overlapping, since)
        return found.where(_restricts()).drop("_host")

    return transform


def _beside(declared: DataFrame, validated: DataFrame) -> DataFrame:
    return declared.select(*_ROW).join(
        validated.select("cluster", "resource"), on=["cluster", "resource"], how="left_anti"
    )


def _declared_beside(others: DataFrame, live: DataFrame) -> DataFrame:
    rows = others.where(F.col("phase").isNull()).withColumn("acl", F.struct(*ACL_KEY)).where(_declared())
    return (
        rows.select("cluster", "resource", "acl")
        .join(live, on=["cluster", "resource"], how="left")
        .withColumn("live", F.coalesce("live", F.lit(False)))
    )


def _may_deny() -> Column:
    """Return whether a row may be meant as a DENY that should exist.

    A refused row that several copies contradict has the state of one of them.
    """
    several = F.col("error").eqNullSafe(F.lit(Refusal.DUPLICATE_MANIFEST.value))
    wanted = ~F.col("state").eqNullSafe(F.lit(ABSENT)) | several
    return ~F.col("permission").eqNullSafe(F.lit(ALLOW)) & wanted


def _declared() -> Column:
    """Return whether rows declare a DENY."""
    return (F.col("state") == PRESENT) & (F.col("acl.permission") == DENY)


def _refused(rows: DataFrame, clusters: Collection[str]) -> DataFrame:
    """Return claims of refused rows that may be meant as a DENY."""
    return _to_allows(rows.where(_may_deny()).transform(of_refused(clusters, _not_added)))


def _to_allows(claims_of_rows: DataFrame) -> DataFrame:
    """Make claims match ALLOWs, from any host."""
    fields = {name: F.col(f"claim.{name}") for name in CLAIMED} | {"permission": F.lit(None).cast("string")}
    any_of_them = F.struct(*(each.alias(name) for name, each in fields.items()))
    return claims_of_rows.withColumns({"claim": any_of_them, "_host": F.lit(WILDCARD)})


def _claims(why: Column) -> tuple[Column, ...]:
    """Return the columns of claims that match ALLOWs from the host of the struct `acl`."""
    of_acl = claims(why, only_alike=True, permission=F.lit(None).cast("string"))
    return (*of_acl, F.col("acl.host").alias("_host"))


def _restricts() -> Column:
    """Return whether the DENY of a claim denies something that the overlapping ALLOW `old` grants.

    A DENY implies no other operations, and none on topics restricts one on the cluster, or the other way round.
    """
    denied, allowed, host = F.col("claim.operation"), F.col("old.operation"), F.col("_host")
    some = denied.isNull() | denied.isin("ALL") | allowed.isin("ALL")
    implied = F.coalesce(F.arrays_overlap(F.array(denied), with_implied(allowed)), F.lit(False))
    hosts = host.isin(WILDCARD) | F.col("old.host").isin(WILDCARD) | (host == F.col("old.host"))
    kind = F.col("claim.resource_type")
    return (some | implied) & hosts & (kind.isNull() | (kind == F.col("old.resource_type")))


def _not_added(row: Column) -> Column:
    return text("a DENY that may restrict it isn't added, so it isn't, either: ", row)


def _outside(row: Column) -> Column:
    return text("a DENY outside the scope of this run may restrict it and is missing: ", row, "; plan both in one run")


def _declared_since(row: Column) -> Column:
    return text("a DENY that is declared since the plan may restrict it: ", row, "; plan again")
