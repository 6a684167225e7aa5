"""ACLs on a cluster itself, where brokers may allow everyone what no ACL is about (I2).

With `allow.everyone.if.no.acl.found=true` the first ACL on `kafka-cluster` takes it from everyone else, the run's own
principal included, and after the last one everyone may do everything to it. A plan refuses both (`first_acls`,
`last_acls`), and so do adds and removals right before a request: ACLs and settings may have changed since.
"""

from __future__ import annotations

from collections.abc import Mapping

from topicledger.actions.context import ClusterContext
from topicledger.kafka.connection import NotListed
from topicledger.model import Refusal
from topicledger.resources.acls import requests
from topicledger.resources.acls.acl import ALLOW, EVERYONE, WILDCARD, Acl
from topicledger.resources.acls.requests import ALLOW_EVERYONE

CLUSTER = "CLUSTER"
"""The resource type of a cluster itself."""
NEEDED = ("ALTER", "CREATE", "ALTER_CONFIGS")
"""Operations on a cluster itself that runs do; each implies the matching DESCRIBE."""

Stopped = dict[str, tuple[Refusal, str]]
"""By resource, why its request isn't sent."""


def first_refused(context: ClusterContext, adds: Mapping[str, Acl]) -> Stopped:
    """Refuse the first ACLs on the cluster itself, unless they keep the rights of the run's own principal.

    `adds`: by resource. Asks the cluster only if one of them is about it.
    """
    found = _Found(context, adds)
    own, stopped = context.admin.principal, found.unknown
    if not found.may_be_open or found.live or own in context.limits.super_users:
        return stopped
    if own is None:
        return dict.fromkeys(found.asked, (Refusal.PRINCIPAL_UNKNOWN, principal_unknown(context.cluster)))
    mine = {name: each for name, each in found.asked.items() if _grants(each, own)}
    granted = {each.operation for each in mine.values()}
    kept = mine if "ALL" in granted or granted.issuperset(NEEDED) else {}
    message = takes_own(own, found.allow_everyone)
    return {name: (Refusal.OWN_RIGHTS, message) for name in found.asked if name not in kept}


def last_refused(context: ClusterContext, removals: Mapping[str, Acl]) -> Stopped:
    """Refuse the removal of the last ACLs on the cluster itself. `removals`: by resource; see `first_refused`."""
    found = _Found(context, removals)
    if not found.may_be_open or found.live.difference(found.asked.values()):
        return found.unknown
    there = [name for name, each in found.asked.items() if each in found.live]
    return dict.fromkeys(there, (Refusal.LAST_CLUSTER_ACL, opens_cluster(found.allow_everyone)))


def _acls_of(context: ClusterContext) -> frozenset[Acl]:
    """All ACLs of the cluster, those among them that were added and may not be visible yet (A6)."""
    listed = context.ask(lambda: frozenset(requests.describe_acls(context.admin, None)))
    return listed | {each for each in context.limits.acknowledged if isinstance(each, Acl)}


class _Found:
    """The ACLs on the cluster itself, if any is asked for, and whether brokers allow everyone what no ACL is about."""

    def __init__(self, context: ClusterContext, acls: Mapping[str, Acl]) -> None:
        self.asked = {name: each for name, each in acls.items() if each.resource_type == CLUSTER}
        self.allow_everyone: bool | None = False
        self.live: frozenset[Acl] = frozenset()
        self.unknown: Stopped = {}
        """Those that are refused since the ACLs may not be listed."""
        if not self.asked:
            return
        self.allow_everyone = context.ask(lambda: requests.authorizer_settings(context.admin))[ALLOW_EVERYONE]
        if self.allow_everyone is not False:
            try:
                there = _acls_of(context)
            except NotListed as error:
                self.unknown = dict.fromkeys(self.asked, (Refusal.NOT_PERMITTED, str(error)))
            else:
                self.live = frozenset(each for each in there if each.resource_type == CLUSTER)
        context.require_planned_cluster()

    @property
    def may_be_open(self) -> bool:
        return bool(self.asked) and self.allow_everyone is not False and not self.unknown


def _grants(acl: Acl, own: str) -> bool:
    """Whether it allows `own` something, wherever that principal connects from."""
    return acl.principal in (own, EVERYONE) and (acl.permission, acl.host) == (ALLOW, WILDCARD)


def is_open(allow_everyone: bool | None) -> str:
    """Why a cluster may allow everyone what no ACL is about, where this isn't known to be false."""
    if allow_everyone:
        return f"{ALLOW_EVERYONE} is set on this cluster (brokers hide its value)"
    return f"it isn't known whether {ALLOW_EVERYONE} is set on this cluster, since not every broker shows its configs"


def takes_own(own: str, allow_everyone: bool | None) -> str:
    """Why a first ACL on the cluster itself isn't added."""
    return (
        f"{is_open(allow_everyone)}: as the first ACL on the cluster itself it may take {', '.join(NEEDED)} from "
        f"{own}, which this run signs in as: let a run add ALL for that principal first, or name it in acls.super_users"
    )


def opens_cluster(allow_everyone: bool | None) -> str:
    """Why the last ACLs on the cluster itself aren't removed."""
    return (
        f"{is_open(allow_everyone)}: without the last ACL on the cluster itself everybody may do everything to it: "
        "keep one, such as ALL of an administrator"
    )


def principal_unknown(cluster: str) -> str:
    """Why no right is taken away by a client that doesn't know who it is."""
    return (
        f"brokers know this client by a certificate, a ticket or a token, so it isn't known whether it would take away "
        f"its own rights: set clusters.{cluster}.principal"
    )
