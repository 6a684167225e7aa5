"""The scope of a report: a run, an audit or a span of time, and the run or span that it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from topicledger.errors import UsageError
from topicledger.ledger.comparable import AUDITED_ARGUMENT, of_scope
from topicledger.ledger.run import (
    CLUSTERS_ARGUMENT,
    FILES_ARGUMENT,
    MANIFESTS_ARGUMENT,
    ONLY_ARGUMENT,
    PRUNES_ARGUMENT,
    REBALANCE_ARGUMENT,
    REVERTS_ARGUMENT,
    require_run,
)
from topicledger.ledger.runs import AUDIT_COMMAND, PATHS_ARGUMENT, PROVISIONING, VARIABLES_ARGUMENT
from topicledger.ledger.sql import sql_text
from topicledger.ledger.tables import Ledger
from topicledger.model import RunState
from topicledger.model.scope import EVERYTHING, Scope
from topicledger.report.facts import ReportKind, RunFacts
from topicledger.schemas import RUNS
from topicledger.text import iso_time, show, utc_time

_REQUEST = (
    CLUSTERS_ARGUMENT,
    ONLY_ARGUMENT,
    MANIFESTS_ARGUMENT,
    REVERTS_ARGUMENT,
    REBALANCE_ARGUMENT,
    PRUNES_ARGUMENT,
)
"""Arguments that say what a run is about, beside its scope and files."""
_SQL_TIME = "%Y-%m-%d %H:%M:%S.%f"


@dataclass(frozen=True, kw_only=True)
class ReportScope:
    """Selects the rows that a report is about."""

    clusters: Sequence[str] = ()
    """Names to restrict it to; empty for all."""
    run: RunFacts | None = None
    """The run that it is about; None for a span."""
    span: tuple[datetime, datetime] | None = None
    """From the first (inclusive) to the second (exclusive); None for a run."""
    limits: Scope = EVERYTHING
    """Owners and topics to restrict it to."""
    inside: Callable[[DataFrame], DataFrame] = lambda rows: rows
    """Keeps rows of `audit`, `plans` or `drift` within `limits`: see `limits.of_rows`."""

    def rows(self, table: DataFrame, time: str) -> DataFrame:
        """Rows of `audit`, `plans` or `drift` of the run, or whose `time` is in the span."""
        found = table.where(self.spans(time)) if self.run is None else table.where(F.col("run_id") == self.run.run_id)
        return self.inside(found.where(F.col("cluster").isin(*self.clusters)) if self.clusters else found)

    def spans(self, time: str) -> Column:
        """Whether a timestamp is in the span; always true without a span."""
        if self.span is None:
            return F.lit(True)
        since, until = self.span
        return (F.col(time) >= F.lit(since)) & (F.col(time) < F.lit(until))

    def condition(self, time: str) -> str:
        """The condition of `rows` as SQL, without `limits`; times are UTC whatever the session's time zone."""
        conditions = [] if self.run is None else [f"run_id = {sql_text(self.run.run_id)}"]
        for comparison, moment in zip((">=", "<"), self.span or (), strict=False):
            conditions.append(f"{time} {comparison} TIMESTAMP {sql_text(moment.strftime(_SQL_TIME) + 'Z')}")
        if self.clusters:
            conditions.append(f"cluster IN ({', '.join(map(sql_text, self.clusters))})")
        return " AND ".join(conditions)


def moment(text: str, option: str) -> datetime:
    """Parse an ISO 8601 date, or date and time, as UTC if it has no offset; a UsageError names the option."""
    try:
        return utc_time(text)
    except ValueError:
        raise UsageError(
            f"{option} {show(text)} is not a time: give a date such as 2026-11-01, or 2026-11-01T08:00 (UTC) "
            "or 2026-11-01T08:00+01:00"
        ) from None


def span(since: datetime, until: datetime, clusters: Sequence[str]) -> ReportScope:
    """The span from `since` (inclusive) to `until` (exclusive); raises UsageError if it is empty."""
    # Nothing is older, and there is a span of the same length before it.
    since = max(since, datetime.fromtimestamp(0, UTC))
    if since >= until:
        raise UsageError(f"--since {iso_time(since)} is not before --until {iso_time(until)}")
    return ReportScope(span=(since, until), clusters=clusters)


def of_run(ledger: Ledger, run_id: str, clusters: Sequence[str]) -> ReportScope:
    """The scope of one run; raises UsageError if no run has this id."""
    row = require_run(ledger, run_id)
    facts = run_facts(row)
    if facts.command not in (*PROVISIONING, AUDIT_COMMAND):
        raise UsageError(f"run {run_id} was started by {facts.command}, which has no reports; see `runs list`")
    return ReportScope(run=facts, clusters=clusters)


def previous(ledger: Ledger, run: RunFacts) -> RunFacts | None:
    """Return the last run before it that can be compared with it: one of the same request and scope, that got as far.

    A plan from files is comparable with plans from the same files, and with runs without files, which aren't with it.
    """
    alike = PROVISIONING if run.command in PROVISIONING else (run.command,)
    same = F.col("arguments")["command"].isin(*alike) & of_scope(run.scope) & _same(run, *_REQUEST)
    loaded = _argument(FILES_ARGUMENT) == ""
    files = loaded | _same(run, PATHS_ARGUMENT, VARIABLES_ARGUMENT) if run.arguments.get(FILES_ARGUMENT) else loaded
    before = F.col("started_at") < F.lit(run.started_at)
    rows = ledger.read(RUNS).where(before & same & files & _got_as_far_as(run))
    newest = rows.orderBy(F.desc("started_at"), F.desc("run_id")).limit(1).collect()
    return run_facts(newest[0]) if newest else None


def _argument(name: str) -> Column:
    return F.coalesce(F.col("arguments")[name], F.lit(""))


def _same(run: RunFacts, *names: str) -> Column:
    """Whether a row of `runs` has the run's arguments of these names."""
    return reduce(and_, (_argument(name) == run.arguments.get(name, "") for name in names))


def _got_as_far_as(run: RunFacts) -> Column:
    """Whether a row of `runs` is of an audit that compared a cluster, or of a run with results like the run's."""
    state = F.col("state")
    if run.kind is ReportKind.AUDIT:
        return (state == RunState.FINISHED.value) | F.col("arguments")[AUDITED_ARGUMENT].isNotNull()
    # Where nothing was sent, nothing could fail that only brokers refuse.
    states = [RunState.APPLYING, RunState.FINISHED]
    if run.state in (RunState.PLANNING, RunState.PLANNED):
        states.append(RunState.PLANNED)
    return state.isin(*(each.value for each in states))


@dataclass(frozen=True, kw_only=True)
class ChangesTold:
    """Selects the changes of resources beside topics that a report shows."""

    scope: ReportScope
    words: str


def changes_told(ledger: Ledger, asked: ReportScope) -> ChangesTold:
    """Select a run's own changes, those since the previous audit for an audit, or those in the span."""
    run = asked.run
    if run is None:
        return ChangesTold(scope=asked, words="in this time")
    if run.kind is ReportKind.RUN:
        return ChangesTold(scope=asked, words="by this run")
    last = previous(ledger, run)
    since = datetime.fromtimestamp(0, run.started_at.tzinfo) if last is None else last.started_at
    words = "before this first audit" if last is None else f"since audit {last.run_id}"
    return ChangesTold(scope=replace(asked, run=None, span=(since, run.started_at)), words=words)


def run_facts(row: Row) -> RunFacts:
    """Convert a row of `runs`."""
    return RunFacts(
        run_id=row["run_id"],
        state=row["state"],
        started_at=utc(row["started_at"]),
        finished_at=None if row["finished_at"] is None else utc(row["finished_at"]),
        exit_code=row["exit_code"],
        manifest_version=row["manifest_version"],
        requested_by=row["requested_by"],
        principal=row["principal"],
        arguments=row["arguments"] or {},
        versions=row["versions"] or {},
        counts=row["counts"] or {},
        scope=Scope.from_json(row["scope"]),
    )


def utc(moment: datetime) -> datetime:
    """Convert a collected timestamp to UTC: PySpark returns it naive, in this process's own time zone."""
    return moment.astimezone(UTC)
