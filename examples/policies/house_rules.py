"""Policies of one's own: the house rules of an imaginary company. docs/policies.md shows how to use them.

In the settings each is `house_rules:` and the function's name; the function's parameters are its settings, checked
against their annotations. The job must find the module: install it, or pass it to spark-submit with --py-files.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from topicledger.policies import Facts, SetRule


def retention_by_tier(*, days: Mapping[str, int]) -> Column:
    """A topic keeps its records for at most a number of days, by its label `tier`."""
    if not days:
        raise ValueError("name at least one tier")
    milliseconds = F.create_map(*(F.lit(part) for tier, most in days.items() for part in (tier, most * 86_400_000)))
    tier = F.col("labels")["tier"]
    declared = F.col("configs")["retention.ms"].try_cast("bigint")
    return F.when(
        milliseconds[tier].isNull(), F.concat(F.lit("has no label tier; one of "), F.lit(", ".join(days)))
    ).when(
        (declared < 0) | (declared > milliseconds[tier]),
        F.concat(
            F.lit("keeps records longer than tier "),
            tier,
            F.lit(" allows; retention.ms is at most "),
            milliseconds[tier],
        ),
    )


def new_topics_per_owner(*, max: int) -> SetRule:
    """A run creates at most `max` topics for an owner on a cluster: the first by name."""

    def rule(topics: DataFrame, facts: Facts) -> DataFrame:
        # A topic that another rule has refused already doesn't count: see `open`.
        create = (F.col("decision") == "create") & F.col("open")
        before = Window.partitionBy("cluster", "owner").orderBy("topic").rowsBetween(Window.unboundedPreceding, -1)
        already = F.coalesce(F.count_if(create).over(before), F.lit(0))
        message = F.concat(F.lit(f"one run creates at most {max} topics for "), "owner", F.lit("; run again"))
        return topics.withColumn("reason", F.when(already >= max, message))

    return rule
