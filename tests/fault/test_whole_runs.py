"""Whole runs with sizes and losses that other tests cover request by request."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import clusters
from tests.fault.another_client import AnotherClient
from tests.fault.proxy import CREATE_TOPICS, CUT, Fault, FaultProxy, Frame
from tests.fault.quorum import active_controller
from tests.harness import Estate, cluster_settings, topics
from topicledger.config.settings import KafkaSettings


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_run_refuses_only_topics_too_large_for_a_request(spark: SparkSession, tmp_path: Path) -> None:
    """C15: a broker accepts 10,000 records per request; many topics, many partitions, and one topic above the limit."""
    prefix = "sizes."
    many = [f"{prefix}many-{number:04}" for number in range(3_400)]
    wide = [f"{prefix}wide-{number:02}" for number in range(11)]
    plain = [f"{prefix}plain-{number:02}" for number in range(50)]
    with clusters.plain() as kafka:
        estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
        estate.declare(
            *topics(many, num_partitions=1, configs={"retention.ms": "1000"}),
            *topics(wide, num_partitions=1_000),
            *topics([f"{prefix}huge"], num_partitions=12_000),
            *topics(plain),
        )
        summary = estate.run(run_id="sizes")
        assert (summary.exit_code, summary.failure_count, summary.state) == (4, 1, "finished")
        last = estate.last("sizes")
        phase, outcome, error = last.pop(f"{prefix}huge")
        # Kafka's own message is "Excessively large number of partitions per request", a policy violation (C15).
        assert (phase, outcome, error) == ("validate", "refused", "POLICY_VIOLATION")
        # Thousands of partitions become visible only after they are acknowledged (C21).
        assert {(phase, error) for phase, _, error in last.values()} == {("verify", None)}
        assert {outcome for _, outcome, _ in last.values()} <= {"ok", "pending"}
        estate.check_invariant("sizes")
        AnotherClient(kafka).await_names(prefix, {*many, *wide, *plain}, seconds=600)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_run_continues_if_the_controller_dies_during_3000_creates(spark: SparkSession, tmp_path: Path) -> None:
    """C13, C18: the answer to the fifth request is lost together with its controller."""
    prefix = "whole-run."
    names = [f"{prefix}{number:04}" for number in range(3_000)]
    seen: list[Frame] = []
    with clusters.three_brokers() as kafka, FaultProxy(kafka) as proxy:
        estate = Estate(
            spark,
            tmp_path / "ledger",
            {"main": cluster_settings("main", proxy)},
            kafka=KafkaSettings(connect_timeout=30.0, max_batch_records=600),
        )
        estate.declare(*topics(names, num_partitions=1, replication_factor=3))
        dead = active_controller(kafka)

        def kill(frame: Frame) -> Fault | None:
            if frame.validate_only:
                return None
            seen.append(frame)
            if len(seen) != 5:
                return None
            kafka.kill_broker(dead)
            return CUT

        proxy.on(CREATE_TOPICS, "response", times=None, do=kill)
        summary = estate.run(run_id="controller")
        assert len(seen) >= 10
        kafka.start_broker(dead)
        assert (summary.exit_code, summary.state) == (0, "finished")
        applied = [row for row in estate.audit("controller").values() if row["phase"] == "apply"]
        assert {row["outcome"] for row in applied} == {"ok"}
        assert sorted(row["topic"] for row in applied) == names
        assert "RECOVERED" in {row["error"] for row in applied}
        estate.check_invariant("controller")
        cluster = AnotherClient(kafka)
        cluster.await_names(prefix, set(names), seconds=120)
        live = cluster.topics(prefix)
        assert {row["topic"]: row["topic_id"] for row in applied} == {
            name: each.topic_id for name, each in live.items()
        }
