"""Kinds of drift in replica placement: against the declared placement, and in its evenness."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.config.settings import AuditSettings
from topicledger.config.severities import DriftKind
from topicledger.drift.findings import finding, ids, one
from topicledger.model.placement import PlacementKind
from topicledger.observe.topics import Observation
from topicledger.resources.scoped import INSIDE
from topicledger.resources.topics.plan.moving import Asked, Sizes, planned


def checks(settings: AuditSettings) -> Sequence[Column]:
    """Return the checks of topics that exist and are declared present; see `kinds.checks`.

    The rack of a broker that is down is unknown: its replicas are not checked against a rack.
    """
    most = settings.max_replica_skew
    skew = _uneven() if most is None else F.coalesce(_uneven(), _replica_skew(most))
    return [_racks_shared(), _broker_not_allowed(), skew, _moves_under_way()]


def uneven(validated: DataFrame, seen: Observation, clusters: Collection[str]) -> DataFrame | None:
    """Return topics of placement spread of which a plan would move or reorder replicas, with unchanged counts.

    In: `validated` from `manifests.rows.validate`. Out: cluster, topic, partitions (int); None if no topic is spread.
    """
    spread = validated.where(F.col("phase").isNull() & (F.col("placement") == PlacementKind.SPREAD.value))
    if spread.isEmpty():
        return None
    as_many = spread.withColumn("replication_factor", F.lit(None).cast("int"))
    marked = as_many.withColumn(INSIDE, F.lit(True))
    moves = planned(marked, seen, Sizes(), Asked(moves=clusters)).where(F.col("error").isNull())
    return moves.select("cluster", "topic", F.size("moves").alias("partitions"))


def _is(*kinds: PlacementKind) -> Column:
    return F.substring_index("placement", ":", 1).isin(*(each.value for each in kinds))


def _named() -> Column:
    """The part of a placement after its colon."""
    return F.substring(F.col("placement"), F.instr("placement", ":") + 1, F.length("placement"))


def _racks(replicas: Column) -> Column:
    """The known racks of these brokers (array<string>)."""
    racks = F.transform(replicas, lambda broker: F.col("racks")[broker])
    return F.filter(racks, lambda rack: rack.isNotNull())


def _racks_shared() -> Column:
    enough = F.size(F.array_distinct(F.filter(F.map_values("racks"), lambda rack: rack.isNotNull())))

    def shared(partition: Column) -> Column:
        replicas = F.col("live_assignments")[partition]
        racks = _racks(replicas)
        return (F.size(F.array_distinct(racks)) < F.size(racks)) & (enough >= F.size(replicas))

    found = F.filter(F.array_sort(F.map_keys("live_assignments")), lambda each: F.coalesce(shared(each), F.lit(False)))
    message = F.lit("two of its replicas share a rack, although there are enough racks")
    return F.when(_is(PlacementKind.RACKS, PlacementKind.SPREAD), _partitions(DriftKind.RACKS_SHARED, message, found))


def _broker_not_allowed() -> Column:
    brokers = F.split(_named(), ",")

    def elsewhere(partition: Column) -> Column:
        replicas = F.col("live_assignments")[partition]
        other_rack = F.exists(_racks(replicas), lambda rack: rack != _named())
        other_broker = F.exists(replicas, lambda broker: ~F.array_contains(brokers, broker.cast("string")))
        return F.when(_is(PlacementKind.RACK), other_rack).otherwise(other_broker)

    found = F.filter(
        F.array_sort(F.map_keys("live_assignments")), lambda each: F.coalesce(elsewhere(each), F.lit(False))
    )
    message = F.lit("a replica is on a broker that its placement doesn't allow")
    of_kind = _is(PlacementKind.RACK, PlacementKind.BROKERS)
    return F.when(of_kind, _partitions(DriftKind.BROKER_NOT_ALLOWED, message, found))


def _partitions(kind: DriftKind, message: Column, partitions: Column) -> Column:
    return F.transform(
        partitions,
        lambda partition: finding(
            kind,
            message,
            what=partition,
            declared=F.col("placement"),
            live=ids(F.col("live_assignments")[partition]),
        ),
    )


def _uneven() -> Column:
    message = "its placement is spread, and a run would move replicas or leaders of its partitions to balance them"
    return F.when(
        F.col("uneven").isNotNull(),
        one(DriftKind.REPLICA_SKEW, message, declared=F.col("placement"), live=F.col("uneven")),
    )


def _replica_skew(most: int) -> Column:
    replicas = F.flatten(F.map_values("live_assignments"))
    allowed = F.filter(
        F.map_keys("racks"),
        lambda broker: (
            F.when(_is(PlacementKind.RACK), F.col("racks")[broker] == _named())
            .when(_is(PlacementKind.BROKERS), F.array_contains(F.split(_named(), ","), broker.cast("string")))
            .otherwise(F.lit(True))
        ),
    )
    counts = F.transform(allowed, lambda broker: F.size(F.filter(replicas, lambda each: each == broker)))
    skew = F.array_max(counts) - F.array_min(counts)
    message = "the number of its replicas per broker differs by more than audit.max_replica_skew allows"
    return F.when(skew > most, one(DriftKind.REPLICA_SKEW, message, declared=F.lit(most), live=skew))


def _moves_under_way() -> Column:
    message = "replicas of these partitions are being moved"
    return F.when(
        F.size(F.coalesce("moving", F.array().cast("array<int>"))) > 0,
        one(DriftKind.MOVES_UNDER_WAY, message, live=ids(F.array_sort("moving"))),
    )
