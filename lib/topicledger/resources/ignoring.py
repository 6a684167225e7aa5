"""Resources that the settings leave to others (`[scope]`): never declared, decided on or compared."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.config.patterns import any_matches
from topicledger.config.scope import ScopeSettings, matches_ignored
from topicledger.config.settings import Settings
from topicledger.manifests.rows import Transform
from topicledger.model import Outcome, Phase
from topicledger.resources.ending import ended, with_ended
from topicledger.resources.kind import ResourceKind
from topicledger.resources.scoped import INSIDE, left_outside


def validated_by(kind: ResourceKind, settings: Settings, selected: Collection[str] | None) -> Transform:
    """Return the kind's `Rows.validate` for these settings: it also refuses rows of ignored resources."""
    validate = kind.rows.validate(list(settings.clusters), selected)
    refused, phase = F.lit(Outcome.REFUSED.value), F.lit(Phase.MANIFEST.value)
    ends = [
        F.when(matched, ended(phase, refused, F.lit(kind.names.invalid.value), F.lit(matches_ignored(column, name))))
        for name, column, matched in _matched(kind, settings.scope)
    ]
    if not ends:
        return validate
    return lambda declared: (
        declared.transform(validate)
        .withColumn("_ignored", F.when(F.col("phase").isNull(), F.coalesce(*ends)))
        .transform(with_ended, "_ignored")
        .drop("_ignored")
    )


def is_ignored(kind: ResourceKind, scope: ScopeSettings) -> Column | None:
    """Return whether a row of the kind's table, or an observed one, is ignored; None if the settings ignore none."""
    found = [matched for _, _, matched in _matched(kind, scope)]
    return reduce(or_, found) if found else None


def without_ignored(kind: ResourceKind, scope: ScopeSettings) -> Transform:
    """Leave out ignored rows of the kind's table, or of its observed one."""
    ignored = is_ignored(kind, scope)
    return lambda rows: rows if ignored is None else rows.where(~ignored)


def not_about_ignored(kind: ResourceKind, scope: ScopeSettings, live: DataFrame) -> Transform:
    """Leave out findings about ignored live resources alone; those that concern a declared one stay.

    In and out: `DIFFERENCE`. `live`: the clusters' resources. A finding is about a resource's text, or about the value
    that a pattern matches, such as a principal.
    """
    ignored = is_ignored(kind, scope)
    if ignored is None:
        return lambda found: found
    subjects = F.array(kind.rows.text_of(), *(F.col(column) for _, column, _ in _matched(kind, scope)))
    theirs = live.where(ignored).select("cluster", F.explode(subjects).alias("what")).distinct()
    theirs = theirs.withColumn("_theirs", F.lit(True))
    return lambda found: (
        found.join(theirs, on=["cluster", "what"], how="left")
        .where(F.col("_theirs").isNull() | F.col("declared").isNotNull())
        .select(*found.columns)
    )


def undecided(kind: ResourceKind, scope: ScopeSettings, live: DataFrame) -> Transform:
    """Take decisions on ignored resources away; rules about resources together still see their rows.

    In and out: as `Deciding.compare` returns. `live`: the clusters' resources.
    """
    ignored = is_ignored(kind, scope)
    if ignored is None:
        return lambda rows: rows
    theirs = live.where(ignored).select("cluster", kind.rows.text_of().alias("resource"), F.lit(True).alias("_theirs"))
    # A declared one is refused, which a run reports.
    inside = F.col("_theirs").isNull() | F.col("state").isNotNull()
    return lambda rows: (
        rows.join(theirs, on=["cluster", "resource"], how="left")
        .withColumn(INSIDE, inside)
        .select(*rows.columns, INSIDE)
        .transform(left_outside((), "resource"))
    )


def _matched(kind: ResourceKind, scope: ScopeSettings) -> Iterator[tuple[str, str, Column]]:
    """Yield the settings that have patterns, each with its column, and whether a row matches (boolean)."""
    for name, column in kind.names.ignores.items():
        if patterns := scope.patterns(name):
            yield name, column, F.coalesce(any_matches(column, patterns), F.lit(False))
