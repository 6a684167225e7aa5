"""How fast a cluster's quota lets us create and delete topics, measured by its answers (KIP-599, C17)."""

from __future__ import annotations

from collections.abc import Sequence

INTERVAL = 2.0
"""Seconds of a quota's tokens that one request spends; a broker lets 11 s of them accumulate by default."""

_IDLE_SECONDS = 5.0
"""After this long a bucket may have been full: then it doesn't show how fast it fills."""
_SHORTEST_SPAN = 0.5
"""Seconds: what comes in between two answers closer than this says more of the network than of the quota."""
_DEEPEST_FALL = 0.5
"""A rate falls at most to this share of itself at a time: one too high costs an answer, one too low costs time."""
_LONGEST_GUESS = 10.0
"""The longest wait by our own estimate; then the broker is asked, and its answer says how long it really takes."""
_FIRST_STEP = 0.02
_HIGHEST_HOPE = 1e6


class Pace:
    """An estimate of our quota on one cluster: how much may be sent, and when.

    A cluster keeps a bucket of tokens for a principal. It fills at the quota's rate, up to a burst. A topic costs one
    token per partition; it is accepted while the bucket isn't below 0, and may leave it below. Later topics are
    answered with 89, isn't charged, and the answer says in how many seconds the bucket is back at 0. Two such answers
    show the rate: what was accepted between them, divided by how much later the second one's moment of 0 is. If
    other clients use the same quota, that is the share they leave us.

    While all is accepted the rate is believed to be higher than measured, more and more so, until an answer with 89
    measures it again: so a quota that was raised is noticed. Until a first 89 there is no quota.

    Nothing here waits or looks at a clock: times are seconds of any clock that never goes back.
    """

    def __init__(self) -> None:
        self.rate: float | None = None
        """Tokens a second as last measured; None before that."""
        self._zero_at: float | None = None
        """When the bucket is at 0, as answered or estimated since; None while no quota was met."""
        self._reckoned = False
        """Whether something was spent since that answer."""
        self._measured_from: float | None = None
        """The moment of 0 that the rate is measured from."""
        self._accepted = 0
        """Tokens spent since then."""
        self._hope = 1.0
        self._step = _FIRST_STEP
        self._outrun = False
        """Others spent all that the last request waited for."""

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

        `over`: seconds until the bucket is at 0, if topics were answered with 89; else None.
        """
        if over is not None:
            # The broker takes off what its answer took, down to 0: then it was at 0 some time before the answer.
            self._throttled(now + over if over > 0 else (sent + now) / 2, accepted, asked_to_wait=over > 0)
        elif self._zero_at is not None:
            self._accepted += accepted
            self._outrun = False
            if self.rate is not None:
                self._zero_at += accepted / (self.rate * self._hope)
                self._reckoned = True
                if now - self._zero_at < INTERVAL / 2:
                    # All that was believed to be there is spent, and there was no 89: there may be more.
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
        """Note a request whose cost is unknown: the rate is measured from the next answer with 89."""
        self._measured_from = None

    def seconds_for(self, tokens: float) -> float | None:
        """Return about how many seconds this many tokens take; None while the rate is unknown."""
        return None if self.rate is None else tokens / self.rate
