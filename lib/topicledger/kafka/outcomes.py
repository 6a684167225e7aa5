"""What requests came to, target by target, and which target keeps the others of its request from an outcome."""

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
"""By what requests get smaller while it isn't known whether the cluster answers at all."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the answer to a request says of one topic."""

    result: TopicResult
    attempt: int
    """Attempt number, from 1."""
    requested_at: datetime
    completed_at: datetime
    maybe_done: bool = False
    """Whether an earlier request for the topic may have been carried out: its answer was lost, or had no outcome."""


@dataclass(frozen=True, slots=True)
class NoOutcome:
    """A target that was sent a limited number of times, and no answer said its outcome."""

    last: Answer
    """The last answer about it; its result is `OURS` where none came."""
    told: bool
    """Whether the last answer is the broker's."""
    why: str
    """What came in place of an outcome, in words."""
    by_itself: bool
    """Whether the cluster answers, only not about this target. Else the cluster may be what doesn't answer."""


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """What one request came to."""

    results: Mapping[str, TopicResult] = field(default_factory=dict)
    """By resource, those whose outcome is known."""
    maybe_done: Collection[str] = ()
    """Resources without a known outcome whose request may have been carried out."""
    over_quota: bool = False
    """Some were answered with 89."""
    too_large: bool = False
    """It was refused whole, for its size."""
    again: Mapping[str, TopicResult] = field(default_factory=dict)
    """By resource, answers that say no outcome."""
    lost: bool = False
    """No answer came."""
    why: str = ""
    """Why the others have no outcome."""


@dataclass(kw_only=True)
class Sent:
    """How far the targets of one `Sender.send` came."""

    left: list[Target]
    """Those without an outcome, in order."""
    attempts: Counter[str] = field(default_factory=Counter)
    maybe_done: set[str] = field(default_factory=set)
    own: set[str] = field(default_factory=set)
    """Resources without an outcome in a request in which another one had one: they keep no other from theirs."""
    silent: list[tuple[Target, NoOutcome]] = field(default_factory=list)
    """Those that are sent no more, and that the cluster may have left without an answer because it gives none."""

    def answered(
        self, batch: Sequence[Target], outcomes: Outcomes, requested_at: datetime
    ) -> tuple[list[tuple[Target, Answer]], Sequence[Target]]:
        """The targets of a request that have an outcome now, and those that have none."""
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
        return Answer(result, self.attempts[name], requested_at, datetime.now(UTC), name in self.maybe_done)

    def is_own(self, batch: Sequence[Target]) -> bool:
        """Whether each target of a request has no outcome because of itself."""
        return all(target.resource in self.own for target in batch)

    def give_up(
        self, batch: Sequence[Target], outcomes: Outcomes, requested_at: datetime, *, alive: bool
    ) -> Sequence[tuple[Target, NoOutcome]]:
        """Take the targets of a request out of those that are sent; returns those that are silent by themselves.

        `alive`: whether the cluster answered about others since a request with these had no outcome.
        """
        del self.left[: len(batch)]
        by_themselves: list[tuple[Target, NoOutcome]] = []
        for target in batch:
            told = outcomes.again.get(target.resource)
            last = TopicResult(error_code=OURS) if told is None else told
            # An error of the broker's own, or a request that it answers without this target, is an answer.
            answers = not outcomes.lost and (told is None or told.error_code == UNKNOWN_SERVER_ERROR)
            by_itself = answers or alive or (not outcomes.lost and target.resource in self.own)
            name = outcomes.why if told is None else error_name(told.error_code)
            why = ": ".join(each for each in (name, last.error_message) if each)
            why = f"{why} ({self.attempts[target.resource]} attempts)"
            ended = NoOutcome(self._answer(target, last, requested_at), told is not None, why, by_itself)
            (by_themselves if by_itself else self.silent).append((target, ended))
        return by_themselves

    def go_on_elsewhere(self) -> None:
        """Take any target as the next one: the neighbours of a silent one are often silent, too."""
        if self.left:
            self.left.insert(0, self.left.pop(random.randrange(len(self.left))))

    def silent_by_itself(self) -> Iterator[tuple[Target, NoOutcome]]:
        """Those given up on before the cluster answered about another target."""
        found, self.silent = self.silent, []
        yield from ((target, replace(ended, by_itself=True)) for target, ended in found)


@dataclass(kw_only=True)
class Part:
    """How many targets the next request has, while one of them keeps the others from an outcome."""

    attempts: int
    most: int | None = None
    """None: as many as there are."""
    suspect: int = 0
    """One of so many, the first that are left, kept a request from having any outcome; 0: none of them."""
    alive: bool = False
    """Whether the cluster answered a smaller request since."""
    found: bool = False
    """Whether a target was given up on: the next one is found with fewer attempts."""

    def gave_up(self) -> None:
        """The first target was given up on; the next one is sent alone."""
        self.found, self.suspect, self.most = True, 0, 1

    def answered(self, count: int) -> None:
        """A request for the first `count` had outcomes."""
        self.alive, self.suspect = True, max(0, self.suspect - count)
        self.most = max(1, self.suspect // 2) if self.suspect else None

    def unanswered(self, count: int, fruitless: int) -> None:
        """A request for the first `count` had none, and it was the `fruitless`th in a row."""
        if not self.suspect:
            self.alive = False
        self.suspect = count
        if self.alive:
            self.most = max(1, count // 2)
        elif fruitless >= self.attempts // 2:
            self.most = max(1, count // _SHRINKS_BY)
