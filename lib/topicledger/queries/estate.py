"""Read the contents of the report about the estate from the views."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.config.ownership import owner_key
from topicledger.config.settings import Settings
from topicledger.ledger.sql import sql_text
from topicledger.ledger.tables import Ledger
from topicledger.manifests.owners import is_one_of
from topicledger.model.scope import Scope
from topicledger.queries.views import registered, used_by
from topicledger.report.estate import Estate, Growth, OwnerSize, ViewRows

_LISTED = 5_000
"""Most rows of a view that the page lists."""
_VIEWS = "current_topics topic_use cost_by_owner growth_by_owner unused_topics over_partitioned risky_topics"


def read_estate(ledger: Ledger, settings: Settings, limits: Scope, now: datetime) -> Estate:
    """Read the estate within the clusters and owners of `limits`; without clusters, of all clusters of the settings."""
    asked = limits
    # Tables keep the rows of clusters that have left the settings.
    limits = limits if limits.clusters else replace(limits, clusters=tuple(settings.clusters))
    with registered(ledger, settings, used_by(_VIEWS)):
        risky = _within(ledger, "risky_topics", limits)
        topics = _within(ledger, "current_topics", limits)
        of_clusters = topics.groupBy("cluster").agg(
            F.max("usage_at").alias("usage_at"),
            F.count_if(F.col("cleanup_policy").isNull()).alias("unknown_configs"),
        )
        seen = list(_collected(of_clusters))
        return Estate(
            made_at=now,
            limits=asked,
            unused_days=settings.views.unused_days,
            usage_at=min((row["usage_at"] for row in seen if row["usage_at"]), default=None),
            unknown_use=_within(ledger, "topic_use", limits).where(F.col("use") == "unknown").count(),
            unknown_configs=sum(row["unknown_configs"] for row in seen),
            owners=[
                OwnerSize(clusters=(row.pop("cluster"),), **row)
                for row in _collected(_within(ledger, "cost_by_owner", limits).orderBy("cluster", "owner"))
            ],
            growth=[
                Growth(**row)
                for row in _collected(_within(ledger, "growth_by_owner", limits).orderBy("day", "cluster", "owner"))
            ],
            unused=_listed(ledger, "unused_topics", limits, "bytes DESC NULLS LAST", "cluster", "topic"),
            over_partitioned=_listed(ledger, "over_partitioned", limits, "num_partitions DESC", "cluster", "topic"),
            risks=_listed(ledger, "risky_topics", limits, "replication_factor", "cluster", "topic", "risk"),
            risky=risky.select("cluster", "topic").distinct().count(),
        )


def _within(ledger: Ledger, view: str, limits: Scope) -> DataFrame:
    """Return the view's rows of these clusters and owners."""
    rows = ledger.spark.table(view)
    if limits.clusters:
        rows = rows.where(F.col("cluster").isin(*limits.clusters))
    return rows.where(is_one_of(F.col("owner"), limits.owners)) if limits.owners else rows


def _listed(ledger: Ledger, view: str, limits: Scope, *order: str) -> ViewRows:
    rows = _within(ledger, view, limits)
    largest_first = [F.desc_nulls_last(each.split()[0]) if " " in each else F.col(each) for each in order]
    first = list(_collected(rows.orderBy(*largest_first).limit(_LISTED + 1)))
    total = len(first) if len(first) <= _LISTED else rows.count()
    return ViewRows(
        total=total,
        rows=first[:_LISTED],
        query=f"SELECT * FROM {view}{_where(limits)} ORDER BY {', '.join(order)}",
    )


def _where(limits: Scope) -> str:
    """Return the same limits as a condition for people."""
    conditions = []
    if limits.clusters:
        conditions.append(f"cluster IN ({', '.join(map(sql_text, sorted(limits.clusters)))})")
    if limits.owners:
        conditions.append(
            f"lower(trim(owner)) IN ({', '.join(sorted({sql_text(owner_key(o)) for o in limits.owners}))})"
        )
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _collected(rows: DataFrame) -> Iterator[dict[str, Any]]:
    return (row.asDict(recursive=True) for row in rows.collect())
