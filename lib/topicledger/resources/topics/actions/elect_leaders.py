"""elect_leaders: ElectLeaders for preferred replicas (KIP-460; R7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger import kafka
from topicledger.actions.checking import CheckedRequest, not_planned, without_withdrawn
from topicledger.actions.context import ClusterContext, outcome_of
from topicledger.actions.costs import ELECTED_PARTITIONS
from topicledger.actions.kind import ActionKind, Steps
from topicledger.actions.safeguards import Safeguards
from topicledger.actions.showing import CHANGES, Shown, elected
from topicledger.kafka import Response
from topicledger.kafka.reassignments import ELECTION_NOT_NEEDED, TopicState
from topicledger.kafka.sending import Answer
from topicledger.manifests.row_rules import ABSENT
from topicledger.model import (
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
from topicledger.resources.topics.actions.alter_configs import SETTLES_WITHIN
from topicledger.resources.topics.actions.verifying import Verdict, recreated, verify_topics


def partitions_of(target: Target) -> Sequence[int]:
    """Return the partitions whose preferred replica should lead, from `plans.after`, such as `0,3,5`."""
    return [int(each) for each in target.after["partitions"].split(",")]


def preferred_of(target: Target) -> Mapping[int, int]:
    """Return the broker that should lead each partition, from `plans.after`, such as `0:1;3:2`."""
    pairs = (each.split(":") for each in target.after.get("leaders", "").split(";") if each)
    return {int(partition): int(broker) for partition, broker in pairs}


def validate(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Check that the topic is the planned one; the election itself reports preferred replicas that aren't in sync."""
    if not context.admin.elects_leaders:
        message = "this broker is older than Kafka 2.4 and can't elect leaders by request: none is elected"
        yield from (context.refused(target, Phase.VALIDATE, Refusal.BROKER_TOO_OLD, message) for target in targets)
        return
    now, states = datetime.now(UTC), context.topic_states([target.topic for target in targets])
    context.require_planned_cluster()
    for target in targets:
        refusal = not_planned(target, states.get(target.topic))
        if refusal is None:
            yield context.result(target, Phase.VALIDATE, Outcome.OK, Answer(TopicResult(), 1, now, datetime.now(UTC)))
        else:
            yield context.refused(target, Phase.VALIDATE, *refusal)


def changed_since_plan(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Refuse topics that are gone or recreated."""
    states = context.topic_states([target.topic for target in targets])
    context.require_planned_cluster()
    for target in targets:
        refusal = not_planned(target, states.get(target.topic))
        if refusal is not None:
            yield context.refused(target, Phase.APPLY, *refusal)


def recover(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Find topics that their preferred replicas lead. A second election does no harm.

    Pending are topics of which they lead some of the partitions: each is elected separately.
    """
    now, states = datetime.now(UTC), context.topic_states([target.topic for target in targets])
    context.require_planned_cluster()
    for target in targets:
        state = states.get(target.topic)
        if state is None or not_planned(target, state) is not None:
            continue
        answer, led = Answer(TopicResult(), 1, now, datetime.now(UTC)), _led(state)
        if led.issuperset(partitions_of(target)):
            message = "an earlier request of this run elected them"
            yield context.result(target, Phase.APPLY, Outcome.OK, answer, note=Note.RECOVERED, message=message)
        elif not led.isdisjoint(partitions_of(target)):
            yield context.result(target, Phase.APPLY, Outcome.PENDING, answer)


def _led(state: TopicState) -> set[int]:
    """Return the partitions that their preferred replicas lead."""
    return {number for number, each in state.partitions.items() if each.replicas[:1] == (each.leader,)}


def partly_done(context: ClusterContext, targets: Sequence[Target]) -> Mapping[str, str]:
    """List the partitions with and without a preferred leader, since each is elected separately."""
    states = context.topic_states([target.topic for target in targets])
    context.require_planned_cluster()
    return {target.resource: _leaders(target, states.get(target.topic)) for target in targets}


def _leaders(target: Target, state: TopicState | None) -> str:
    if state is None or not_planned(target, state) is not None:
        return "the leaders of its partitions are unknown"
    planned, led = partitions_of(target), _led(state)
    there, missing = (
        ", ".join(str(each) for each in planned if (each in led) is is_led) or "none" for is_led in (True, False)
    )
    return f"preferred replicas lead these of its partitions: {there}; they don't lead these: {missing}"


def apply(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """ElectLeaders; the error ELECTION_NOT_NEEDED (84) counts as ok."""

    def request(asked: Sequence[Target]) -> Response:
        wanted = [(target.topic, each) for target in asked for each in partitions_of(target)]
        answers, throttled = context.admin.elect_leaders(wanted)
        results: dict[str, TopicResult] = {}
        for (topic, partition), each in sorted(answers.items()):
            code = kafka.NONE if each.error_code == ELECTION_NOT_NEEDED else each.error_code
            if topic not in results or results[topic].error_code == kafka.NONE:
                words = None if code == kafka.NONE else f"partition {partition}: {each.error_message or ''}".strip()
                results[topic] = TopicResult(error_code=code, error_message=words)
        return Response(results=results, throttle_time_ms=throttled)

    left, ended = without_withdrawn(context, targets, "elected some leaders of")
    yield from ended
    elect = CheckedRequest(context, partial(_check, context), request)
    for target, answer in context.send_each(left, elect, changes=True):
        if target.topic in elect.refused:
            yield elect.refused[target.topic]
        else:
            yield context.result(target, Phase.APPLY, outcome_of(answer.result.error_code), answer)


def _check(
    context: ClusterContext, targets: Sequence[Target], phase: Phase
) -> Iterator[tuple[Target, PhaseResult | None]]:
    """Yield each target, with a refusal if brokers would elect another leader than the planned one.

    Kafka elects the first replica (KIP-460), which is the planned one only after the move of the same plan. Waits for
    such a move, which becomes visible late (R4). Plans of earlier versions don't name leaders.
    """
    named = [target for target in targets if preferred_of(target)]
    states: Mapping[str, TopicState] = {}
    for _ in context.looks(SETTLES_WITHIN) if named else ():
        states = context.topic_states([target.topic for target in named])
        if not any(_other_preferred(target, states.get(target.topic)) for target in named):
            break
    for target in targets:
        state = states.get(target.topic)
        refusal = (not_planned(target, state) or _other_preferred(target, state)) if target in named else None
        yield target, None if refusal is None else context.refused(target, phase, *refusal)


def _other_preferred(target: Target, state: TopicState | None) -> tuple[Refusal, str] | None:
    """Return why an election would make another broker than the planned one the leader of a partition, or None."""
    partitions = {} if state is None else state.partitions
    for partition, broker in preferred_of(target).items():
        now = partitions[partition].replicas[:1] if partition in partitions else ()
        if now and now != (broker,):
            message = (
                f"an election would make broker {now[0]} the leader of partition {partition}, not broker {broker} as "
                "planned: the topic's replicas weren't moved, or changed since; plan again"
            )
            return Refusal.CHANGED_SINCE_PLAN, message
    return None


def verify(context: ClusterContext, applied: Sequence[tuple[Target, TopicResult]]) -> Iterator[PhaseResult]:
    """Describe topics once."""
    return verify_topics(context, applied, verdict)


def verdict(target: Target, result: TopicResult, info: TopicInfo | None) -> Verdict:
    """The result of acknowledged elections: whether the preferred replicas lead now."""
    if info is not None and info.topic_id != target.topic_id:
        return recreated(info)
    if info is None or any(each in info.other_leaders for each in partitions_of(target)):
        return Outcome.PENDING, kafka.NONE, None, "acknowledged, the preferred replicas don't lead yet"
    return Outcome.OK, kafka.NONE, None, None


def not_declared() -> Column:
    """An election is declared unless its topic is declared absent."""
    return F.when(F.col("now_state") == ABSENT, F.lit("declare it absent"))


KIND = ActionKind(
    name=ReplicaAction.ELECT_LEADERS.value,
    resource_type=TOPIC,
    option="leaders",
    order=6,
    wanted=lambda: F.col("decision") == ReplicaAction.ELECT_LEADERS.value,
    not_declared=not_declared,
    shown=Shown(CHANGES, elected, "led by their preferred replicas"),
    cost=ELECTED_PARTITIONS,
    safeguards=Safeguards(switch="replicas", guard=None, approved_as=()),
    steps=Steps(
        validate=validate,
        changed_since_plan=changed_since_plan,
        recover=recover,
        partly_done=partly_done,
        apply=apply,
        cancel=None,
        verify=verify,
    ),
)
