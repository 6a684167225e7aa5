"""The scope of a run, for topics and for the other kinds of resources: see `resources.scoped`."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger.ledger.run import Run
from topicledger.manifests.rows import Transform
from topicledger.model import Action
from topicledger.resources import scoped
from topicledger.resources.kind import ResourceKind
from topicledger.schemas import MANIFESTS


def inside(run: Run, undeclared: Column | None = None) -> Transform | None:
    """Return a transform that adds `INSIDE` to topics; None if all are inside. In: cluster, topic, owner.

    `undeclared` (boolean): topics that belong to their owners by [owners] of the settings; a prune has no others.
    """
    scope = run.scope
    if not scope.narrows:
        return None
    files = run.unloaded.get(MANIFESTS.name)
    keys = None if files is None else files.touched.select("cluster", "topic")
    # A prune has a row without a topic for each cluster.
    always = None if run.prunes is None else F.col("topic").isNull()
    if run.prunes is not None:
        undeclared = F.lit(True)
    of_topics = scoped.OF_TOPICS if undeclared is None else scoped.topics_of(run.settings.owners, undeclared)
    return scoped.with_inside(scope, of_topics, keys, always=always)


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
    files = run.unloaded.get(kind.table.name)
    judge = kind.rows.judge(clusters, None)
    keys = None if files is None else files.touched.transform(judge).select("cluster", "resource")
    within = scoped.with_inside(scope, kind.deciding.scoped, keys, text="resource")
    actions = tuple(each.name for each in kind.actions)
    return lambda decisions: decisions.transform(within).transform(scoped.left_outside(actions, "resource"))
