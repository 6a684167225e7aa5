"""Read the chain of digests: each run with a digest names the digests of the runs that ended before it.

`proof` writes them when a run ends.
"""

from __future__ import annotations

import hmac
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from topicledger.ledger.digests import row_texts
from topicledger.ledger.proof import ALGORITHM, DIGEST, HMAC, INTENT, KEY_ID, NOT_PROVEN, Signer, intent
from topicledger.ledger.sql import moment_of
from topicledger.ledger.tables import Ledger
from topicledger.schemas import RUNS

_TEXTS = ("run_id", "state", DIGEST, "previous_digest")
LATE_COMMIT = timedelta(minutes=10)
"""Longest time from `finished_at` to a run's last commit: until then, another run that ends may not see it."""


NEVER = datetime.min.replace(tzinfo=UTC)
"""Stands for a moment that is null."""


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """A row of `runs`, whoever wrote it; null texts are read as empty."""

    run_id: str
    state: str
    started_at: datetime
    finished_at: datetime
    digest: str
    """Empty if the row isn't sealed."""
    previous: Sequence[str]
    """Digests of the runs before it."""
    proof: Mapping[str, str]
    arguments: Mapping[str, str]
    text: str
    """The text from which the digest was computed."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Numbers of actions by outcome, and more."""
    exit_code: int | None = None

    @property
    def signed(self) -> bool:
        """Whether the row claims that a key signed its digest."""
        return self.proof.get(ALGORITHM) == HMAC

    def signed_by(self, signs: Signer) -> bool:
        """Whether the row claims that this key signed its digest."""
        return self.signed and signs.key is not None and self.proof.get(KEY_ID) == signs.about[KEY_ID]

    def holds(self, signs: Signer) -> bool:
        """Whether the digest is the one that `signs` makes of the row."""
        return hmac.compare_digest(signs.digest(self.text).encode(), self.digest.encode())

    def intends(self, signs: Signer) -> bool:
        """Whether the row isn't sealed, and has the digest that `signs` makes of its start."""
        start = {"run_id": self.run_id, "started_at": self.started_at, "arguments": self.arguments}
        return not self.digest and hmac.compare_digest(
            intent(signs, start).encode(), self.proof.get(INTENT, "").encode()
        )


def read_rows(ledger: Ledger) -> Sequence[RunRow]:
    """All rows of `runs`, by the end time in them."""
    rows = ledger.stored(RUNS).select(*RUNS.schema.names).toArrow()
    texts = row_texts(rows, less=NOT_PROVEN)
    columns = (rows.column(name).to_pylist() for name in _TEXTS)
    maps = ((dict(each or ()) for each in rows.column(name).to_pylist()) for name in ("proof", "arguments", "counts"))
    moments = (map(_moment, rows.column(name).cast("int64").to_pylist()) for name in ("started_at", "finished_at"))
    found = [
        RunRow(
            run_id=run_id or "",
            state=state or "",
            started_at=started_at,
            finished_at=finished_at,
            digest=digest or "",
            previous=[each for each in (previous or "").split(",") if each],
            proof={name: value or "" for name, value in proof.items()},
            arguments={name: value or "" for name, value in arguments.items()},
            text=text,
            counts={name: value or 0 for name, value in counts.items()},
            exit_code=exit_code,
        )
        for run_id, state, digest, previous, proof, arguments, counts, started_at, finished_at, text, exit_code in zip(
            *columns, *maps, *moments, texts, rows.column("exit_code").to_pylist(), strict=True
        )
    ]
    return sorted(found, key=lambda each: (each.finished_at, each.run_id))


def _moment(micros: int | None) -> datetime:
    # Spark has timestamps that Python doesn't support.
    if micros is None:
        return NEVER
    try:
        return moment_of(micros)
    except OverflowError:
        return NEVER if micros < 0 else datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Before:
    """The runs before a run."""

    digests: frozenset[str]
    out_of_order: Sequence[RunRow]
    """Rows that a run under another key names as earlier, although they can't be: one of the rows was changed."""


class Chain:
    """All sealed runs of a ledger, and the runs that each names as before it."""

    def __init__(self, everything: Sequence[RunRow], signs: Signer, other_keys: Collection[str] = ()) -> None:
        """`everything`: the rows with a digest. `other_keys`: ids of keys whose runs are accepted unverified."""
        self._signs = signs
        self._other_keys = frozenset(other_keys)
        self._by_digest: dict[str, list[RunRow]] = defaultdict(list)
        for each in everything:
            self._by_digest[each.digest].append(each)
        self._named = {digest for each in everything for digest in each.previous}
        self._newest = max((each.finished_at for each in everything), default=None)
        roots = [each for each in everything if not each.previous and self.authentic(each)]
        self._root = min(roots, key=lambda each: (each.finished_at, each.run_id), default=None)

    @property
    def heads(self) -> Sequence[str]:
        """Digests that no run names as before it."""
        return sorted(digest for digest in self._by_digest if digest not in self._named)

    def authentic(self, run: RunRow) -> bool:
        """Whether the run's row is the one that its digest was made of; False if another key signed it."""
        if run.signed:
            return run.signed_by(self._signs) and run.holds(self._signs)
        return run.holds(Signer(None))

    def is_accepted(self, run: RunRow) -> bool:
        """Whether the run says that an accepted other key signed it: nothing verifies that here."""
        return run.signed and not run.signed_by(self._signs) and run.proof.get(KEY_ID) in self._other_keys

    def before(self, run: RunRow) -> Before:
        """The runs before a run: those that it names, and those that they name.

        First along authentic rows: they prove what they name, whatever its times. Then along rows under an accepted
        other key. Nothing verifies these here, so a run that only they name must have started and ended before the run,
        and a run that this key signed isn't skipped for them. No other row is followed, and no digest of several rows.
        """
        found: set[str] = set()
        left = list(run.previous) if self.authentic(run) else []
        claimed: list[str] = []
        while left:
            row = self._only(left.pop())
            if row is None or row.digest in found:
                continue
            if self.authentic(row):
                found.add(row.digest)
                left += row.previous
            elif self.is_accepted(row):
                claimed.append(row.digest)
        seen = set(found)
        out_of_order = []
        while claimed:
            row = self._only(claimed.pop())
            if row is None or row.digest in seen:
                continue
            seen.add(row.digest)
            if not self.authentic(row) and not self.is_accepted(row):
                continue
            if row.digest == run.digest or not _may_precede(row, run):
                out_of_order.append(row)
                continue
            if not row.signed_by(self._signs):
                found.add(row.digest)
            claimed += row.previous
        return Before(digests=frozenset(found), out_of_order=out_of_order)

    def _only(self, digest: str) -> RunRow | None:
        """The row with a digest; None if there are none or several."""
        rows = self._by_digest.get(digest, ())
        return rows[0] if len(rows) == 1 else None

    def missing(self, run: RunRow) -> Sequence[str]:
        """Digests that the run names and that no row has."""
        return [digest for digest in run.previous if digest not in self._by_digest]

    def is_unknown(self, run: RunRow) -> bool:
        """Whether runs that ended more than `LATE_COMMIT` later don't name the run as before them."""
        late = self._newest is not None and self._newest - run.finished_at > LATE_COMMIT
        return late and run.digest not in self._named

    def is_second_root(self, run: RunRow) -> bool:
        """Whether it names no run before it, though another run without one ended more than `LATE_COMMIT` earlier."""
        return not run.previous and self._root is not None and run.finished_at - self._root.finished_at > LATE_COMMIT


def _may_precede(row: RunRow, run: RunRow) -> bool:
    """Whether the times of a row allow that it ended before the run did; clocks differ by less than `LATE_COMMIT`."""
    times = (row.started_at, row.finished_at)
    return NEVER not in times and max(times) <= run.finished_at + LATE_COMMIT
