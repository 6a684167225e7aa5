"""The tables of runs, approvals, leases, clusters and throttles."""

from __future__ import annotations

from pyspark.sql.types import IntegerType, LongType, MapType, StringType, StructType, TimestampType

from topicledger.schemas.definition import Table, column

_STRING, _INT, _BIGINT, _TIMESTAMP = StringType(), IntegerType(), LongType(), TimestampType()

RUNS = Table(
    name="runs",
    comment="One row per run, updated while it runs",
    schema=StructType(
        [
            column("run_id", _STRING, "the run's id"),
            column("state", _STRING, "planning, planned, applying, finished or abandoned"),
            column("started_at", _TIMESTAMP, "when the run was first started"),
            column("finished_at", _TIMESTAMP, "when the run finished; null before"),
            column("manifest_version", _BIGINT, "the version of manifests that the run read"),
            column(
                "counts", MapType(_STRING, _BIGINT), "numbers of topics by outcome of their last phase, and by decision"
            ),
            column("exit_code", _INT, "exit code of the command that finished the run; null before"),
            column("versions", MapType(_STRING, _STRING), "versions of topicledger, spark, delta and kafka-python"),
            column("spark_app_id", _STRING, "Spark's id of the application that last started the run"),
            column("principal", _STRING, "the run's principal on each cluster"),
            column("requested_by", _STRING, "`--requested-by`, else the OS user"),
            column("arguments", MapType(_STRING, _STRING), "the command's arguments, values of --var included"),
            column("settings_digest", _STRING, "SHA-256 of the settings that affect decisions"),
            column("epoch", _INT, "number of the run's last start: 1, 2..."),
            column(
                "shard",
                _INT,
                "partition, by the run id; runs in different ones can be updated at the same time; null in old rows",
            ),
            column("start_id", _STRING, "id of the run's last start; every start has a new one"),
            column("observed_at", _TIMESTAMP, "when the run began to observe its clusters; null in old rows"),
            column(
                "proof",
                MapType(_STRING, _STRING),
                "state at the run's end: for plans, audit and approvals, the number of its rows, their SHA-256 and the "
                "table's version; null if it planned nothing, and in old rows",
            ),
            column(
                "previous_digest",
                _STRING,
                "digests of earlier runs that no earlier `previous_digest` contains, separated by commas",
            ),
            column("digest", _STRING, "digest of this row without `notified`: see docs/proof.md"),
            column(
                "notified",
                _STRING,
                "announced events ([[notify]]), each with an id: `failed:9c0d`, separated by commas; null: none",
            ),
            column(
                "scope",
                _STRING,
                "limits of what the run is about, as JSON: clusters, kinds, owners, topics, resources, files, and "
                "`barred`: owners whose requested_by lacks the requester; null: everything",
            ),
        ]
    ),
    partitioned_by=("shard",),
)

APPROVALS = Table(
    name="approvals",
    comment="Approvals of plans, append-only",
    schema=StructType(
        [
            column("run_id", _STRING, "the run whose plan was approved"),
            column(
                "plan_digest",
                _STRING,
                "SHA-256 of the plan's rows; with a scope or files, of that digest and these",
            ),
            column("by", _STRING, "the approver, as stated: `--by`, else the OS user"),
            column("at", _TIMESTAMP, "when the plan was approved"),
            column("note", _STRING, "free text"),
            column(
                "allows",
                MapType(_STRING, _INT),
                "`--allow`: guard, such as deletes -> allowed number per cluster; removed_rows: per plan",
            ),
        ]
    ),
    properties={"delta.appendOnly": "true"},
)

LEASES = Table(
    name="leases",
    comment="Leases to change clusters: one row per cluster id, with the driver that holds it or last held it",
    schema=StructType(
        [
            column("cluster_id", _STRING, "the Kafka cluster's own id"),
            column("cluster", _STRING, "the holder's name for the cluster"),
            column("run_id", _STRING, "the run that holds the lease, or last held it"),
            column("host", _STRING, "the host of the holder's driver"),
            column("process", _STRING, "the driver: boot id, pid namespace, pid, start time, token of the start"),
            column("acquired_at", _TIMESTAMP, "when the lease was taken"),
            column(
                "expires_at",
                _TIMESTAMP,
                "when the lease expires; before `acquired_at`: when that of a killed holder did",
            ),
            column("released_at", _TIMESTAMP, "when the lease was released; null while it is held"),
            column(
                "changes", _BIGINT, "counter of changes: a write succeeds only if it still has the value that was read"
            ),
        ]
    ),
    partitioned_by=("cluster_id",),
    properties={"delta.isolationLevel": "Serializable"},
)

CLUSTERS = Table(
    name="clusters",
    comment="The Kafka cluster that each name in the settings means: one row per name; earlier ids by time travel",
    schema=StructType(
        [
            column("name", _STRING, "a name from the run settings"),
            column("cluster_id", _STRING, "the cluster id that the name means"),
            column("first_seen", _TIMESTAMP, "when a cluster first answered under this name, with any id"),
            column("accepted_at", _TIMESTAMP, "when the name got this id"),
            column("accepted_how", _STRING, "first use, settings or command (`clusters accept`)"),
            column("accepted_by", _STRING, "the person who accepted the id, or who requested the run that recorded it"),
            column("run_id", _STRING, "the run that recorded the id"),
            column(
                "changes", _BIGINT, "counter of changes: a write succeeds only if it still has the value that was read"
            ),
        ]
    ),
    properties={"delta.isolationLevel": "Serializable"},
)

THROTTLES = Table(
    name="throttles",
    comment="Configs that are set while replicas are moved; each row is committed before its config is set",
    schema=StructType(
        [
            column("run_id", _STRING, "the run that set the config"),
            column("cluster", _STRING, "a name from the run settings"),
            column("cluster_id", _STRING, "the Kafka cluster's own id"),
            column("resource_type", _STRING, "broker or topic"),
            column("resource", _STRING, "the broker's id, or the topic"),
            column("config", _STRING, "the config's name"),
            column("before", _STRING, "the previous value; null: not set"),
            column("value", _STRING, "the value that the run set"),
            column("set_at", _TIMESTAMP, "when the row was written"),
            column("removed_at", _TIMESTAMP, "when the config was removed; null: it may still be set"),
        ]
    ),
)
