"""The tables of ACLs, client quotas and group configs."""

from __future__ import annotations

from pyspark.sql.types import DoubleType, MapType, StringType, StructType, TimestampType

from topicledger.schemas.definition import FIRST_OBSERVED_BY, Table, column, skipping_by

_STRING = StringType()

ACL_KEY = ("principal", "permission", "operation", "resource_type", "pattern_type", "resource_name", "host")
"""The columns that identify an ACL of a cluster: all of its parts."""

ACLS = Table(
    name="acls",
    comment="The desired ACLs, one row per ACL",
    schema=StructType(
        [
            column("cluster", _STRING, "a name from the run settings"),
            column("principal", _STRING, "the principal: `User:name`, or `User:*` for everyone"),
            column("permission", _STRING, "ALLOW or DENY; null: ALLOW"),
            column("operation", _STRING, "Kafka's name: READ, WRITE, DESCRIBE, ..., ALL"),
            column("resource_type", _STRING, "TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN or USER"),
            column("pattern_type", _STRING, "LITERAL or PREFIXED; null: LITERAL"),
            column("resource_name", _STRING, "the resource's name, or its prefix; a literal `*` is every resource"),
            column("host", _STRING, "the client's address; null or `*`: any"),
            column("state", _STRING, "present or absent; null: present"),
            column("owner", _STRING, "team or service"),
            column("labels", MapType(_STRING, _STRING), "free labels, for policies and reports"),
        ]
    ),
    key=("cluster", *ACL_KEY),
    key_defaults={"permission": "ALLOW", "pattern_type": "LITERAL", "host": "*"},
    properties={"delta.enableChangeDataFeed": "true"},
    shared=True,
)

OBSERVED_ACLS = Table(
    name="observed_acls",
    comment="The ACLs of each cluster when they were last observed; history by time travel",
    schema=StructType(
        [
            column("cluster", _STRING, "a name from the run settings"),
            column("cluster_id", _STRING, "the Kafka cluster's own id"),
            column("principal", _STRING, "the principal"),
            column("permission", _STRING, "ALLOW or DENY"),
            column("operation", _STRING, "Kafka's name; e.g. UNKNOWN_16 if this topicledger doesn't know it"),
            column("resource_type", _STRING, "Kafka's name, like operation"),
            column("pattern_type", _STRING, "LITERAL or PREFIXED"),
            column("resource_name", _STRING, "the resource's name, or its prefix"),
            column("host", _STRING, "the client's address; `*`: any"),
            FIRST_OBSERVED_BY,
            column("observed_at", TimestampType(), "when the cluster first reported this state"),
        ]
    ),
    partitioned_by=("cluster",),
    properties=skipping_by("run_id", "principal", "resource_name"),
)

_ENTITY = (
    column("user", _STRING, "a user's name; `<default>`: every user without own quotas; null: not limited by user"),
    column("client_id", _STRING, "a client id, with the same values as user"),
    column("ip", _STRING, "a client's address, with the same values as user; only without user and client_id"),
)
_ENTITY_KEY = tuple(field.name for field in _ENTITY)
_LIMITS = (
    column("producer_byte_rate", DoubleType(), "bytes per second and broker, a whole number; null: no such limit"),
    column("consumer_byte_rate", DoubleType(), "like producer_byte_rate"),
    column("request_percentage", DoubleType(), "percentage of a thread's time per broker; null: no such limit"),
    column("controller_mutation_rate", DoubleType(), "partitions per second; null: no such limit"),
    column(
        "connection_creation_rate",
        DoubleType(),
        "connections per second, a whole number, only for an ip; null: no such limit",
    ),
)

QUOTAS = Table(
    name="quotas",
    comment="The desired client quotas, one row per entity",
    schema=StructType(
        [
            column("cluster", _STRING, "a name from the run settings"),
            *_ENTITY,
            *_LIMITS,
            column("state", _STRING, "present, or absent for no limits at all; null: present"),
            column("owner", _STRING, "team or service"),
            column("labels", MapType(_STRING, _STRING), "free labels, for policies and reports"),
        ]
    ),
    key=("cluster", *_ENTITY_KEY),
    properties={"delta.enableChangeDataFeed": "true"},
    shared=True,
)

OBSERVED_QUOTAS = Table(
    name="observed_quotas",
    comment="The client quotas of each cluster when they were last observed; history by time travel",
    schema=StructType(
        [
            column("cluster", _STRING, "a name from the run settings"),
            column("cluster_id", _STRING, "the Kafka cluster's own id"),
            *_ENTITY,
            *_LIMITS,
            FIRST_OBSERVED_BY,
            column("observed_at", TimestampType(), "when the cluster first reported this state"),
        ]
    ),
    partitioned_by=("cluster",),
    properties=skipping_by("run_id", *_ENTITY_KEY),
)

_GROUP = column("group", _STRING, "the id of a consumer, share or streams group; it need not exist")

GROUP_CONFIGS = Table(
    name="group_configs",
    comment="The desired configs of groups, one row per group",
    schema=StructType(
        [
            column("cluster", _STRING, "a name from the run settings"),
            _GROUP,
            column("configs", MapType(_STRING, _STRING), "all configs that the group must have; others are removed"),
            column("state", _STRING, "present or absent; null: present; absent: all configs are removed"),
            column("owner", _STRING, "team or service"),
            column("labels", MapType(_STRING, _STRING), "free labels, for policies and reports"),
        ]
    ),
    key=("cluster", "group"),
    properties={"delta.enableChangeDataFeed": "true"},
    shared=True,
)

OBSERVED_GROUP_CONFIGS = Table(
    name="observed_group_configs",
    comment="The configs of each cluster's groups when they were last observed; history by time travel",
    schema=StructType(
        [
            column("cluster", _STRING, "a name from the run settings"),
            column("cluster_id", _STRING, "the Kafka cluster's own id"),
            _GROUP,
            column("configs", MapType(_STRING, _STRING), "the configs that are set on the group; null: unknown"),
            FIRST_OBSERVED_BY,
            column("observed_at", TimestampType(), "when the cluster first reported this state"),
        ]
    ),
    partitioned_by=("cluster",),
    properties=skipping_by("run_id", "group"),
)

RESOURCES = (ACLS, QUOTAS, GROUP_CONFIGS)
"""The tables that declare resources beside topics."""
