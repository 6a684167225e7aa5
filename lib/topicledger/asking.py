"""Asking many clusters at once, each on an executor: what `observe` and `topic_use` have in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from topicledger.settings import ClusterSettings, KafkaSettings

BATCH_ROWS = 5_000


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What is needed to look at a cluster; travels to executors with secrets as references."""

    cluster: ClusterSettings
    kafka: KafkaSettings

    def to_json(self) -> str:
        return json.dumps({"cluster": self.cluster.to_json(), "kafka": asdict(self.kafka)})

    @classmethod
    def from_json(cls, text: str) -> Sight:
        raw = json.loads(text)
        return cls(cluster=ClusterSettings.from_json(raw["cluster"]), kafka=KafkaSettings(**raw["kafka"]))


Ask: TypeAlias = Callable[[Sight, Sequence[str]], Iterator[pa.RecordBatch]]
"""Asks one cluster about named topics, on whatever host. It raises nothing: what went wrong is a row."""


def record_batch(schema: StructType, columns: Mapping[str, Sequence[object]], count: int) -> pa.RecordBatch:
    """`count` rows of `schema`; columns that aren't given are null."""
    arrow = to_arrow_schema(schema, timezone="UTC")
    return pa.RecordBatch.from_arrays(
        [pa.array(columns.get(field.name, [None] * count), type=field.type) for field in arrow], schema=arrow
    )


def on_executors(sights: Mapping[str, Sight], topics: DataFrame, ask: Ask, schema: StructType) -> DataFrame:
    """Rows of `schema` that `ask` gives about `topics` (cluster, topic), a task per cluster; others' topics give none.

    Materialised: no later action asks a cluster again.
    """
    known = {name: sight.to_json() for name, sight in sights.items()}
    return (
        topics.where(F.col("cluster").isin(*known))
        .select("cluster", "topic")
        .repartition(max(1, len(known)), "cluster")
        .mapInArrow(_by_cluster(known, ask), schema)
        .localCheckpoint()
    )


def _by_cluster(sights: Mapping[str, str], ask: Ask) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def by_cluster(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        named: dict[str, list[str]] = {}
        for batch in batches:
            for cluster, topic in zip(batch["cluster"].to_pylist(), batch["topic"].to_pylist(), strict=True):
                named.setdefault(cluster, []).append(topic)
        for cluster, topics in named.items():
            yield from ask(Sight.from_json(sights[cluster]), topics)

    return by_cluster


def on_driver(spark: SparkSession, batches: Sequence[pa.RecordBatch], schema: StructType) -> DataFrame:
    """Rows of `schema` that the driver has got."""
    return spark.createDataFrame(pa.Table.from_batches(batches, to_arrow_schema(schema, timezone="UTC")), schema)
