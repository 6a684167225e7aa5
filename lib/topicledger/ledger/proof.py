"""The proof of a run: at its end its row in `runs` gets digests of its rows, and of the runs before it.

A run ends when it is finished or abandoned.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import functions as F

from topicledger.config.secrets import resolve
from topicledger.config.settings import Settings
from topicledger.errors import SecretError
from topicledger.ledger.digests import RowsDigest, of_run, text_of_row
from topicledger.ledger.run import Run, find_run, row_of
from topicledger.ledger.sql import sql_value
from topicledger.ledger.tables import Ledger
from topicledger.model import RunState
from topicledger.schemas import APPROVALS, AUDIT, PLANS, RUNS, Table

PROVEN = (PLANS, AUDIT, APPROVALS)
"""Tables in which a run's rows are proven."""
ALGORITHM, KEY_ID = "algorithm", "key_id"
"""Keys in `runs.proof`: the algorithm of the digest, and the id of the key that signed it."""
FORMAT, SEALS_ABANDONED = "format", "2"
"""The version in `runs.proof`. Since 2, abandoned runs have a digest, too."""
PLAN_APPROVALS_ROWS, PLAN_APPROVALS_SHA256 = "plan_approvals_rows", "plan_approvals_sha256"
"""In the row of a load: the approvals of the plan that it was for, if that plan had ended before them."""
INTENT = "intent"
"""In the row of a maintenance that isn't over: the digest of its start, which says what rows it may remove."""
SHA256, HMAC = "SHA-256", "HMAC-SHA256"
LEAST_KEY_BYTES = 32
"""Shortest key for signing: the length of its digests (RFC 2104, section 3)."""
DIGEST = "digest"
"""The column of `runs` with the digest."""
NOT_PROVEN = (DIGEST, "notified")
"""Columns of `runs` that the digest doesn't cover: itself, and those written after a run's end."""


@dataclass(frozen=True)
class Signer:
    """Makes digests, with a key if there is one."""

    key: bytes | None = field(repr=False)

    @property
    def is_short(self) -> bool:
        """Whether the key is too short to sign with."""
        return self.key is not None and len(self.key) < LEAST_KEY_BYTES

    @property
    def about(self) -> Mapping[str, str]:
        """The entries about this signer in `runs.proof`."""
        if self.key is None:
            return {ALGORITHM: SHA256}
        return {ALGORITHM: HMAC, KEY_ID: self.digest("topicledger key id")[:8]}

    def digest(self, text: str) -> str:
        """Hex: SHA-256 of the text, by the key HMAC-SHA256."""
        if self.key is None:
            return hashlib.sha256(text.encode()).hexdigest()
        return hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()


def signer(settings: Settings) -> Signer:
    """Signs with the key of the settings, which is read now.

    Raises SecretError if the key can't be read here or is shorter than `LEAST_KEY_BYTES`.
    """
    found = verifier(settings)
    if found.is_short:
        raise SecretError(
            f"proof.key: the key is shorter than {LEAST_KEY_BYTES} bytes and could be guessed, so it signs no run. Set "
            "a longer one, such as from `openssl rand -hex 32`. `runs verify` still takes the short key for the runs "
            "that it signed; verify later runs with the new key and --since-run RUN, the first that it signed"
        )
    return found


def verifier(settings: Settings) -> Signer:
    """The signer for verification, with a key of any length: a short one may have signed earlier runs."""
    key = settings.proof.key
    return Signer(None if key is None else resolve("proof.key", key).encode())


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Values for a run's row at its end that don't depend on the rest of the row."""

    proof: Mapping[str, str]
    heads: Sequence[str]
    """Digests of earlier runs that no other run names as its predecessor."""


def ending(run: Run) -> Ending:
    """Read the run's rows in `PROVEN`, and the runs before it. All of its rows are committed."""
    run.commits.settle()
    return _ending(run.ledger, run.run_id, run.digests())


def _ending(ledger: Ledger, run_id: str, known: Mapping[str, RowsDigest]) -> Ending:
    """`known`: the digests of the run's rows that needn't be read, by table."""
    with ThreadPoolExecutor(2) as beside:
        before = beside.submit(heads, ledger)
        tables = [table for table in PROVEN if table is not APPROVALS or ledger.exists(APPROVALS)]
        versions = beside.submit(lambda: {table.name: ledger.latest_version(table) for table in tables})
        unread = [table for table in tables if table.name not in known]
        read = of_run({table.name: ledger.stored(table).where(F.col("run_id") == run_id) for table in unread})
        found = {**known, **read}
        proof: dict[str, str] = {}
        for table in tables:
            proof |= recorded(table, found[table.name], versions.result()[table.name])
        return Ending(proof=proof, heads=before.result())


def recorded(table: Table, digest: RowsDigest, version: int) -> Mapping[str, str]:
    """The entries about a run's rows in a table, for `runs.proof`."""
    name = table.name
    return {f"{name}_rows": str(digest.rows), f"{name}_sha256": digest.sha256, f"{name}_version": str(version)}


def read_recorded(proof: Mapping[str, str], table: Table) -> RowsDigest:
    """Read the entries that `recorded` wrote; without any for the table, the digest of no rows."""
    rows, sha256 = number(proof.get(f"{table.name}_rows")), proof.get(f"{table.name}_sha256")
    return RowsDigest() if rows is None or sha256 is None else RowsDigest(rows=rows, sha256=sha256)


def removed_rows(ledger: Ledger, row: Mapping[str, Any]) -> Mapping[str, tuple[int, int]]:
    """Return the tables, of `plans` and `audit`, that lack rows of an ended run -> their number now and at its end.

    `row`: its row in `runs`. `maintain` removes rows by age.
    """
    found: dict[str, tuple[int, int]] = {}
    for table in (PLANS, AUDIT):
        then = read_recorded(row["proof"] or {}, table).rows
        now = ledger.read_if_exists(table).where(F.col("run_id") == row["run_id"]).count() if then else 0
        if now < then:
            found[table.name] = (now, then)
    return found


def number(text: str | None) -> int | None:
    """A count or a version as `recorded` wrote it; None for any other text."""
    return int(text) if text is not None and text.isdecimal() and len(text) < 20 else None


def intent(signs: Signer, row: Mapping[str, object]) -> str:
    """Make the digest of a run's start: what else its row says may still change."""
    started = {name: row[name] for name in ("run_id", "started_at", "arguments")}
    return signs.digest(INTENT + text_of_row(RUNS.schema, started))


def commit_intent(run: Run) -> None:
    """Prove what rows a maintenance may remove, before it does: it may be killed before its end."""
    signs = signer(run.settings)
    run.commit_state(run.state, proof={**signs.about, INTENT: intent(signs, run.row)})


def ending_of_maintenance(run: Run) -> Ending:
    """The ending of a run without its own rows that removed rows of others."""
    return Ending(proof={}, heads=heads(run.ledger))


def approvals_of(ledger: Ledger, run_id: str) -> RowsDigest:
    """Read the digest of a run's approvals."""
    if not ledger.exists(APPROVALS):
        return RowsDigest()
    return of_run({APPROVALS.name: ledger.stored(APPROVALS).where(F.col("run_id") == run_id)})[APPROVALS.name]


def ending_of_load(run: Run, approved: RowsDigest) -> Ending:
    """The ending of a load for a plan that was approved after its end. `approved`: the approvals of the plan."""
    proof = {PLAN_APPROVALS_ROWS: str(approved.rows), PLAN_APPROVALS_SHA256: approved.sha256}
    return Ending(proof=proof, heads=heads(run.ledger))


def heads(ledger: Ledger) -> Sequence[str]:
    """Digests in `runs` that no run names as before it: one, or several if runs ended at the same time."""
    ended = ledger.read(RUNS).where(F.col(DIGEST).isNotNull()).select(DIGEST, "previous_digest").collect()
    named = {each for row in ended for each in (row["previous_digest"] or "").split(",")}
    return sorted({row[DIGEST] for row in ended} - named)


def sealed(run: Run, end: Ending, columns: Mapping[str, object]) -> Mapping[str, object]:
    """Add `proof`, `previous_digest` and `digest` to the `columns` with which the run finishes."""
    return _sealed({**run.row, "state": RunState.FINISHED.value}, end, columns, signer(run.settings))


def _sealed(row: Mapping[str, Any], end: Ending, columns: Mapping[str, object], signs: Signer) -> Mapping[str, object]:
    proof = {**end.proof, **signs.about, FORMAT: SEALS_ABANDONED}
    more = {**columns, "proof": proof, "previous_digest": ",".join(end.heads) or None}
    return {**more, DIGEST: signs.digest(text_of_row(RUNS.schema, {**row, **more}, less=NOT_PROVEN))}


def seal_abandoned(ledger: Ledger, signs: Signer, run_id: str) -> None:
    """Seal the row of an abandoned run, with the rows that the run has now; a row with a digest stays as it is."""
    # Nothing else changes the row of an abandoned run any more.
    row = find_run(ledger, run_id)
    if row is None or row["state"] != RunState.ABANDONED or row[DIGEST] is not None:
        return
    ledger.ensure(PLANS, AUDIT)
    columns = {"finished_at": row["finished_at"] or datetime.now(UTC)}
    values = _sealed(row.asDict(), _ending(ledger, run_id, {}), columns, signs)
    unsealed = f"{row_of(run_id)} AND state = {sql_value(RunState.ABANDONED.value)} AND {DIGEST} IS NULL"
    ledger.update(RUNS, unsealed, {name: sql_value(value) for name, value in values.items()})
