"""Who runs, and on which clusters: the tables of runs, leases and clusters."""

from __future__ import annotations

from pyspark.sql.types import IntegerType, LongType, MapType, StringType, StructType, TimestampType

from topicledger.schemas.definition import Table, column

_STRING, _INT, _BIGINT, _TIMESTAMP = StringType(), IntegerType(), LongType(), TimestampType()

RUNS = Table(
    name="runs",
    comment="One row per run, updated as it goes",
    schema=StructType(
        [
            column("run_id", _STRING, "the run's id"),
            column("state", _STRING, "planning, planned, applying, finished or abandoned"),
            column("started_at", _TIMESTAMP, "when it was first started"),
            column("finished_at", _TIMESTAMP, "when it finished; null before"),
            column("manifest_version", _BIGINT, "the version of manifests that it read"),
            column("counts", MapType(_STRING, _BIGINT), "topics per outcome of their last phase, and per decision"),
            column("exit_code", _INT, "of the command that finished it; null before"),
            column("versions", MapType(_STRING, _STRING), "topicledger, spark, delta, kafka-python"),
            column("spark_app_id", _STRING, "Spark's id of the application that started it last"),
            column("principal", _STRING, "who the run is to each cluster"),
            column("requested_by", _STRING, "`--requested-by`, else the OS user"),
            column("arguments", MapType(_STRING, _STRING), "secrets left out"),
            column("settings_digest", _STRING, "SHA-256 of the settings that bear on decisions"),
            column("epoch", _INT, "rises with every start of the run"),
            column("shard", _INT, "of the run id: runs of other shards are updated at the same time; null in old rows"),
            column("start_id", _STRING, "the start that it belongs to, another one each time it is started"),
            column("observed_at", _TIMESTAMP, "when it began to observe its clusters; null in rows before schema 6"),
            column(
                "proof",
                MapType(_STRING, _STRING),
                "what it ended with: of plans, audit and approvals the number of its rows, their SHA-256 and the "
                "table's version; null where it planned nothing, and in rows before schema 7",
            ),
            column("previous_digest", _STRING, "digests of the runs before it that none before it names, with commas"),
            column("digest", _STRING, "of this row, but for `notified`: see docs/proof.md"),
            column("notified", _STRING, "the events that it announced ([[notify]]), with commas; null: none"),
        ]
    ),
    partitioned_by=("shard",),
)

APPROVALS = Table(
    name="approvals",
    comment="Who approved which plan, append-only",
    schema=StructType(
        [
            column("run_id", _STRING, "the run whose plan it is"),
            column("plan_digest", _STRING, "SHA-256 of the plan's rows: see docs/proof.md"),
            column("by", _STRING, "who approved it, as they said: `--by`, else the OS user"),
            column("at", _TIMESTAMP, "when"),
            column("note", _STRING, "free text"),
        ]
    ),
    properties={"delta.appendOnly": "true"},
)

LEASES = Table(
    name="leases",
    comment="Which run may change a cluster: one row per cluster id, for the driver that holds it or held it last",
    schema=StructType(
        [
            column("cluster_id", _STRING, "the Kafka cluster's own id"),
            column("cluster", _STRING, "the holder's name for it"),
            column("run_id", _STRING, "the run that holds it or held it last"),
            column("host", _STRING, "where the holder's driver runs"),
            column("process", _STRING, "the driver: boot id, pid namespace, pid, start time, token of the start"),
            column("acquired_at", _TIMESTAMP, "when it was taken"),
            column("expires_at", _TIMESTAMP, "by the holder's clock; renewed while it runs"),
            column("released_at", _TIMESTAMP, "null while it is held"),
            column("changes", _BIGINT, "rises with every change: who changes a row says which one it saw"),
        ]
    ),
    partitioned_by=("cluster_id",),
    properties={"delta.isolationLevel": "Serializable"},
)

CLUSTERS = Table(
    name="clusters",
    comment="Which Kafka cluster each name of the settings is: one row per name; earlier ids by time travel",
    schema=StructType(
        [
            column("name", _STRING, "a name from the run settings"),
            column("cluster_id", _STRING, "the id that the name stands for"),
            column("first_seen", _TIMESTAMP, "when the name first answered, with whatever id"),
            column("accepted_at", _TIMESTAMP, "since when it stands for this id"),
            column("accepted_how", _STRING, "first use, settings or command (`clusters accept`)"),
            column("accepted_by", _STRING, "who accepted it, or requested the run that recorded it"),
            column("run_id", _STRING, "the run that recorded it"),
            column("changes", _BIGINT, "rises with every change: who changes a row says which one it saw"),
        ]
    ),
    properties={"delta.isolationLevel": "Serializable"},
)

THROTTLES = Table(
    name="throttles",
    comment="Configs that are set while replicas are moved: a row is committed before its config is set",
    schema=StructType(
        [
            column("run_id", _STRING, "the run that set it"),
            column("cluster", _STRING, "a name from the run settings"),
            column("cluster_id", _STRING, "the Kafka cluster's own id"),
            column("resource_type", _STRING, "broker or topic"),
            column("resource", _STRING, "the broker's id, or the topic"),
            column("config", _STRING, "the config's name"),
            column("before", _STRING, "what was set before; null: nothing"),
            column("value", _STRING, "what was set by the run"),
            column("set_at", _TIMESTAMP, "when the row was written"),
            column("removed_at", _TIMESTAMP, "when it was taken away; null: it may be set"),
        ]
    ),
)
