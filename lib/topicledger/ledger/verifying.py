"""`runs verify`: what the tables say now, against what each run ended with."""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console

from topicledger.config.settings import Settings
from topicledger.errors import ExitCode, UsageError, exit_code
from topicledger.ledger.digests import RowsDigest, of_runs, row_texts
from topicledger.ledger.maintain import COMMAND as MAINTAIN
from topicledger.ledger.maintain import oldest_kept
from topicledger.ledger.proof import ALGORITHM, DIGEST, HMAC, KEY_ID, NOT_PROVEN, PROVEN, Signer, read_recorded, signer
from topicledger.ledger.tables import Ledger
from topicledger.model import FORMAT_VERSION, RunState
from topicledger.schemas import RUNS, Table
from topicledger.text import SHOWN_FAILURES, show

LATE_COMMIT = timedelta(minutes=10)
"""How long after `finished_at` a run's last commit may come: until then a run that ends may not see it."""


class Kind(StrEnum):
    """What doesn't hold."""

    ROWS_CHANGED = "rows_changed"
    ROWS_REMOVED = "rows_removed"
    ROWS_ADDED = "rows_added"
    RUN_CHANGED = "run_changed"
    RUN_REMOVED = "run_removed"
    RUN_ADDED = "run_added"
    NO_DIGEST = "no_digest"
    NOT_SIGNED = "not_signed"
    OTHER_KEY = "other_key"
    TABLE_RESTORED = "table_restored"
    NOT_FOUND = "not_found"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that isn't as a run left it."""

    run_id: str | None
    """None of a digest that was expected."""
    kind: Kind
    table: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What a verification came to."""

    runs: int
    """Runs that were verified."""
    first: str | None
    last: str | None
    signed: int
    """Of these, with a key."""
    retention: Sequence[str]
    """Of these, runs whose rows a maintenance removed by age: their own row in `runs` is verified only."""
    unproven: int
    """Runs with rows and no digest: not over, abandoned, or of before there were digests."""
    heads: Sequence[str]
    """Digests that no run names as before it: keep them elsewhere, and give one as --expect."""
    findings: Sequence[Finding]
    """In the order in which the runs ended."""

    @property
    def exit_code(self) -> ExitCode:
        return exit_code({ExitCode.TOPICS_FAILED: bool(self.findings)})

    def to_json(self) -> str:
        """The versioned result document."""
        return json.dumps({"format_version": FORMAT_VERSION, "exit_code": self.exit_code, **asdict(self)}, indent=2)


@dataclass(frozen=True, kw_only=True)
class _Sealed:
    """A run's row with its digest."""

    run_id: str
    command: str
    started_at: datetime
    finished_at: datetime
    digest: str
    previous: Sequence[str]
    proof: Mapping[str, str]
    arguments: Mapping[str, str]
    text: str
    """What the digest is of."""


def verify(ledger: Ledger, settings: Settings, *, since: str | None = None, expected: Sequence[str] = ()) -> Verified:
    """Compute every digest again, of runs that ended with or after `since` where one is named.

    Raises UsageError where there is no such run with a digest, or where runs are signed and `proof.key` isn't set.
    """
    ledger.ensure(RUNS)
    signs = signer(settings)
    rows = _rows(ledger)
    everything = sorted(map(_sealed, filter(_is_sealed, rows)), key=lambda each: (each.finished_at, each.run_id))
    first = next((number for number, each in enumerate(everything) if each.run_id == since), 0 if since is None else -1)
    if first < 0:
        raise UsageError(f"there is no run {since} with a digest in {ledger.root}; see `runs list`")
    chosen = everything[first:]
    if signs.key is None and (of_key := next((each for each in chosen if _is_signed(each)), None)):
        raise UsageError(f"run {of_key.run_id} is signed: set [proof] key in {settings.path} to verify it")
    tables = [table for table in PROVEN if ledger.exists(table)]
    found = _found(ledger, tables, [each.run_id for each in everything[:first]])
    retention = _Retention(everything, signs)
    links = _Links(everything, signs)
    findings: list[Finding] = []
    retained: list[str] = []
    for each in chosen:
        findings += _own_row(each, signs)
        findings += links.broken(each)
        for table in PROVEN:
            now = found.pop((table.name, each.run_id), RowsDigest())
            problem = _compared(each, table, now)
            if problem is not None and problem.kind is Kind.ROWS_REMOVED and retention.explains(each, table):
                retained.append(each.run_id)
            elif problem is not None:
                findings.append(problem)
    left = {run_id for _, run_id in found}
    states = {row["run_id"]: row for row in rows}
    began = everything[0].started_at if everything else None
    findings += _without_digest(left, states, began)
    findings += _restored(ledger, tables, everything)
    digests = {each.digest for each in everything}
    findings += [
        Finding(run_id=None, kind=Kind.NOT_FOUND, table=RUNS.name, message=f"no run has the digest {show(digest)}")
        for digest in expected
        if digest not in digests
    ]
    return Verified(
        runs=len(chosen),
        first=chosen[0].run_id if chosen else None,
        last=chosen[-1].run_id if chosen else None,
        signed=sum(map(_is_signed, chosen)),
        retention=list(dict.fromkeys(retained)),
        unproven=len(left),
        heads=links.heads,
        findings=findings,
    )


def _rows(ledger: Ledger) -> Sequence[Mapping[str, Any]]:
    rows = ledger.stored(RUNS).select(*RUNS.schema.names).toArrow()
    named = ("run_id", "state", "started_at", "finished_at", "proof", "previous_digest", DIGEST, "arguments")
    texts = row_texts(rows, less=NOT_PROVEN)
    pairs = ("proof", "arguments")
    return [
        {**row, **{name: row[name] and dict(row[name]) for name in pairs}, "text": text}
        for row, text in zip(rows.select(named).to_pylist(), texts, strict=True)
    ]


def _is_sealed(row: Mapping[str, Any]) -> bool:
    return row[DIGEST] is not None


def _is_signed(run: _Sealed) -> bool:
    return run.proof.get(ALGORITHM) == HMAC


def _sealed(row: Mapping[str, Any]) -> _Sealed:
    arguments = row["arguments"] or {}
    return _Sealed(
        run_id=row["run_id"],
        command=arguments.get("command", ""),
        started_at=_utc(row["started_at"]),
        finished_at=_utc(row["finished_at"]),
        digest=row[DIGEST],
        previous=[each for each in (row["previous_digest"] or "").split(",") if each],
        proof=row["proof"] or {},
        arguments=arguments,
        text=row["text"],
    )


def _utc(moment: datetime | None) -> datetime:
    # PySpark gives the moment in this process's own time zone, without saying so. Without one: somebody removed it.
    return datetime.min.replace(tzinfo=UTC) if moment is None else moment.astimezone(UTC)


def _found(ledger: Ledger, tables: Sequence[Table], earlier: Sequence[str]) -> dict[tuple[str, str], RowsDigest]:
    """By table and run, the rows that there are now, but for those of `earlier` runs."""

    def rows(table: Table) -> DataFrame:
        stored = ledger.stored(table)
        if not earlier:
            return stored
        left_out = ledger.spark.createDataFrame([(run_id,) for run_id in earlier], "run_id string")
        return stored.join(F.broadcast(left_out), on="run_id", how="left_anti").select(*stored.columns)

    return dict(of_runs({table.name: rows(table) for table in tables})) if tables else {}


def _own_row(run: _Sealed, signs: Signer) -> Iterator[Finding]:
    """Whether the row in `runs` is the one that the digest was made of."""

    def finding(kind: Kind, message: str) -> Finding:
        return Finding(run_id=run.run_id, kind=kind, table=RUNS.name, message=message)

    about = run.proof.get(KEY_ID)
    if signs.key is not None and not _is_signed(run):
        yield finding(
            Kind.NOT_SIGNED, "it isn't signed; if proof.key was set later, verify --from the first signed run"
        )
    elif signs.key is not None and about != signs.about[KEY_ID]:
        yield finding(Kind.OTHER_KEY, f"it is signed with another key ({show(str(about))}), or says so")
    elif not hmac.compare_digest(signs.digest(run.text), run.digest):
        yield finding(Kind.RUN_CHANGED, "its row was changed after it ended")


def _compared(run: _Sealed, table: Table, now: RowsDigest) -> Finding | None:
    """Whether a run's rows in a table are those that it ended with."""
    then = read_recorded(run.proof, table)
    if now == then:
        return None
    kind = Kind.ROWS_REMOVED if now.rows < then.rows else Kind.ROWS_ADDED if now.rows > then.rows else Kind.ROWS_CHANGED
    message = f"{then.rows:,} rows when it ended, {now.rows:,} now"
    if kind is Kind.ROWS_CHANGED:
        message = f"of its {now.rows:,} rows some were changed"
    return Finding(run_id=run.run_id, kind=kind, table=table.name, message=message)


class _Links:
    """Which run names which as before it."""

    def __init__(self, everything: Sequence[_Sealed], signs: Signer) -> None:
        self._digests = {each.digest for each in everything}
        named = {digest for each in everything for digest in each.previous}
        self.heads = sorted(self._digests - named)
        self._signs = signs
        self._newest = max((each.finished_at for each in everything), default=None)

    def broken(self, run: _Sealed) -> Iterator[Finding]:
        """A run before it that isn't there, or one that those after it don't know."""
        for digest in run.previous:
            if digest not in self._digests:
                yield Finding(
                    run_id=run.run_id,
                    kind=Kind.RUN_REMOVED,
                    table=RUNS.name,
                    message=f"no run has the digest {show(digest)} any more, which it names as before it: that run was "
                    "removed, or changed together with its digest",
                )
        # Where it is signed it is a run that ended: its last commit came late.
        late = self._newest is not None and run.finished_at + LATE_COMMIT < self._newest
        if self._signs.key is None and run.digest in self.heads and late:
            yield Finding(
                run_id=run.run_id,
                kind=Kind.RUN_ADDED,
                table=RUNS.name,
                message="runs that ended more than 10 minutes after it don't name it as before them: it was added "
                "or changed later, or its driver was stopped right at its end",
            )


class _Retention:
    """What `maintain` removed by age."""

    def __init__(self, everything: Sequence[_Sealed], signs: Signer) -> None:
        self._before: dict[str, datetime] = {}
        for each in everything:
            if any(_own_row(each, signs)):
                # Who forges rows could forge a maintenance, too.
                continue
            for table in PROVEN:
                days = each.arguments.get(f"{table.name}_retention_days", "")
                if each.command == MAINTAIN and days.isdecimal():
                    kept = oldest_kept(int(days), each.finished_at)
                    self._before[table.name] = max(kept, self._before.get(table.name, kept))

    def explains(self, run: _Sealed, table: Table) -> bool:
        """Whether rows of the run are old enough to have been removed."""
        before = self._before.get(table.name)
        return before is not None and run.started_at < before


def _without_digest(
    left: set[str], states: Mapping[str, Mapping[str, Any]], began: datetime | None
) -> Iterator[Finding]:
    """Runs that have rows and no digest."""
    for run_id in sorted(left):
        row = states.get(run_id)
        if row is None:
            message = "there are rows of it in plans, audit or approvals, and it isn't in `runs`"
            yield Finding(run_id=run_id, kind=Kind.RUN_REMOVED, table=RUNS.name, message=message)
        elif row["state"] == RunState.FINISHED and began is not None and _utc(row["started_at"]) > began:
            message = "it is finished and has no digest: it was removed, or an older topicledger finished the run"
            yield Finding(run_id=run_id, kind=Kind.NO_DIGEST, table=RUNS.name, message=message)


def _restored(ledger: Ledger, tables: Sequence[Table], everything: Sequence[_Sealed]) -> Iterator[Finding]:
    """Tables whose version is before the one that a run left."""
    for table in tables:
        versions = {
            int(version): each.run_id
            for each in everything
            if (version := each.proof.get(f"{table.name}_version", "")).isdecimal()
        }
        if not versions:
            continue
        then, now = max(versions), ledger.latest_version(table)
        if now < then:
            message = f"it is at version {now}, and was at {then} when the run ended: an old copy is in its place"
            yield Finding(run_id=versions[then], kind=Kind.TABLE_RESTORED, table=table.name, message=message)


def render(verified: Verified, console: Console) -> None:
    """What was verified, and the first findings."""

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    if not verified.runs:
        say("no run has a digest yet")
    else:
        how = f"{verified.signed} of them signed" if verified.signed else "without a key"
        say(f"verified {verified.runs:,} runs, {show(verified.first or '')} to {show(verified.last or '')}, {how}")
    if verified.retention:
        count = len(verified.retention)
        first = ", ".join(map(show, verified.retention[:5]))
        say(f"rows of {count} of these runs were removed by retention (maintain): {first}")
    if verified.unproven:
        say(f"{verified.unproven} runs with rows have no digest: not over, abandoned, or of before there were digests")
    for finding in verified.findings[:SHOWN_FAILURES]:
        of = "" if finding.run_id is None else f"run {show(finding.run_id)}, "
        say(f"{finding.kind.value}: {of}table {finding.table}: {finding.message}")
    if len(verified.findings) > SHOWN_FAILURES:
        say(f"the first {SHOWN_FAILURES} of {len(verified.findings):,}; all of them: --format json")
    if not verified.findings and verified.runs:
        say("all as the runs left it")
    if verified.heads:
        say(f"digest to keep elsewhere: {', '.join(verified.heads)}")
