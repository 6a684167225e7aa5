"""Effective permissions: the answer of Kafka's StandardAuthorizer, computed from a cluster's ACLs.

A DENY wins over every ALLOW. A literal name, a prefix and the literal `*` all count. ALL is every operation; some
operations imply DESCRIBE or DESCRIBE_CONFIGS, in ALLOW ACLs only. A super user may do everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from topicledger.resources.acls.acl import ALLOW, DENY, EVERYONE, PREFIXED, WILDCARD, Acl

IMPLIED: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("READ", "WRITE", "DELETE", "ALTER"), frozenset({"DESCRIBE"})),
    "ALTER_CONFIGS": frozenset({"DESCRIBE_CONFIGS"}),
}
"""Operations that an ALLOW of an operation implies."""


class Why(StrEnum):
    """The reason for a verdict."""

    SUPER_USER = "super user"
    DENY = "denied by an ACL"
    ALLOW = "allowed by an ACL"
    NOT_ALLOWED = "no ACL allows it"
    NO_ACL = "no ACL is about it"


@dataclass(frozen=True, kw_only=True)
class Brokers:
    """Broker settings that decide together with the ACLs."""

    super_users: frozenset[str] = frozenset()
    """`super.users`."""
    allow_everyone: bool | None = False
    """`allow.everyone.if.no.acl.found`; None if it is unknown."""


@dataclass(frozen=True, kw_only=True)
class AccessVerdict:
    """Whether a principal may do something."""

    allowed: bool | None
    """None if only `allow.everyone.if.no.acl.found` decides, and its value is unknown."""
    why: Why
    acls: Sequence[Acl] = ()
    """The ACLs that decide, in order; each of them alone would be enough."""


def covers_name(acl: Acl, name: str) -> bool:
    """Whether an ACL is about the resource of this name, apart from its type."""
    if acl.pattern_type == PREFIXED:
        return name.startswith(acl.resource_name)
    # StandardAuthorizer takes a literal `*` for a prefix of such a name, and skips it like other prefixes (4.3.1).
    everything = acl.resource_name == WILDCARD and not name.startswith(WILDCARD)
    return everything or acl.resource_name == name


def covers_pattern(acl: Acl, pattern_type: str, name: str) -> bool:
    """Whether an ACL is about every resource that a pattern is about, apart from their types."""
    if acl.pattern_type != PREFIXED and acl.resource_name == WILDCARD:
        return name == WILDCARD or not name.startswith(WILDCARD)
    if pattern_type == PREFIXED or name == WILDCARD:
        return acl.pattern_type == PREFIXED and pattern_type == PREFIXED and name.startswith(acl.resource_name)
    return covers_name(acl, name)


def covers_operation(acl: Acl, operation: str) -> bool:
    """Whether an ACL allows or denies an operation, directly or by implication."""
    if acl.operation in ("ALL", operation):
        return True
    return acl.permission == ALLOW and operation in IMPLIED.get(acl.operation, ())


def about(acls: Iterable[Acl], resource_type: str, name: str) -> list[Acl]:
    """Return the ACLs that are about one resource, in order."""
    return sorted(each for each in acls if each.resource_type == resource_type and covers_name(each, name))


def decide(found: Sequence[Acl], principal: str, host: str, operation: str, brokers: Brokers) -> AccessVerdict:
    """Decide whether `principal` may do `operation` from `host` on a resource.

    `found` are all ACLs about the resource. `host` is an address, or `*` for one that no ACL names. A principal that no
    ACL names is `User:*`.
    """
    if principal in brokers.super_users:
        return AccessVerdict(allowed=True, why=Why.SUPER_USER)
    mine = [
        each
        for each in found
        if each.principal in (principal, EVERYONE)
        and each.host in (host, WILDCARD)
        and covers_operation(each, operation)
    ]
    denied = [each for each in mine if each.permission == DENY]
    if denied:
        return AccessVerdict(allowed=False, why=Why.DENY, acls=denied)
    if mine:
        return AccessVerdict(allowed=True, why=Why.ALLOW, acls=mine)
    if found:
        return AccessVerdict(allowed=False, why=Why.NOT_ALLOWED)
    return AccessVerdict(allowed=brokers.allow_everyone, why=Why.NO_ACL)
