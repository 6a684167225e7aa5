"""Decide which client quotas to alter: joins validated rows of `quotas` with the described quotas.

A row declares all limits of its entity. Entities without a row aren't changed.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.config.settings import Settings
from topicledger.ledger.rows import touched
from topicledger.manifests.rows import ABSENT, PRESENT, Transform
from topicledger.model import Decision
from topicledger.observe.listed import Listed
from topicledger.observe.topics import ClusterStatus
from topicledger.phases import DECIDED_RESOURCE, VALUES
from topicledger.resources.deciding import at_most, beside_live, decided, warned
from topicledger.resources.quotas import rows as manifests
from topicledger.resources.quotas.actions import MAX_QUOTA_CHANGES
from topicledger.resources.quotas.entity import ENTITY, LIMITS
from topicledger.resources.quotas.names import NAMES, QuotaAction
from topicledger.resources.quotas.rows import declared_limits, entity_of, limits_of, text_of

ALTER = QuotaAction.ALTER_QUOTA.value
UNUSUAL = "unusual_quota"
"""Name of the warning about quotas that almost never apply."""


def decide(seen: Listed, clusters: Mapping[str, ClusterStatus], settings: Settings, judged_by: Transform) -> Transform:
    """Return phases decide, policy and guard for quotas: see `Deciding.decide`.

    The decision is alter_quota, unchanged or unmanaged. `before` and `after` have the limits that differ. Actions that
    a policy refuses don't count for the guard.
    """

    def transform(judged: DataFrame) -> DataFrame:
        sets = F.col("state").eqNullSafe(F.lit(PRESENT))
        return (
            judged.transform(compared(seen, clusters))
            .transform(judged_by)
            .transform(at_most(ALTER, MAX_QUOTA_CHANGES, settings.guards))
            .transform(warned(UNUSUAL, F.when(decided(ALTER) & sets, manifests.unusual())))
            .select(*DECIDED_RESOURCE.names)
        )

    return transform


def compared(seen: Listed, clusters: Mapping[str, ClusterStatus]) -> Transform:
    """Return phase decide. In: as `decide`. Out: the rows that policies of quotas see."""
    live = seen.rows.select(
        "cluster", text_of().alias("resource"), limits_of().alias("live_limits"),
        *(F.col(name).alias(f"_{name}") for name in ENTITY),
    )  # fmt: skip

    def transform(judged: DataFrame) -> DataFrame:
        entity = {name: F.coalesce(name, f"_{name}") for name in ENTITY}
        return (
            judged.withColumn("limits", declared_limits())
            .transform(beside_live(NAMES.resource_type, live, seen, clusters))
            # Policies of quotas need no answer from brokers.
            .withColumns({**entity, "validated": F.lit(True)})
            .transform(_decided)
        )

    return transform


def differing() -> dict[str, Column]:
    """Return `before` and `after` (map<string,string>): the limits of `live_limits` and of `limits` that differ.

    A null map counts as empty.
    """
    limits, live = (F.coalesce(name, F.create_map().cast(VALUES)) for name in ("limits", "live_limits"))

    def differs(name: Column, _: Column) -> Column:
        # Compared as numbers: two ways to write one are the same limit.
        return ~limits[name].cast("double").eqNullSafe(live[name].cast("double"))

    return {"before": F.map_filter(live, differs), "after": F.map_filter(limits, differs)}


def _decided(rows: DataFrame) -> DataFrame:
    declared = F.col("state").isNotNull()
    decision = (
        F.when(~declared, F.lit(Decision.UNMANAGED.value))
        .when(F.size(touched()) > 0, F.lit(ALTER))
        .otherwise(F.lit(Decision.UNCHANGED.value))
    )
    return (
        rows.withColumn("live_limits", F.coalesce("live_limits", F.create_map().cast(VALUES)))
        .withColumn("limits", F.coalesce("limits", "live_limits"))
        .withColumns(differing())
        .withColumn("decision", F.when(F.col("phase").isNull(), decision))
        .withColumns({name: F.when(decided(ALTER), F.col(name)) for name in ("before", "after")})
    )


def live(observed: DataFrame) -> DataFrame:
    """See `AsRows.live`."""
    return observed.select("cluster", text_of().alias("resource"), limits_of().alias("now"))


def _as_rows(changed: DataFrame, old: str, new: str) -> DataFrame:
    """Convert changes to rows of `quotas` without owner and labels: `now` without the limits of `old`, with `new`."""
    now = F.coalesce("now", F.create_map().cast(VALUES))
    kept = F.map_filter(now, lambda name, _: ~F.array_contains(F.map_keys(old), name))
    kept = F.map_filter(kept, lambda name, _: ~F.array_contains(F.map_keys(new), name))
    limits = F.map_concat(kept, F.col(new))
    return changed.withColumns(
        {
            **entity_of("resource"),
            **{name: limits[name].cast("double") for name in LIMITS},
            "state": F.when(F.size(limits) > 0, F.lit(PRESENT)).otherwise(F.lit(ABSENT)),
        }
    )


def asked_by(planned: DataFrame) -> DataFrame:
    """See `AsRows.asked_by`."""
    return planned.transform(_as_rows, "before", "after")


def undo(done: DataFrame) -> DataFrame:
    """See `AsRows.undo`: changed limits get their previous values; the others stay as they are."""
    now = F.coalesce("now", F.create_map().cast(VALUES))

    def changed(name: Column) -> Column:
        return ~now[name].cast("double").eqNullSafe(F.col("after")[name].cast("double"))

    others = F.array_sort(F.filter(touched(), changed))
    stale = F.concat(F.lit("its limits were changed since: "), F.array_join(others, ", "))
    return done.transform(_as_rows, "after", "before").withColumn("stale", F.when(F.size(others) > 0, stale))
