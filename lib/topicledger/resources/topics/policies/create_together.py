"""Policies for creates that evaluate several topics together; see `create`."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from topicledger.manifests.owners import owner_key
from topicledger.model import Action, Refusal
from topicledger.policies.built_in import always_on, built_in
from topicledger.policies.contract import (
    MAKE_PARTITIONS,
    Facts,
    SetRule,
    added_replicas,
    is_move,
    is_one_of_actions,
    listed,
    not_known,
    owned,
    partitions,
    replicas,
    text,
    without_owner,
)

_MAX_COUNT = 2**31 - 1
"""Kafka's own limit, an int32: no sum of such products overflows a bigint."""


@built_in(Action.CREATE)
def distinct_racks() -> SetRule:
    """If assignments are given, the replicas of each partition are in distinct racks."""

    def rule(topics: DataFrame, facts: Facts) -> DataFrame:
        racks = facts.brokers.groupBy("cluster").agg(
            F.map_from_entries(F.collect_list(F.struct("broker_id", "rack"))).alias("_racks")
        )
        rows = topics.join(F.broadcast(racks), on="cluster", how="left")
        brokers = F.array_distinct(F.flatten(F.map_values("assignments")))
        homeless = F.filter(brokers, lambda broker: F.col("_racks")[broker].isNull())
        shared = F.map_keys(
            F.map_filter(
                "assignments",
                lambda _, replicas: (
                    F.size(F.array_distinct(F.transform(replicas, lambda b: F.col("_racks")[b]))) < F.size(replicas)
                ),
            )
        )
        crowded = F.transform(shared, lambda partition: partition.cast("string"))
        of_brokers = F.map_filter("_racks", lambda broker, _: F.array_contains(brokers, broker))
        return rows.withColumns(
            {
                "reason": F.when(
                    F.size(homeless) > 0,
                    text("no rack is known of brokers ", listed(homeless.cast("array<string>")), "; give them one"),
                ).when(
                    F.size(shared) > 0,
                    text("replicas share a rack in partitions ", listed(crowded), "; give each replica its own rack"),
                ),
                "inputs": text("racks of its brokers: ", F.to_json(of_brokers)),
            }
        )

    return rule


@always_on(Action.CREATE, Refusal.NAME_COLLISION)
def name_collision() -> SetRule:
    """The topic's metric names collide with no other create and no live topic (C16)."""

    def rule(topics: DataFrame, facts: Facts) -> DataFrame:
        alike = Window.partitionBy("cluster", F.translate("topic", ".", "_"))
        creates = F.when((F.col("decision") == Action.CREATE.value) & F.col("open"), F.col("topic"))
        # A topic that may exist counts.
        lives = F.when(F.coalesce("live", F.lit(True)), F.col("topic"))
        others = F.array_except(
            F.array_union(F.collect_set(creates).over(alike), F.collect_set(lives).over(alike)), F.array("topic")
        )
        reason = F.when(
            F.size(others) > 0,
            text(
                "in metric names '.' and '_' are the same, so it collides with ",
                listed(others),
                "; choose a name that differs otherwise",
            ),
        )
        return topics.withColumns({"reason": reason, "inputs": text("topic ", F.col("topic"))})

    return rule


@built_in(Action.CREATE, growth=True, full_sight=True)
def partition_budget(*, max: int) -> SetRule:
    """A cluster has at most `max` partitions: those that exist, less what this run deletes, and what it creates."""
    _limited(max)
    return _budget(
        keys=(F.col("cluster"),),
        what="partitions",
        of=text("cluster ", F.col("cluster")),
        need=partitions(),
        used=F.col("live_num_partitions"),
        limit=F.lit(max),
        unknown=not_known("num_partitions", partitions()),
    )


@built_in(Action.CREATE, growth=True, moves=True, full_sight=True)
def replicas_per_broker(*, max: int) -> SetRule:
    """The brokers of a cluster that are up have at most `max` replicas each, on average (C20).

    Moves that add replicas come after all creates, in the order of their topics' names; deletes make no room for them.
    """
    _limited(max)
    budget = _budget(
        keys=(F.col("cluster"),),
        what="replicas",
        of=text("cluster ", F.col("cluster"), " with ", F.col("_brokers"), f" brokers, {max} on average,"),
        need=partitions().cast("bigint") * replicas(),
        used=F.col("live_num_partitions").cast("bigint") * F.col("live_replication_factor"),
        limit=F.col("_brokers") * max,
        moved=added_replicas(),
        unknown=F.coalesce(
            F.when(F.col("_brokers").isNull(), F.lit("no broker of the cluster is known")),
            F.when(~is_move(), not_known("num_partitions", partitions())),
            F.when(~is_move(), not_known("replication_factor", replicas())),
        ),
    )

    def rule(topics: DataFrame, facts: Facts) -> DataFrame:
        brokers = facts.brokers.groupBy("cluster").agg(F.count(F.lit(1)).alias("_brokers"))
        return budget(topics.join(F.broadcast(brokers), on="cluster", how="left"), facts)

    return rule


@built_in(Action.CREATE)
def topics_per_owner(*, max: int, require_owner: bool = False) -> SetRule:
    """An owner has at most `max` topics on a cluster, with those that exist.

    A topic without an owner has no limit; with `require_owner` it is not created.
    """
    _limited(max)
    return _budget(
        keys=(F.col("cluster"), owner_key(F.col("owner"))),
        what="topics",
        of=text("owner ", F.col("owner"), " on ", F.col("cluster")),
        need=F.lit(1),
        used=F.lit(1),
        limit=F.when(owned(), F.lit(max)),
        ownerless=without_owner("topics") if require_owner else None,
    )


@built_in(Action.CREATE, growth=True)
def partitions_per_owner(*, max: int, require_owner: bool = False) -> SetRule:
    """An owner has at most `max` partitions on a cluster, with those that exist.

    A topic without an owner has no limit; with `require_owner` it is not created.
    """
    _limited(max)
    return _budget(
        keys=(F.col("cluster"), owner_key(F.col("owner"))),
        what="partitions",
        of=text("owner ", F.col("owner"), " on ", F.col("cluster")),
        need=partitions(),
        used=F.col("live_num_partitions"),
        limit=F.when(owned(), F.lit(max)),
        unknown=F.when(owned(), not_known("num_partitions", partitions())),
        ownerless=without_owner("partitions") if require_owner else None,
    )


def _limited(most: int) -> None:
    if not 0 <= most <= _MAX_COUNT:
        raise ValueError(f"max must be from 0 to {_MAX_COUNT}")


def _budget(
    *,
    keys: Sequence[Column],
    what: str,
    of: Column,
    need: Column,
    used: Column,
    limit: Column,
    unknown: Column | None = None,
    ownerless: Column | None = None,
    moved: Column | None = None,
) -> SetRule:
    """Return a rule that allows at most `limit` of something for each of `keys`.

    Existing topics use the budget, and open deletes free it. Creates and growing topics take the rest in the order of
    their names. The first topic over the budget and all later ones are refused, even smaller ones: whether a topic is
    created must not depend on later ones. Refused topics use nothing. An unknown need uses nothing until validate
    returns it. `moved`: the need of a move; if given, a topic may have a second row for its move.
    """
    in_order = Window.partitionBy(*keys).orderBy("topic", F.col("decision").isNull())
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    # A total needs no order, but in the same order Spark sorts once for all of them.
    together = in_order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    # A planned create that exists already is counted as existing, and needs nothing more. A growing topic needs the
    # difference.
    grows = F.coalesce(F.col("decision") == Action.ADD_PARTITIONS.value, F.lit(False))
    moves = F.lit(False) if moved is None else F.coalesce(moved > 0, F.lit(False))
    new = ~F.coalesce(F.col("live"), F.lit(False)) | grows | moves
    needed = F.when(grows, need.cast("bigint") - used.cast("bigint")).otherwise(need.cast("bigint"))
    if moved is not None:
        needed = F.when(moves, moved).otherwise(needed)
    move = moves & F.col("open")
    # A row beside a skipped copy of it, or beside the topic's move, is the same topic: count it once. The rows of a
    # topic are adjacent, and the one that is decided on comes first.
    lives = F.col("live") & ~F.lag("topic").over(in_order).eqNullSafe(F.col("topic"))
    create = is_one_of_actions(MAKE_PARTITIONS) & F.col("open") & new
    delete = (F.col("decision") == Action.DELETE.value) & F.col("open")

    def total(amount: Column, where: Column, window: WindowSpec = together) -> Column:
        return F.coalesce(F.sum(F.when(where, amount.cast("bigint"))).over(window), F.lit(0))

    def rule(topics: DataFrame, facts: Facts) -> DataFrame:
        rows = topics.withColumns(
            {
                "_need": F.when(new, needed).otherwise(F.lit(0)),
                "_limit": limit.cast("bigint"),
                "_lives": lives,
            }
        )
        taken = total(needed, create, before)
        if moved is not None:
            # Creates were accepted before moves, and take the budget first.
            taken = F.when(moves, total(needed, create) + total(needed, move, before)).otherwise(taken)
        rows = rows.withColumns(
            {
                "_used": total(used, F.col("_lives")),
                "_freed": total(used, F.col("_lives") & delete),
                "_before": taken,
            }
        ).withColumn("_wanted", F.col("_used") + F.col("_before") + F.col("_need"))
        takers, freed = F.lit("creates"), F.col("_freed")
        if moved is not None:
            # No move waits for a delete.
            freed = F.when(moves, 0).otherwise(freed)
            takers = F.when(moves, F.lit("creates, and by moves")).otherwise(takers)
        count = text(
            of,
            " may have ",
            F.col("_limit"),
            f" {what}: ",
            F.col("_used"),
            " exist, ",
            freed,
            " are freed by deletes, ",
            F.col("_before"),
            " are taken by ",
            takers,
            " before it by name, it needs ",
            F.coalesce(F.col("_need").cast("string"), F.lit("an unknown number")),
            "; left are ",
            F.greatest(F.lit(0), F.col("_limit") - F.col("_used") + freed - F.col("_before")),
        )
        fits = F.col("_wanted") - freed <= F.col("_limit")
        over = F.when(new & ~fits, count)
        return rows.withColumns(
            {
                "reason": over if ownerless is None else F.coalesce(F.when(new, ownerless), over),
                "unjudgeable": F.when(new, unknown if unknown is not None else F.lit(None).cast("string")),
                "needs_freed": new & fits & (F.col("_wanted") > F.col("_limit")),
                "inputs": count,
            }
        )

    return rule
