"""Every table of the ledger, with its schema, key, partitioning and properties (DESIGN, Tables)."""

from topicledger.schemas.access import (
    ACL_KEY,
    ACLS,
    OBSERVED_ACLS,
    OBSERVED_QUOTAS,
    QUOTAS,
    RESOURCES,
)
from topicledger.schemas.definition import SCHEMA_VERSION, SCHEMA_VERSION_PROPERTY, Table
from topicledger.schemas.runs import APPROVALS, CLUSTERS, LEASES, RUNS, THROTTLES
from topicledger.schemas.tables import (
    ACTION_KEY,
    ACTIONS,
    AUDIT,
    BROKERS,
    CONFIGS,
    DRIFT,
    MANIFESTS,
    OBSERVED,
    OBSERVED_CONFIGS,
    PLANS,
    SENT_BATCHES,
    TABLES,
    USAGES,
    VIOLATIONS,
)

__all__ = [
    "ACLS",
    "ACL_KEY",
    "ACTIONS",
    "ACTION_KEY",
    "APPROVALS",
    "AUDIT",
    "BROKERS",
    "CLUSTERS",
    "CONFIGS",
    "DRIFT",
    "LEASES",
    "MANIFESTS",
    "OBSERVED",
    "OBSERVED_ACLS",
    "OBSERVED_CONFIGS",
    "OBSERVED_QUOTAS",
    "PLANS",
    "QUOTAS",
    "RESOURCES",
    "RUNS",
    "SCHEMA_VERSION",
    "SCHEMA_VERSION_PROPERTY",
    "SENT_BATCHES",
    "TABLES",
    "THROTTLES",
    "USAGES",
    "VIOLATIONS",
    "Table",
]
