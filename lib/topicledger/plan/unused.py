"""Topics that audits with usage found unused, by the table `usage`; asks no cluster.

A topic is unused if, in every audit of some days, no group had live members on it and its end offset was the same. An
audit that couldn't tell doesn't count as unused, and neither does a topic that hasn't been observed for so long.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from topicledger.ledger.sql import iso_times
from topicledger.manifests.rows import PRESENT, Transform
from topicledger.policies.contract import Facts, SetRule, listed, text
from topicledger.policies.delete import consumers


def _live() -> Column:
    """Return the groups (array of names) that have members on a topic; null if they are unknown."""
    return F.transform(F.filter("groups", lambda each: each["members"] > 0), lambda each: each["group"])


def without_use(days: int, now: datetime) -> Transform:
    """Say of each topic whether it was used in the last `days` days before `now`.

    In: rows of `usage`. Out, one row per (cluster, topic): `used`, why it isn't known to be unused (null if it is),
    `audits`, the number of audits in these days, `seen_since`, the first one that read its end offset, and `bytes`.
    Audits of an earlier topic of the same name don't count.
    """
    start = now - timedelta(days=days)
    recent = F.col("observed_at") > F.lit(start)
    by_topic = Window.partitionBy("cluster", "topic").orderBy("observed_at")
    whole = by_topic.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    known = F.col("end_offset").isNotNull()
    unknown = F.when(
        recent & (F.col("groups").isNull() | ~known),
        text("at ", iso_times(F.col("observed_at")), ": ", _reason("groups", "end_offset")),
    )
    seen_since, end = F.col("seen_since"), F.col("_last_end")
    used = (
        F.when(F.col("topic_id").isNull(), F.lit("it has no topic id, so it may be another topic now"))
        .when(F.size("_groups") > 0, text("groups had members on it: ", listed(F.array_sort("_groups"))))
        .when(F.col("_unknown").isNotNull(), text("its use was unknown ", F.col("_unknown")))
        .when(F.col("audits") == 0, F.lit(f"no audit with usage observed it in the last {days} days"))
        .when(
            seen_since > F.lit(start),
            text(
                "the memory is too short: audits with usage observe it since ", iso_times(seen_since),
                f", and {days} days are complete at ", iso_times(seen_since + F.make_interval(days=F.lit(days))),
            ),
        )
        .when(
            F.col("_first_end") != end,
            text("records were written: its end offset was ", F.col("_first_end"), " and is ", end),
        )
    )  # fmt: skip
    # The last audit before these days tells from which end offset they started.
    before = F.max_by(F.when(~recent, F.col("end_offset")), F.when(~recent & known, F.col("observed_at")))
    return lambda usage: (
        usage.withColumn("_now", F.last("topic_id").over(whole))
        .where(F.col("topic_id").eqNullSafe(F.col("_now")))
        .groupBy("cluster", "topic", "topic_id")
        .agg(
            F.count_if(recent).alias("audits"),
            F.min(F.when(known, F.col("observed_at"))).alias("seen_since"),
            F.array_distinct(F.flatten(F.collect_list(F.when(recent, _live())))).alias("_groups"),
            F.max(unknown).alias("_unknown"),
            F.coalesce(before, F.min(F.when(recent, F.col("end_offset")))).alias("_first_end"),
            F.max(F.when(recent, F.col("end_offset"))).alias("_last_end"),
            F.max_by("bytes", "observed_at").alias("bytes"),
        )
        .select("cluster", "topic", "audits", "seen_since", "bytes", used.alias("used"))
    )


def _reason(*columns: str) -> Column:
    reasons = (F.when(F.col(each).isNull(), F.col("reasons")[each]) for each in columns)
    return F.coalesce(*reasons, F.lit("the audit gave no reason"))


def declared_without_use(
    manifests: DataFrame, usage: DataFrame, usages: DataFrame, days: int, now: datetime
) -> DataFrame:
    """Return the declared topics with the columns of `without_use`: cluster, topic, owner, labels, audits, used...

    `usages`: a topic that it names stays, unless the entry has expired.
    """
    declared = (
        manifests.groupBy("cluster", "topic")
        .agg(
            F.min("owner").alias("owner"),
            F.any_value("labels").alias("labels"),
            F.bool_and(F.col("state").eqNullSafe(F.lit(PRESENT))).alias("_present"),
        )
        .where(F.col("_present") & F.col("topic").isNotNull())
    )
    users = F.array_sort("_consumers")
    named = F.when(F.col("_consumers").isNotNull(), text("the table usages names ", listed(users)))
    never = F.when(F.col("audits").isNull(), F.lit("no audit with usage has observed it"))
    key = ["cluster", "topic"]
    return (
        declared.drop("_present")
        .join(usage.transform(without_use(days, now)), on=key, how="left")
        .join(consumers(usages, now), on=key, how="left")
        .withColumn("used", F.coalesce(named, never, F.col("used")))
        .drop("_consumers")
    )


def no_live_groups_in_audits(days: int, usage: DataFrame) -> SetRule:
    """Return a rule: a topic on which a group had members in an audit of the last `days` days is not deleted."""

    def rule(topics: DataFrame, facts: Facts) -> DataFrame:
        recent = F.col("observed_at") > F.lit(facts.now - timedelta(days=days))
        seen = (
            usage.where(recent & F.col("topic_id").isNotNull())
            .groupBy("cluster", "topic", "topic_id")
            .agg(
                F.array_sort(F.array_distinct(F.flatten(F.collect_list(_live())))).alias("_groups"),
                F.max(F.when(F.size(_live()) > 0, F.col("observed_at"))).alias("_at"),
            )
            .where(F.size("_groups") > 0)
        )
        return topics.join(seen, on=["cluster", "topic", "topic_id"], how="left").withColumns(
            {
                "reason": F.when(
                    F.col("_at").isNotNull(),
                    text("groups had members on it in audits of the last ", f"{days} days: ", listed(F.col("_groups")),
                         ", at last at ", iso_times(F.col("_at"))),
                ),
                "inputs": text("groups in audits: ", F.coalesce(listed(F.col("_groups")), F.lit("none"))),
            }
        )  # fmt: skip

    return rule
