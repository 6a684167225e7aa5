"""The proof of a run: at its end its row in `runs` gets digests of its rows, and of the runs before it."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from pyspark.sql import functions as F

from topicledger.config.secrets import resolve
from topicledger.config.settings import Settings
from topicledger.ledger.digests import RowsDigest, of_run, text_of_row
from topicledger.ledger.run import Run
from topicledger.ledger.tables import Ledger
from topicledger.model import RunState
from topicledger.schemas import APPROVALS, AUDIT, PLANS, RUNS, Table

PROVEN = (PLANS, AUDIT, APPROVALS)
"""Tables whose rows of a run are proven."""
ALGORITHM, KEY_ID = "algorithm", "key_id"
"""Of `runs.proof`: how the digest was made, and which key signed it."""
SHA256, HMAC = "SHA-256", "HMAC-SHA256"
DIGEST = "digest"
"""The column of `runs` that the digest is in."""
NOT_PROVEN = (DIGEST, "notified")
"""Columns of `runs` that the digest isn't of: itself, and what is written after a run's end."""


@dataclass(frozen=True)
class Signer:
    """Makes digests, with a key where there is one."""

    key: bytes | None = field(repr=False)

    @property
    def about(self) -> Mapping[str, str]:
        """What `runs.proof` says of it."""
        if self.key is None:
            return {ALGORITHM: SHA256}
        return {ALGORITHM: HMAC, KEY_ID: self.digest("topicledger key id")[:8]}

    def digest(self, text: str) -> str:
        """Hex: SHA-256 of the text, by the key HMAC-SHA256."""
        if self.key is None:
            return hashlib.sha256(text.encode()).hexdigest()
        return hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()


def signer(settings: Settings) -> Signer:
    """By the key of the settings, read now. Raises SecretError where it can't be read here."""
    key = settings.proof.key
    return Signer(None if key is None else resolve("proof.key", key).encode())


@dataclass(frozen=True, kw_only=True)
class Ending:
    """What a run's row gets at its end, as far as it is known before the row is."""

    proof: Mapping[str, str]
    heads: Sequence[str]
    """Digests of the runs before it that no run names as before it."""


def ending(run: Run) -> Ending:
    """Read the run's rows of `PROVEN`, and what came before it. All of its rows are committed."""
    run.commits.settle()
    ledger = run.ledger
    with ThreadPoolExecutor(2) as beside:
        before = beside.submit(heads, ledger)
        tables = [table for table in PROVEN if table is not APPROVALS or ledger.exists(APPROVALS)]
        versions = beside.submit(lambda: {table.name: ledger.latest_version(table) for table in tables})
        appended = run.audit_digest
        found = {} if appended is None else {AUDIT.name: appended}
        unread = [table for table in tables if table.name not in found]
        found |= of_run({table.name: ledger.stored(table).where(F.col("run_id") == run.run_id) for table in unread})
        proof: dict[str, str] = {}
        for table in tables:
            proof |= recorded(table, found[table.name], versions.result()[table.name])
        return Ending(proof=proof, heads=before.result())


def recorded(table: Table, digest: RowsDigest, version: int) -> Mapping[str, str]:
    """What `runs.proof` says of a run's rows in a table."""
    name = table.name
    return {f"{name}_rows": str(digest.rows), f"{name}_sha256": digest.sha256, f"{name}_version": str(version)}


def read_recorded(proof: Mapping[str, str], table: Table) -> RowsDigest:
    """What `recorded` wrote; no rows where it says nothing of the table."""
    rows, sha256 = proof.get(f"{table.name}_rows"), proof.get(f"{table.name}_sha256")
    if rows is None or sha256 is None or not rows.isdecimal():
        return RowsDigest()
    return RowsDigest(rows=int(rows), sha256=sha256)


def ending_of_maintenance(run: Run) -> Ending:
    """Of a run that has no rows of its own, and removed others'."""
    return Ending(proof={}, heads=heads(run.ledger))


def heads(ledger: Ledger) -> Sequence[str]:
    """Digests in `runs` that no run names as before it: one, and more where runs ended at the same time."""
    ended = ledger.read(RUNS).where(F.col(DIGEST).isNotNull()).select(DIGEST, "previous_digest").collect()
    named = {each for row in ended for each in (row["previous_digest"] or "").split(",")}
    return sorted({row[DIGEST] for row in ended} - named)


def sealed(run: Run, end: Ending, columns: Mapping[str, object]) -> Mapping[str, object]:
    """`columns` that the run finishes with, and `proof`, `previous_digest` and `digest`."""
    signs = signer(run.settings)
    more = {**columns, "proof": {**end.proof, **signs.about}, "previous_digest": ",".join(end.heads) or None}
    row = {**run.row, **more, "state": RunState.FINISHED.value}
    return {**more, DIGEST: signs.digest(text_of_row(RUNS.schema, row, less=NOT_PROVEN))}
