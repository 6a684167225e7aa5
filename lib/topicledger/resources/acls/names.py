"""Names of ACLs in settings, tables and messages."""

from __future__ import annotations

from dataclasses import dataclass

from topicledger.naming import ActionName, DriftName, KindNames, RefusalName, Section


class AclAction(ActionName):
    """The kinds of actions on ACLs."""

    ACL_ADD = "acl_add"
    ACL_DELETE = "acl_delete"


class AclRefusal(RefusalName):
    """Errors of ACLs only."""

    INVALID_ACL = "INVALID_ACL"
    """The row declares an ACL that would never match, or that `scope.ignore_principals` leaves to others."""
    NOT_MANAGED = "NOT_MANAGED"
    """The ACL would be removed, but `acls.manage` doesn't name its principal."""
    OWN_RIGHTS = "OWN_RIGHTS"
    """It would revoke access of the run's own principal, or of one in `acls.super_users`."""
    LAST_CLUSTER_ACL = "LAST_CLUSTER_ACL"
    """Without the last ACL on `kafka-cluster`, everybody may do everything to the cluster."""
    PRINCIPAL_UNKNOWN = "PRINCIPAL_UNKNOWN"
    """The run's own principal is unknown, and the action might restrict it."""
    REPLACEMENT_MISSING = "REPLACEMENT_MISSING"
    """The ACL that replaces this one couldn't be added, so this one stays."""
    DENY_MISSING = "DENY_MISSING"
    """A declared DENY that may restrict the ACL isn't added."""
    MAX_ACL_DELETES_EXCEEDED = "MAX_ACL_DELETES_EXCEEDED"
    """The run would remove more ACLs of the cluster than guards.max_acl_deletes: it removes none."""

    @property
    def acts_like_guard(self) -> bool:
        """Whether the error protects access that a run never takes."""
        return self in (AclRefusal.OWN_RIGHTS, AclRefusal.LAST_CLUSTER_ACL, AclRefusal.PRINCIPAL_UNKNOWN)


class AclDrift(DriftName):
    """The kinds of drift of ACLs."""

    ACL_MISSING = "acl_missing"
    ACL_DENIED = "acl_denied"
    ACL_UNMANAGED = "acl_unmanaged"
    ACL_WIDER = "acl_wider"
    ACL_ON_MISSING_TOPIC = "acl_on_missing_topic"
    ACL_PRINCIPAL_WITHOUT_TOPICS = "acl_principal_without_topics"


@dataclass(frozen=True, kw_only=True)
class AclSettings(Section):
    """Principals whose ACLs may be removed; by default none."""

    table = "acls"
    patterns = ("manage",)
    principals = ("super_users",)
    audited = ("manage",)

    manage: tuple[str, ...] = ()
    """Patterns (RE2) of principals, such as `^User:payments-`. Their ACLs that `acls` doesn't declare are removed,
    within guards.max_acl_deletes. For all other principals, ACLs are only added."""
    super_users: tuple[str, ...] = ()
    """Principals whose ACLs are never removed, in addition to the run's own. List the brokers' super.users, one
    per entry, since brokers don't return that config."""


MAX_ACL_DELETES = "max_acl_deletes"

NAMES = KindNames(
    resource_type="acl",
    package="acls",
    one="ACL",
    many="ACLs",
    actions=AclAction,
    refusals=AclRefusal,
    invalid=AclRefusal.INVALID_ACL,
    ignores={"ignore_principals": "principal"},
    drift={
        AclDrift.ACL_MISSING: "error",
        AclDrift.ACL_DENIED: "error",
        AclDrift.ACL_UNMANAGED: "warning",
        AclDrift.ACL_WIDER: "warning",
        AclDrift.ACL_ON_MISSING_TOPIC: "warning",
        AclDrift.ACL_PRINCIPAL_WITHOUT_TOPICS: "info",
    },
    guards={
        MAX_ACL_DELETES: "ACLs that one run may remove.",
    },
    section=AclSettings,
    approved_as="rights",
)
