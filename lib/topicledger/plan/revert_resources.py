"""`runs revert` of resources other than topics: a run's rows inverted, and validated and decided like declared ones.

Resources that another client or a later run changed since are skipped: they aren't as the reverted run left them.
Topics have a pipeline of their own in `revert`: it undoes each action by itself, as actions on topics overlap.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.frames import materialised
from topicledger.ledger.run import Run
from topicledger.manifests.owners import is_one_of
from topicledger.manifests.rows import Transform
from topicledger.model import Outcome, Phase, Refusal
from topicledger.model.scope import Scope
from topicledger.observe.listed import Listed
from topicledger.observe.topics import ClusterStatus
from topicledger.plan.intent import declarations_of, declared_now, reason
from topicledger.plan.reverted import changed_later
from topicledger.policies.contract import text
from topicledger.resources import ignoring
from topicledger.resources.deciding import of_described
from topicledger.resources.deciding import warned as with_warning
from topicledger.resources.ending import ended, lookup, with_ended
from topicledger.resources.kind import ResourceKind
from topicledger.resources.topics.plan.revert import STILL_DECLARED, UNSURE
from topicledger.schemas import PLANS

_KEY = ("cluster", "resource")


def validated(
    run: Run,
    kind: ResourceKind,
    done: DataFrame,
    declared: DataFrame,
    listed: Listed,
    clusters: Mapping[str, ClusterStatus],
) -> DataFrame:
    """The result of `kind.rows.validate` for rows that undo each of `done`, with `undeclared`, materialised.

    `done`: rows of `reverted.changed_by`; `declared`: from `kind.rows.validate` for its current table, from which
    owners and labels are taken. See `_with_owners` for resources that it doesn't declare.
    """
    reverted = run.reverts
    assert reverted is not None, "the run reverts another"
    own = declared.select(*_KEY, F.struct("owner", "labels").alias("_declared"))
    undone = (
        done.drop("topic", "topic_id")
        .join(listed.rows.transform(kind.as_rows.live), on=[*_KEY], how="left")
        .join(own, on=[*_KEY], how="left")
        .transform(_with_owners(run.ledger.read(PLANS), declared, kind, run.scope))
        .join(_last_change(run, reverted, kind, done), on=[*_KEY], how="left")
        .transform(kind.as_rows.undo)
        .transform(materialised)
    )
    ids = {name: status.cluster_id for name, status in clusters.items()}
    this = lookup(ids, F.col("cluster"))
    mismatch = text("run ", reverted, " changed cluster ", F.col("_done_id"), ", and this is ", this)
    unknown = text(
        "run ", reverted, " was abandoned before the outcome of its ", F.col("_action"),
        " was known: look at the resource, and declare what it should be",
    )  # fmt: skip
    # A failed action that changed nothing needs nothing.
    stale = F.when(~(F.col("_as_before") & F.col("_failed").isNotNull()), F.col("_stale"))
    others = F.coalesce(stale, F.col("_later"))
    skipped = text("not as run ", reverted, " left it: ", others)
    observe, refused = F.lit(Phase.OBSERVE.value), F.lit(Outcome.REFUSED.value)
    end = (
        F.when(
            this != F.col("_done_id"),
            ended(F.lit(Phase.GUARD.value), refused, F.lit(Refusal.CLUSTER_ID_MISMATCH.value), mismatch),
        )
        .when(~F.col("_known"), ended(observe, refused, F.lit(Refusal.NOT_REVERTIBLE.value), unknown))
        .when(
            others.isNotNull(),
            ended(observe, F.lit(Outcome.SKIPPED.value), F.lit(None).cast("string"), skipped),
        )
    )
    of_done = undone.select(
        *_KEY,
        F.col("cluster_id").alias("_done_id"),
        F.col("action").alias("_action"),
        F.col("known").alias("_known"),
        F.col("failed").alias("_failed"),
        F.col("stale").alias("_stale"),
        F.col("as_before").alias("_as_before"),
        F.col("later").alias("_later"),
        F.col("_declared").isNull().alias("undeclared"),
    )
    # A resource that its cluster doesn't list or describe is not stale: deciding reports why it is unknown.
    told = F.col("cluster").isin(*listed.known)
    of_done = of_done.transform(of_described(listed, kind.rows.text_of()))
    validate = ignoring.validated_by(kind, run.settings, None)
    rows = undone.select(*kind.table.schema.names).transform(validate).join(of_done, on=[*_KEY], how="left")
    rows = rows.withColumn("_end", F.when(told & F.col("phase").isNull(), end)).transform(with_ended, "_end")
    gone = ("_end", "_done_id", "_action", "_known", "_failed", "_stale", "_as_before", "_later")
    return rows.drop(*gone).transform(materialised)


def _with_owners(plans: DataFrame, declared: DataFrame, kind: ResourceKind, scope: Scope) -> Transform:
    """Set owners and labels of reverted resources. In: rows of `reverted.changed_by` with `_declared`.

    The owner is the first that is known: that of the row that declares the resource; its owner in the reverted run's
    plan; one whose resources the requester may not plan, or else one of the scope's owners, among its last owner in any
    plan and the owners of resources with the same holder; any of these.
    """

    def transform(done: DataFrame) -> DataFrame:
        planned = plans.where((F.col("resource_type") == kind.resource_type) & F.col("owner").isNotNull())
        last = planned.groupBy(*_KEY).agg(F.max_by("owner", "planned_at").alias("_last_owner"))
        rows = done.join(last, on=[*_KEY], how="left").withColumn("_others", F.array().cast("array<string>"))
        holder = kind.deciding.scoped.holder
        if holder is not None:
            held = declared.groupBy("cluster", F.col(holder).alias("_holder"))
            others = held.agg(F.array_sort(F.collect_set("owner")).alias("_others"))
            own = F.coalesce(F.col("after")[holder], F.col("before")[holder])
            rows = rows.drop("_others").withColumn("_holder", own).join(others, on=["cluster", "_holder"], how="left")
        found = F.array_compact(
            F.concat(F.array("_last_owner"), F.coalesce("_others", F.array().cast("array<string>")))
        )

        def among(owners: tuple[str, ...]) -> Column:
            return F.filter(found, lambda each: F.coalesce(is_one_of(each, owners), F.lit(False)))

        candidates = [*(among(each) for each in (scope.barred, scope.owners) if each), found]
        undeclared = F.coalesce("owner", *(F.try_element_at(each, F.lit(1)) for each in candidates))
        return rows.withColumns(
            {
                "owner": F.when(F.col("_declared").isNotNull(), F.col("_declared.owner")).otherwise(undeclared),
                "labels": F.col("_declared.labels"),
            }
        ).drop("_last_owner", "_others", "_holder")

    return transform


def _last_change(run: Run, reverted: str, kind: ResourceKind, done: DataFrame) -> DataFrame:
    """cluster, resource, and `later`: the run that changed it after the reverted one."""
    last = F.max_by("run_id", "completed_at")
    later = changed_later(run.ledger, reverted, done, kind.resource_type)
    return later.groupBy(*_KEY).agg(text("run ", last, " changed it later").alias("later"))


def warned(run: Run, kind: ResourceKind, done: DataFrame, declared: DataFrame) -> Transform:
    """Add warnings to decisions that undo changes which the kind's table still declares, or that may not be the run's.

    In and out: `phases.DECIDED_RESOURCE` and `action`. `done`, `declared`: as for `validated`.
    """
    reverted = run.reverts
    assert reverted is not None, "the run reverts another"
    # Whether runs change resources that no row declares.
    managed = kind.deciding.manages(run.settings)
    failed = done.where(F.col("failed").isNotNull()).select(*_KEY, F.col("failed").alias("_failed"))

    def transform(decisions: DataFrame) -> DataFrame:
        of = declarations_of(kind)
        rows = decisions.join(declared.transform(declared_now(of)), on=[*_KEY], how="left")
        rows = rows.join(failed, on=[*_KEY], how="left")
        planned = F.col("phase").isNull() & F.col("action").isNotNull()
        concerned = planned & (F.lit(managed) | F.col("is_declared").isNotNull())
        why = F.when(concerned, reason(of))
        message = text(f"{of.rows} ", why, ": the next run may change it back")
        unsure = text(
            "it is unknown whether run ", reverted, " made this change, since it failed: ", F.col("_failed")
        )  # fmt: skip
        return (
            rows.transform(with_warning(STILL_DECLARED, F.when(why.isNotNull(), message)))
            .transform(with_warning(UNSURE, F.when(planned & F.col("_failed").isNotNull(), unsure)))
            .select(*decisions.columns)
        )

    return transform
