"""alter_configs: IncrementalAlterConfigs (KIP-339; K1 to K9). One request has all changes of a topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger import kafka
from topicledger.actions.checking import CheckedRequest, describe_planned, not_planned, unreadable, without_withdrawn
from topicledger.actions.context import NOT_LISTED, ClusterContext, outcome_of
from topicledger.actions.costs import TOUCHED_NAMES
from topicledger.actions.kind import ActionKind, Steps
from topicledger.actions.safeguards import MAX_CHANGES, Safeguards
from topicledger.actions.showing import changes
from topicledger.config.settings import ChangeSettings
from topicledger.kafka.config_values import by_name, is_set_on_topic, same_value, same_value_column, values_by_name
from topicledger.kafka.sending import Answer
from topicledger.ledger.rows import touched
from topicledger.manifests.row_rules import ABSENT
from topicledger.model import (
    AUTHORIZATION_FAILED,
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
from topicledger.resources.topics.actions.verifying import Verdict, not_described, not_permitted, recreated

SETTLES_WITHIN = 15.0
"""Seconds until brokers show altered configs, *measured* after 10,000 changes (K6)."""


def differences(settings: ChangeSettings) -> Column:
    """struct<before,after> of a topic whose configs need to be altered; else null.

    In: `configs` as declared, `live_configs`, null if unknown. A value that the topic has by the broker's default is
    not set unless `pin` is on; a sensitive one is unknown, so it is never altered, and nor is one that is read-only.
    """
    ignored = F.array(*map(F.lit, settings.ignore)).cast("array<string>")

    def to_set(live_by_name: Column, name: Column, value: Column) -> Column:
        live = live_by_name[name]
        same = F.coalesce(same_value_column(name, value, live["value"]), F.lit(False))
        fine = same & (live["config_source"] == SET_ON_TOPIC) if settings.pin else same
        fixed = F.coalesce(live["is_sensitive"], F.lit(False)) | F.coalesce(live["read_only"], F.lit(False))
        return ~fine & ~fixed & ~F.array_contains(ignored, name)

    nothing = F.create_map().cast("map<string,string>")
    after = _once(by_name("live_configs"), lambda live: F.map_filter("configs", partial(to_set, live)))
    declared = F.coalesce(F.map_keys("configs"), F.array().cast("array<string>"))

    def replaced(after: Column, each: Column) -> Column:
        mine = F.array_contains(F.map_keys(after), each["name"])
        if settings.configs == "exact":
            mine |= ~F.array_contains(declared, each["name"]) & ~F.array_contains(ignored, each["name"])
        return mine & is_set_on_topic(each) & ~F.coalesce(each["read_only"], F.lit(False))

    def change(after: Column) -> Column:
        before = values_by_name(F.filter("live_configs", partial(replaced, after)))
        either = (F.size(before) > 0) | (F.size(after) > 0)
        return F.when(either, F.struct(before.alias("before"), after.alias("after")))

    return F.when(F.col("live_configs").isNotNull(), _once(F.coalesce(after, nothing), change))


def _once(value: Column, use: Callable[[Column], Column]) -> Column:
    """`use(value)`, with the value computed once per row, not for each element that a lambda in `use` reads."""
    return F.transform(F.array(value), use)[0]


def afterwards() -> Column:
    """A topic's configs by name after `alters`, without those that are reset (map<string,string>)."""
    others = F.filter(
        "live_configs",
        lambda each: (
            ~F.array_contains(F.map_keys("alters.before"), each["name"])
            & ~F.array_contains(F.map_keys("alters.after"), each["name"])
        ),
    )
    return F.map_concat(values_by_name(others), F.col("alters.after"))


def validate(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """IncrementalAlterConfigs with validateOnly (K1)."""
    if not context.admin.alters_incrementally:
        message = "this broker is older than Kafka 2.3 and can only replace all configs of a topic: nothing is altered"
        yield from (context.refused(target, Phase.VALIDATE, Refusal.BROKER_TOO_OLD, message) for target in targets)
        return
    validate_only = partial(context.admin.alter_configs, validate_only=True)
    for target, answer in context.send_each(targets, validate_only, changes=False):
        yield context.result(target, Phase.VALIDATE, outcome_of(answer.result.error_code), answer)


def changed_since_plan(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Refuse topics on which another client changed the planned configs."""
    yield from (refused for _, refused in _Reader(context).check(targets, Phase.APPLY) if refused is not None)


def recover(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Find topics that are as planned. Altering twice does no harm, so changes not visible by then are sent again.

    Pending are topics with some of the planned values: they were altered, and another client altered them since.
    """
    left, deadline = list(targets), context.clock() + SETTLES_WITHIN
    while left:
        reader, requested_at, waiting = _Reader(context), datetime.now(UTC), []
        partly: list[Target] = []
        for target, refused in reader.check(left, Phase.APPLY):
            if refused is None and not _other_values(target, reader.found[target.topic], target.after):
                # That request was only sent while the topic had the values of the plan.
                result = TopicResult(before=target.before, after=reader.found[target.topic])
                message = "an earlier request of this run altered them"
                answer = Answer(result, 1, requested_at, datetime.now(UTC))
                yield context.result(target, Phase.APPLY, Outcome.OK, answer, note=Note.RECOVERED, message=message)
            else:
                waiting.append(target)
                if refused is None and _other_values(target, reader.found[target.topic], target.before):
                    partly.append(target)
        left = waiting
        if context.clock() >= deadline:
            unknown = Answer(TopicResult(), 1, requested_at, datetime.now(UTC))
            yield from (context.result(target, Phase.APPLY, Outcome.PENDING, unknown) for target in partly)
            return
        if left:
            context.wait(context.retry_policy.first_backoff)


def apply(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """IncrementalAlterConfigs; changes of configs that another client changed since the plan are refused."""
    reader = _Reader(context)
    alter = CheckedRequest(context, reader.check, partial(context.admin.alter_configs, validate_only=False))
    left, ended = without_withdrawn(context, targets, "altered")
    yield from ended
    for target, answer in context.send_each(left, alter, changes=True):
        if target.topic in alter.refused:
            yield alter.refused[target.topic]
            continue
        done = answer.result.error_code == kafka.NONE
        result = replace(answer.result, before=reader.found[target.topic], after=target.after if done else None)
        yield context.result(target, Phase.APPLY, outcome_of(answer.result.error_code), replace(answer, result=result))


class _Reader:
    """Reads the configs that changes touch, as set on topics, and compares them with the plan."""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context
        self.found: dict[str, Mapping[str, str]] = {}
        """Topic -> its configs as first read."""

    def check(self, targets: Sequence[Target], phase: Phase) -> Iterator[tuple[Target, PhaseResult | None]]:
        """Yield each target, with its refusal if its topic, or its configs, are not as planned."""
        context, names = self._context, {target.topic: target.touched for target in targets}
        live = describe_planned(context, targets, partial(context.admin.alter_configs, validate_only=True))
        readable = [name for name in names if name in live and live[name].permitted]
        described = context.configs_when_listed(readable, names)
        context.require_planned_cluster()
        for target in targets:
            if context.is_open(target):
                continue
            refusal = not_planned(target, live.get(target.topic))
            if refusal is None:
                if target.topic not in described:
                    context.leave_open(target, NOT_LISTED)
                    continue
                found = described[target.topic]
                refusal = unreadable(found) if found.configs is None else self._compared(target, found.configs)
            yield target, None if refusal is None else context.refused(target, phase, *refusal)

    def _compared(self, target: Target, configs: Sequence[ConfigEntry]) -> tuple[Refusal, str] | None:
        found = _set_on_topic(target, configs)
        self.found.setdefault(target.topic, found)
        others = _other_values(target, found, target.before, target.after)
        if not others:
            return None
        return Refusal.CHANGED_SINCE_PLAN, f"another client changed it since the plan: {'; '.join(others)}; plan again"


def _set_on_topic(target: Target, configs: Sequence[ConfigEntry]) -> Mapping[str, str]:
    return {
        each.name: str(each.value)
        for each in configs
        if each.config_source == SET_ON_TOPIC and each.name in target.touched and not each.is_sensitive
    }


def _other_values(target: Target, found: Mapping[str, str], *expected: Mapping[str, str]) -> Sequence[str]:
    """Configs of a change that have none of the expected values; a name missing from one of these may be unset."""
    others = []
    for name in sorted(target.touched):
        live = found.get(name)
        if not any(
            same_value(name, live, each[name]) if name in each and live is not None else live == each.get(name)
            for each in expected
        ):
            planned = target.before.get(name, "not set")
            others.append(f"{name} is {'not set' if live is None else live}, the plan saw {planned}")
    return others


def verify(context: ClusterContext, applied: Sequence[tuple[Target, TopicResult]]) -> Iterator[PhaseResult]:
    """Describe the altered configs once."""
    requested_at = datetime.now(UTC)
    names = {target.topic: target.touched for target, _ in applied}
    live = context.describe(list(names))
    described = context.describe_configs([name for name in names if name in live], names)
    for target, _ in applied:
        info, each = live.get(target.topic), described.get(target.topic)
        if each is not None and each.error_code == kafka.UNKNOWN_TOPIC_OR_PARTITION:
            # The describe reached a different broker, which doesn't list it yet.
            info = None
        found = None if each is None or each.configs is None else _set_on_topic(target, each.configs)
        outcome, error_code, note, message = verdict(target, info, found)
        if (
            outcome is Outcome.SKIPPED
            and each is not None
            and each.error_code not in (kafka.NONE, *AUTHORIZATION_FAILED)
        ):
            error_code, (note, message) = OURS, unreadable(each)
        result = TopicResult(error_code=error_code, error_message=message, after=found)
        yield context.result(
            target, Phase.VERIFY, outcome, Answer(result, 1, requested_at, datetime.now(UTC)), note=note
        )


def verdict(target: Target, info: TopicInfo | None, found: Mapping[str, str] | None) -> Verdict:
    """The result of acknowledged changes, by the topic's configs now; they are visible late (K6)."""
    if info is None:
        return Outcome.PENDING, kafka.NONE, None, "acknowledged, and not listed now"
    if not info.permitted:
        return not_described(info)
    if found is None:
        return not_permitted("DescribeConfigs")
    if info.topic_id != target.topic_id:
        return recreated(info)
    if not _other_values(target, found, target.after):
        return Outcome.OK, kafka.NONE, None, None
    others = _other_values(target, found, target.before, target.after)
    if others:
        return Outcome.FAILED, OURS, Refusal.DIFFERS_FROM_PLAN, f"another client changed it since: {'; '.join(others)}"
    return Outcome.PENDING, kafka.NONE, None, "acknowledged, not visible yet"


def not_declared() -> Column:
    """A change is declared if its topic is declared present with the configs that it sets, without those it resets."""

    def differs(name: Column) -> Column:
        now, planned = F.col("now_configs")[name], F.col("after")[name]
        return ~F.coalesce(same_value_column(name, now, planned), now.isNull() & planned.isNull())

    others = F.filter(touched(), differs)
    return F.when(F.col("now_state") == ABSENT, F.lit("declare it absent")).when(
        F.size(others) > 0, F.concat(F.lit("declare it with other configs: "), F.array_join(F.array_sort(others), ", "))
    )


KIND = ActionKind(
    name=Action.ALTER_CONFIGS.value,
    resource_type=TOPIC,
    option="configs",
    order=4,
    wanted=lambda: F.col("decision") == Action.ALTER_CONFIGS.value,
    not_declared=not_declared,
    shown=changes("given other configs"),
    cost=TOUCHED_NAMES,
    safeguards=Safeguards(switch="configs", guard=MAX_CHANGES, approved_as=()),
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
