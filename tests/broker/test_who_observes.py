"""`kafka.observe`: whoever asks the clusters, the driver or executors, what was observed is the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.broker import direct
from tests.harness import UNREACHABLE, cluster_settings
from topicledger.config.settings import KafkaSettings, WhoObserves
from topicledger.observe.cluster_queries import FEW_CLUSTERS, asked_by_driver
from topicledger.observe.topics import observe
from topicledger.resources.topics.observe.configs import observe_configs
from topicledger_testing.embedded_kafka import EmbeddedKafka

KAFKA = KafkaSettings(connect_timeout=5.0)


def rows(found: DataFrame, prefix: str = "") -> list[Mapping[str, Any]]:
    """Rows as dictionaries, but for when they were seen; of topics those of this file."""
    names = [name for name in found.columns if name != "observed_at"]
    kept = found.select(*names).where(f"startswith(topic, '{prefix}')" if prefix else "true").collect()
    return sorted((row.asDict(recursive=True) for row in kept), key=str)


@pytest.mark.thorough
def test_the_driver_and_executors_see_the_same(spark: SparkSession, kafka: EmbeddedKafka) -> None:
    direct.make(kafka, "whoobserves.one", num_partitions=2, configs={"retention.ms": "3600000"})
    clusters = [cluster_settings("main", kafka), cluster_settings("dark", UNREACHABLE)]
    named = spark.createDataFrame(
        [("main", "whoobserves.one"), ("main", "whoobserves.none"), ("dark", "whoobserves.one")],
        "cluster string, topic string",
    )
    ways: tuple[WhoObserves, ...] = ("driver", "executors", "auto")
    seen = {who: observe(spark, clusters, replace(KAFKA, observe=who), named) for who in ways}
    (one,) = rows(seen["driver"].topics, "whoobserves.")
    assert (one["topic"], one["num_partitions"], len(one["topic_id"])) == ("whoobserves.one", 2, 36)
    (broker,) = rows(seen["driver"].brokers)
    assert (broker["cluster"], broker["controller"]) == ("main", True)
    assert seen["driver"].known == ["main"]
    assert "dark" in str(seen["driver"].statuses["dark"].error)
    for other in ("executors", "auto"):
        assert rows(seen[other].topics, "whoobserves.") == [one]
        assert rows(seen[other].brokers) == [broker]
        assert seen[other].known == ["main"]
        assert seen[other].statuses["main"] == seen["driver"].statuses["main"]

    own = seen["driver"].topics.where("startswith(topic, 'whoobserves.')")
    configs = {who: observe_configs(spark, clusters[:1], replace(KAFKA, observe=who), own) for who in ways}
    (described,) = rows(configs["driver"].configs)
    assert {each["name"]: each["value"] for each in described["configs"]}["retention.ms"] == "3600000"
    assert rows(configs["executors"].configs) == [described]


@pytest.mark.parametrize(
    ("observe", "clusters", "driver"),
    [("auto", 1, True), ("auto", FEW_CLUSTERS, True), ("auto", FEW_CLUSTERS + 1, False),
     ("driver", 100, True), ("executors", 1, False)],
)  # fmt: skip
def test_few_clusters_are_asked_by_the_driver(observe: WhoObserves, clusters: int, driver: bool) -> None:
    assert asked_by_driver(replace(KAFKA, observe=observe), clusters) is driver
