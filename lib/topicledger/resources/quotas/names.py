"""Names of client quotas in settings, tables and messages."""

from __future__ import annotations

from topicledger.naming import ActionName, DriftName, KindNames, RefusalName


class QuotaAction(ActionName):
    """The kind of action on client quotas."""

    ALTER_QUOTA = "alter_quota"


class QuotaRefusal(RefusalName):
    """Errors of client quotas only."""

    INVALID_QUOTA = "INVALID_QUOTA"
    """The row declares an unknown limit, a value that makes no sense, or an entity that `[scope]` leaves to others."""
    MAX_QUOTA_CHANGES_EXCEEDED = "MAX_QUOTA_CHANGES_EXCEEDED"
    """The run would change more entities of the cluster than guards.max_quota_changes: it changes none."""


class QuotaDrift(DriftName):
    """The kinds of drift of client quotas."""

    QUOTA_MISSING = "quota_missing"
    QUOTA_DIFFERS = "quota_differs"
    QUOTA_UNMANAGED = "quota_unmanaged"


MAX_QUOTA_CHANGES = "max_quota_changes"

NAMES = KindNames(
    resource_type="quota",
    package="quotas",
    one="quota",
    many="quotas",
    actions=QuotaAction,
    refusals=QuotaRefusal,
    invalid=QuotaRefusal.INVALID_QUOTA,
    ignores={"ignore_users": "user", "ignore_clients": "client_id"},
    drift={
        QuotaDrift.QUOTA_MISSING: "error",
        QuotaDrift.QUOTA_DIFFERS: "error",
        QuotaDrift.QUOTA_UNMANAGED: "warning",
    },
    guards={
        MAX_QUOTA_CHANGES: "Entities whose client quotas one run may change.",
    },
    section=None,
    approved_as="rights",
)
