"""acl_add and acl_delete: CreateAcls and DeleteAcls (A1 to A6). Sending either of them twice does no harm (A2).

Adds are sent before deletes, and controllers keep that order. So if adds replace all or part of what a delete removes,
the new ACLs exist before the old one is removed. A delete is only sent if all ACLs that replace it exist, and an ALLOW
is only added if all declared DENYs that may restrict it exist.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger import kafka, text
from topicledger.actions.checking import never_unsent
from topicledger.actions.context import ClusterContext, outcome_of
from topicledger.actions.costs import ONE_RECORD
from topicledger.actions.kind import ActionKind, Steps
from topicledger.actions.safeguards import Guard, Safeguards
from topicledger.actions.showing import ADDS, REMOVES, Shown
from topicledger.actions.visible import done_within
from topicledger.kafka.sending import Answer
from topicledger.manifests.row_rules import ABSENT, PRESENT
from topicledger.model import (
    Note,
    Outcome,
    Phase,
    PhaseResult,
    Refusal,
    Target,
    TopicResult,
)
from topicledger.naming import RefusalName
from topicledger.resources.acls import cluster_acls, names, requests
from topicledger.resources.acls.acl import Acl
from topicledger.resources.acls.cluster_acls import FIRST_ACL, LAST_ACL
from topicledger.resources.acls.names import NAMES, AclAction, AclRefusal
from topicledger.resources.acls.needed import (
    ListedAcls,
    acl_of,
    adds,
    awaited,
    restricted,
    restricts_itself,
    takes_from_everyone,
)
from topicledger.text import counted

_SHOWN_WITHIN = 10.0
"""Seconds until brokers show added or removed ACLs: over 3 if they are busy (A6)."""
_NAMED = 10
"""Most ACLs that a message names."""


def validate(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """List the ACLs and check this principal's permissions, since Kafka has no validateOnly for ACLs."""
    listed = ListedAcls(context, targets)
    may_alter = context.ask(lambda: requests.may_alter_acls(context.admin))
    context.require_planned_cluster()
    for target in targets:
        own = restricts_itself(context, target, listed)
        if not requests.knows_acls_like(context.admin, acl_of(target)):
            yield context.refused(target, Phase.VALIDATE, Refusal.BROKER_TOO_OLD, _TOO_OLD)
        elif listed.unknown is not None:
            yield context.refused(target, Phase.VALIDATE, Refusal.NOT_PERMITTED, listed.unknown)
        elif may_alter is False:
            yield context.refused(target, Phase.VALIDATE, Refusal.NOT_PERMITTED, requests.NO_ALTER)
        elif own is not None:
            yield context.refused(target, Phase.VALIDATE, *own)
        elif listed.is_done(target):
            yield context.skipped(target, Phase.VALIDATE, _done_already(target))
        else:
            yield context.result(target, Phase.VALIDATE, Outcome.OK, listed.answer())


_TOO_OLD = (
    "its brokers are too old for it: prefixed patterns need Kafka 2.0, resources of type USER 3.3, and "
    "TWO_PHASE_COMMIT 4.1; upgrade them, or take it out of `acls`"
)


def _done_already(target: Target) -> str:
    return "exists already" if adds(target) else "gone already"


def changed_since_plan(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Skip actions that are done by now, except those that an earlier start may have sent, which may be sent twice."""
    listed = ListedAcls(context, targets)
    context.require_planned_cluster()
    for target in targets:
        if listed.unknown is not None:
            yield context.refused(target, Phase.APPLY, Refusal.NOT_PERMITTED, listed.unknown)
        elif (own := restricts_itself(context, target, listed)) is not None:
            yield context.refused(target, Phase.APPLY, *own)
        elif listed.is_done(target) and not target.maybe_sent:
            yield context.skipped(target, Phase.APPLY, _done_already(target))


def recover(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Find actions that are done, within the time that brokers need to show them (A6)."""

    def observe(left: Sequence[Target]) -> ListedAcls:
        listed = ListedAcls(context, left)
        context.require_planned_cluster()
        return listed

    for target, listed in done_within(context, targets, _SHOWN_WITHIN, observe):
        yield _recovered(context, target, listed.answer())


def _recovered(context: ClusterContext, target: Target, answer: Answer) -> PhaseResult:
    message = f"an earlier request of this run {'added' if adds(target) else 'removed'} it"
    done = replace(answer, result=_changed(answer.result, target))
    return context.result(target, Phase.APPLY, Outcome.OK, done, note=Note.RECOVERED, message=message)


def _changed(result: TopicResult, target: Target) -> TopicResult:
    acl = acl_of(target)._asdict()
    return replace(result, before={}, after=acl) if adds(target) else replace(result, before=acl, after={})


def add(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """CreateAcls, without first ACLs that would lock out this run, or others without a warning in the plan.

    An ALLOW comes after the DENYs that may restrict it, and isn't added unless all of them exist.
    """
    yield from _additions(context, [target for target in targets if not awaited(target)])
    last = [target for target in targets if awaited(target)]
    stopped = _wait_for(context, last, AclRefusal.DENY_MISSING, _DENY_MISSING)
    yield from _refused(context, last, stopped)
    yield from _additions(context, [target for target in last if target.resource not in stopped])


_DENY_MISSING = "it is not added, since DENYs that may restrict it don't exist: "


def _additions(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    if not targets:
        return
    warned = {each.resource for each in targets if _is_warned(each, FIRST_ACL)}
    stopped = cluster_acls.first_refused(context, {target.resource: acl_of(target) for target in targets}, warned)
    yield from _refused(context, targets, stopped)
    left = [target for target in targets if target.resource not in stopped]
    for target, answer in context.send_each(left, partial(requests.create_acls, context.admin), changes=True):
        yield _applied(context, target, answer)


def _is_warned(target: Target, policy: str) -> bool:
    """Return whether the plan warned about what the action does to other principals."""
    return any(each.policy == policy for each in target.violations)


def _refused(
    context: ClusterContext, targets: Sequence[Target], stopped: Mapping[str, tuple[RefusalName, str]]
) -> Iterator[PhaseResult]:
    for target in targets:
        if target.resource in stopped:
            yield never_unsent(context.refused(target, Phase.APPLY, *stopped[target.resource]))


def delete(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """DeleteAcls for ACLs whose replacements all exist, without last ACLs on the cluster, or without a warning.

    A DENY comes last, and stays if an ALLOW that it may restrict and that should be gone is there. An ALLOW of
    everyone stays if the run's own principal has no such ALLOW any more.
    """
    replaced = list(filter(awaited, targets))
    stopped = _wait_for(context, replaced, AclRefusal.REPLACEMENT_MISSING, _REPLACEMENT_MISSING)
    stopped |= _taken_from_itself(context, [target for target in targets if target.resource not in stopped])
    removed = {target.resource: acl_of(target) for target in targets if target.resource not in stopped}
    warned = {each.resource for each in targets if _is_warned(each, LAST_ACL)}
    stopped |= cluster_acls.last_refused(context, removed, warned)
    yield from _refused(context, targets, stopped)
    left = [target for target in targets if target.resource not in stopped]
    yield from _removals(context, [target for target in left if not restricted(target)])
    last = [target for target in left if restricted(target)]
    stopped = _restricting(context, last)
    yield from _refused(context, last, stopped)
    yield from _removals(context, [target for target in last if target.resource not in stopped])


_FILTERS = 100
"""Most filters of a request. The controller compares each filter with all ACLs of the cluster, one after the other, and
does nothing else meanwhile, not even for brokers' heartbeats: 4,000 of 20,000 ACLs took it 51 s on busy cores."""


def _removals(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    for start in range(0, len(targets), _FILTERS):
        yield from _removed_at_once(context, targets[start : start + _FILTERS])


def _removed_at_once(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    for target, answer in context.send_each(targets, partial(requests.delete_acls, context.admin), changes=True):
        if answer.result.error_code == kafka.NONE and not answer.result.before:
            # No match: the ACL was gone before (A2).
            if answer.maybe_done:
                yield _recovered(context, target, answer)
            else:
                yield context.skipped(target, Phase.APPLY, _done_already(target))
        else:
            yield _applied(context, target, answer)


def _taken_from_itself(context: ClusterContext, targets: Sequence[Target]) -> cluster_acls.Stopped:
    """Return removals from everyone that would now restrict the run's own principal, and why."""
    asked = [target for target in targets if takes_from_everyone(target)]
    if not asked:
        return {}
    listed = ListedAcls(context, asked)
    context.require_planned_cluster()
    if listed.unknown is not None:
        return {target.resource: (Refusal.NOT_PERMITTED, listed.unknown) for target in asked}
    found = {target.resource: restricts_itself(context, target, listed) for target in asked}
    return {resource: why for resource, why in found.items() if why is not None}


def _restricting(context: ClusterContext, targets: Sequence[Target]) -> cluster_acls.Stopped:
    """Return removals of a DENY that may restrict an ALLOW which stays, and why."""
    if not targets:
        return {}
    listed = ListedAcls(context, targets)
    context.require_planned_cluster()
    if listed.unknown is not None:
        return {target.resource: (Refusal.NOT_PERMITTED, listed.unknown) for target in targets}
    # Brokers show removed ACLs for a while (A6), but no broker applies the removal of the DENY before theirs.
    gone = cluster_acls.removed_by(context)
    stay = {target.resource: listed.still_there(restricted(target)) - gone for target in targets}
    return {
        resource: (Refusal.CHANGED_SINCE_PLAN, _RESTRICTS + _words(each) + "; plan again")
        for resource, each in stay.items()
        if each
    }


_RESTRICTS = "it is not removed, since it may restrict ACLs that should have been removed before it and exist: "


_REPLACEMENT_MISSING = "it is not removed, since ACLs that replace it don't exist yet: "


def _wait_for(
    context: ClusterContext, targets: Sequence[Target], error: RefusalName, words: str
) -> cluster_acls.Stopped:
    """Return actions whose awaited ACLs don't exist, and why; waits for added ones, which become visible late (A6)."""
    if not targets:
        return {}
    missing: dict[str, frozenset[Acl]] = {}
    for _ in context.looks(context.retry_policy.visibility):
        listed = ListedAcls(context, targets)
        context.require_planned_cluster()
        if listed.unknown is not None:
            return {target.resource: (error, listed.unknown) for target in targets}
        missing = {target.resource: each for target in targets if (each := listed.missing(target))}
        if not any(each & context.limits.acknowledged for each in missing.values()):
            break
    return {resource: (error, words + _words(each)) for resource, each in missing.items()}


def _words(acls: Collection[Acl]) -> str:
    return text.listed([" ".join(acl) for acl in sorted(acls)], most=_NAMED)


def _applied(context: ClusterContext, target: Target, answer: Answer) -> PhaseResult:
    code = answer.result.error_code
    if code == kafka.NONE:
        if adds(target):
            context.limits.acknowledged.add(acl_of(target))
        else:
            context.limits.acknowledged.add(cluster_acls.Removed(acl_of(target)))
        result = _changed(answer.result, target)
    else:
        result = replace(answer.result, before=None)
    return context.result(target, Phase.APPLY, outcome_of(code), replace(answer, result=result))


def verify(context: ClusterContext, applied: Sequence[tuple[Target, TopicResult]]) -> Iterator[PhaseResult]:
    """List the ACLs once; they become visible late if a broker is busy (A6)."""
    targets = [target for target, _ in applied]
    listed = ListedAcls(context, targets)
    for target in targets:
        if listed.unknown is not None:
            yield context.skipped(target, Phase.VERIFY, listed.unknown)
        elif listed.is_done(target):
            found = TopicResult(after=acl_of(target)._asdict() if adds(target) else {})
            yield context.result(target, Phase.VERIFY, Outcome.OK, listed.answer(found))
        else:
            message = "acknowledged, not visible yet"
            yield context.result(target, Phase.VERIFY, Outcome.PENDING, listed.answer(), message=message)


def _removed(target: Target) -> str | None:
    """Describe a removal: the number of ACLs that replace it."""
    replacing = len(awaited(target))
    return f"replaced by {counted(replacing, 'ACL')}" if replacing else None


def _declared(state: str) -> Column:
    return F.when(F.col("now_state") == state, F.lit(f"declare it {state}"))


MAX_ACL_DELETES = Guard(
    setting=names.MAX_ACL_DELETES,
    error=AclRefusal.MAX_ACL_DELETES_EXCEEDED,
    counted="planned removals of ACLs on this cluster",
)


def _kind(action: AclAction, order: int) -> ActionKind:
    is_add = action is AclAction.ACL_ADD
    return ActionKind(
        name=action.value,
        resource_type=NAMES.resource_type,
        option="acls",
        order=order,
        wanted=lambda: F.col("decision") == action.value,
        not_declared=partial(_declared, ABSENT if is_add else PRESENT),
        shown=Shown(ADDS, lambda _: None, "added") if is_add else Shown(REMOVES, _removed, "removed"),
        cost=ONE_RECORD,
        safeguards=Safeguards(switch=None, guard=None if is_add else MAX_ACL_DELETES, approved_as=(NAMES.approved_as,)),
        steps=Steps(
            validate=validate,
            changed_since_plan=changed_since_plan,
            recover=recover,
            partly_done=None,
            apply=add if is_add else delete,
            cancel=None,
            verify=verify,
        ),
    )


ADD = _kind(AclAction.ACL_ADD, 7)
DELETE = _kind(AclAction.ACL_DELETE, 8)
