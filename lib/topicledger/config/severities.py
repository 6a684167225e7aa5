"""The kinds of drift, and their default severities."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from topicledger.kinds import NAMES
from topicledger.naming import DriftName


class DriftKind(DriftName):
    """The kinds of drift of topics."""

    MISSING = "missing"
    SHOULD_BE_ABSENT = "should_be_absent"
    PARTITIONS_FEWER = "partitions_fewer"
    REPLICATION_FACTOR = "replication_factor"
    CONFIG_DIFFERS = "config_differs"
    RECREATED = "recreated"
    UNMANAGED = "unmanaged"
    PARTITIONS_MORE = "partitions_more"
    ASSIGNMENT = "assignment"
    CONFIG_UNDECLARED = "config_undeclared"
    NOT_PERMITTED = "not_permitted"
    OWNER_MISSING = "owner_missing"
    BROKER_DEFAULT_CHANGED = "broker_default_changed"
    PREFERRED_LEADER = "preferred_leader"
    RACKS_SHARED = "racks_shared"
    BROKER_NOT_ALLOWED = "broker_not_allowed"
    REPLICA_SKEW = "replica_skew"
    MOVES_UNDER_WAY = "moves_under_way"


class Severity(StrEnum):
    """Severities of drift, the most severe first."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


IGNORE = "ignore"
"""Used instead of a severity to turn a kind off."""

SEVERITIES: Mapping[DriftName, Severity] = {
    DriftKind.MISSING: Severity.ERROR,
    DriftKind.SHOULD_BE_ABSENT: Severity.ERROR,
    DriftKind.PARTITIONS_FEWER: Severity.ERROR,
    DriftKind.REPLICATION_FACTOR: Severity.ERROR,
    DriftKind.CONFIG_DIFFERS: Severity.ERROR,
    DriftKind.RECREATED: Severity.ERROR,
    DriftKind.UNMANAGED: Severity.WARNING,
    DriftKind.PARTITIONS_MORE: Severity.WARNING,
    DriftKind.ASSIGNMENT: Severity.WARNING,
    DriftKind.CONFIG_UNDECLARED: Severity.WARNING,
    DriftKind.NOT_PERMITTED: Severity.WARNING,
    DriftKind.OWNER_MISSING: Severity.WARNING,
    DriftKind.BROKER_DEFAULT_CHANGED: Severity.INFO,
    DriftKind.PREFERRED_LEADER: Severity.INFO,
    DriftKind.RACKS_SHARED: Severity.WARNING,
    DriftKind.BROKER_NOT_ALLOWED: Severity.WARNING,
    DriftKind.REPLICA_SKEW: Severity.INFO,
    DriftKind.MOVES_UNDER_WAY: Severity.INFO,
    **{kind: Severity(severity) for names in NAMES for kind, severity in names.drift.items()},
}
"""Every kind of drift, with its default severity."""
