"""Outcomes of requests by target, and the search for the target that keeps its request from any outcome."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from topicledger.kafka.connection import UNKNOWN_SERVER_ERROR, error_name
from topicledger.model import OURS, Target, TopicResult

THROTTLING_QUOTA_EXCEEDED = 89
_SHRINKS_BY = 100
"""Divisor of the request size while it is unknown whether the cluster answers at all."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A request's answer about one target."""

    result: TopicResult
    attempt: int
    """Attempt number, from 1."""
    requested_at: datetime
    completed_at: datetime
    maybe_done: bool = False
    """Whether an earlier request may have taken effect: of an earlier start, or without an answer or an outcome."""


@dataclass(frozen=True, slots=True)
class NoOutcome:
    """A target whose outcome is still unknown after the allowed number of attempts."""

    last: Answer
    """The last answer about the target; its result is `OURS` if there was none."""
    told: bool
    """Whether the last answer is the broker's."""
    why: str
    """Message that describes the answers received instead of an outcome."""
    by_itself: bool
    """Whether the cluster answers about other targets. If false, the whole cluster may be silent."""


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """The outcomes of one request."""

    results: Mapping[str, TopicResult] = field(default_factory=dict)
    """Known outcomes by resource."""
    maybe_done: Collection[str] = ()
    """Resources without a known outcome whose request may have taken effect."""
    over_quota: bool = False
    """Whether some were answered with THROTTLING_QUOTA_EXCEEDED."""
    too_large: bool = False
    """Whether the whole request was refused for its size."""
    again: Mapping[str, TopicResult] = field(default_factory=dict)
    """Answers that are no outcome, by resource."""
    lost: bool = False
    """Whether no answer arrived."""
    why: str = ""
    """Why the other resources have no outcome."""


@dataclass(kw_only=True)
class Sent:
    """The state of the targets of one `Sender.send`."""

    left: list[Target]
    """Targets without an outcome, in order."""
    attempts: Counter[str] = field(default_factory=Counter)
    maybe_done: set[str] = field(default_factory=set)
    own: set[str] = field(default_factory=set)
    """Resources that had no outcome although others in the same request did: they don't block other resources."""
    silent: list[tuple[Target, NoOutcome]] = field(default_factory=list)
    """Targets that are no longer sent, and whose missing answer may be due to a silent cluster."""

    def answered(
        self, batch: Sequence[Target], outcomes: Outcomes, requested_at: datetime
    ) -> tuple[list[tuple[Target, Answer]], Sequence[Target]]:
        """Record a request's outcomes; return its targets that have one, and its targets that have none."""
        unknown = [target for target in batch if target.resource not in outcomes.results]
        self.left[: len(batch)] = unknown
        answers = [
            (target, self._answer(target, result, requested_at))
            for target in batch
            if (result := outcomes.results.get(target.resource)) is not None
        ]
        self.maybe_done.update(outcomes.maybe_done)
        if answers or outcomes.over_quota:
            over = {name for name, each in outcomes.again.items() if each.error_code == THROTTLING_QUOTA_EXCEEDED}
            self.own.update(target.resource for target in unknown if target.resource not in over)
        return answers, unknown

    def _answer(self, target: Target, result: TopicResult, requested_at: datetime) -> Answer:
        name = target.resource
        maybe_done = target.maybe_sent or name in self.maybe_done
        return Answer(result, self.attempts[name], requested_at, datetime.now(UTC), maybe_done)

    def is_own(self, batch: Sequence[Target]) -> bool:
        """Whether each target of a request has no outcome because of itself."""
        return all(target.resource in self.own for target in batch)

    def give_up(
        self, batch: Sequence[Target], outcomes: Outcomes, requested_at: datetime, *, alive: bool
    ) -> Sequence[tuple[Target, NoOutcome]]:
        """Stop sending the targets of a request; return those that are silent by themselves.

        `alive`: whether the cluster answered about other targets since a request with these had no outcome.
        """
        del self.left[: len(batch)]
        by_themselves: list[tuple[Target, NoOutcome]] = []
        for target in batch:
            told = outcomes.again.get(target.resource)
            last = TopicResult(error_code=OURS) if told is None else told
            # An internal error of the broker is an answer, and so is a response that omits this target.
            answers = not outcomes.lost and (told is None or told.error_code == UNKNOWN_SERVER_ERROR)
            by_itself = answers or alive or (not outcomes.lost and target.resource in self.own)
            name = outcomes.why if told is None else error_name(told.error_code)
            why = ": ".join(each for each in (name, last.error_message) if each)
            why = f"{why} ({self.attempts[target.resource]} attempts)"
            ended = NoOutcome(self._answer(target, last, requested_at), told is not None, why, by_itself)
            (by_themselves if by_itself else self.silent).append((target, ended))
        return by_themselves

    def go_on_elsewhere(self) -> None:
        """Continue with a random target: the neighbours of a silent target are often silent, too."""
        if self.left:
            self.left.insert(0, self.left.pop(random.randrange(len(self.left))))

    def silent_by_itself(self) -> Iterator[tuple[Target, NoOutcome]]:
        """Yield the targets given up on before the cluster answered about another target."""
        found, self.silent = self.silent, []
        yield from ((target, replace(ended, by_itself=True)) for target, ended in found)


@dataclass(kw_only=True)
class Part:
    """The size of the next request, while one target keeps the others from an outcome."""

    attempts: int
    most: int | None = None
    """Largest number of targets; None for no limit."""
    suspect: int = 0
    """A request with this many of the next targets had no outcome, so one of them may be the cause; 0: none is."""
    alive: bool = False
    """Whether the cluster has answered a smaller request since."""
    found: bool = False
    """Whether a target was given up on; the next one is then found with fewer attempts."""

    def gave_up(self) -> None:
        """Note that the first target was given up on; the next one is sent alone."""
        self.found, self.suspect, self.most = True, 0, 1

    def answered(self, count: int) -> None:
        """Note that a request for the first `count` targets had outcomes."""
        self.alive, self.suspect = True, max(0, self.suspect - count)
        self.most = max(1, self.suspect // 2) if self.suspect else None

    def unanswered(self, count: int, fruitless: int) -> None:
        """Note that a request for the first `count` targets had no outcome, the `fruitless`th such request in a row."""
        if not self.suspect:
            self.alive = False
        self.suspect = count
        if self.alive:
            self.most = max(1, count // 2)
        elif fruitless >= self.attempts // 2:
            self.most = max(1, count // _SHRINKS_BY)
