"""A guard stops actions, and records the number that an approval must allow to let them through."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from topicledger.actions.safeguards import Guard
from topicledger.manifests.rows import Transform
from topicledger.resources.ending import stopped


def limited(
    guard: Guard,
    most: int,
    counts: Column,
    *,
    number: Column | None = None,
    by_topic: bool = False,
    also: Column | None = None,
    why: Column | None = None,
) -> Transform:
    """Stop all actions of a cluster for which `counts` is true if there are more than `most`.

    In and out: decisions with `phase` and `guards`, a row per action. Rows that a policy refused don't count.
    `number`: the number of counted things of a row, 1 by default. `by_topic`: several rows of a topic count once.
    `also`: rows that are stopped with the others and don't count. `why`: the reason, before the guard's own.

    Actions that another guard stopped don't count against the limit. If an approval lets them through, they could
    exceed it: then this guard is added to their `guards`, with the number of all actions, so that the approval must
    name it, too.
    """

    def transform(rows: DataFrame) -> DataFrame:
        opens, waits = F.col("phase").isNull(), F.col("guards").isNotNull()
        counted = F.coalesce(counts & (opens | waits), F.lit(False))
        marked = rows.withColumn("_counts", counted).withColumn("_opens", F.col("_counts") & opens)
        once: Column = F.lit(1) if number is None else number
        if by_topic:
            of_topic = Window.partitionBy("cluster", "topic")
            first = of_topic.orderBy(F.col("_opens").desc(), F.col("_counts").desc(), "decision")
            marked = marked.withColumn("_first", F.row_number().over(first) == 1)
            once = F.when(F.col("_first"), once)
        of_cluster = Window.partitionBy("cluster")
        together = F.col("_counts") if also is None else F.col("_counts") | F.coalesce(also, F.lit(False))
        message = guard.message("_open_count", most)
        name = F.lit(guard.allowed_as)
        return (
            marked.withColumns(
                {
                    "_open_count": F.coalesce(F.sum(F.when(F.col("_opens"), once)).over(of_cluster), F.lit(0)),
                    "_full_count": F.coalesce(F.sum(F.when(F.col("_counts"), once)).over(of_cluster), F.lit(0)),
                    "_together": together,
                }
            )
            .withColumn("_stop", F.col("_together") & opens & (F.col("_open_count") > most))
            .withColumn("_stop_more", F.col("_together") & waits & (F.col("_full_count") > most))
            .withColumn(
                "guards",
                F.when(F.col("_stop"), F.create_map(name, F.col("_open_count").cast("int")))
                .when(F.col("_stop_more"), F.map_concat("guards", F.create_map(name, F.col("_full_count").cast("int"))))
                .otherwise(F.col("guards")),
            )
            .transform(stopped(F.col("_stop"), guard.error, message if why is None else F.concat(why, message)))
            .select(*rows.columns)
        )

    return transform
