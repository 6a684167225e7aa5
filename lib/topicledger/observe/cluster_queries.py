"""Query clusters on executors or in the driver; shared by the other modules of this room."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import TypeAlias, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, is_remote
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField, StructType

from topicledger.arrow import arrow_schema
from topicledger.config.settings import ClusterSettings, KafkaSettings
from topicledger.errors import SecretError, TopicLedgerError
from topicledger.frames import materialised
from topicledger.kafka import ClusterAdmin
from topicledger.model import Refusal, TopicConfigs, TopicInfo

_Told = TypeVar("_Told", TopicConfigs, TopicInfo)
_ASK_AGAIN_TIMES = 3
_ASK_AGAIN_SECONDS = 0.5
"""Pauses before a topic about which a broker answers an error is asked about again."""
SECRET_UNRESOLVED = "SECRET_UNRESOLVED"
"""The `error` of a cluster whose secrets this host can't resolve; another host may."""
BATCH_ROWS = 5_000
_AT_ONCE = 16
FEW_CLUSTERS = 4
"""Number of clusters that the driver lists itself by default.

Starting a worker takes longer than listing a cluster of thousands of topics.
"""


@dataclass(frozen=True, kw_only=True)
class ClusterAccess:
    """The settings for a client of one cluster; sent to executors, with secrets as references."""

    cluster: ClusterSettings
    kafka: KafkaSettings

    def to_json(self) -> str:
        return json.dumps({"cluster": self.cluster.to_json(), "kafka": asdict(self.kafka)})

    @classmethod
    def from_json(cls, text: str) -> ClusterAccess:
        raw = json.loads(text)
        return cls(cluster=ClusterSettings.from_json(raw["cluster"]), kafka=KafkaSettings(**raw["kafka"]))


UNRESOLVED = StructField("unresolved", BooleanType())
"""True in a row of `ask_about` if this host can't resolve the cluster's secrets; another host may."""

Ask: TypeAlias = Callable[[ClusterAccess, Sequence[str]], Iterator[pa.RecordBatch]]
"""Asks one cluster about named topics, on any host. It never raises: an error is a row."""


def record_batch(schema: StructType, columns: Mapping[str, Sequence[object]], count: int) -> pa.RecordBatch:
    """Return `count` rows of `schema`; columns that aren't given are null."""
    arrow = arrow_schema(schema)
    return pa.RecordBatch.from_arrays(
        [pa.array(columns.get(field.name, [None] * count), type=field.type) for field in arrow], schema=arrow
    )


def asked_again(
    found: Iterable[_Told], ask: Callable[[Sequence[str]], Iterable[_Told]], is_answered: Callable[[_Told], bool]
) -> Iterator[_Told]:
    """Yield what a broker answers about topics; it is asked again, a few times, about those that aren't answered.

    It may not know yet what changed a moment ago (C21). The last answers about these come at the end.
    """
    for _ in range(_ASK_AGAIN_TIMES):
        left: list[_Told] = []
        for each in found:
            if is_answered(each):
                yield each
            else:
                left.append(each)
        if not left:
            return
        time.sleep(_ASK_AGAIN_SECONDS)
        found = ask([each.topic for each in left])
    yield from found


def ask_about(
    spark: SparkSession,
    clusters: Sequence[ClusterSettings],
    kafka: KafkaSettings,
    topics: DataFrame,
    ask: Callable[[StructType, ClusterAccess, Sequence[str]], Iterator[pa.RecordBatch]],
    schema: StructType,
    *,
    tasks: int = 1,
) -> DataFrame:
    """Return the rows of `schema` that `ask` yields about `topics` (cluster, topic; distinct), materialised.

    `ask` gets the schema with UNRESOLVED added. If UNRESOLVED is true for a topic, the driver asks about it again.
    """
    accesses = {cluster.name: ClusterAccess(cluster=cluster, kafka=kafka) for cluster in clusters}
    if _only_driver(kafka):
        asked = topics.where(F.col("cluster").isin(*accesses)).select("cluster", "topic").toArrow()
        answered = StructType([*schema.fields, UNRESOLVED])
        batches = ask_here(accesses, by_cluster([asked]), partial(ask, answered))
        return on_driver(spark, batches, answered).select(*schema.names)
    answered = StructType([*schema.fields, UNRESOLVED])
    answer = partial(ask, answered)
    response = on_executors(accesses, topics, answer, answered, tasks=tasks)
    unresolved: dict[str, list[str]] = {}
    for row in response.where(UNRESOLVED.name).select("cluster", "topic").toLocalIterator():
        unresolved.setdefault(row["cluster"], []).append(row["topic"])
    if unresolved:
        batches = [batch for name, named in unresolved.items() for batch in answer(accesses[name], named)]
        response = response.where(~F.coalesce(UNRESOLVED.name, F.lit(False))).unionByName(
            on_driver(spark, batches, answered)
        )
    return response.select(*schema.names)


def ask_each(
    spark: SparkSession,
    clusters: Sequence[ClusterSettings],
    kafka: KafkaSettings,
    ask: Callable[[ClusterAdmin], Iterator[pa.RecordBatch]],
    schema: StructType,
) -> DataFrame:
    """Return the rows of `schema` that `ask` yields about each cluster as a whole, materialised; never raises.

    A cluster that can't be asked has a row of `failure`, and perhaps others. The driver asks itself if there are few
    clusters. It also asks each cluster whose secrets executors can't resolve.
    """
    accesses = {cluster.name: ClusterAccess(cluster=cluster, kafka=kafka) for cluster in clusters}

    def of_cluster(access: ClusterAccess, _: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        try:
            with ClusterAdmin(access.cluster, access.kafka) as admin:
                yield from ask(admin)
        except SecretError as error:
            yield failure(schema, access.cluster.name, SECRET_UNRESOLVED, str(error))
        except TopicLedgerError as error:
            yield failure(schema, access.cluster.name, Refusal.CLUSTER_UNREACHABLE.value, str(error))

    if asked_by_driver(kafka, len(accesses)):
        return on_driver(spark, ask_here(accesses, dict.fromkeys(accesses), of_cluster), schema)
    names = spark.createDataFrame([(name, "") for name in accesses], "cluster string, topic string")
    answered = on_executors(accesses, names, of_cluster, schema)
    by_driver = [
        row["cluster"] for row in answered.where(F.col("error") == SECRET_UNRESOLVED).select("cluster").collect()
    ]
    if not by_driver:
        return answered
    here = on_driver(spark, ask_here(accesses, dict.fromkeys(by_driver), of_cluster), schema)
    return answered.where(~F.col("cluster").isin(*by_driver)).unionByName(here)


def failure(schema: StructType, cluster: str, error: str, why: str) -> pa.RecordBatch:
    """Return the row that says why a cluster's answer isn't known: `error` and `error_message`."""
    return record_batch(schema, {"cluster": [cluster], "error": [error], "error_message": [why]}, 1)


def on_executors(
    accesses: Mapping[str, ClusterAccess], topics: DataFrame, ask: Ask, schema: StructType, *, tasks: int = 1
) -> DataFrame:
    """Return the rows of `schema` that `ask` yields about `topics` (cluster, topic), in `tasks` tasks per cluster.

    Topics of other clusters have no rows. Materialised, so that no later Spark action asks a cluster again.
    """
    known = {name: access.to_json() for name, access in accesses.items()}
    part = F.pmod(F.xxhash64("topic"), F.lit(tasks))
    return (
        topics.where(F.col("cluster").isin(*known))
        .select("cluster", "topic")
        .repartition(max(1, len(known) * tasks), "cluster", part)
        .mapInArrow(_each_cluster(known, ask), schema)
        .transform(materialised)
    )


def _each_cluster(
    accesses: Mapping[str, str], ask: Ask
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def each_cluster(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for cluster, topics in by_cluster(batches).items():
            yield from ask(ClusterAccess.from_json(accesses[cluster]), topics)

    return each_cluster


def by_cluster(rows: Iterable[pa.RecordBatch | pa.Table]) -> dict[str, list[str]]:
    """Return cluster -> topics from Arrow rows (cluster, topic)."""
    found: dict[str, list[str]] = {}
    for batch in rows:
        for cluster, topic in zip(batch["cluster"].to_pylist(), batch["topic"].to_pylist(), strict=True):
            found.setdefault(cluster, []).append(topic)
    return found


def asked_by_driver(kafka: KafkaSettings, clusters: int) -> bool:
    """Whether the driver lists this many clusters itself."""
    return _only_driver(kafka) or (kafka.observe == "auto" and clusters <= FEW_CLUSTERS)


def _only_driver(kafka: KafkaSettings) -> bool:
    """Whether no executor asks clusters: behind a server of Spark Connect, they may reach no broker."""
    return kafka.observe == "driver" or (kafka.observe == "auto" and is_remote())


def ask_here(
    accesses: Mapping[str, ClusterAccess],
    named: Mapping[str, Sequence[str]] | Mapping[str, None],
    ask: Callable[[ClusterAccess, Sequence[str] | None], Iterator[pa.RecordBatch]],
) -> list[pa.RecordBatch]:
    """Return what `ask` yields for each cluster of `named` (cluster -> topics), asked in parallel by this process."""
    if not named:
        return []
    with ThreadPoolExecutor(min(len(named), _AT_ONCE), "observe") as pool:
        answers = pool.map(lambda name: [*ask(accesses[name], named[name])], named)
        return [batch for batches in answers for batch in batches]


def on_driver(spark: SparkSession, batches: Sequence[pa.RecordBatch], schema: StructType) -> DataFrame:
    """Return the driver's rows of `schema` as a DataFrame."""
    return spark.createDataFrame(pa.Table.from_batches(batches, arrow_schema(schema)), schema)
