"""Topics that a row names, or may mean: a row with a mistake protects what it may be about."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def has_cluster(clusters: Collection[str]) -> Column:
    """Return whether a row's cluster is one of these (boolean, never null)."""
    return F.coalesce(F.col("cluster").isin(*clusters), F.lit(False))


def clusters_meant(clusters: Collection[str]) -> Column:
    """Return each cluster that a row may mean, in a row of its own: all of `clusters` if its own isn't one of them."""
    every = F.array(*map(F.lit, clusters))
    return F.explode(F.when(has_cluster(clusters), F.array("cluster")).otherwise(every)).alias("cluster")


def with_meant(named: DataFrame, unreadable: DataFrame) -> Callable[[DataFrame], DataFrame]:
    """Add the columns of both to topics. `named`: by cluster and topic; `unreadable`, with few rows: by cluster."""
    return lambda topics: topics.join(named, on=["cluster", "topic"], how="left").join(
        F.broadcast(unreadable), on="cluster", how="left"
    )
