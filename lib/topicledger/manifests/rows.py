"""Phase manifest: accept each row of `manifests`, or refuse it with all reasons."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
from topicledger.manifests.ignored import ignored_names, without_ignored
from topicledger.manifests.replacing import once_replaced, replacing
from topicledger.manifests.row_rules import ROW_RULES, Rule
from topicledger.model import Outcome, Phase, Refusal
from topicledger.model.renames import REPLACES
from topicledger.naming import RefusalName
from topicledger.phases import DECLARED, ENDED, returned
from topicledger.schemas import MANIFESTS

COLUMNS = MANIFESTS.schema.names

Transform = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, kw_only=True)
class ColumnRule:
    """A rule for the rows of tables only, or a `Rule` as Spark evaluates it."""

    error: RefusalName
    reason: Column
    """Null if the row is fine, else what is wrong and how to correct it."""


def known_cluster(clusters: Collection[str]) -> ColumnRule:
    """Require a cluster that is in the settings."""
    known = F.coalesce(F.col("cluster").isin(*clusters), F.lit(False))
    names = F.lit(", ".join(sorted(clusters)))
    return ColumnRule(
        error=Refusal.UNKNOWN_CLUSTER,
        reason=F.when(F.col("cluster").isNull(), F.lit("cluster is null")).when(
            ~known, F.concat(F.lit("the run settings name no cluster "), F.col("cluster"), F.lit("; known: "), names)
        ),
    )


BLANK_AT_ENDS = r"(?U)^\s|\s$"
"""Matches a text that begins or ends with a blank, of any kind that Unicode has."""


def as_columns(rules: Iterable[Rule]) -> Sequence[ColumnRule]:
    """Return the rules as Columns of the rows of a table."""
    return [ColumnRule(error=each.error, reason=each.reason.column()) for each in rules]


def with_reasons(rules: Sequence[ColumnRule]) -> Transform:
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


def yours(owners: Owners) -> Sequence[ColumnRule]:
    """Require an owner that may declare the topic, and the one that it replaces, if the settings define owners."""
    if owners == Owners():
        return ()

    def reasons(*columns: pa.Array) -> pa.Array:
        rows = list(zip(*(each.to_pylist() for each in columns), strict=True))
        return pa.array(not_yours_to_replace(owners, rows), pa.string())

    return (
        ColumnRule(
            error=Refusal.NOT_YOURS, reason=over_arrow(reasons, "string", "cluster", "topic", REPLACES, "owner")
        ),
    )


def not_ignored(scope: ScopeSettings) -> Sequence[ColumnRule]:
    """Refuse rows that name topics that the settings leave to others."""
    if not scope.ignore_topics:
        return ()
    found = {name: F.when(any_matches(name, scope.ignore_topics), why) for name, why in TOPICS_IGNORED.items()}
    return [ColumnRule(error=Refusal.INVALID_TOPIC, reason=reason) for reason in found.values()]


def validate(
    clusters: Collection[str], selected: Collection[str] | None, besides: Sequence[ColumnRule] = ()
) -> Transform:
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
        validated = rows.transform(with_reasons([known_cluster(clusters), *as_columns(ROW_RULES), *besides]))
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
