"""Phases validate, apply and verify for one cluster: the driver sends batches and classifies what came back.

Nothing here knows Spark or Delta: targets come in, `PhaseResult`s go out. A request is sent again until each of its
topics has an answer with its outcome, within bounds; a listing never decides, since it lags (C21).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from topicledger import kafka
from topicledger.errors import ClusterError
from topicledger.kafka import ClusterAdmin, Response, error_name
from topicledger.kafka.config_values import same_value
from topicledger.kafka.sending import Answer, ClusterLimits, OutcomeUnknown, QuotaWait, RetryPolicy, Sender, may_be_done
from topicledger.model import (
    AUTHORIZATION_FAILED,
    OURS,
    SET_ON_TOPIC,
    Action,
    ConfigEntry,
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

log = logging.getLogger(__name__)

_T = TypeVar("_T")

BROKER = "broker"
"""The `policy` of a violation that the broker's own CreateTopicPolicy found (C8)."""


class WrongCluster(ClusterError):
    """Another cluster answers at the addresses of this one: nothing was sent to it."""


@dataclass
class Executor:
    """One cluster's side of a run: sends planned targets, batch by batch, and returns how each ended."""

    cluster: str
    cluster_id: str
    admin: ClusterAdmin
    limits: ClusterLimits
    """The limits of the cluster's requests, shared by all phases of the run."""
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    stop: threading.Event = field(default_factory=threading.Event)
    """When it is set, every wait ends, and what has no known outcome stays open."""
    sleep: Callable[[float], object] | None = None
    """How to wait; None waits for `stop`."""
    clock: Callable[[], float] = time.monotonic
    """Seconds."""
    may_send: Callable[[], None] = lambda: None
    """Called right before each request that changes something; raises a ClusterError where that isn't allowed."""
    waiting: Callable[[QuotaWait | None], None] = lambda _: None
    """Called before each wait for the cluster's quota (C17), and with None when nothing is left to wait for."""
    validated: Callable[[Collection[str]], Mapping[str, TopicResult]] = lambda _: {}
    """Returns what validateOnly resolved of topics in this run, by topic; topics without such a row are left out."""

    def __post_init__(self) -> None:
        self._sender = Sender(
            cluster=self.cluster,
            limits=self.limits,
            retry_policy=self.retry_policy,
            stop=self.stop,
            sleep=self.sleep or self.stop.wait,
            clock=self.clock,
            may_send=self.may_send,
            prepare=self._prepare,
            waiting=self.waiting,
        )

    def _prepare(self) -> None:
        """Connect to the controller; raises WrongCluster where another cluster than planned answers.

        Called before each request that changes something, and between reading from the cluster and recording what was
        read.
        """
        live_id = self._sender.ask(self.admin.connect_to_controller)
        if live_id != self.cluster_id:
            raise self.wrong_cluster(live_id)

    def wrong_cluster(self, live_id: str) -> WrongCluster:
        """The error where brokers say another cluster id than planned."""
        return WrongCluster(
            f"cluster {self.cluster}: planned for cluster id {self.cluster_id}, its brokers now say {live_id}: "
            f"nothing more was sent; correct clusters.{self.cluster} and start the run again with its id"
        )

    def expect(self, later: int) -> None:
        """Say how many topics will come after the next batch: a wait for the quota shows how many are left."""
        self._sender.later = later

    def validate(
        self, targets: Sequence[Target], created_by_us: Callable[[Collection[str]], Collection[str]]
    ) -> Iterator[PhaseResult]:
        """One batch before anything is sent: creates by validateOnly (C5), deletes by a fresh describe (D6).

        `created_by_us` returns those of the topics that this tool created last, and didn't delete since, by the ledger:
        a create of one that exists already is unchanged, whatever the listing said (C21, M3).
        """
        creates = [target for target in targets if target.action is Action.CREATE]
        deletes = [target for target in targets if target.action is Action.DELETE]
        sendable: list[Target] = []
        for target in creates:
            refusal = self._needs_counts(target)
            if refusal is None:
                sendable.append(target)
            else:
                yield refusal
        validate = partial(self.admin.create_topics, validate_only=True)
        existing: list[tuple[Target, Answer]] = []
        for target, answer in self._sender.send(sendable, validate, changes=False):
            if answer.result.error_code == kafka.TOPIC_ALREADY_EXISTS:
                existing.append((target, answer))
            else:
                yield self._validated(target, answer, ours=False)
        if existing:
            ours = frozenset(created_by_us([target.topic for target, _ in existing]))
            for target, answer in existing:
                yield self._validated(target, answer, ours=target.topic in ours)
        yield from self.check_deletes(deletes, Phase.VALIDATE)

    def _needs_counts(self, target: Target) -> PhaseResult | None:
        counted = target.num_partitions is not None and target.replication_factor is not None
        if counted or target.assignments or self.admin.has_default_counts:
            return None
        return self.refused(
            target,
            Phase.VALIDATE,
            Refusal.COUNTS_REQUIRED,
            "this broker is older than Kafka 2.4 and has no defaults: give num_partitions and replication_factor",
        )

    def _validated(self, target: Target, answer: Answer, *, ours: bool) -> PhaseResult:
        result = answer.result
        if result.error_code == kafka.NONE and not self.admin.returns_configs:
            self._warn_once("no configs", "the broker is too old to return what it created a topic with (C11)")
        if result.error_code == kafka.TOPIC_ALREADY_EXISTS and ours:
            return self._ended(
                target,
                Phase.VALIDATE,
                Outcome.SKIPPED,
                answer,
                message="created by an earlier run and not listed yet, or not visible to this principal: unchanged",
            )
        return self._ended(target, Phase.VALIDATE, _outcome(result.error_code), answer)

    def check_deletes(self, targets: Sequence[Target], phase: Phase) -> Iterator[PhaseResult]:
        """D6, our own validate for deletes: each still exists, with the planned id, and may be deleted."""
        if not targets:
            return
        requested_at = datetime.now(UTC)
        live = self.describe([target.topic for target in targets])
        for target in targets:
            info = live.get(target.topic)
            if info is not None and info.permitted:
                self.limits.partitions[target.topic] = info.num_partitions
            refusal = delete_refusal(target, info)
            if refusal is None:
                answer = Answer(TopicResult(), 1, requested_at, datetime.now(UTC))
                yield self._ended(target, phase, Outcome.OK, answer)
            elif isinstance(refusal[0], int):
                answer = Answer(
                    TopicResult(error_code=refusal[0], error_message=refusal[1]), 1, requested_at, datetime.now(UTC)
                )
                yield self._ended(target, phase, Outcome.REFUSED, answer)
            else:
                yield self.refused(target, phase, refusal[0], refusal[1])

    def changed_since_plan(self, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        """Check targets of a saved plan on fresh metadata; yields those that must not be sent any more.

        Targets that an earlier start may have sent, and that `learn` found not done, pass: creates, and deletes whose
        topic isn't listed.
        """
        creates = [target for target in targets if target.action is Action.CREATE and not target.maybe_sent]
        live = self.describe([target.topic for target in creates])
        for target in creates:
            info = live.get(target.topic)
            if info is not None and info.permitted:
                yield self.refused(
                    target,
                    Phase.APPLY,
                    Refusal.CHANGED_SINCE_PLAN,
                    f"the topic appeared since the plan, with {info.num_partitions} partitions and replication factor "
                    f"{info.replication_factor}; plan again",
                )
        deletes = [target for target in targets if target.action is Action.DELETE]
        maybe_sent = {target.topic for target in deletes if target.maybe_sent}
        for ended in self.check_deletes([each for each in deletes if each.topic_id is not None], Phase.APPLY):
            # Not listed is no proof that it is gone, or that it wasn't ours: the delete itself shows it, by id (C21).
            unlisted = ended.error == Refusal.CHANGED_SINCE_PLAN and ended.topic in maybe_sent
            if ended.outcome is not Outcome.OK and not unlisted:
                yield ended
        for target in deletes:
            if target.topic_id is None:
                yield self.refused(
                    target,
                    Phase.APPLY,
                    Refusal.CHANGED_SINCE_PLAN,
                    "this cluster gives topics no ids (brokers before 2.8), so it isn't known whether this is still "
                    "the planned topic: plan and apply in one run, with `provision`",
                )

    def learn(self, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        """Find out what became of targets that an earlier start may have sent (C18, D3); changes nothing.

        Yields those that were carried out, or can't be any more. The others were not, as the controller says: it is
        asked by validateOnly, since a listing lags (C21). It doesn't answer a principal without the right to create:
        then the same delete by id, sent again, shows whether the first was carried out.
        """
        validate = partial(self.admin.create_topics, validate_only=True)
        creates = [target for target in targets if target.action is Action.CREATE]
        answers = list(self._sender.send(creates, validate, changes=False))
        deletes = [target for target in targets if target.action is Action.DELETE]
        live = self.describe([target.topic for target in deletes])
        names_taken = self._names_taken(deletes)
        # Another cluster's answers mean nothing, even where they yield nothing.
        self._prepare()
        yield from self._recovered_creates(
            [pair for pair in answers if pair[1].result.error_code == kafka.TOPIC_ALREADY_EXISTS]
        )
        for target, answer, taken in names_taken:
            info = live.get(target.topic)
            if taken is False:
                done = Answer(TopicResult(), answer.attempt, answer.requested_at, datetime.now(UTC))
                yield self._ended(
                    target,
                    Phase.APPLY,
                    Outcome.OK,
                    done,
                    note=Note.RECOVERED,
                    message="an earlier request deleted it",
                )
            elif info is not None and info.permitted and info.topic_id != target.topic_id:
                yield self._recreated(target, answer, info)

    def _names_taken(self, targets: Sequence[Target]) -> list[tuple[Target, Answer, bool | None]]:
        """Whether the controller has a topic of each target's name, by validateOnly; None where it isn't known."""
        # A create that asks for nothing special: whether the name is taken is all that matters of its answer.
        probes = [replace(target, num_partitions=1, replication_factor=1) for target in targets]
        validate = partial(self.admin.create_topics, validate_only=True)
        found = []
        for target, answer in self._sender.send(probes, validate, changes=False):
            code = answer.result.error_code
            # The broker's own policy is asked about names that are free, only.
            free = code in (kafka.NONE, kafka.POLICY_VIOLATION)
            found.append((target, answer, False if free else code == kafka.TOPIC_ALREADY_EXISTS or None))
        return found

    def apply(self, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        """Send one batch for real; every outcome is known when it is yielded, each as soon as it is."""
        creates = [target for target in targets if target.action is Action.CREATE]
        deletes = [target for target in targets if target.action is Action.DELETE]
        existing: list[tuple[Target, Answer]] = []
        create = partial(self.admin.create_topics, validate_only=False)
        for target, answer in self._sender.send(creates, create, changes=True):
            exists = answer.result.error_code == kafka.TOPIC_ALREADY_EXISTS
            if exists and (target.maybe_sent or answer.maybe_done):
                existing.append((target, answer))
            else:
                # Where nothing of ours can exist, it is a stranger's.
                message = "the topic exists: another client created it since the plan; plan again" if exists else None
                outcome = _outcome(answer.result.error_code)
                yield self._ended(target, Phase.APPLY, outcome, answer, message=message)
        yield from self._recovered_creates(existing)

        by_id: list[Target] = []
        by_name: list[Target] = []
        for target in deletes:
            (by_id if target.topic_id is not None and self.admin.deletes_by_id else by_name).append(target)
        yield from self._delete(by_id, self.admin.delete_topics)
        yield from self._delete(by_name, _DeleteByName(self))

    def _delete(
        self, targets: Sequence[Target], request: Callable[[Sequence[Target]], Response]
    ) -> Iterator[PhaseResult]:
        gone: list[tuple[Target, Answer]] = []
        for target, answer in self._sender.send(targets, request, changes=True):
            code = answer.result.error_code
            if code in (kafka.UNKNOWN_TOPIC_ID, kafka.UNKNOWN_TOPIC_OR_PARTITION):
                gone.append((target, answer))
                continue
            if code == kafka.TOPIC_DELETION_DISABLED:
                self._warn_once(
                    "no deletes", "delete.topic.enable is false on the brokers: no topic can be deleted (D8)"
                )
            yield self._ended(target, Phase.APPLY, _outcome(code), answer)
        yield from self._recovered_deletes(gone)

    def _recovered_creates(self, existing: Sequence[tuple[Target, Answer]]) -> Iterator[PhaseResult]:
        """A topic that exists after our own request may have been carried out: ok, RECOVERED, where it matches (C18).

        It is compared with the plan and with what validateOnly resolved of it. What can't be described is failed.
        """
        if not existing:
            return
        names = [target.topic for target, _ in existing]
        live = self._describe_when_listed(names)
        configs = self._configs_when_listed([name for name, info in live.items() if info.permitted])
        self._prepare()
        validated = self.validated(names)
        for target, answer in existing:
            info, found = live[target.topic], configs.get(target.topic)
            difference = (
                None if found is None else difference_from_validated(target, validated.get(target.topic), info, found)
            )
            if not info.permitted or found is None:
                right = "DescribeConfigs" if info.permitted else "Describe"
                message = (
                    "the topic exists, and this principal may not describe it, so it isn't known whether an earlier "
                    f"request of this run created it: grant it {right} on the topic, and plan again"
                )
            elif difference is not None:
                message = f"the topic exists and is not as planned: {difference}"
            else:
                message = "an earlier request of this run created it; its partitions and configs were described"
            ours = found is not None and difference is None
            result = TopicResult(
                error_code=kafka.NONE if ours else answer.result.error_code,
                error_message=answer.result.error_message,
                topic_id=info.topic_id if info.permitted else None,
                num_partitions=info.num_partitions if info.permitted else None,
                replication_factor=info.replication_factor if info.permitted else None,
                configs=found,
                topic_config_error_code=kafka.NONE if found is not None else kafka.TOPIC_AUTHORIZATION_FAILED,
            )
            again = Answer(result, answer.attempt, answer.requested_at, datetime.now(UTC))
            if ours:
                yield self._ended(target, Phase.APPLY, Outcome.OK, again, note=Note.RECOVERED, message=message)
            else:
                yield self._ended(target, Phase.APPLY, Outcome.FAILED, again, message=message)

    def _recovered_deletes(self, gone: Sequence[tuple[Target, Answer]]) -> Iterator[PhaseResult]:
        """A planned delete whose id is gone: ok if the name is gone too, else the topic was recreated (D3, D7)."""
        if not gone:
            return
        live = self.describe([target.topic for target, _ in gone])
        # By name it may be our own look that found nothing, and a listing is no proof: the controller is asked (C21).
        not_found = kafka.UNKNOWN_TOPIC_OR_PARTITION
        by_name = [
            target
            for target, answer in gone
            if target.topic_id is None and (answer.result.error_code == not_found or target.topic not in live)
        ]
        late = {target.topic for target, _, taken in self._names_taken(by_name) if taken is not False}
        self._prepare()
        for target, answer in gone:
            if target.topic in late:
                continue
            info = live.get(target.topic)
            # By name only our own comparison gives this code.
            compared = target.topic_id is None and answer.result.error_code == kafka.UNKNOWN_TOPIC_ID
            if info is None or (info.permitted and info.topic_id == target.topic_id and not compared):
                done = Answer(TopicResult(), answer.attempt, answer.requested_at, datetime.now(UTC))
                ours = target.maybe_sent or answer.maybe_done
                message = (
                    "an earlier request deleted it" if ours else "another client deleted it since it was validated"
                )
                note = Note.RECOVERED if ours else None
                yield self._ended(target, Phase.APPLY, Outcome.OK, done, note=note, message=message)
            elif info.permitted:
                yield self._recreated(target, answer, info)
            else:
                yield self._ended(target, Phase.APPLY, Outcome.FAILED, answer)
        if late:
            raise self._not_listed(sorted(late))

    def _not_listed(self, topics: Sequence[str]) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"cluster {self.cluster}: {len(topics)} topics are not listed, and the controller doesn't say that they "
            f"are gone, {topics[0]} among them; start the run again with its id"
        )

    def _recreated(self, target: Target, answer: Answer, info: TopicInfo) -> PhaseResult:
        """The topic that was planned to go is gone, and another has its name: it isn't touched (D7)."""
        code = kafka.UNKNOWN_TOPIC_OR_PARTITION if target.topic_id is None else kafka.UNKNOWN_TOPIC_ID
        gone = Answer(TopicResult(error_code=code), answer.attempt, answer.requested_at, datetime.now(UTC))
        message = f"recreated since the plan, {_which(info)}: not touched; plan again"
        return self._ended(target, Phase.APPLY, Outcome.FAILED, gone, note=Refusal.RECREATED, message=message)

    def verify(self, applied: Sequence[tuple[Target, TopicResult]]) -> Iterator[PhaseResult]:
        """Describe what was applied, once: ok, failed, pending (acknowledged, not visible yet), or skipped (29)."""
        if not applied:
            return
        requested_at = datetime.now(UTC)
        live = self.describe([target.topic for target, _ in applied])
        for target, result in applied:
            outcome, error_code, note, message = verdict(target, result, live.get(target.topic))
            info = live.get(target.topic)
            seen = info if info is not None and info.permitted and target.action is Action.CREATE else None
            answer = Answer(
                TopicResult(
                    error_code=error_code,
                    error_message=message,
                    topic_id=seen.topic_id if seen else None,
                    num_partitions=seen.num_partitions if seen else None,
                    replication_factor=seen.replication_factor if seen else None,
                ),
                1,
                requested_at,
                datetime.now(UTC),
            )
            yield self._ended(target, Phase.VERIFY, outcome, answer, note=note)

    def wait(self, seconds: float) -> None:
        """Wait, unless asked to stop: then what has no known outcome stays open. Raises OutcomeUnknown."""
        self._sender.wait(seconds)

    def live_cluster_id(self) -> str:
        """The id that the cluster says it has; raises OutcomeUnknown where it gives no answer."""
        return self._sender.ask(lambda: self.admin.describe_cluster().cluster_id)

    def describe(self, topics: Sequence[str]) -> dict[str, TopicInfo]:
        """By topic, those that brokers list; raises OutcomeUnknown where none answers."""
        if not topics:
            return {}
        return self._sender.ask(lambda: {info.topic: info for info in self.admin.describe_topics(topics)})

    def describe_configs(self, topics: Sequence[str]) -> dict[str, TopicConfigs]:
        """By topic, its configs or the error of those that can't be read; raises OutcomeUnknown without an answer."""
        if not topics:
            return {}
        return self._sender.ask(lambda: {each.topic: each for each in self.admin.topic_configs(topics)})

    def _describe_when_listed(self, topics: Sequence[str]) -> dict[str, TopicInfo]:
        """Topics that the controller says exist, as soon as brokers list them (C21)."""
        return self._when_listed(topics, lambda: self.describe(topics))

    def _configs_when_listed(self, topics: Sequence[str]) -> dict[str, tuple[ConfigEntry, ...]]:
        """Configs of listed topics, as soon as the broker asked lists them too; without those that may not be read."""

        def readable() -> dict[str, TopicConfigs]:
            found = self.describe_configs(topics)
            return {
                topic: each for topic, each in found.items() if each.error_code in (kafka.NONE, *AUTHORIZATION_FAILED)
            }

        found = self._when_listed(topics, readable)
        return {topic: each.configs for topic, each in found.items() if each.configs is not None}

    def _when_listed(self, topics: Sequence[str], describe: Callable[[], dict[str, _T]]) -> dict[str, _T]:
        deadline = self.clock() + self.retry_policy.visibility
        backoff = self.retry_policy.first_backoff
        while True:
            live = describe()
            waiting = [topic for topic in topics if topic not in live]
            if not waiting:
                return live
            if self.clock() >= deadline:
                raise self._not_listed(waiting)
            self.wait(backoff)
            backoff = min(backoff * 2, self.retry_policy.longest_backoff)

    def _warn_once(self, what: str, message: str) -> None:
        if what not in self.limits.warned:
            self.limits.warned.add(what)
            log.warning("cluster %s: %s", self.cluster, message)

    def _ended(
        self,
        target: Target,
        phase: Phase,
        outcome: Outcome,
        answer: Answer,
        *,
        note: Note | Refusal | None = None,
        message: str | None = None,
    ) -> PhaseResult:
        result = answer.result
        name = error_name(result.error_code) if result.error_code != kafka.NONE else None
        # What policies warned of stands in the first row that ends for the topic.
        violations = target.violations if phase is Phase.VALIDATE else ()
        if result.error_code == kafka.POLICY_VIOLATION:
            violations = (*violations, Violation(policy=BROKER, message=result.error_message or ""))
        return PhaseResult(
            cluster=self.cluster,
            cluster_id=self.cluster_id,
            topic=target.topic,
            action=target.action,
            phase=phase,
            outcome=outcome,
            error_code=result.error_code,
            error=note.value if note else name,
            error_message=message or result.error_message,
            topic_id=target.topic_id if target.action is Action.DELETE else result.topic_id,
            num_partitions=result.num_partitions,
            replication_factor=result.replication_factor,
            configs=result.configs,
            topic_config_error_code=result.topic_config_error_code,
            violations=violations,
            batch=target.batch,
            attempt=answer.attempt,
            requested_at=answer.requested_at,
            completed_at=answer.completed_at,
        )

    def refused(self, target: Target, phase: Phase, refusal: Refusal, message: str) -> PhaseResult:
        """The row of a target that is refused by us, not by the broker."""
        now = datetime.now(UTC)
        answer = Answer(TopicResult(error_code=OURS), 1, now, now)
        return self._ended(target, phase, Outcome.REFUSED, answer, note=refusal, message=message)


class _DeleteByName:
    """DeleteTopics by name, of what was compared with the plan right before (D7).

    A repeated delete by name could hit a topic that somebody created after the first request. So where a topic has no
    id and the answer was lost, the request isn't repeated.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._sent: set[str] = set()

    def __call__(self, targets: Sequence[Target]) -> Response:
        executor = self._executor
        live = executor.describe([target.topic for target in targets])
        without_id = [target.topic for target in targets if target.topic_id is None and target.topic in live]
        configs = executor.describe_configs(without_id)
        results: dict[str, TopicResult] = {}
        same: list[Target] = []
        for target in targets:
            info, found = live.get(target.topic), configs.get(target.topic)
            if info is None:
                results[target.topic] = TopicResult(error_code=kafka.UNKNOWN_TOPIC_OR_PARTITION)
            elif target.topic_id is not None:
                if info.topic_id == target.topic_id:
                    same.append(target)
                else:
                    results[target.topic] = TopicResult(error_code=kafka.UNKNOWN_TOPIC_ID)
            elif target.topic in self._sent:
                raise OutcomeUnknown(
                    f"cluster {executor.cluster}: the answer about deleting topic {target.topic} was lost, and the "
                    "cluster gives topics no ids: it isn't deleted again by name; start the run again with its id"
                )
            elif shape_differs(target, info, (found.configs or ()) if found is not None else ()) is None:
                same.append(target)
            else:
                results[target.topic] = TopicResult(error_code=kafka.UNKNOWN_TOPIC_ID)
        if not same:
            return Response(results=results, throttle_time_ms=0)
        # Comparing took its time: another cluster may answer by now, or somebody else hold the lease.
        executor._prepare()
        executor.may_send()
        self._sent.update(target.topic for target in same)
        response = executor.admin.delete_topics(same)
        answered = {topic for topic, each in response.results.items() if not may_be_done(each)}
        self._sent -= answered
        return Response(results=results | dict(response.results), throttle_time_ms=response.throttle_time_ms)


def _outcome(error_code: int) -> Outcome:
    if error_code == kafka.NONE:
        return Outcome.OK
    return Outcome.REFUSED if error_code == kafka.POLICY_VIOLATION else Outcome.FAILED


def shape(info: TopicInfo, configs: Sequence[ConfigEntry] | None = None) -> Mapping[str, str]:
    """What a topic is like, as `plans.before` has it: counts, assignments, and configs that are set on the topic."""
    assignments = (f"{partition}:{','.join(map(str, ids))}" for partition, ids in sorted(info.assignments.items()))
    set_on_topic = {
        each.name: str(each.value)
        for each in configs or ()
        if each.config_source == SET_ON_TOPIC and not each.is_sensitive
    }
    return {
        "num_partitions": str(info.num_partitions),
        "replication_factor": str(info.replication_factor),
        "assignments": ";".join(assignments),
        **set_on_topic,
    }


def shape_differs(target: Target, info: TopicInfo, configs: Sequence[ConfigEntry] | None = None) -> str | None:
    """How a topic without an id differs from the plan, or None; with `configs` None, configs aren't compared."""
    live, counted = shape(info, configs), ("num_partitions", "replication_factor", "assignments")
    names = {*live, *target.before} if configs is not None else counted
    differences = [
        f"{name} is {live.get(name, 'not set')}, was {target.before.get(name, 'not set')}"
        for name in sorted(names)
        if live.get(name) != target.before.get(name)
    ]
    return "; ".join(differences) or None


def delete_refusal(target: Target, info: TopicInfo | None) -> tuple[int | Refusal, str] | None:
    """Why a planned delete must not be sent, or None (D4, D6): Kafka's code or our name, and a message."""
    if info is None:
        return Refusal.CHANGED_SINCE_PLAN, "the topic is gone since the plan; plan again"
    if not info.permitted:
        return kafka.TOPIC_AUTHORIZATION_FAILED, "this principal may not describe the topic any more; grant it Describe"
    if info.topic_id != target.topic_id:
        return Refusal.RECREATED, f"recreated since the plan, with id {info.topic_id}; plan again"
    if target.topic_id is None and (difference := shape_differs(target, info)) is not None:
        return Refusal.CHANGED_SINCE_PLAN, f"the topic is not the planned one: {difference}; plan again"
    if info.internal:
        return Refusal.POLICY_VIOLATION, "internal to Kafka: never deleted"
    if info.authorized_operations is not None and "DELETE" not in info.authorized_operations:
        return kafka.TOPIC_AUTHORIZATION_FAILED, "this principal may not delete the topic; grant it Delete"
    return None


def difference_from_validated(
    target: Target, validated: TopicResult | None, info: TopicInfo, configs: Sequence[ConfigEntry]
) -> str | None:
    """How a live topic differs from the plan and from what validateOnly resolved, or None.

    `configs` are all configs of the live topic. One that is set on it and isn't planned is a difference, too.
    """
    if validated is not None and target.assignments is None:
        # validateOnly returns no counts where the broker is too old or the principal may not know them (C10, C11).
        target = replace(
            target,
            num_partitions=validated.num_partitions if target.num_partitions is None else target.num_partitions,
            replication_factor=(
                validated.replication_factor if target.replication_factor is None else target.replication_factor
            ),
        )
    planned = difference_from_plan(target, info, {each.name: each.value for each in configs})
    unplanned = [
        f"{each.name} is {each.value}, not planned"
        for each in sorted(configs, key=lambda each: each.name)
        if each.config_source == SET_ON_TOPIC and not each.is_sensitive and each.name not in target.configs
    ]
    return "; ".join([*([planned] if planned else ()), *unplanned]) or None


def _which(info: TopicInfo) -> str:
    if info.topic_id is not None:
        return f"with id {info.topic_id}"
    return f"with {info.num_partitions} partitions and replication factor {info.replication_factor}"


def difference_from_plan(target: Target, info: TopicInfo, configs: Mapping[str, str | None] | None) -> str | None:
    """How a live topic differs from the plan, or None; what the plan leaves to the broker always matches.

    `configs` are the live values by name, None where they can't be read: then they aren't compared.
    """
    differences = []
    if target.assignments is not None and dict(info.assignments) != dict(target.assignments):
        differences.append("assignments differ")
    for name in ("num_partitions", "replication_factor"):
        wanted, live = getattr(target, name), getattr(info, name)
        if wanted is not None and wanted != live:
            differences.append(f"{name} is {live}, planned {wanted}")
    for name, value in sorted(target.configs.items()):
        # A sensitive value is null: then nobody knows.
        if configs is not None and (name not in configs or same_value(name, value, configs[name]) is False):
            differences.append(f"{name} is {configs.get(name, 'not set')}, planned {value}")
    return "; ".join(differences) or None


def verdict(
    target: Target, result: TopicResult, info: TopicInfo | None
) -> tuple[Outcome, int, Note | Refusal | None, str | None]:
    """How an acknowledged action turned out: outcome, error code, our note, message (C10, C21, M2)."""
    if info is not None and not info.permitted:
        message = "this principal may not describe the topic; grant it Describe to have it verified"
        return Outcome.SKIPPED, kafka.TOPIC_AUTHORIZATION_FAILED, None, message
    if target.action is Action.DELETE:
        if info is None:
            return Outcome.OK, kafka.NONE, None, None
        if info.topic_id == target.topic_id:
            return Outcome.PENDING, kafka.NONE, None, "acknowledged, still listed"
        message = f"deleted; another client recreated it, with id {info.topic_id}"
        return Outcome.OK, kafka.NONE, Refusal.RECREATED, message
    if info is None:
        return Outcome.PENDING, kafka.NONE, None, "acknowledged, not listed yet"
    if result.topic_id is not None and info.topic_id is not None and info.topic_id != result.topic_id:
        message = f"another client deleted and recreated it, with id {info.topic_id}"
        return Outcome.FAILED, OURS, Refusal.RECREATED, message
    if info.leaderless or (result.num_partitions is not None and info.num_partitions < result.num_partitions):
        return Outcome.PENDING, kafka.NONE, None, "acknowledged, not every partition has a leader yet"
    difference = difference_from_plan(target, info, None)
    if difference is not None:
        return Outcome.FAILED, OURS, Refusal.DIFFERS_FROM_PLAN, difference
    return Outcome.OK, kafka.NONE, None, None
