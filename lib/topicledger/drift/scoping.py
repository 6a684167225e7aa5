"""The scope of an audit: everything is compared, and only findings inside are kept."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.frames import materialised
from topicledger.ledger.run import Run
from topicledger.manifests import owners
from topicledger.manifests.rows import Transform
from topicledger.observe.listed import Listed
from topicledger.observe.topics import ClusterStatus
from topicledger.plan import scoping
from topicledger.resources.kind import ResourceKind
from topicledger.resources.scoped import INSIDE, with_inside
from topicledger.resources.topics.drift.find import Estate
from topicledger.resources.topics.plan.former import former
from topicledger.schemas import OBSERVED_CONFIGS


def on_topics(run: Run, declared: DataFrame) -> Transform:
    """Return a transform that keeps findings on topics inside. In and out: `find.DRIFT_COLUMNS`.

    `declared`: the result of `manifests.rows.validate`.
    """
    undeclared = F.col("_declared").isNull()
    inside = scoping.inside(run, undeclared & F.col("owner").isNull())
    if inside is None:
        return lambda found: found
    key = ["cluster", "topic"]
    by_topic = declared.transform(owners.of_topics).withColumn("_declared", F.lit(True))
    # As in plans: a topic whose row was removed belongs to the owner of that row.
    before = former(run).owners
    owner = F.when(undeclared, F.col("_owner_then")).otherwise(F.col("owner"))

    def transform(found: DataFrame) -> DataFrame:
        owned = found.join(by_topic, on=key, how="left").join(before, on=key, how="left").withColumn("owner", owner)
        return owned.transform(inside).where(INSIDE).select(*found.columns)

    return transform


def configs_to_keep(run: Run, estate: Estate, declared: DataFrame) -> DataFrame:
    """Return the configs that an audit records, the columns of `Estate.configs`.

    Those of topics outside stay as recorded, for the next audit that compares them. `declared`: as for `on_topics`.
    """
    audited = F.col("cluster").isin(*estate.cluster_ids)
    seen = estate.configs.where(audited)
    if not run.scope.narrows:
        return seen
    inside, key = on_topics(run, declared), ["cluster", "topic"]
    recorded = run.ledger.read(OBSERVED_CONFIGS).where(audited).select(*seen.columns)
    mine = recorded.select(*key).transform(inside)
    outside = recorded.join(mine, on=key, how="left_anti")
    # It reads the table that it replaces.
    return seen.transform(inside).unionByName(outside).transform(materialised)


def on_resources(run: Run, kind: ResourceKind, estate: Estate, listed: Listed, declared: DataFrame) -> Transform:
    """Return a transform that keeps findings on other resources inside. In and out: `find.DRIFT_COLUMNS`.

    `declared`: the result of the kind's `Rows.validate`. A finding is inside if it is about a resource inside, or
    what it is compared with, and if it is about the holder of one. A finding that a cluster's resources are unknown is
    always kept.
    """
    if not run.scope.narrows:
        return lambda found: found
    statuses = {name: ClusterStatus(cluster_id=its_id) for name, its_id in estate.cluster_ids.items()}
    inside = (
        declared.transform(kind.deciding.compare(listed, statuses, run.settings))
        .transform(with_inside(run.scope, kind.deciding.scoped, None, text="resource"))
        .where(INSIDE)
        .select("cluster", "resource")
    )
    mine = inside.select("cluster", F.col("resource").alias("_name"))
    if (holder := kind.deciding.scoped.holder) is not None:
        live = listed.rows.select("cluster", kind.rows.text_of().alias("resource"), F.col(holder).alias("_name"))
        held = declared.select("cluster", "resource", F.col(holder).alias("_name")).unionByName(live)
        mine = mine.unionByName(held.join(inside, on=["cluster", "resource"], how="left_semi").drop("resource"))
    mine = mine.distinct()
    about_cluster = F.col("what") == kind.table.name

    def transform(found: DataFrame) -> DataFrame:
        named = found.where(~about_cluster).withColumns({"_what": F.col("what"), "_other": compared_with()})
        for name in ("_what", "_other"):
            marked = mine.select("cluster", F.col("_name").alias(name), F.lit(True).alias(f"{name}_inside"))
            named = named.join(marked, on=["cluster", name], how="left")
        kept = named.where(F.col("_what_inside") | F.col("_other_inside")).select(*found.columns)
        return found.where(about_cluster).unionByName(kept)

    return transform


def compared_with() -> Column:
    """Return the other resource that a finding compares a live one with (string); null if there is none."""
    return F.when(F.col("live") == F.col("what"), F.col("declared"))
