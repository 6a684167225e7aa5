"""ACLs on a cluster itself, whose brokers may allow everyone access to resources without ACLs (I2).

With `allow.everyone.if.no.acl.found=true`, the first ACL on `kafka-cluster` denies access to all other principals,
including the run's own. Without the last one, everybody may do everything to the cluster. Plans refuse both
(`first_acls`, `last_acls`). Adds and removals check it again right before their batch is sent, since ACLs and
settings may have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from topicledger.actions.context import ClusterContext
from topicledger.kafka.connection import NotListed
from topicledger.model import Refusal
from topicledger.naming import RefusalName
from topicledger.resources.acls import requests
from topicledger.resources.acls.acl import ALLOW, EVERYONE, LITERAL, PREFIXED, WILDCARD, Acl
from topicledger.resources.acls.names import AclRefusal, AclSettings
from topicledger.resources.acls.requests import ALLOW_EVERYONE

FIRST_ACL, LAST_ACL = "first_acl", "last_acl"
"""Names of the plan's warnings about first and last ACLs on resources that are open to everyone without any."""
CLUSTER = "CLUSTER"
"""The resource type of a cluster itself."""
NEEDED = ("ALTER", "CREATE", "ALTER_CONFIGS")
"""Operations on a cluster itself that runs use; each implies the matching DESCRIBE."""

Stopped = dict[str, tuple[RefusalName, str]]
"""Resource -> why its request isn't sent."""


def first_refused(context: ClusterContext, adds: Mapping[str, Acl], warned: AbstractSet[str]) -> Stopped:
    """Refuse first ACLs that the plan doesn't allow, right before their batch is sent.

    On the cluster itself: those that don't allow the run's own principal what it needs. On another resource: those that
    became the first since the plan, and would end everybody else's access. ACLs that an earlier start added exist, and
    aren't refused. `adds`: by resource; `warned`: those of which the plan warned.
    """
    found = _Found(context, adds, warned)
    words = "became the first ACL on {} since the plan, and would end everybody else's access to it; plan again"
    covered = _covering(found.live)
    since = {name: _since_plan(each, words) for name, each in found.others.items() if not covered(each)}
    return {**found.unknown, **since, **_first_on_cluster(context, found)}


def _first_on_cluster(context: ClusterContext, found: _Found) -> Stopped:
    own = context.admin.principal
    if found.live_on_cluster or own in context.limits.of_kinds.of(AclSettings).super_users:
        return {}
    if own is None:
        return dict.fromkeys(found.on_cluster, (AclRefusal.PRINCIPAL_UNKNOWN, principal_unknown(context.cluster)))
    mine = {name: each for name, each in found.on_cluster.items() if _grants(each, own)}
    granted = {each.operation for each in mine.values()}
    kept = mine if "ALL" in granted or granted.issuperset(NEEDED) else {}
    message = takes_own(context.cluster, found.allow_everyone)
    return {name: (AclRefusal.OWN_RIGHTS, message) for name in found.on_cluster if name not in kept}


def last_refused(context: ClusterContext, removals: Mapping[str, Acl], warned: AbstractSet[str]) -> Stopped:
    """Refuse removals of last ACLs that the plan doesn't allow, right before their batch is sent.

    On the cluster itself: all of them. On another resource: those that became the last since the plan; everybody could
    use it. For the parameters see `first_refused`.
    """
    found = _Found(context, removals, warned)
    words = "became the last ACL on {} since the plan: without it everybody could use it; plan again"
    covered = _covering(found.live.difference(removals.values()))
    last = {name: each for name, each in found.others.items() if each in found.live and not covered(each)}
    since = {name: _since_plan(each, words) for name, each in last.items()}
    stay = found.live_on_cluster.difference(found.on_cluster.values())
    there = [name for name, each in found.on_cluster.items() if each in found.live and not stay]
    on_cluster = dict.fromkeys(there, (AclRefusal.LAST_CLUSTER_ACL, opens_cluster(found.allow_everyone)))
    return {**found.unknown, **since, **on_cluster}


def _since_plan(acl: Acl, words: str) -> tuple[RefusalName, str]:
    return Refusal.CHANGED_SINCE_PLAN, "it " + words.format(f"{acl.resource_type} {acl.resource_name}")


def _covering(acls: Collection[Acl]) -> Callable[[Acl], bool]:
    """Return whether any of these is about all that an ACL is about, as `replaced.name_covers` for columns."""
    names = {(each.resource_type, each.pattern_type, each.resource_name) for each in acls}

    def covers(acl: Acl) -> bool:
        kind, name = acl.resource_type, acl.resource_name
        beginnings = () if name == WILDCARD else (name[:end] for end in range(1, len(name) + 1))
        return (
            (kind, LITERAL, WILDCARD) in names
            or (kind, acl.pattern_type, name) in names
            or any((kind, PREFIXED, each) in names for each in beginnings)
        )

    return covers


class Removed(NamedTuple):
    """An ACL that this run removed, among `ClusterLimits.acknowledged`."""

    acl: Acl


def removed_by(context: ClusterContext) -> frozenset[Acl]:
    """Return the ACLs that this start of the run removed; brokers may still show them (A6)."""
    return frozenset(each.acl for each in context.limits.acknowledged if isinstance(each, Removed))


def _acls_of(context: ClusterContext) -> frozenset[Acl]:
    """Return all ACLs of the cluster as they will be visible once brokers show what this run did (A6)."""
    listed = context.ask(lambda: frozenset(requests.describe_acls(context.admin, None)))
    return (listed - removed_by(context)) | {each for each in context.limits.acknowledged if isinstance(each, Acl)}


class _Found:
    """ACLs of the cluster and its authorizer's setting, read once for all that is checked before a request.

    A change by another client between two reads would make the first of them stale.
    """

    def __init__(self, context: ClusterContext, acls: Mapping[str, Acl], warned: AbstractSet[str]) -> None:
        self.on_cluster = {name: each for name, each in acls.items() if each.resource_type == CLUSTER}
        """ACLs on the cluster itself, by resource; none unless brokers may allow access without ACLs."""
        self.others = {name: each for name, each in acls.items() if name not in warned | self.on_cluster.keys()}
        """Those on other resources without a warning; none unless brokers allow that. If it is unknown, the plan
        warned about the cluster as a whole."""
        self.allow_everyone: bool | None = False
        self.live: frozenset[Acl] = frozenset()
        self.unknown: Stopped = {}
        """Resource -> refusal, if the ACLs may not be listed."""
        if not self.on_cluster and not self.others:
            return
        self.allow_everyone = context.ask(lambda: requests.authorizer_settings(context.admin))[ALLOW_EVERYONE]
        if not self.allow_everyone:
            self.others = {}
        if self.allow_everyone is False:
            self.on_cluster = {}
        names = [*self.on_cluster, *self.others]
        try:
            self.live = _acls_of(context) if names else self.live
        except NotListed as error:
            self.unknown = dict.fromkeys(names, (Refusal.NOT_PERMITTED, str(error)))
            self.on_cluster, self.others = {}, {}
        context.require_planned_cluster()

    @property
    def live_on_cluster(self) -> frozenset[Acl]:
        return frozenset(each for each in self.live if each.resource_type == CLUSTER)


def _grants(acl: Acl, own: str) -> bool:
    """Return whether the ACL allows `own` something from any host."""
    return acl.principal in (own, EVERYONE) and (acl.permission, acl.host) == (ALLOW, WILDCARD)


def is_open(allow_everyone: bool | None) -> str:
    """Return why a cluster may allow everyone access to resources without ACLs. `allow_everyone`: true or unknown."""
    if allow_everyone:
        return f"{ALLOW_EVERYONE} is set on this cluster (brokers hide its value)"
    return f"it isn't known whether {ALLOW_EVERYONE} is set on this cluster, since not every broker shows its configs"


def takes_own(cluster: str, allow_everyone: bool | None) -> str:
    """Return why a first ACL on the cluster itself isn't added.

    The principal's name stays out of plans and logs: it may be the value of a reference.
    """
    return (
        f"{is_open(allow_everyone)}: as the first ACL on the cluster itself it may take {', '.join(NEEDED)} from the "
        f"run's own principal (clusters.{cluster}.client): let a run add ALL for it first, or name it in "
        "acls.super_users"
    )


def opens_cluster(allow_everyone: bool | None) -> str:
    """Return why the last ACLs on the cluster itself aren't removed."""
    return (
        f"{is_open(allow_everyone)}: without the last ACL on the cluster itself everybody may do everything to it: "
        "keep one, such as ALL of an administrator"
    )


def principal_unknown(cluster: str) -> str:
    """Return why a client that doesn't know its own principal removes no permissions."""
    return (
        "brokers know this client by a certificate, a ticket, a token or an API key, so it is unknown whether the run "
        f"would remove its own permissions: set clusters.{cluster}.principal"
    )
