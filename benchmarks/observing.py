"""Observe, B6: eight clusters compared with one, on the available cores."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks import brokers
from benchmarks.measure import Work, in_turns
from benchmarks.report import Ratio, Result, Size
from topicledger.config.settings import ClusterSettings, KafkaSettings
from topicledger.ledger.session import get_session
from topicledger.observe.topics import observe
from topicledger.schemas import MANIFESTS

DRIVER_MEMORY = "1g"
CLUSTERS = 8
SLACK = 1.2

_TOPICS = {Size.FULL: 2_000, Size.SMALL: 20}
_SAMPLES = {Size.FULL: 7, Size.SMALL: 1}


def run(size: Size, folder: Path) -> Result:
    """Observe one cluster, and eight of the same size, in turns."""
    count, cores = _TOPICS[size], len(os.sched_getaffinity(0))
    spark = get_session("bench")
    spark.sparkContext.setLogLevel("ERROR")
    with _clusters(count) as clusters:

        def work(number: int) -> Work:
            return Work(
                name=f"{number} cluster{'s' if number > 1 else ''}",
                what=f"observe {number} x {count:,} topics, stored as the phase stores them",
                do=lambda _: _observe(spark, clusters[:number], count),
            )

        one, all_of_them = in_turns(
            [work(1), work(CLUSTERS)], warm_ups=2 if size is Size.FULL else 0, samples=_SAMPLES[size]
        )
    spark.stop()
    return Result(
        work=f"Observe {CLUSTERS} clusters of {count:,} topics each, on {cores} cores, the brokers on the same ones.",
        series=[one, all_of_them],
        ratios=[
            Ratio(
                of=all_of_them.name,
                to=one.name,
                value=all_of_them.median / one.median,
                reach=max(1.0, CLUSTERS / cores * SLACK),
            )
        ],
        notes=["A warm session, with running Python workers. Without the commits to `observed` and `brokers`."],
    )


@contextmanager
def _clusters(count: int) -> Iterator[Sequence[ClusterSettings]]:
    with brokers.fresh(CLUSTERS) as kafkas:
        for kafka in kafkas:
            brokers.with_topics(kafka, count)
        yield [brokers.cluster_settings(kafka, f"cluster-{number}") for number, kafka in enumerate(kafkas)]


def _observe(spark: SparkSession, clusters: Sequence[ClusterSettings], count: int) -> Mapping[str, int]:
    nothing = spark.createDataFrame([], MANIFESTS.schema)
    seen = observe(spark, clusters, KafkaSettings(), nothing)
    topics = seen.topics.count()
    if topics != len(clusters) * count:
        raise AssertionError(f"observed {topics} topics of {len(clusters)} clusters")
    return {"topics": topics, "clusters": len(seen.statuses)}
