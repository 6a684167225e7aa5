"""The scope of a run, for topics and for the other kinds of resources: see `resources.scoped`."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.ledger.rows import is_replaced, is_undeclared
from topicledger.ledger.run import Run
from topicledger.manifests.rows import Transform
from topicledger.model import Action
from topicledger.model.scope import Scope
from topicledger.resources import scoped
from topicledger.resources.kind import ResourceKind
from topicledger.resources.registry import KINDS
from topicledger.schemas import MANIFESTS, Table


def inside(run: Run, undeclared: Column | None = None) -> Transform | None:
    """Return a transform that adds `INSIDE` to topics; None if all are inside. In: cluster, topic, owner.

    `undeclared` (boolean): topics that belong to their owners by [owners] of the settings; a prune has no others. By
    default, decisions that delete a topic without a row, whose last owner is unknown.
    """
    scope = run.scope
    if not scope.narrows:
        return None
    files = _changed_by_files(run, MANIFESTS, run.manifest_version)
    keys = None if files is None else files.select("cluster", "topic")
    # A prune has a row without a topic for each cluster.
    always = None if run.prunes is None else F.col("topic").isNull()
    if run.prunes is not None:
        undeclared = F.lit(True)

    def transform(topics: DataFrame) -> DataFrame:
        theirs = undeclared
        if theirs is None and "before" in topics.columns:
            theirs = (is_undeclared() | is_replaced()) & F.col("owner").isNull()
        of_topics = scoped.OF_TOPICS if theirs is None else scoped.topics_of(run.settings.owners, theirs)
        return topics.transform(scoped.with_inside(scope, of_topics, keys, always=always))

    return transform


def topics(within: Transform | None) -> Transform:
    """Return a transform that closes decisions on topics outside. In and out: `phases.DECIDED`; `within`: `inside`."""
    if within is None:
        return lambda decisions: decisions
    return lambda decisions: decisions.transform(within).transform(scoped.left_outside(tuple(Action), "topic"))


def resources(run: Run, kind: ResourceKind, clusters: Collection[str]) -> Transform:
    """Return a transform that closes decisions on other resources outside. In and out: as `Deciding.compare` returns.

    `clusters`: names of the settings' clusters.
    """
    scope = run.scope
    if not scope.narrows:
        return lambda decisions: decisions
    files = _changed_by_files(run, kind.table, run.version_of(kind.table))
    validate = kind.rows.validate(clusters, None)
    keys = None if files is None else files.transform(validate).select("cluster", "resource")
    removed = _removed_by_files(run, kind.table)
    owned = _with_owners_of(removed.transform(validate)) if removed is not None else lambda decisions: decisions
    within = scoped.with_inside(scope, kind.deciding.scoped, keys, text="resource")
    outside = scoped.left_outside(tuple(each.name for each in kind.actions), "resource")
    return lambda decisions: decisions.transform(owned).transform(within).transform(outside)


def declarations(scope: Scope, table: Table) -> Transform:
    """Return a transform that keeps the rows of a table that the scope's owners, topics and resources select."""
    if table is MANIFESTS:
        return scoped.declared_within(scope, scoped.OF_TOPICS, None)
    (kind,) = (each for each in KINDS if each.table is table)
    return scoped.declared_within(scope, kind.deciding.scoped, kind.rows.text_of())


def _with_owners_of(removed: DataFrame) -> Transform:
    """Return a transform that gives resources without a row the owner of the row that a plan's files remove.

    In and out: as `Deciding.compare` returns. In: the rows to remove, as the kind's `validate` returns them.
    """
    left = removed.groupBy("cluster", "resource").agg(F.max("owner").alias("_owner_then"))
    owner = F.when(F.col("state").isNull(), F.coalesce("owner", "_owner_then")).otherwise(F.col("owner"))
    return lambda decisions: (
        decisions.join(left, on=["cluster", "resource"], how="left")
        .withColumn("owner", owner)
        .select(*decisions.columns)
    )


def _removed_by_files(run: Run, table: Table) -> DataFrame | None:
    files = run.unloaded.get(table.name)
    return None if files is None else files.removed


def _changed_by_files(run: Run, table: Table, version: int | None) -> DataFrame | None:
    """Return the rows that loading the files of a plan changes, at the version planned from; None without such files.

    A row that the table already has is no change of these files: what is pending for it came with an earlier load.
    """
    files = run.unloaded.get(table.name)
    if files is None:
        return None
    return files.changed(table, run.ledger.read_at(table, version))
