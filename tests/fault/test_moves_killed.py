"""Drivers killed at every point of a run that moves replicas: throttles, waves, elections (see test_killed)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.broker.moving import replicas, throttles_on, with_data
from tests.fault import told
from tests.fault.effort import KILLS, THOROUGH
from tests.fault.killing import chain, every
from tests.fault.proxy import ALTER_CONFIGS, ELECT_LEADERS, REASSIGN, FaultProxy
from tests.fault.told import FAULTS, Fault
from tests.harness import Estate
from tests.waiting import until
from topicledger.schemas import AUDIT, PLANS, THROTTLES
from topicledger_testing.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.thorough

SETTINGS = """[changes]
replicas = "on"
[guards]
max_moves = 100
[replicas]
throttle = 2_000_000
max_partitions_per_broker = 2
"""
NAMED = ("commit to throttles", "alter request", "reassign request")


@pytest.mark.timeout(240 + 150 * KILLS)
def test_driver_killed_at_each_event_of_its_moves_moves_nothing_twice(
    spark: SparkSession, kafka_three: EmbeddedKafka, tmp_path: Path
) -> None:
    """R2, R4, R6: the same run id finishes it, no throttle stays, and partitions get no target but the planned one."""
    fault = Fault(name="driver killed at each event of its moves")
    FAULTS.append(fault)
    names = [f"killed-moves.{number}" for number in range(2)]
    for name in names:
        with_data(kafka_three, name, {0: (1,), 1: (2,), 2: (3,)}, 400_000)
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka_three})
    estate.declare({"topic": names[0], "replication_factor": 2}, {"topic": names[1], "placement": "brokers:2,3"})
    with FaultProxy(kafka_three) as proxy:
        config = commands.settings_file(tmp_path, {"main": proxy.bootstrap_servers}, more=SETTINGS)
        points: Iterator[int | str] = every(14, 9, KILLS)
        if THOROUGH:
            # While it plans, at each event; then at these: how many commits come before them depends on other work.
            planning = range(2, 10)
            points = itertools.chain(planning, NAMED, every(planning.stop, 1, KILLS - len(planning) - len(NAMED)))
        killed = chain(proxy, config, tmp_path / "ledger", "moves", fault, points)
        assert proxy.count(REASSIGN, "request") >= 1
        assert proxy.count(ALTER_CONFIGS, "request") >= 2
        assert proxy.count(ELECT_LEADERS, "request") <= len(killed) + 1
    told.check(fault, tmp_path / "ledger", "moves", kafka_three, "killed-moves.", dict.fromkeys(names, True))
    planned = {row["topic"]: row for row in estate.rows(PLANS, "moves") if row["action"] == "reassign"}
    applied = [row for row in estate.rows(AUDIT, "moves") if (row["action"], row["phase"]) == ("reassign", "apply")]
    assert sorted(row["topic"] for row in applied) == sorted(planned) == names
    for row in applied:
        assert row["after"]["assignments"] == planned[row["topic"]]["after"]["assignments"]
    assert {len(each) for each in replicas(kafka_three, names[0]).values()} == {2}
    assert {broker for each in replicas(kafka_three, names[1]).values() for broker in each} == {2, 3}
    until(lambda: throttles_on(kafka_three) == {}, seconds=30)
    assert None not in {row["removed_at"] for row in estate.rows(THROTTLES)}
    assert fault.tried == len(killed) >= min(KILLS, 2), killed
    print(killed)
    if THOROUGH:
        # Kills before a throttle is set, while it is set, and while a wave is sent and answered.
        assert set(NAMED) <= set(killed), killed
