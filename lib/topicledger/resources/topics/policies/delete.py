"""The built-in policies for deletes. Each factory's parameters are its settings; a bad value is a ValueError."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from topicledger.config import patterns as re2
from topicledger.ledger.sql import iso_times
from topicledger.manifests.legible import is_legible
from topicledger.manifests.meant import clusters_meant, has_cluster, with_meant
from topicledger.manifests.owners import owner_key
from topicledger.manifests.rows import Transform
from topicledger.manifests.terms import field, visible
from topicledger.model import Action
from topicledger.model.prune import MAX_DAYS
from topicledger.model.renames import END_OFFSET
from topicledger.policies.built_in import always_on, built_in
from topicledger.policies.common import owner_required
from topicledger.policies.contract import Facts, RowRule, SetRule, listed, owned, text, without_owner


@always_on(Action.DELETE)
def internal_topic() -> RowRule:
    """Topics that Kafka flags as internal are never deleted (D9)."""
    return RowRule(
        reason=F.when(
            F.col("internal"),
            text(F.col("topic"), " is internal to Kafka and is never deleted; remove it from the manifests"),
        ),
        inputs=text("internal ", F.col("internal")),
    )


def with_users(usages: DataFrame, clusters: Collection[str], now: datetime) -> Transform:
    """Add who uses topics by entries of `usages` that haven't expired, `_consumers`. Add `_unreadable` (string).

    `_unreadable` is the reason to keep a topic if an entry names one that can't be read, and may mean this one. An
    entry whose cluster isn't in `clusters` may mean each of them.
    """
    current = usages.where(F.col("valid_until").isNull() | (F.col("valid_until") > F.lit(now)))
    consumer = F.coalesce("consumer", F.lit("somebody unnamed"))
    cluster, topic = (visible(field(name)).column() for name in ("cluster", "topic"))
    anywhere = text(consumer, " (by a row for cluster ", cluster, ", which the settings don't have)")
    row = text("cluster ", cluster, ", topic ", topic, ", consumer ", consumer)
    rows = current.select(
        clusters_meant(clusters),
        "topic",
        F.when(has_cluster(clusters), consumer).otherwise(anywhere).alias("_consumer"),
        F.when(~is_legible(), row).alias("_row"),
    )
    named = rows.where("_row IS NULL").groupBy("cluster", "topic").agg(F.collect_set("_consumer").alias("_consumers"))
    why = text("a row of usages can't be read and may mean it: ", F.min("_row"))
    unreadable = rows.where("_row IS NOT NULL").groupBy("cluster").agg(why.alias("_unreadable"))
    return with_meant(named, unreadable)


@built_in(Action.DELETE)
def in_use() -> SetRule:
    """A topic that the table `usages` names is not deleted, unless each entry has expired (P2).

    Nor are topics that an entry may mean: see `with_users`.
    """

    def rule(topics: DataFrame, facts: Facts) -> DataFrame:
        users, unreadable = F.col("_consumers"), F.col("_unreadable")
        return topics.transform(with_users(facts.usages, facts.clusters, facts.now)).withColumns(
            {
                "reason": F.when(
                    users.isNotNull(), text("is in use by ", listed(users), "; delete it when their usages have ended")
                ).when(unreadable.isNotNull(), text("may be in use: ", unreadable, "; correct that row")),
                "inputs": F.when(users.isNotNull(), text("used by ", listed(users))).otherwise(
                    F.coalesce(unreadable, F.lit("used by nobody"))
                ),
            }
        )

    return rule


@built_in(Action.DELETE)
def protected_topics(*, patterns: Sequence[str]) -> RowRule:
    """Topics whose name has a match of one of `patterns` (RE2; anywhere unless anchored) are never deleted."""
    if not patterns:
        raise ValueError("give at least one pattern")
    protecting = [F.when(re2.matches("topic", pattern), F.lit(pattern)) for pattern in patterns]
    return RowRule(
        reason=F.when(
            F.coalesce(*protecting).isNotNull(),
            text("is protected by ", F.concat_ws(", ", *protecting), "; remove it from the manifests, or the pattern"),
        ),
        inputs=text("topic ", F.col("topic")),
    )


built_in(Action.DELETE)(owner_required)


@built_in(Action.DELETE)
def no_consumer_groups() -> SetRule:
    """A topic is not deleted if consumer groups have committed offsets or members for it. Asks the cluster."""

    def rule(topics: DataFrame, facts: Facts) -> DataFrame:
        live = F.when(F.col("members") == 1, F.lit("1 member")).otherwise(text(F.col("members"), " members"))
        empty = F.lit("no members, but committed offsets")
        group = text(F.col("group"), " (", F.when(F.col("members") > 0, live).otherwise(empty), ")")
        groups = (
            facts.consumer_groups(_asked(topics))
            .groupBy("cluster", "topic")
            .agg(
                F.collect_list(F.when(F.col("group").isNotNull(), group)).alias("_all"),
                F.collect_set("group").alias("_groups"),
                F.first("error", ignorenulls=True).alias("_error"),
            )
        )
        return topics.join(groups, on=["cluster", "topic"], how="left").withColumns(
            {
                "reason": F.when(
                    F.size("_groups") > 0,
                    text("is used by consumer groups: ", listed(F.col("_all")), "; delete it when they are gone"),
                ),
                "unjudgeable": F.col("_error"),
                "inputs": text(
                    "groups: ",
                    F.when(F.size("_groups") > 0, listed(F.col("_all")))
                    .when(F.col("_error").isNotNull(), F.lit("not known"))
                    .otherwise("none"),
                ),
            }
        )

    return rule


@built_in(Action.DELETE)
def no_recent_records(*, days: int) -> SetRule:
    """A topic whose last record came within `days` days is not deleted. Asks the cluster.

    Records that retention has removed can't be seen: a topic that keeps none counts as quiet.
    """
    return not_written_for(days)


def not_written_for(days: int, seen: Callable[[], DataFrame] | None = None) -> SetRule:
    """Return the rule of `no_recent_records`; with `seen`, also for topics that keep no records.

    `seen` returns earlier end offsets: cluster, topic, topic_id, end_offset, seen_since, seen_until. A topic whose
    end offset changed in the last `days` days isn't deleted: records may have old timestamps. If a topic without
    records has had the same end offset for `days` days, nobody wrote meanwhile; otherwise it can't be evaluated. A
    topic whose end offset differs from `before` isn't deleted, either.
    """
    if not 1 <= days <= MAX_DAYS:
        raise ValueError(f"days must be from 1 to {MAX_DAYS}")

    def rule(topics: DataFrame, facts: Facts) -> DataFrame:
        last = facts.last_records(_asked(topics)).select(
            "cluster", "topic", F.col("last_record_at").alias("_last"), "end_offset", F.col("error").alias("_error")
        )
        since = F.lit(facts.now - timedelta(days=days))
        rows = topics.join(last, on=["cluster", "topic"], how="left")
        unknown, changed = F.col("_error"), F.lit(None).cast("string")
        if seen is not None:
            rows = rows.transform(_with_earlier, seen())
            was, at = F.col("_other")["end_offset"], F.col("_other")["seen_until"]
            changed = F.when(
                at > since,
                text("its end offset was ", was, " at ", iso_times(at), ", now it is ", F.col("end_offset"),
                     f"; delete it after {days} quiet days"),
            )  # fmt: skip
            known = F.coalesce(F.col("seen_since") <= since, F.lit(False))
            unknown = F.when(
                F.col("end_offset").isNotNull() & F.col("_last").isNull() & ~known, _never_known(days, facts.now)
            )
            unknown = F.coalesce("_error", unknown)
        planned = F.col("before")[END_OFFSET].cast("long")
        return rows.withColumns(
            {
                "reason": F.when(
                    F.col("_last") > since,
                    text(
                        "its last record is from ",
                        iso_times(F.col("_last")),
                        f"; delete it after {days} quiet days",
                    ),
                )
                .when(
                    F.col("end_offset") != planned,
                    text(
                        "records came since it was planned: its end offset was ",
                        planned,
                        ", now it is ",
                        F.col("end_offset"),
                    ),
                )
                .otherwise(changed),
                "unjudgeable": unknown,
                "inputs": text("last record ", iso_times(F.col("_last"))),
            }
        )

    return rule


def _with_earlier(rows: DataFrame, seen: DataFrame) -> DataFrame:
    """Add `seen_since` of the topic's end offset, and `_other`, the last different one that was seen."""
    key, ends = ["cluster", "topic", "topic_id"], F.col("_ends")
    earlier = seen.groupBy(*key).agg(F.collect_list(F.struct("seen_until", "seen_since", "end_offset")).alias("_ends"))
    same = F.get(F.filter(ends, lambda each: each["end_offset"] == F.col("end_offset")), F.lit(0))
    other = F.array_max(F.filter(ends, lambda each: each["end_offset"] != F.col("end_offset")))
    return (
        rows.join(earlier, on=key, how="left")
        .withColumns({"seen_since": same["seen_since"], "_other": other})
        .drop("_ends")
    )


def _never_known(days: int, now: datetime) -> Column:
    """Return why it is unknown when a topic without records was last written to, and when to prune again."""
    since = F.coalesce("seen_since", F.lit(now))
    return text(
        "it keeps no records, so Kafka doesn't report when the last one came. Its end offset ", F.col("end_offset"),
        " was first seen at ", iso_times(since), ": if it is still the same at ",
        iso_times(since + F.make_interval(days=F.lit(days))),
        ", the topic was quiet for ", days, " days; prune again then",
    )  # fmt: skip


def _asked(topics: DataFrame) -> DataFrame:
    """Return the deletes about which a policy asks clusters: also refused ones, to report all problems (P3)."""
    return topics.where("asked").select("cluster", "topic")


@built_in(Action.DELETE)
def deletes_per_owner(*, max: int, require_owner: bool = False) -> SetRule:
    """A run deletes at most `max` topics of an owner on a cluster, the first by name.

    A topic without an owner has no limit; with `require_owner` it is not deleted.
    """
    if not 0 <= max <= 2**31 - 1:
        raise ValueError(f"max must be from 0 to {2**31 - 1}")
    return _cap(
        keys=(F.col("cluster"), owner_key(F.col("owner"))),
        limit=F.when(owned(), F.lit(max)),
        of=text("owner ", F.col("owner"), " on ", F.col("cluster")),
        ownerless=without_owner("deletes") if require_owner else None,
    )


@built_in(Action.DELETE)
def deletes_fraction(*, max: float) -> SetRule:
    """A run deletes at most the fraction `max` (0 to 1) of a cluster's topics, the first by name.

    Internal topics don't count; a fraction of a topic is none.
    """
    if not 0 <= max <= 1:
        raise ValueError("max must be from 0 to 1")
    # A count needs no order, but in that of _cap Spark sorts once for both.
    in_order = Window.partitionBy("cluster").orderBy("topic")
    together = in_order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    # A topic may have several rows: skipped copies, or one for its move.
    first = ~F.lag("topic").over(in_order).eqNullSafe(F.col("topic"))
    topics_alive = F.count_if(F.col("live") & ~F.col("internal") & F.col("_first")).over(together)
    # 0.29 * 100 is 28.999... in binary: a count is exact in decimal.
    limit = F.floor(topics_alive.cast("decimal(20,0)") * F.lit(str(max)).cast("decimal(18,12)"))
    cap = _cap(
        keys=(F.col("cluster"),), limit=limit, of=text("cluster ", F.col("cluster"), f", {max:g} of its topics,")
    )
    return lambda topics, facts: cap(topics.withColumn("_first", first), facts)


def _cap(*, keys: Sequence[Column], limit: Column, of: Column, ownerless: Column | None = None) -> SetRule:
    before = Window.partitionBy(*keys).orderBy("topic").rowsBetween(Window.unboundedPreceding, -1)
    delete = (F.col("decision") == Action.DELETE.value) & F.col("open")

    def rule(topics: DataFrame, facts: Facts) -> DataFrame:
        rows = topics.withColumns(
            {"_limit": limit.cast("bigint"), "_before": F.coalesce(F.count_if(delete).over(before), F.lit(0))}
        )
        count = text(
            "one run may delete ",
            F.col("_limit"),
            " topics of ",
            of,
            " and ",
            F.col("_before"),
            " come before it by name",
        )
        over = F.when(F.col("_before") >= F.col("_limit"), count)
        reason = over if ownerless is None else F.coalesce(ownerless, over)
        return rows.withColumns({"reason": reason, "inputs": count})

    return rule
