"""Changes that can lose data at once, keep it less safely, or lose the order of keys: see `guards.max_losses`."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger.actions.showing import LESS_SAFE
from topicledger.kafka.config_values import parts_column, trimmed
from topicledger.model import Action
from topicledger.policies.contract import fewer_replicas, listed, text

_DATA, _SAFETY, _ORDER = "can lose data at once", LESS_SAFE, "loses the order of keys"


def found() -> Column:
    """Return the possible loss of a change or a move, with old and new values (string); null if there is none.

    In: `phases.DECIDED` of one action a row. A config that is reset gets the broker's default, which is unknown
    and may be lower.
    """
    alters = F.concat_ws(
        "; ",
        _loss("retention.ms", _DATA, _shorter),
        _loss("retention.bytes", _DATA, _shorter),
        _loss("cleanup.policy", _DATA, _adds_to_policy),
        _loss("min.insync.replicas", _SAFETY, _smaller),
        _loss("unclean.leader.election.enable", _SAFETY, _turned_on),
    )
    # An unknown policy may be compact.
    compacted = F.coalesce(F.array_contains(parts_column(_live("cleanup.policy")), "compact"), F.lit(True))
    known = F.when(_live("cleanup.policy").isNull(), F.lit("a topic that may be compacted, from ")).otherwise(
        F.lit("a compacted topic, whose records have keys, from ")
    )
    grows = F.concat(
        known,
        F.col("before")["num_partitions"],
        F.lit(" to "),
        F.col("after")["num_partitions"],
        F.lit(f" partitions {_ORDER}"),
    )
    return (
        F.when((F.col("decision") == Action.ALTER_CONFIGS.value) & (alters != ""), alters)
        .when((F.col("decision") == Action.ADD_PARTITIONS.value) & compacted, grows)
        .otherwise(_fewer_replicas())
    )


def _fewer_replicas() -> Column:
    fewer = fewer_replicas()
    most = F.array_max(F.transform(fewer, lambda each: each["before"]))
    least = F.array_min(F.transform(fewer, lambda each: each["after"]))
    partitions = listed(F.transform(fewer, lambda each: each["partition"].cast("string")))
    message = text("replication factor ", most, " -> ", least, f" {_SAFETY} (partitions ", partitions, ")")
    return F.when(F.size(fewer) > 0, message)


def _live(name: str) -> Column:
    """The topic's effective value, whatever its source."""
    return F.try_element_at(F.filter("live_configs", lambda each: each["name"] == name), F.lit(1))["value"]


def _loss(name: str, what: str, worse: Callable[[Column, Column], Column]) -> Column:
    old, new = _live(name), F.col("after")[name]
    reset = F.col("before")[name].isNotNull() & new.isNull()
    changed = F.concat(F.lit(f"{name} {{}} "), F.lit("-> "), new, F.lit(f" {what}"))
    to_default = F.lit(f"{name} {{}} -> the broker's default, which isn't known, {what} if that is less")
    text = F.when(reset, to_default).when(new.isNotNull() & F.coalesce(worse(old, new), old.isNull()), changed)
    return F.replace(text, F.lit("{}"), F.coalesce(old, F.lit("unknown")))


def _number(value: Column) -> Column:
    """Convert to a number; -1 means no limit."""
    number = trimmed(value).try_cast("decimal(38,0)")
    return F.when(number == -1, F.lit("9" * 38).cast("decimal(38,0)")).otherwise(number)


def _shorter(old: Column, new: Column) -> Column:
    return _number(new) < _number(old)


def _smaller(old: Column, new: Column) -> Column:
    return trimmed(new).try_cast("int") < trimmed(old).try_cast("int")


def _adds_to_policy(old: Column, new: Column) -> Column:
    """`delete` removes old records; `compact` all but the last of a key, and it rejects records without a key (K7)."""
    return F.size(F.array_except(parts_column(new), F.array_union(parts_column(old), F.array(F.lit(""))))) > 0


def _turned_on(old: Column, new: Column) -> Column:
    return (F.lower(trimmed(new)) == "true") & (F.lower(trimmed(old)) != "true")
