"""reassign: AlterPartitionReassignments (KIP-455; R1 to R8), in waves.

Kafka has no validateOnly for it, and silently lets a second target win (R1, R2). So before each request, its partitions
are compared with the plan and with the reassignments under way. The controller adds the new replicas, and removes the
old ones once the new ones are in sync.

A topic with a move that may be under way is never refused: the run waits for it, and its row says how far it was moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger import kafka
from topicledger.actions.asking import MovesUnlisted, Unlisted
from topicledger.actions.checking import never_unsent, undescribed
from topicledger.actions.context import ClusterContext
from topicledger.actions.costs import MOVED_PARTITIONS
from topicledger.actions.kind import ActionKind, Steps
from topicledger.actions.safeguards import Guard, Safeguards
from topicledger.actions.showing import CHANGES, Shown, moved
from topicledger.kafka.reassignments import Partition, Replicas, TopicState
from topicledger.kafka.sending import Answer
from topicledger.model import (
    OURS,
    TOPIC,
    Note,
    Outcome,
    Phase,
    PhaseResult,
    Refusal,
    ReplicaAction,
    Target,
    TopicInfo,
    TopicResult,
)
from topicledger.model.moves import LEADER_ADVICE
from topicledger.resources.topics.actions import cancelling
from topicledger.resources.topics.actions.declared import declared_differently
from topicledger.resources.topics.actions.min_insync import below_min_insync
from topicledger.resources.topics.actions.verifying import Verdict, recreated, verify_topics
from topicledger.resources.topics.actions.waves import Waves

_SHOWN_WITHIN = 15.0
"""Seconds until brokers show a move that is over (R4)."""


def validate(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Our own checks (R1): the topic is as planned, brokers are up, partitions have leaders and aren't being moved."""
    now = datetime.now(UTC)
    for target, refusal in check(context, targets):
        if refusal is None:
            yield context.result(target, Phase.VALIDATE, Outcome.OK, Answer(TopicResult(), 1, now, datetime.now(UTC)))
        else:
            yield context.refused(target, Phase.VALIDATE, *refusal)


def changed_since_plan(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Refuse topics that changed since the plan; those that an earlier start has begun to move are left to `apply`."""
    for target, refusal in check(context, targets):
        if refusal is not None:
            yield context.refused(target, Phase.APPLY, *refusal)


def check(
    context: ClusterContext, targets: Sequence[Target], *, alters_done: bool = False
) -> Iterator[tuple[Target, tuple[Refusal, str] | None]]:
    """Yield each target, with its refusal or None; changes nothing. A target that may be under way isn't refused.

    `alters_done`: the run's changes of configs are over, so `min.insync.replicas` of topics can be compared.
    """
    if not context.admin.reassigns:
        message = "this broker is older than Kafka 2.4 and can't move replicas by request: nothing is moved"
        for target in targets:
            yield target, None if target.maybe_sent else (Refusal.BROKER_TOO_OLD, message)
        return
    listed = context.reassignments()
    states = context.topic_states([target.topic for target in targets])
    up = {broker.broker_id for broker in context.brokers()}
    begun = {each.topic for each in targets if each.maybe_sent and _may_be_begun(each, states.get(each.topic), listed)}
    below = below_min_insync(context, [each for each in targets if each.topic not in begun]) if alters_done else {}
    context.require_planned_cluster()
    for target in targets:
        unlisted = context.unlisted if listed is None else None
        refusal = _refusal(target, states.get(target.topic), listed or {}, up, unlisted) or below.get(target.topic)
        yield target, None if target.topic in begun else refusal


def _may_be_begun(target: Target, state: TopicState | None, listed: Mapping[Partition, Replicas] | None) -> bool:
    """Return whether a move may be under way: false if all replicas are where they were and none is listed."""
    if listed is None or state is None or not state.permitted or state.topic_id != target.topic_id:
        return True
    before = target.replicas_before
    return any(
        (target.topic, each) in listed
        or each not in state.partitions
        or state.partitions[each].replicas != before.get(each)
        for each in target.replicas_after
    )


def _refusal(
    target: Target,
    state: TopicState | None,
    listed: Mapping[Partition, Replicas],
    up: set[int],
    unlisted: Unlisted | None,
) -> tuple[Refusal, str] | None:
    if unlisted is not None:
        return unlisted.refusal, f"{unlisted.why}, so it is unknown whether any is under way: {unlisted.advice}"
    if state is None:
        return Refusal.CHANGED_SINCE_PLAN, "the topic is gone since the plan; plan again"
    if not state.permitted:
        return undescribed(state)
    if state.topic_id != target.topic_id:
        return Refusal.RECREATED, f"recreated since the plan, with id {state.topic_id}; plan again"
    before, after = target.replicas_before, target.replicas_after
    for partition, brokers in after.items():
        under_way, live = listed.get((target.topic, partition)), state.partitions.get(partition)
        if under_way is not None:
            return (
                Refusal.REASSIGNMENT_IN_PROGRESS,
                f"partition {partition} is being moved to {list(under_way)} by another client, and Kafka would "
                "silently let this target win: run again when it is over",
            )
        if live is None:
            return Refusal.CHANGED_SINCE_PLAN, f"partition {partition} doesn't exist; plan again"
        if live.replicas not in (before.get(partition), brokers):
            return (
                Refusal.CHANGED_SINCE_PLAN,
                f"partition {partition} is on brokers {list(live.replicas)}, and the plan saw "
                f"{list(before.get(partition, ()))}; plan again",
            )
        down = sorted(set(brokers) - up)
        if down and live.replicas != brokers:
            return Refusal.BROKERS_UNAVAILABLE, f"brokers {down} are not up: nothing is moved to them; plan again"
        if live.leader < 0 and live.replicas != brokers:
            words = f"partition {partition} has no leader to copy from: {LEADER_ADVICE}; then plan again"
            return Refusal.BROKERS_UNAVAILABLE, words
    return None


def recover(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Find topics whose partitions are all moved and in sync (R4); pending are those under way, or partly moved.

    The partitions of all other topics are where they were.
    """
    now, deadline = datetime.now(UTC), context.clock() + _SHOWN_WITHIN
    waves = Waves(context, targets)
    try:
        waves.look()
    except MovesUnlisted as error:
        waves.leave_open(str(error))
        return
    # A move that is over is no longer listed, but metadata may not show it yet (R4).
    while context.clock() < deadline and any(not waves.is_begun(target) for target in targets):
        context.wait(1.0)
        waves.look()
    context.require_planned_cluster()
    for target in targets:
        if waves.is_done(target):
            message = "an earlier start of this run moved them"
            yield context.result(
                target, Phase.APPLY, Outcome.OK, waves.answer(target, now), note=Note.RECOVERED, message=message
            )
        elif waves.is_begun(target):
            answer = Answer(TopicResult(), 1, now, datetime.now(UTC))
            yield context.result(target, Phase.APPLY, Outcome.PENDING, answer)


def apply(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Move partitions in waves; a topic's row follows once all of its partitions are in sync on the planned brokers."""
    ready = []
    for target, refusal in check(context, targets, alters_done=True):
        if refusal is None:
            ready.append(target)
        else:
            yield never_unsent(context.refused(target, Phase.APPLY, *refusal))
    # Also without targets: an earlier start may have left throttles.
    waves = Waves(context, ready)
    try:
        yield from waves.run()
    except MovesUnlisted as error:
        waves.leave_open(str(error))


def verify(context: ClusterContext, applied: Sequence[tuple[Target, TopicResult]]) -> Iterator[PhaseResult]:
    """Describe topics once."""
    return verify_topics(context, applied, verdict)


def verdict(target: Target, result: TopicResult, info: TopicInfo | None) -> Verdict:
    """The result of acknowledged moves: whether the replicas are still on the planned brokers."""
    if info is not None and info.topic_id != target.topic_id:
        return recreated(info)
    if info is None:
        return Outcome.PENDING, kafka.NONE, None, "moved, and not listed now"
    others = [
        f"partition {partition} is on {list(info.assignments.get(partition, ()))}"
        for partition, brokers in target.replicas_after.items()
        if info.assignments.get(partition) != brokers
    ]
    if others:
        return Outcome.FAILED, OURS, Refusal.DIFFERS_FROM_PLAN, f"moved again since: {'; '.join(others)}"
    if info.leaderless:
        return Outcome.PENDING, kafka.NONE, None, "moved, not every partition has a leader now"
    return Outcome.OK, kafka.NONE, None, None


def not_declared() -> Column:
    """A move is declared if its topic is declared present with the same replicas."""
    return declared_differently(("replication_factor", "assignments", "placement"))


MAX_MOVES = Guard(
    setting="max_moves",
    error=Refusal.MAX_MOVES_EXCEEDED,
    counted="planned moves of partitions of this cluster",
)

KIND = ActionKind(
    name=ReplicaAction.REASSIGN.value,
    resource_type=TOPIC,
    option="replicas",
    order=5,
    wanted=lambda: F.col("decision") == ReplicaAction.REASSIGN.value,
    not_declared=not_declared,
    shown=Shown(CHANGES, moved, "moved"),
    cost=MOVED_PARTITIONS,
    safeguards=Safeguards(switch="replicas", guard=MAX_MOVES, approved_as=("moves",)),
    steps=Steps(
        validate=validate,
        changed_since_plan=changed_since_plan,
        recover=recover,
        partly_done=None,
        apply=apply,
        cancel=cancelling.cancel,
        verify=verify,
    ),
)
