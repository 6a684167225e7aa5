"""The built-in policies for creates. Each factory's parameters are its settings; a bad value is a ValueError."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from topicledger.config import patterns as re2
from topicledger.kafka.config_values import BLANKS, same_value_column
from topicledger.manifests.owners import is_one_of, owner_key
from topicledger.model import Action
from topicledger.policies.contract import (
    Facts,
    FullSight,
    RowRule,
    SetRule,
    config,
    listed,
    not_known,
    owned,
    partitions,
    replicas,
    text,
    without_owner,
)

_UNLIMITED = frozenset({"retention.ms", "retention.bytes"})
"""Configs of which -1 means without limit (Kafka's topic configs)."""
_NUMBER = "decimal(38,9)"
_MAX_COUNT = 2**31 - 1
"""Kafka's own limit, an int32: no sum of such products overflows a bigint."""
_MAX_CONFIG = 2**63 - 1


def topic_name_pattern(*, pattern: str) -> RowRule:
    """The topic's name has a match of `pattern` (RE2; anywhere unless anchored)."""
    fits = re2.matches("topic", pattern)
    return RowRule(
        reason=F.when(~fits, text("the name does not match ", pattern)), inputs=text("topic ", F.col("topic"))
    )


def topic_name_prefix(*, of: str = "owner", separator: str = ".") -> RowRule:
    """The topic's name begins with its owner, or with the label that `of` names, and the separator.

    Blanks around the owner or label don't count; case does, as in Kafka's names.
    """
    if not of.strip() or not separator:
        raise ValueError("of and separator must not be empty")
    value = F.btrim(F.col("owner") if of == "owner" else F.col("labels")[of], F.lit(BLANKS))
    what = "owner" if of == "owner" else f"label {of}"
    reason = F.when(
        _blank(value), F.lit(f"the name must begin with the {what} and {separator!r}, and there is no {what}")
    ).when(
        ~F.startswith(F.col("topic"), F.concat(value, F.lit(separator))),
        text("the name must begin with ", value, separator, f", its {what}"),
    )
    return RowRule(reason=reason, inputs=text("topic ", F.col("topic"), f"; {what} ", value))


def num_partitions(*, min: int = 1, max: int | None = None) -> RowRule:
    """The number of partitions is from `min` to `max`, also where it is left to the broker."""
    return _count("num_partitions", partitions(), min, max)


def replication_factor(*, min: int = 1, max: int | None = None) -> RowRule:
    """The replication factor is from `min` to `max`, also where it is left to the broker."""
    return _count("replication_factor", replicas(), min, max)


def _count(name: str, value: Column, least: int, most: int | None) -> RowRule:
    if not 1 <= least <= _MAX_COUNT:
        raise ValueError(f"min must be from 1 to {_MAX_COUNT}")
    if most is not None and most > _MAX_COUNT:
        raise ValueError(f"max must be at most {_MAX_COUNT}")
    if most is not None and most < least:
        raise ValueError(f"max is {most}, below min {least}")
    allowed = f"allowed is {least} to {most}" if most is not None else f"allowed is {least} and more"
    broken = value < least if most is None else (value < least) | (value > most)
    return RowRule(
        reason=F.when(broken, text(f"{name} is ", value, _origin(name), f"; {allowed}")),
        unjudgeable=not_known(name, value),
        inputs=text(f"{name} ", value),
    )


def _origin(name: str) -> Column:
    return F.when(F.col("assignments").isNull() & F.col(name).isNull(), F.lit(", the broker's default")).otherwise("")


def configs_allowed(*, names: Sequence[str]) -> RowRule:
    """The manifest sets no other configs than these."""
    _some(names)
    others = F.array_except(F.map_keys("configs"), F.array(*map(F.lit, names)))
    return RowRule(
        reason=F.when(
            F.size(others) > 0, text("sets ", listed(others), "; allowed are only ", ", ".join(sorted(names)))
        ),
        inputs=_set_configs(),
    )


def configs_required(*, names: Sequence[str]) -> RowRule:
    """The manifest sets each of these configs, rather than to leave it to the broker."""
    _some(names)
    given = F.coalesce(F.map_keys("configs"), F.array().cast("array<string>"))
    missing = F.array_except(F.array(*map(F.lit, names)), given)
    return RowRule(
        reason=F.when(F.size(missing) > 0, text("does not set ", listed(missing), "; declare it in configs")),
        inputs=_set_configs(),
    )


def configs_forbidden(*, names: Sequence[str]) -> RowRule:
    """The manifest sets none of these configs."""
    _some(names)
    found = F.array_intersect(F.map_keys("configs"), F.array(*map(F.lit, names)))
    return RowRule(
        reason=F.when(F.size(found) > 0, text("sets ", listed(found), ", which is the broker's to set; leave it out")),
        inputs=_set_configs(),
    )


def _set_configs() -> Column:
    names = F.coalesce(F.map_keys("configs"), F.array().cast("array<string>"))
    return text("configs set: ", F.when(F.size(names) > 0, listed(names)).otherwise("none"))


def config_values(*, config: str, values: Sequence[str]) -> RowRule:
    """The config has one of these values, as Kafka reads them, also where it is left to the broker."""
    _some(values)
    value = _config(config)
    same = (same_value_column(F.lit(config), value, F.lit(each)) for each in values)
    broken = ~reduce(lambda one, other: one | other, same)
    shown = ", ".join(map(repr, values))
    return RowRule(
        reason=F.when(
            value.isNotNull() & broken, text(f"{config} is ", value, _config_origin(config), f"; allowed is {shown}")
        ),
        unjudgeable=not_known(config, value),
        inputs=text(f"{config} ", value),
    )


def config_range(*, config: str, min: int | float | None = None, max: int | float | None = None) -> RowRule:
    """The numeric config is from `min` to `max`, also where it is left to the broker.

    -1 of retention.ms and retention.bytes is without limit: above any `max`.
    """
    if min is None and max is None:
        raise ValueError("give min, max or both")
    if any(each is not None and not abs(each) <= _MAX_CONFIG for each in (min, max)):
        raise ValueError(f"min and max must be numbers from -{_MAX_CONFIG} to {_MAX_CONFIG}")
    if min is not None and max is not None and max < min:
        raise ValueError(f"max is {max}, below min {min}")
    value = _config(config)
    number = F.trim(value).try_cast(_NUMBER)
    endless = (number == -1) if config in _UNLIMITED else F.lit(False)
    too_low = ~endless & (number < F.lit(Decimal(str(min))).cast(_NUMBER)) if min is not None else F.lit(False)
    too_high = (endless | (number > F.lit(Decimal(str(max))).cast(_NUMBER))) if max is not None else F.lit(False)
    allowed = f"allowed is {'any' if min is None else min} to {'any' if max is None else max}"
    of = _config_origin(config)
    return RowRule(
        reason=F.when(value.isNotNull() & number.isNull(), text(f"{config} is ", value, f", not a number; {allowed}"))
        .when(endless & too_high, text(f"{config} is -1, without limit", of, f"; {allowed}"))
        .when(too_low | too_high, text(f"{config} is ", value, of, f"; {allowed}")),
        unjudgeable=not_known(config, value),
        inputs=text(f"{config} ", value),
    )


def min_insync_replicas(*, spare: int = 1) -> RowRule:
    """min.insync.replicas leaves `spare` replicas to lose: it is at most the replication factor less `spare`."""
    if not 0 <= spare <= _MAX_COUNT:
        raise ValueError(f"spare must be from 0 to {_MAX_COUNT}")
    value = _config("min.insync.replicas")
    number, factor = value.try_cast("int"), replicas()
    unknown = F.coalesce(not_known("min.insync.replicas", value), not_known("replication_factor", factor))
    return RowRule(
        reason=F.when(
            value.isNotNull() & number.isNull(), text("min.insync.replicas is ", value, ", not a number")
        ).when(
            number > factor - spare,
            text(
                "min.insync.replicas is ",
                value,
                _config_origin("min.insync.replicas"),
                " with replication factor ",
                factor,
                F.when(factor > spare, text(f"; {spare} below the factor is allowed: ", factor - spare)).otherwise(
                    f"; give it a replication factor of {spare + 1} or more"
                ),
            ),
        ),
        unjudgeable=unknown,
        inputs=text("min.insync.replicas ", value, "; replication_factor ", factor),
    )


def _config(name: str) -> Column:
    if not name.strip():
        raise ValueError("config must not be empty")
    return config(name)


def _config_origin(name: str) -> Column:
    return F.when(F.col("configs")[name].isNull(), F.lit(", the broker's default")).otherwise("")


def owner_required(*, values: Sequence[str] = ()) -> RowRule:
    """The topic has an owner, one of `values` where given; blanks around an owner and its case don't count."""
    known = f"; one of {', '.join(sorted(values))}" if values else "; declare the team or service it belongs to"
    reason = F.when(~owned(), F.lit(f"has no owner{known}"))
    if values:
        reason = reason.when(~is_one_of(F.col("owner"), tuple(values)), text("owner is ", F.col("owner"), known))
    return RowRule(reason=reason, inputs=text("owner ", F.col("owner")))


def labels_required(*, names: Sequence[str], values: Sequence[str] = ()) -> RowRule:
    """The topic has each of these labels, with one of `values` where given."""
    _some(names)
    wrong = F.concat_ws(", ", *(_wrong_label(name, values) for name in names))
    allowed = f"; allowed is {', '.join(sorted(values))}" if values else ""
    return RowRule(
        reason=F.when(wrong != "", text("label ", wrong, allowed)),
        inputs=text(*(part for name in names for part in (f"{name} ", F.col("labels")[name], " "))),
    )


def _wrong_label(name: str, values: Sequence[str]) -> Column:
    value = F.col("labels")[name]
    wrong = F.when(_blank(value), F.lit(f"{name} is missing"))
    return wrong.when(~value.isin(*values), text(f"{name} is ", value)) if values else wrong


def _blank(value: Column) -> Column:
    return value.isNull() | (F.trim(value) == "")


def _some(names: Sequence[str]) -> None:
    if not names or not all(name.strip() for name in names):
        raise ValueError("give at least one, none of them empty")


def distinct_racks() -> SetRule:
    """Where assignments are given, the replicas of one partition are in distinct racks."""

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


def name_collision() -> SetRule:
    """The topic's metric names collide with no other create and no live topic (C16)."""

    def rule(topics: DataFrame, facts: Facts) -> DataFrame:
        alike = Window.partitionBy("cluster", F.translate("topic", ".", "_"))
        creates = F.when((F.col("decision") == Action.CREATE.value) & F.col("open"), F.col("topic"))
        lives = F.when(F.col("live"), F.col("topic"))
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


def partition_budget(*, max: int) -> SetRule:
    """A cluster has at most `max` partitions: those that exist, less what this run deletes, and what it creates."""
    _limited(max)
    budget = _budget(
        keys=(F.col("cluster"),),
        what="partitions",
        of=text("cluster ", F.col("cluster")),
        need=partitions(),
        used=F.col("live_num_partitions"),
        limit=F.lit(max),
        unknown=not_known("num_partitions", partitions()),
    )
    return FullSight(budget)


def replicas_per_broker(*, max: int) -> SetRule:
    """The brokers of a cluster that are up have at most `max` replicas each, on the average (C20)."""
    _limited(max)
    budget = _budget(
        keys=(F.col("cluster"),),
        what="replicas",
        of=text("cluster ", F.col("cluster"), " with ", F.col("_brokers"), f" brokers, {max} on the average,"),
        need=partitions().cast("bigint") * replicas(),
        used=F.col("live_num_partitions").cast("bigint") * F.col("live_replication_factor"),
        limit=F.col("_brokers") * max,
        unknown=F.coalesce(
            F.when(F.col("_brokers").isNull(), F.lit("no broker of the cluster is known")),
            not_known("num_partitions", partitions()),
            not_known("replication_factor", replicas()),
        ),
    )

    def rule(topics: DataFrame, facts: Facts) -> DataFrame:
        brokers = facts.brokers.groupBy("cluster").agg(F.count(F.lit(1)).alias("_brokers"))
        return budget(topics.join(F.broadcast(brokers), on="cluster", how="left"), facts)

    return FullSight(rule)


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
) -> SetRule:
    """At most `limit` of something for each of `keys`: what lives uses it, an open delete frees it.

    Creates take what is left in the order of their names. The first create over the budget and all later ones are
    refused, even smaller ones: which topics are created must not depend on what is asked for after them. Refused
    topics use nothing. A need that isn't known yet uses nothing until validate returns it.
    """
    in_order = Window.partitionBy(*keys).orderBy("topic")
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    # A total needs no order, but in the same order Spark sorts once for all of them.
    together = in_order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    # A planned create that lives already is counted there, and needs nothing more.
    new = ~F.coalesce(F.col("live"), F.lit(False))
    create = (F.col("decision") == Action.CREATE.value) & F.col("open") & new
    delete = (F.col("decision") == Action.DELETE.value) & F.col("open")

    def total(amount: Column, where: Column, window: WindowSpec = together) -> Column:
        return F.coalesce(F.sum(F.when(where, amount.cast("bigint"))).over(window), F.lit(0))

    def rule(topics: DataFrame, facts: Facts) -> DataFrame:
        rows = topics.withColumns(
            {
                "_need": F.when(F.col("live"), F.lit(0)).otherwise(need.cast("bigint")),
                "_limit": limit.cast("bigint"),
                "_used": total(used, F.col("live")),
                "_freed": total(used, F.col("live") & delete),
                "_before": total(need, create, before),
            }
        ).withColumn("_wanted", F.col("_used") + F.col("_before") + F.col("_need"))
        count = text(
            of,
            " may have ",
            F.col("_limit"),
            f" {what}: ",
            F.col("_used"),
            " exist, ",
            F.col("_freed"),
            " are freed by deletes, ",
            F.col("_before"),
            " are taken by creates before it by name, it needs ",
            F.coalesce(F.col("_need").cast("string"), F.lit("an unknown number")),
            "; left are ",
            F.greatest(F.lit(0), F.col("_limit") - F.col("_used") + F.col("_freed") - F.col("_before")),
        )
        fits = F.col("_wanted") - F.col("_freed") <= F.col("_limit")
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
