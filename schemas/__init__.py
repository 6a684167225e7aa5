"""Every table of the ledger: its schema, key, partitioning and properties, in one place (DESIGN, Tables)."""

from topicledger.schemas.tables import (
    ACTIONS,
    AUDIT,
    BROKERS,
    CONFIGS,
    MANIFESTS,
    OBSERVED,
    PLANS,
    RUNS,
    SCHEMA_VERSION,
    SCHEMA_VERSION_PROPERTY,
    TABLES,
    USAGES,
    VIOLATIONS,
    Table,
)

__all__ = [
    "ACTIONS",
    "AUDIT",
    "BROKERS",
    "CONFIGS",
    "MANIFESTS",
    "OBSERVED",
    "PLANS",
    "RUNS",
    "SCHEMA_VERSION",
    "SCHEMA_VERSION_PROPERTY",
    "TABLES",
    "USAGES",
    "VIOLATIONS",
    "Table",
]
