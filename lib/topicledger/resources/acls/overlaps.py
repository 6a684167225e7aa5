"""Columns that connect removals of ACLs with other rows: adds that replace them, and refused rows.

`keeping` uses them to keep the ACL that a refused row would have replaced.

A claim has the fields of an ACL except its host: those of a planned add, or those that a refused row may have meant.
A null field matches every value, since a refused row may have it wrong. Rows of claims have the columns cluster,
`claim`, `why` (the reason why a removal stays), and `only_alike` (whether it keeps only what it would replace).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.manifests.row_rules import PRESENT
from topicledger.manifests.rows import Transform
from topicledger.model import Outcome, Phase
from topicledger.policies.contract import text
from topicledger.resources.acls import rows as manifests
from topicledger.resources.acls.acl import EVERYONE, PREFIXED, WILDCARD
from topicledger.resources.acls.effective import IMPLIED
from topicledger.resources.acls.rows import CLAIMED, text_of
from topicledger.schemas import ACL_KEY

_TO_EVERYONE, _OF_ALL = "to everyone", "of all"
"""Join keys that can't be principals, which have a colon."""


_ON_CLUSTER = {"CREATE": "CREATE", "IDEMPOTENT_WRITE": "WRITE"}
"""Operations on the cluster -> the operation on topics that grants the same for these (KIP-679 for the second)."""
_IMPLIED = {**IMPLIED, "WRITE": IMPLIED["WRITE"] | {"IDEMPOTENT_WRITE"}}


def name_covers(wide: str, narrow: str) -> Column:
    """Return whether the struct `wide` covers every resource name that the struct `narrow` covers."""
    name, pattern = F.col(f"{wide}.resource_name"), F.col(f"{wide}.pattern_type")
    other, other_pattern = F.col(f"{narrow}.resource_name"), F.col(f"{narrow}.pattern_type")
    return (
        ((pattern != PREFIXED) & (name == WILDCARD))
        | ((pattern == PREFIXED) & F.startswith(other, name) & (other != WILDCARD))
        | ((pattern == other_pattern) & (name == other))
    )


def stays(row: Column) -> Column:
    """Return the reason why a removal isn't made (string), with the text of the refused row that may mean it."""
    return text("it stays: a refused row may be meant to keep or to replace it: ", row)


def _replaced_since(row: Column) -> Column:
    return text("it stays: an ACL that is declared since the plan may replace it: ", row, "; plan again")


def of_refused(clusters: Collection[str], why: Callable[[Column], Column] = stays) -> Transform:
    """Return claims of refused rows. In: the result of `Rows.validate`. Out: claims.

    A row whose cluster isn't in `clusters` may mean each of them. `why`: makes the reason from the text of a row.
    """
    every = F.array(*map(F.lit, clusters))
    known = F.coalesce(F.col("cluster").isin(*clusters), F.lit(False))

    def transform(validated: DataFrame) -> DataFrame:
        refused = validated.where(
            (F.col("phase") == Phase.MANIFEST.value) & (F.col("outcome") == Outcome.REFUSED.value)
        )
        meant = F.explode(F.when(known, F.array("cluster")).otherwise(every)).alias("cluster")
        rows = refused.withColumn("_acl", F.struct(*ACL_KEY))
        return rows.select(meant, manifests.meant("_acl").alias("claim"), *_keeps(why(text_of()), only_alike=False))

    return transform


def of_unusual(validated: DataFrame) -> DataFrame:
    """Return claims of accepted rows of ACLs that almost never apply: another name was probably meant.

    In: the result of `Rows.validate`. It doesn't matter whether an earlier run has added them.
    """
    rows = validated.where(F.col("phase").isNull() & (F.col("state") == PRESENT)).withColumn("_acl", F.struct(*ACL_KEY))
    why = text("it stays: an ACL that almost never applies may be meant to keep or to replace it: ", F.col("resource"))
    return rows.where(manifests.unusual("_acl").isNotNull()).select(
        "cluster", manifests.odd_as_unknown("_acl").alias("claim"), *_keeps(why, only_alike=False)
    )


def of_declared(clusters: Collection[str]) -> Transform:
    """Return claims of refused rows, and of unusual ones. In and out: as these."""
    return lambda validated: validated.transform(of_refused(clusters)).unionByName(validated.transform(of_unusual))


def of_added(validated: DataFrame, known: DataFrame, why: Callable[[Column], Column] = _replaced_since) -> DataFrame:
    """Return claims of rows that ask for an ACL which isn't in `known` (cluster, resource); out: claims.

    In: the result of `Rows.validate`. `why`: as for `of_refused`.
    """
    asked_for = validated.where(F.col("phase").isNull() & (F.col("state") == PRESENT))
    added = asked_for.join(known, on=["cluster", "resource"], how="left_anti")
    reason = why(F.col("resource"))
    return added.select("cluster", F.struct(*CLAIMED).alias("claim"), *_keeps(reason, only_alike=True))


def claims(why: Column, *, only_alike: bool, **instead: Column) -> Sequence[Column]:
    """Return the columns of claims, for rows with the struct `acl`. `instead`: values for some of its fields."""
    fields = (instead[name] if name in instead else F.col(f"acl.{name}") for name in CLAIMED)
    claim = F.struct(*(each.alias(name) for name, each in zip(CLAIMED, fields, strict=True)))
    return (F.col("cluster"), claim.alias("claim"), *_keeps(why, only_alike=only_alike))


def _keeps(why: Column, *, only_alike: bool) -> Sequence[Column]:
    return why.alias("why"), F.lit(only_alike).alias("only_alike")


def overlapping(removals: DataFrame, claims: DataFrame) -> DataFrame:
    """Return pairs of a removal and a claim of the same principal, or of everyone, on overlapping resources.

    A claim on topics overlaps a removal on the cluster that grants the same there, and the other way round for CREATE.

    In: `removals` with cluster and `old` (struct of `ACL_KEY`), `claims` with cluster and `claim`. Out: the columns of
    both, each pair once.
    """
    who, whose = F.coalesce("claim.principal", F.lit(EVERYONE)), F.col("old.principal")
    all_of_them = F.array(F.lit(_OF_ALL))
    keyed = claims.withColumn(
        "_key",
        F.explode(F.when(who == EVERYONE, all_of_them).otherwise(F.array(who, F.lit(_TO_EVERYONE)))),
    )
    removed = removals.withColumn(
        "_key",
        F.explode(F.array(F.when(whose == EVERYONE, F.lit(_TO_EVERYONE)).otherwise(whose), F.lit(_OF_ALL))),
    )
    same_type = F.col("claim.resource_type").isNull() | (F.col("claim.resource_type") == F.col("old.resource_type"))
    same_name = F.col("claim.resource_name").isNull() | name_covers("claim", "old") | name_covers("old", "claim")
    return (
        removed.join(keyed, on=["cluster", "_key"], how="inner").where((same_type & same_name) | _across()).drop("_key")
    )


def _across() -> Column:
    """Return whether an operation on topics may be meant instead of one on the cluster, or CREATE instead of CREATE."""

    def claimed(name: str, *values: str) -> Column:
        return F.coalesce(F.col(f"claim.{name}").isin(*values), F.lit(True))

    old = F.col("old.operation")
    narrows, widens = (
        (F.col("old.resource_type") == one) & claimed("resource_type", other)
        for one, other in (("CLUSTER", "TOPIC"), ("TOPIC", "CLUSTER"))
    )
    same = [old.isin(one, "ALL") & claimed("operation", other, "ALL") for one, other in _ON_CLUSTER.items()]
    return (narrows & reduce(or_, same)) | (widens & old.isin("CREATE", "ALL") & claimed("operation", "CREATE", "ALL"))


def alike() -> Column:
    """Return whether `claim` allows, or denies, any of the operations of `old`."""
    permission, operation = F.col("claim.permission"), F.col("claim.operation")
    return (permission.isNull() | (permission == F.col("old.permission"))) & (
        operation.isNull()
        | operation.isin("ALL")
        | F.col("old.operation").isin("ALL")
        | F.arrays_overlap(with_implied(operation), with_implied(F.col("old.operation")))
    )


def keeps(*, declared: Column) -> Column:
    """Return whether a claim keeps an overlapping removal, which is `declared` absent or not."""
    return (~declared & ~F.col("only_alike")) | alike()


def with_implied(operation: Column) -> Column:
    """Return an operation and those that an ALLOW of it implies (array<string>)."""
    found = F.array(operation)
    for name, implied in _IMPLIED.items():
        found = F.when(operation == name, F.array(*map(F.lit, (name, *sorted(implied))))).otherwise(found)
    return found
