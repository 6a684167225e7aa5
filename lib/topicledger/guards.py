"""Phase guard: limits on a run as a whole. What a guard stops ends in exit code 5."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from topicledger.manifests import Transform
from topicledger.model import Action, Decision, Outcome, Phase, Refusal


def same_cluster(expected: Mapping[str, str]) -> Transform:
    """Every declared topic of a cluster is stopped where the cluster's id isn't the one that the settings name.

    In and out: `decide.COLUMNS`. `expected` maps cluster names to Kafka cluster ids; others aren't judged.
    What was compared with a stranger's topics means nothing, so topics that seemed unchanged are stopped as well.
    """

    def transform(decisions: DataFrame) -> DataFrame:
        stop = F.lit(False)
        message = F.lit(None).cast("string")
        for cluster, cluster_id in expected.items():
            other = (F.col("cluster") == cluster) & (F.col("cluster_id") != cluster_id)
            stop = stop | other
            message = F.when(
                other,
                F.concat(
                    F.lit(f"the settings expect cluster id {cluster_id} for {cluster}, the cluster says "),
                    F.col("cluster_id"),
                    F.lit(f"; correct clusters.{cluster}.cluster_id or its bootstrap_servers"),
                ),
            ).otherwise(message)
        declared = F.col("decision").isNotNull() & (F.col("decision") != Decision.UNMANAGED.value)
        return decisions.transform(_stopped(declared & stop, Refusal.CLUSTER_ID_MISMATCH, message))

    return transform


def max_deletes(most: int) -> Transform:
    """All deletes of a cluster are stopped where there are more than `most` of them; creates go on.

    In and out: `decide.COLUMNS`. Deletes that a policy refused don't count.
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
