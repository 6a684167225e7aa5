"""The parts of an ACL, and the values that Kafka accepts for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

ALLOW, DENY = "ALLOW", "DENY"
PERMISSIONS = (ALLOW, DENY)
LITERAL, PREFIXED = "LITERAL", "PREFIXED"
PATTERN_TYPES = (LITERAL, PREFIXED)
WILDCARD = "*"
"""Every host; as a literal name, every resource."""
EVERYONE = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The only name of a resource of type CLUSTER."""

OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "TOPIC": ("READ", "WRITE", "CREATE", "DESCRIBE", "DELETE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
    "GROUP": ("READ", "DESCRIBE", "DELETE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
    "CLUSTER": (
        "CREATE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "ALTER", "DESCRIBE",
    ),
    "TRANSACTIONAL_ID": ("DESCRIBE", "WRITE", "TWO_PHASE_COMMIT"),
    "DELEGATION_TOKEN": ("DESCRIBE",),
    "USER": ("CREATE_TOKENS", "DESCRIBE_TOKENS"),
}  # fmt: skip
"""Operations that have a meaning, by resource type, beside ALL (`AclEntry.supportedOperations` of 4.3.1).

Brokers accept all other operations, too, but those never grant anything (A3)."""
OPERATION_NAMES = sorted({each for named in OPERATIONS.values() for each in named})


class Acl(NamedTuple):
    """One ACL of a cluster, with Kafka's names."""

    principal: str
    permission: str
    operation: str
    resource_type: str
    pattern_type: str
    resource_name: str
    host: str

    @classmethod
    def of(cls, values: Mapping[str, str]) -> Acl:
        """Return the ACL in an action's `before` or `after`."""
        return cls(**{name: values[name] for name in cls._fields})
