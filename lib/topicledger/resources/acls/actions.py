"""acl_add and acl_delete: CreateAcls and DeleteAcls (A1 to A6). Sending either of them twice does no harm (A2).

Adds are sent before deletes, and controllers keep that order. So if adds replace all or part of what a delete removes,
the new ACLs exist before the old one is removed. A delete is only sent if all ACLs that replace it exist.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger import kafka
from topicledger.actions.checking import never_unsent
from topicledger.actions.context import ClusterContext, outcome_of
from topicledger.actions.costs import ONE_RECORD
from topicledger.actions.kind import ActionKind, Steps
from topicledger.actions.safeguards import Guard, Safeguards
from topicledger.actions.showing import ADDS, REMOVES, Shown
from topicledger.actions.visible import done_within
from topicledger.kafka.connection import NotListed
from topicledger.kafka.sending import Answer
from topicledger.manifests.rows import ABSENT, PRESENT
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
from topicledger.resources.acls.acl import ALLOW, EVERYONE, WILDCARD, Acl
from topicledger.resources.acls.cluster_acls import FIRST_ACL, LAST_ACL, principal_unknown
from topicledger.resources.acls.effective import covers_pattern
from topicledger.resources.acls.names import NAMES, AclAction, AclRefusal, AclSettings
from topicledger.text import counted

_SHOWN_WITHIN = 10.0
"""Seconds until brokers show added or removed ACLs: over 3 if they are busy (A6)."""
REPLACED_BY = "replaced_by"
"""Key in `after` of a delete: the ACLs that replace it, as JSON."""
RESTRICTS = "restricts"
"""Key in `after` of a delete of a DENY: the ALLOWs that it may restrict and that are deleted before it, as JSON."""


def _adds(target: Target) -> bool:
    return target.action == AclAction.ACL_ADD


def _acl(target: Target) -> Acl:
    return Acl.of(target.after if _adds(target) else target.before)


def _removed(target: Target) -> str | None:
    """Describe a removal: the number of ACLs that replace it."""
    replacing = len(_replaced_by(target))
    return f"replaced by {counted(replacing, 'ACL')}" if replacing else None


def _replaced_by(target: Target) -> frozenset[Acl]:
    return _named(target, REPLACED_BY)


def _restricted(target: Target) -> frozenset[Acl]:
    return _named(target, RESTRICTS)


def _named(target: Target, key: str) -> frozenset[Acl]:
    return frozenset(Acl.of(each) for each in json.loads(target.after.get(key, "[]")))


class _Listed:
    """A cluster's ACLs of the targets' principals, and the run's own if `User:*` may lose an ALLOW.

    `unknown` is the reason if they can't be listed.
    """

    def __init__(self, context: ClusterContext, targets: Sequence[Target]) -> None:
        self.requested_at = datetime.now(UTC)
        self.unknown: str | None = None
        self._acls: frozenset[Acl] = frozenset()
        try:
            asked = {_acl(target).principal for target in targets}
            asked |= {acl.principal for each in targets for acl in _replaced_by(each) | _restricted(each)}
            if (own := context.admin.principal) is not None and any(map(_takes_from_everyone, targets)):
                asked.add(own)
            self._acls = context.ask(lambda: frozenset(requests.describe_acls(context.admin, asked)))
        except NotListed as error:
            self.unknown = str(error)

    def is_done(self, target: Target) -> bool:
        """Return whether an added ACL exists, or a deleted one is gone."""
        return (_acl(target) in self._acls) == _adds(target)

    def missing(self, target: Target) -> frozenset[Acl]:
        """Return the ACLs that should replace a delete and don't exist."""
        return _replaced_by(target) - self._acls

    def grants(self, principal: str, acl: Acl) -> bool:
        """Return whether one ALLOW of the principal, from any host, includes this ALLOW."""
        return any(
            (each.principal, each.permission, each.host) == (principal, ALLOW, WILDCARD)
            and each.resource_type == acl.resource_type
            and each.operation in ("ALL", acl.operation)
            and covers_pattern(each, acl.pattern_type, acl.resource_name)
            for each in self._acls
        )

    def still_there(self, acls: frozenset[Acl]) -> frozenset[Acl]:
        """Return which of these ACLs exist."""
        return acls & self._acls

    def answer(self, result: TopicResult | None = None) -> Answer:
        return Answer(result or TopicResult(), 1, self.requested_at, datetime.now(UTC))


def validate(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """List the ACLs and check this principal's permissions, since Kafka has no validateOnly for ACLs."""
    listed = _Listed(context, targets)
    may_alter = context.ask(lambda: requests.may_alter_acls(context.admin))
    context.require_planned_cluster()
    for target in targets:
        own = _restricts_itself(context, target, listed)
        if not requests.knows_acls_like(context.admin, _acl(target)):
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
    "its brokers are too old for it: prefixed patterns need Kafka 2.0, resources of type USER 3.3; upgrade them, or "
    "take it out of `acls`"
)


def _done_already(target: Target) -> str:
    return "exists already" if _adds(target) else "gone already"


def _takes_from_everyone(target: Target) -> bool:
    acl = _acl(target)
    return acl.principal == EVERYONE and _adds(target) != (acl.permission == ALLOW)


def _restricts_itself(context: ClusterContext, target: Target, listed: _Listed) -> tuple[RefusalName, str] | None:
    """Return why an action would restrict the run's own principal, or None.

    The plan decides this, too, but since then settings may have been corrected, and its own ACLs removed.
    """
    acl, own = _acl(target), context.admin.principal
    if _adds(target) == (acl.permission == ALLOW):
        return None
    if own is None:
        return AclRefusal.PRINCIPAL_UNKNOWN, principal_unknown(context.cluster)
    if acl.principal == own:
        return AclRefusal.OWN_RIGHTS, OWN_RIGHTS
    needs = own not in context.limits.of_kinds.of(AclSettings).super_users
    if needs and _takes_from_everyone(target) and (_adds(target) or not listed.grants(own, acl)):
        return AclRefusal.OWN_RIGHTS, OWN_BY_EVERYONE
    return None


OWN_RIGHTS = "it would take permissions from the principal with which this run itself signs in"
OWN_BY_EVERYONE = (
    "it would take permissions from everyone, including the principal with which this run itself signs in: first grant "
    "that principal the same by an ACL of its own, or name it in acls.super_users"
)


def changed_since_plan(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Skip actions that are done by now, except those that an earlier start may have sent, which may be sent twice."""
    listed = _Listed(context, targets)
    context.require_planned_cluster()
    for target in targets:
        if listed.unknown is not None:
            yield context.refused(target, Phase.APPLY, Refusal.NOT_PERMITTED, listed.unknown)
        elif (own := _restricts_itself(context, target, listed)) is not None:
            yield context.refused(target, Phase.APPLY, *own)
        elif listed.is_done(target) and not target.maybe_sent:
            yield context.skipped(target, Phase.APPLY, _done_already(target))


def recover(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Find actions that are done, within the time that brokers need to show them (A6)."""

    def observe(left: Sequence[Target]) -> _Listed:
        listed = _Listed(context, left)
        context.require_planned_cluster()
        return listed

    for target, listed in done_within(context, targets, _SHOWN_WITHIN, observe):
        yield _recovered(context, target, listed.answer())


def _recovered(context: ClusterContext, target: Target, answer: Answer) -> PhaseResult:
    message = f"an earlier request of this run {'added' if _adds(target) else 'removed'} it"
    done = replace(answer, result=_changed(answer.result, target))
    return context.result(target, Phase.APPLY, Outcome.OK, done, note=Note.RECOVERED, message=message)


def _changed(result: TopicResult, target: Target) -> TopicResult:
    acl = _acl(target)._asdict()
    return replace(result, before={}, after=acl) if _adds(target) else replace(result, before=acl, after={})


def add(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """CreateAcls, without first ACLs that would lock out this run, or others without a warning in the plan."""
    warned = {each.resource for each in targets if _is_warned(each, FIRST_ACL)}
    stopped = cluster_acls.first_refused(context, {target.resource: _acl(target) for target in targets}, warned)
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
    stopped: dict[str, tuple[RefusalName, str]] = {}
    if any(map(_replaced_by, targets)):
        missing = _wait_for_replacements(context, targets)
        stopped = {resource: (AclRefusal.REPLACEMENT_MISSING, why) for resource, why in missing.items()}
    stopped |= _taken_from_itself(context, [target for target in targets if target.resource not in stopped])
    removed = {target.resource: _acl(target) for target in targets if target.resource not in stopped}
    warned = {each.resource for each in targets if _is_warned(each, LAST_ACL)}
    stopped |= cluster_acls.last_refused(context, removed, warned)
    yield from _refused(context, targets, stopped)
    left = [target for target in targets if target.resource not in stopped]
    yield from _removals(context, [target for target in left if not _restricted(target)])
    last = [target for target in left if _restricted(target)]
    stopped = _restricting(context, last)
    yield from _refused(context, last, stopped)
    yield from _removals(context, [target for target in last if target.resource not in stopped])


def _removals(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
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
    asked = [target for target in targets if _takes_from_everyone(target)]
    if not asked:
        return {}
    listed = _Listed(context, asked)
    context.require_planned_cluster()
    if listed.unknown is not None:
        return {target.resource: (Refusal.NOT_PERMITTED, listed.unknown) for target in asked}
    found = {target.resource: _restricts_itself(context, target, listed) for target in asked}
    return {resource: why for resource, why in found.items() if why is not None}


def _restricting(context: ClusterContext, targets: Sequence[Target]) -> cluster_acls.Stopped:
    """Return removals of a DENY that may restrict an ALLOW which stays, and why."""
    if not targets:
        return {}
    listed = _Listed(context, targets)
    context.require_planned_cluster()
    if listed.unknown is not None:
        return {target.resource: (Refusal.NOT_PERMITTED, listed.unknown) for target in targets}
    # Brokers show removed ACLs for a while (A6), but no broker applies the removal of the DENY before theirs.
    gone = cluster_acls.removed_by(context)
    stay = {target.resource: listed.still_there(_restricted(target)) - gone for target in targets}
    return {
        resource: (Refusal.CHANGED_SINCE_PLAN, _RESTRICTS + ", ".join(map(_words, sorted(each))) + "; plan again")
        for resource, each in stay.items()
        if each
    }


_RESTRICTS = "it is not removed, since it may restrict ACLs that should have been removed before it and exist: "


def _wait_for_replacements(context: ClusterContext, targets: Sequence[Target]) -> dict[str, str]:
    """Return resource -> why a delete isn't sent; waits for added replacements, which become visible late (A6)."""
    missing: dict[str, frozenset[Acl]] = {}
    for _ in context.looks(context.retry_policy.visibility):
        listed = _Listed(context, targets)
        context.require_planned_cluster()
        if listed.unknown is not None:
            return {target.resource: listed.unknown for target in targets}
        missing = {target.resource: each for target in targets if (each := listed.missing(target))}
        if not any(each & context.limits.acknowledged for each in missing.values()):
            break
    return {resource: _MISSING + ", ".join(map(_words, sorted(each))) for resource, each in missing.items()}


_MISSING = "it is not removed, since ACLs that replace it don't exist yet: "


def _words(acl: Acl) -> str:
    return " ".join(acl)


def _applied(context: ClusterContext, target: Target, answer: Answer) -> PhaseResult:
    code = answer.result.error_code
    if code == kafka.NONE:
        if _adds(target):
            context.limits.acknowledged.add(_acl(target))
        else:
            context.limits.acknowledged.add(cluster_acls.Removed(_acl(target)))
        result = _changed(answer.result, target)
    else:
        result = replace(answer.result, before=None)
    return context.result(target, Phase.APPLY, outcome_of(code), replace(answer, result=result))


def verify(context: ClusterContext, applied: Sequence[tuple[Target, TopicResult]]) -> Iterator[PhaseResult]:
    """List the ACLs once; they become visible late if a broker is busy (A6)."""
    targets = [target for target, _ in applied]
    listed = _Listed(context, targets)
    for target in targets:
        if listed.unknown is not None:
            yield context.skipped(target, Phase.VERIFY, listed.unknown)
        elif listed.is_done(target):
            found = TopicResult(after=_acl(target)._asdict() if _adds(target) else {})
            yield context.result(target, Phase.VERIFY, Outcome.OK, listed.answer(found))
        else:
            message = "acknowledged, not visible yet"
            yield context.result(target, Phase.VERIFY, Outcome.PENDING, listed.answer(), message=message)


def _declared(state: str) -> Column:
    return F.when(F.col("now_state") == state, F.lit(f"declare it {state}"))


MAX_ACL_DELETES = Guard(
    setting=names.MAX_ACL_DELETES,
    error=AclRefusal.MAX_ACL_DELETES_EXCEEDED,
    counted="planned removals of ACLs on this cluster",
)


def _kind(action: AclAction, order: int) -> ActionKind:
    adds = action is AclAction.ACL_ADD
    return ActionKind(
        name=action.value,
        resource_type=NAMES.resource_type,
        option="acls",
        order=order,
        wanted=lambda: F.col("decision") == action.value,
        not_declared=partial(_declared, ABSENT if adds else PRESENT),
        shown=Shown(ADDS, lambda _: None, "added") if adds else Shown(REMOVES, _removed, "removed"),
        cost=ONE_RECORD,
        safeguards=Safeguards(switch=None, guard=None if adds else MAX_ACL_DELETES, approved_as=(NAMES.approved_as,)),
        steps=Steps(
            validate=validate,
            changed_since_plan=changed_since_plan,
            recover=recover,
            partly_done=None,
            apply=add if adds else delete,
            cancel=None,
            verify=verify,
        ),
    )


ADD = _kind(AclAction.ACL_ADD, 7)
DELETE = _kind(AclAction.ACL_DELETE, 8)
