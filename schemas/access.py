"""Who may: the tables of ACLs."""

from __future__ import annotations

from pyspark.sql.types import MapType, StringType, StructType, TimestampType

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
