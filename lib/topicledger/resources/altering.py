"""The steps of an action that alters values of a resource: all that a resource needs goes in one request.

A resource with a value that another client changed since the plan is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from pyspark.sql import functions as F

from topicledger import kafka
from topicledger.actions.checking import CheckedRequest, without_withdrawn
from topicledger.actions.context import ClusterContext, outcome_of
from topicledger.actions.costs import TOUCHED_NAMES
from topicledger.actions.kind import ActionKind, Steps
from topicledger.actions.safeguards import Guard, Safeguards
from topicledger.actions.showing import CHANGES, Shown, changed, value_of
from topicledger.actions.visible import done_within
from topicledger.kafka import ClusterAdmin, Response
from topicledger.kafka.connection import NotListed
from topicledger.kafka.sending import Answer
from topicledger.model import OURS, Note, Outcome, Phase, PhaseResult, Refusal, Target, TopicResult
from topicledger.naming import KindNames
from topicledger.observe.listed import Undescribed
from topicledger.resources import valued
from topicledger.resources.valued import Valued

_SHOWN_WITHIN = 3.0
"""Seconds until brokers show what was altered: thousands of changes need one."""
_TOLD_WITHIN = 3.0
"""Seconds for which a resource is described again if brokers answer an error that may pass."""


class Alter(Protocol):
    """Sends one request that sets the values of `Target.after`, and removes those that only `Target.before` has."""

    def __call__(self, admin: ClusterAdmin, targets: Sequence[Target], *, validate_only: bool) -> Response:
        """With `validate_only` it changes nothing."""


@dataclass(frozen=True, kw_only=True)
class Requests:
    """Requests about the values of a kind's resources."""

    describe: Callable[[ClusterAdmin, Sequence[Target]], Mapping[str, Mapping[str, str] | Undescribed]]
    """Return the values of the targets' resources by `Target.resource`, or why one is unknown; raises NotListed."""
    alter: Alter
    same: Callable[[str, str | None, str | None], bool]
    """Whether two values of a name, each None if it isn't set, are the same."""
    not_permitted: Mapping[int, str]
    """Error codes that mean that this principal may not alter them -> the message, which names what to grant."""


class _Described:
    """The values that resources of some targets have, or why they are unknown."""

    def __init__(self, requests: Requests, context: ClusterContext, targets: Sequence[Target]) -> None:
        self.requested_at = datetime.now(UTC)
        self.unknown: str | None = None
        self._same = requests.same
        self._values: Mapping[str, Mapping[str, str] | Undescribed] = {}
        try:
            for _ in context.looks(_TOLD_WITHIN):
                self._values = context.ask(lambda: requests.describe(context.admin, targets))
                if not any(map(_may_be_told, self._values.values())):
                    break
        except NotListed as error:
            self.unknown = str(error)
        context.require_planned_cluster()

    def undescribed(self, target: Target) -> Undescribed | None:
        """Return why the resource's values are unknown; None if they are known."""
        if self.unknown is not None:
            return Undescribed(error=Refusal.NOT_PERMITTED, message=self.unknown)
        found = self._values.get(target.resource)
        return found if isinstance(found, Undescribed) else None

    def of(self, target: Target) -> Mapping[str, str]:
        """Return the resource's values, of those that the target touches; none if they are unknown."""
        values = self._values.get(target.resource, {})
        if isinstance(values, Undescribed):
            return {}
        return {name: value for name, value in values.items() if name in target.touched}

    def is_done(self, target: Target) -> bool:
        """Return whether the resource has the values that the target sets."""
        found = self.of(target)
        return self.undescribed(target) is None and all(
            self._same(name, found.get(name), target.after.get(name)) for name in target.touched
        )

    def is_partly_done(self, target: Target) -> bool:
        """Return whether the resource has only values that it had or that the target sets, and some of the latter."""
        if self.undescribed(target) is not None or self.foreign(target) is not None:
            return False
        found = self.of(target)
        return any(not self._same(name, found.get(name), target.before.get(name)) for name in target.touched)

    def foreign(self, target: Target) -> str | None:
        """Return which values another client changed since the plan; None if there are none."""
        found, others = self.of(target), []
        for name in sorted(target.touched):
            live, before, after = (values.get(name) for values in (found, target.before, target.after))
            if not (self._same(name, live, before) or self._same(name, live, after)):
                now, then = (value_of(values, name, "not set") for values in (found, target.before))
                others.append(f"{name} is {now}, the plan saw {then}")
        return f"another client changed it since the plan: {'; '.join(others)}; plan again" if others else None

    def answer(self, result: TopicResult | None = None) -> Answer:
        return Answer(result or TopicResult(), 1, self.requested_at, datetime.now(UTC))


def _may_be_told(values: Mapping[str, str] | Undescribed) -> bool:
    return isinstance(values, Undescribed) and values.error is Refusal.NO_ANSWER


def action(
    of: Valued, names: KindNames, requests: Requests, guard: Guard, *, option: str, order: int, unset: str, done: str
) -> ActionKind:
    """Return the action of a valued kind. `unset`: the word for a value that isn't set; `done`: see `Shown`."""
    return ActionKind(
        name=of.action,
        resource_type=names.resource_type,
        option=option,
        order=order,
        wanted=lambda: F.col("decision") == of.action,
        not_declared=lambda: valued.not_declared(of),
        shown=Shown(CHANGES, changed(unset), done),
        cost=TOUCHED_NAMES,
        safeguards=Safeguards(switch=None, guard=guard, approved_as=(names.approved_as,)),
        steps=Steps(
            validate=partial(_validate, requests),
            changed_since_plan=partial(_changed_since_plan, requests),
            recover=partial(_recover, requests),
            partly_done=None,
            apply=partial(_apply, requests),
            cancel=None,
            verify=partial(_verify, requests),
        ),
    )


def _validate(requests: Requests, context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Send the request with validateOnly, which gives the real answers."""
    validate_only = partial(requests.alter, context.admin, validate_only=True)
    for target, answer in context.send_each(targets, validate_only, changes=False):
        code = answer.result.error_code
        if code in requests.not_permitted:
            yield context.refused(target, Phase.VALIDATE, Refusal.NOT_PERMITTED, requests.not_permitted[code])
        else:
            yield context.result(target, Phase.VALIDATE, outcome_of(code), answer)


def _check(
    requests: Requests, context: ClusterContext, targets: Sequence[Target], phase: Phase
) -> Iterator[tuple[Target, PhaseResult | None]]:
    described = _Described(requests, context, targets)
    for target in targets:
        if (unknown := described.undescribed(target)) is not None:
            yield target, context.refused(target, phase, unknown.error, unknown.message)
        elif (foreign := described.foreign(target)) is not None:
            yield target, context.refused(target, phase, Refusal.CHANGED_SINCE_PLAN, foreign)
        else:
            yield target, None


def _changed_since_plan(
    requests: Requests, context: ClusterContext, targets: Sequence[Target]
) -> Iterator[PhaseResult]:
    """Refuse resources whose values another client changed."""
    found = _check(requests, context, targets, Phase.APPLY)
    yield from (refused for _, refused in found if refused is not None)


def _recover(requests: Requests, context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Yield those that are as planned, within the time that brokers need to show them.

    Pending are resources with some of the planned values: they were altered, and another client altered them since.
    """
    observe, left = partial(_Described, requests, context), {target.resource: target for target in targets}
    for target, described in done_within(context, targets, _SHOWN_WITHIN, observe):
        del left[target.resource]
        # That request was only sent while the resource had the values of the plan.
        done = described.answer(TopicResult(before=target.before, after=described.of(target)))
        message = "an earlier request of this run altered it"
        yield context.result(target, Phase.APPLY, Outcome.OK, done, note=Note.RECOVERED, message=message)
    if unseen := [target for target in left.values() if not context.is_open(target)]:
        described = observe(unseen)
        for target in unseen:
            if described.is_partly_done(target):
                yield context.result(target, Phase.APPLY, Outcome.PENDING, described.answer())


def _apply(requests: Requests, context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Send the request, but for resources that another client changed since the plan."""
    request = partial(requests.alter, context.admin, validate_only=False)
    alter = CheckedRequest(context, partial(_check, requests, context), request)
    left, ended = without_withdrawn(context, targets, "altered")
    yield from ended
    for target, answer in context.send_each(left, alter, changes=True):
        if target.resource in alter.refused:
            yield alter.refused[target.resource]
            continue
        if answer.result.error_code == kafka.NONE:
            answer = replace(answer, result=replace(answer.result, before=target.before, after=target.after))
        yield context.result(target, Phase.APPLY, outcome_of(answer.result.error_code), answer)


def _verify(
    requests: Requests, context: ClusterContext, applied: Sequence[tuple[Target, TopicResult]]
) -> Iterator[PhaseResult]:
    """Describe once what was altered; thousands of changes are visible within a second."""
    described = _Described(requests, context, [target for target, _ in applied])
    for target, _ in applied:
        found = described.of(target)
        if (unknown := described.undescribed(target)) is not None:
            yield context.skipped(target, Phase.VERIFY, unknown.message)
        elif described.is_done(target):
            yield context.result(target, Phase.VERIFY, Outcome.OK, described.answer(TopicResult(after=found)))
        elif (foreign := described.foreign(target)) is not None:
            result = TopicResult(error_code=OURS, error_message=foreign, after=found)
            note = Refusal.DIFFERS_FROM_PLAN
            yield context.result(target, Phase.VERIFY, Outcome.FAILED, described.answer(result), note=note)
        else:
            message = "acknowledged, not visible yet"
            yield context.result(target, Phase.VERIFY, Outcome.PENDING, described.answer(), message=message)
