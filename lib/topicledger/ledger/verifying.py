"""`runs verify`: compare the tables with the digests with which each run ended."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.config.settings import Settings
from topicledger.errors import UsageError
from topicledger.ledger.chain import NEVER, Before, Chain, RunRow, read_rows
from topicledger.ledger.digests import RowsDigest, of_runs
from topicledger.ledger.explained import Loads, Retention
from topicledger.ledger.proof import (
    FORMAT,
    KEY_ID,
    LEAST_KEY_BYTES,
    PROVEN,
    SEALS_ABANDONED,
    Signer,
    number,
    read_recorded,
    verifier,
)
from topicledger.ledger.tables import Ledger
from topicledger.ledger.verified import Kind, ProofFinding, Verified
from topicledger.model import OPEN_STATES, RunState
from topicledger.schemas import APPROVALS, RUNS, Table
from topicledger.text import show

log = logging.getLogger(__name__)

_KEY_SET_LATER = "if proof.key was set later, verify with --since-run RUN, the first signed run"


def verify(
    ledger: Ledger,
    settings: Settings,
    *,
    since: str | None = None,
    expected: Sequence[str] = (),
    other_keys: Collection[str] = (),
) -> Verified:
    """Compute every digest again and compare it; with `since`, without the runs that this run names as before it.

    `other_keys`: ids of keys whose runs are listed, but verified elsewhere. Raises UsageError if there is no run
    `since` with a digest, or if runs are signed and `proof.key` isn't set.
    """
    ledger.ensure(RUNS)
    signs = verifier(settings)
    if signs.is_short:
        log.warning("proof.key is shorter than %d bytes: it can verify runs, but not sign them", LEAST_KEY_BYTES)
    rows = read_rows(ledger)
    tables = [table for table in PROVEN if ledger.exists(table)]
    read = partial(_found, ledger, tables)
    verified = verify_rows(
        rows, signs, read, again=partial(read_rows, ledger), since=since, expected=expected, other_keys=other_keys
    )
    restored = _restored(ledger, tables, [each for each in rows if each.digest])
    return replace(verified, findings=[*verified.findings, *restored])


def verify_rows(
    rows: Sequence[RunRow],
    signs: Signer,
    read: Callable[[Collection[str]], Mapping[tuple[str, str], RowsDigest]],
    *,
    again: Callable[[], Sequence[RunRow]] = tuple,
    since: str | None = None,
    expected: Sequence[str] = (),
    other_keys: Collection[str] = (),
) -> Verified:
    """Verify all rows of `runs`; `read` digests runs' rows by table and run id, without the runs of the given ids.

    `again`: reads `runs` once more, after `read`. Runs may have planned in between, or removed rows by age.
    """
    everything = [each for each in rows if each.digest]
    chain = Chain(everything, signs, other_keys)
    first = None if since is None else _first(everything, since, chain)
    before = Before(digests=frozenset(), out_of_order=()) if first is None else chain.before(first)
    chosen = [each for each in everything if each.digest not in before.digests]
    earlier = [each for each in everything if each.digest in before.digests]
    if signs.key is None and (of_key := next((each for each in chosen if _needs_key(each, chain)), None)):
        raise UsageError(f"run {of_key.run_id} is signed: set [proof] key in the settings to verify it")
    found = read({each.run_id for each in earlier} - {each.run_id for each in chosen})
    differing = [list(_differing(each, found)) for each in chosen]
    unknown = {run_id for _, run_id in found} - {each.run_id for each in rows}
    fewer = any(problem.kind is Kind.ROWS_REMOVED for its in differing for _, _, problem in its)
    late = again() if unknown or fewer else ()
    known = [*everything, *(each for each in late if each.digest)]
    trusted = [each for each in known if not chain.is_accepted(each) and not any(_own_row(each, chain, signs))]
    loads = Loads(trusted, [*rows, *late])
    intended = [each for each in (*rows, *late) if each.intends(signs)]
    # Nothing reports a start that another key didn't sign: only sealed maintenances of other keys count.
    retention = Retention([*trusted, *intended], [each for each in known if chain.is_accepted(each)])
    findings = list(_several_rows(rows))
    findings += [_out_of_order(each, first) for each in before.out_of_order if first is not None]
    retained, unproven = dict[str, str](), list[str]()
    for each, its in zip(chosen, differing, strict=True):
        findings += _own_row(each, chain, signs)
        findings += _links(each, chain, signs)
        for table, now, problem in its:
            if loads.explain(each, table, now):
                continue
            by = retention.explained_by(each, table) if problem.kind is Kind.ROWS_REMOVED else None
            if by is not None:
                retained[each.run_id] = retained.get(each.run_id) or by
            elif problem.kind is Kind.ROWS_ADDED and loads.may_follow(each, table):
                unproven.append(each.run_id)
            else:
                findings.append(problem)
    approved = dict(_approved_after_end(rows, found, loads))
    unproven += [run_id for run_id, waits in approved.items() if waits]
    left = {run_id for _, run_id in found} - {each.run_id for each in everything} - approved.keys()
    begun = unknown & {each.run_id for each in late}
    without = [*sorted(begun), *without_digest(left - begun, rows, first, signs)]
    findings += [each for each in without if isinstance(each, ProofFinding)]
    unproven += [each for each in without if isinstance(each, str)]
    open_ids = begun | {each.run_id for each in rows if _is_open(each)}
    findings += list(_not_found(expected, everything, chain))
    verified = [each for each in chosen if not chain.is_accepted(each)]
    return Verified(
        runs=len(verified),
        first=verified[0].run_id if verified else None,
        last=verified[-1].run_id if verified else None,
        signed=sum(each.signed for each in verified),
        earlier=len(earlier),
        other_key_runs=[each.run_id for each in everything if chain.is_accepted(each)],
        retained=retained,
        unproven_runs=unproven,
        open_runs=[each for each in unproven if each in open_ids],
        with_key=signs.key is not None,
        heads=chain.heads,
        findings=findings,
    )


def _approved_after_end(
    rows: Sequence[RunRow], found: Mapping[tuple[str, str], RowsDigest], loads: Loads
) -> Iterator[tuple[str, bool]]:
    """Yield the runs without a digest that need none for their approvals, and whether they wait for their load."""
    of_plan = {run_id for table, run_id in found if table != APPROVALS.name}
    for each in rows:
        now = found.get((APPROVALS.name, each.run_id))
        if each.digest or now is None or each.run_id in of_plan:
            continue
        if loads.explain(each, APPROVALS, now):
            yield each.run_id, False
        elif loads.may_follow(each, APPROVALS):
            yield each.run_id, True


def _first(everything: Sequence[RunRow], since: str, chain: Chain) -> RunRow:
    """Return the run to verify from; if several rows have its id, the authentic one."""
    named = sorted((each for each in everything if each.run_id == since), key=chain.authentic)
    if not named:
        raise UsageError(f"there is no run {since} with a digest; see `runs list`")
    return named[-1]


def _needs_key(run: RunRow, chain: Chain) -> bool:
    return run.signed and not chain.is_accepted(run)


def _is_open(run: RunRow) -> bool:
    """Return whether the row says that the run hasn't ended."""
    return run.state in OPEN_STATES and run.finished_at == NEVER


def _not_found(expected: Sequence[str], everything: Sequence[RunRow], chain: Chain) -> Iterator[ProofFinding]:
    """Yield the expected digests that no authentic row has."""
    there = {each.digest for each in everything}
    proven = {each.digest for each in everything if chain.authentic(each)}
    for digest in expected:
        if digest not in proven:
            message = f"no run has the digest {show(digest)}"
            if digest in there:
                message = (
                    f"the digest {show(digest)} isn't proven: the row that has it was changed, or another key signed it"
                )
            yield ProofFinding(run_id=None, kind=Kind.NOT_FOUND, table=RUNS.name, message=message)


def _out_of_order(run: RunRow, first: RunRow) -> ProofFinding:
    message = (
        f"a run under another key names it as before {show(first.run_id)}, but it is that run itself, started or ended "
        "after it, or has no start or end time: one of these rows was changed"
    )
    return ProofFinding(run_id=run.run_id, kind=Kind.OUT_OF_ORDER, table=RUNS.name, message=message)


def _found(ledger: Ledger, tables: Sequence[Table], earlier: Collection[str]) -> dict[tuple[str, str], RowsDigest]:
    """Return the digests of the current rows by table and run id, without those of `earlier` runs."""

    def rows(table: Table) -> DataFrame:
        stored = ledger.stored(table)
        if not earlier:
            return stored
        left_out = ledger.spark.createDataFrame([(run_id,) for run_id in earlier], "run_id string")
        return stored.join(F.broadcast(left_out), on="run_id", how="left_anti").select(*stored.columns)

    found = of_runs({table.name: rows(table) for table in tables}) if tables else {}
    return {(table, run_id or ""): digest for (table, run_id), digest in found.items()}


def _several_rows(rows: Sequence[RunRow]) -> Iterator[ProofFinding]:
    """Yield the run ids that several rows of `runs` have: a run has one row."""
    for run_id, count in Counter(each.run_id for each in rows).items():
        if count > 1:
            message = f"{count} rows have this run id, but a run has one: the others were added"
            yield ProofFinding(run_id=run_id, kind=Kind.RUN_ADDED, table=RUNS.name, message=message)


def _own_row(run: RunRow, chain: Chain, signs: Signer) -> Iterator[ProofFinding]:
    """Yield a finding if the digest wasn't made of the run's row; nothing if an accepted other key signed it."""
    if chain.is_accepted(run):
        return

    def finding(kind: Kind, message: str) -> ProofFinding:
        return ProofFinding(run_id=run.run_id, kind=kind, table=RUNS.name, message=message)

    if signs.key is not None and not run.signed:
        yield finding(Kind.NOT_SIGNED, f"it isn't signed; {_KEY_SET_LATER}")
    elif signs.key is not None and not run.signed_by(signs):
        about = show(str(run.proof.get(KEY_ID)))
        yield finding(
            Kind.OTHER_KEY,
            f"it is signed with another key ({about}), or claims to be. If that was the key in the settings before, "
            f"verify this run with that key, and use --other-key {about} here",
        )
    elif not run.holds(signs):
        yield finding(Kind.RUN_CHANGED, "its row was changed after it ended")


def _links(run: RunRow, chain: Chain, signs: Signer) -> Iterator[ProofFinding]:
    """Yield findings for missing runs before it, and if no later run names it."""

    def finding(kind: Kind, message: str) -> ProofFinding:
        return ProofFinding(run_id=run.run_id, kind=kind, table=RUNS.name, message=message)

    for digest in chain.missing(run):
        yield finding(
            Kind.RUN_REMOVED,
            f"it names {show(digest)} as the digest of an earlier run, and no run has it: that run was removed, or "
            "changed together with its digest",
        )
    # If this key signed a run that no other names, the run did end: only its last commit was late.
    if (signs.key is None or chain.is_accepted(run)) and chain.is_unknown(run):
        yield finding(
            Kind.RUN_ADDED,
            "no run that ended more than 10 minutes later names it as an earlier run: it was added or changed later, "
            "or its driver was stopped right at its end",
        )
    if chain.is_second_root(run):
        yield finding(
            Kind.RUN_ADDED,
            "it names no run before it, but isn't the first run: a run that ended more than 10 minutes earlier names "
            "none, either. It was added, or comes from another ledger with the same key",
        )


def _differing(
    run: RunRow, found: Mapping[tuple[str, str], RowsDigest]
) -> Iterator[tuple[Table, RowsDigest, ProofFinding]]:
    """Yield each table in which a run's rows aren't those with which it ended, with the rows' digest now."""
    for table in PROVEN:
        now = found.get((table.name, run.run_id), RowsDigest())
        if (problem := _compared(run, table, now)) is not None:
            yield table, now, problem


def _compared(run: RunRow, table: Table, now: RowsDigest) -> ProofFinding | None:
    """Return a finding if a run's rows in a table aren't those with which it ended."""
    then = read_recorded(run.proof, table)
    if now == then:
        return None
    kind = Kind.ROWS_REMOVED if now.rows < then.rows else Kind.ROWS_ADDED if now.rows > then.rows else Kind.ROWS_CHANGED
    message = f"{then.rows:,} rows when it ended, {now.rows:,} now"
    if kind is Kind.ROWS_CHANGED:
        message = f"some of its {now.rows:,} rows were changed"
    if kind is Kind.ROWS_ADDED and run.state == RunState.ABANDONED:
        message += "; it was abandoned: its driver may still have been running"
    return ProofFinding(run_id=run.run_id, kind=kind, table=table.name, message=message)


def without_digest(
    left: Collection[str], rows: Sequence[RunRow], first: RunRow | None, signs: Signer
) -> Iterator[ProofFinding | str]:
    """Yield, for each run that has rows and no digest, a finding, or the run's id if it needs no digest.

    An open run has no digest yet. With a key, every run that is over must have one, unless its row says that it began
    before the run to verify from. Without a key, a run must have one if it began after the first run with a digest; an
    abandoned one, if it began after the first run of a topicledger that seals abandoned runs.
    """
    since = first.started_at if first is not None and first.holds(signs) else NEVER
    began = next((each.started_at for each in rows if each.digest), None)
    sealing = (each.started_at for each in rows if each.proof.get(FORMAT) == SEALS_ABANDONED)
    began_to_seal = min(sealing, default=None)
    by_id = {each.run_id: each for each in rows}
    for run_id in sorted(left):

        def finding(kind: Kind, message: str, run_id: str = run_id) -> ProofFinding:
            return ProofFinding(run_id=run_id or None, kind=kind, table=RUNS.name, message=message)

        row = by_id.get(run_id)
        if row is None:
            yield finding(Kind.RUN_REMOVED, "plans, audit or approvals have rows of it, but `runs` has none")
            continue
        abandoned = row.state == RunState.ABANDONED
        after = since if signs.key is not None else began_to_seal if abandoned else began
        is_earlier = after is None or NEVER < row.started_at < after
        if _is_open(row) or is_earlier:
            yield run_id
        elif abandoned:
            yield finding(
                Kind.NO_DIGEST,
                "it is abandoned and has no digest: its state was changed, it was added, or an older topicledger "
                "abandoned it. In the last case, call `runs abandon` again to give it one",
            )
        else:
            older = "" if signs.key is None else f"; {_KEY_SET_LATER}"
            yield finding(
                Kind.NO_DIGEST,
                f"it is {show(row.state)} and has no digest: it was removed, or an older topicledger finished the run"
                + older,
            )


def _restored(ledger: Ledger, tables: Sequence[Table], everything: Sequence[RunRow]) -> Iterator[ProofFinding]:
    """Yield the tables whose version is lower than the one that a run recorded."""
    for table in tables:
        versions = {
            version: each.run_id
            for each in everything
            if (version := number(each.proof.get(f"{table.name}_version"))) is not None
        }
        if not versions:
            continue
        then, now = max(versions), ledger.latest_version(table)
        if now < then:
            message = f"it is at version {now}, but was at {then} when the run ended: it was replaced by an old copy"
            yield ProofFinding(run_id=versions[then], kind=Kind.TABLE_RESTORED, table=table.name, message=message)
