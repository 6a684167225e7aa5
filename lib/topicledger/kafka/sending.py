"""Send requests to one cluster until their outcome is known: in batches, at the mutation quota's pace (KIP-599)."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from topicledger import kafka
from topicledger.config import logs
from topicledger.errors import ClusterError
from topicledger.kafka import RequestLost, Response, error_name
from topicledger.kafka.connection import THROTTLE_MARGIN_SECONDS, UNSUPPORTED_VERSION, ApiMissing
from topicledger.kafka.moving import MoveLimits
from topicledger.kafka.outcomes import THROTTLING_QUOTA_EXCEEDED, Answer, NoOutcome, Outcomes, Part, Sent
from topicledger.kafka.pace import Pace
from topicledger.model import Target, TopicResult
from topicledger.naming import Sections
from topicledger.text import listed

__all__ = [
    "THROTTLING_QUOTA_EXCEEDED",
    "Answer",
    "ClusterLimits",
    "NoOutcome",
    "OutcomeUnknown",
    "QuotaWait",
    "RetryPolicy",
    "Sender",
    "StaysOpen",
    "is_too_large",
    "may_be_done",
]

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_MAYBE_DONE = frozenset({kafka.UNKNOWN_SERVER_ERROR, kafka.REQUEST_TIMED_OUT})
"""Error codes after which the request may still have taken effect (C12, N1)."""
_NO_OUTCOME = _MAYBE_DONE | {kafka.NOT_CONTROLLER, THROTTLING_QUOTA_EXCEEDED}
"""Error codes after which a topic is sent again (C12, C13, C17)."""
_SILENT_CLUSTER = 5
"""Number of targets in a row without any answer, each alone in its request, after which the cluster counts as silent.
Each is chosen at random, since silent topics are often neighbours."""
_ATTEMPTS_AFTER_SILENCE = 2
"""Attempts for the next target before it counts as silent, too."""
_TOO_LARGE = ("Excessively large", "Unable to perform excessively large")
"""Beginnings of the message with which a broker refuses a whole request for its size (C15)."""
_ALL_FENCED = "All brokers are currently fenced"
"""A controller's answer to every create during the seconds in which no broker is up (*measured*, 4.3.1)."""


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Limits for repeated requests."""

    attempts: int = 8
    """Requests in a row without an outcome before giving up."""
    first_backoff: float = 0.25
    """Seconds before the second attempt; doubles, with jitter."""
    longest_backoff: float = 10.0
    """Longest pause between attempts, in seconds."""
    visibility: float = 90.0
    """Seconds until a topic that the controller knows must be listed (C21)."""


class OutcomeUnknown(ClusterError):
    """The effect of a request is unknown; the run stays open and can be started again."""


class StaysOpen(OutcomeUnknown):
    """The outcomes of some actions of a batch are unknown; the cluster's other batches continue."""

    words, advice = "no known outcome", "start the run again with its id"

    def __init__(self, cluster: str, actions: Mapping[tuple[str, str], str]) -> None:
        """`actions`: reasons by (resource, action)."""
        (first, _), why = next(iter(actions.items()))
        super().__init__(f"cluster {cluster}: {listed([first], len(actions))}: {self.words} ({why}); {self.advice}")
        self.actions = actions


@dataclass(frozen=True, kw_only=True)
class QuotaWait:
    """A wait for the quota, and its expected duration (C17)."""

    seconds: float
    """Seconds until the next request."""
    rate: float | None
    """Partitions per second that the quota leaves us; None while unknown."""
    left: int
    """Topics of this cluster and phase that have no answer yet."""
    eta: float | None
    """Estimated seconds until these topics have an answer; None while unknown."""


@dataclass(kw_only=True)
class ClusterLimits:
    """One cluster's limits, learned from its answers; shared by all phases of a run."""

    max_batch_records: int
    """The size of a request; halved if the cluster refuses it (C15)."""
    pace: Pace = field(default_factory=Pace)
    """The quota's pace (C17)."""
    partitions: dict[str, int] = field(default_factory=dict)
    """Partition counts that are missing in the plan, by topic: from validate or a describe."""
    of_kinds: Sections = field(default_factory=Sections)
    """The settings of kinds of resources."""
    acknowledged: set[object] = field(default_factory=set)
    """Resources that were acknowledged and may not be visible yet, as their kind's steps name them (A6)."""
    moving: MoveLimits = field(default_factory=MoveLimits)
    """Limits of simultaneous moves."""
    unanswered: dict[str, float] = field(default_factory=dict)
    """Resource -> when a request that changes it last got no answer, by the context's clock. The answer to a later
    request doesn't tell that the earlier one is over: a broker that stood still may have it."""
    warned: set[str] = field(default_factory=set)
    """Warnings about the cluster as a whole, each logged once (C11, D8)."""

    def halve(self, records: int) -> None:
        """Note that the cluster refused a request of this many records."""
        self.max_batch_records = max(1, records // 2)

    def move_within(self, moving: MoveLimits) -> None:
        """Set the limits of the moves that a step makes."""
        self.moving = moving


@dataclass
class _Silence:
    """Signs that a cluster answers nothing at all, not only nothing about one target."""

    targets: int = 0
    """Number of targets, one after the other, that were sent alone and had no answer; any answer resets it to 0."""
    answered: tuple[Callable[[Sequence[Target]], Response], Target] | None = None
    """The last request that changes nothing and had an outcome, with a target of it."""


@dataclass(kw_only=True)
class Sender:
    """Sends requests to one cluster, through one connection.

    If `stop` is set, a wait ends at once and raises OutcomeUnknown.
    """

    cluster: str
    limits: ClusterLimits
    retry_policy: RetryPolicy
    stop: threading.Event
    sleep: Callable[[float], object]
    records: Callable[[Target], int]
    """Metadata records that the controller writes for a target."""
    tokens: Callable[[Target], int]
    """Tokens of the quota that a target takes, as far as its partitions are known; 0 if no quota counts it."""
    clock: Callable[[], float] = time.monotonic
    """Seconds."""
    may_send: Callable[[], None] = lambda: None
    """Called immediately before each request that changes something; raises a ClusterError if that isn't allowed."""
    prepare: Callable[[], None] = lambda: None
    """Called before `may_send` for slow steps, such as finding the controller and connecting to it."""
    waiting: Callable[[QuotaWait | None], None] = lambda _: None
    """Called before each wait for the quota, and with None when there is nothing left to wait for."""
    later: int = 0
    """Topics of this cluster and phase that follow those being sent."""
    _quiet_until: float = float("-inf")
    _signs: _Silence = field(default_factory=_Silence)

    def expect(self, later: int) -> None:
        """Note how many topics follow those that are sent next: a wait for the quota shows how many are left."""
        self.later = later

    def wait(self, seconds: float) -> None:
        """Wait; raise OutcomeUnknown if asked to stop, so that actions without a known outcome stay open."""
        self.sleep(seconds)
        if self.stop.is_set():
            raise OutcomeUnknown(f"cluster {self.cluster}: asked to stop; start the run again with its id")

    def ask(self, ask: Callable[[], _T]) -> _T:
        """Return the answer to a read-only request, repeated until one arrives; raises OutcomeUnknown if none does."""
        backoff = self.retry_policy.first_backoff
        for attempt in range(1, self.retry_policy.attempts + 1):
            quiet = self._quiet_until - self.clock()
            if quiet > 0:
                self.wait(quiet)
            try:
                return ask()
            except RequestLost as error:
                if attempt == self.retry_policy.attempts:
                    raise OutcomeUnknown(f"{error}; {attempt} attempts; start the run again with its id") from None
            self.wait(backoff * random.uniform(0.5, 1.0))
            backoff = min(backoff * 2, self.retry_policy.longest_backoff)
        raise AssertionError("unreachable")

    def send(
        self, targets: Sequence[Target], request: Callable[[Sequence[Target]], Response], *, changes: bool
    ) -> Iterator[tuple[Target, Answer | NoOutcome]]:
        """Send targets until each has an answer; yield answers as they arrive, and never send an answered target again.

        A request is as large as the cluster accepts (C15) and its quota allows (C17). Targets whose request timed out,
        was lost or didn't reach the controller are sent again, after a growing pause (C12, C13). If a request
        repeatedly has no outcome, smaller requests isolate the target that causes it. That target is yielded as
        NoOutcome, and the others continue.

        Raises OutcomeUnknown if a cluster doesn't answer about several targets chosen at random; it yields these as
        NoOutcome first. Raises what `may_send` raises if the request `changes` something. All other targets then stay
        open.
        """
        if not targets:
            return
        sent = Sent(left=list(targets))
        # After a target without an outcome, the next one shows whether the cluster answers at all.
        fruitless = self._again_after_silence() if self._signs.targets else 0
        backoff = self.retry_policy.first_backoff
        part = Part(attempts=self.retry_policy.attempts)
        try:
            while sent.left:
                batch = self._next(sent.left)[: part.most]
                if changes:
                    self.prepare()
                    # The request must follow immediately.
                    self.may_send()
                sent.attempts.update(target.resource for target in batch)
                requested_at = datetime.now(UTC)
                with logs.about(attempt=sent.attempts[batch[0].resource]):
                    outcomes = self._request(request, batch)
                    _log_request(batch, outcomes)
                if outcomes.too_large:
                    sent.attempts.subtract(target.resource for target in batch)
                    continue
                answers, unknown = sent.answered(batch, outcomes, requested_at)
                if changes:
                    self.limits.unanswered.update(dict.fromkeys(outcomes.maybe_done, self.clock()))
                yield from answers
                if outcomes.results or outcomes.over_quota:
                    fruitless = part.attempts // 2 if part.found else 0
                    backoff, self._signs.targets = self.retry_policy.first_backoff, 0
                    part.answered(len(batch))
                    if answers and not changes:
                        self._signs.answered = request, answers[0][0]
                    # The cluster answers, so earlier targets without an answer are silent by themselves.
                    yield from sent.silent_by_itself()
                else:
                    fruitless += 1
                    if not sent.is_own(batch):
                        part.unanswered(len(batch), fruitless)
                    if fruitless >= self.retry_policy.attempts and (len(batch) == 1 or sent.is_own(batch)):
                        alive = part.alive and part.suspect > 0
                        by_themselves = sent.give_up(batch, outcomes, requested_at, alive=alive)
                        yield from by_themselves
                        part.gave_up()
                        fruitless = self._again_after_silence()
                        self._signs.targets += 1
                        is_last = self._signs.targets >= _SILENT_CLUSTER or not sent.left
                        if len(by_themselves) == len(batch) or (is_last and self._still_answers(batch)):
                            self._signs.targets, backoff = 0, self.retry_policy.first_backoff
                            yield from sent.silent_by_itself()
                        elif self._signs.targets >= _SILENT_CLUSTER:
                            silence = self._silence(sent, outcomes.why)
                            yield from sent.silent
                            raise silence
                        if self._signs.targets:
                            sent.go_on_elsewhere()
                if unknown and sent.left and not outcomes.over_quota:
                    self.wait(backoff * random.uniform(0.5, 1.0))
                    backoff = min(backoff * 2, self.retry_policy.longest_backoff)
            yield from sent.silent
        finally:
            self.waiting(None)

    def _again_after_silence(self) -> int:
        """Return the attempts without an outcome that the next target starts with."""
        return max(0, self.retry_policy.attempts - _ATTEMPTS_AFTER_SILENCE)

    def _still_answers(self, silent: Sequence[Target]) -> bool:
        """Whether the cluster still answers a request about another target of this action, answered before."""
        if self._signs.answered is None or self._signs.answered[1].action != silent[0].action:
            return False
        request, known = self._signs.answered
        outcomes = self._request(request, self._next([known]))
        return bool(outcomes.results or outcomes.over_quota)

    def _silence(self, sent: Sent, why: str) -> OutcomeUnknown:
        open_now = [target for target, _ in sent.silent] + sent.left
        return OutcomeUnknown(
            f"cluster {self.cluster}: {len(open_now)} actions, {open_now[0].resource} among them, have no known "
            f"outcome after {sum(sent.attempts.values())} attempts ({why}); start the run again with its id"
        )

    def _next(self, left: Sequence[Target]) -> Sequence[Target]:
        """Return the targets of the next request: as many as the cluster accepts in one and its quota allows now."""
        batch = self._within_limit(left)
        now = self.clock()
        costs = [self.tokens(target) for target in batch]
        seconds, count = self.limits.pace.plan(now, costs) if any(costs) else (0.0, len(batch))
        if seconds > 0:
            self._report_wait(seconds, left)
        pause = max(seconds, self._quiet_until - now)
        if pause > 0:
            self.wait(pause)
        return batch[:count]

    def _within_limit(self, left: Sequence[Target]) -> Sequence[Target]:
        count, records = 0, 0
        for target in left:
            records += self.records(target)
            if count and records > self.limits.max_batch_records:
                break
            count += 1
        return left[:count]

    def _report_wait(self, seconds: float, left: Sequence[Target]) -> None:
        tokens = sum(map(self.tokens, left))
        topics = len(left) + self.later
        # Later targets are assumed to cost as much as these.
        eta = self.limits.pace.seconds_for(tokens * topics / len(left))
        self.waiting(QuotaWait(seconds=seconds, rate=self.limits.pace.rate, left=topics, eta=eta))

    def _request(self, request: Callable[[Sequence[Target]], Response], batch: Sequence[Target]) -> Outcomes:
        """Send one request, and update the cluster's limits from its answer."""
        sent, pace = self.clock(), self.limits.pace
        try:
            response = request(batch)
        except ApiMissing as error:
            # Every later attempt would fail the same way, so this is an answer.
            refused = TopicResult(error_code=UNSUPPORTED_VERSION, error_message=str(error))
            return Outcomes(results={target.resource: refused for target in batch})
        except RequestLost as error:
            pace.lost()
            return Outcomes(why=str(error), maybe_done=[target.resource for target in batch], lost=True)
        now, throttled = self.clock(), response.throttle_time_ms / 1000
        if throttled > 0:
            self._quiet_until = max(self._quiet_until, now + throttled + THROTTLE_MARGIN_SECONDS)
        if len(batch) > 1 and response.results and all(map(is_too_large, response.results.values())):
            self._halve(sum(map(self.records, batch)))
            return Outcomes(too_large=True)
        codes = {result.error_code for result in response.results.values()}
        over_quota = THROTTLING_QUOTA_EXCEEDED in codes
        if any(map(self.tokens, batch)):
            if codes & _MAYBE_DONE:
                pace.lost()
            spent = sum(self._spent(target, response.results.get(target.resource)) for target in batch)
            pace.answered(sent, now, spent, throttled if over_quota else None)
        again = {topic: each for topic, each in response.results.items() if _has_no_outcome_yet(each)}
        names = sorted({error_name(each.error_code) for each in again.values()})
        unanswered = [target.resource for target in batch if target.resource not in response.results]
        return Outcomes(
            results={topic: each for topic, each in response.results.items() if topic not in again},
            maybe_done=[*unanswered, *(topic for topic, each in again.items() if may_be_done(each))],
            over_quota=over_quota,
            again=again,
            why=", ".join(names) or "not in the answer",
        )

    def _spent(self, target: Target, result: TopicResult | None) -> int:
        """Return the tokens that an action cost; failed actions aren't charged."""
        if result is None or result.error_code != kafka.NONE:
            return 0
        if result.num_partitions is not None and not target.assignments and target.num_partitions is None:
            self.limits.partitions[target.topic] = result.num_partitions
        return self.tokens(target)

    def _halve(self, records: int) -> None:
        self.limits.halve(records)
        log.warning(
            "cluster %s refuses %d records in one request: continuing with %d",
            self.cluster,
            records,
            self.limits.max_batch_records,
        )


def _log_request(batch: Sequence[Target], outcomes: Outcomes) -> None:
    if len(outcomes.results) == len(batch):
        log.info("a request for %d topics is answered", len(batch))
    else:
        why = "too large" if outcomes.too_large else outcomes.why
        log.info(
            "a request for %d topics: %d have no outcome (%s)", len(batch), len(batch) - len(outcomes.results), why
        )


def _has_no_outcome_yet(result: TopicResult) -> bool:
    """Whether an answer has no final outcome (C12, C13, C17)."""
    fenced = result.error_code == kafka.INVALID_REPLICATION_FACTOR and _ALL_FENCED in (result.error_message or "")
    return result.error_code in _NO_OUTCOME or fenced


def may_be_done(result: TopicResult) -> bool:
    """Whether a request may have taken effect although its answer is an error (C12, N1)."""
    return result.error_code in _MAYBE_DONE


def is_too_large(result: TopicResult) -> bool:
    """Whether a broker refused the whole request for its size (C15, K5)."""
    return result.error_code == kafka.POLICY_VIOLATION and (result.error_message or "").startswith(_TOO_LARGE)
