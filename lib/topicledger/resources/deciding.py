"""Common steps of deciding on resources other than topics."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.actions.safeguards import Guard
from topicledger.config.guards import GuardSettings
from topicledger.manifests.rows import Transform
from topicledger.model import Outcome, Phase, Refusal
from topicledger.observe.listed import Listed
from topicledger.observe.topics import ClusterStatus
from topicledger.phases import ENDED, GUARDED, VIOLATIONS, null
from topicledger.policies.evaluating import together, warning
from topicledger.resources.ending import ended, lookup, with_ended
from topicledger.resources.limiting import limited


def beside_live(
    resource_type: str, live: DataFrame, listed: Listed, clusters: Mapping[str, ClusterStatus]
) -> Transform:
    """Join validated rows, perhaps with `undeclared`, with `live` (cluster, resource, and more).

    Adds `live` (whether the resource exists) and the other columns of decisions. Ends rows of clusters whose resources
    are unknown.
    """

    def transform(declared: DataFrame) -> DataFrame:
        ids = {name: status.cluster_id for name, status in clusters.items()}
        if "undeclared" not in declared.columns:
            declared = declared.withColumn("undeclared", F.lit(False))
        return (
            declared.join(live.withColumn("live", F.lit(True)), on=["cluster", "resource"], how="full_outer")
            .withColumns(
                {
                    "live": F.coalesce("live", F.lit(False)),
                    "cluster_id": lookup(ids, F.col("cluster")),
                    "resource_type": F.lit(resource_type),
                    "violations": F.lit(None).cast(VIOLATIONS),
                    "waits": F.lit(False),
                    "guards": null(GUARDED),
                    "_unknown": F.when(F.col("phase").isNull(), _unknown(listed, clusters)),
                }
            )
            .transform(with_ended, "_unknown")
        )

    return transform


def _unknown(listed: Listed, clusters: Mapping[str, ClusterStatus]) -> Column:
    """Return the struct that ends a declared row of an unreachable, different or unlistable cluster."""
    found = {}
    for name, status in clusters.items():
        each = listed.statuses.get(name)
        if status.error is not None:
            found[name] = (Phase.OBSERVE, Outcome.FAILED, Refusal.CLUSTER_UNREACHABLE, status.error)
        elif status.refused is not None:
            found[name] = (Phase.GUARD, Outcome.REFUSED, status.refused.error, status.refused.message)
        elif each is not None and each.error is not None:
            found[name] = (Phase.OBSERVE, Outcome.REFUSED, each.error, each.message or "")
    rows = null(ENDED)
    for name, values in found.items():
        rows = F.when(F.col("cluster") == name, ended(*map(F.lit, map(str, values)))).otherwise(rows)
    return rows


def undescribed(listed: Listed, text: Column) -> DataFrame | None:
    """Return cluster, resource, `error` and `error_message` of undescribed resources; None if there are none.

    `text`: a resource's name in `plans`.
    """
    if listed.undescribed is None:
        return None
    return listed.undescribed.select("cluster", text.alias("resource"), "error", "error_message")


def of_described(listed: Listed, text: Column) -> Transform:
    """Leave out rows about undescribed resources. In: cluster, resource."""
    unknown = undescribed(listed, text)
    if unknown is None:
        return lambda rows: rows
    return lambda rows: rows.join(unknown, on=["cluster", "resource"], how="left_anti")


def without_undescribed(listed: Listed, text: Column) -> Transform:
    """End declared rows of resources that brokers don't describe; the other rows of their clusters stay open."""
    unknown = undescribed(listed, text)
    if unknown is None:
        return lambda rows: rows
    failed = F.when(F.col("error") == Refusal.NO_ANSWER.value, F.lit(Outcome.FAILED.value))
    outcome = F.coalesce(failed, F.lit(Outcome.REFUSED.value))
    end = ended(F.lit(Phase.OBSERVE.value), outcome, "error", "error_message").alias("_undescribed")
    found = unknown.select("cluster", "resource", end)
    return lambda rows: (
        rows.join(found, on=["cluster", "resource"], how="left")
        .withColumn("_undescribed", F.when(F.col("phase").isNull(), F.col("_undescribed")))
        .transform(with_ended, "_undescribed")
        .drop("_undescribed")
    )


def warned(policy: str, message: Column) -> Transform:
    """Add a warning to rows that have a `message`: a violation of `policy` that refuses nothing."""
    # Rows that are evaluated again have the warning already.
    return lambda rows: rows.withColumn("violations", together(F.col("violations"), warning(policy, message)))


def decided(action: str) -> Column:
    """Return whether a row needs this action and hasn't ended."""
    return F.coalesce((F.col("decision") == action) & F.col("phase").isNull(), F.lit(False))


def may_be_made(action: str) -> Column:
    """Return whether a row needs this action, and hasn't ended, or only by guards: an approval may still allow it."""
    opens = F.col("phase").isNull() | F.col("guards").isNotNull()
    return F.coalesce((F.col("decision") == action) & opens, F.lit(False))


def at_most(action: str, guard: Guard, guards: GuardSettings) -> Transform:
    """Stop all such actions of a cluster that has more of them than its guard allows."""
    return limited(guard, guards.most(guard.setting), F.col("decision") == action)
