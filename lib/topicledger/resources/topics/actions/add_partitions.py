"""add_partitions: CreatePartitions (KIP-195; N1 to N7). Kafka can't remove partitions again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger import kafka
from topicledger.actions.asking import Unlisted
from topicledger.actions.checking import CheckedRequest, describe_planned, look_for, not_planned
from topicledger.actions.context import NOT_LISTED, ClusterContext, outcome_of
from topicledger.actions.costs import ADDED_PARTITIONS
from topicledger.actions.kind import ActionKind, Steps
from topicledger.actions.safeguards import MAX_CHANGES, Safeguards
from topicledger.actions.showing import changes
from topicledger.config.settings import MAX_BATCH_RECORDS
from topicledger.kafka.sending import Answer, NoOutcome
from topicledger.manifests.row_rules import ABSENT
from topicledger.model import (
    OURS,
    TOPIC,
    Action,
    Note,
    Outcome,
    Phase,
    PhaseResult,
    Refusal,
    Target,
    TopicInfo,
    TopicResult,
)
from topicledger.resources.topics.actions.verifying import Verdict, recreated, verify_topics


def declared_count(prefix: str = "") -> Column:
    """The declared number of partitions (int), null if left to the broker.

    In: `num_partitions` and `assignments`, with `prefix`.
    """
    assigned = F.size(F.map_keys(f"{prefix}assignments"))
    # The size of a missing map is null or -1, by the session's settings.
    return F.coalesce(F.col(f"{prefix}num_partitions"), F.when(assigned > 0, assigned))


def counts() -> Column:
    """struct<before,after> of an existing topic that is declared with a different number of partitions; else null."""
    declared = declared_count()

    def count(value: Column) -> Column:
        return F.create_map(F.lit("num_partitions"), value.cast("string"))

    return F.when(
        declared != F.col("live_num_partitions"),
        F.struct(count(F.col("live_num_partitions")).alias("before"), count(declared).alias("after")),
    )


def validate(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """CreatePartitions with validateOnly, for topics that are as planned and not being reassigned."""
    sendable: list[Target] = []
    for target in targets:
        added = target.grows_to - target.grows_from
        if added > MAX_BATCH_RECORDS:
            yield context.refused(
                target,
                Phase.VALIDATE,
                Refusal.POLICY_VIOLATION,
                f"it would get {added} partitions more at once, and brokers carry out such a request in part"
                f": declare at most {MAX_BATCH_RECORDS} more at a time",
            )
        else:
            sendable.append(target)
    ready: list[Target] = []
    for target, refused in _check(context, sendable, Phase.VALIDATE) if sendable else ():
        if refused is None:
            ready.append(target)
        else:
            yield refused
    validate_only = partial(context.admin.add_partitions, validate_only=True)
    for target, answer in context.send_each(ready, validate_only, changes=False):
        yield context.result(target, Phase.VALIDATE, outcome_of(answer.result.error_code), answer)


def _check(
    context: ClusterContext, targets: Sequence[Target], phase: Phase
) -> Iterator[tuple[Target, PhaseResult | None]]:
    """Yield each target, with its refusal if the topic is not as planned, or is being reassigned (N6)."""
    live = describe_planned(context, targets, partial(context.admin.add_partitions, validate_only=True))
    moved = context.reassigned_now()
    context.require_planned_cluster()
    for target in targets:
        if context.is_open(target):
            continue
        info = live.get(target.topic)
        refusal = not_planned(target, info)
        if refusal is None and info is not None:
            refusal = _reassigned(target, info, moved, context.unlisted) or _other_count(target, info)
        yield target, None if refusal is None else context.refused(target, phase, *refusal)


def _other_count(target: Target, info: TopicInfo) -> tuple[Refusal, str] | None:
    # The controller decides on topics that an earlier request may have grown: it refuses what is no increase (N2).
    if target.maybe_sent or info.num_partitions == target.grows_from:
        return None
    message = f"the topic has {info.num_partitions} partitions, and the plan saw {target.grows_from}; plan again"
    return Refusal.CHANGED_SINCE_PLAN, message


def _reassigned(
    target: Target, info: TopicInfo, moved: frozenset[str] | None, unlisted: Unlisted
) -> tuple[Refusal, str] | None:
    """Why new partitions could get too many replicas: a topic that is being reassigned has more of them for a while."""
    if target.assignments:
        # Its new partitions get the declared replicas.
        return None
    if moved is None:
        # Without the list, only the declared number of replicas shows that none is being moved.
        if all(len(replicas) == target.replication_factor for replicas in info.assignments.values()):
            return None
        message = (
            f"{unlisted.why}, so it is unknown whether new partitions would copy replicas that are only being moved"
            f": {unlisted.advice}, or declare the replication_factor"
        )
        return unlisted.refusal, message
    if target.topic in moved:
        return (
            Refusal.REASSIGNMENT_IN_PROGRESS,
            "its replicas are being moved, and new partitions would copy the replicas of both places: run again "
            "when it is over",
        )
    return None


def changed_since_plan(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Refuse topics that changed since the plan; those that an earlier start may have grown are left to `apply`."""
    yield from (refused for _, refused in _check(context, targets, Phase.APPLY) if refused is not None)


def recover(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Find topics that an earlier request grew, by the controller's response to the same count (N2).

    The partitions of a topic without an outcome by the controller are counted in the brokers' listing.
    """
    validate_only = partial(context.admin.add_partitions, validate_only=True)
    silent: dict[str, NoOutcome] = {}
    answers = list(context.send_each(targets, validate_only, changes=False, silent=silent))
    # Responses of a different cluster prove nothing, even if they yield nothing.
    context.require_planned_cluster()
    yield from _recovered(context, [pair for pair in answers if pair[1].result.error_code == kafka.INVALID_PARTITIONS])

    def counted(listed: Sequence[tuple[Target, NoOutcome, TopicInfo]]) -> Iterator[PhaseResult]:
        # If a listed topic hasn't grown, its request is sent again, or has failed.
        for target, without, info in listed:
            if info.topic_id != target.topic_id or info.num_partitions >= target.grows_to:
                yield _counted(context, target, without.last, info)

    yield from look_for(context, targets, silent, "added partitions to", counted)


def apply(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """CreatePartitions; if the topic already has the planned count, a request of ours may have added them.

    A broker repeats a request by itself if the controller that carried it out goes down.
    """
    add = CheckedRequest(context, partial(_check, context), partial(context.admin.add_partitions, validate_only=False))
    not_grown: list[tuple[Target, Answer]] = []
    for target, answer in context.send_each(targets, add, changes=True):
        if target.topic in add.refused:
            yield add.refused[target.topic]
        elif answer.result.error_code == kafka.INVALID_PARTITIONS:
            not_grown.append((target, answer))
        else:
            yield context.result(
                target, Phase.APPLY, outcome_of(answer.result.error_code), _with_counts(target, answer)
            )
    yield from _recovered(context, not_grown)


def _with_counts(target: Target, answer: Answer) -> Answer:
    """Add the change of the request to its response; the topic was checked right before."""
    done = answer.result.error_code == kafka.NONE
    result = replace(
        answer.result,
        num_partitions=target.grows_to if done else None,
        before=target.before,
        after=target.after if done else None,
    )
    return replace(answer, result=result)


def _recovered(context: ClusterContext, grown: Sequence[tuple[Target, Answer]]) -> Iterator[PhaseResult]:
    """Results for topics that can't grow to the planned count after our own request may have been carried out (N2)."""
    if not grown:
        return
    wanted = {target.topic: target.grows_to for target, _ in grown}
    # The controller knows the counts; a listing lags.
    context.describe_when_listed(list(wanted))
    live = context.describe_when(list(wanted), lambda info: info.num_partitions >= wanted[info.topic])
    context.require_planned_cluster()
    for target, answer in grown:
        info = live.get(target.topic)
        if info is None or (info.permitted and info.num_partitions < target.grows_to):
            if answer.maybe_done:
                context.leave_open(target, NOT_LISTED)
            else:
                yield context.result(target, Phase.APPLY, outcome_of(answer.result.error_code), answer)
            continue
        yield _counted(context, target, answer, info)


_BY_WHOM = (
    "the topic has the planned partitions: this request added them, if the broker repeated it to another controller, "
    "or another client did"
)


def _counted(context: ClusterContext, target: Target, answer: Answer, info: TopicInfo) -> PhaseResult:
    """Make the row of a topic that an earlier request may have grown: RECOVERED if it has the planned count."""
    problem = not_planned(target, info)
    if problem is None and info.num_partitions == target.grows_to:
        if not answer.maybe_done:
            return context.skipped(target, Phase.APPLY, _BY_WHOM)
        found = _with_counts(target, replace(answer, result=TopicResult()))
        words = "an earlier request of this run added the partitions"
        return context.result(target, Phase.APPLY, Outcome.OK, found, note=Note.RECOVERED, message=words)
    note, message = problem or (None, f"num_partitions is {info.num_partitions}, planned {target.grows_to}")
    return context.result(target, Phase.APPLY, Outcome.FAILED, answer, note=note, message=message)


def verify(context: ClusterContext, applied: Sequence[tuple[Target, TopicResult]]) -> Iterator[PhaseResult]:
    """Describe topics once."""
    return verify_topics(context, applied, verdict)


def verdict(target: Target, result: TopicResult, info: TopicInfo | None) -> Verdict:
    """The result of acknowledged partitions; they are visible late (N7)."""
    if info is not None and info.topic_id != target.topic_id:
        return recreated(info)
    if info is None or info.num_partitions < target.grows_to or info.leaderless:
        return Outcome.PENDING, kafka.NONE, None, "acknowledged, not every partition has a leader yet"
    if info.num_partitions > target.grows_to:
        message = f"num_partitions is {info.num_partitions}, planned {target.grows_to}"
        return Outcome.FAILED, OURS, Refusal.DIFFERS_FROM_PLAN, message
    return Outcome.OK, kafka.NONE, None, None


def not_declared() -> Column:
    """An increase is declared if its topic is declared present with this number of partitions, on the same brokers."""
    now = declared_count("now_").cast("string")
    same_count = F.col("after")["num_partitions"].eqNullSafe(now)
    one, other = (F.array_sort(F.map_entries(each)) for each in ("assignments", "now_assignments"))
    return (
        F.when(F.col("now_state") == ABSENT, F.lit("declare it absent"))
        .when(
            ~same_count,
            F.concat(F.lit("declare it with "), F.coalesce(now, F.lit("the broker's number of")), F.lit(" partitions")),
        )
        .when(~one.eqNullSafe(other), F.lit("declare it with other assignments"))
    )


KIND = ActionKind(
    name=Action.ADD_PARTITIONS.value,
    resource_type=TOPIC,
    option="partitions",
    order=3,
    wanted=lambda: F.col("decision") == Action.ADD_PARTITIONS.value,
    not_declared=not_declared,
    shown=changes("given partitions"),
    cost=ADDED_PARTITIONS,
    safeguards=Safeguards(switch="partitions", guard=MAX_CHANGES, approved_as=()),
    steps=Steps(
        validate=validate,
        changed_since_plan=changed_since_plan,
        recover=recover,
        partly_done=None,
        apply=apply,
        cancel=None,
        verify=verify,
    ),
)
