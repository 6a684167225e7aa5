"""The findings of earlier audits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from topicledger.ledger.comparable import last_of_each, of_scope
from topicledger.ledger.run import Run
from topicledger.ledger.runs import AUDIT_COMMAND
from topicledger.model import RunState
from topicledger.model.scope import EVERYTHING
from topicledger.schemas import DRIFT, RUNS

_AT = ("started_at", "run_id")
"""Audits in order."""


def found_before(run: Run, clusters: Sequence[str]) -> DataFrame:
    """Return the rows of `drift` that the last audit of each cluster found.

    It is the latest audit that compared the cluster, whether it reached the others or not. An audit of another scope
    may have left out what this one finds.
    """
    earlier = run.ledger.read(RUNS).where(
        (F.col("run_id") != run.run_id) & (of_scope(EVERYTHING) | of_scope(run.scope))
    )
    found = last_of_each(earlier, *_AT)
    last = {name: row for name in clusters if (row := found.get(name, found.get(""))) is not None}
    drift = run.ledger.read(DRIFT)
    oldest = min(last.values()) if set(last) == {*clusters} and last else None
    for name, its_at in _interrupted(earlier, drift, clusters, oldest):
        last[name] = max(its_at, last.get(name, its_at))
    its_last = [(F.col("cluster") == name) & (F.col("run_id") == its_at["run_id"]) for name, its_at in last.items()]
    return drift.where(reduce(or_, its_last, F.lit(False)))


def _interrupted(
    earlier: DataFrame, drift: DataFrame, clusters: Sequence[str], since: Row | None
) -> list[tuple[str, Row]]:
    """Return the clusters of audits that ended between their rows of `drift` and their arguments, with the audits.

    `since`: older ones don't matter; None if all do.
    """
    unfinished = (F.col("arguments")["command"] == AUDIT_COMMAND) & (F.col("state") != RunState.FINISHED.value)
    rows = earlier.where(unfinished).select(*_AT).collect()
    by_id = {row["run_id"]: row for row in rows if since is None or row > since}
    if not by_id:
        return []
    its_rows = drift.where(F.col("run_id").isin(*by_id) & F.col("cluster").isin(*clusters))
    return [(row["cluster"], by_id[row["run_id"]]) for row in its_rows.select("cluster", "run_id").distinct().collect()]
