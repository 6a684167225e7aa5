"""Drift of ACLs: the rows of `acls` compared with the ACLs on a cluster."""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.config.settings import Settings
from topicledger.frames import materialised
from topicledger.manifests.row_rules import ABSENT, PRESENT
from topicledger.manifests.rows import Transform
from topicledger.observe.listed import Listed
from topicledger.resources.acls.acl import ALLOW, DENY, EVERYONE, PREFIXED, WILDCARD
from topicledger.resources.acls.decide import covers, managed
from topicledger.resources.acls.effective import IMPLIED
from topicledger.resources.acls.names import AclDrift
from topicledger.resources.acls.overlaps import name_covers
from topicledger.resources.acls.rows import covered_topics, text_of
from topicledger.resources.kind import DIFFERENCE
from topicledger.schemas import ACL_KEY


def find(listed: Listed, topics: DataFrame, settings: Settings) -> Transform:
    """Compare validated rows of `acls` with the ACLs of clusters: see `Drift.find`."""

    def transform(validated: DataFrame) -> DataFrame:
        rows = validated.transform(_beside_live(listed, settings)).transform(materialised)
        found = [
            rows.transform(_missing),
            rows.transform(_unmanaged),
            rows.transform(_wider),
            rows.transform(_denied),
            rows.transform(_on_missing_topic, topics),
            rows.transform(_without_topics, topics),
        ]
        return reduce(DataFrame.unionByName, found)

    return transform


def _beside_live(listed: Listed, settings: Settings) -> Transform:
    """One row per ACL that is declared or live, on clusters whose ACLs are known.

    Columns: cluster, resource, acl, state, live, refused, managed.
    """

    def transform(validated: DataFrame) -> DataFrame:
        known = F.col("cluster").isin(*listed.known)
        acl = F.struct(*ACL_KEY)
        declared = validated.where(known).select(
            "cluster", "resource", acl.alias("_declared"), "state", F.col("phase").isNotNull().alias("refused")
        )
        live = listed.rows.where(known).select("cluster", text_of().alias("resource"), acl.alias("_live"))
        both = declared.join(live, on=["cluster", "resource"], how="full_outer").withColumns(
            {
                "acl": F.coalesce("_declared", "_live"),
                "live": F.col("_live").isNotNull(),
                "refused": F.coalesce("refused", F.lit(False)),
            }
        )
        return both.withColumn("managed", managed(settings)).drop("_declared", "_live")

    return transform


def _present() -> Column:
    return (F.col("state") == PRESENT) & ~F.col("refused")


def _undeclared() -> Column:
    return F.col("live") & F.col("state").isNull() & ~F.col("refused")


def _finding(
    kind: AclDrift, message: Column | str, *, declared: Column | None = None, live: Column | None = None
) -> list[Column]:
    """The columns `DIFFERENCE` of a finding about the ACL in `acl`, whose text is `resource`."""
    names_topic = (
        (F.col("acl.resource_type") == "TOPIC")
        & (F.col("acl.pattern_type") != PREFIXED)
        & (F.col("acl.resource_name") != WILDCARD)
    )
    values = {
        "cluster": F.col("cluster"),
        "topic": F.when(names_topic, F.col("acl.resource_name")),
        "kind": F.lit(kind.value),
        "what": F.col("resource"),
        "declared": F.lit(None) if declared is None else declared,
        "live": F.lit(None) if live is None else live,
        "message": F.lit(message) if isinstance(message, str) else message,
    }
    return [values[name].cast("string").alias(name) for name in DIFFERENCE]


def _missing(rows: DataFrame) -> DataFrame:
    missing = _finding(AclDrift.ACL_MISSING, "the cluster has no such ACL", declared=F.lit(PRESENT))
    return rows.where(_present() & ~F.col("live")).select(*missing)


def _unmanaged(rows: DataFrame) -> DataFrame:
    absent = (F.col("state") == ABSENT) & ~F.col("refused") & F.col("live")
    message = F.when(absent, F.lit("declared absent, but it is there")).otherwise(
        F.lit("acls.manage names its principal, and no row of acls declares it")
    )
    found = _finding(AclDrift.ACL_UNMANAGED, message, declared=F.when(absent, F.lit(ABSENT)), live=F.lit(PRESENT))
    return rows.where(absent | (_undeclared() & F.col("managed"))).select(*found)


def _wider(rows: DataFrame) -> DataFrame:
    allows = F.col("acl.permission") == ALLOW
    declared = rows.where(_present() & allows).select(
        "cluster", F.col("acl.principal").alias("_principal"), F.col("acl").alias("_narrow"),
        F.col("resource").alias("_text"),
    )  # fmt: skip
    undeclared = rows.where(_undeclared() & allows).withColumn("_principal", F.col("acl.principal"))
    host = F.col("acl.host").isin(WILDCARD) | (F.col("acl.host") == F.col("_narrow.host"))
    message = "it grants more than a declared ACL that it includes, and isn't declared itself"
    return (
        undeclared.join(declared, on=["cluster", "_principal"], how="inner")
        .where(covers("acl", "_narrow") & host)
        .groupBy("cluster", "resource", "acl")
        .agg(F.min("_text").alias("_text"))
        .select(*_finding(AclDrift.ACL_WIDER, message, declared=F.col("_text"), live=F.col("resource")))
    )


def _denied(rows: DataFrame) -> DataFrame:
    declared = rows.where(_present() & (F.col("acl.permission") == ALLOW)).select(
        F.col("cluster").alias("_cluster"), F.col("acl").alias("_allow"), F.col("resource").alias("_text")
    )
    denies = rows.where(_undeclared() & (F.col("acl.permission") == DENY))
    deny, allow = F.col("acl"), F.col("_allow")

    def meet(name: str, every: str) -> Column:
        return (deny[name] == allow[name]) | (deny[name] == every) | (allow[name] == every)

    # Clients need what the allowed operation implies: without DESCRIBE, a consumer gets no metadata.
    implied = [(allow["operation"] == each) & deny["operation"].isin(*names) for each, names in IMPLIED.items()]
    overlap = (
        (F.col("cluster") == F.col("_cluster"))
        & ((deny["principal"] == allow["principal"]) | (deny["principal"] == EVERYONE))
        & (deny["resource_type"] == allow["resource_type"])
        & (meet("operation", "ALL") | reduce(or_, implied))
        & meet("host", WILDCARD)
        & (name_covers("acl", "_allow") | name_covers("_allow", "acl"))
    )
    message = "it denies all or part of what a declared ACL allows, and isn't declared itself; DENY overrides ALLOW"
    return (
        F.broadcast(denies)
        .join(declared, on=overlap, how="inner")
        .groupBy("cluster", "resource", "acl")
        .agg(F.min("_text").alias("_text"))
        .select(*_finding(AclDrift.ACL_DENIED, message, declared=F.col("_text"), live=F.col("resource")))
    )


def _on_topics(rows: DataFrame) -> DataFrame:
    """ACLs on topics that are declared or whose principal is managed."""
    concerned = _present() | (_undeclared() & F.col("managed"))
    return rows.where(concerned & (F.col("acl.resource_type") == "TOPIC"))


def _on_missing_topic(rows: DataFrame, topics: DataFrame) -> DataFrame:
    literal = (F.col("acl.pattern_type") != PREFIXED) & (F.col("acl.resource_name") != WILDCARD)
    named = rows.transform(_on_topics).where(literal).withColumn("topic", F.col("acl.resource_name"))
    message = "no topic of this name is visible to this principal, and no manifest declares one"
    return (
        named.join(topics, on=["cluster", "topic"], how="left_anti")
        .drop("topic")
        .select(*_finding(AclDrift.ACL_ON_MISSING_TOPIC, message, declared=F.col("state")))
    )


def _without_topics(rows: DataFrame, topics: DataFrame) -> DataFrame:
    allows = (
        rows.transform(_on_topics)
        .where(F.col("acl.permission") == ALLOW)
        .select("cluster", "acl.principal", "acl.resource_name", "acl.pattern_type")
    )
    served = allows.transform(covered_topics, topics).select("cluster", "principal").distinct()
    message = "none of its ACLs on topics matches a topic that exists or is declared"
    values = {
        "topic": None,
        "kind": F.lit(AclDrift.ACL_PRINCIPAL_WITHOUT_TOPICS.value),
        "what": F.col("principal"),
        "declared": None,
        "live": None,
        "message": F.lit(message),
    }
    return (
        allows.select("cluster", "principal")
        .distinct()
        .join(served, on=["cluster", "principal"], how="left_anti")
        .select("cluster", *((F.lit(None) if v is None else v).cast("string").alias(n) for n, v in values.items()))
    )
