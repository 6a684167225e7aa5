"""Topics that audits with usage found unused, by the table `usage`; asks no cluster.

A topic is unused if, in all audits of some days that could tell, no group had live members on it and its end offset was
the same.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from topicledger.ledger.sql import iso_times
from topicledger.manifests.row_rules import PRESENT
from topicledger.manifests.rows import Transform
from topicledger.policies.contract import Facts, SetRule, listed, text
from topicledger.resources.topics.policies.delete import with_users

TOOLS_OWN = "_"
"""Prefix of topics in which tools keep their own data, such as `_schemas`: not all of them are internal."""
NEVER_PRUNED = f"its name begins with {TOOLS_OWN}: tools keep their own data in such topics, and prune leaves them"
FRESH_DAYS = 2
"""Greatest age of the last audit that could tell."""


def _live() -> Column:
    """Return the groups (array of names) that have members on a topic; null if they are unknown."""
    return F.transform(
        F.filter("groups", lambda each: F.coalesce(each["members"], F.lit(1)) > 0), lambda each: each["group"]
    )


def without_use(days: int, now: datetime) -> Transform:
    """Say of each topic whether it was used in the `days` days before the last audit that could tell.

    In: rows of `usage`. Out, one row per (cluster, topic): `topic_id`, `used`, why it isn't known to be unused (null if
    it is), `audits`, the number of audits in these days, `seen_since` and `seen_until`, the first and the last one that
    could tell, and `bytes`. Audits of an earlier topic of the same name don't count. An audit that couldn't tell shows
    neither use nor none; most of the audits must tell.
    """
    by_topic = Window.partitionBy("cluster", "topic").orderBy("observed_at")
    whole = by_topic.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    tells = F.col("groups").isNotNull() & F.col("end_offset").isNotNull()
    start = F.coalesce("seen_until", F.lit(now)) - F.make_interval(days=F.lit(days))
    recent = F.col("observed_at") > start
    reason = F.when(~tells, text("at ", iso_times(F.col("observed_at")), ": ", _reason("groups", "end_offset")))
    end = F.col("end_offset")
    # The last audit before these days tells from which end offset they started.
    before = F.max_by(F.when(~recent, end), F.when(~recent & end.isNotNull(), F.col("observed_at")))
    first = F.coalesce(before, F.min_by(F.when(recent, end), F.when(recent & end.isNotNull(), F.col("observed_at"))))
    unknown = F.when(F.col("_unknown").isNotNull(), text("its use was unknown ", F.col("_unknown")))
    used = (
        F.when(F.startswith("topic", F.lit(TOOLS_OWN)), F.lit(NEVER_PRUNED))
        .when(F.col("topic_id").isNull(), F.lit("it has no topic id, so it may be another topic now"))
        .when(F.size("_groups") > 0, text("groups had members on it: ", listed(F.array_sort("_groups"))))
        .when(
            F.size("_ends") > 0,
            text("records were written or lost: its end offset was ", F.col("_first_end"), " and became ",
                 listed(F.transform("_ends", lambda each: each.cast("string")))),
        )
        .when(
            F.col("seen_until").isNull() | (2 * F.col("_unknown_audits") >= F.col("audits")),
            F.coalesce(unknown, F.lit("no audit could tell whether it is used")),
        )
        .when(
            F.col("seen_until") <= F.lit(now - timedelta(days=FRESH_DAYS)),
            F.coalesce(
                unknown,
                text("the last audit with usage observed it at ", iso_times(F.col("seen_until")),
                     f", more than {FRESH_DAYS} days ago"),
            ),
        )
        .when(
            F.col("seen_since") > start,
            text(
                "the memory is too short: audits with usage observe it since ", iso_times(F.col("seen_since")),
                f", and {days} days are complete at ",
                iso_times(F.col("seen_since") + F.make_interval(days=F.lit(days))),
            ),
        )
    )  # fmt: skip
    return lambda usage: (
        usage.withColumn("_now", F.last("topic_id").over(whole))
        .where(F.col("topic_id").eqNullSafe(F.col("_now")))
        .withColumn("seen_until", F.max(F.when(tells, F.col("observed_at"))).over(whole))
        .groupBy("cluster", "topic", "topic_id", "seen_until")
        .agg(
            F.count_if(recent).alias("audits"),
            F.count_if(recent & ~tells).alias("_unknown_audits"),
            F.min(F.when(tells, F.col("observed_at"))).alias("seen_since"),
            F.array_distinct(F.flatten(F.collect_list(F.when(recent, _live())))).alias("_groups"),
            F.max(F.when(recent, reason)).alias("_unknown"),
            first.alias("_first_end"),
            F.array_sort(F.collect_set(F.when(recent, end))).alias("_seen_ends"),
            F.max_by("bytes", "observed_at").alias("bytes"),
        )
        .withColumn("_ends", F.array_except("_seen_ends", F.array("_first_end")))
        .select("cluster", "topic", "topic_id", "audits", "seen_since", "seen_until", "bytes", used.alias("used"))
    )


def _reason(*columns: str) -> Column:
    reasons = (F.when(F.col(each).isNull(), F.col("reasons")[each]) for each in columns)
    return F.coalesce(*reasons, F.lit("the audit gave no reason"))


def declared_without_use(
    manifests: DataFrame,
    usage: DataFrame,
    usages: DataFrame,
    observed: DataFrame,
    days: int,
    now: datetime,
    clusters: Collection[str],
) -> DataFrame:
    """Return the declared topics with the columns of `without_use`: cluster, topic, owner, labels, audits, used...

    `usages`: a topic that it names stays, unless the entry has expired. `observed`: the live topics, as last seen.
    `clusters`: names of the settings' clusters.
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
    recreated = F.when(~F.col("_live_id").eqNullSafe(F.col("topic_id")), F.lit("it was recreated, or deleted, since"))
    key = ["cluster", "topic"]
    live = observed.select(*key, F.col("topic_id").alias("_live_id"))
    return (
        declared.drop("_present")
        .join(usage.transform(without_use(days, now)), on=key, how="left")
        .transform(with_users(usages, clusters, now))
        .join(live, on=key, how="left")
        .withColumn("used", F.coalesce(named, F.col("_unreadable"), never, recreated, F.col("used")))
        .drop("_consumers", "_unreadable", "topic_id", "_live_id")
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
