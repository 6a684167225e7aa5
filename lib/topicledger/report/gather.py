"""The Spark actions of a report: only a few, each on aggregates or on a bounded number of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, TypeVar

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from topicledger.config.guards import GuardSettings
from topicledger.config.settings import Settings
from topicledger.frames import materialised
from topicledger.ledger.run import require_run
from topicledger.ledger.tables import Ledger
from topicledger.model import TOPIC, RunState
from topicledger.model.scope import EVERYTHING
from topicledger.plan import approvals
from topicledger.plan.lines import in_words
from topicledger.report import audits, figures, limits, scope, times
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
    PlannedChange,
    PolicyTally,
    Report,
    ReportKind,
    RequestTimes,
    Result,
    RunFacts,
    RunOfSpan,
    ShownAudit,
    Tally,
    Waiting,
)
from topicledger.report.owners import gather_owned
from topicledger.report.scope import ReportScope, run_facts, utc
from topicledger.review import history
from topicledger.schemas import APPROVALS, AUDIT, DRIFT, PLANS, RUNS, SENT_BATCHES
from topicledger.text import iso_time

LISTED_ROWS = 5_000
LISTED_CHANGES = 500
LISTED_DELETES = 1_000
"""Most actions that destroy something to list beside problems that take all the room."""
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


def gather(
    ledger: Ledger,
    asked: ReportScope,
    made_at: datetime,
    *,
    listed: int = LISTED_ROWS,
    settings: Settings | None = None,
) -> Report:
    """Read the contents of a report, with at most `listed` topics and findings. `settings`: for its advice.

    The tables `runs`, `plans` and `audit` must exist; `drift` need not.
    """
    audit = _named(asked.rows(ledger.read(AUDIT), "completed_at"))
    ended = found = _results(ledger, asked).transform(materialised)
    runs: Sequence[RunOfSpan] = []
    run_count, done = 1, {}
    if asked.run is None:
        unsent = figures.unsent(ended, ledger.read(RUNS)).transform(materialised)
        runs, run_count = _runs(ledger, asked, ended, unsent)
        # A span is about what was done: a plan that nobody applied changed and refused nothing.
        audit, ended = (rows.join(unsent, on="run_id", how="left_anti") for rows in (audit, ended))
        done = {row["action"]: row["number"] for row in figures.done(ended).collect()}
        # A topic that ten runs refused counts as one refused topic.
        found = figures.last_by_topic(ended, ledger.read(RUNS)).transform(materialised)
    by_size = (F.desc("topics"), "cluster", "action", "phase", "outcome", "error")
    tallies = _all(Tally, figures.tallies(found).orderBy(*by_size).limit(LISTED_TALLIES))
    sent = figures.requests(audit).transform(materialised)
    unit, periods = _periods(asked, ended)
    return Report(
        made_at=made_at,
        limits=replace(asked.limits, clusters=tuple(asked.clusters)),
        span=asked.span,
        run=asked.run,
        history=History(
            approved_by=[] if asked.run is None else _approved_by(ledger, asked.run),
            runs=runs,
            run_count=run_count,
            done=done,
            periods=periods,
            unit=unit,
            owned=gather_owned(ledger, asked, listed),
        ),
        tallies=tallies,
        policies=_all(PolicyTally, figures.by_policy(audit).orderBy(F.desc("topics"), "policy", "mode", "cluster")),
        requests=_requests(ledger, asked, sent),
        rows=_with_histories(ledger, _rows(ledger, found, tallies, listed)),
        query=_query(ledger, asked),
        compared=_compared(ledger, asked, found) if tallies else None,
        drift=_drift(ledger, asked, listed, settings),
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


def _approved_by(ledger: Ledger, run: RunFacts) -> Sequence[str]:
    """Return the people who approved a run's plan as it is, with what they allowed beyond guards."""
    if not ledger.exists(APPROVALS) or ledger.read(APPROVALS).where(F.col("run_id") == run.run_id).isEmpty():
        return []
    found = approvals.of_run(ledger, GuardSettings(), require_run(ledger, run.run_id))
    allowed = f"beyond guards: {found.allowed_in_words}" if found.passing else ""
    return [*found.by, *filter(None, [allowed])]


def _rows(ledger: Ledger, found: DataFrame, tallies: Sequence[Tally], listed: int) -> list[Result]:
    """List results, the worst first; what destroys something is listed even if problems take all the room."""
    rows = _listed(_owned(ledger, figures.worst_first, found, listed))
    if sum(each.topics for each in tallies if each.outcome in PROBLEMS) >= listed:
        destroys = found.where(F.col("destroys") & ~F.col("outcome").isin(*(each.value for each in PROBLEMS)))
        rows += _listed(_owned(ledger, figures.worst_first, destroys, LISTED_DELETES))
    return rows


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
    own = [field.name for field in fields(Result) if field.name not in ("change", "history")]
    return [
        Result(
            **{name: _value(row, name) for name in own},
            change=PlannedChange(
                what=row["plan"] and in_words(row["plan"]), description=row["description"], destroys=row["destroys"]
            ),
        )
        for row in rows.collect()
    ]


def _value(row: Row, name: str) -> Any:
    value = row[name]
    return utc(value) if isinstance(value, datetime) else value


def _named(rows: DataFrame) -> DataFrame:
    """Fill `topic` with the resource of rows that are not about a topic."""
    return rows.withColumn("topic", F.coalesce("topic", "resource"))


def _results(ledger: Ledger, asked: ReportScope) -> DataFrame:
    runs = ledger.read(RUNS) if asked.run is None else ledger.read(RUNS).where(F.col("run_id") == asked.run.run_id)
    return figures.results(
        _named(asked.rows(ledger.read(AUDIT), "completed_at")),
        _named(asked.rows(ledger.read(PLANS), "planned_at")),
        figures.maybe_sent(runs, ledger.read_if_exists(SENT_BATCHES)),
        # The rows of a span may be cut by its ends, not only by age.
        [asked.run.run_id] if asked.run is not None and asked.run.state == RunState.FINISHED else (),
    )


def _query(ledger: Ledger, asked: ReportScope) -> str:
    columns = ("run_id", "cluster", "resource_type", "resource", "action", "phase", "outcome", "error", "error_message")
    return (
        f"SELECT {AUDIT.selected(*columns)}\n"
        f"FROM {ledger.sql_name(AUDIT)}\n"
        f"WHERE {asked.condition('completed_at')}\n"
        "ORDER BY cluster, resource_type, resource, completed_at"
    )


def _owned(ledger: Ledger, in_order: Callable[[DataFrame], DataFrame], rows: DataFrame, listed: int) -> DataFrame:
    """The first `listed` rows, with the owners of their resources. In: `figures.RESULTS`."""
    return in_order(rows).limit(listed).transform(_with_owners, ledger).transform(in_order)


def _with_owners(rows: DataFrame, ledger: Ledger) -> DataFrame:
    """Add `owner`: of the plan, as `runs show` has it, or else of the latest tables; and the latest `description`.

    In: `figures.RESULTS`.
    """
    declared = limits.owners(ledger).withColumnRenamed("resource", "topic")
    known = rows.join(declared, on=["cluster", "resource_type", "topic"], how="left")
    owner = F.coalesce("plan.owner", "declared_owner").alias("owner")
    return known.select(*rows.columns, owner, "description")


def _owned_findings(ledger: Ledger, drift: DataFrame, listed: int) -> DataFrame:
    """The first `listed` findings, with the owners of their topics or other resources, and descriptions of topics."""
    first = figures.drift_worst_first(drift).limit(listed)
    owners = limits.owners(ledger).withColumn("of_topic", F.col("resource_type") == TOPIC)
    found = (F.min("declared_owner").alias("owner"), F.min("description").alias("description"))
    by_name = owners.groupBy("cluster", "resource", "of_topic").agg(*found)
    # A group may have the name of a topic.
    named = {"resource": F.coalesce("topic", "what"), "of_topic": F.col("topic").isNotNull()}
    rows = first.withColumns(named).join(by_name, ["cluster", *named], "left")
    return rows.drop(*named).transform(figures.drift_worst_first)


def _runs(ledger: Ledger, asked: ReportScope, found: DataFrame, unsent: DataFrame) -> tuple[Sequence[RunOfSpan], int]:
    """The newest runs that began in the span or have results in it, and the number of all of them.

    With limits, only runs with results within them. `unsent`: the plans that sent nothing (run_id).
    """
    per_run = (
        found.groupBy("run_id", "outcome")
        .agg(F.count(F.lit(1)).alias("topics"))
        .groupBy("run_id")
        .agg(F.map_from_entries(F.collect_list(F.struct("outcome", "topics"))).alias("outcomes"))
    )
    runs = (
        ledger.read(RUNS)
        .join(per_run, on="run_id", how="left")
        .join(unsent.withColumn("_unsent", F.lit(True)), on="run_id", how="left")
        .where(F.col("outcomes").isNotNull() | (asked.spans("started_at") & F.lit(not asked.limits.narrows)))
        .transform(materialised)
    )
    rows = runs.orderBy(F.desc("started_at"), F.desc("run_id")).limit(LISTED_RUNS).collect()
    owned, approved = _owners_of_problems(ledger, found), _approvers(ledger, [row["run_id"] for row in rows])
    listed = [
        RunOfSpan(
            run=run_facts(row),
            outcomes=row["outcomes"] or {},
            owners=owned.get(row["run_id"], {}),
            approved_by=approved.get(row["run_id"], ()),
            unsent=bool(row["_unsent"]),
        )
        for row in rows
    ]
    return listed, len(rows) if len(rows) < LISTED_RUNS else runs.count()


def _approvers(ledger: Ledger, run_ids: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Run id -> the people who approved its plan as it was at the last approval."""
    if not run_ids or not ledger.exists(APPROVALS):
        return {}
    own = ledger.read(APPROVALS).where(F.col("run_id").isin(*run_ids))
    last = own.groupBy("run_id").agg(F.max_by("plan_digest", "at").alias("plan_digest"))
    by = own.join(last, on=["run_id", "plan_digest"]).groupBy("run_id")
    rows = by.agg(F.array_sort(F.collect_set("by")).alias("by")).collect()
    return {row["run_id"]: row["by"] for row in rows}


def _owners_of_problems(ledger: Ledger, found: DataFrame) -> Mapping[str, Mapping[str, int]]:
    """Run id -> owner -> number of topics that failed or were refused, for the owners with the most."""
    problems = found.where(F.col("outcome").isin(*(each.value for each in PROBLEMS)))
    by_owner = (
        problems.transform(_with_owners, ledger)
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
        before = replace(asked, run=last)
        words = f"run {last.run_id} ({last.command}, {iso_time(last.started_at)})"
    else:
        return None
    earlier = _results(ledger, before)
    if asked.span is not None:
        earlier = earlier.transform(materialised)
        earlier = earlier.join(figures.unsent(earlier, ledger.read(RUNS)), on="run_id", how="left_anti")
    return _as_compared(figures.changes(earlier, found), words)


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


def _drift(ledger: Ledger, asked: ReportScope, listed: int, settings: Settings | None) -> DriftReport | None:
    """Findings of the audit that the report is about, or of the last whole audit of each cluster in the span."""
    run, any_time = asked.run, replace(asked, run=None, span=None)
    if asked.span is not None:
        since, until = asked.span
        now, before = audits.last(ledger, EVERYTHING, until, since), audits.last(ledger, EVERYTHING, since)
    elif run is not None and run.kind is ReportKind.AUDIT:
        now, before = audits.of_run(run), audits.last(ledger, run.scope, run.started_at)
    else:
        return None
    now = now.of(asked.clusters)
    shown = now.shown() if run is None else [ShownAudit(run=run, clusters=run.audited)]
    if not shown:
        return None
    if not ledger.exists(DRIFT):
        return DriftReport(audits=shown, tallies=[], rows=[], query="", compared=None)
    ledger.ensure(DRIFT)
    table = ledger.read(DRIFT)
    if run is None:
        drift = any_time.rows(table.where(now.findings()), "observed_at")
        condition = " AND ".join(filter(None, [f"({now.condition()})", any_time.condition("observed_at")]))
    else:
        drift, condition = asked.rows(table, "observed_at"), asked.condition("observed_at")
    compared, removed = None, now.removed(table)
    known = now.without(removed)
    before = before.of([*known.by_cluster])
    before = before.without(before.removed(table))
    if known.by_cluster and before.by_cluster:
        both = known.compared() & before.compared()
        earlier = any_time.rows(table.where(before.findings()), "observed_at")
        compared = _as_compared(figures.drift_changes(earlier, drift, both), before.words(known))
    return DriftReport(
        audits=shown,
        tallies=_all(DriftTally, figures.drift_tallies(drift).limit(LISTED_TALLIES)),
        rows=_all(DriftFinding, _owned_findings(ledger, drift, listed)),
        query=(
            "SELECT severity, kind, cluster, topic, what, declared, live, message, since\n"
            f"FROM {ledger.sql_name(DRIFT)}\nWHERE {condition}\n"
            "ORDER BY severity, kind, cluster, topic"
        ),
        compared=compared,
        settings=settings,
        removed={now.by_cluster[name].run_id: count for name, count in removed.items()},
    )
