"""The rate at which a cluster lets us create and delete topics, measured by its answers (C17).

"Quota" means Kafka's controller mutation quota here (KIP-599).
"""

from __future__ import annotations

from collections.abc import Sequence

INTERVAL = 2.0
"""Seconds of the quota's tokens that one request spends; by default, a broker lets 11 s of tokens accumulate."""

_IDLE_SECONDS = 5.0
"""Idle time after which the bucket may be full, so that it no longer shows how fast it fills."""
_SHORTEST_SPAN = 0.5
"""Shortest time in seconds between two answers that measure the quota rather than the network."""
_DEEPEST_FALL = 0.5
"""Smallest share of itself that a rate falls to at once: a rate too high costs an answer, one too low costs time."""
_LONGEST_GUESS = 10.0
"""Longest wait in seconds by our own estimate; then the broker's answer gives the real time."""
_FIRST_STEP = 0.02
_HIGHEST_HOPE = 1e6


class Pace:
    """An estimate of our quota on one cluster: how much may be sent, and when.

    A cluster keeps a bucket of tokens for each principal, which fills at the quota's rate, up to a burst. A topic costs
    one token per partition; it is accepted while the bucket isn't below 0, and may leave it below. Later topics are
    refused with THROTTLING_QUOTA_EXCEEDED and not charged, and the answer gives the seconds until the bucket is back
    at 0. Two such answers show the rate: the tokens accepted between them, divided by the time between their moments
    of 0. If other clients use the same quota, the rate is the share that they leave us.

    While everything is accepted, the assumed rate keeps growing above the measured one until a refusal measures
    it again: this detects a quota that was raised. Before the first refusal, no quota is assumed.

    Nothing here waits or reads a clock: times are seconds of any monotonic clock.
    """

    def __init__(self) -> None:
        self.rate: float | None = None
        """Tokens per second as last measured; None before the first measurement."""
        self._zero_at: float | None = None
        """The moment when the bucket is at 0, as answered or estimated since; None before the first refusal."""
        self._reckoned = False
        """Whether tokens were spent since that answer."""
        self._measured_from: float | None = None
        """The moment of 0 that the rate is measured from."""
        self._accepted = 0
        """Tokens spent since that moment."""
        self._hope = 1.0
        self._step = _FIRST_STEP
        self._outrun = False
        """Whether other clients spent all the tokens that the last request waited for."""

    def plan(self, now: float, costs: Sequence[int]) -> tuple[float, int]:
        """Return the seconds to wait, and how many of the topics with these costs to send then, at least one.

        `costs` are in the order in which the topics will be sent.
        """
        if self._zero_at is None:
            return 0.0, len(costs)
        if now - self._zero_at > _IDLE_SECONDS:
            self._measured_from = None
        rate = None if self.rate is None else self.rate * self._hope
        enough = INTERVAL if rate is None else min(INTERVAL, sum(costs) / rate)
        at = max(now, self._zero_at + (0.0 if self._outrun else enough))
        if self._reckoned:
            at = min(at, now + _LONGEST_GUESS)
        if rate is None:
            return at - now, len(costs)
        tokens = rate * max(at - self._zero_at, enough)
        count, spent = 0, 0
        while count < len(costs) and (count == 0 or spent < tokens):
            spent += costs[count]
            count += 1
        return at - now, count

    def answered(self, sent: float, now: float, accepted: int, over: float | None) -> None:
        """Learn from a request sent at `sent` and answered `now`: `accepted` tokens were spent.

        `over`: seconds until the bucket is at 0, if topics were refused; else None.
        """
        if over is not None:
            # The broker subtracts the time its answer took, down to 0: then the bucket was at 0 before the answer.
            self._throttled(now + over if over > 0 else (sent + now) / 2, accepted, asked_to_wait=over > 0)
        elif self._zero_at is not None:
            self._accepted += accepted
            self._outrun = False
            if self.rate is not None:
                self._zero_at += accepted / (self.rate * self._hope)
                self._reckoned = True
                if now - self._zero_at < INTERVAL / 2:
                    # All assumed tokens are spent without a refusal, so there may be more.
                    self._hope = min(self._hope + self._step, _HIGHEST_HOPE)
                    self._step = min(self._step * 2, _HIGHEST_HOPE)

    def _throttled(self, zero_at: float, accepted: int, *, asked_to_wait: bool) -> None:
        self._accepted += accepted
        self._outrun = accepted == 0 and asked_to_wait
        self._zero_at, self._reckoned = zero_at, False
        if self._measured_from is not None and self._accepted and zero_at > self._measured_from:
            span = zero_at - self._measured_from
            if span < _SHORTEST_SPAN:
                return
            measured = self._accepted / span
            self.rate = measured if self.rate is None else max(measured, self.rate * _DEEPEST_FALL)
        self._measured_from, self._accepted = zero_at, 0
        self._hope, self._step = 1.0, _FIRST_STEP

    def lost(self) -> None:
        """Note a request whose cost is unknown; the rate is then measured from the next refusal."""
        self._measured_from = None

    def seconds_for(self, tokens: float) -> float | None:
        """Estimate the seconds that this many tokens take; None while the rate is unknown."""
        return None if self.rate is None else tokens / self.rate
