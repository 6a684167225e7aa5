"""The chain of digests: each run with a digest names the digests of the runs that ended before it."""

from __future__ import annotations

import hmac
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from topicledger.ledger.digests import row_texts
from topicledger.ledger.proof import ALGORITHM, DIGEST, HMAC, KEY_ID, NOT_PROVEN, Signer
from topicledger.ledger.tables import Ledger
from topicledger.schemas import RUNS

_TEXTS = ("run_id", "state", DIGEST, "previous_digest")
LATE_COMMIT = timedelta(minutes=10)
"""How long after `finished_at` a run's last commit may come: until then a run that ends may not see it."""


NEVER = datetime.min.replace(tzinfo=UTC)
"""Stands for a moment that is null."""


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """A row of `runs`, whoever wrote it: null texts are empty."""

    run_id: str
    state: str
    started_at: datetime
    finished_at: datetime
    digest: str
    """Empty where the row isn't sealed."""
    previous: Sequence[str]
    """Digests of the runs before it."""
    proof: Mapping[str, str]
    arguments: Mapping[str, str]
    text: str
    """The text that the digest was made of."""

    @property
    def signed(self) -> bool:
        """Whether it says that its digest was made with a key."""
        return self.proof.get(ALGORITHM) == HMAC

    def signed_by(self, signs: Signer) -> bool:
        """Whether it says that its digest was made with this key."""
        return self.signed and signs.key is not None and self.proof.get(KEY_ID) == signs.about[KEY_ID]

    def holds(self, signs: Signer) -> bool:
        """Whether the digest is the one that `signs` makes of the row."""
        return hmac.compare_digest(signs.digest(self.text).encode(), self.digest.encode())


def read_rows(ledger: Ledger) -> Sequence[RunRow]:
    """All rows of `runs`, by the time at which they say that they ended."""
    rows = ledger.stored(RUNS).select(*RUNS.schema.names).toArrow()
    texts = row_texts(rows, less=NOT_PROVEN)
    columns = (rows.column(name).to_pylist() for name in _TEXTS)
    maps = ((dict(each or ()) for each in rows.column(name).to_pylist()) for name in ("proof", "arguments"))
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
        )
        for run_id, state, digest, previous, proof, arguments, started_at, finished_at, text in zip(
            *columns, *maps, *moments, texts, strict=True
        )
    ]
    return sorted(found, key=lambda each: (each.finished_at, each.run_id))


def _moment(micros: int | None) -> datetime:
    # Spark has moments that Python hasn't.
    if micros is None:
        return NEVER
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    except OverflowError:
        return NEVER if micros < 0 else datetime.max.replace(tzinfo=UTC)


class Chain:
    """All sealed runs of a ledger, and which names which as before it."""

    def __init__(self, everything: Sequence[RunRow], signs: Signer) -> None:
        """`everything`: the rows with a digest."""
        self._signs = signs
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

    def before(self, run: RunRow) -> frozenset[str]:
        """Digests of the runs before a run: those that it names, and those that they name.

        `finished_at` plays no part: anybody who can write to the table can set it. A digest of several rows isn't
        followed, nor is a row that its digest wasn't made of. Rows signed with another key are taken as they are.
        """
        found: set[str] = set()
        left = list(run.previous) if self.authentic(run) else []
        while left:
            digest = left.pop()
            rows = self._by_digest.get(digest, ())
            if digest in found or len(rows) != 1:
                continue
            if self.authentic(rows[0]) or (rows[0].signed and not rows[0].signed_by(self._signs)):
                found.add(digest)
                left += rows[0].previous
        return frozenset(found)

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
