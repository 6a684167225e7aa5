"""The audits whose findings a report shows, and those that it compares them with: the last one of each cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.drift.summary import found_then
from topicledger.ledger.comparable import last_of_each, of_scope
from topicledger.ledger.sql import sql_text
from topicledger.ledger.tables import Ledger
from topicledger.model import RunState
from topicledger.model.scope import Scope
from topicledger.report.facts import RunFacts, ShownAudit
from topicledger.report.scope import run_facts
from topicledger.schemas import RUNS
from topicledger.text import iso_time, listed

_OTHERS = ""
"""Stands for all clusters without an audit of their own: older audits didn't name their clusters."""


@dataclass(frozen=True, kw_only=True)
class Audits:
    """Audits, and the clusters whose findings are taken from each."""

    by_cluster: Mapping[str, RunFacts]
    """Name of a cluster, or `_OTHERS` -> its audit."""

    def shown(self) -> Sequence[ShownAudit]:
        """Return the audits with their clusters, the newest first."""
        clusters: dict[str, list[str]] = {}
        runs = {run.run_id: run for run in self.by_cluster.values()}
        for name, run in sorted(self.by_cluster.items()):
            clusters.setdefault(run.run_id, []).append(name)
        newest = sorted(runs.values(), key=lambda run: (run.started_at, run.run_id), reverse=True)
        return [ShownAudit(run=run, clusters=tuple(filter(None, clusters[run.run_id]))) for run in newest]

    def of(self, clusters: Collection[str]) -> Audits:
        """Return the audits of some clusters; of all if none is named."""
        if not clusters or _OTHERS in clusters:
            return self
        return Audits(by_cluster={name: run for name, run in self.by_cluster.items() if name in (*clusters, _OTHERS)})

    def removed(self, drift: DataFrame) -> Mapping[str, int]:
        """Return the clusters whose rows of `drift` were removed by age -> findings of their audit without rows.

        All rows of an audit and a cluster have the same age.
        """
        then = {run.run_id: sum(found_then(run.counts).values()) for run in self.by_cluster.values()}
        rows = drift.where(F.col("run_id").isin(*then)).groupBy("run_id", "cluster").count().collect()
        left = {(row["run_id"], row["cluster"]) for row in rows}
        for row in rows:
            then[row["run_id"]] -= row["count"]
        found = {name: then[run.run_id] for name, run in self.by_cluster.items() if (run.run_id, name) not in left}
        return {name: count for name, count in found.items() if count > 0}

    def without(self, clusters: Collection[str]) -> Audits:
        """Return the audits of the other clusters."""
        return Audits(by_cluster={name: run for name, run in self.by_cluster.items() if name not in clusters})

    def compared(self) -> Column:
        """Return whether one of them compared the cluster of a row (boolean)."""
        return F.lit(True) if _OTHERS in self.by_cluster else F.col("cluster").isin(*self.by_cluster)

    def findings(self) -> Column:
        """Return whether a row of `drift` is a finding of its cluster's audit (boolean)."""
        named = [name for name in self.by_cluster if name != _OTHERS]
        own = (
            (F.col("run_id") == each.run.run_id)
            & (F.col("cluster").isin(*each.clusters) if each.clusters else ~F.col("cluster").isin(*named))
            for each in self.shown()
        )
        return reduce(or_, own, F.lit(False))

    def condition(self) -> str:
        """Return the condition of `findings` as SQL."""
        named = ", ".join(sql_text(name) for name in self.by_cluster if name != _OTHERS)
        parts = []
        for each in self.shown():
            others = f" AND cluster NOT IN ({named})" if named else ""
            own = f" AND cluster IN ({', '.join(map(sql_text, each.clusters))})" if each.clusters else others
            parts.append(f"run_id = {sql_text(each.run.run_id)}{own}")
        return "\n  OR ".join(parts)

    def words(self, now: Audits) -> str:
        """Name the audits with which `now` is compared, and their clusters if not all of `now` are compared."""
        found = self.shown()
        complete = len(found) == 1 and (_OTHERS in self.by_cluster or set(now.by_cluster) <= set(self.by_cluster))
        return listed([_in_words(each, complete=complete) for each in found], between="; ")


def _in_words(audit: ShownAudit, *, complete: bool) -> str:
    text = f"audit {audit.run.run_id} ({iso_time(audit.run.started_at)})"
    return text if complete else f"{text} of {', '.join(audit.clusters) or 'other clusters'}"


def of_run(run: RunFacts) -> Audits:
    """Return one audit, with the clusters that it has compared so far."""
    finished = run.clusters.split(",") if run.state == RunState.FINISHED else []
    return Audits(by_cluster=dict.fromkeys(run.audited or finished, run))


def last(ledger: Ledger, scope: Scope, before: datetime, since: datetime | None = None) -> Audits:
    """Return the last audit in a scope of each cluster that began before `before`, and not before `since`."""
    began = F.col("started_at") < F.lit(before)
    if since is not None:
        began = began & (F.col("started_at") >= F.lit(since))
    found = last_of_each(ledger.read(RUNS).where(began & of_scope(scope)), *RUNS.schema.names)
    return Audits(by_cluster={name: run_facts(row) for name, row in found.items()})
