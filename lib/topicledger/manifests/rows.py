"""Phase manifest: accept each row of `manifests`, or refuse it with all reasons.

The rules refuse only errors that the row alone shows. Errors that depend on the cluster are left to policies
(collisions) or to validateOnly (a replication factor above the number of brokers, an unknown config), which returns
Kafka's own error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from topicledger.arrow import over_arrow
from topicledger.config.ownership import not_yours_to_replace
from topicledger.config.patterns import any_matches
from topicledger.config.scope import TOPICS_IGNORED, ScopeSettings
from topicledger.config.settings import Owners, Settings
from topicledger.kafka.config_values import is_odd_column
from topicledger.manifests.ignored import ignored_names, without_ignored
from topicledger.manifests.replacing import once_replaced, replacing
from topicledger.model import INTERNAL_TOPICS, Outcome, Phase, Refusal
from topicledger.model.placement import LEGAL as LEGAL_PLACEMENT
from topicledger.model.renames import REPLACES
from topicledger.naming import RefusalName
from topicledger.phases import DECLARED, ENDED, returned
from topicledger.schemas import MANIFESTS

PRESENT, ABSENT = "present", "absent"
MAX_TOPIC_LENGTH = 249
MAX_REPLICATION_FACTOR = 2**15 - 1
INTERNAL = " is internal to Kafka: brokers create it with their own configs; remove it from the manifests"
COLLIDES = " collides with "
WITH_INTERNAL = ", which is internal to Kafka and could not be created; choose another name, or declare it absent"
PLACEMENTS = "; write any, racks, spread, rack:NAME or brokers:1,2,3"
ILLEGAL_NAMES = "config names contain blanks or other illegal characters: "
ODD_VALUES = "configs have values that brokers return in another form: "
PLAIN_VALUES = "; write plain decimal digits, NaN, Infinity, true or false"
PLACEMENT_AND_ASSIGNMENTS = "placement and assignments both determine the replicas; give one or the other"
REPLACES_ITSELF = "replaces names the topic itself; name the topic that it replaces"
REPLACES_NO_TOPIC = "replaces is no name of a topic that can be declared"
ABSENT_REPLACES = "replaces is for a topic that is present; this one is absent"

COLUMNS = MANIFESTS.schema.names

Transform = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule that a row can break by itself."""

    error: RefusalName
    reason: Column
    """Null if the row is fine, else what is wrong and how to correct it."""


def known_cluster(clusters: Collection[str]) -> Rule:
    """Require a cluster that is in the settings."""
    known = F.coalesce(F.col("cluster").isin(*clusters), F.lit(False))
    names = F.lit(", ".join(sorted(clusters)))
    return Rule(
        error=Refusal.UNKNOWN_CLUSTER,
        reason=F.when(F.col("cluster").isNull(), F.lit("cluster is null")).when(
            ~known, F.concat(F.lit("the run settings name no cluster "), F.col("cluster"), F.lit("; known: "), names)
        ),
    )


def legal_topic() -> Rule:
    """Require a topic name that Kafka accepts."""
    return Rule(error=Refusal.INVALID_TOPIC, reason=_no_legal_name(F.col("topic")))


def _no_legal_name(topic: Column) -> Column:
    """Return why no row can declare a topic of this name; null if one can."""
    return (
        F.when(topic.isNull(), F.lit("topic is null"))
        .when(topic == "", F.lit("topic is empty"))
        .when(topic.isin(".", ".."), F.concat(F.lit("topic can't be "), topic))
        .when(
            F.length(topic) > MAX_TOPIC_LENGTH,
            F.concat(
                F.lit("topic has "), F.length(topic), F.lit(f" characters; Kafka accepts at most {MAX_TOPIC_LENGTH}")
            ),
        )
        # \z, not $: Java's $ also matches before a final line break.
        .when(
            ~topic.rlike(r"\A[a-zA-Z0-9._-]+\z"),
            F.lit("topic has a character other than ASCII letters, digits, '.', '_' and '-'"),
        )
        .when(topic.isin(*sorted(INTERNAL_TOPICS)), F.concat(topic, F.lit(INTERNAL)))
    )


def apart_from_internal() -> Rule:
    """Require a topic name that doesn't collide with an internal topic, unless the topic is absent (I1).

    Kafka creates no topic whose name differs from an existing one only in `.` and `_`. Such a topic would make consumer
    groups or transactions fail permanently, and deleting it is the remedy.
    """
    topic = F.col("topic")
    internal = F.replace(topic, F.lit("."), F.lit("_"))
    collides = internal.isin(*sorted(INTERNAL_TOPICS)) & (topic != internal) & ~F.col("state").eqNullSafe(F.lit(ABSENT))
    return Rule(
        error=Refusal.INVALID_TOPIC,
        reason=F.when(collides, F.concat(topic, F.lit(COLLIDES), internal, F.lit(WITH_INTERNAL))),
    )


BLANK_AT_ENDS = r"(?U)^\s|\s$"
"""Matches a text that begins or ends with a blank, of any kind that Unicode has."""


def visible(value: Column) -> Column:
    """Return a text for a message, in quotes if it begins or ends with a blank."""
    return F.when(value == F.trim(value), value).otherwise(F.concat(F.lit('"'), value, F.lit('"')))


def legal_state() -> Rule:
    """Require the state present or absent."""
    state = F.col("state")
    return Rule(
        error=Refusal.INVALID_STATE,
        reason=F.when(state.isNull(), F.lit(f"state is null; write {PRESENT} or {ABSENT}")).when(
            ~state.isin(PRESENT, ABSENT),
            F.concat(F.lit("state is "), visible(state), F.lit(f"; write {PRESENT} or {ABSENT}")),
        ),
    )


def _legal_count(column: str, error: Refusal, most: int | None = None) -> Rule:
    count = F.col(column)
    hint = "; it must be at least 1, or null for the broker's default"
    reason = F.when(count < 1, F.concat(F.lit(f"{column} is "), count, F.lit(hint)))
    if most is not None:
        reason = reason.when(
            count > most, F.concat(F.lit(f"{column} is "), count, F.lit(f"; Kafka accepts at most {most}"))
        )
    return Rule(error=error, reason=reason)


def _one_way_to_count() -> Rule:
    counted = F.col("num_partitions").isNotNull() | F.col("replication_factor").isNotNull()
    return Rule(
        error=Refusal.ASSIGNMENTS_AND_COUNTS,
        reason=F.when(
            F.col("assignments").isNotNull() & counted,
            F.lit("assignments exclude num_partitions and replication_factor, which they imply; give one or the other"),
        ),
    )


def _legal_assignments() -> Rule:
    assignments = F.col("assignments")
    partitions = F.map_keys(assignments)
    replicas = F.map_values(assignments)
    count = F.size(partitions)
    # A map that Spark didn't write may contain a key twice.
    twice = F.size(F.array_distinct(partitions)) != count
    gaps = (F.array_min(partitions) != 0) | (F.array_max(partitions) != count - 1) | twice
    empty = F.exists(replicas, lambda brokers: brokers.isNull() | (F.size(brokers) == 0))
    unknown = F.exists(replicas, lambda brokers: F.exists(brokers, lambda broker: broker.isNull() | (broker < 0)))
    repeated = F.exists(replicas, lambda brokers: F.size(F.array_distinct(brokers)) != F.size(brokers))
    uneven = F.size(F.array_distinct(F.transform(replicas, F.size))) > 1
    return Rule(
        error=Refusal.INVALID_ASSIGNMENTS,
        reason=F.when(assignments.isNotNull() & (count == 0), F.lit("assignments are empty"))
        .when(gaps, F.lit("assignments must number the partitions 0 to n-1 without gaps"))
        .when(empty, F.lit("assignments leave a partition without brokers"))
        .when(unknown, F.lit("assignments contain a null or negative broker id"))
        .when(repeated, F.lit("assignments name a broker twice for one partition"))
        .when(uneven, F.lit("assignments give partitions different numbers of replicas")),
    )


def _legal_placement() -> Rule:
    placement = F.col("placement")
    illegal = ~placement.rlike(rf"\A({LEGAL_PLACEMENT})\z")
    return Rule(
        error=Refusal.INVALID_PLACEMENT,
        reason=F.when(illegal, F.concat(F.lit("placement is "), visible(placement), F.lit(PLACEMENTS))).when(
            placement.isNotNull() & F.col("assignments").isNotNull(), F.lit(PLACEMENT_AND_ASSIGNMENTS)
        ),
    )


def _legal_replaces() -> Rule:
    other = F.col("replaces")
    return Rule(
        error=Refusal.INVALID_REPLACES,
        reason=F.when(other == F.col("topic"), F.lit(REPLACES_ITSELF))
        .when(other.isNotNull() & _no_legal_name(other).isNotNull(), F.lit(REPLACES_NO_TOPIC))
        .when(other.isNotNull() & F.col("state").eqNullSafe(F.lit(ABSENT)), F.lit(ABSENT_REPLACES)),
    )


def legal_configs() -> Rule:
    """Require names and values of configs that brokers can't read in another way."""
    configs = F.col("configs")
    without = F.map_keys(F.map_filter(configs, lambda _, value: value.isNull()))
    names = F.map_keys(configs)
    blank = F.exists(names, lambda name: F.trim(name) == "")
    illegal = F.filter(names, lambda name: ~name.rlike(r"\A[!-~]+\z"))
    odd = F.map_keys(F.map_filter(configs, lambda _, value: is_odd_column(value)))
    # A map that Spark didn't write may contain a key twice.
    twice = F.size(F.array_distinct(names)) != F.size(names)
    return Rule(
        error=Refusal.INVALID_CONFIGS,
        reason=F.when(
            F.size(without) > 0,
            F.concat(
                F.lit("configs without a value: "),
                F.array_join(F.array_sort(without), ", "),
                F.lit("; leave the key out for the broker's default"),
            ),
        )
        .when(blank, F.lit("configs have an empty name"))
        .when(F.size(illegal) > 0, F.concat(F.lit(ILLEGAL_NAMES), _quoted(illegal)))
        .when(twice, F.lit("configs name a key twice"))
        .when(F.size(odd) > 0, F.concat(F.lit(ODD_VALUES), _quoted(odd), F.lit(PLAIN_VALUES))),
    )


def _quoted(names: Column) -> Column:
    """Return the names in alphabetical order, quoted so that surrounding blanks are visible."""
    quoted = F.transform(F.array_sort(names), lambda name: F.concat(F.lit('"'), name, F.lit('"')))
    return F.array_join(quoted, ", ")


def row_rules() -> Sequence[Rule]:
    """Return the rules that a manifest row can break by itself, whatever the settings (C1, C3, Kafka's legal names)."""
    return (
        legal_topic(),
        apart_from_internal(),
        legal_state(),
        _legal_count("num_partitions", Refusal.INVALID_NUM_PARTITIONS),
        _legal_count("replication_factor", Refusal.INVALID_REPLICATION_FACTOR, MAX_REPLICATION_FACTOR),
        _one_way_to_count(),
        _legal_assignments(),
        _legal_placement(),
        _legal_replaces(),
        legal_configs(),
    )


def with_reasons(rules: Sequence[Rule]) -> Transform:
    """Add `error`, the first broken rule's name (null if none), and `error_message`, all reasons."""

    def transform(rows: DataFrame) -> DataFrame:
        error = reduce(
            lambda rest, rule: F.when(rule.reason.isNotNull(), F.lit(rule.error.value)).otherwise(rest),
            reversed(rules),
            F.lit(None).cast("string"),
        )
        message = F.concat_ws("; ", *(rule.reason for rule in rules))
        broken = message != ""  # evaluated once for both columns; without it, `error` evaluates each rule again
        return rows.withColumns({"error": F.when(broken, error), "error_message": F.when(broken, message)})

    return transform


def _comparable(column: str) -> Column:
    # Maps have no order or equality in Spark: compare their sorted entries.
    if column in ("assignments", "configs", "labels"):
        return F.array_sort(F.map_entries(column)).alias(column)
    return F.col(column)


def content(rows: DataFrame, name: str) -> DataFrame:
    """Return what each topic's rows ask of its cluster as one comparable value: cluster, topic, `name`."""
    rest = [column for column in COLUMNS if column not in ("cluster", "topic", "description")]
    all_of_it = F.array_sort(F.collect_list(F.struct(*map(_comparable, rest))))
    return rows.groupBy("cluster", "topic").agg(all_of_it.alias(name))


def _with_duplicates(rows: DataFrame) -> DataFrame:
    """Add `copies`, the number of rows of a (cluster, topic), `copy`, its number among them, from 1, and `differs_in`.

    Only the lowest and the highest row are compared. With three or more rows, `differs_in` may omit a column in which
    only a row in the middle differs, but it is never empty if two rows differ.
    """
    key = Window.partitionBy("cluster", "topic")
    rest = [column for column in COLUMNS if column not in ("cluster", "topic")]
    content = F.struct(*(_comparable(column) for column in rest))
    compared = rows.withColumns(
        {
            "copies": F.count(F.lit(1)).over(key),
            "copy": F.row_number().over(key.orderBy(F.lit(1))),
            "_low": F.min(content).over(key),
            "_high": F.max(content).over(key),
        }
    )
    differing = [F.when(~F.col(f"_low.{name}").eqNullSafe(F.col(f"_high.{name}")), F.lit(name)) for name in rest]
    return compared.withColumn("differs_in", F.concat_ws(", ", *differing)).drop("_low", "_high")


def yours(owners: Owners) -> Sequence[Rule]:
    """Require an owner that may declare the topic, and the one that it replaces, if the settings define owners."""
    if owners == Owners():
        return ()

    def reasons(*columns: pa.Array) -> pa.Array:
        rows = list(zip(*(each.to_pylist() for each in columns), strict=True))
        return pa.array(not_yours_to_replace(owners, rows), pa.string())

    return (Rule(error=Refusal.NOT_YOURS, reason=over_arrow(reasons, "string", "cluster", "topic", REPLACES, "owner")),)


def not_ignored(scope: ScopeSettings) -> Sequence[Rule]:
    """Refuse rows that name topics that the settings leave to others."""
    if not scope.ignore_topics:
        return ()
    found = {name: F.when(any_matches(name, scope.ignore_topics), why) for name, why in TOPICS_IGNORED.items()}
    return [Rule(error=Refusal.INVALID_TOPIC, reason=reason) for reason in found.values()]


def validate(clusters: Collection[str], selected: Collection[str] | None, besides: Sequence[Rule] = ()) -> Transform:
    """Validate manifest rows.

    In: the columns of `manifests` (others are ignored). Out: those columns, `error`, `error_message`, `phase` and
    `outcome`; the last four are null if the row is accepted. One row per (cluster, topic), refused if rows disagree
    (C2); identical copies become one accepted and one skipped row, which notes them. Rows without a topic stay apart.

    `clusters`: those in the settings. Rows of clusters that aren't `selected` are left out. `besides`: more rules.
    """

    def transform(manifests: DataFrame) -> DataFrame:
        rows = manifests.select(*COLUMNS)
        if selected is not None:
            rows = rows.where(F.col("cluster").isin(*selected))
        validated = rows.transform(with_reasons([known_cluster(clusters), *row_rules(), *besides]))
        keyed = F.col("cluster").isNotNull() & F.col("topic").isNotNull()
        unique = validated.where(~keyed).select("*", F.lit(1).alias("copies"), F.lit("").alias("differs_in"))
        grouped = validated.where(keyed).transform(_with_duplicates).where("copy = 1").drop("copy")
        judged = with_reasons(besides) if besides else None
        by_any = replacing(manifests.select(*COLUMNS), clusters, judged)
        once = grouped.transform(once_replaced(rows.where(keyed), by_any, judged))
        return once.unionByName(unique).transform(_with_verdict)

    return transform


def validated_by(settings: Settings, selected: Collection[str] | None) -> Transform:
    """Validate rows according to the settings: their clusters and owners; removes configs in `changes.ignore`.

    Adds `ignored` (array<string>): the names of these configs, null if there are none.
    """
    validated = validate(list(settings.clusters), selected, [*yours(settings.owners), *not_ignored(settings.scope)])
    ignored, configs = settings.ignored_configs, F.col("configs")
    left = {"ignored": ignored_names(ignored, configs), "configs": without_ignored(ignored, configs)}
    return lambda manifests: manifests.transform(validated).withColumns(left)


def _with_verdict(rows: DataFrame) -> DataFrame:
    duplicate = F.struct(
        F.lit(Refusal.DUPLICATE_MANIFEST.value).alias("error"),
        F.concat(
            F.col("copies"), F.lit(" rows for this topic differ in "), F.col("differs_in"), F.lit("; keep one of them")
        ).alias("error_message"),
        F.lit(Phase.MANIFEST.value).alias("phase"),
        F.lit(Outcome.REFUSED.value).alias("outcome"),
    )
    refused = F.struct(
        "error",
        "error_message",
        F.lit(Phase.MANIFEST.value).alias("phase"),
        F.lit(Outcome.REFUSED.value).alias("outcome"),
    )
    noted = F.struct(
        F.lit(Refusal.DUPLICATE_MANIFEST.value).alias("error"),
        F.concat(F.col("copies"), F.lit(" identical rows for this topic; they count as one")).alias("error_message"),
        F.lit(Phase.MANIFEST.value).alias("phase"),
        F.lit(Outcome.SKIPPED.value).alias("outcome"),
    )
    text = F.lit(None).cast("string")
    accepted = F.struct(text.alias("error"), text.alias("error_message"), text.alias("phase"), text.alias("outcome"))
    verdicts = (
        F.when(F.col("differs_in") != "", F.array(duplicate))
        .when(F.col("error").isNotNull(), F.array(refused))
        .when(F.col("copies") > 1, F.array(accepted, noted))
        .otherwise(F.array(accepted))
    )
    validated = rows.select(*COLUMNS, F.explode(verdicts).alias("verdict"))
    return returned("manifest", validated.select(*COLUMNS, *(f"verdict.{name}" for name in ENDED.names)), DECLARED)


def completed(schema: StructType, defaults: Mapping[str, str]) -> Transform:
    """Return the transform to the columns of `schema` with defaults in place of nulls; other columns are dropped."""
    return lambda rows: rows.select(
        *(
            F.coalesce(name, F.lit(defaults[name])).alias(name) if name in defaults else F.col(name)
            for name in schema.names
        )
    )
