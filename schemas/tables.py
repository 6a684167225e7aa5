"""The tables as StructTypes. Users' queries rely on every name and type here.

Deletion vectors and other table features that delta-rs doesn't support stay off, so that `manifests` and `usages` can
be written, and all tables read, without Spark.
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

from topicledger.schemas.definition import FIRST_OBSERVED_BY, Table
from topicledger.schemas.definition import column as _column
from topicledger.schemas.definition import skipping_by as _skipping_by
from topicledger.schemas.resources import (
    ACLS,
    GROUP_CONFIGS,
    OBSERVED_ACLS,
    OBSERVED_GROUP_CONFIGS,
    OBSERVED_QUOTAS,
    QUOTAS,
    RESOURCES,
)
from topicledger.schemas.runs import APPROVALS, CLUSTERS, LEASES, RUNS, THROTTLES
from topicledger.schemas.usage import USAGE

_STRING, _INT, _BIGINT, _TIMESTAMP, _BOOLEAN = StringType(), IntegerType(), LongType(), TimestampType(), BooleanType()

_FIRST_OBSERVED_AT = _column(
    "observed_at",
    _TIMESTAMP,
    "when the cluster first reported this state; the last time is in `runs.observed_at`",
)

ASSIGNMENTS = MapType(_INT, ArrayType(_INT))
"""Partition -> broker ids; the first is the preferred leader (C3)."""

VIOLATIONS = ArrayType(StructType([StructField("policy", _STRING), StructField("message", _STRING)]))
"""All rules that an action breaks, not just the first (P3)."""

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
"""A topic's configs, as returned by the broker (C9)."""


ACTION_KEY = ("cluster", "resource_type", "resource", "action")
"""The columns that identify an action of a run in `plans` and `audit`."""
_RESOURCE = (
    _column("resource_type", _STRING, "topic, acl, quota or group_config; null, which means topic, in old rows"),
    _column(
        "resource",
        _STRING,
        "the topic, group, or the text of an ACL or a quota's entity; null, which means `topic`, in old rows",
    ),
)
_RESOURCE_DEFAULTS = {"resource_type": "'topic'", "resource": "topic"}

MANIFESTS = Table(
    name="manifests",
    comment="The desired topics, one row per (cluster, topic)",
    key=("cluster", "topic"),
    schema=StructType(
        [
            _column("cluster", _STRING, "a name from the run settings", nullable=False),
            _column("topic", _STRING, "the topic's name", nullable=False),
            _column("state", _STRING, "present or absent", nullable=False),
            _column("num_partitions", _INT, "null: the broker's default"),
            _column("replication_factor", _INT, "null: the broker's default"),
            _column("assignments", ASSIGNMENTS, "partition -> broker ids, the first is the preferred leader"),
            _column("configs", MapType(_STRING, _STRING), "the configs to set; all others keep the broker's defaults"),
            _column("owner", _STRING, "team or service"),
            _column("labels", MapType(_STRING, _STRING), "free labels, for policies and reports"),
            _column("placement", _STRING, "rule for replicas: any, racks, spread, rack:NAME or brokers:1,2,3"),
            _column("replaces", _STRING, "the topic that this one replaces, as Kafka can't rename: see docs/rename.md"),
            _column("description", _STRING, "the purpose of the topic, as free text; changes nothing on a cluster"),
        ]
    ),
    properties={"delta.enableChangeDataFeed": "true"},
    shared=True,
)

USAGES = Table(
    name="usages",
    comment="Declared users of topics: the registry that a delete policy reads; measured usage is in usage",
    schema=StructType(
        [
            _column("cluster", _STRING, "a name from the run settings"),
            _column("topic", _STRING, "the topic's name"),
            _column("consumer", _STRING, "the user of the topic: a service or a team"),
            _column("valid_until", _TIMESTAMP, "end of the usage; null: unlimited"),
            _column("note", _STRING, "free text"),
        ]
    ),
    shared=True,
)

ACTIONS = StructType(
    [
        _column("run_id", _STRING, "the run that planned the action"),
        _column("cluster", _STRING, "a name from the run settings"),
        _column("cluster_id", _STRING, "the Kafka cluster's own id"),
        _column("topic", _STRING, "the topic's name"),
        _column("topic_id", _STRING, "the live topic's id; null for a create"),
        _column("action", _STRING, "kind of the action, such as create; null if a row was refused before it had one"),
        _column("num_partitions", _INT, "as declared; null: the broker's default"),
        _column("replication_factor", _INT, "as declared; null: the broker's default"),
        _column("assignments", ASSIGNMENTS, "as declared: partition -> broker ids"),
        _column("configs", MapType(_STRING, _STRING), "as declared"),
        _column("phase", _STRING, "phase that ended the action while planning, else null"),
        _column("outcome", _STRING, "outcome of that phase, else null"),
        _column("error", _STRING, "the refusal's name, else null"),
        _column("error_message", _STRING, "the refusal's reason, else null"),
        _column("violations", VIOLATIONS, "all policies violated, including policies that only warn"),
        _column(
            "batch",
            _INT,
            "number of its request: 0, 1, 2... for each cluster and action; from 1000000 if guards stopped the action; "
            "null if nothing is sent",
        ),
        _column("manifest_version", _BIGINT, "the version of manifests that was read"),
        _column("planned_at", _TIMESTAMP, "when the action was decided"),
        _column(
            "before",
            MapType(_STRING, _STRING),
            "current values. A delete: counts and assignments, without a topic id also the configs set on the topic. "
            "A change of partitions: num_partitions. A change of configs: these configs as set on the topic; a missing "
            "name has the broker's default",
        ),
        *_RESOURCE,
        _column("after", MapType(_STRING, _STRING), "for a change: the values that replace before"),
        _column("placement", _STRING, "as declared; the planner then chose the assignments of a create"),
        _column("owner", _STRING, "as declared; null in old rows"),
        _column(
            "guards",
            MapType(_STRING, _INT),
            "for an action that guards stopped: guard, such as deletes -> the number that `runs approve --allow` must "
            "allow",
        ),
    ]
)
"""Columns of `plans`: the results of decide, policy and guard."""

PLANS = Table(
    name="plans",
    comment="Every decision of every run, refusals included, committed before anything is sent",
    schema=ACTIONS,
    properties=_skipping_by("run_id", "cluster", "topic"),
    defaults=_RESOURCE_DEFAULTS,
)

SENT_BATCHES = Table(
    name="sent_batches",
    comment="Batches of a run that may have been sent, append-only; a row is committed before its batch is sent",
    schema=StructType(
        [
            _column("run_id", _STRING, "the run that wrote the row"),
            _column("cluster", _STRING, "a name from the run settings"),
            _column("action", _STRING, "kind of the batch's actions, such as create"),
            _column("batch", _INT, "as in plans; later batches may have a row before this one is sent"),
            _column("epoch", _INT, "`runs.epoch` of the start that sent the batch"),
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
            _column("topic_id", _STRING, "the topic's id; null if brokers have none (before 2.8)"),
            _column("internal", _BOOLEAN, "whether the topic is internal to Kafka, like __consumer_offsets"),
            _column(
                "permitted",
                _BOOLEAN,
                "false: brokers don't describe it to this principal (29), or not at all: it may or may not exist",
            ),
            _column("num_partitions", _INT, "number of live partitions"),
            _column("replication_factor", _INT, "largest number of replicas of a partition"),
            _column("assignments", ASSIGNMENTS, "partition -> broker ids, the first is the preferred leader"),
            _column(
                "authorized_operations",
                ArrayType(_STRING),
                "operations that this principal may do on the topic, with Kafka's names; null if the broker doesn't "
                "report them",
            ),
            FIRST_OBSERVED_BY,
            _FIRST_OBSERVED_AT,
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
            _column("rack", _STRING, "the broker's rack; null if it has none"),
            _column("host", _STRING, "host of its advertised listener"),
            _column("port", _INT, "port of its advertised listener"),
            _column("controller", _BOOLEAN, "whether metadata named it as the controller"),
            FIRST_OBSERVED_BY,
            _FIRST_OBSERVED_AT,
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
            _column("topic_id", _STRING, "the topic's id; null if brokers have none (before 2.8)"),
            _column("configs", CONFIGS, "as described by the broker; a sensitive value is null"),
            _column("config_error_code", _INT, "Kafka's error code if configs are missing, else 0"),
            _column("config_error", _STRING, "Kafka's name for the code"),
            FIRST_OBSERVED_BY,
            _FIRST_OBSERVED_AT,
        ]
    ),
    partitioned_by=("cluster",),
    properties=_skipping_by("run_id", "topic"),
)

AUDIT = Table(
    name="audit",
    comment="Results, append-only: one row per run, topic, action and phase that ended for it",
    schema=StructType(
        [
            _column("run_id", _STRING, "the run that wrote the row"),
            _column("cluster", _STRING, "a name from the run settings"),
            _column("cluster_id", _STRING, "the Kafka cluster's own id"),
            _column("topic", _STRING, "the topic's name"),
            _column(
                "action", _STRING, "kind of the action, such as create; null if a row was refused before it had one"
            ),
            _column("phase", _STRING, "manifest, observe, policy, guard, validate, apply or verify"),
            _column("outcome", _STRING, "ok, failed, refused or skipped; in verify also pending"),
            _column("error_code", _INT, "Kafka's error code, 0 for none; -1 for a refusal by topicledger"),
            _column("error", _STRING, "Kafka's name for the code, or topicledger's"),
            _column("error_message", _STRING, "the broker's message, or topicledger's"),
            _column("topic_id", _STRING, "the topic's id; never one from validateOnly, which is not real"),
            _column("num_partitions", _INT, "as returned by the broker"),
            _column("replication_factor", _INT, "as returned by the broker"),
            _column("configs", CONFIGS, "as returned by the broker; a sensitive value is null"),
            _column("topic_config_error_code", _INT, "Kafka's error code if configs are missing (KIP-525)"),
            _column("violations", VIOLATIONS, "all policies violated; `broker` is the broker's own policy"),
            _column("batch", _INT, "as in plans"),
            _column("attempt", _INT, "number of requests that contained the topic"),
            _column("requested_at", _TIMESTAMP, "when the last of these requests was sent"),
            _column("completed_at", _TIMESTAMP, "when its answer arrived"),
            _column("manifest_version", _BIGINT, "the version of manifests that the run planned from"),
            *_RESOURCE,
            _column(
                "before",
                MapType(_STRING, _STRING),
                "for a change: as in plans, but read immediately before it was sent",
            ),
            _column("after", MapType(_STRING, _STRING), "for a change: the values sent; in verify, the values read"),
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
    comment="Differences between live clusters and manifests, append-only: one row per audit, topic, kind and what",
    schema=StructType(
        [
            _column("run_id", _STRING, "the audit that found the drift"),
            _column("cluster", _STRING, "a name from the run settings"),
            _column("cluster_id", _STRING, "the Kafka cluster's own id"),
            _column("topic", _STRING, "the topic's name"),
            _column("topic_id", _STRING, "the live topic's id"),
            _column("kind", _STRING, "missing, unmanaged, config_differs, ...: see docs/audit-and-drift.md"),
            _column("what", _STRING, "the config's name or the partition, if the kind is about one"),
            _column("declared", _STRING, "the expected value, usually the manifest's; message explains it"),
            _column("live", _STRING, "the value on the cluster"),
            _column("severity", _STRING, "error, warning or info"),
            _column("message", _STRING, "description of the difference"),
            _column("since", _TIMESTAMP, "when the first in an unbroken series of audits found the drift"),
            _column("manifest_version", _BIGINT, "the version of manifests that was compared"),
            _column("observed_at", _TIMESTAMP, "when the drift was found"),
        ]
    ),
    properties={"delta.appendOnly": "true", **_skipping_by("run_id", "cluster", "topic", "kind", "observed_at")},
)

DECLARING = (MANIFESTS, *RESOURCES)
"""The tables that declare resources, one for each kind."""

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
        USAGE,
        RUNS,
        LEASES,
        CLUSTERS,
        THROTTLES,
        ACLS,
        OBSERVED_ACLS,
        APPROVALS,
        QUOTAS,
        OBSERVED_QUOTAS,
        GROUP_CONFIGS,
        OBSERVED_GROUP_CONFIGS,
    )
}
