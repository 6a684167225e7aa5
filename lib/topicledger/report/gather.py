"""The Spark actions of a report: only a few, each on aggregates or on a bounded number of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, TypeVar

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from topicledger.frames import materialised
from topicledger.ledger.tables import Ledger
from topicledger.manifests import owners
from topicledger.model import Refusal, RunState
from topicledger.plan.lines import in_words
from topicledger.report import figures, scope, times
from topicledger.report.facts import (
    LISTED_WAITS,
    PROBLEMS,
    Batch,
    Changed,
    ChangedProblem,
    Compared,
    DriftFinding,
    DriftReport,
    DriftTally,
    History,
    PhaseTime,
    PolicyTally,
    Report,
    ReportKind,
    RequestTimes,
    Result,
    RunOfSpan,
    Tally,
    Waiting,
)
from topicledger.report.owners import gather_owned
from topicledger.report.scope import ReportScope, run_facts, utc
from topicledger.review import history
from topicledger.schemas import AUDIT, DRIFT, MANIFESTS, PLANS, RUNS
from topicledger.text import iso_time

LISTED_ROWS = 5_000
LISTED_CHANGES = 500
LISTED_RUNS = 200
LISTED_HISTORIES = 100
"""Most topics whose history a report shows."""
LISTED_FAILURES = 2_000
"""Most pairs of run and owner with failures, over all runs of a span."""
LISTED_BATCHES = 15
LISTED_TALLIES = 5_000
_DAYS_OF_HOURS = 2
_DAYS_OF_DAYS = 62
_DAYS_OF_WEEKS = 400

_T = TypeVar("_T")


def gather(ledger: Ledger, asked: ReportScope, made_at: datetime, *, listed: int = LISTED_ROWS) -> Report:
    """Read the contents of a report, with at most `listed` topics and findings.

    The tables `runs`, `plans` and `audit` must exist; `drift` need not.
    """
    audit = _named(asked.rows(ledger.read(AUDIT), "completed_at"))
    ended = _results(ledger, asked).transform(materialised)
    runs, run_count = _runs(ledger, asked, ended) if asked.run is None else ([], 1)
    # A topic that ten runs refused counts as one refused topic.
    found = ended if asked.run is not None else figures.last_by_topic(ended, ledger.read(RUNS)).transform(materialised)
    by_size = (F.desc("topics"), "cluster", "action", "phase", "outcome", "error")
    tallies = _all(Tally, figures.tallies(found).orderBy(*by_size).limit(LISTED_TALLIES))
    sent = figures.requests(audit).transform(materialised)
    unit, periods = _periods(asked, ended)
    return Report(
        made_at=made_at,
        clusters=asked.clusters,
        span=asked.span,
        run=asked.run,
        history=History(
            runs=runs,
            run_count=run_count,
            periods=periods,
            unit=unit,
            owned=gather_owned(ledger, asked, listed),
        ),
        tallies=tallies,
        policies=_all(PolicyTally, figures.by_policy(audit).orderBy(F.desc("topics"), "policy", "mode", "cluster")),
        requests=_requests(ledger, asked, sent),
        rows=_with_histories(ledger, _listed(_owned(ledger, figures.worst_first, found, listed))),
        query=_query(ledger, asked),
        compared=_compared(ledger, asked, found) if tallies else None,
        drift=_drift(ledger, asked, tallies, listed),
    )


def _requests(ledger: Ledger, asked: ReportScope, sent: DataFrame) -> RequestTimes:
    phases: Sequence[PhaseTime] = ()
    if asked.run is not None and asked.run.kind is ReportKind.RUN:
        rows = (
            asked.rows(ledger.read(table), time) for table, time in ((PLANS, "planned_at"), (AUDIT, "completed_at"))
        )
        phases = times.of_run(asked.run, *rows)
    by_wait = (F.desc("between_seconds"), "cluster", F.desc("phase"))
    return RequestTimes(
        batches=_all(Batch, figures.slowest_first(figures.batches(sent)).limit(LISTED_BATCHES)),
        waiting=_all(Waiting, figures.waiting(sent).orderBy(*by_wait).limit(LISTED_WAITS)),
        phases=phases,
    )


def _all(kind: Callable[..., _T], rows: DataFrame) -> list[_T]:
    """Collect rows as instances of a dataclass whose fields are the columns."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return [kind(**{name: _value(row, name) for name in names}) for row in rows.collect()]


def _with_histories(ledger: Ledger, rows: Sequence[Result]) -> list[Result]:
    """Add histories to the first of `rows` whose topics failed or were refused."""
    problems = [row for row in rows if row.outcome in PROBLEMS and row.cluster and row.topic]
    keys = list(dict.fromkeys((str(row.cluster), str(row.topic)) for row in problems))[:LISTED_HISTORIES]
    found = {(each.cluster, each.topic): each.events for each in history.of_topics(ledger, keys)} if keys else {}
    return [replace(row, history=found.get((row.cluster or "", row.topic or ""), ())) for row in rows]


def _listed(rows: DataFrame) -> list[Result]:
    """Collect rows of `figures.RESULTS` and `owner`."""
    own = [field.name for field in fields(Result) if field.name not in ("what", "history")]
    return [
        Result(**{name: _value(row, name) for name in own}, what=row["plan"] and in_words(row["plan"]))
        for row in rows.collect()
    ]


def _value(row: Row, name: str) -> Any:
    value = row[name]
    return utc(value) if isinstance(value, datetime) else value


def _named(rows: DataFrame) -> DataFrame:
    """Fill `topic` with the resource of rows that are not about a topic."""
    return rows.withColumn("topic", F.coalesce("topic", "resource"))


def _results(ledger: Ledger, asked: ReportScope) -> DataFrame:
    runs = ledger.read(RUNS).where(F.col("state") == RunState.APPLYING.value).select("run_id").collect()
    return figures.results(
        _named(asked.rows(ledger.read(AUDIT), "completed_at")),
        _named(asked.rows(ledger.read(PLANS), "planned_at")),
        [row["run_id"] for row in runs],
    )


def _query(ledger: Ledger, asked: ReportScope) -> str:
    return (
        "SELECT run_id, cluster, topic, action, phase, outcome, error, error_message\n"
        f"FROM {ledger.sql_name(AUDIT)}\n"
        f"WHERE {asked.condition('completed_at')}\n"
        "ORDER BY cluster, topic, completed_at"
    )


def _owned(ledger: Ledger, in_order: Callable[[DataFrame], DataFrame], rows: DataFrame, listed: int) -> DataFrame:
    """The first `listed` rows, with the owners of their topics."""
    first = in_order(rows).limit(listed)
    return first.join(_owners(ledger), ["cluster", "topic"], "left").transform(in_order)


def _owners(ledger: Ledger) -> DataFrame:
    """Owners in the latest `manifests`: cluster, topic, owner."""
    manifests = ledger.read(MANIFESTS) if ledger.exists(MANIFESTS) else ledger.rows(MANIFESTS, [])
    return manifests.transform(owners.of_topics)


def _runs(ledger: Ledger, asked: ReportScope, found: DataFrame) -> tuple[Sequence[RunOfSpan], int]:
    """The newest runs that began in the span or have results in it, and the number of all of them."""
    per_run = (
        found.groupBy("run_id", "outcome")
        .agg(F.count(F.lit(1)).alias("topics"))
        .groupBy("run_id")
        .agg(F.map_from_entries(F.collect_list(F.struct("outcome", "topics"))).alias("outcomes"))
    )
    runs = (
        ledger.read(RUNS)
        .join(per_run, on="run_id", how="left")
        .where(F.col("outcomes").isNotNull() | asked.spans("started_at"))
        .transform(materialised)
    )
    rows = runs.orderBy(F.desc("started_at"), F.desc("run_id")).limit(LISTED_RUNS).collect()
    owned = _owners_of_problems(ledger, found)
    listed = [
        RunOfSpan(run=run_facts(row), outcomes=row["outcomes"] or {}, owners=owned.get(row["run_id"], {}))
        for row in rows
    ]
    return listed, len(rows) if len(rows) < LISTED_RUNS else runs.count()


def _owners_of_problems(ledger: Ledger, found: DataFrame) -> Mapping[str, Mapping[str, int]]:
    """Run id -> owner -> number of topics that failed or were refused, for the owners with the most."""
    problems = found.where(F.col("outcome").isin(*(each.value for each in PROBLEMS)))
    by_owner = (
        problems.join(_owners(ledger), ["cluster", "topic"], "left")
        .groupBy("run_id", F.coalesce("owner", F.lit("")).alias("owner"))
        .agg(F.count(F.lit(1)).alias("topics"))
        .orderBy(F.desc("topics"), "owner")
        .limit(LISTED_FAILURES)
    )
    by_run: dict[str, dict[str, int]] = {}
    for row in by_owner.collect():
        by_run.setdefault(row["run_id"], {})[row["owner"]] = row["topics"]
    return by_run


def _periods(asked: ReportScope, found: DataFrame) -> tuple[str, Sequence[tuple[datetime, Mapping[str, int]]]]:
    """The length of a period (hour, day, week or month), and results by the period that they ended in."""
    if asked.span is None:
        return "day", []
    since, until = asked.span
    days = (until - since).total_seconds() / 86_400
    lengths = {"hour": _DAYS_OF_HOURS, "day": _DAYS_OF_DAYS, "week": _DAYS_OF_WEEKS}
    unit = next((name for name, most in lengths.items() if days <= most), "month")
    rows = (
        found.where("completed_at IS NOT NULL")
        .groupBy(F.date_trunc(unit, "completed_at").alias("began"), "outcome")
        .agg(F.count(F.lit(1)).alias("topics"))
        .orderBy("began")
        .collect()
    )
    periods: dict[datetime, dict[str, int]] = {}
    for row in rows:
        periods.setdefault(utc(row["began"]), {})[row["outcome"]] = row["topics"]
    return unit, list(periods.items())


def _compared(ledger: Ledger, asked: ReportScope, found: DataFrame) -> Compared | None:
    """Compare with the previous run, or with the previous span of the same length; audits are compared by drift."""
    if asked.span is not None:
        since, until = asked.span
        before = replace(asked, span=(since - (until - since), since))
        words = f"the previous span of the same length, from {iso_time(since - (until - since))}"
    elif asked.run is not None and asked.run.kind is ReportKind.RUN:
        last = scope.previous(ledger, asked.run)
        if last is None:
            return None
        before = ReportScope(run=last, clusters=asked.clusters)
        words = f"run {last.run_id} ({last.command}, {iso_time(last.started_at)})"
    else:
        return None
    return _as_compared(figures.changes(_results(ledger, before), found), words)


def _as_compared(changes: DataFrame, last: str) -> Compared:
    kept = changes.transform(materialised)
    counts = {row["change"]: row["count"] for row in kept.groupBy("change").count().collect()}
    listed = [Changed.NEW.value, Changed.OTHER.value, Changed.GONE.value]
    rows: list[ChangedProblem] = []
    if any(counts.get(name) for name in listed):
        order = F.array_position(F.array(*map(F.lit, listed)), F.col("change"))
        shown = kept.where(F.col("change") != Changed.STILL.value).orderBy(order, "cluster", "topic", "now", "before")
        rows = _all(ChangedProblem, shown.limit(LISTED_CHANGES))
    return Compared(last=last, counts=counts, rows=rows)


def _drift(ledger: Ledger, asked: ReportScope, tallies: Sequence[Tally], listed: int) -> DriftReport | None:
    """Findings of the audit that the report is about, or of the last audit in the span."""
    if asked.span is not None:
        since, until = asked.span
        run, last = scope.last_audit(ledger, until, since), scope.last_audit(ledger, since)
    elif asked.run is not None and asked.run.kind is ReportKind.AUDIT:
        run, last = asked.run, scope.previous(ledger, asked.run)
    else:
        return None
    if run is None:
        return None
    one = ReportScope(run=run, clusters=asked.clusters)
    if not ledger.exists(DRIFT):
        return DriftReport(run=run, tallies=[], rows=[], query="", compared=None)
    ledger.ensure(DRIFT)
    drift = one.rows(ledger.read(DRIFT), "observed_at")
    unseen = {each.cluster for each in tallies if each.error == Refusal.CLUSTER_UNREACHABLE and each.cluster}
    compared = None
    if last is not None:
        before = ReportScope(run=last, clusters=asked.clusters).rows(ledger.read(DRIFT), "observed_at")
        words = f"audit {last.run_id} ({iso_time(last.started_at)})"
        compared = _as_compared(figures.drift_changes(before, drift, sorted(unseen)), words)
    return DriftReport(
        run=run,
        tallies=_all(DriftTally, figures.drift_tallies(drift).limit(LISTED_TALLIES)),
        rows=_all(DriftFinding, _owned(ledger, figures.drift_worst_first, drift, listed)),
        query=(
            "SELECT severity, kind, cluster, topic, what, declared, live, message, since\n"
            f"FROM {ledger.sql_name(DRIFT)}\nWHERE {one.condition('observed_at')}\n"
            "ORDER BY severity, kind, cluster, topic"
        ),
        compared=compared,
    )
