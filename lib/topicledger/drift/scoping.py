"""The scope of an audit: everything is compared, and only findings inside are kept."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.drift.find import Estate
from topicledger.ledger.run import Run
from topicledger.manifests import owners
from topicledger.manifests.rows import Transform
from topicledger.observe.listed import Listed
from topicledger.observe.topics import ClusterStatus
from topicledger.plan import scoping
from topicledger.resources.kind import ResourceKind
from topicledger.resources.scoped import INSIDE, with_inside


def on_topics(run: Run, declared: DataFrame) -> Transform:
    """Return a transform that keeps findings on topics inside. In and out: `find.DRIFT_COLUMNS`.

    `declared`: the result of `manifests.rows.judge`.
    """
    inside = scoping.inside(run, F.col("_declared").isNull())
    if inside is None:
        return lambda found: found
    by_topic = declared.transform(owners.of_topics).withColumn("_declared", F.lit(True))
    return lambda found: (
        found.join(by_topic, on=["cluster", "topic"], how="left").transform(inside).where(INSIDE).select(*found.columns)
    )


def on_resources(run: Run, kind: ResourceKind, estate: Estate, listed: Listed, declared: DataFrame) -> Transform:
    """Return a transform that keeps findings on other resources inside. In and out: `find.DRIFT_COLUMNS`.

    `declared`: the result of the kind's `Rows.judge`. A finding that a cluster's resources are unknown is always kept.
    """
    if not run.scope.narrows:
        return lambda found: found
    statuses = {name: ClusterStatus(cluster_id=its_id) for name, its_id in estate.cluster_ids.items()}
    mine = (
        declared.transform(kind.deciding.compare(listed, statuses, run.settings))
        .transform(with_inside(run.scope, kind.deciding.scoped, None, text="resource"))
        .where(INSIDE)
        .select("cluster", F.col("resource").alias("what"))
        .distinct()
    )
    about_cluster = F.col("what") == kind.table.name
    return lambda found: found.where(about_cluster).unionByName(
        found.where(~about_cluster).join(mine, on=["cluster", "what"], how="left_semi").select(*found.columns)
    )
