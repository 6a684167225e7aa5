"""The planned actions of a run by how far they came, from `plans` and `audit`: a resumed run continues there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.actions.kind import DECLARED
from topicledger.ledger.outcomes import Standing, with_outcomes
from topicledger.ledger.run import Run
from topicledger.model import Key, Results, Target, TopicResult, Violation, Work
from topicledger.resources import registry

KEY = ("cluster", "resource", "action")
"""Columns that make a `Key`."""


def standing(run: Run, *where: Standing) -> DataFrame:
    """Return the planned actions that came this far.

    Out: the columns of `plans`, `maybe_sent`, `standing`, and `applied`: the answer (`outcomes.ANSWER`), or null.
    """
    rows = with_outcomes(run.open_actions(), run.audit()).drop("validated", "exists", "over", "result")
    return rows.where(F.col("standing").isin(*(each.value for each in where)))


def sendable(run: Run, less: Sequence[str] = (), left_open: Collection[Key] = ()) -> DataFrame:
    """Return the actions that wait to be sent, without those on the clusters `less` and those in `left_open`."""
    rows = standing(run, Standing.VALIDATED).where(~F.col("cluster").isin(*less))
    return without(run, rows, left_open)


def applied(run: Run) -> tuple[Work, Results]:
    """Return the actions that wait to be verified, and the answers to them."""
    results: dict[Key, TopicResult] = {}

    def keep(row: Mapping[str, Any]) -> None:
        answered = row["applied"]
        results[row["cluster"], row["resource"], row["action"]] = TopicResult(
            topic_id=answered["topic_id"], num_partitions=answered["num_partitions"]
        )

    return in_batches(standing(run, Standing.APPLIED), "applied", each=keep), results


def in_batches(rows: DataFrame, *more: str, each: Callable[[Mapping[str, Any]], None] | None = None) -> Work:
    """Bring planned actions to the driver: kinds in their order, each in the plan's batches.

    `each` gets every row, with the columns `more`.
    """
    named = ("cluster", "cluster_id", "topic", "resource_type", "resource", "action", "topic_id", "batch", "maybe_sent")
    columns = (*named, *DECLARED, "violations", "before", "after", *more)
    kinds = F.array(*(F.lit(kind.name) for kind in registry.in_order()))
    place = F.array_position(kinds, F.col("action")).alias("place")
    order = [(name, "ascending") for name in ("cluster", "place", "batch", "resource")]
    table = rows.select(*columns, place).toArrow().sort_by(order)
    work: dict[str, tuple[str, list[list[Target]]]] = {}
    records = (row for batch in table.to_batches(max_chunksize=10_000) for row in batch.to_pylist())
    for (cluster, _, _), group in groupby(records, key=lambda row: (row["cluster"], row["action"], row["batch"])):
        targets = []
        for row in group:
            if each is not None:
                each(row)
            work.setdefault(cluster, (row["cluster_id"], []))
            targets.append(target(row))
        work[cluster][1].append(targets)
    return work


def target(row: Mapping[str, Any]) -> Target:
    """Convert a row of `plans` with `maybe_sent` to a target."""
    assignments = row["assignments"]
    return Target(
        resource=row["resource"],
        action=row["action"],
        topic_id=row["topic_id"],
        num_partitions=row["num_partitions"],
        replication_factor=row["replication_factor"],
        assignments=None if assignments is None else {partition: tuple(ids) for partition, ids in assignments},
        configs=dict(row["configs"] or ()),
        violations=tuple(Violation(**each) for each in row["violations"] or ()),
        batch=row["batch"],
        before=dict(row["before"] or ()),
        after=dict(row["after"] or ()),
        maybe_sent=row["maybe_sent"],
    )


def only(work: Work, chosen: Callable[[str, Target], bool]) -> Work:
    """Return the actions of `work` for which `chosen` (of cluster and target) is true, in their batches."""
    found: dict[str, tuple[str, list[list[Target]]]] = {}
    for name, (cluster_id, batches) in work.items():
        kept = [each for each in ([target for target in batch if chosen(name, target)] for batch in batches) if each]
        if kept:
            found[name] = (cluster_id, kept)
    return found


def without(run: Run, rows: DataFrame, keys: Collection[Key], *, how: str = "left_anti") -> DataFrame:
    """Return rows without those of `keys`; with `left_semi`, only those of `keys`."""
    if not keys:
        return rows
    named = run.spark.createDataFrame(sorted(keys), ", ".join(f"{name} string" for name in KEY))
    return rows.join(F.broadcast(named), on=[*KEY], how=how)
