"""The scope of a run (`model.scope`), applied to the rows that it decides on.

Rows outside stay: rules about resources together see the whole cluster. They only count as `outside` if something is
pending for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.config import patterns
from topicledger.config.settings import Owners
from topicledger.manifests.owners import belongs_to, is_one_of
from topicledger.manifests.rows import Transform
from topicledger.model import Decision
from topicledger.model.scope import Scope
from topicledger.phases import ENDED

INSIDE = "_inside"
"""Column (boolean): whether a row is inside the scope."""


@dataclass(frozen=True, kw_only=True)
class Scoped:
    """How a scope selects resources of a kind. In: the columns of decisions."""

    owned_by: Callable[[tuple[str, ...]], Column]
    """Returns whether a row belongs to one of these owners (boolean); null if it has no owner."""
    on_topics: Callable[[tuple[str, ...]], Column]
    """Returns whether a row is about a topic whose name matches one of these patterns (boolean)."""
    topic_of: Callable[[Callable[[str], Column]], Column]
    """Returns the topic that a resource is about (string); null if it is about none. In: returns a field's column, of
    a row of the kind's table, or of an action's `before` or `after`."""
    holder: str | None = None
    """A resource that no row declares belongs to the owners of declared ones with the same value in this field."""


def owned_by(owners: tuple[str, ...]) -> Column:
    """Return whether a row declares one of these owners; null if it declares none."""
    return is_one_of(F.col("owner"), owners)


OF_TOPICS = Scoped(
    owned_by=owned_by,
    on_topics=lambda names: patterns.any_matches("topic", names),
    topic_of=lambda field: field("topic"),
)


def topics_of(settings: Owners, undeclared: Column) -> Scoped:
    """Return how a scope selects topics of which some are `undeclared` (boolean): by [owners] of the settings."""
    return replace(
        OF_TOPICS, owned_by=lambda names: F.when(undeclared, belongs_to(settings, names)).otherwise(owned_by(names))
    )


ON_NO_TOPIC = Scoped(owned_by=owned_by, on_topics=lambda _: F.lit(False), topic_of=lambda _: F.lit(None).cast("string"))
"""For kinds whose resources are about no topic."""


def with_inside(
    scope: Scope, scoped: Scoped, files: DataFrame | None, *, text: str | None = None, always: Column | None = None
) -> Transform:
    """Add `INSIDE`. In: the columns that `scoped` reads.

    `files`: the keys of what a plan's files change, if the scope is limited to files. `text`: the column
    that `Scope.resources` selects by; None for topics. `always`: rows that are inside any scope.
    """
    limits: list[Column] = []
    if scope.owners:
        limits.append(scoped.owned_by(scope.owners))
    if scope.barred:
        limits.append(~F.coalesce(scoped.owned_by(scope.barred), F.lit(False)))
    if scope.topics or scope.resources:
        named = scoped.on_topics(scope.topics) if scope.topics else F.lit(False)
        if text is not None and scope.resources:
            named = F.coalesce(named, F.lit(False)) | patterns.any_matches(text, scope.resources)
        limits.append(named)

    def transform(rows: DataFrame) -> DataFrame:
        found, more = rows, list(limits)
        if scope.files and files is None:
            more.append(F.lit(False))
        elif scope.files and files is not None:
            keys = files.select(*(F.col(name).alias(f"_file_{name}") for name in files.columns)).distinct()
            same = [rows[name].eqNullSafe(keys[f"_file_{name}"]) for name in files.columns]
            marked = keys.withColumn("_in_files", F.lit(True))
            found = rows.join(F.broadcast(marked), on=same, how="left")
            more.append(F.col("_in_files"))
        inside = F.lit(True)
        for each in more:
            inside = inside & F.coalesce(each, F.lit(False))
        if always is not None:
            inside = inside | always
        return found.withColumn(INSIDE, inside).select(*rows.columns, INSIDE)

    return transform


def declared_within(scope: Scope, scoped: Scoped, text: Column | None) -> Transform:
    """Keep the declarations that a scope selects by owners, topics and resources. In and out: a table's columns.

    `text`: the text of a row's resource, see `with_inside`.
    """

    def transform(rows: DataFrame) -> DataFrame:
        texts = {"_topic": scoped.topic_of(F.col), "_text": F.lit(None).cast("string") if text is None else text}
        inside = F.lit(True)
        if scope.owners:
            inside = inside & owned_by(scope.owners)
        if scope.topics or scope.resources:
            named = patterns.any_matches("_topic", scope.topics) | patterns.any_matches("_text", scope.resources)
            inside = inside & named
        return rows.withColumns(texts).where(inside).select(*rows.columns)

    return transform


def left_outside(actions: Sequence[str], key: str) -> Transform:
    """Take the decision, the end and the changes from rows outside the scope.

    In: decisions with `INSIDE`; out: decisions. Rows outside have the decision `outside` if one of `actions` was
    pending, else null. `key` names a resource on its cluster; rows outside without it are dropped.
    """

    def transform(rows: DataFrame) -> DataFrame:
        inside = F.col(INSIDE)
        acts = F.col("decision").isin(*actions)
        if "alters" in rows.columns:
            acts = acts | F.col("alters").isNotNull()
        pending = F.coalesce(acts, F.lit(False)) & F.col("phase").isNull()
        nothing = [name for name in (*ENDED.names, "violations", "before", "after", "alters") if name in rows.columns]
        values = {
            "decision": F.when(inside, F.col("decision")).when(pending, F.lit(Decision.OUTSIDE.value)),
            **{name: F.when(inside, F.col(name)) for name in nothing},
        }
        return rows.where(inside | F.col(key).isNotNull()).withColumns(values).drop(INSIDE)

    return transform
