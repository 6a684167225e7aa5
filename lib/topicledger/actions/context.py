"""The interface of a cluster for actions: send targets, describe topics, and make a row for each target's result.

A request is repeated, within bounds, until each of its topics has an answer with an outcome. A listing never decides,
since it lags (C21).
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from topicledger import kafka
from topicledger.actions.asking import TOO_OLD_TO_LIST, Asking, MovesUnlisted, Unlisted
from topicledger.actions.costs import Cost
from topicledger.errors import ClusterError
from topicledger.kafka import ClusterAdmin, Response, error_name
from topicledger.kafka.connection import UNSUPPORTED_VERSION
from topicledger.kafka.reassignments import Partition, Replicas, TopicState
from topicledger.kafka.sending import (
    Answer,
    ClusterLimits,
    NoOutcome,
    OutcomeUnknown,
    QuotaWait,
    RetryPolicy,
    Sender,
    StaysOpen,
)
from topicledger.model import (
    AUTHORIZATION_FAILED,
    OURS,
    Broker,
    Maker,
    Note,
    Outcome,
    Phase,
    PhaseResult,
    Refusal,
    Target,
    TopicConfigs,
    TopicInfo,
    TopicResult,
    Violation,
)
from topicledger.naming import RefusalName

log = logging.getLogger(__name__)

_T = TypeVar("_T")

NOT_LISTED = "the controller has the topic, but brokers don't list it"
"""Reason why an outcome is unknown: see `leave_open`."""
_TOLD_CONFIGS = (kafka.NONE, kafka.UNKNOWN_TOPIC_OR_PARTITION, *AUTHORIZATION_FAILED)
"""Codes with which brokers tell whether a topic's configs can be read."""
BROKER = "broker"
"""The `policy` of a violation that the broker's own CreateTopicPolicy found (C8)."""


class WrongCluster(ClusterError):
    """Raised if a different cluster answers at the addresses of this one; nothing was sent to it."""


def outcome_of(error_code: int) -> Outcome:
    """Return ok for NONE, refused if the broker's own policy refused it, else failed."""
    if error_code == kafka.NONE:
        return Outcome.OK
    return Outcome.REFUSED if error_code == kafka.POLICY_VIOLATION else Outcome.FAILED


@dataclass
class ClusterContext(ABC):
    """One cluster of a run, as its actions see it."""

    cluster: str
    cluster_id: str
    admin: ClusterAdmin
    limits: ClusterLimits
    """The limits of the cluster's requests, shared by all phases of the run."""
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    stop: threading.Event = field(default_factory=threading.Event)
    """Ends every wait once it is set; actions without a known outcome stay open."""
    sleep: Callable[[float], object] | None = None
    """Function that waits for this many seconds; None: wait for `stop`."""
    clock: Callable[[], float] = time.monotonic
    """Seconds."""
    may_send: Callable[[], None] = lambda: None
    """Called right before each request that changes something; raises a ClusterError if that isn't allowed."""
    waiting: Callable[[QuotaWait | None], None] = lambda _: None
    """Called before each wait for the cluster's pace (C17), and with None when the wait is over."""
    validated: Callable[[Collection[str]], Mapping[str, TopicResult]] = lambda _: {}
    """Returns topic -> the values that validateOnly resolved in this run, without topics that have no such row."""

    created_by: Callable[[Collection[str]], Mapping[str, Maker]] = lambda _: {}
    """Returns topic -> the run that created it, by `audit`, for topics that this tool hasn't deleted since."""

    def __post_init__(self) -> None:
        self._silent: dict[str, NoOutcome] = {}
        """Resource -> the request without an outcome, in the current step of one kind."""
        self._left_open: dict[tuple[str, str], str] = {}
        """Resource and action -> why the outcome can't be known now, in the current step."""
        self._sender = Sender(
            cluster=self.cluster,
            limits=self.limits,
            retry_policy=self.retry_policy,
            stop=self.stop,
            sleep=self.sleep or self.stop.wait,
            clock=self.clock,
            may_send=self.may_send,
            prepare=self.require_planned_cluster,
            waiting=self.waiting,
            records=lambda target: self.cost(target).records(target),
            tokens=lambda target: self.cost(target).tokens(target, self.limits.partitions.get(target.resource)),
        )

        self._asking = Asking(self._sender)

    @abstractmethod
    def cost(self, target: Target) -> Cost:
        """Return the cost of an action, by its kind."""

    def require_planned_cluster(self) -> None:
        """Connect to the controller; raises WrongCluster if a different cluster than planned answers.

        Call it before each request that changes something, and between reading from the cluster and recording what was
        read.
        """
        live_id = self._sender.ask(self.admin.connect_to_controller)
        if live_id != self.cluster_id:
            raise self.wrong_cluster(live_id)

    def wrong_cluster(self, live_id: str) -> WrongCluster:
        """Return the error for brokers that report a different cluster id than planned."""
        return WrongCluster(
            f"cluster {self.cluster}: planned for cluster id {self.cluster_id}, its brokers now say {live_id}: "
            f"nothing more was sent; correct clusters.{self.cluster} and start the run again with its id"
        )

    def expect(self, later: int) -> None:
        """Set the number of topics after the next batch, so that a wait can show how many are left."""
        self._sender.expect(later)

    def send(
        self, targets: Sequence[Target], request: Callable[[Sequence[Target]], Response], *, changes: bool
    ) -> Iterator[tuple[Target, Answer]]:
        """Send targets; yield each with its answer as soon as there is one.

        With `changes`, calls `may_send` right before each request. Raises OutcomeUnknown at the end if a target has no
        outcome.
        """
        silent: dict[tuple[str, str], str] = {}
        for target, answer in self._sender.send(targets, request, changes=changes):
            if isinstance(answer, Answer):
                yield target, answer
            else:
                silent[target.resource, target.action] = answer.why
        if silent:
            raise OutcomeUnknown(str(StaysOpen(self.cluster, silent)))

    def send_each(
        self,
        targets: Sequence[Target],
        request: Callable[[Sequence[Target]], Response],
        *,
        changes: bool,
        silent: dict[str, NoOutcome] | None = None,
    ) -> Iterator[tuple[Target, Answer]]:
        """Send targets as `send` does, for a kind's steps; targets without an outcome aren't yielded.

        `Executor` then finds their outcome. A kind that does so itself passes `silent`, which gets them by resource.
        """
        for target, answer in self._sender.send(targets, request, changes=changes):
            if isinstance(answer, Answer):
                yield target, answer
            else:
                (self._silent if silent is None else silent)[target.resource] = answer

    def leave_open(self, target: Target, why: str) -> None:
        """Note that a target's outcome can't be known now; other targets continue, and the next start asks again."""
        self._left_open[target.resource, target.action] = why

    def is_open(self, target: Target) -> bool:
        """Return whether `leave_open` named the target in this step."""
        return (target.resource, target.action) in self._left_open

    def take_silent(self, targets: Sequence[Target]) -> Sequence[tuple[Target, NoOutcome]]:
        """Return the targets without an outcome that their kind didn't leave open, and forget all of them."""
        silent, self._silent = self._silent, {}
        return [(each, silent[each.resource]) for each in targets if each.resource in silent and not self.is_open(each)]

    def leave_silent_open(self, targets: Sequence[Target]) -> None:
        """Leave open the targets without an outcome."""
        for target, silent in self.take_silent(targets):
            self.leave_open(target, silent.why)

    def require_none_open(self) -> None:
        """End a step; raises StaysOpen if any target was left open in it."""
        left, self._left_open = self._left_open, {}
        if left:
            raise StaysOpen(self.cluster, left)

    def ask(self, ask: Callable[[], _T]) -> _T:
        """Return the answer to a read-only request, repeated until one comes; raises OutcomeUnknown if none does."""
        return self._sender.ask(ask)

    def live_cluster_id(self) -> str:
        """Return the id that the cluster reports; raises OutcomeUnknown without an answer."""
        return self._sender.ask(lambda: self.admin.describe_cluster().cluster_id)

    def describe(self, topics: Sequence[str]) -> dict[str, TopicInfo]:
        """Describe topics by name, without those that brokers don't list; raises OutcomeUnknown without an answer."""
        return self._asking.describe(
            topics,
            lambda asked: {info.topic: info for info in self.admin.describe_topics(asked)},
            lambda info: info.unknown is None,
        )

    def describe_configs(
        self, topics: Sequence[str], names: Mapping[str, Collection[str]] | None = None
    ) -> dict[str, TopicConfigs]:
        """Describe topics' configs, or the error if they can't be read; raises OutcomeUnknown without an answer.

        `names`: topic -> configs to describe; by default all.
        """

        def describe(asked: Sequence[str]) -> dict[str, TopicConfigs]:
            of_names = (asked,) if names is None else (asked, names)
            return {each.topic: each for each in self.admin.topic_configs(*of_names)}

        return self._asking.describe(topics, describe, lambda found: found.error_code in _TOLD_CONFIGS)

    def brokers(self) -> Sequence[Broker]:
        """Return the brokers that are up; raises OutcomeUnknown without an answer."""
        return self._sender.ask(lambda: self.admin.describe_cluster().brokers)

    def reassigned_now(self) -> frozenset[str] | None:
        """Return the topics whose replicas are being moved; None if that is unknown (`unlisted`)."""
        return self._asking.reassignments(self.admin.topics_reassigned_now)

    def reassignments(self) -> dict[Partition, Replicas] | None:
        """Return partition -> its new replicas, for partitions being moved; None if that is unknown (`unlisted`)."""
        return self._asking.reassignments(self.admin.list_reassignments)

    def require_reassignments(self) -> dict[Partition, Replicas]:
        """Return what `reassignments` returns; raises MovesUnlisted if that is unknown."""
        listed, why = self.reassignments(), self.unlisted
        if listed is None:
            words = f"{why.why}, so it is unknown which replicas are being moved: {why.advice}"
            raise MovesUnlisted(f"cluster {self.cluster}: {words}")
        return listed

    @property
    def unlisted(self) -> Unlisted:
        """Why it is unknown which replicas are being moved."""
        return self._asking.unlisted if self.admin.reassigns else TOO_OLD_TO_LIST

    def may_move(self) -> dict[Partition, Replicas]:
        """Return the targets of moves that may begin unseen, because their request got no answer.

        A broker drops a forwarded request after its `request.timeout.ms` (30 s), and the controller after the request's
        own timeout. So a request that got lost is carried out within `visibility` (RetryPolicy) of its end, or never.
        """
        since = self.clock() - self.retry_policy.visibility
        return {key: each.after for key, each in self.limits.moving.unanswered.items() if each.at > since}

    def topic_states(self, topics: Sequence[str]) -> dict[str, TopicState]:
        """Describe topics' replicas, in-sync replicas and leaders, without topics that brokers don't list."""
        return self._asking.describe(topics, self.admin.topic_states, lambda state: state.unknown is None)

    def partition_sizes(self, topics: Mapping[str, Collection[int]]) -> dict[Partition, int]:
        """Return partition -> bytes of its largest replica; empty if this principal may not describe them."""
        return self._sender.ask(lambda: self.admin.partition_sizes(topics))

    def replica_sizes(self, topics: Mapping[str, Collection[int]]) -> dict[tuple[str, int, int], int]:
        """Return (topic, partition, broker) -> bytes; empty if this principal may not describe them."""
        return self._sender.ask(lambda: self.admin.replica_sizes(topics))

    def describe_when_listed(self, topics: Sequence[str]) -> dict[str, TopicInfo]:
        """Describe existing topics through the controller; omit topics that brokers never list (C21).

        The outcome of unlisted ones is unknown: see `leave_open` and `NOT_LISTED`.
        """
        return self._when_listed(topics, lambda: self.describe(topics))

    def configs_when_listed(
        self, topics: Sequence[str], names: Mapping[str, Collection[str]] | None = None
    ) -> dict[str, TopicConfigs]:
        """Describe configs of listed topics, once the asked broker lists the topics, too.

        Leaves out topics that stay unlisted. `names`: topic -> configs to describe; by default all.
        """

        def readable() -> dict[str, TopicConfigs]:
            found = self.describe_configs(topics, names)
            return {topic: each for topic, each in found.items() if each.error_code != kafka.UNKNOWN_TOPIC_OR_PARTITION}

        return self._when_listed(topics, readable)

    def describe_when(self, topics: Sequence[str], is_so: Callable[[TopicInfo], bool]) -> dict[str, TopicInfo]:
        """Describe topics until `is_so` holds for each listed and permitted one, or it takes too long."""

        def not_so(live: Mapping[str, TopicInfo]) -> Sequence[str]:
            return [topic for topic, info in live.items() if info.permitted and not is_so(info)]

        return self._describe_until(lambda: self.describe(topics), not_so)

    def _when_listed(self, topics: Sequence[str], describe: Callable[[], dict[str, _T]]) -> dict[str, _T]:
        return self._describe_until(describe, lambda live: [topic for topic in topics if topic not in live])

    def _describe_until(
        self, describe: Callable[[], dict[str, _T]], waiting: Callable[[Mapping[str, _T]], Sequence[str]]
    ) -> dict[str, _T]:
        """Describe until `waiting` returns nothing, or it takes too long (C21); return the last result."""
        live: dict[str, _T] = {}
        for _ in self.looks(self.retry_policy.visibility):
            live = describe()
            if not waiting(live):
                break
        return live

    def looks(self, seconds: float) -> Iterator[None]:
        """Yield at once, and again after growing waits, until `seconds` are over, since changes become visible late.

        Raises OutcomeUnknown if the run is asked to stop.
        """
        deadline, backoff = self.clock() + seconds, self.retry_policy.first_backoff
        while True:
            yield
            if self.clock() >= deadline:
                return
            self.wait(backoff)
            backoff = min(backoff * 2, self.retry_policy.longest_backoff)

    def wait(self, seconds: float) -> None:
        """Wait; raises OutcomeUnknown if asked to stop, so that actions without a known outcome stay open."""
        self._sender.wait(seconds)

    def warn_once(self, what: str, message: str) -> None:
        """Log a warning about the cluster once per run."""
        if what not in self.limits.warned:
            self.limits.warned.add(what)
            log.warning("cluster %s: %s", self.cluster, message)

    def result(
        self,
        target: Target,
        phase: Phase,
        outcome: Outcome,
        answer: Answer,
        *,
        note: Note | RefusalName | None = None,
        message: str | None = None,
    ) -> PhaseResult:
        """Make the result of a target in a phase. `note`: the error's name if the error is ours."""
        result = answer.result
        if result.error_code == UNSUPPORTED_VERSION:
            outcome, note = Outcome.REFUSED, Refusal.BROKER_TOO_OLD
        name = error_name(result.error_code) if result.error_code != kafka.NONE else None
        # Warnings of policies are in the first row of the action.
        violations = target.violations if phase is Phase.VALIDATE else ()
        if result.error_code == kafka.POLICY_VIOLATION:
            violations = (*violations, Violation(policy=BROKER, message=result.error_message or ""))
        return PhaseResult(
            cluster=self.cluster,
            cluster_id=self.cluster_id,
            target=target,
            phase=phase,
            outcome=outcome,
            result=result,
            error=note.value if note else name,
            error_message=message or result.error_message,
            violations=violations,
            attempt=answer.attempt,
            requested_at=answer.requested_at,
            completed_at=answer.completed_at,
        )

    def without_outcome(self, target: Target, phase: Phase, silent: NoOutcome, conclusion: str) -> PhaseResult:
        """Make the result of a target without an outcome that has failed. `conclusion`: what that means, in words."""
        note = None if silent.told else Refusal.NO_ANSWER
        message = f"{silent.why}: {conclusion}"
        return self.result(target, phase, Outcome.FAILED, silent.last, note=note, message=message)

    def skipped(self, target: Target, phase: Phase, message: str) -> PhaseResult:
        """Make the result of a target that needs nothing any more."""
        now = datetime.now(UTC)
        return self.result(target, phase, Outcome.SKIPPED, Answer(TopicResult(), 1, now, now), message=message)

    def refused(self, target: Target, phase: Phase, refusal: RefusalName, message: str) -> PhaseResult:
        """Make the result of a target that we refuse, not the broker."""
        now = datetime.now(UTC)
        answer = Answer(TopicResult(error_code=OURS), 1, now, now)
        return self.result(target, phase, Outcome.REFUSED, answer, note=refusal, message=message)
