"""Rows that replace topics, compared with each other."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.model import Refusal
from topicledger.model.renames import REPLACES


def once_replaced(rows: DataFrame) -> DataFrame:
    """Refuse rows that replace a topic which is still declared, or which several rows replace.

    In and out: one row per topic, with `error` and `error_message`.
    """
    replace = rows.where(F.col(REPLACES) != F.col("topic")).select("cluster", "topic", REPLACES)
    first, last = F.min("topic").alias("_first"), F.max("topic").alias("_last")
    replaced = replace.groupBy("cluster", REPLACES).agg(first, last)
    declared = rows.select("cluster", F.col("topic").alias(REPLACES), F.lit(True).alias("_declared"))
    still = F.concat(F.col(REPLACES), F.lit(" is still declared: remove its row, or leave out replaces"))
    several = F.lit(" is replaced by several topics, of which only one can: ")
    twice = F.concat(F.col(REPLACES), several, F.col("_first"), F.lit(", "), F.col("_last"))
    why = F.when(F.col("_declared"), still).when(F.col("_first") != F.col("_last"), twice)
    wrong = replaced.join(declared, on=["cluster", REPLACES], how="left").withColumn("_why", why)
    reasons = wrong.where(F.col("_why").isNotNull()).select("cluster", REPLACES, "_why")
    message = F.concat_ws("; ", "error_message", "_why")
    return (
        rows.join(reasons, on=["cluster", REPLACES], how="left")
        .withColumns(
            {
                "error": F.coalesce("error", F.when(F.col("_why").isNotNull(), F.lit(Refusal.INVALID_REPLACES.value))),
                "error_message": F.when(F.col("_why").isNotNull(), message).otherwise(F.col("error_message")),
            }
        )
        .select(*rows.columns)
    )
