"""alter_quota: AlterClientQuotas (KIP-546, Q1 to Q4). One request has all changes of an entity.

Each entity, and each of its limits, is in a request only once: Kafka applies the first and refuses the second (Q3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger import kafka
from topicledger.actions.checking import CheckedRequest
from topicledger.actions.context import ClusterContext, outcome_of
from topicledger.actions.costs import TOUCHED_NAMES
from topicledger.actions.kind import ActionKind, Steps
from topicledger.actions.safeguards import Guard, Safeguards
from topicledger.actions.showing import CHANGES, Shown, changed
from topicledger.actions.shown import done_within
from topicledger.kafka.connection import CLUSTER_AUTHORIZATION_FAILED, NotListed
from topicledger.kafka.sending import Answer
from topicledger.ledger.rows import touched
from topicledger.model import (
    OURS,
    Note,
    Outcome,
    Phase,
    PhaseResult,
    Refusal,
    Target,
    TopicResult,
)
from topicledger.resources.quotas import requests
from topicledger.resources.quotas.entity import Entity
from topicledger.resources.quotas.names import NAMES, QuotaAction, QuotaRefusal
from topicledger.text import number_text

_SHOWN_WITHIN = 3.0
"""Seconds until brokers show altered quotas: thousands of changes need one."""


class _Described:
    """The cluster's quotas; `unknown` is the reason if they may not be described."""

    def __init__(self, context: ClusterContext) -> None:
        self.requested_at = datetime.now(UTC)
        self.unknown: str | None = None
        self._quotas: Mapping[Entity, Mapping[str, float]] = {}
        try:
            self._quotas = context.ask(lambda: requests.describe_quotas(context.admin))
        except NotListed as error:
            self.unknown = str(error)
        context.require_planned_cluster()

    def of(self, target: Target) -> Mapping[str, str]:
        """Return the entity's current limits among those that the target touches."""
        limits = self._quotas.get(Entity.of_text(target.resource), {})
        return {name: number_text(value) for name, value in limits.items() if name in target.touched}

    def is_done(self, target: Target) -> bool:
        """Return whether the entity has the limits that the target sets."""
        return _same(self.of(target), target.after)

    def answer(self, result: TopicResult | None = None) -> Answer:
        return Answer(result or TopicResult(), 1, self.requested_at, datetime.now(UTC))


def _same(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return {name: float(value) for name, value in one.items()} == {name: float(each) for name, each in other.items()}


def _foreign(target: Target, found: Mapping[str, str]) -> str | None:
    """Return why live limits have neither the previous nor the planned value; None if each has one of them."""
    others = []
    for name in sorted(target.touched):
        live, before, after = (values.get(name) for values in (found, target.before, target.after))
        if (live and float(live)) not in [value and float(value) for value in (before, after)]:
            others.append(f"{name} is {live or 'not set'}, the plan saw {before or 'not set'}")
    return f"another client changed it since the plan: {'; '.join(others)}; plan again" if others else None


def validate(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """AlterClientQuotas with validateOnly, which returns the real answers (Q1)."""
    validate_only = partial(requests.alter_quotas, context.admin, validate_only=True)
    for target, answer in context.send_each(targets, validate_only, changes=False):
        if answer.result.error_code == CLUSTER_AUTHORIZATION_FAILED:
            yield context.refused(target, Phase.VALIDATE, Refusal.NOT_PERMITTED, requests.NO_ALTER)
        else:
            yield context.result(target, Phase.VALIDATE, outcome_of(answer.result.error_code), answer)


def _check(
    context: ClusterContext, targets: Sequence[Target], phase: Phase
) -> Iterator[tuple[Target, PhaseResult | None]]:
    described = _Described(context)
    for target in targets:
        if described.unknown is not None:
            yield target, context.refused(target, phase, Refusal.NOT_PERMITTED, described.unknown)
        elif (foreign := _foreign(target, described.of(target))) is not None:
            yield target, context.refused(target, phase, Refusal.CHANGED_SINCE_PLAN, foreign)
        else:
            yield target, None


def changed_since_plan(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Refuse entities whose limits another client changed."""
    yield from (refused for _, refused in _check(context, targets, Phase.APPLY) if refused is not None)


def recover(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Find entities that are as planned, within the time that brokers need to show them."""
    for target, described in done_within(context, targets, _SHOWN_WITHIN, lambda _: _Described(context)):
        done = described.answer(TopicResult(after=described.of(target)))
        message = "an earlier request of this run altered it"
        yield context.result(target, Phase.APPLY, Outcome.OK, done, note=Note.RECOVERED, message=message)


def apply(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """AlterClientQuotas; entities that another client changed since the plan are refused."""
    alter = CheckedRequest(
        context, partial(_check, context), partial(requests.alter_quotas, context.admin, validate_only=False)
    )
    for target, answer in context.send_each(targets, alter, changes=True):
        if target.resource in alter.refused:
            yield alter.refused[target.resource]
            continue
        if answer.result.error_code == kafka.NONE:
            answer = replace(answer, result=replace(answer.result, before=target.before, after=target.after))
        yield context.result(target, Phase.APPLY, outcome_of(answer.result.error_code), answer)


def verify(context: ClusterContext, applied: Sequence[tuple[Target, TopicResult]]) -> Iterator[PhaseResult]:
    """Describe the altered entities once; thousands of changes are visible within a second."""
    described = _Described(context)
    for target, _ in applied:
        found = described.of(target)
        if described.unknown is not None:
            yield context.skipped(target, Phase.VERIFY, described.unknown)
        elif described.is_done(target):
            yield context.result(target, Phase.VERIFY, Outcome.OK, described.answer(TopicResult(after=found)))
        elif (foreign := _foreign(target, found)) is not None:
            result = TopicResult(error_code=OURS, error_message=foreign, after=found)
            note = Refusal.DIFFERS_FROM_PLAN
            yield context.result(target, Phase.VERIFY, Outcome.FAILED, described.answer(result), note=note)
        else:
            message = "acknowledged, not visible yet"
            yield context.result(target, Phase.VERIFY, Outcome.PENDING, described.answer(), message=message)


def not_declared() -> Column:
    """A change is declared if its entity is declared with the limits that it sets, without those that it removes.

    In: `now_limits`, the declared limits as text by name.
    """
    others = F.filter(touched(), lambda name: ~F.col("now_limits")[name].eqNullSafe(F.col("after")[name]))
    return F.when(
        F.size(others) > 0, F.concat(F.lit("declare other limits of it: "), F.array_join(F.array_sort(others), ", "))
    )


MAX_QUOTA_CHANGES = Guard(
    setting="max_quota_changes",
    error=QuotaRefusal.MAX_QUOTA_CHANGES_EXCEEDED,
    counted="planned quota changes of this cluster",
)

KIND = ActionKind(
    name=QuotaAction.ALTER_QUOTA.value,
    resource_type=NAMES.resource_type,
    option="quotas",
    order=9,
    wanted=lambda: F.col("decision") == QuotaAction.ALTER_QUOTA.value,
    not_declared=not_declared,
    shown=Shown(CHANGES, changed("none"), "given other quotas"),
    cost=TOUCHED_NAMES,
    safeguards=Safeguards(switch=None, guard=MAX_QUOTA_CHANGES, approved_as=("rights",)),
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
