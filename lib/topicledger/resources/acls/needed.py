"""The listed ACLs that an action needs: those that it waits for, and those of the run's own principal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from topicledger.actions.context import ClusterContext
from topicledger.kafka.connection import NotListed
from topicledger.kafka.sending import Answer
from topicledger.model import Target, TopicResult
from topicledger.naming import RefusalName
from topicledger.resources.acls import requests
from topicledger.resources.acls.acl import ALLOW, EVERYONE, WILDCARD, Acl
from topicledger.resources.acls.cluster_acls import principal_unknown
from topicledger.resources.acls.effective import covers_pattern
from topicledger.resources.acls.names import AclAction, AclRefusal, AclSettings

REPLACED_BY = "replaced_by"
"""Key in `after` of a delete: the ACLs that replace it, as JSON."""
RESTRICTED_BY = "restricted_by"
"""Key in `before` of an add of an ALLOW: the declared DENYs that may restrict it, as JSON."""
RESTRICTS = "restricts"
"""Key in `after` of a delete of a DENY: the ALLOWs that it may restrict and that are deleted before it, as JSON."""


def adds(target: Target) -> bool:
    """Return whether an action adds its ACL, rather than removes it."""
    return target.action == AclAction.ACL_ADD


def acl_of(target: Target) -> Acl:
    """Return the ACL that an action adds or removes."""
    return Acl.of(target.after if adds(target) else target.before)


def awaited(target: Target) -> frozenset[Acl]:
    """Return the ACLs that must exist before an action: those that replace a removed one, or restrict an added one."""
    return _named(target.before, RESTRICTED_BY) if adds(target) else _named(target.after, REPLACED_BY)


def restricted(target: Target) -> frozenset[Acl]:
    """Return the ALLOWs that must be gone before the removal of a DENY."""
    return _named(target.after, RESTRICTS)


def _named(values: Mapping[str, str], key: str) -> frozenset[Acl]:
    return frozenset(Acl.of(each) for each in json.loads(values.get(key, "[]")))


class ListedAcls:
    """A cluster's ACLs of the targets' principals, and the run's own if `User:*` may lose an ALLOW.

    `unknown` is the reason if they can't be listed.
    """

    def __init__(self, context: ClusterContext, targets: Sequence[Target]) -> None:
        self.requested_at = datetime.now(UTC)
        self.unknown: str | None = None
        self._acls: frozenset[Acl] = frozenset()
        try:
            asked = {acl_of(target).principal for target in targets}
            asked |= {acl.principal for each in targets for acl in awaited(each) | restricted(each)}
            if (own := context.admin.principal) is not None and any(map(takes_from_everyone, targets)):
                asked.add(own)
            self._acls = context.ask(lambda: frozenset(requests.describe_acls(context.admin, asked)))
        except NotListed as error:
            self.unknown = str(error)

    def is_done(self, target: Target) -> bool:
        """Return whether an added ACL exists, or a deleted one is gone."""
        return (acl_of(target) in self._acls) == adds(target)

    def missing(self, target: Target) -> frozenset[Acl]:
        """Return the ACLs that an action waits for and that don't exist."""
        return awaited(target) - self._acls

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
        """Return an answer with the times of the request that listed the ACLs."""
        return Answer(result or TopicResult(), 1, self.requested_at, datetime.now(UTC))


def takes_from_everyone(target: Target) -> bool:
    """Return whether an action restricts everyone: it removes an ALLOW for `User:*`, or adds a DENY."""
    acl = acl_of(target)
    return acl.principal == EVERYONE and adds(target) != (acl.permission == ALLOW)


def restricts_itself(context: ClusterContext, target: Target, listed: ListedAcls) -> tuple[RefusalName, str] | None:
    """Return why an action would restrict the run's own principal, or None.

    The plan decides this, too, but since then settings may have been corrected, and its own ACLs removed.
    """
    acl, own = acl_of(target), context.admin.principal
    if adds(target) == (acl.permission == ALLOW):
        return None
    if own is None:
        return AclRefusal.PRINCIPAL_UNKNOWN, principal_unknown(context.cluster)
    if acl.principal == own:
        return AclRefusal.OWN_RIGHTS, OWN_RIGHTS
    needs = own not in context.limits.of_kinds.of(AclSettings).super_users
    if needs and takes_from_everyone(target) and (adds(target) or not listed.grants(own, acl)):
        return AclRefusal.OWN_RIGHTS, OWN_BY_EVERYONE
    return None


OWN_RIGHTS = "it would take permissions from the principal with which this run itself signs in"
OWN_BY_EVERYONE = (
    "it would take permissions from everyone, including the principal with which this run itself signs in: first grant "
    "that principal the same by an ACL of its own, or name it in acls.super_users"
)
