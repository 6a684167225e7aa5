"""Removals of ACLs that aren't made, since another row may be meant to keep or to replace the ACL: see `overlaps`."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from topicledger.manifests.row_rules import PRESENT
from topicledger.manifests.rows import Transform
from topicledger.model import Outcome, Phase, Refusal
from topicledger.policies.contract import text
from topicledger.resources.acls.acl import DENY
from topicledger.resources.acls.denies import denied_since
from topicledger.resources.acls.names import AclAction
from topicledger.resources.acls.overlaps import claims, keeps, of_added, of_declared, overlapping, stays
from topicledger.resources.deciding import decided, may_be_made
from topicledger.resources.ending import ended, refused, stopped, with_ended
from topicledger.schemas import ACL_KEY

_ADD, _DELETE = AclAction.ACL_ADD.value, AclAction.ACL_DELETE.value


def kept(claimed: DataFrame) -> Transform:
    """Skip removals that a row may be meant to prevent. In: claims.

    An undeclared ACL stays if a claim overlaps it. An ACL that is declared absent stays only if a claim would replace
    it; with `only_alike`, any ACL.
    """

    def transform(rows: DataFrame) -> DataFrame:
        removal = may_be_made(_DELETE)
        removals = rows.where(removal).select(
            "cluster", "resource", F.col("state").isNotNull().alias("_declared"), F.col("acl").alias("old")
        )
        found = (
            removals.transform(overlapping, claimed)
            .where(keeps(declared=F.col("_declared")))
            .groupBy("cluster", "resource")
            .agg(F.min("why").alias("_why"))
        )
        end = ended(F.lit(Phase.GUARD.value), F.lit(Outcome.SKIPPED.value), F.lit(None).cast("string"), "_why")
        return (
            rows.join(found, on=["cluster", "resource"], how="left")
            .withColumn("_stays", F.when(F.col("_why").isNotNull() & removal, end))
            # No approval may allow it any more.
            .withColumns({name: F.when(F.col("_stays").isNull(), F.col(name)) for name in ("error", "guards")})
            .transform(with_ended, "_stays")
            .drop("_stays", "_why")
        )

    return transform


def decided_to_stay() -> Column:
    """Return whether a removal isn't made because of another row."""
    return F.coalesce((F.col("decision") == _DELETE) & (F.col("outcome") == Outcome.SKIPPED.value), F.lit(False))


def _is_refused_add() -> Column:
    return F.coalesce((F.col("decision") == _ADD) & (F.col("outcome") == Outcome.REFUSED.value), F.lit(False))


def refused_adds(rows: DataFrame) -> DataFrame:
    """Return claims of adds that a guard or a policy refused."""
    return rows.where(_is_refused_add()).select(*claims(stays(F.col("resource")), only_alike=False))


ROUNDS = 5
"""Rounds after which no further ACL is added for principals whose adds are refused one by one."""


def none_added(asked: DataFrame) -> Transform:
    """Refuse the other adds of a principal of which this round refused an add. `asked`: the rows before the round.

    With `max_acls_per_principal`, each refused add keeps an ACL, which counts, so that the next round refuses another.
    """
    before = asked.where(_is_refused_add()).select("cluster", "resource")
    key = ("cluster", "_principal")

    def transform(rows: DataFrame) -> DataFrame:
        named = rows.withColumn("_principal", F.col("acl.principal"))
        now = named.where(_is_refused_add()).join(before, on=["cluster", "resource"], how="left_anti")
        some = now.select(*key).distinct().withColumn("_some", F.lit(True))
        of_some = named.join(some, on=[*key], how="left")
        stops = stopped(decided(_ADD) & F.col("_some"), Refusal.POLICY_VIOLATION, F.lit(_OTHERS))
        return of_some.transform(stops).drop("_some", "_principal")

    return transform


_OTHERS = (
    "policies refuse other ACLs of its principal one by one, since each refusal keeps an ACL that counts: add fewer at "
    "a time"
)


def not_put_back(rows: DataFrame) -> DataFrame:
    """Return claims of ACLs that a revert should add again and can't, or doesn't since they changed later.

    The ACLs that replaced them stay, or the revert would leave neither.
    """
    skipped = F.col("outcome").isin(Outcome.REFUSED.value, Outcome.SKIPPED.value)
    undecided = F.col("decision").isNull() & (F.col("phase") != Phase.MANIFEST.value)
    missing = rows.where((F.col("state") == PRESENT) & ~F.col("live") & undecided & skipped)
    why = text("it stays: it may replace an ACL that this run doesn't add again: ", F.col("resource"))
    return missing.select(*claims(why, only_alike=True))


def removed_denies(rows: DataFrame) -> DataFrame:
    """Keep the removals of a DENY."""
    return rows.where(may_be_made(_DELETE) & (F.col("acl.permission") == DENY))


LEAVES = "_leaves"
"""Column (boolean): whether rows ask to remove a live ALLOW; it may stay after all."""


def with_denies_kept(rows: DataFrame) -> DataFrame:
    """Skip removals of a DENY that may restrict an ALLOW which stays. In: materialised, with `LEAVES`.

    Else the ALLOW would grant more than before, though the declarations grant nothing of it.
    """
    staying = rows.where(F.col(LEAVES) & ~may_be_made(_DELETE))
    if removed_denies(rows).isEmpty() or staying.isEmpty():
        return rows
    why = text("it stays: it may restrict an ALLOW that isn't removed, either: ", F.col("resource"))
    return rows.transform(kept(staying.select(*claims(why, only_alike=True, permission=F.lit(DENY)))))


def outside() -> Column:
    """Return the reason why a removal isn't made (string): an add that would replace it isn't in the scope."""
    row = F.col("resource")
    return text("it stays: an add outside the scope of this run would replace it: ", row, "; plan both in one run")


def protected(validated: DataFrame, known: DataFrame, clusters: Collection[str]) -> Transform:
    """See `Deciding.protected`."""
    claimed = validated.transform(of_declared(clusters)).unionByName(of_added(validated, known))
    denied = denied_since(validated, known, clusters)
    declared = validated.where(F.col("phase").isNull()).select("cluster", "resource", F.lit(True).alias("_declared"))

    def transform(planned: DataFrame) -> DataFrame:
        old = F.struct(*(F.col("before")[name].alias(name) for name in ACL_KEY))
        removals = (
            planned.where(F.col("action") == _DELETE)
            .withColumn("old", old)
            .join(declared, on=["cluster", "resource"], how="left")
        )
        stay = removals.transform(overlapping, claimed).where(keeps(declared=F.col("_declared").isNotNull()))
        found = stay.drop("_declared").unionByName(planned.transform(denied))
        once = found.withColumn("_row", F.row_number().over(Window.partitionBy("cluster", "resource").orderBy("why")))
        return once.where("_row = 1").transform(refused(Refusal.CHANGED_SINCE_PLAN, F.col("why")))

    return transform
