"""Runs that can be compared: those of the same scope, and audits by the clusters that they compared."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from topicledger.ledger.run import CLUSTERS_ARGUMENT
from topicledger.ledger.runs import AUDIT_COMMAND
from topicledger.model import RunState
from topicledger.model.scope import EVERYTHING, Scope

AUDITED_ARGUMENT = "audited"
"""Key in an audit's arguments: the clusters that it has compared, by name, with commas; older audits have none."""
COMPARED = "compared_cluster"
"""Column (string): a cluster that an audit compared; empty for all clusters of the settings."""

_TYPES = {tuple: "array<string>", bool: "boolean"}


def of_scope(scope: Scope) -> Column:
    """Return whether a row of `runs` has the limits of this scope, as `Scope.asked` (boolean)."""
    asked = {name: value for name, value in vars(scope.asked).items() if name not in ("clusters", "kinds", "barred")}
    kept = F.from_json("scope", ", ".join(f"{name} {_TYPES[type(value)]}" for name, value in asked.items()))
    same = F.lit(True)
    for name, value in asked.items():
        same = same & (F.coalesce(kept[name], _literal(type(value)())) == _literal(value))
    return same


def _literal(value: tuple[str, ...] | bool) -> Column:
    return F.lit(value) if isinstance(value, bool) else F.array(*map(F.lit, value)).cast("array<string>")


def audits(runs: DataFrame) -> DataFrame:
    """Keep the audits, once for each cluster that they compared, in `COMPARED`. In: rows of `runs`.

    Audits that didn't reach all clusters count for those that they reached. Older ones didn't name their clusters.
    """
    arguments = F.col("arguments")
    finished = F.when(F.col("state") == RunState.FINISHED.value, F.coalesce(arguments[CLUSTERS_ARGUMENT], F.lit("")))
    names = F.coalesce(arguments[AUDITED_ARGUMENT], finished)
    return runs.where(arguments["command"] == AUDIT_COMMAND).withColumn(COMPARED, F.explode(F.split(names, ",")))


def last_of_each(runs: DataFrame, *columns: str) -> Mapping[str, Row]:
    """Return these columns of the last audit of each cluster, by `COMPARED`. In: rows of `runs`.

    `columns` contain started_at and run_id. A cluster isn't there if a later audit compared all clusters.
    """
    last = F.max_by(F.struct(*columns), F.struct("started_at", "run_id")).alias("last")
    found = {row[COMPARED]: row["last"] for row in audits(runs).groupBy(COMPARED).agg(last).collect()}
    of_all = found.get("")
    if of_all is None:
        return found
    began = of_all["started_at"], of_all["run_id"]
    return {name: row for name, row in found.items() if not name or (row["started_at"], row["run_id"]) > began}


def last_findings(runs: DataFrame, drift: DataFrame) -> DataFrame:
    """Return run_id and cluster of the rows of `drift` that the last whole audit of each cluster found.

    In: rows of `runs` and `drift`.
    """
    last = dict(last_of_each(runs.where(of_scope(EVERYTHING)), "started_at", "run_id"))
    of_all, cluster, run_id = last.pop("", None), F.col("cluster"), F.col("run_id")
    found = [(cluster == name) & (run_id == row["run_id"]) for name, row in last.items()]
    if of_all is not None:
        found.append(~cluster.isin(*last) & (run_id == of_all["run_id"]))
    return drift.where(reduce(or_, found, F.lit(False))).select("run_id", "cluster").distinct()
