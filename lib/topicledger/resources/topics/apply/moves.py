"""The moves of a plan: until when they may begin, and totals for people: bytes by broker, and the estimated time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console

from topicledger.ledger.outcomes import is_stopped
from topicledger.ledger.rows import parts_of, read_moves
from topicledger.ledger.run import Run
from topicledger.model import ReplicaAction, Work
from topicledger.text import cell, counted, duration, grid_of


@dataclass(frozen=True, kw_only=True)
class PlannedMoves:
    """Totals of the planned moves on one cluster."""

    cluster: str
    topics: int
    partitions: int
    bytes: int
    """Bytes to copy, as far as known."""
    unknown: int
    """Number of topics of unknown size."""
    stopped: int = 0
    """Number of the partitions whose moves guards stopped: an approval may allow them."""
    brokers: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Broker -> bytes of the replicas that it gets, and of those that it gives away."""
    seconds: float | None = None
    """Estimated seconds at the throttle, by the broker that gets the most bytes; None without a throttle."""

    def __str__(self) -> str:
        unknown = f", {counted(self.unknown, 'topic')} of unknown size" if self.unknown else ""
        took = "" if self.seconds is None else f", about {duration(round(self.seconds))} at the throttle"
        partitions, topics = counted(self.partitions, "partition"), counted(self.topics, "topic")
        stopped = f"; guards stopped {self.stopped:,} of the partitions" if self.stopped else ""
        return f"{partitions} of {topics}, {self.bytes:,} bytes{unknown}{took}{stopped}"


def begin_until(run: Run, work: Work) -> Mapping[str, datetime]:
    """Return by cluster when its first planned move expires (`guards.max_plan_age`), for clusters with moves.

    A later start may have planned a cluster that couldn't be reached before, so clusters differ.
    """
    moves = ReplicaAction.REASSIGN
    moving = [
        name for name, (_, batches) in work.items() if any(each.action == moves for batch in batches for each in batch)
    ]
    if not moving:
        return {}
    of_moves = run.plans().where((F.col("action") == moves.value) & F.col("cluster").isin(*moving))
    age = timedelta(seconds=run.settings.guards.max_plan_age)
    first = of_moves.groupBy("cluster").agg(F.min("planned_at").alias("planned_at")).collect()
    return {row["cluster"]: row["planned_at"].astimezone(UTC) + age for row in first}


def planned_moves(plans: DataFrame, throttle: int) -> Sequence[PlannedMoves]:
    """Return the totals of the planned reassignments that have not ended, or that only guards stopped, by cluster.

    In: rows of `plans` of one run, without a phase if approvals let them through. `throttle`: bytes per second.
    """
    may_be_made = F.col("phase").isNull() | is_stopped()
    moves = plans.where((F.col("action") == ReplicaAction.REASSIGN.value) & may_be_made).select(
        "cluster",
        F.size(read_moves()).alias("partitions"),
        F.when(F.col("phase").isNotNull(), F.size(read_moves())).otherwise(0).alias("stopped"),
        F.col("after")["bytes"].cast("bigint").alias("bytes"),
        parts_of(F.col("after")["broker_bytes"], ";").alias("brokers"),
    )
    totals = moves.groupBy("cluster").agg(
        F.count(F.lit(1)).alias("topics"),
        F.sum("partitions").alias("partitions"),
        F.sum("stopped").alias("stopped"),
        F.coalesce(F.sum("bytes"), F.lit(0)).alias("bytes"),
        F.count_if(F.col("bytes").isNull()).alias("unknown"),
    )
    found = totals.orderBy("cluster").collect()
    if not found:
        return []
    flow = F.split(F.substring_index("each", ":", -1), ",")
    by_broker = (
        moves.select("cluster", F.explode("brokers").alias("each"))
        .groupBy("cluster", F.substring_index("each", ":", 1).cast("int").alias("broker"))
        .agg(F.sum(flow[0].cast("bigint")).alias("comes"), F.sum(flow[1].cast("bigint")).alias("goes"))
    )
    brokers: dict[str, dict[int, tuple[int, int]]] = {}
    for row in by_broker.orderBy("cluster", "broker").collect():
        brokers.setdefault(row["cluster"], {})[row["broker"]] = (row["comes"], row["goes"])
    return [
        PlannedMoves(
            **row.asDict(),
            brokers=brokers.get(row["cluster"], {}),
            seconds=max((comes for comes, _ in brokers.get(row["cluster"], {}).values()), default=0) / throttle
            if throttle and not row["unknown"]
            else None,
        )
        for row in found
    ]


def render_moves(moves: Sequence[PlannedMoves], console: Console) -> None:
    """Print the totals, if there are any moves."""
    for each in moves:
        console.print(f"Moves on {cell(each.cluster)}: {each}", soft_wrap=True)
        if not each.brokers:
            continue
        names = ("broker", "bytes in", "bytes out")
        grid = grid_of(*names, numbers=names)
        for broker, flow in each.brokers.items():
            grid.add_row(str(broker), *(f"{size:,}" for size in flow))
        console.print(grid)
