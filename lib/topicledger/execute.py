"""Phases validate, apply and verify for one cluster: the driver sends batches and classifies what came back.

Nothing here knows Spark or Delta: targets come in, `Ended` rows go out. A request is sent again until each of its
topics has an answer that tells its outcome, within bounds; a listing never decides, since it lags (C21).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from topicledger import admin as kafka
from topicledger.admin import ClusterAdmin, error_name
from topicledger.config_values import same_value
from topicledger.model import (
    OURS,
    Action,
    Ended,
    Outcome,
    Phase,
    Refusal,
    Target,
    TopicInfo,
    TopicResult,
    Violation,
)
from topicledger.sending import Answer, Learned, OutcomeUnknown, Patience, QuotaWait, Sender

log = logging.getLogger(__name__)

BROKER = "broker"
"""The `policy` of a violation that the broker's own CreateTopicPolicy found (C8)."""


@dataclass
class Executor:
    """One cluster's side of a run: sends planned targets, batch by batch, and tells how each ended."""

    cluster: str
    cluster_id: str
    admin: ClusterAdmin
    learned: Learned
    """What is learnt of the cluster, shared by all that the run does there."""
    patience: Patience = field(default_factory=Patience)
    stop: threading.Event = field(default_factory=threading.Event)
    """Set to give up what has no known outcome yet; ends every wait."""
    sleep: Callable[[float], object] | None = None
    """How to wait; None waits for `stop`."""
    clock: Callable[[], float] = time.monotonic
    """Seconds."""
    may_send: Callable[[], None] = lambda: None
    """Called right before each request that changes something; raises a ClusterError where that isn't allowed."""
    waiting: Callable[[QuotaWait | None], None] = lambda _: None
    """Told before each wait for the cluster's quota, and None when there is nothing left to wait for (C17)."""

    def __post_init__(self) -> None:
        self._sender = Sender(
            cluster=self.cluster,
            learned=self.learned,
            patience=self.patience,
            stop=self.stop,
            sleep=self.sleep or self.stop.wait,
            clock=self.clock,
            may_send=self.may_send,
            waiting=self.waiting,
        )

    def expect(self, later: int) -> None:
        """Say how many topics will come after the next batch: a wait for the quota tells how many are left."""
        self._sender.later = later

    # -- validate ----------------------------------------------------------------------------------------------------

    def validate(
        self, targets: Sequence[Target], created_by_us: Callable[[Collection[str]], Collection[str]]
    ) -> Iterator[Ended]:
        """One batch before anything is sent: creates by validateOnly (C5), deletes by a fresh look (D6).

        `created_by_us` tells of which topics the ledger knows that this tool created them and wasn't told to delete
        them since: a create of one that exists already is unchanged, whatever the listing said (C21, M3).
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

    def _needs_counts(self, target: Target) -> Ended | None:
        counted = target.num_partitions is not None and target.replication_factor is not None
        if counted or target.assignments or self.admin.has_default_counts:
            return None
        return self.refused(
            target,
            Phase.VALIDATE,
            Refusal.COUNTS_REQUIRED,
            "this broker is older than Kafka 2.4 and has no defaults: give num_partitions and replication_factor",
        )

    def _validated(self, target: Target, answer: Answer, *, ours: bool) -> Ended:
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

    def check_deletes(self, targets: Sequence[Target], phase: Phase) -> Iterator[Ended]:
        """D6, our own validate for deletes: each still exists, with the planned id, and may be deleted."""
        if not targets:
            return
        requested_at = datetime.now(UTC)
        live = self._describe([target.topic for target in targets])
        for target in targets:
            info = live.get(target.topic)
            if info is not None and info.permitted:
                self.learned.partitions[target.topic] = info.num_partitions
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

    def changed_since_plan(self, targets: Sequence[Target]) -> Iterator[Ended]:
        """Judge targets of a saved plan again on fresh metadata: yields those that must not be sent any more."""
        creates = [target for target in targets if target.action is Action.CREATE]
        live = self._describe([target.topic for target in creates])
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
        for ended in self.check_deletes(deletes, Phase.APPLY):
            if ended.outcome is not Outcome.OK:
                yield ended

    # -- apply -------------------------------------------------------------------------------------------------------

    def apply(self, targets: Sequence[Target]) -> Iterator[Ended]:
        """Send one batch for real; every outcome is known when it is yielded, each as soon as it is."""
        creates = [target for target in targets if target.action is Action.CREATE]
        deletes = [target for target in targets if target.action is Action.DELETE]
        existing: list[tuple[Target, Answer]] = []
        create = partial(self.admin.create_topics, validate_only=False)
        for target, answer in self._sender.send(creates, create, changes=True):
            if answer.result.error_code == kafka.TOPIC_ALREADY_EXISTS:
                existing.append((target, answer))
            else:
                yield self._ended(target, Phase.APPLY, _outcome(answer.result.error_code), answer)
        yield from self._recovered_creates(existing)

        by_id: list[Target] = []
        by_name: list[Target] = []
        for target in deletes:
            (by_id if target.topic_id is not None and self.admin.deletes_by_id else by_name).append(target)
        yield from self._delete(by_id)
        # By name only what was compared just before (D7).
        same: set[str] = set()
        for ended in self.check_deletes(by_name, Phase.APPLY):
            if ended.outcome is Outcome.OK:
                same.add(ended.topic)
            elif ended.error == Refusal.CHANGED_SINCE_PLAN:
                yield replace(ended, outcome=Outcome.OK, error_code=kafka.NONE, error=Refusal.RECOVERED.value)
            else:
                yield ended
        yield from self._delete([target for target in by_name if target.topic in same])

    def _delete(self, targets: Sequence[Target]) -> Iterator[Ended]:
        gone: list[tuple[Target, Answer]] = []
        for target, answer in self._sender.send(targets, self.admin.delete_topics, changes=True):
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

    def _recovered_creates(self, existing: Sequence[tuple[Target, Answer]]) -> Iterator[Ended]:
        """A planned topic that exists and matches is ours as far as anyone can know: ok, noted RECOVERED (C18)."""
        if not existing:
            return
        live = self._describe_when_listed([target.topic for target, _ in existing])
        permitted = [name for name, info in live.items() if info.permitted]
        configs = self._sender.ask(lambda: self.admin.describe_configs(permitted))
        for target, answer in existing:
            info = live[target.topic]
            if not info.permitted:
                yield self._ended(
                    target,
                    Phase.APPLY,
                    Outcome.OK,
                    answer,
                    note=Refusal.RECOVERED,
                    message="it exists; this principal may not describe it, so nothing more can be told",
                )
                continue
            found = configs.get(target.topic)
            difference = difference_from_plan(target, info, {c.name: c.value for c in found} if found else None)
            result = TopicResult(
                error_code=kafka.NONE if difference is None else answer.result.error_code,
                error_message=answer.result.error_message,
                topic_id=info.topic_id,
                num_partitions=info.num_partitions,
                replication_factor=info.replication_factor,
                configs=found,
                topic_config_error_code=kafka.NONE if found else kafka.TOPIC_AUTHORIZATION_FAILED,
            )
            again = Answer(result, answer.attempt, answer.requested_at, datetime.now(UTC))
            if difference is None:
                message = "an earlier request of this run had created it; what it has was read by describe"
                yield self._ended(target, Phase.APPLY, Outcome.OK, again, note=Refusal.RECOVERED, message=message)
            else:
                message = f"the topic exists and is not as planned: {difference}"
                yield self._ended(target, Phase.APPLY, Outcome.FAILED, again, message=message)

    def _recovered_deletes(self, gone: Sequence[tuple[Target, Answer]]) -> Iterator[Ended]:
        """A planned delete whose id is gone: ok if the name is gone too, else the topic was recreated (D3, D7)."""
        if not gone:
            return
        live = self._describe([target.topic for target, _ in gone])
        for target, answer in gone:
            info = live.get(target.topic)
            if info is None or (info.permitted and info.topic_id == target.topic_id):
                done = Answer(TopicResult(), answer.attempt, answer.requested_at, datetime.now(UTC))
                message = "it was gone when the request came"
                yield self._ended(target, Phase.APPLY, Outcome.OK, done, note=Refusal.RECOVERED, message=message)
            elif info.permitted:
                message = f"recreated since the plan, with id {info.topic_id}: not touched; plan again"
                yield self._ended(target, Phase.APPLY, Outcome.FAILED, answer, note=Refusal.RECREATED, message=message)
            else:
                yield self._ended(target, Phase.APPLY, Outcome.FAILED, answer)

    # -- verify ------------------------------------------------------------------------------------------------------

    def verify(self, applied: Sequence[tuple[Target, TopicResult]]) -> Iterator[Ended]:
        """Look once at what was applied: ok, failed, pending (acknowledged, not visible yet), or skipped (29)."""
        if not applied:
            return
        requested_at = datetime.now(UTC)
        live = self._describe([target.topic for target, _ in applied])
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

    # -- asking ------------------------------------------------------------------------------------------------------

    def live_cluster_id(self) -> str:
        """The id that the cluster says it has; raises OutcomeUnknown where it gives no answer."""
        return self._sender.ask(lambda: self.admin.describe_cluster().cluster_id)

    def _describe(self, topics: Sequence[str]) -> dict[str, TopicInfo]:
        return self._sender.ask(lambda: {info.topic: info for info in self.admin.describe_topics(topics)})

    def _describe_when_listed(self, topics: Sequence[str]) -> dict[str, TopicInfo]:
        """Topics that the controller says exist, as soon as brokers list them (C21)."""
        deadline = time.monotonic() + self.patience.visibility
        backoff = self.patience.first_backoff
        while True:
            live = self._describe(topics)
            waiting = [topic for topic in topics if topic not in live]
            if not waiting:
                return live
            if time.monotonic() >= deadline:
                raise OutcomeUnknown(
                    f"cluster {self.cluster}: {len(waiting)} topics exist, the controller says, and are not listed "
                    f"after {self.patience.visibility:g} s, {waiting[0]} among them; start the run again with its id"
                )
            self.wait(backoff)
            backoff = min(backoff * 2, self.patience.longest_backoff)

    # -- rows --------------------------------------------------------------------------------------------------------

    def _warn_once(self, what: str, message: str) -> None:
        if what not in self.learned.warned:
            self.learned.warned.add(what)
            log.warning("cluster %s: %s", self.cluster, message)

    def _ended(
        self,
        target: Target,
        phase: Phase,
        outcome: Outcome,
        answer: Answer,
        *,
        note: Refusal | None = None,
        message: str | None = None,
    ) -> Ended:
        result = answer.result
        name = error_name(result.error_code) if result.error_code != kafka.NONE else None
        # What policies warned of stands in the first row that ends for the topic.
        violations = target.violations if phase is Phase.VALIDATE else ()
        if result.error_code == kafka.POLICY_VIOLATION:
            violations = (*violations, Violation(policy=BROKER, message=result.error_message or ""))
        return Ended(
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

    def refused(self, target: Target, phase: Phase, refusal: Refusal, message: str) -> Ended:
        """A row that says that we, not the broker, refuse a target."""
        now = datetime.now(UTC)
        answer = Answer(TopicResult(error_code=OURS), 1, now, now)
        return self._ended(target, phase, Outcome.REFUSED, answer, note=refusal, message=message)


# -- pure judgements --------------------------------------------------------------------------------------------------


def _outcome(error_code: int) -> Outcome:
    if error_code == kafka.NONE:
        return Outcome.OK
    return Outcome.REFUSED if error_code == kafka.POLICY_VIOLATION else Outcome.FAILED


def delete_refusal(target: Target, info: TopicInfo | None) -> tuple[int | Refusal, str] | None:
    """Why a planned delete must not be sent, or None (D4, D6): Kafka's code or our name, and a message."""
    if info is None:
        return Refusal.CHANGED_SINCE_PLAN, "the topic is gone since the plan; plan again"
    if not info.permitted:
        return kafka.TOPIC_AUTHORIZATION_FAILED, "this principal may not describe the topic any more; grant it Describe"
    if info.topic_id != target.topic_id:
        return Refusal.RECREATED, f"recreated since the plan, with id {info.topic_id}; plan again"
    if info.internal:
        return Refusal.POLICY_VIOLATION, "internal to Kafka: never deleted"
    if info.authorized_operations is not None and "DELETE" not in info.authorized_operations:
        return kafka.TOPIC_AUTHORIZATION_FAILED, "this principal may not delete the topic; grant it Delete"
    return None


def difference_from_plan(target: Target, info: TopicInfo, configs: Mapping[str, str | None] | None) -> str | None:
    """What a live topic has otherwise than planned, or None; what the plan leaves to the broker always matches.

    `configs` are the live values by name, None where they can't be read: then they don't count.
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
) -> tuple[Outcome, int, Refusal | None, str | None]:
    """How an acknowledged action looks: outcome, error code, our note, message (C10, C21, M2)."""
    if info is not None and not info.permitted:
        message = "this principal may not describe the topic; grant it Describe to have it verified"
        return Outcome.SKIPPED, kafka.TOPIC_AUTHORIZATION_FAILED, None, message
    if target.action is Action.DELETE:
        if info is None:
            return Outcome.OK, kafka.NONE, None, None
        if info.topic_id == target.topic_id:
            return Outcome.PENDING, kafka.NONE, None, "acknowledged, still listed"
        return Outcome.OK, kafka.NONE, Refusal.RECREATED, f"deleted; somebody made it anew, with id {info.topic_id}"
    if info is None:
        return Outcome.PENDING, kafka.NONE, None, "acknowledged, not listed yet"
    if result.topic_id is not None and info.topic_id is not None and info.topic_id != result.topic_id:
        message = f"deleted and made anew by somebody, with id {info.topic_id}"
        return Outcome.FAILED, OURS, Refusal.RECREATED, message
    if info.leaderless or (result.num_partitions is not None and info.num_partitions < result.num_partitions):
        return Outcome.PENDING, kafka.NONE, None, "acknowledged, not every partition has a leader yet"
    difference = difference_from_plan(target, info, None)
    if difference is not None:
        return Outcome.FAILED, OURS, Refusal.DIFFERS_FROM_PLAN, difference
    return Outcome.OK, kafka.NONE, None, None
