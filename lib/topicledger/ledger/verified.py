"""The result of `runs verify` as text."""

from __future__ import annotations

from rich.console import Console

from topicledger.ledger.verifying import Verified
from topicledger.text import SHOWN_FAILURES, first_of, show


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
