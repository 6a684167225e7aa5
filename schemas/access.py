"""Who may, and how much: the tables of ACLs and client quotas."""

from __future__ import annotations

from pyspark.sql.types import DoubleType, MapType, StringType, StructType, TimestampType

from topicledger.model.quotas import ENTITY
from topicledger.schemas.definition import Table, column, skipping_by

_STRING = StringType()

ACL_KEY = ("principal", "permission", "operation", "resource_type", "pattern_type", "resource_name", "host")
"""What makes an ACL of a cluster: all of it."""

ACLS = Table(
    name="acls",
    comment="The desired ACLs, one row per right",
    schema=StructType(
        [
            column("cluster", _STRING, "a name from the run settings"),
            column("principal", _STRING, "who: `User:name`, `User:*` for everyone"),
            column("permission", _STRING, "ALLOW or DENY; null: ALLOW"),
            column("operation", _STRING, "Kafka's name: READ, WRITE, DESCRIBE, ..., ALL"),
            column("resource_type", _STRING, "TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN or USER"),
            column("pattern_type", _STRING, "LITERAL or PREFIXED; null: LITERAL"),
            column("resource_name", _STRING, "its name, or what its name begins with; a literal `*` is every resource"),
            column("host", _STRING, "the client's address; null or `*`: any"),
            column("state", _STRING, "present or absent; null: present"),
            column("owner", _STRING, "team or service"),
            column("labels", MapType(_STRING, _STRING), "free, for policies and reports"),
        ]
    ),
    key=("cluster", *ACL_KEY),
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
            column("principal", _STRING, "who"),
            column("permission", _STRING, "ALLOW or DENY"),
            column("operation", _STRING, "Kafka's name; UNKNOWN_15 and so on where this topicledger knows none"),
            column("resource_type", _STRING, "Kafka's name, as operation"),
            column("pattern_type", _STRING, "LITERAL or PREFIXED"),
            column("resource_name", _STRING, "its name, or what its name begins with"),
            column("host", _STRING, "the client's address; `*`: any"),
            column("run_id", _STRING, "the run that saw it so first: a cluster's rows are replaced where they differ"),
            column("observed_at", TimestampType(), "when the cluster answered so first"),
        ]
    ),
    partitioned_by=("cluster",),
    properties=skipping_by("run_id", "principal", "resource_name"),
)

_ENTITY = (
    column("user", _STRING, "a user's name; `<default>`: every user without quotas of their own; null: not by user"),
    column("client_id", _STRING, "a client id, as user"),
    column("ip", _STRING, "an address that connections come from, as user; alone"),
)
_LIMITS = (
    column("producer_byte_rate", DoubleType(), "bytes per second and broker, a whole number; null: no such limit"),
    column("consumer_byte_rate", DoubleType(), "as producer_byte_rate"),
    column("request_percentage", DoubleType(), "of a thread's time per broker, in percent; null: no such limit"),
    column("controller_mutation_rate", DoubleType(), "partitions per second; null: no such limit"),
    column("connection_creation_rate", DoubleType(), "of an ip: connections per second, a whole number; null: none"),
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
            column("labels", MapType(_STRING, _STRING), "free, for policies and reports"),
        ]
    ),
    key=("cluster", *ENTITY),
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
            column("run_id", _STRING, "the run that saw it so first: a cluster's rows are replaced where they differ"),
            column("observed_at", TimestampType(), "when the cluster answered so first"),
        ]
    ),
    partitioned_by=("cluster",),
    properties=skipping_by("run_id", *ENTITY),
)

RESOURCES = (ACLS, QUOTAS)
"""What is declared beside topics."""
