"""create: CreateTopics (C1 to C21)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger import kafka
from topicledger.actions.checking import look_for, undescribed, unreadable
from topicledger.actions.context import NOT_LISTED, ClusterContext, outcome_of
from topicledger.actions.costs import WHOLE_TOPIC
from topicledger.actions.kind import DECLARED, ActionKind, Steps
from topicledger.actions.safeguards import Safeguards
from topicledger.actions.showing import ADDS, Shown, created
from topicledger.kafka.config_values import same_value
from topicledger.kafka.sending import Answer, NoOutcome
from topicledger.model import (
    OURS,
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
    TopicInfo,
    TopicResult,
)
from topicledger.model.renames import REPLACES
from topicledger.resources.topics.actions.declared import declared_differently
from topicledger.resources.topics.actions.verifying import Verdict, recreated, verify_topics


def validate(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """CreateTopics with validateOnly (C5).

    An existing topic that this tool created, and has not been told to delete since, is unchanged, whatever the listing
    says (C21, M3).
    """
    sendable: list[Target] = []
    for target in targets:
        refusal = _needs_counts(context, target)
        if refusal is None:
            sendable.append(target)
        else:
            yield refusal
    validate_only = partial(context.admin.create_topics, validate_only=True)
    existing: list[tuple[Target, Answer]] = []
    for target, answer in context.send_each(sendable, validate_only, changes=False):
        if answer.result.error_code == kafka.TOPIC_ALREADY_EXISTS:
            existing.append((target, answer))
        else:
            yield _validated(context, target, answer, ours=False)
    if existing:
        ours = context.created_by([target.topic for target, _ in existing])
        for target, answer in existing:
            yield _validated(context, target, answer, ours=target.topic in ours)


def _needs_counts(context: ClusterContext, target: Target) -> PhaseResult | None:
    counted = target.num_partitions is not None and target.replication_factor is not None
    if counted or target.assignments or context.admin.has_default_counts:
        return None
    return context.refused(
        target,
        Phase.VALIDATE,
        Refusal.COUNTS_REQUIRED,
        "this broker is older than Kafka 2.4 and has no defaults: give num_partitions and replication_factor",
    )


def _validated(context: ClusterContext, target: Target, answer: Answer, *, ours: bool) -> PhaseResult:
    result = answer.result
    if result.error_code == kafka.NONE and not context.admin.returns_configs:
        context.warn_once("no configs", "the broker is too old to return what it created a topic with")
    if result.error_code == kafka.TOPIC_ALREADY_EXISTS and ours:
        return context.result(
            target,
            Phase.VALIDATE,
            Outcome.SKIPPED,
            answer,
            message="created by an earlier run and not listed yet, or not visible to this principal: unchanged",
        )
    return context.result(target, Phase.VALIDATE, outcome_of(result.error_code), answer)


def changed_since_plan(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Skip topics that appeared since the plan and are as planned, and refuse those that are not.

    Topics that an earlier start may have sent are left to `recover`.
    """
    live = context.describe([target.topic for target in targets if not target.maybe_sent])
    appeared = [(target, live[target.topic]) for target in targets if target.topic in live]
    permitted = [(target, info) for target, info in appeared if info.permitted]
    if not permitted:
        return
    names = [target.topic for target, _ in permitted]
    configs = context.describe_configs(names)
    context.require_planned_cluster()
    makers, validated = context.created_by(names), context.validated(names)
    for target, info in permitted:
        maker, made = makers.get(target.topic), "another client created it"
        # Without an id, it may be a topic that another client created after it had deleted the run's.
        if maker is not None and maker.topic_id is not None and maker.topic_id == info.topic_id:
            made = f"run {maker.run_id} created it"
        found = configs.get(target.topic)
        difference = (
            "its configs can't be read"
            if found is None or found.configs is None
            else difference_from_validated(target, validated.get(target.topic), info, found.configs)
        )
        if difference is None:
            yield context.skipped(target, Phase.APPLY, f"the topic exists as planned: {made} since the plan")
        else:
            message = f"the topic appeared since the plan and is not as planned: {difference}; {made}; plan again"
            yield context.refused(target, Phase.APPLY, Refusal.CHANGED_SINCE_PLAN, message)


def recover(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Find topics that an earlier request created (C18), by validateOnly on the controller: a listing lags (C21).

    A topic without an outcome by the controller is looked for in the brokers' listing.
    """
    validate_only = partial(context.admin.create_topics, validate_only=True)
    silent: dict[str, NoOutcome] = {}
    answers = list(context.send_each(targets, validate_only, changes=False, silent=silent))
    # Responses of a different cluster prove nothing, even if they yield nothing.
    context.require_planned_cluster()
    yield from _recovered(
        context, [pair for pair in answers if pair[1].result.error_code == kafka.TOPIC_ALREADY_EXISTS]
    )

    # The controller checks the right to create before it looks for the topic.
    words = "this principal may not create the topic any more"
    silent |= {
        target.topic: NoOutcome(last=answer, told=True, why=words, by_itself=True)
        for target, answer in answers
        if answer.result.error_code == kafka.TOPIC_AUTHORIZATION_FAILED
    }

    def compared(listed: Sequence[tuple[Target, NoOutcome, TopicInfo]]) -> Iterator[PhaseResult]:
        return _recovered(context, [(target, without.last) for target, without, _ in listed])

    yield from look_for(context, targets, silent, "created", compared)


def apply(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """CreateTopics; existing topics are compared with the plan.

    Without an earlier request of this run, this one may have created them: a broker repeats it by itself if the
    controller that carried it out goes down. Nobody can tell, so such a topic is skipped if it is as planned (C18).
    """
    create = partial(context.admin.create_topics, validate_only=False)
    existing: list[tuple[Target, Answer]] = []
    for target, answer in context.send_each(targets, create, changes=True):
        if answer.result.error_code == kafka.TOPIC_ALREADY_EXISTS:
            existing.append((target, answer))
        else:
            yield context.result(target, Phase.APPLY, outcome_of(answer.result.error_code), answer)
    yield from _recovered(context, existing)


_BY_WHOM = (
    "the topic exists as planned: this request created it, if the broker repeated it to another controller, or another "
    "client did since the plan"
)


def _recovered(context: ClusterContext, existing: Sequence[tuple[Target, Answer]]) -> Iterator[PhaseResult]:
    """Results for topics that exist after our own request may have been carried out: RECOVERED if they match (C18).

    They are compared with the plan and with the values that validateOnly resolved. Undescribable ones have failed.
    """
    if not existing:
        return
    names = [target.topic for target, _ in existing]
    live = context.describe_when_listed(names)
    configs = context.configs_when_listed([name for name, info in live.items() if info.permitted])
    context.require_planned_cluster()
    validated = context.validated(names)
    for target, answer in existing:
        info = live.get(target.topic)
        if info is None or (info.permitted and target.topic not in configs):
            context.leave_open(target, NOT_LISTED)
            continue
        described = configs.get(target.topic)
        found = None if described is None else described.configs
        difference = (
            None if found is None else difference_from_validated(target, validated.get(target.topic), info, found)
        )
        if not info.permitted or described is None or found is None:
            _, why = undescribed(info) if described is None else unreadable(described)
            message = (
                "the topic exists, and it isn't known whether an earlier request of this run created it: "
                f"{why}, and plan again"
            )
        elif difference is not None:
            message = f"the topic exists and is not as planned: {difference}"
        elif answer.maybe_done:
            message = "an earlier request of this run created it; its partitions and configs were described"
        else:
            # It may be another client's, which a later run must not delete as ours.
            yield context.skipped(target, Phase.APPLY, _BY_WHOM)
            continue
        ours = found is not None and difference is None
        result = TopicResult(
            error_code=kafka.NONE if ours else answer.result.error_code,
            error_message=answer.result.error_message,
            topic_id=info.topic_id if info.permitted else None,
            num_partitions=info.num_partitions if info.permitted else None,
            replication_factor=info.replication_factor if info.permitted else None,
            configs=found,
            topic_config_error_code=kafka.TOPIC_AUTHORIZATION_FAILED if described is None else described.error_code,
        )
        again = Answer(result, answer.attempt, answer.requested_at, datetime.now(UTC))
        if ours:
            yield context.result(target, Phase.APPLY, Outcome.OK, again, note=Note.RECOVERED, message=message)
        else:
            yield context.result(target, Phase.APPLY, Outcome.FAILED, again, message=message)


def difference_from_validated(
    target: Target, validated: TopicResult | None, info: TopicInfo, configs: Sequence[ConfigEntry]
) -> str | None:
    """How a live topic differs from the plan and from what validateOnly resolved, or None.

    `configs`: all configs of the live topic. One that is set on it but isn't planned is a difference, too.
    """
    if validated is not None and target.assignments is None:
        # validateOnly returns no counts if the broker is too old or the principal may not see them (C10, C11).
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


def difference_from_plan(target: Target, info: TopicInfo, configs: Mapping[str, str | None] | None) -> str | None:
    """How a live topic differs from the plan, or None; values that the plan leaves to the broker always match.

    `configs`: the live values by name, or None if they can't be read: then they aren't compared.
    """
    differences = []
    if target.assignments is not None and dict(info.assignments) != dict(target.assignments):
        differences.append("assignments differ")
    for name in ("num_partitions", "replication_factor"):
        wanted, live = getattr(target, name), getattr(info, name)
        if wanted is not None and wanted != live:
            differences.append(f"{name} is {live}, planned {wanted}")
    for name, value in sorted(target.configs.items()):
        # A sensitive value is null, so it can't be compared.
        if configs is not None and (name not in configs or same_value(name, value, configs[name]) is False):
            differences.append(f"{name} is {configs.get(name, 'not set')}, planned {value}")
    return "; ".join(differences) or None


def verify(context: ClusterContext, applied: Sequence[tuple[Target, TopicResult]]) -> Iterator[PhaseResult]:
    """Describe topics once."""
    return verify_topics(context, applied, verdict)


def verdict(target: Target, result: TopicResult, info: TopicInfo | None) -> Verdict:
    """How an acknowledged create turned out (C10, C21, M2)."""
    if info is None:
        return Outcome.PENDING, kafka.NONE, None, "acknowledged, not listed yet"
    if result.topic_id is not None and info.topic_id is not None and info.topic_id != result.topic_id:
        return recreated(info)
    if info.leaderless or (result.num_partitions is not None and info.num_partitions < result.num_partitions):
        return Outcome.PENDING, kafka.NONE, None, "acknowledged, not every partition has a leader yet"
    difference = difference_from_plan(target, info, None)
    if difference is not None:
        return Outcome.FAILED, OURS, Refusal.DIFFERS_FROM_PLAN, difference
    return Outcome.OK, kafka.NONE, None, None


def not_declared() -> Column:
    """A create is declared if its topic is declared present with the same values.

    A topic that replaces another got that one's values where the manifest has none.
    """
    return declared_differently((*DECLARED, REPLACES), inherits=F.col("before")[REPLACES].isNotNull())


KIND = ActionKind(
    name=Action.CREATE.value,
    resource_type=TOPIC,
    option="creates",
    order=2,
    wanted=lambda: F.col("decision") == Action.CREATE.value,
    not_declared=not_declared,
    shown=Shown(ADDS, created, "created"),
    cost=WHOLE_TOPIC,
    safeguards=Safeguards(switch=None, guard=None, approved_as=()),
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
