"""The tables as StructTypes: other people's queries rely on every name and type here.

Deletion vectors and every other table feature that delta-rs can't handle stay off, so that `manifests` and `usages`
can be written, and all tables read, without Spark.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from topicledger.schemas.access import ACLS, OBSERVED_ACLS, OBSERVED_QUOTAS, QUOTAS
from topicledger.schemas.definition import Table
from topicledger.schemas.definition import column as _column
from topicledger.schemas.definition import skipping_by as _skipping_by
from topicledger.schemas.runs import APPROVALS, CLUSTERS, LEASES, RUNS, THROTTLES

_STRING, _INT, _BIGINT, _TIMESTAMP, _BOOLEAN = StringType(), IntegerType(), LongType(), TimestampType(), BooleanType()

ASSIGNMENTS = MapType(_INT, ArrayType(_INT))
"""Partition -> broker ids; the first is the preferred leader (C3)."""

VIOLATIONS = ArrayType(StructType([StructField("policy", _STRING), StructField("message", _STRING)]))
"""Every rule an action breaks, not just the first (P3)."""

CONFIGS = ArrayType(
    StructType(
        [
            StructField("name", _STRING),
            StructField("value", _STRING),
            StructField("read_only", _BOOLEAN),
            StructField("config_source", _STRING),
            StructField("is_sensitive", _BOOLEAN),
        ]
    )
)
"""A topic's configs as the broker returned them (C9)."""


ACTION_KEY = ("cluster", "resource_type", "resource", "action")
"""An action of a run, in `plans` and `audit`."""
_RESOURCE = (
    _column(
        "resource_type", _STRING, "what it is about: topic, acl or quota; null in rows before schema version 3: topic"
    ),
    _column(
        "resource",
        _STRING,
        "the topic, or the text of an ACL or a quota's entity; null in rows before schema version 3: as topic",
    ),
)
_RESOURCE_DEFAULTS = {"resource_type": "'topic'", "resource": "topic"}

MANIFESTS = Table(
    name="manifests",
    comment="The desired topics, one row per (cluster, topic)",
    schema=StructType(
        [
            _column("cluster", _STRING, "a name from the run settings", nullable=False),
            _column("topic", _STRING, "the topic's name", nullable=False),
            _column("state", _STRING, "present or absent", nullable=False),
            _column("num_partitions", _INT, "null: the broker's default"),
            _column("replication_factor", _INT, "null: the broker's default"),
            _column("assignments", ASSIGNMENTS, "partition -> broker ids, the first is the preferred leader"),
            _column("configs", MapType(_STRING, _STRING), "only what is set; the rest stays the broker's"),
            _column("owner", _STRING, "team or service"),
            _column("labels", MapType(_STRING, _STRING), "free, for policies and reports"),
            _column("placement", _STRING, "where replicas are to be: any, racks, spread, rack:NAME or brokers:1,2,3"),
        ]
    ),
    properties={"delta.enableChangeDataFeed": "true"},
    shared=True,
)

USAGES = Table(
    name="usages",
    comment="Who uses a topic: the registry that a delete policy asks",
    schema=StructType(
        [
            _column("cluster", _STRING, "a name from the run settings"),
            _column("topic", _STRING, "the topic's name"),
            _column("consumer", _STRING, "who uses it: a service, a team"),
            _column("valid_until", _TIMESTAMP, "null: for good"),
            _column("note", _STRING, "free text"),
        ]
    ),
    shared=True,
)

ACTIONS = StructType(
    [
        _column("run_id", _STRING, "the run that planned it"),
        _column("cluster", _STRING, "a name from the run settings"),
        _column("cluster_id", _STRING, "the Kafka cluster's own id"),
        _column("topic", _STRING, "the topic's name"),
        _column("topic_id", _STRING, "the live topic's id; null for a create"),
        _column("action", _STRING, "its kind, such as create; null where a row was refused before it had one"),
        _column("num_partitions", _INT, "as declared; null: the broker's default"),
        _column("replication_factor", _INT, "as declared; null: the broker's default"),
        _column("assignments", ASSIGNMENTS, "as declared: partition -> broker ids"),
        _column("configs", MapType(_STRING, _STRING), "as declared"),
        _column("phase", _STRING, "of the decision that ended it, else null"),
        _column("outcome", _STRING, "of the decision that ended it, else null"),
        _column("error", _STRING, "the refusal's name, else null"),
        _column("error_message", _STRING, "the refusal's reason, else null"),
        _column("violations", VIOLATIONS, "every policy violated, also where the policy only warns"),
        _column(
            "batch",
            _INT,
            "the request it is sent with: 0, 1, 2... of each cluster and action; null where nothing is sent",
        ),
        _column("manifest_version", _BIGINT, "the version of manifests that was read"),
        _column("planned_at", _TIMESTAMP, "when it was decided"),
        _column(
            "before",
            MapType(_STRING, _STRING),
            "what is: of a delete num_partitions, replication_factor and assignments of the live topic, "
            "where it has no id also the configs that are set on it; of a change what it touches: num_partitions, or "
            "configs by name, as set on the topic (a name that is missing is the broker's default)",
        ),
        *_RESOURCE,
        _column("after", MapType(_STRING, _STRING), "of a change: what is to be in place of before"),
        _column("placement", _STRING, "as declared; the assignments of a create are then those that the planner chose"),
        _column("owner", _STRING, "as declared; null in rows before schema version 8"),
    ]
)
"""Columns of `plans`: what decide, policy and guard produce."""

PLANS = Table(
    name="plans",
    comment="Every decision of every run, refusals included, committed before anything is sent",
    schema=ACTIONS,
    properties=_skipping_by("run_id", "cluster", "topic"),
    defaults=_RESOURCE_DEFAULTS,
)

SENT_BATCHES = Table(
    name="sent_batches",
    comment="Which batches of a run may have been sent, append-only: a row is committed before its batch is sent",
    schema=StructType(
        [
            _column("run_id", _STRING, "the run that wrote the row"),
            _column("cluster", _STRING, "a name from the run settings"),
            _column("action", _STRING, "its kind, such as create"),
            _column("batch", _INT, "as in plans; the one after it may have a row before it is sent"),
            _column("epoch", _INT, "of the run's start that sent it"),
            _column("marked_at", _TIMESTAMP, "when the row was written"),
        ]
    ),
    properties={"delta.appendOnly": "true", **_skipping_by("run_id")},
)

OBSERVED = Table(
    name="observed",
    comment="The topics of each cluster when it was last observed; history by time travel",
    schema=StructType(
        [
            _column("cluster", _STRING, "a name from the run settings"),
            _column("cluster_id", _STRING, "the Kafka cluster's own id"),
            _column("topic", _STRING, "the topic's name"),
            _column("topic_id", _STRING, "null where brokers give none (before 2.8)"),
            _column("internal", _BOOLEAN, "internal to Kafka, as __consumer_offsets is"),
            _column("permitted", _BOOLEAN, "false: it exists or not, this principal may not know (29)"),
            _column("num_partitions", _INT, "live partitions"),
            _column("replication_factor", _INT, "the most replicas that a partition has"),
            _column("assignments", ASSIGNMENTS, "partition -> broker ids, the first is the preferred leader"),
            _column(
                "authorized_operations",
                ArrayType(_STRING),
                "what this principal may do with it, by Kafka's names; null where the broker doesn't say",
            ),
            _column("run_id", _STRING, "the run that saw it so first: a cluster's rows are replaced where they differ"),
            _column("observed_at", _TIMESTAMP, "when the cluster answered so first; last: `observed_at` of `runs`"),
        ]
    ),
    partitioned_by=("cluster",),
    properties=_skipping_by("run_id", "topic"),
)

BROKERS = Table(
    name="brokers",
    comment="The brokers of each cluster when it was last observed",
    schema=StructType(
        [
            _column("cluster", _STRING, "a name from the run settings"),
            _column("cluster_id", _STRING, "the Kafka cluster's own id"),
            _column("broker_id", _INT, "the broker's id"),
            _column("rack", _STRING, "its rack; null where it has none"),
            _column("host", _STRING, "of its advertised listener"),
            _column("port", _INT, "of its advertised listener"),
            _column("controller", _BOOLEAN, "whether metadata named it as the controller"),
            _column("run_id", _STRING, "the run that saw it so first: a cluster's rows are replaced where they differ"),
            _column("observed_at", _TIMESTAMP, "when the cluster answered so first; last: `observed_at` of `runs`"),
        ]
    ),
    partitioned_by=("cluster",),
)

OBSERVED_CONFIGS = Table(
    name="observed_configs",
    comment="The configs of each topic when an audit last described them; history by time travel",
    schema=StructType(
        [
            _column("cluster", _STRING, "a name from the run settings"),
            _column("cluster_id", _STRING, "the Kafka cluster's own id"),
            _column("topic", _STRING, "the topic's name"),
            _column("topic_id", _STRING, "null where brokers give none (before 2.8)"),
            _column("configs", CONFIGS, "as described by the broker; a sensitive value is null"),
            _column("config_error_code", _INT, "Kafka's number: why configs are missing; 0 where they aren't"),
            _column("config_error", _STRING, "Kafka's name for it"),
            _column("run_id", _STRING, "the run that saw it so first: a cluster's rows are replaced where they differ"),
            _column("observed_at", _TIMESTAMP, "when the cluster answered so first; last: `observed_at` of `runs`"),
        ]
    ),
    partitioned_by=("cluster",),
    properties=_skipping_by("run_id", "topic"),
)

AUDIT = Table(
    name="audit",
    comment="The result, append-only: one row per run, topic, action and phase that ended for it",
    schema=StructType(
        [
            _column("run_id", _STRING, "the run that wrote the row"),
            _column("cluster", _STRING, "a name from the run settings"),
            _column("cluster_id", _STRING, "the Kafka cluster's own id"),
            _column("topic", _STRING, "the topic's name"),
            _column("action", _STRING, "its kind, such as create; null where a row was refused before it had one"),
            _column("phase", _STRING, "manifest, observe, policy, guard, validate, apply or verify"),
            _column("outcome", _STRING, "ok, failed, refused or skipped; in verify also pending"),
            _column("error_code", _INT, "Kafka's number, 0 for none; -1 where the refusal is ours"),
            _column("error", _STRING, "Kafka's name for it, or ours"),
            _column("error_message", _STRING, "the broker's words, or ours"),
            _column("topic_id", _STRING, "never an id from validateOnly: that one is not real"),
            _column("num_partitions", _INT, "as returned by the broker"),
            _column("replication_factor", _INT, "as returned by the broker"),
            _column("configs", CONFIGS, "as returned by the broker; a sensitive value is null"),
            _column("topic_config_error_code", _INT, "KIP-525: why configs are missing"),
            _column("violations", VIOLATIONS, "every policy violated; policy `broker` is the broker's own"),
            _column("batch", _INT, "as in plans"),
            _column("attempt", _INT, "how many requests the topic was part of"),
            _column("requested_at", _TIMESTAMP, "when the last of them was sent"),
            _column("completed_at", _TIMESTAMP, "when its answer came"),
            _column("manifest_version", _BIGINT, "the version of manifests that the run planned from"),
            *_RESOURCE,
            _column("before", MapType(_STRING, _STRING), "of a change: as in plans, as read right before it was sent"),
            _column("after", MapType(_STRING, _STRING), "of a change: what was sent; in verify, as read then"),
        ]
    ),
    properties={
        "delta.appendOnly": "true",
        **_skipping_by("run_id", "cluster", "topic", "phase", "outcome", "completed_at"),
    },
    defaults=_RESOURCE_DEFAULTS,
)

DRIFT = Table(
    name="drift",
    comment="How live clusters differ from the manifests, append-only: one row per audit, topic, kind and what",
    schema=StructType(
        [
            _column("run_id", _STRING, "the audit that found it"),
            _column("cluster", _STRING, "a name from the run settings"),
            _column("cluster_id", _STRING, "the Kafka cluster's own id"),
            _column("topic", _STRING, "the topic's name"),
            _column("topic_id", _STRING, "the live topic's id"),
            _column("kind", _STRING, "missing, unmanaged, config_differs, ...: see docs/audit-and-drift.md"),
            _column("what", _STRING, "the config's name or the partition, where the kind is about one"),
            _column("declared", _STRING, "what was expected: mostly as the manifest says; message says what it is"),
            _column("live", _STRING, "as the cluster says"),
            _column("severity", _STRING, "error, warning or info"),
            _column("message", _STRING, "what differs, in words"),
            _column("since", _TIMESTAMP, "when an unbroken series of audits first found it"),
            _column("manifest_version", _BIGINT, "the version of manifests that was compared"),
            _column("observed_at", _TIMESTAMP, "when it was found"),
        ]
    ),
    properties={"delta.appendOnly": "true", **_skipping_by("run_id", "cluster", "topic", "kind", "observed_at")},
)


TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        MANIFESTS,
        USAGES,
        PLANS,
        SENT_BATCHES,
        OBSERVED,
        OBSERVED_CONFIGS,
        BROKERS,
        AUDIT,
        DRIFT,
        RUNS,
        LEASES,
        CLUSTERS,
        THROTTLES,
        ACLS,
        OBSERVED_ACLS,
        APPROVALS,
        QUOTAS,
        OBSERVED_QUOTAS,
    )
}
