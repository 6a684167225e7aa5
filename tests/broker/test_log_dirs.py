"""Sizes of brokers' log directories."""

from __future__ import annotations

import pytest
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from tests.broker.direct import make, settings_for
from tests.harness import UNREACHABLE, cluster_settings
from topicledger.config.settings import KafkaSettings
from topicledger.resources.topics.observe.log_dirs import observe_log_dirs
from topicledger_testing.embedded_kafka import EmbeddedKafka


@pytest.mark.thorough
@pytest.mark.parametrize("where", ["driver", "executors"])
def test_every_broker_reports_replica_sizes_and_free_room(
    spark: SparkSession, kafka_three: EmbeddedKafka, where: str
) -> None:
    name = f"dirs.{where}"
    make(kafka_three, name, assignments={0: (1, 2), 1: (3, 1)}, num_partitions=None, replication_factor=None)
    producer = KafkaProducer(bootstrap_servers=kafka_three.bootstrap_servers, acks="all")
    producer.send(name, bytes(50_000), partition=0)
    producer.flush()
    producer.close()
    clusters = [cluster_settings("main", kafka_three), cluster_settings("gone", UNREACHABLE)]
    found = observe_log_dirs(spark, clusters, KafkaSettings(connect_timeout=3.0, observe=where))  # type: ignore[arg-type]
    sizes = {
        (row["broker_id"], row["partition"]): row["bytes"] for row in found.sizes.where(f"topic = '{name}'").collect()
    }
    assert set(sizes) == {(1, 0), (2, 0), (3, 1), (1, 1)}
    assert sizes[1, 0] == sizes[2, 0]
    assert sizes[1, 0] >= 50_000
    assert sizes[3, 1] == 0
    rooms = {row["broker_id"]: row for row in found.rooms.collect()}
    assert set(rooms) == {1, 2, 3}
    assert all(0 < row["usable_bytes"] <= row["total_bytes"] for row in rooms.values())
    assert list(found.errors) == ["gone"]
    assert "can't be reached" in found.errors["gone"]


@pytest.mark.thorough
def test_without_the_right_a_cluster_says_what_to_grant(spark: SparkSession, kafka_sasl: EmbeddedKafka) -> None:
    found = observe_log_dirs(spark, [settings_for("main", kafka_sasl, "nobody")], KafkaSettings(connect_timeout=10.0))
    assert "needs the ACL Describe on the cluster" in found.errors["main"]
    assert found.sizes.count() == found.rooms.count() == 0
