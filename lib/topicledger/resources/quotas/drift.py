"""Drift of client quotas: the rows of `quotas` compared with the limits of a cluster's entities."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.config.settings import Settings
from topicledger.manifests.rows import ABSENT, Transform
from topicledger.observe.listed import Listed
from topicledger.resources.kind import DIFFERENCE
from topicledger.resources.quotas.decide import differing
from topicledger.resources.quotas.names import QuotaDrift
from topicledger.resources.quotas.rows import declared_limits, limits_of, text_of


def find(listed: Listed, _: DataFrame, __: Settings) -> Transform:
    """Compare validated rows of `quotas` with the quotas of clusters: see `Drift.find`.

    Compared are all entities of the clusters that rows of `quotas` name. Topics play no part.
    """

    def transform(judged: DataFrame) -> DataFrame:
        known = F.col("cluster").isin(*listed.known)
        declared = judged.where(known).select(
            "cluster", "resource", "state", F.col("phase").isNotNull().alias("refused"),
            declared_limits().alias("limits"),
        )  # fmt: skip
        live = listed.rows.where(known).select("cluster", text_of().alias("resource"), limits_of().alias("live_limits"))
        unmanaged, absent = F.col("limits").isNull(), F.col("state") == ABSENT
        missing = F.col("live_limits").isNull()
        kind = (
            F.when(unmanaged, F.lit(QuotaDrift.QUOTA_UNMANAGED.value))
            .when(missing, F.lit(QuotaDrift.QUOTA_MISSING.value))
            .otherwise(F.lit(QuotaDrift.QUOTA_DIFFERS.value))
        )
        message = (
            F.when(unmanaged, F.lit("no row of quotas names it"))
            .when(absent, F.lit("declared absent, but it has limits"))
            .when(missing, F.lit("the cluster has no quotas for it"))
            .otherwise(F.lit("its limits differ from the declared ones"))
        )
        values = {"topic": F.lit(None), "kind": kind, "what": F.col("resource"), "message": message}
        values |= {"declared": _text("after"), "live": _text("before")}
        return (
            declared.join(live, on=["cluster", "resource"], how="full_outer")
            .where(~F.coalesce("refused", F.lit(False)))
            .withColumns(differing())
            .where((F.size("before") > 0) | (F.size("after") > 0))
            .select("cluster", *(column.cast("string").alias(name) for name, column in values.items()))
            .select(*DIFFERENCE)
        )

    return transform


def _text(limits: str) -> Column:
    """The differing limits as text: `consumer_byte_rate=1000, request_percentage=50`; null if there are none."""
    entries = F.transform(
        F.array_sort(F.map_entries(limits)), lambda each: F.concat(each["key"], F.lit("="), each["value"])
    )
    return F.when(F.size(limits) > 0, F.array_join(entries, ", "))
