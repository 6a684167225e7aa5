"""Effects of changes of topics: of configs, by their catalogue, and of counts of partitions and replicas.

`guards.max_losses` and `guards.max_disruptions` count them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.actions.showing import EMPTY
from topicledger.kafka.config_values import parts_column, plain_number, trimmed
from topicledger.ledger.rows import read_moves
from topicledger.model import Action
from topicledger.model.topic_configs import (
    DISRUPTIONS,
    EFFECTS,
    LOSSES,
    NO_LIMIT,
    ChangeClass,
    Effect,
    Effects,
    topic_configs,
)
from topicledger.policies.contract import fewer_replicas, fewest_replicas, listed, text

_NO_LIMIT = Decimal("9" * 29)


_IN_SYNC = "min.insync.replicas"


_UNKNOWN = ("live_replication_factor", "live_min_replicas", "resolved_replication_factor")


def of_plans(plans: DataFrame) -> DataFrame:
    """Add the columns that `losses` and `disruptions` need to rows of `plans`.

    A plan has the configs that were set on topics, but neither brokers' defaults nor numbers of replicas: a possible
    loss or disruption counts as one.
    """
    configs = F.transform(
        F.map_entries("before"), lambda each: F.struct(each["key"].alias("name"), each["value"].alias("value"))
    )
    return plans.withColumns(
        {
            "decision": F.col("action"),
            "live_configs": configs,
            "moves": read_moves(),
            **{name: F.lit(None).cast("int") for name in _UNKNOWN},
            "resolved_configs": F.lit(None).cast("map<string,string>"),
        }
    )


def losses() -> Column:
    """Return the possible loss of a change or a move, with old and new values (string); null if there is none.

    In: `phases.DECIDED` of one action a row.
    """
    known = F.when(_live(F.lit("cleanup.policy")).isNull(), F.lit("a topic that may be compacted, from ")).otherwise(
        F.lit("a compacted topic, whose records have keys, from ")
    )
    grows = F.concat(
        known,
        F.col("before")["num_partitions"],
        F.lit(" to "),
        F.col("after")["num_partitions"],
        F.lit(f" partitions {EFFECTS[ChangeClass.LOSES_ORDER]}"),
    )
    return (
        F.when(F.col("decision") == Action.ALTER_CONFIGS.value, _altered(LOSSES))
        .when((F.col("decision") == Action.ADD_PARTITIONS.value) & _compacted(), grows)
        .otherwise(_fewer_replicas())
    )


def disruptions() -> Column:
    """Return how a change or a move can refuse writes or fill disks, with old and new values (string), or null.

    In: `phases.DECIDED` of one action a row.
    """
    altered = F.when(F.col("decision") == Action.ALTER_CONFIGS.value, _altered(DISRUPTIONS))
    return F.coalesce(altered, _no_spare_replica())


def cautions(before: Column, after: Column) -> Column:
    """Return what any change of these configs does (string); null if the catalogue has no caution about one."""
    words = _literals({each.name: each.caution for each in topic_configs().values()})
    found = F.transform(
        _names(before, after), lambda name: F.concat(name, F.lit(": any change "), F.try_element_at(words, name))
    )
    return _joined(found)


def _fewer_replicas() -> Column:
    fewer = fewer_replicas()
    most = F.array_max(F.transform(fewer, lambda each: each["before"]))
    least = F.array_min(F.transform(fewer, lambda each: each["after"]))
    partitions = listed(F.transform(fewer, lambda each: each["partition"].cast("string")))
    less_safe = EFFECTS[ChangeClass.LESS_SAFE]
    message = text("replication factor ", most, " -> ", least, f" {less_safe} (partitions ", partitions, ")")
    return F.when(F.size(fewer) > 0, message)


def _no_spare_replica() -> Column:
    """Return the move after which a partition has as many replicas as min.insync.replicas needs, but had more."""
    live, altered = _live(F.lit(_IN_SYNC)), F.col("resolved_configs")[_IN_SYNC]
    # The plan may also raise it. If it lowers it, that may fail.
    value = F.when(_number(altered) > _number(live), altered).otherwise(live)
    needed = _number(value)
    # One replica needs its broker in any case. An unknown number may be as many as there are replicas.
    spared = F.filter(
        fewer_replicas(),
        lambda each: (
            (each["after"] > 1) & F.coalesce((each["after"] <= needed) & (each["before"] > needed), F.lit(True))
        ),
    )
    most = F.array_max(F.transform(spared, lambda each: each["before"]))
    least = F.array_min(F.transform(spared, lambda each: each["after"]))
    words = f" replicas with {_IN_SYNC}="
    effect = "".join(f" {each.words}" for each in topic_configs()[_IN_SYNC].changes.raised)
    message = text(most, " -> ", least, words, F.coalesce(value, F.lit("unknown")), effect)
    return F.when(F.size(spared) > 0, message)


def _live(name: Column) -> Column:
    """Return the topic's effective value, whatever its source."""
    return F.try_element_at(F.filter("live_configs", lambda each: each["name"] == name), F.lit(1))["value"]


def _compacted() -> Column:
    """Return whether the topic is compacted, as far as is known: an unknown policy may be compact."""
    return F.coalesce(F.array_contains(_parts(_live(F.lit("cleanup.policy"))), "compact"), F.lit(True))


def _altered(classes: Collection[ChangeClass]) -> Column:
    """Return the effects of altered configs of these classes, by config in alphabetical order; null for none."""
    return _joined(F.transform(_names(F.col("before"), F.col("after")), partial(_of_config, _Words(classes))))


def _joined(found: Column) -> Column:
    """Join the texts of an array; null if there is none."""
    text = F.array_join(F.array_compact(found), "; ")
    return _once({"text": text}, lambda known: F.when(known["text"] != "", known["text"]))


def _names(before: Column, after: Column) -> Column:
    return F.array_sort(F.array_distinct(F.concat(F.map_keys(before), F.map_keys(after))))


class _Words:
    """The effects of directions of changes that one guard counts, as maps of literals from config, or config=value.

    One expression with maps stays small, however many configs the catalogue has.
    """

    def __init__(self, classes: Collection[ChangeClass]) -> None:
        def counted(effects: Effects) -> Effect | None:
            return next((each for each in effects if each.of_class in classes), None)

        def words(effects: Effects) -> str | None:
            found = counted(effects)
            return None if found is None else found.words

        configs = topic_configs().values()
        self.lowered = _literals({each.name: words(each.changes.lowered) for each in configs})
        self.raised = _literals({each.name: words(each.changes.raised) for each in configs})
        self.unlimited = _literals({each.name: words(each.changes.unlimited) for each in configs})
        self.emptied = _literals({each.name: words(each.changes.emptied) for each in configs})
        self.gains, self.drops = (
            _literals(
                {
                    f"{each.name}={value.lower()}": words(effects)
                    for each in configs
                    for value, effects in getattr(each.changes, direction).items()
                }
            )
            for direction in ("gains", "drops")
        )
        self.droppable = sorted({value.lower() for each in configs for value in each.changes.drops})
        of_any = {each.name: [it for it in each.changes.every if it.of_class in classes] for each in configs}
        order = list(ChangeClass)
        self.reset = _literals(
            {
                name: min(effects, key=lambda effect: order.index(effect.of_class)).words
                for name, effects in of_any.items()
                if effects
            }
        )
        """A config that is reset gets the broker's default, which is unknown and may be of any direction."""
        self.compacted = [name for name, effects in of_any.items() if any(each.compacted for each in effects)]
        lowered = {each.name: counted(each.changes.lowered) for each in configs}
        raised = {each.name: counted(each.changes.raised) for each in configs}
        self.below = _literals({name: effect.below for name, effect in lowered.items() if effect is not None})
        self.at_least = _literals({name: effect.at_least for name, effect in raised.items() if effect is not None})


def _literals(words: Mapping[str, str | None]) -> Column:
    entries = [F.lit(each) for name, found in words.items() if found is not None for each in (name, found)]
    return F.create_map(*entries).cast("map<string,string>")


def _of_config(words: _Words, name: Column) -> Column:
    old, new, below = _live(name), F.col("after")[name], F.try_element_at(words.below, name)
    room = F.coalesce(F.try_element_at("after", below), _live(below))
    numbers = {"was": _number(old), "becomes": _number(new), "room": _number(room)}
    parts = {"had": _parts(old), "has": _parts(new)}
    return _once(
        {"old": old, "new": new, "below": below, **numbers, **parts}, lambda known: _effect(words, name, known)
    )


def _once(values: Mapping[str, Column], then: Callable[[Column], Column]) -> Column:
    """Compute `then` of a struct of values, each of which is computed once however often `then` has it.

    Within lambda functions and interpreted queries, Spark computes an expression wherever it stands.
    """
    struct = F.struct(*(value.alias(name) for name, value in values.items()))
    return F.get(F.transform(F.array(struct), then), F.lit(0))


def _effect(words: _Words, name: Column, known: Column) -> Column:
    old, new, below, was, becomes, room, had, has = (
        known[each] for each in ("old", "new", "below", "was", "becomes", "room", "had", "has")
    )
    limited, unlimited = F.coalesce(was < _NO_LIMIT, F.lit(True)), becomes == F.lit(_NO_LIMIT)
    higher = F.coalesce(becomes > was, becomes.isNotNull())
    lower = F.coalesce(becomes < was, becomes < _NO_LIMIT) & (below.isNull() | F.coalesce(becomes < room, F.lit(True)))
    replicas = fewest_replicas()
    at_least = F.try_element_at(words.at_least, name)
    # Below the number of replicas, or if one replica is all of them, it changes nothing; what is unknown may change it.
    stops = F.coalesce((becomes >= replicas) & (was < replicas) & (replicas > 1) | (becomes > replicas), becomes > 1)
    reaches = F.when(at_least == "replicas", stops).otherwise(becomes >= _number(at_least))
    raises = higher & (at_least.isNull() | reaches)
    empty = F.array(F.lit(""))
    surely_had = F.coalesce(had, F.array().cast("array<string>"))
    # An unknown list may have any element.
    perhaps_had = F.coalesce(had, F.array(*map(F.lit, words.droppable)))
    emptied = (F.size(F.array_except(has, empty)) == 0) & (old.isNull() | (F.size(F.array_except(had, empty)) > 0))

    def of_parts(effects: Column, parts: Column) -> Column:
        found = F.transform(parts, lambda part: F.try_element_at(effects, F.concat(name, F.lit("="), part)))
        return F.try_element_at(F.array_compact(found), F.lit(1))

    found = F.coalesce(
        F.when(lower, F.try_element_at(words.lowered, name)),
        F.when(limited & unlimited, F.try_element_at(words.unlimited, name)),
        F.when(raises, F.try_element_at(words.raised, name)),
        F.when(emptied, F.try_element_at(words.emptied, name)),
        of_parts(words.gains, F.array_except(has, surely_had)),
        of_parts(words.drops, F.array_except(perhaps_had, has)),
    )
    begins = F.concat(name, F.lit(" "), F.coalesce(old, F.lit("unknown")), F.lit(" -> "))
    default = F.concat(
        begins,
        F.lit("the broker's default, which isn't known: "),
        F.try_element_at(words.reset, name),
        F.lit(", depending on it"),
    )
    reset = F.col("before")[name].isNotNull() & new.isNull()
    told = F.when(trimmed(new) == "", F.lit(EMPTY)).otherwise(new)
    effect = F.when(reset, default).otherwise(F.concat(begins, told, F.lit(" "), found))
    # The plan may also make the topic compacted, which is an effect of its own.
    return F.when(~name.isin(*words.compacted) | _compacted(), effect)


def _parts(value: Column) -> Column:
    return F.transform(parts_column(value), F.lower)


def _number(value: Column) -> Column:
    """Convert to a number; a negative one means no limit, as does one from `NO_LIMIT` on."""

    def limit(known: Column) -> Column:
        number = known["number"]
        return F.when((number < 0) | (number >= NO_LIMIT), F.lit(_NO_LIMIT)).otherwise(number)

    return _once({"number": plain_number(value).try_cast("decimal(38,9)")}, limit)
