"""What a report is about: a run, an audit or a span of time, and what it is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from topicledger.errors import UsageError
from topicledger.ledger.run import find_run
from topicledger.ledger.sql import sql_text
from topicledger.ledger.tables import Ledger
from topicledger.model import RunState
from topicledger.report.facts import ReportKind, RunFacts
from topicledger.schemas import RUNS
from topicledger.text import iso_time

AUDIT_COMMAND = "audit"
_PROVISIONING = ("plan", "apply", "provision")
_SQL_TIME = "%Y-%m-%d %H:%M:%S.%f"


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Which rows a report is about."""

    clusters: Sequence[str] = ()
    """Names to restrict it to; empty takes all."""
    run: RunFacts | None = None
    """The run that it is about; None for a span."""
    span: tuple[datetime, datetime] | None = None
    """From the first (inclusive) to the second (exclusive); None for a run."""

    def rows(self, table: DataFrame, time: str) -> DataFrame:
        """Those rows of `audit`, `plans` or `drift` whose run it is, or whose `time` lies in the span."""
        found = table.where(self.spans(time)) if self.run is None else table.where(F.col("run_id") == self.run.run_id)
        return found.where(F.col("cluster").isin(*self.clusters)) if self.clusters else found

    def spans(self, time: str) -> Column:
        """Whether a timestamp lies in the span; always, where there is none."""
        if self.span is None:
            return F.lit(True)
        since, until = self.span
        return (F.col(time) >= F.lit(since)) & (F.col(time) < F.lit(until))

    def condition(self, time: str) -> str:
        """The same as `rows` in SQL; times are UTC whatever the session's time zone."""
        conditions = [] if self.run is None else [f"run_id = {sql_text(self.run.run_id)}"]
        for comparison, moment in zip((">=", "<"), self.span or (), strict=False):
            conditions.append(f"{time} {comparison} TIMESTAMP {sql_text(moment.strftime(_SQL_TIME) + 'Z')}")
        if self.clusters:
            conditions.append(f"cluster IN ({', '.join(map(sql_text, self.clusters))})")
        return " AND ".join(conditions)


def moment(text: str, option: str) -> datetime:
    """A date, or a date and time, of ISO 8601; UTC where it names no offset. Raises UsageError naming the option."""
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(
            f"{option} {text} is not a time: give a date such as 2026-11-01, or 2026-11-01T08:00 (UTC) "
            "or 2026-11-01T08:00+01:00"
        ) from None


def span(since: datetime, until: datetime, clusters: Sequence[str]) -> Scope:
    """From `since` (inclusive) to `until` (exclusive). Raises UsageError where that span is empty."""
    if since >= until:
        raise UsageError(f"--since {iso_time(since)} is not before --until {iso_time(until)}")
    return Scope(span=(since, until), clusters=clusters)


def of_run(ledger: Ledger, run_id: str, clusters: Sequence[str]) -> Scope:
    """One run. Raises UsageError where there is none of that id."""
    row = find_run(ledger, run_id)
    if row is None:
        raise UsageError(f"there is no run {run_id} in {ledger.root}; see `runs list`")
    facts = run_facts(row)
    if facts.command not in (*_PROVISIONING, AUDIT_COMMAND):
        raise UsageError(f"run {run_id} was started by {facts.command}, which has no report; see `runs list`")
    return Scope(run=facts, clusters=clusters)


def previous(ledger: Ledger, run: RunFacts) -> RunFacts | None:
    """The previous run of the same kind for the same clusters that got as far as a plan."""
    alike = _PROVISIONING if run.command in _PROVISIONING else (run.command,)
    command = F.col("arguments")["command"].isin(*alike)
    same_clusters = F.coalesce(F.col("arguments")["clusters"], F.lit("")) == run.clusters
    return _newest(ledger, (F.col("started_at") < F.lit(run.started_at)) & command & same_clusters)


@dataclass(frozen=True, kw_only=True)
class ChangesTold:
    """Which changes of rights and quotas a report tells."""

    scope: Scope
    words: str


def changes_told(ledger: Ledger, asked: Scope) -> ChangesTold:
    """Of a run its own, of an audit those since the audit before it, else those of the span."""
    run = asked.run
    if run is None:
        return ChangesTold(scope=asked, words="in this time")
    if run.kind is ReportKind.RUN:
        return ChangesTold(scope=asked, words="by this run")
    last = previous(ledger, run)
    since = datetime.fromtimestamp(0, run.started_at.tzinfo) if last is None else last.started_at
    words = "before this audit, the first" if last is None else f"since audit {last.run_id}"
    return ChangesTold(scope=Scope(clusters=asked.clusters, span=(since, run.started_at)), words=words)


def last_audit(ledger: Ledger, before: datetime, since: datetime | None = None) -> RunFacts | None:
    """The newest audit that began before a moment, and not before `since`."""
    audits = (F.col("arguments")["command"] == AUDIT_COMMAND) & (F.col("started_at") < F.lit(before))
    return _newest(ledger, audits if since is None else audits & (F.col("started_at") >= F.lit(since)))


def _newest(ledger: Ledger, condition: Column) -> RunFacts | None:
    observed = F.col("state").isin(RunState.PLANNED.value, RunState.APPLYING.value, RunState.FINISHED.value)
    rows = (
        ledger.read(RUNS).where(condition & observed).orderBy(F.desc("started_at"), F.desc("run_id")).limit(1).collect()
    )
    return run_facts(rows[0]) if rows else None


def run_facts(row: Row) -> RunFacts:
    """A row of `runs`."""
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
    )


def utc(moment: datetime) -> datetime:
    """A collected timestamp: PySpark gives it in this process's own time zone, without saying so."""
    return moment.astimezone(UTC)
