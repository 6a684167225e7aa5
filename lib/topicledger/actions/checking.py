"""Requests that name topics, compared with the plan right before they are sent: differing topics are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from topicledger import kafka
from topicledger.actions.context import NOT_LISTED, ClusterContext
from topicledger.kafka import Response, error_name
from topicledger.kafka.reassignments import TopicState
from topicledger.kafka.sending import NoOutcome, is_too_large, may_be_done
from topicledger.model import (
    AUTHORIZATION_FAILED,
    Outcome,
    Phase,
    PhaseResult,
    Refusal,
    Target,
    TopicConfigs,
    TopicInfo,
    TopicResult,
)

Check: TypeAlias = Callable[[Sequence[Target], Phase], Iterator[tuple[Target, PhaseResult | None]]]
"""Yields each target, with its refusal if its topic is not as planned; changes nothing. Targets that an earlier request
may have changed have `maybe_sent`. A target that it leaves open isn't yielded."""

_NOT_SENT = TopicResult(error_code=kafka.INVALID_REQUEST)


class CheckedRequest:
    """A request for `ClusterContext.send`; parts that the cluster's pace makes of a batch are checked one by one."""

    def __init__(self, context: ClusterContext, check: Check, request: Callable[[Sequence[Target]], Response]) -> None:
        self._context = context
        self._check = check
        self._request = request
        self._maybe_done: set[str] = set()
        self.refused: dict[str, PhaseResult] = {}
        """Topic -> row of a target that was not sent, or not sent again."""
        self._unknown: set[str] = set()
        """Topics that can't be checked: they aren't sent, and their outcome is unknown."""

    def __call__(self, targets: Sequence[Target]) -> Response:
        ready: list[Target] = []
        asked = [
            replace(each, maybe_sent=each.maybe_sent or each.topic in self._maybe_done)
            for each in targets
            if each.topic not in self.refused and each.topic not in self._unknown
        ]
        for target, refused in self._check(asked, Phase.APPLY) if asked else ():
            if refused is None:
                ready.append(target)
            else:
                self.refused[target.topic] = never_unsent(refused)
        self._unknown |= {each.topic for each in asked} - {each.topic for each in ready} - self.refused.keys()
        not_sent = {target.topic: _NOT_SENT for target in targets if target.topic in self.refused}
        if not ready:
            return Response(results=not_sent, throttle_time_ms=0)
        # Comparing took time.
        require_ours(self._context)
        earlier = set(self._maybe_done)
        self._maybe_done.update(target.topic for target in ready)
        response = self._request(ready)
        if response.results and all(is_too_large(each) for each in response.results.values()):
            # Nothing was done: it is sent again in smaller requests, each of them checked again.
            self._maybe_done = earlier
            return response
        # A later response doesn't show the outcome of an earlier request.
        self._maybe_done -= {topic for topic, each in response.results.items() if not may_be_done(each)} - earlier
        return Response(results=not_sent | dict(response.results), throttle_time_ms=response.throttle_time_ms)


def require_ours(context: ClusterContext) -> None:
    """Raise WrongCluster, or what `may_send` raises, before a request that follows slow steps or another request.

    Meanwhile, a different cluster may answer, or another run may hold the lease.
    """
    context.require_planned_cluster()
    context.may_send()


def never_unsent(ended: PhaseResult) -> PhaseResult:
    """Refused means that nothing was sent: a target that an earlier request may have changed fails instead."""
    if ended.outcome is not Outcome.REFUSED or not ended.target.maybe_sent:
        return ended
    words = f"{ended.error_message}; the answer to an earlier request for it was lost, which may have changed it"
    return replace(ended, outcome=Outcome.FAILED, error_message=words)


def without_withdrawn(
    context: ClusterContext, targets: Sequence[Target], done: str
) -> tuple[Sequence[Target], Sequence[PhaseResult]]:
    """Return the targets that may be sent, and rows of the others, of which an earlier start may have done something.

    `done`: what the earlier start may have done to them, such as "deleted".
    """
    left: list[Target] = []
    ended: list[PhaseResult] = []
    for target in targets:
        why = context.limits.moving.withdrawn.get((target.action, target.resource))
        if why is None or not target.maybe_sent:
            left.append(target)
            continue
        words = f"{why.message}; an earlier start may have {done} it, which can't be known"
        ended.append(replace(context.refused(target, Phase.APPLY, why.error, words), outcome=Outcome.FAILED))
    return left, ended


def describe_planned(
    context: ClusterContext, targets: Sequence[Target], validate_only: Callable[[Sequence[Target]], Response]
) -> dict[str, TopicInfo]:
    """Describe topics by name; returns those that exist.

    A topic that an earlier request may have changed only counts as deleted if the controller says so, by
    `validate_only`: a listing lags (C21). If it stays unlisted, it is left open, unless the controller answers only
    errors about it: it then counts as a topic that isn't described.
    """
    live = context.describe([target.topic for target in targets])
    unlisted = [target for target in targets if target.maybe_sent and target.topic not in live]
    silent: dict[str, NoOutcome] = {}
    gone = {
        target.topic
        for target, answer in context.send_each(unlisted, validate_only, changes=False, silent=silent)
        if answer.result.error_code == kafka.UNKNOWN_TOPIC_OR_PARTITION
    }
    there = [target for target in unlisted if target.topic not in gone]
    if there:
        live |= context.describe_when_listed([target.topic for target in there])
    for target in there:
        without = silent.get(target.topic)
        if target.topic in live:
            continue
        if without is not None and without.by_itself:
            live[target.topic] = TopicInfo(topic=target.topic, permitted=False, unknown=without.why)
        else:
            context.leave_open(target, NOT_LISTED if without is None else without.why)
    return live


def look_for(
    context: ClusterContext,
    targets: Sequence[Target],
    silent: Mapping[str, NoOutcome],
    done: str,
    if_listed: Callable[[Sequence[tuple[Target, NoOutcome, TopicInfo]]], Iterator[PhaseResult]],
) -> Iterator[PhaseResult]:
    """Results for topics without an outcome by the controller: brokers' listing is all that is left.

    If the controller answers about other targets, listed topics have the results of `if_listed`, and the others have
    failed; otherwise all stay open. `done`: the verb of an earlier request, such as "created".
    """
    found = _by_themselves(context, targets, silent)
    if not found:
        return
    live = context.describe_when_listed([target.topic for target, _ in found])
    context.require_planned_cluster()
    listed: list[tuple[Target, NoOutcome, TopicInfo]] = []
    for target, without in found:
        info = live.get(target.topic)
        if info is not None and info.permitted:
            listed.append((target, without, info))
        else:
            yield _never_known(context, target, without, info, done)
    yield from if_listed(listed)


def _by_themselves(
    context: ClusterContext, targets: Sequence[Target], silent: Mapping[str, NoOutcome]
) -> list[tuple[Target, NoOutcome]]:
    """Return the targets without an outcome although the cluster answers about others; leave the other ones open."""
    found: list[tuple[Target, NoOutcome]] = []
    for target in targets:
        without = silent.get(target.resource)
        if without is not None and without.by_itself:
            found.append((target, without))
        elif without is not None:
            context.leave_open(target, without.why)
    return found


def _never_known(
    context: ClusterContext, target: Target, without: NoOutcome, info: TopicInfo | None, done: str
) -> PhaseResult:
    """Make the row of a change whose outcome neither the controller nor a description of its topic shows.

    It ends as failed: asking once more would keep the run open for good. The row doesn't say that nothing was done,
    since a listing proves no absence (C21).
    """
    unlisted = f"brokers don't list it after {context.retry_policy.visibility:g} s"
    conclusion = (
        f"this doesn't tell whether an earlier request of this run {done} the topic, and "
        f"{unlisted if info is None else undescribed(info)[1]}: look for the error in the controller's log; "
        "the next plan shows whether the topic exists"
    )
    return context.without_outcome(target, Phase.APPLY, without, conclusion)


def undescribed(topic: TopicInfo | TopicState) -> tuple[Refusal, str]:
    """Return why brokers don't describe a topic, which may or may not exist."""
    if topic.unknown is None:
        return Refusal.NOT_PERMITTED, "this principal may not describe the topic any more; grant it Describe"
    return Refusal.NO_ANSWER, f"brokers answer {topic.unknown} about the topic; look for it in their logs"


def unreadable(configs: TopicConfigs | None) -> tuple[Refusal, str]:
    """Return why brokers don't describe a topic's configs; an answer without them means a missing permission."""
    if configs is None or configs.error_code in (kafka.NONE, *AUTHORIZATION_FAILED):
        return (
            Refusal.NOT_PERMITTED,
            "this principal may not describe the topic's configs any more; grant it DescribeConfigs",
        )
    error = error_name(configs.error_code)
    return Refusal.NO_ANSWER, f"brokers answer {error} about the topic's configs; look for it in their logs"


def not_planned(target: Target, info: TopicInfo | TopicState | None) -> tuple[Refusal, str] | None:
    """Return why a topic is not the one in the plan, or None."""
    if info is None:
        return Refusal.CHANGED_SINCE_PLAN, "the topic is gone since the plan; plan again"
    if not info.permitted:
        return undescribed(info)
    if info.topic_id != target.topic_id:
        return Refusal.RECREATED, f"recreated since the plan, with id {info.topic_id}; plan again"
    return None
