"""Rows that replace topics, compared with each other."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.manifests.meant import clusters_meant
from topicledger.model import Refusal
from topicledger.model.renames import REPLACES

_REPLACED = ("cluster", REPLACES)


def replacing(
    written: DataFrame, clusters: Collection[str], judged: Callable[[DataFrame], DataFrame] | None
) -> DataFrame:
    """Return the rows that replace a topic, also those with mistakes: cluster, topic, `replaces`.

    In: rows of `manifests`. A row whose cluster isn't in `clusters` may mean each of them. `judged` adds `error` by the
    rules on owners: what another team writes about a topic that it doesn't own stops nothing.
    """
    others = ~F.coalesce(F.col(REPLACES) == F.col("topic"), F.col(REPLACES).isNull())
    rows = written.where(others).transform(_by_owners(judged))
    return rows.select(clusters_meant(clusters), F.coalesce("topic", F.lit("null")).alias("topic"), REPLACES)


def _by_owners(judged: Callable[[DataFrame], DataFrame] | None) -> Callable[[DataFrame], DataFrame]:
    """Leave out rows of topics that belong to other owners. `judged`: see `replacing`."""
    if judged is None:
        return lambda rows: rows
    return lambda rows: rows.transform(judged).where(_is_its_owners()).select(*rows.columns)


def _is_its_owners() -> Column:
    return ~F.col("error").eqNullSafe(F.lit(Refusal.NOT_YOURS.value))


def once_replaced(
    declared: DataFrame, by_any: DataFrame, judged: Callable[[DataFrame], DataFrame] | None
) -> Callable[[DataFrame], DataFrame]:
    """Refuse rows that replace a topic which is still declared, or which several topics replace.

    A row with state absent of such a topic is refused, too: without it, the old topic would go before the new one is
    there, and whether or not it is used.

    In and out: one row per topic, with `error` and `error_message`. `declared`: the same rows before copies were
    merged, since nothing has sorted them yet. `by_any`, `judged`: see `replacing`.
    """
    first, last = F.min("topic").alias("_first"), F.max("topic").alias("_last")
    others = declared.where(F.col(REPLACES) != F.col("topic")).transform(_by_owners(judged))
    replaced = others.groupBy(*_REPLACED).agg(first, last)
    # Few rows replace a topic: broadcast, they spare the others a shuffle by a column that is mostly null.
    named = F.broadcast(replaced.select("cluster", F.col(REPLACES).alias("topic"), F.col("_first").alias("_by_first")))
    topics = declared.join(named, on=["cluster", "topic"], how="inner")
    if judged is not None:
        # With a column of both, the rules on owners are applied to the few rows after the join, not to all before it.
        topics = topics.transform(judged).where(F.when(F.col("_by_first").isNotNull(), _is_its_owners()))
    both = topics.select("cluster", F.col("topic").alias(REPLACES)).distinct()
    still = F.concat(F.col(REPLACES), F.lit(" is still declared: remove its row, or leave out replaces"))
    several = F.lit(" is replaced by several topics, of which only one can: ")
    twice = F.concat(F.col(REPLACES), several, F.col("_first"), F.lit(", "), F.col("_last"))
    why = F.when(F.col("_both"), still).when(F.col("_first") != F.col("_last"), twice)
    wrong = replaced.join(both.withColumn("_both", F.lit(True)), on=list(_REPLACED), how="left")
    reasons = wrong.select(*_REPLACED, why.alias("_why")).where(F.col("_why").isNotNull())
    message = F.concat_ws("; ", "error_message", "_why")
    by = by_any.groupBy("cluster", F.col(REPLACES).alias("_old")).agg(F.min("topic").alias("_by"))
    by = by.withColumnRenamed("_old", "topic")
    goes = F.concat(
        F.lit("the row of "), F.col("_by"), F.lit(" says that it replaces this topic: remove one of these rows")
    )
    absent = F.when(F.col("state").eqNullSafe(F.lit("absent")), goes)

    def transform(rows: DataFrame) -> DataFrame:
        return (
            rows.join(F.broadcast(reasons), on=list(_REPLACED), how="left")
            .join(F.broadcast(by), on=["cluster", "topic"], how="left")
            .withColumn("_why", F.coalesce("_why", absent))
            .withColumns(
                {
                    "error": F.coalesce(
                        "error", F.when(F.col("_why").isNotNull(), F.lit(Refusal.INVALID_REPLACES.value))
                    ),
                    "error_message": F.when(F.col("_why").isNotNull(), message).otherwise(F.col("error_message")),
                }
            )
            .select(*rows.columns)
        )

    return transform
