"""Read-only requests about topics, repeated within the retry policy until brokers tell something about each topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from topicledger.kafka.connection import ErrorAnswered
from topicledger.kafka.sending import OutcomeUnknown, Sender
from topicledger.model import Refusal

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Unlisted:
    """Why reassignments can't be listed."""

    refusal: Refusal
    why: str
    advice: str


class MovesUnlisted(OutcomeUnknown):
    """It is unknown which replicas are being moved; the cluster may answer about everything else."""


_NOT_PERMITTED = Unlisted(
    refusal=Refusal.NOT_PERMITTED,
    why="this principal may not list reassignments",
    advice="grant it Describe on the cluster",
)
TOO_OLD_TO_LIST = Unlisted(
    refusal=Refusal.BROKER_TOO_OLD,
    why="the brokers are older than Kafka 2.4 and can't list reassignments",
    advice="upgrade them",
)


class Asking:
    """Asks a cluster about topics; remembers those about which it only answers errors."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self.unlisted = _NOT_PERMITTED
        """Why `reassignments` returned None."""
        self._untold: set[str] = set()
        """Topics about which brokers answered only errors, although they were asked several times."""

    def reassignments(self, ask: Callable[[], _T | None]) -> _T | None:
        """Return the answer to a request for reassignments; None if they can't be listed (`unlisted`).

        Raises OutcomeUnknown without an answer.
        """
        answered: list[ErrorAnswered] = []

        def once() -> _T | None:
            answered.clear()
            try:
                return ask()
            except ErrorAnswered as error:
                answered.append(error)
                if self.unlisted.refusal is Refusal.NO_ANSWER:
                    return None
                raise

        try:
            return self._sender.ask(once)
        except OutcomeUnknown:
            if not answered or self._sender.stop.is_set():
                raise
            why = str(answered[0]).partition(": ")[2]
            self.unlisted = Unlisted(refusal=Refusal.NO_ANSWER, why=why, advice="look for it in their logs")
            return None

    def describe(
        self, topics: Sequence[str], describe: Callable[[Sequence[str]], dict[str, _T]], is_told: Callable[[_T], bool]
    ) -> dict[str, _T]:
        """Describe topics by name; retry topics whose answer is an inconclusive error.

        Topics without a better answer are asked only once from then on, so that they don't delay the others. Raises
        OutcomeUnknown without an answer.
        """
        found: dict[str, _T] = {}
        left, policy = list(topics), self._sender.retry_policy
        backoff = policy.first_backoff
        for attempt in range(1, policy.attempts + 1):
            if not left:
                break
            answers = self._sender.ask(partial(describe, left))
            found = {**{topic: each for topic, each in found.items() if topic not in left}, **answers}
            left = [
                topic
                for topic in left
                if topic in answers and not is_told(answers[topic]) and topic not in self._untold
            ]
            if left and attempt < policy.attempts:
                self._sender.wait(backoff)
                backoff = min(backoff * 2, policy.longest_backoff)
        self._untold.update(left)
        return found
