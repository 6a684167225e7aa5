"""The owners and topics that a report is limited to, and the owners of resources."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.config.patterns import any_matches
from topicledger.config.settings import Owners
from topicledger.drift.scoping import compared_with
from topicledger.ledger.tables import Ledger
from topicledger.manifests.owners import belongs_to, is_one_of, of_topics
from topicledger.manifests.rows import Transform
from topicledger.model import TOPIC
from topicledger.model.scope import Scope
from topicledger.report.scope import ReportScope
from topicledger.resources.kind import ResourceKind
from topicledger.resources.registry import KINDS
from topicledger.schemas import MANIFESTS, PLANS

_RESOURCE = ("cluster", "resource_type", "resource")


def owners(ledger: Ledger) -> DataFrame:
    """Return the owners that the latest tables declare, and descriptions of topics.

    Out: cluster, resource_type, resource, `declared_owner`, `description`.
    """
    manifests = ledger.read_if_exists(MANIFESTS)
    owner = F.col("owner").alias("declared_owner")
    topics = manifests.transform(of_topics).select(
        "cluster", F.lit(TOPIC).alias("resource_type"), F.col("topic").alias("resource"), owner, "description"
    )
    others = (
        ledger.read(kind.table)
        .transform(kind.rows.complete)
        .groupBy("cluster", kind.rows.text_of().alias("resource"))
        .agg(F.min(F.nullif(F.btrim("owner"), F.lit(""))).alias("owner"))
        .select(
            "cluster",
            F.lit(kind.resource_type).alias("resource_type"),
            "resource",
            owner,
            F.lit(None).cast("string").alias("description"),
        )
        for kind in KINDS
        if ledger.exists(kind.table)
    )
    return reduce(DataFrame.unionByName, others, topics)


def limited(ledger: Ledger, settings: Owners, asked: ReportScope, limits: Scope) -> ReportScope:
    """Limit a report to owners and topics."""
    return replace(asked, limits=limits.limits, inside=of_rows(ledger, settings, limits))


def of_rows(ledger: Ledger, settings: Owners, limits: Scope) -> Transform:
    """Return a transform that keeps rows of `plans`, `audit` or `drift` within the limits.

    A planned resource has the owner of its plan, or else that of the latest tables.
    """
    if not limits.narrows:
        return lambda rows: rows

    def transform(rows: DataFrame) -> DataFrame:
        if "resource" not in rows.columns:
            return rows.transform(_findings(ledger, settings, limits))
        runs = F.broadcast(rows.select("run_id").distinct())
        planned = ledger.read(PLANS).join(runs, on="run_id", how="left_semi")
        owned = planned.join(owners(ledger), on=[*_RESOURCE], how="left").withColumns(
            {"owner": F.coalesce("owner", "declared_owner"), "_topic": _topic()}
        )
        key = ("run_id", *_RESOURCE)
        inside = owned.where(_within(limits)).select(*(F.col(name).alias(f"_{name}") for name in key)).distinct()
        same = {name: F.col(name) == F.col(f"_{name}") for name in key}
        # Rows that are refused since they name no cluster.
        same["cluster"] = F.col("cluster").eqNullSafe(F.col("_cluster"))
        return rows.join(inside, on=[*same.values()], how="left_semi")

    return transform


def of_declared(kind: ResourceKind, limits: Scope) -> Transform:
    """Return a transform that keeps rows of a kind's table within the limits, after `Rows.complete`."""
    if not limits.narrows:
        return lambda rows: rows
    return lambda rows: (
        rows.withColumn("_topic", kind.deciding.scoped.topic_of(F.col)).where(_within(limits)).drop("_topic")
    )


def _topic() -> Column:
    """Return the topic that a row of `plans` is about; null if it is about none."""

    def field(name: str) -> Column:
        return F.coalesce(F.col("after")[name], F.col("before")[name])

    others = (F.when(F.col("resource_type") == k.resource_type, k.deciding.scoped.topic_of(field)) for k in KINDS)
    return F.coalesce("topic", *others)


def _within(limits: Scope) -> Column:
    """In: `owner` and `_topic`."""
    inside = is_one_of(F.col("owner"), limits.owners) if limits.owners else F.lit(True)
    return inside & any_matches("_topic", limits.topics) if limits.topics else inside


def _findings(ledger: Ledger, settings: Owners, limits: Scope) -> Transform:
    """Keep rows of `drift` within the limits; topics that no row declares have owners by [owners] of the settings.

    As in an audit, a finding is also about the resource with which it compares a live one, and about what holders have.
    """

    def transform(drift: DataFrame) -> DataFrame:
        other, of_topic = compared_with(), F.col("topic").isNotNull()
        about = [(F.col("topic"), True), (F.when(~of_topic | other.isNotNull(), F.col("what")), False), (other, False)]
        names = (F.struct(name.alias("name"), F.lit(topics).alias("is_topic")) for name, topics in about)
        rows = drift.withColumn("_about", F.explode(F.array(*names))).where("_about.name IS NOT NULL")
        declared = _declared(ledger)
        same = [F.col("cluster") == F.col("_cluster"), F.col("_about.name") == F.col("_name"),
                F.col("_about.is_topic") == F.col("_is_topic")]  # fmt: skip
        rows = rows.join(declared, on=same, how="left").withColumn("_topic", F.coalesce("topic", "_of_topic"))
        inside = any_matches("_topic", limits.topics) if limits.topics else F.lit(True)
        if limits.owners:
            by_settings = F.col("_about.is_topic") & F.col("_name").isNull() & belongs_to(settings, limits.owners)
            inside &= F.coalesce(is_one_of(F.col("_owner"), limits.owners), F.lit(False)) | by_settings
        return rows.where(inside).select(*drift.columns).distinct()

    return transform


def _declared(ledger: Ledger) -> DataFrame:
    """Return what the latest tables declare, by the names that findings use: of resources and of their holders.

    Out: `_cluster`, `_name`, `_is_topic` (boolean), `_owner`, and `_of_topic`, the topic that a resource is about.
    """
    topic = F.col("topic")
    values = (F.lit(True).alias("_is_topic"), F.col("owner").alias("_owner"), topic.alias("_of_topic"))
    found = ledger.read_if_exists(MANIFESTS).select(F.col("cluster").alias("_cluster"), topic.alias("_name"), *values)
    for kind in KINDS:
        scoped = kind.deciding.scoped
        if ledger.exists(kind.table):
            rows = ledger.read(kind.table).transform(kind.rows.complete)
            names = F.array(kind.rows.text_of(), *([] if scoped.holder is None else [F.col(scoped.holder)]))
            values = (
                F.lit(False).alias("_is_topic"),
                F.col("owner").alias("_owner"),
                scoped.topic_of(F.col).alias("_of_topic"),
            )
            found = found.unionByName(
                rows.select(F.col("cluster").alias("_cluster"), F.explode(names).alias("_name"), *values)
            )
    return found
