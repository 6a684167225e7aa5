"""The result of `runs verify`, also as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from rich.console import Console

from topicledger.errors import ExitCode, exit_code
from topicledger.text import SHOWN_FAILURES, document, first_of, show


class Kind(StrEnum):
    """Kind of a finding."""

    ROWS_CHANGED = "rows_changed"
    ROWS_REMOVED = "rows_removed"
    ROWS_ADDED = "rows_added"
    RUN_CHANGED = "run_changed"
    RUN_REMOVED = "run_removed"
    RUN_ADDED = "run_added"
    NO_DIGEST = "no_digest"
    NOT_SIGNED = "not_signed"
    OTHER_KEY = "other_key"
    OUT_OF_ORDER = "out_of_order"
    TABLE_RESTORED = "table_restored"
    NOT_FOUND = "not_found"


@dataclass(frozen=True, kw_only=True)
class ProofFinding:
    """A difference from the state in which a run left the tables."""

    run_id: str | None
    """None for an expected digest, and for rows without a run id."""
    kind: Kind
    table: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Verified:
    """Result of a verification."""

    runs: int
    """Number of verified runs."""
    first: str | None
    last: str | None
    signed: int
    """Number of verified runs that are signed with a key."""
    retained: Mapping[str, str]
    """Verified run whose rows a maintenance removed by age, so that only its row in `runs` is verified -> the id of the
    other key that signed the maintenance, and alone proves it; empty if this key proves it."""
    earlier: int
    """Number of runs that were not verified, since they are before the one to verify from."""
    other_key_runs: Sequence[str]
    """Ids of runs under other keys that the user named: their digests can't be verified without these keys."""
    unproven_runs: Sequence[str]
    """Ids of runs with rows that no digest has: they are open, began before such runs had digests, as their rows say,
    or are plans from files that wait to be loaded, approved after their end."""
    open_runs: Sequence[str]
    """The open runs among `unproven_runs`."""
    with_key: bool
    """Whether `proof.key` is set."""
    heads: Sequence[str]
    """Digests that no run names as before it: keep them elsewhere, and give one as --expect."""
    findings: Sequence[ProofFinding]
    """In the order in which the runs ended."""

    @property
    def retention(self) -> Sequence[str]:
        """Ids of the runs in `retained`."""
        return list(self.retained)

    @property
    def unproven(self) -> int:
        """Number of `unproven_runs`."""
        return len(self.unproven_runs)

    @property
    def exit_code(self) -> ExitCode:
        # An attacker who removes digests could also mark these runs as open, or move them before the run to verify
        # from: nothing proves a start. So with a key, runs without a digest are no success.
        not_proven = self.with_key and bool(self.unproven_runs)
        return exit_code({ExitCode.TOPICS_FAILED: bool(self.findings), ExitCode.CHANGES_PENDING: not_proven})

    def to_json(self) -> str:
        """Return the versioned result document."""
        found = asdict(self)
        others = {run_id: key_id for run_id, key_id in found.pop("retained").items() if key_id}
        retention = {"retention": self.retention, "retention_other_keys": others}
        return document(self.exit_code, {"unproven": self.unproven, **retention, **found})


def render(verified: Verified, console: Console) -> None:
    """Print the verified runs and the first findings."""

    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    if not verified.runs:
        say("no run was verified" if verified.earlier or verified.other_key_runs else "no run has a digest yet")
    else:
        how = f"{verified.signed} of them signed" if verified.signed else "without a key"
        say(f"verified {verified.runs:,} runs, {show(verified.first or '')} to {show(verified.last or '')}, {how}")
    if verified.retention:
        count = len(verified.retention)
        first = ", ".join(map(show, verified.retention[:5]))
        say(f"rows of {count} of these runs were removed by retention (maintain): {first}")
    if others := [run_id for run_id, key_id in verified.retained.items() if key_id]:
        keys = ", ".join(map(show, sorted({verified.retained[run_id] for run_id in others})))
        first = ", ".join(map(show, others[:5]))
        say(f"of {len(others):,} of them, only verification with another key ({keys}) proves that: {first}")
    if verified.earlier:
        say(f"{verified.earlier:,} runs before the first of these were not verified")
    if verified.other_key_runs:
        first = ", ".join(map(show, verified.other_key_runs[:5]))
        say(f"{len(verified.other_key_runs):,} runs under other keys can only be verified with these keys: {first}")
    if verified.open_runs:
        first = ", ".join(map(show, verified.open_runs[:5]))
        say(f"nothing proves {len(verified.open_runs):,} open runs with rows; resume or abandon killed ones: {first}")
    older = [each for each in verified.unproven_runs if each not in set(verified.open_runs)]
    if older:
        first = ", ".join(map(show, older[:5]))
        # With a key, only --since-run tolerates such runs.
        before = "the run of --since-run" if verified.with_key else "such runs had digests"
        say(f"{len(older):,} runs with rows have no digest; their rows say that they began before {before}: {first}")
    for finding in verified.findings[:SHOWN_FAILURES]:
        of = "" if finding.run_id is None else f"run {show(finding.run_id)}, "
        say(f"{finding.kind.value}: {of}table {finding.table}: {finding.message}")
    if len(verified.findings) > SHOWN_FAILURES:
        say(f"{first_of(SHOWN_FAILURES, len(verified.findings))}; all of them: --format json")
    if not verified.findings and verified.runs:
        say("nothing was changed since the runs ended")
    if verified.heads:
        say(f"digest to keep elsewhere: {', '.join(verified.heads)}")
