"""Common code for drift of resources other than topics: rows of findings, and resources that can't be listed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from topicledger.config.settings import Settings
from topicledger.config.severities import DriftKind
from topicledger.manifests.row_rules import PRESENT
from topicledger.manifests.rows import Transform
from topicledger.observe.listed import Listed
from topicledger.resources import ignoring
from topicledger.resources.deciding import undescribed
from topicledger.resources.ending import lookup
from topicledger.resources.kind import DIFFERENCE, ResourceKind
from topicledger.resources.topics.drift.find import DRIFT_COLUMNS, Estate


def find_resource_drift(
    kind: ResourceKind, estate: Estate, listed: Listed, manifests: DataFrame, settings: Settings
) -> Transform:
    """Compare validated rows of a kind's table with the resources of audited clusters.

    In: the result of `Rows.validate`, materialised; refused rows are not compared. `manifests`: the result of
    `manifests.rows.validate`. Out: `find.DRIFT_COLUMNS`, one row per difference; ignored kinds are left out.
    """
    declared = manifests.where(F.col("phase").isNull() & (F.col("state") == PRESENT)).select("cluster", "topic")
    topics = estate.topics.select("cluster", "topic").unionByName(declared).distinct()

    def transform(validated: DataFrame) -> DataFrame:
        found = validated.transform(kind.drift.find(listed, topics, settings)).transform(
            ignoring.not_about_ignored(kind, settings.scope, listed.rows)
        )
        return as_found(estate, settings, [found, *unknown(listed, validated, kind)])

    return transform


def as_found(estate: Estate, settings: Settings, found: Sequence[DataFrame]) -> DataFrame:
    """Convert findings (`DIFFERENCE`) on audited clusters to `find.DRIFT_COLUMNS`, without ignored kinds."""
    return (
        reduce(DataFrame.unionByName, found)
        .where(F.col("cluster").isin(*estate.cluster_ids))
        .withColumns(
            {
                "cluster_id": lookup(estate.cluster_ids, F.col("cluster")),
                "topic_id": F.lit(None).cast("string"),
                "severity": lookup(settings.audit.severity, F.col("kind")),
            }
        )
        .where("severity is not null")
        .select(*DRIFT_COLUMNS)
    )


def unknown(listed: Listed, validated: DataFrame, kind: ResourceKind) -> Iterator[DataFrame]:
    """Yield one finding per cluster where this principal may not list resources, and one per undescribed resource."""
    failed = {name: str(status.message) for name, status in listed.statuses.items() if status.error is not None}
    yield unlisted(validated.sparkSession, failed, kind.table.name)
    each = undescribed(listed, kind.rows.text_of())
    if each is not None:
        what = {"what": F.col("resource"), "message": F.col("error_message")}
        yield each.withColumns({**_not_permitted(), **what}).select(*DIFFERENCE)


def unlisted(spark: SparkSession, why: Mapping[str, str], what: str) -> DataFrame:
    """Return a finding (`DIFFERENCE`) for each cluster that didn't list something. `why`: cluster -> why it didn't."""
    rows = spark.createDataFrame(sorted(why.items()), "cluster string, message string")
    return rows.withColumns({**_not_permitted(), "what": F.lit(what)}).select(*DIFFERENCE)


def _not_permitted() -> Mapping[str, Column]:
    values = {"topic": None, "kind": DriftKind.NOT_PERMITTED.value, "declared": None, "live": None}
    return {name: F.lit(value).cast("string") for name, value in values.items()}
