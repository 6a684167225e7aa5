"""Phase observe: live metadata of every cluster as a DataFrame.

Many clusters are read in parallel on the executors: `spark.read.format("kafka_topics")` has one input partition per
cluster. A few clusters are read by the driver itself (`cluster_queries.asked_by_driver`). A cluster that can't be read
is a row with the reason, not an exception, so that the others are still read. Reading again asks the cluster again, so
callers materialise the result.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import ArrayType, BooleanType, IntegerType, StringType, StructField, StructType

from topicledger import phases
from topicledger.config.settings import ClusterSettings, KafkaSettings
from topicledger.errors import SecretError, TopicLedgerError
from topicledger.frames import materialised
from topicledger.kafka import Cluster, ClusterAdmin
from topicledger.model import Refusal, TopicInfo
from topicledger.observe.cluster_queries import (
    BATCH_ROWS,
    SECRET_UNRESOLVED,
    ClusterAccess,
    ask_here,
    asked_again,
    asked_by_driver,
    by_cluster,
    on_driver,
    on_executors,
    record_batch,
)
from topicledger.phases import returned
from topicledger.schemas import BROKERS

FORMAT = "kafka_topics"

_BROKER = StructType(
    [
        StructField("broker_id", IntegerType()),
        StructField("rack", StringType()),
        StructField("host", StringType()),
        StructField("port", IntegerType()),
        StructField("controller", BooleanType()),
    ]
)
SCHEMA = StructType(
    [
        *(StructField(f.name, f.dataType) for f in phases.OBSERVED),
        StructField("brokers", ArrayType(_BROKER)),
        StructField("gives_topic_ids", BooleanType()),
        StructField("error", StringType()),
        StructField("error_message", StringType()),
    ]
)
"""Columns of `kafka_topics`: one row per topic and, with topic null, one per cluster with its brokers or its error."""


def observe_cluster(access: ClusterAccess, topics: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield rows of `SCHEMA` for one cluster: every topic that it lists, or just the named `topics` (M1, M3).

    The cluster's own row comes last: it confirms that all topics were read, or has the error.
    """
    name = access.cluster.name
    try:
        with ClusterAdmin(access.cluster, access.kafka) as admin:
            cluster = admin.describe_cluster()
            infos = admin.list_topics() if topics is None else admin.describe_topics(topics)
            yield from _topic_batches(name, cluster.cluster_id, asked_again(infos, admin.describe_topics, _is_told))
    except SecretError as error:
        yield _cluster_batch(name, error=SECRET_UNRESOLVED, error_message=str(error))
    except TopicLedgerError as error:
        yield _cluster_batch(name, error=Refusal.CLUSTER_UNREACHABLE.value, error_message=str(error))
    else:
        yield _cluster_batch(name, cluster=cluster)


def _is_told(info: TopicInfo) -> bool:
    return info.unknown is None


def _topic_batches(cluster: str, cluster_id: str, infos: Iterable[TopicInfo]) -> Iterator[pa.RecordBatch]:
    rows: list[TopicInfo] = []
    for info in infos:
        rows.append(info)
        if len(rows) == BATCH_ROWS:
            yield _topic_batch(cluster, cluster_id, rows)
            rows = []
    if rows:
        yield _topic_batch(cluster, cluster_id, rows)


def _topic_batch(cluster: str, cluster_id: str, infos: Sequence[TopicInfo]) -> pa.RecordBatch:
    count = len(infos)
    columns: dict[str, list[object]] = {
        "cluster": [cluster] * count,
        "cluster_id": [cluster_id] * count,
        "topic": [info.topic for info in infos],
        "topic_id": [info.topic_id for info in infos],
        "internal": [info.internal for info in infos],
        "permitted": [info.permitted for info in infos],
        "num_partitions": [info.num_partitions if info.permitted else None for info in infos],
        "replication_factor": [info.replication_factor if info.permitted else None for info in infos],
        "assignments": [list(info.assignments.items()) if info.permitted else None for info in infos],
        "authorized_operations": [info.authorized_operations for info in infos],
        "other_leaders": [list(info.other_leaders.items()) if info.permitted else None for info in infos],
        "unknown": [info.unknown for info in infos],
        "observed_at": [datetime.now(UTC)] * count,
    }
    return record_batch(SCHEMA, columns, count)


def _cluster_batch(
    name: str, *, cluster: Cluster | None = None, error: str | None = None, error_message: str | None = None
) -> pa.RecordBatch:
    columns: dict[str, list[object]] = {
        "cluster": [name],
        "cluster_id": [None if cluster is None else cluster.cluster_id],
        "observed_at": [datetime.now(UTC)],
        "brokers": [None if cluster is None else [asdict(broker) for broker in cluster.brokers]],
        "gives_topic_ids": [None if cluster is None else cluster.gives_topic_ids],
        "error": [error],
        "error_message": [error_message],
    }
    return record_batch(SCHEMA, columns, 1)


@dataclass
class _ClusterPartition(InputPartition):
    access: str


class _Reader(DataSourceReader):
    def __init__(self, accesses: Sequence[str]) -> None:
        self._accesses = accesses

    def partitions(self) -> Sequence[InputPartition]:
        return [_ClusterPartition(access) for access in self._accesses]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _ClusterPartition)
        yield from observe_cluster(ClusterAccess.from_json(partition.access))


class KafkaTopics(DataSource):
    """`spark.read.format("kafka_topics")`; its one option, `clusters`, is a JSON array of `ClusterAccess`es."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(json.loads(self.options["clusters"]))


@dataclass(frozen=True, kw_only=True)
class Refused:
    """The reason why nothing may be decided on a reachable cluster."""

    error: Refusal
    message: str


@dataclass(frozen=True, kw_only=True)
class ClusterStatus:
    """Status of observing a cluster."""

    cluster_id: str | None = None
    """Kafka's own id of the cluster; None if it wasn't reached."""
    error: str | None = None
    """Why the cluster wasn't reached, for the user."""
    gives_topic_ids: bool = True
    """False if the brokers are older than Kafka 2.8, so that a recreated topic can't be recognised (D7)."""
    refused: Refused | None = None
    """Why a reachable cluster isn't the intended one."""

    @property
    def problem(self) -> str | None:
        """Why nothing may be done on the cluster, for the user; None if it was reached and is the intended one."""
        return self.error if self.refused is None else self.refused.message


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Observed topics and brokers, materialised: reading them asks no cluster again."""

    topics: DataFrame
    """`phases.OBSERVED`; only clusters that were reached."""
    brokers: DataFrame
    """Columns of `brokers` without run_id; only clusters that were reached."""
    statuses: Mapping[str, ClusterStatus]
    """Statuses by cluster."""

    @property
    def known(self) -> Sequence[str]:
        """Clusters that were reached and are the intended ones."""
        return [name for name, status in self.statuses.items() if status.problem is None]

    @property
    def lost(self) -> Sequence[str]:
        """The other clusters: nothing can be decided about them."""
        return [name for name, status in self.statuses.items() if status.problem is not None]


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Listed topics, and the status of each cluster."""

    accesses: Mapping[str, ClusterAccess]
    seen: DataFrame
    """Columns of `SCHEMA`, materialised."""
    cluster_rows: Mapping[str, Mapping[str, object]]
    """Each cluster's own row of `seen`."""
    by_driver: Sequence[str]
    """Clusters that the driver observes: all if they are few, else those whose secrets executors can't resolve."""


def observe(
    spark: SparkSession, clusters: Sequence[ClusterSettings], kafka: KafkaSettings, named: DataFrame
) -> Observation:
    """Observe `clusters` once: list their topics, and describe the topics of `named` (cluster, topic) not listed.

    The driver observes clusters whose secrets an executor can't resolve.
    """
    return describe_unlisted(spark, list_clusters(spark, clusters, kafka), named)


def list_clusters(spark: SparkSession, clusters: Sequence[ClusterSettings], kafka: KafkaSettings) -> Listing:
    """List the topics of `clusters`; the first half of `observe`."""
    accesses = {cluster.name: ClusterAccess(cluster=cluster, kafka=kafka) for cluster in clusters}
    if asked_by_driver(kafka, len(accesses)):
        batches = ask_here(accesses, dict.fromkeys(accesses), observe_cluster)
        rows = _own_rows(row for batch in batches for row in batch.to_pylist() if row["topic"] is None)
        seen = on_driver(spark, batches, SCHEMA)
        return Listing(accesses=accesses, seen=seen, cluster_rows=rows, by_driver=[*accesses])
    spark.dataSource.register(KafkaTopics)
    as_json = json.dumps([access.to_json() for access in accesses.values()])
    listed = spark.read.format(FORMAT).option("clusters", as_json).load().transform(materialised)
    cluster_rows = _cluster_rows(listed)
    by_driver = [name for name, row in cluster_rows.items() if row["error"] == SECRET_UNRESOLVED]
    if by_driver:
        seen = on_driver(spark, ask_here(accesses, dict.fromkeys(by_driver), observe_cluster), SCHEMA)
        listed = listed.where(~F.col("cluster").isin(*by_driver)).unionByName(seen)
        cluster_rows |= _cluster_rows(seen)
    return Listing(accesses=accesses, seen=listed, cluster_rows=cluster_rows, by_driver=by_driver)


def describe_unlisted(spark: SparkSession, listing: Listing, named: DataFrame) -> Observation:
    """Describe the topics of `named` (cluster, topic) that clusters don't list; the second half of `observe`."""
    listed, cluster_rows = listing.seen, dict(listing.cluster_rows)
    reached = [name for name, row in cluster_rows.items() if row["error"] is None]
    if not reached:
        return _observation(listed, cluster_rows)
    unlisted = (
        named.where(F.col("cluster").isin(*reached))
        .select("cluster", "topic")
        .join(listed.where("topic is not null").select("cluster", "topic"), on=["cluster", "topic"], how="left_anti")
    )
    elsewhere = {name: listing.accesses[name] for name in reached if name not in listing.by_driver}
    if elsewhere:
        unlisted = unlisted.transform(materialised)
    answers = []
    here = by_cluster(
        [unlisted.where(F.col("cluster").isin(*listing.by_driver)).toArrow()] if listing.by_driver else ()
    )
    if here:
        answers.append(on_driver(spark, ask_here(listing.accesses, here, observe_cluster), SCHEMA))
    if elsewhere and not unlisted.isEmpty():
        answers.append(on_executors(elsewhere, unlisted, observe_cluster, SCHEMA))
    for described in answers:
        for name, row in _cluster_rows(described).items():
            # The cluster was lost in between, so its listing doesn't count.
            if row["error"] is not None:
                cluster_rows[name] = row
        listed = listed.unionByName(described.where("topic is not null"))
    return _observation(listed, cluster_rows)


def as_expected(clusters: Sequence[ClusterSettings], seen: Observation) -> tuple[dict[str, str], list[str]]:
    """Return Kafka's ids of the clusters that were reached and are the intended ones, and the others' problems."""
    ids: dict[str, str] = {}
    problems: list[str] = []
    for cluster in clusters:
        status = seen.statuses[cluster.name]
        if status.error is not None:
            problems.append(status.error)
        elif status.refused is not None:
            problems.append(status.refused.message)
        else:
            ids[cluster.name] = str(status.cluster_id)
    return ids, problems


def _cluster_rows(seen: DataFrame) -> dict[str, dict[str, object]]:
    columns = ("cluster", "cluster_id", "gives_topic_ids", "error", "error_message")
    return _own_rows(row.asDict() for row in seen.where("topic is null").select(*columns).collect())


def _own_rows(rows: Iterable[dict[str, object]]) -> dict[str, dict[str, object]]:
    """Return each cluster's own row: the one with an error if there is any."""
    return {str(row["cluster"]): row for row in sorted(rows, key=lambda row: row["error"] is not None)}


def _observation(seen: DataFrame, cluster_rows: Mapping[str, Mapping[str, object]]) -> Observation:
    statuses = {
        name: ClusterStatus(
            cluster_id=None if row["error"] else str(row["cluster_id"]),
            error=str(row["error_message"]) if row["error"] else None,
            gives_topic_ids=bool(row["gives_topic_ids"]),
        )
        for name, row in cluster_rows.items()
    }
    reached = seen.where(F.col("cluster").isin(*(name for name, status in statuses.items() if status.error is None)))
    return Observation(
        topics=returned("observe", reached.where("topic is not null").select(*phases.OBSERVED.names), phases.OBSERVED),
        brokers=reached.where("topic is null")
        .select("cluster", "cluster_id", "observed_at", F.explode("brokers").alias("broker"))
        .select("cluster", "cluster_id", "observed_at", "broker.*")
        .select(*(c for c in BROKERS.schema.names if c != "run_id")),
        statuses=statuses,
    )
