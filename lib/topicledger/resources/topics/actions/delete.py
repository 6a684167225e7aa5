"""delete: DeleteTopics, by id if brokers give ids (D1 to D8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import functions as F

from topicledger import kafka
from topicledger.actions.checking import look_for, require_ours, undescribed, unreadable, without_withdrawn
from topicledger.actions.context import NOT_LISTED, ClusterContext, outcome_of
from topicledger.actions.costs import WHOLE_TOPIC
from topicledger.actions.kind import ActionKind, Steps
from topicledger.actions.safeguards import Guard, Safeguards
from topicledger.actions.showing import REMOVES, Shown, deleted
from topicledger.kafka import Response
from topicledger.kafka.sending import Answer, NoOutcome, may_be_done
from topicledger.manifests.row_rules import PRESENT
from topicledger.model import (
    SET_ON_TOPIC,
    TOPIC,
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
)
from topicledger.resources.topics.actions.verifying import Verdict, verify_topics


def validate(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Describe the topics again, since Kafka has no validate-only delete (D6)."""
    return check(context, targets, Phase.VALIDATE)


def check(context: ClusterContext, targets: Sequence[Target], phase: Phase) -> Iterator[PhaseResult]:
    """Our own validation of deletes (D6): each topic still exists with the planned id, and may be deleted."""
    if not targets:
        return
    requested_at = datetime.now(UTC)
    live = context.describe([target.topic for target in targets])
    for target in targets:
        info = live.get(target.topic)
        if info is not None and info.permitted:
            context.limits.partitions[target.topic] = info.num_partitions
        refusal = delete_refusal(target, info)
        if refusal is None:
            answer = Answer(TopicResult(), 1, requested_at, datetime.now(UTC))
            yield context.result(target, phase, Outcome.OK, answer)
        elif isinstance(refusal[0], int):
            answer = Answer(
                TopicResult(error_code=refusal[0], error_message=refusal[1]), 1, requested_at, datetime.now(UTC)
            )
            yield context.result(target, phase, Outcome.REFUSED, answer)
        else:
            yield context.refused(target, phase, refusal[0], refusal[1])


def changed_since_plan(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Refuse topics that changed since the plan, and all topics of a cluster without topic ids.

    A topic that an earlier start may have deleted, and that isn't listed, is left to `apply`.
    """
    maybe_sent = {target.topic for target in targets if target.maybe_sent}
    for ended in check(context, [each for each in targets if each.topic_id is not None], Phase.APPLY):
        # An unlisted topic may still exist, or we may have deleted it: the delete itself shows it, by id (C21).
        unlisted = ended.error == Refusal.CHANGED_SINCE_PLAN and ended.topic in maybe_sent
        if ended.outcome is not Outcome.OK and not unlisted:
            yield ended
    for target in targets:
        if target.topic_id is None:
            yield context.refused(
                target,
                Phase.APPLY,
                Refusal.CHANGED_SINCE_PLAN,
                "this cluster gives topics no ids (brokers before 2.8), so it isn't known whether this is still "
                "the planned topic: plan and apply in one run, with `provision`",
            )


def recover(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Find topics that an earlier request deleted, and those recreated since (D3).

    Pending are topics with an id that are unlisted, or not described, and that it may have deleted: a principal that
    may not create topics learns nothing about a name. The same delete by id shows it, unless it must not be sent any
    more. If the controller gives no outcome even about the name, an unlisted topic has failed. The others still exist.
    """
    live = context.describe([target.topic for target in targets])
    silent: dict[str, NoOutcome] = {}
    names_taken = _names_taken(context, targets, silent)
    # Responses of a different cluster prove nothing, even if they yield nothing.
    context.require_planned_cluster()
    for target, answer, taken in names_taken:
        info = live.get(target.topic)
        if taken is False:
            done = Answer(TopicResult(), answer.attempt, answer.requested_at, datetime.now(UTC))
            message = "an earlier request deleted it"
            yield context.result(target, Phase.APPLY, Outcome.OK, done, note=Note.RECOVERED, message=message)
        elif (info is None or info.unknown is not None) and target.topic_id is not None:
            unknown = Answer(TopicResult(), answer.attempt, answer.requested_at, datetime.now(UTC))
            yield context.result(target, Phase.APPLY, Outcome.PENDING, unknown)
        elif info is not None and info.permitted and info.topic_id != target.topic_id:
            yield _recreated(context, target, answer, info)

    def replaced(listed: Sequence[tuple[Target, NoOutcome, TopicInfo]]) -> Iterator[PhaseResult]:
        # A listed topic with the planned id still exists: its delete is sent again, or has failed.
        for target, without, info in listed:
            if info.topic_id != target.topic_id:
                yield _recreated(context, target, without.last, info)

    yield from look_for(context, targets, silent, "deleted", replaced)


def apply(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """DeleteTopics by id, or by name if the cluster has no topic ids or its brokers can't delete by id."""
    left, ended = without_withdrawn(context, targets, "deleted")
    yield from ended
    by_id: list[Target] = []
    by_name: list[Target] = []
    for target in left:
        (by_id if target.topic_id is not None and context.admin.deletes_by_id else by_name).append(target)
    yield from _delete(context, by_id, context.admin.delete_topics)
    yield from _delete(context, by_name, _DeleteByName(context))


def _delete(
    context: ClusterContext, targets: Sequence[Target], request: Callable[[Sequence[Target]], Response]
) -> Iterator[PhaseResult]:
    gone: list[tuple[Target, Answer]] = []
    for target, answer in context.send_each(targets, request, changes=True):
        code = answer.result.error_code
        if code in (kafka.UNKNOWN_TOPIC_ID, kafka.UNKNOWN_TOPIC_OR_PARTITION):
            gone.append((target, answer))
            continue
        if code == kafka.TOPIC_DELETION_DISABLED:
            context.warn_once("no deletes", "delete.topic.enable is false on the brokers: no topic can be deleted")
        yield context.result(target, Phase.APPLY, outcome_of(code), answer)
    yield from _recovered(context, gone)


class _DeleteByName:
    """DeleteTopics by name, for topics compared with the plan right before (D7).

    A repeated delete by name could delete a topic that another client created after the first request. So if a topic
    has no id and the response was lost, the request isn't repeated.
    """

    def __init__(self, context: ClusterContext) -> None:
        self._context = context
        self._sent: set[str] = set()

    def __call__(self, targets: Sequence[Target]) -> Response:
        context = self._context
        live = context.describe([target.topic for target in targets])
        without_id = [target.topic for target in targets if target.topic_id is None and target.topic in live]
        configs = context.describe_configs(without_id)
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
                # Its response was lost, and the topic of that name may be a different one by now: it is only described.
                continue
            elif found is None or found.configs is None:
                results[target.topic] = _configs_unknown(found)
            elif shape_differs(target, info, found.configs) is None:
                same.append(target)
            else:
                results[target.topic] = TopicResult(error_code=kafka.UNKNOWN_TOPIC_ID)
        if not same:
            return Response(results=results, throttle_time_ms=0)
        # Comparing took time.
        require_ours(context)
        self._sent.update(target.topic for target in same)
        response = context.admin.delete_topics(same)
        answered = {topic for topic, each in response.results.items() if not may_be_done(each)}
        self._sent -= answered
        return Response(results=results | dict(response.results), throttle_time_ms=response.throttle_time_ms)


def _configs_unknown(configs: TopicConfigs | None) -> TopicResult:
    """Return the result for a topic without an id whose configs can't be compared with the plan (D7)."""
    refusal, why = unreadable(configs)
    code = kafka.TOPIC_AUTHORIZATION_FAILED if refusal is Refusal.NOT_PERMITTED else kafka.INVALID_REQUEST
    message = f"not deleted: brokers before 2.8 give topics no ids, and its configs can't be compared: {why}"
    return TopicResult(error_code=code, error_message=message)


def _recovered(context: ClusterContext, gone: Sequence[tuple[Target, Answer]]) -> Iterator[PhaseResult]:
    """Results for deletes whose id is gone: ok if the name is free too, else the topic was recreated (D3, D7)."""
    if not gone:
        return
    live = context.describe([target.topic for target, _ in gone])
    # By name, our own describe may have found nothing, and a listing is no proof: so ask the controller (C21).
    not_found = kafka.UNKNOWN_TOPIC_OR_PARTITION
    by_name = [
        target
        for target, answer in gone
        if target.topic_id is None and (answer.result.error_code == not_found or target.topic not in live)
    ]
    free = {target.topic for target, _, taken in _names_taken(context, by_name) if taken is False}
    late = {target.topic for target in by_name} - free
    context.require_planned_cluster()
    for target, answer in gone:
        if target.topic in late:
            context.leave_open(target, NOT_LISTED)
            continue
        info = live.get(target.topic)
        # By name only our own comparison gives this code.
        compared = target.topic_id is None and answer.result.error_code == kafka.UNKNOWN_TOPIC_ID
        if info is None or (info.permitted and info.topic_id == target.topic_id and not compared):
            done = Answer(TopicResult(), answer.attempt, answer.requested_at, datetime.now(UTC))
            message = (
                "an earlier request deleted it"
                if answer.maybe_done
                else "another client deleted it since it was validated"
            )
            note = Note.RECOVERED if answer.maybe_done else None
            yield context.result(target, Phase.APPLY, Outcome.OK, done, note=note, message=message)
        elif info.permitted:
            yield _recreated(context, target, answer, info)
        else:
            yield context.result(target, Phase.APPLY, Outcome.FAILED, answer)


def _recreated(context: ClusterContext, target: Target, answer: Answer, info: TopicInfo) -> PhaseResult:
    """The result for a planned topic that was replaced by another of its name, which isn't touched (D7)."""
    code = kafka.UNKNOWN_TOPIC_OR_PARTITION if target.topic_id is None else kafka.UNKNOWN_TOPIC_ID
    gone = Answer(TopicResult(error_code=code), answer.attempt, answer.requested_at, datetime.now(UTC))
    message = f"recreated since the plan, {_which(info)}: not touched; plan again"
    return context.result(target, Phase.APPLY, Outcome.FAILED, gone, note=Refusal.RECREATED, message=message)


def _which(info: TopicInfo) -> str:
    if info.topic_id is not None:
        return f"with id {info.topic_id}"
    return f"with {info.num_partitions} partitions and replication factor {info.replication_factor}"


def _names_taken(
    context: ClusterContext, targets: Sequence[Target], silent: dict[str, NoOutcome] | None = None
) -> list[tuple[Target, Answer, bool | None]]:
    """Whether the controller has a topic of each target's name, by validateOnly; None if unknown.

    `silent` gets those without an outcome; without it, they stay open.
    """
    # A create with default values: only whether the name is taken matters.
    probes = [replace(target, num_partitions=1, replication_factor=1) for target in targets]
    validate = partial(context.admin.create_topics, validate_only=True)
    found = []
    for target, answer in context.send_each(probes, validate, changes=False, silent=silent):
        code = answer.result.error_code
        # The broker's own policy only checks free names.
        free = code in (kafka.NONE, kafka.POLICY_VIOLATION)
        found.append((target, answer, False if free else code == kafka.TOPIC_ALREADY_EXISTS or None))
    return found


def shape(info: TopicInfo, configs: Sequence[ConfigEntry] | None = None) -> Mapping[str, str]:
    """A topic's shape as in `plans.before`: counts, assignments, and the configs that are set on it."""
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
        refusal, message = undescribed(info)
        return kafka.TOPIC_AUTHORIZATION_FAILED if refusal is Refusal.NOT_PERMITTED else refusal, message
    if info.topic_id != target.topic_id:
        return Refusal.RECREATED, f"recreated since the plan, with id {info.topic_id}; plan again"
    if target.topic_id is None and (difference := shape_differs(target, info)) is not None:
        return Refusal.CHANGED_SINCE_PLAN, f"the topic is not the planned one: {difference}; plan again"
    if info.internal:
        return Refusal.POLICY_VIOLATION, "internal to Kafka: never deleted"
    if info.authorized_operations is not None and "DELETE" not in info.authorized_operations:
        return kafka.TOPIC_AUTHORIZATION_FAILED, "this principal may not delete the topic; grant it Delete"
    return None


def verify(context: ClusterContext, applied: Sequence[tuple[Target, TopicResult]]) -> Iterator[PhaseResult]:
    """Describe the deleted topics once."""
    return verify_topics(context, applied, verdict, shown=False)


def verdict(target: Target, result: TopicResult, info: TopicInfo | None) -> Verdict:
    """The result of an acknowledged delete (C21, M2)."""
    if info is None:
        return Outcome.OK, kafka.NONE, None, None
    if info.topic_id == target.topic_id:
        return Outcome.PENDING, kafka.NONE, None, "acknowledged, still listed"
    return Outcome.OK, kafka.NONE, Refusal.RECREATED, f"deleted; another client recreated it, with id {info.topic_id}"


MAX_DELETES = Guard(
    setting="max_deletes",
    error=Refusal.MAX_DELETES_EXCEEDED,
    counted="planned deletes of this cluster",
)

KIND = ActionKind(
    name=Action.DELETE.value,
    resource_type=TOPIC,
    option="deletes",
    order=1,
    wanted=lambda: F.col("decision") == Action.DELETE.value,
    not_declared=lambda: F.when(F.col("now_state") == PRESENT, F.lit("declare it present")),
    shown=Shown(REMOVES, deleted, "deleted"),
    cost=WHOLE_TOPIC,
    safeguards=Safeguards(switch=None, guard=MAX_DELETES, approved_as=("deletes",)),
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
