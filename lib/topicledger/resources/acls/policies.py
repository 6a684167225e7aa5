"""Policies for ACLs: they evaluate every ACL that a run adds; see `create`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Literal

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from topicledger.config import patterns
from topicledger.manifests.owners import owner_key
from topicledger.manifests.row_rules import PRESENT
from topicledger.policies.built_in import built_in
from topicledger.policies.common import blank, labels_required, owner_required
from topicledger.policies.contract import Facts, RowRule, SetRule, Subject, owned, text
from topicledger.resources.acls.acl import (
    ALLOW,
    DENY,
    EVERYONE,
    LITERAL,
    OPERATION_NAMES,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    WILDCARD,
)
from topicledger.resources.acls.names import AclAction
from topicledger.resources.acls.rows import covered_topics

_MAX_COUNT = 2**31 - 1

_COLUMNS = (
    "cluster", "cluster_id", "resource", "acl", "decision", "live", "state", "owner", "labels", "asked", "open",
)  # fmt: skip
"""The columns that a set rule about ACLs sees: one row per declared or existing ACL of a cluster.

acl: struct of `schemas.ACL_KEY`, by Kafka's names; resource: its text; live: whether the cluster has it; decision:
acl_add, acl_delete, or what needs nothing; state, owner, labels: as declared, null if it isn't. asked and open: as in
`contract.TOPICS`.
"""

SUBJECT = Subject(actions=(AclAction.ACL_ADD, AclAction.ACL_DELETE), key="resource", columns=_COLUMNS)


@built_in(AclAction.ACL_ADD)
def acl_forbidden(
    *,
    principals: Sequence[str] = (),
    operations: Sequence[str] = (),
    resource_types: Sequence[str] = (),
    names: Sequence[str] = (),
    pattern_types: Sequence[str] = (),
    permissions: Sequence[str] = (ALLOW,),
) -> RowRule:
    """No ACL is added that fits all given settings; of a prefix, its own text counts.

    `principals` and `names` are patterns (RE2), the others are Kafka's names. An ACL of ALL fits each of `operations`,
    one of `User:*` each of `principals`, and one of all names each of `names`, since it grants each.
    """
    if not any((principals, operations, resource_types, names, pattern_types)):
        raise ValueError("give at least one of principals, operations, resource_types, names and pattern_types")
    _known("operations", operations, ["ALL", *OPERATION_NAMES])
    _known("resource_types", resource_types, [*OPERATIONS])
    _known("pattern_types", pattern_types, PATTERN_TYPES)
    _known("permissions", permissions, PERMISSIONS)
    fits = [
        *(patterns.any_matches("acl.principal", principals) | _is_of_everyone() for _ in principals[:1]),
        *(F.col("acl.operation").isin("ALL", *operations) for _ in operations[:1]),
        *(F.col("acl.resource_type").isin(*resource_types) for _ in resource_types[:1]),
        *(patterns.any_matches("acl.resource_name", names) | _is_about_all() for _ in names[:1]),
        *(F.col("acl.pattern_type").isin(*pattern_types) for _ in pattern_types[:1]),
        F.col("acl.permission").isin(*permissions),
    ]
    given = {
        "principals": principals, "operations": operations, "resource_types": resource_types, "names": names,
        "pattern_types": pattern_types, "permissions": permissions,
    }  # fmt: skip
    words = "; ".join(f"{name} {', '.join(values)}" for name, values in given.items() if values)
    found = reduce(lambda one, other: one & other, fits)
    return RowRule(reason=F.when(found, text("such ACLs are forbidden: ", words)), inputs=F.col("resource"))


def _is_of_everyone() -> Column:
    return F.col("acl.principal") == EVERYONE


def _is_about_all() -> Column:
    return (F.col("acl.resource_name") == WILDCARD) & (F.col("acl.pattern_type") == LITERAL)


@built_in(AclAction.ACL_ADD)
def acl_owner(*, undeclared: Literal["refuse", "allow"] = "refuse") -> SetRule:
    """Only the owner of a topic grants on it: the ACL's owner owns, in `manifests`, every topic that the ACL covers.

    An ACL that covers no declared topic is refused, unless `undeclared` is allow. ACLs on anything but topics are fine.
    """

    def rule(rights: DataFrame, facts: Facts) -> DataFrame:
        owners = (
            facts.manifests()
            # A topic whose row is absent or refused may live, with its records.
            .withColumn("_present", F.col("state").eqNullSafe(F.lit(PRESENT)))
            .select("cluster", "topic", F.col("owner").alias("topic_owner"), "_present")
        )
        asked = rights.where(F.col("asked") & (F.col("acl.resource_type") == "TOPIC")).select(
            "cluster", "resource", "acl.resource_name", "acl.pattern_type", "owner"
        )
        others = ~owner_key(F.col("topic_owner")).eqNullSafe(owner_key(F.col("owner")))
        owner = F.coalesce(F.btrim("topic_owner"), F.lit("nobody"))
        absent = F.when(F.col("_present"), "").otherwise(" (remove its row, which isn't present, if the topic is gone)")
        owned_by = F.struct("topic", F.concat(owner, absent).alias("owner"))
        found = (
            asked.transform(covered_topics, owners)
            .groupBy("cluster", "resource")
            .agg(
                F.count_if(others).alias("_others"),
                F.min(F.when(others, owned_by)).alias("_other"),
                F.bool_or("_present").alias("_declared"),
            )
        )
        no_owner = F.lit("has no owner, and only a topic's owner grants on it: declare the team or service")
        not_its_own = text(
            "only a topic's owner grants on it, and this ACL's is ", F.col("owner"), ": topic ", F.col("_other.topic"),
            " belongs to ", F.col("_other.owner"),
            F.when(F.col("_others") > 1, text(", and ", F.col("_others") - 1, " more that it covers")).otherwise(""),
        )  # fmt: skip
        nobodys = F.lit("no manifest declares a topic that it covers, so nobody owns it: declare the topic first")
        reason = F.when(~owned(), no_owner).when(F.col("_others") > 0, not_its_own)
        if undeclared == "refuse":
            reason = reason.when(~F.coalesce("_declared", F.lit(False)), nobodys)
        of_topic = F.col("acl.resource_type") == "TOPIC"
        return rights.join(found, on=["cluster", "resource"], how="left").withColumns(
            {"reason": F.when(of_topic, reason), "inputs": text("owner ", F.col("owner"), "; ", F.col("resource"))}
        )

    return rule


@built_in(AclAction.ACL_ADD)
def max_acls_per_principal(*, max: int) -> SetRule:
    """A principal has at most `max` ACLs on a cluster, declared or not; removals that will be sent make room.

    Adds take what is left in the order of their texts; the first over the limit and all later ones are refused.
    """
    if not 0 <= max <= _MAX_COUNT:
        raise ValueError(f"max must be from 0 to {_MAX_COUNT}")
    together = Window.partitionBy("cluster", "acl.principal")
    in_order = together.orderBy("resource").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    adds = F.coalesce(F.col("decision") == AclAction.ACL_ADD.value, F.lit(False))
    goes = F.coalesce((F.col("decision") == AclAction.ACL_DELETE.value) & F.col("open"), F.lit(False))
    stays = F.col("live") & ~adds & ~goes

    def rule(rights: DataFrame, facts: Facts) -> DataFrame:
        rows = rights.withColumns(
            {
                "_stay": F.count_if(stays).over(together),
                "_added": F.count_if(adds & F.col("open")).over(in_order),
            }
        )
        count = text(
            F.col("acl.principal"), f" may have {max} ACLs: ", F.col("_stay"), " stay, this is number ",
            F.col("_added"), " of those that are added",
        )  # fmt: skip
        return rows.withColumns({"reason": F.when(F.col("_stay") + F.col("_added") > max, count), "inputs": count})

    return rule


@built_in(AclAction.ACL_ADD)
def deny_needs_label(*, label: str = "reason") -> RowRule:
    """An ACL that denies has the label that `label` names, which says why: Kafka lets a DENY win over every ALLOW."""
    if not label.strip():
        raise ValueError("label must not be empty")
    value = F.col("labels")[label]
    return RowRule(
        reason=F.when(
            (F.col("acl.permission") == DENY) & blank(value),
            F.lit(f"it denies, and a DENY wins over every ALLOW: say why in label {label}"),
        ),
        inputs=text("permission ", F.col("acl.permission"), f"; label {label} ", value),
    )


def _known(what: str, given: Sequence[str], known: Sequence[str]) -> None:
    wrong = [each for each in given if each not in known]
    if wrong:
        raise ValueError(f"{what} has {', '.join(wrong)}; known: {', '.join(known)}")


built_in(AclAction.ACL_ADD)(owner_required)
built_in(AclAction.ACL_ADD)(labels_required)
