"""Phase guard: limits on a run as a whole. What a guard stops ends in exit code 5."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from topicledger.manifests.rows import Transform
from topicledger.model import Action, Outcome, Phase, Refusal


def max_deletes(most: int) -> Transform:
    """All deletes of a cluster are stopped where there are more than `most` of them; creates go on.

    In and out: `contract.COLUMNS`. Deletes that a policy refused don't count.
    """

    def transform(decisions: DataFrame) -> DataFrame:
        delete = F.coalesce((F.col("decision") == Action.DELETE.value) & F.col("phase").isNull(), F.lit(False))
        counted = decisions.withColumn("_deletes", F.sum(delete.cast("int")).over(Window.partitionBy("cluster")))
        message = F.concat(
            F.lit("planned deletes of this cluster: "),
            F.col("_deletes"),
            F.lit(f", guards.max_deletes is {most}; raise it if they are meant"),
        )
        stop = delete & (F.col("_deletes") > most)
        return counted.transform(_stopped(stop, Refusal.MAX_DELETES_EXCEEDED, message)).drop("_deletes")

    return transform


def _stopped(stop: Column, error: Refusal, message: Column) -> Transform:
    stop = F.coalesce(stop & F.col("phase").isNull(), F.lit(False))
    return lambda rows: (
        rows.withColumn("_stop", stop)
        .withColumns(
            {
                "error": F.when(F.col("_stop"), F.lit(error.value)).otherwise(F.col("error")),
                "error_message": F.when(F.col("_stop"), message).otherwise(F.col("error_message")),
                "outcome": F.when(F.col("_stop"), F.lit(Outcome.REFUSED.value)).otherwise(F.col("outcome")),
                "phase": F.when(F.col("_stop"), F.lit(Phase.GUARD.value)).otherwise(F.col("phase")),
            }
        )
        .drop("_stop")
    )
