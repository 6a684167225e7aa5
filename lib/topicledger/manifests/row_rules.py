"""Rules that a row of `manifests` can break by itself, for rows of tables and of files (C1, C3, Kafka's legal names).

They refuse only errors that the row alone shows. Errors that depend on the cluster are left to policies (collisions) or
to validateOnly (a replication factor above the number of brokers, an unknown config), which returns Kafka's own error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import functions as F

from topicledger.kafka.config_values import is_odd, is_odd_column
from topicledger.manifests.terms import (
    Row,
    Term,
    array_distinct,
    array_max,
    array_min,
    array_sort,
    cases,
    concat,
    exists,
    field,
    filtered,
    function,
    has_twice,
    joined,
    keys_where,
    length,
    lit,
    map_keys,
    map_values,
    quoted,
    replace,
    size,
    transform,
    trim,
    visible,
)
from topicledger.model import INTERNAL_TOPICS, Refusal
from topicledger.model.placement import LEGAL as LEGAL_PLACEMENT
from topicledger.naming import RefusalName

PRESENT, ABSENT = "present", "absent"
INTERNAL = " is internal to Kafka: brokers create it with their own configs; remove it from the manifests"
COLLIDES = " collides with "
WITH_INTERNAL = ", which is internal to Kafka and could not be created; choose another name, or declare it absent"
MAX_TOPIC_LENGTH = 249
MAX_REPLICATION_FACTOR = 2**15 - 1
ILLEGAL_NAMES = "config names contain blanks or other illegal characters: "
ODD_VALUES = "configs have values that brokers return in another form: "
PLAIN_VALUES = "; write plain decimal digits, NaN, Infinity, true or false"
LEGAL_CONFIG = r"\A[!-~]+\z"
"""Matches a name that a config can have."""

_FINE = lit(None)
# By name, since tests that evaluate Columns in memory replace it.
_is_odd = function(lambda value: is_odd_column(value), is_odd)
# Topics may have thousands of partitions: a term for each broker would take four times as long in Python.
_has_unknown = function(
    lambda brokers: F.exists(brokers, lambda broker: broker.isNull() | (broker < 0)),
    lambda brokers: any(broker is None or broker < 0 for broker in brokers),
)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule that a row can break by itself."""

    error: RefusalName
    reason: Term
    """Null if the row is fine, else what is wrong and how to correct it."""

    def broken_by(self, row: Row) -> str | None:
        """Return the reason for a row of a file, as a run would report it. Items of arrays are added to the row."""
        found: str | None = self.reason.in_python(row)
        return found


def no_legal_name(topic: Term) -> Term:
    """Return why no row can declare a topic of this name; null if one can."""
    return cases(
        (topic.is_null(), "topic is null"),
        (topic.eq(""), "topic is empty"),
        (topic.isin(".", ".."), concat("topic can't be ", topic)),
        (
            length(topic) > MAX_TOPIC_LENGTH,
            concat("topic has ", length(topic), f" characters; Kafka accepts at most {MAX_TOPIC_LENGTH}"),
        ),
        # \z, not $: Java's $ also matches before a final line break.
        (
            ~topic.matches(r"\A[a-zA-Z0-9._-]+\z"),
            "topic has a character other than ASCII letters, digits, '.', '_' and '-'",
        ),
        (topic.isin(*sorted(INTERNAL_TOPICS)), concat(topic, INTERNAL)),
    )


LEGAL_TOPIC = Rule(error=Refusal.INVALID_TOPIC, reason=no_legal_name(field("topic")))
"""Requires a topic name that Kafka accepts."""


def _apart_from_internal() -> Rule:
    """Require a topic name that doesn't collide with an internal topic, unless the topic is absent (I1).

    Kafka creates no topic whose name differs from an existing one only in `.` and `_`. Such a topic would make consumer
    groups or transactions fail permanently, and deleting it is the remedy.
    """
    topic = field("topic")
    internal = replace(topic, ".", "_")
    collides = internal.isin(*sorted(INTERNAL_TOPICS)) & topic.ne(internal) & ~field("state").same_as(ABSENT)
    reason = cases((collides, concat(topic, COLLIDES, internal, WITH_INTERNAL)))
    return Rule(error=Refusal.INVALID_TOPIC, reason=reason)


def _legal_state() -> Rule:
    state, hint = field("state"), f"; write {PRESENT} or {ABSENT}"
    return Rule(
        error=Refusal.INVALID_STATE,
        reason=cases(
            (state.is_null(), f"state is null{hint}"),
            (~state.isin(PRESENT, ABSENT), concat("state is ", visible(state), hint)),
        ),
    )


LEGAL_STATE = _legal_state()
"""Requires the state present or absent."""


def _legal_count(column: str, error: Refusal, most: int | None = None) -> Rule:
    count, said = field(column), f"{column} is "
    broken = [(count < 1, concat(said, count, "; it must be at least 1, or null for the broker's default"))]
    if most is not None:
        broken.append((count > most, concat(said, count, f"; Kafka accepts at most {most}")))
    return Rule(error=error, reason=cases(*broken))


def _one_way_to_count() -> Rule:
    counted = field("num_partitions").is_given() | field("replication_factor").is_given()
    return Rule(
        error=Refusal.ASSIGNMENTS_AND_COUNTS,
        reason=cases(
            (
                field("assignments").is_given() & counted,
                "assignments exclude num_partitions and replication_factor, which they imply; give one or the other",
            )
        ),
    )


def _legal_assignments() -> Rule:
    assignments = field("assignments")
    partitions, replicas = map_keys(assignments), map_values(assignments)
    count = size(partitions)
    gaps = array_min(partitions).ne(0) | array_max(partitions).ne(count - 1) | has_twice(partitions)
    empty = exists(replicas, lambda brokers: brokers.is_null() | size(brokers).eq(0))
    unknown, repeated = exists(replicas, _has_unknown), exists(replicas, has_twice)
    uneven = size(array_distinct(transform(replicas, size))) > 1
    return Rule(
        error=Refusal.INVALID_ASSIGNMENTS,
        reason=cases(
            (assignments.is_null(), _FINE),
            (count.eq(0), "assignments are empty"),
            (gaps, "assignments must number the partitions 0 to n-1 without gaps"),
            (empty, "assignments leave a partition without brokers"),
            (unknown, "assignments contain a null or negative broker id"),
            (repeated, "assignments name a broker twice for one partition"),
            (uneven, "assignments give partitions different numbers of replicas"),
        ),
    )


def _legal_placement() -> Rule:
    placement = field("placement")
    return Rule(
        error=Refusal.INVALID_PLACEMENT,
        reason=cases(
            (
                ~placement.matches(rf"\A({LEGAL_PLACEMENT})\z"),
                concat("placement is ", visible(placement), "; write any, racks, spread, rack:NAME or brokers:1,2,3"),
            ),
            (
                placement.is_given() & field("assignments").is_given(),
                "placement and assignments both determine the replicas; give one or the other",
            ),
        ),
    )


def _legal_replaces() -> Rule:
    other = field("replaces")
    return Rule(
        error=Refusal.INVALID_REPLACES,
        reason=cases(
            (other.eq(field("topic")), "replaces names the topic itself; name the topic that it replaces"),
            (
                other.is_given() & no_legal_name(other).is_given(),
                "replaces is no name of a topic that can be declared",
            ),
            (
                other.is_given() & field("state").same_as(ABSENT),
                "replaces is for a topic that is present; this one is absent",
            ),
        ),
    )


def legal_configs(error: RefusalName = Refusal.INVALID_CONFIGS) -> Rule:
    """Require names and values of configs that brokers can't read in another way."""
    configs = field("configs")
    names = map_keys(configs)
    without = keys_where(configs, Term.is_null)
    illegal = filtered(names, lambda name: ~name.matches(LEGAL_CONFIG))
    blank = exists(illegal, lambda name: trim(name).eq(""))
    odd = keys_where(configs, _is_odd)
    return Rule(
        error=error,
        reason=cases(
            (configs.is_null(), _FINE),
            (
                size(without) > 0,
                concat(
                    "configs without a value: ",
                    joined(array_sort(without)),
                    "; leave the key out for the broker's default",
                ),
            ),
            (
                size(illegal) > 0,
                cases((blank, "configs have an empty name"), otherwise=concat(ILLEGAL_NAMES, quoted(illegal))),
            ),
            (has_twice(names), "configs name a key twice"),
            (size(odd) > 0, concat(ODD_VALUES, quoted(odd), PLAIN_VALUES)),
        ),
    )


LEGAL_CONFIGS = legal_configs()

OF_FIELDS: Mapping[str, Rule] = {
    "state": LEGAL_STATE,
    "num_partitions": _legal_count("num_partitions", Refusal.INVALID_NUM_PARTITIONS),
    "replication_factor": _legal_count(
        "replication_factor", Refusal.INVALID_REPLICATION_FACTOR, MAX_REPLICATION_FACTOR
    ),
    "assignments": _legal_assignments(),
    "placement": _legal_placement(),
}
"""Rules about a field that a value breaks whatever the row's other fields are: field -> rule."""

ROW_RULES = (
    LEGAL_TOPIC,
    _apart_from_internal(),
    LEGAL_STATE,
    OF_FIELDS["num_partitions"],
    OF_FIELDS["replication_factor"],
    _one_way_to_count(),
    OF_FIELDS["assignments"],
    OF_FIELDS["placement"],
    _legal_replaces(),
    LEGAL_CONFIGS,
)
"""The rules that a manifest row can break by itself, whatever the settings."""
