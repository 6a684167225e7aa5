"""Waves in which the outcomes of a run reach `audit`."""

from __future__ import annotations

import time
from collections.abc import Sequence

from topicledger.ledger.leases import Leases
from topicledger.ledger.run import Run
from topicledger.model import PhaseResult

WAVE_OUTCOMES = 10_000
WAVE_SECONDS = 10.0


class OutcomeWaves:
    """Collects outcomes and appends them to `audit`: at most one commit per 10,000 outcomes or 10 s."""

    def __init__(self, run: Run, held: Leases | None) -> None:
        """`held`: the leases of a run that changes clusters."""
        self._run = run
        self._leases = held
        self._held: list[PhaseResult] = []
        self._since = time.monotonic()

    def add(self, ended: Sequence[PhaseResult]) -> None:
        """Add outcomes; commits all of them if they are enough."""
        if not self._held:
            self._since = time.monotonic()
        self._held.extend(ended)
        if len(self._held) >= WAVE_OUTCOMES:
            self.flush()

    @property
    def is_empty(self) -> bool:
        """Whether all added outcomes are committed or being committed."""
        return not self._held

    def flush_if_due(self) -> None:
        """Commit the outcomes if the oldest has waited for long enough."""
        if self._held and time.monotonic() - self._since >= WAVE_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Commit all outcomes that wait."""
        if self._held:
            held, self._held = self._held, []
            self._run.append_outcomes(held, self._leases)
