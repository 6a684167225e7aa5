"""Drivers killed at every point of a run: the same run id finishes what is open, and nothing is done twice.

A chain: the driver is killed at its first event, started again, killed at its second event, and so on until it
finishes. Events are requests that change something, their responses, and commits to the ledger. TOPICLEDGER_KILLS sets
the number of kills, by default one (`make test-faults` sets it).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.broker.direct import make
from tests.broker.records import write
from tests.fault import told
from tests.fault.another_client import AnotherClient
from tests.fault.effort import KILLS, SEED, THOROUGH
from tests.fault.killing import chain, every
from tests.fault.proxy import (
    FaultProxy,
)
from tests.fault.told import FAULTS, Fault
from tests.harness import Estate, topics
from tests.waiting import until
from topicledger.config.settings import KafkaSettings
from topicledger.kafka import ClusterAdmin
from topicledger.model import Action, Target
from topicledger_testing.embedded_kafka import EmbeddedKafka


def prepared(
    spark: SparkSession,
    kafka: EmbeddedKafka,
    proxy: FaultProxy,
    folder: Path,
    prefix: str,
    *,
    creates: int,
    deletes: int,
    changes: int = 0,
) -> tuple[Path, Path, dict[str, bool]]:
    """Prepare a ledger that declares topics, and a cluster with topics to delete and to change.

    Returns settings, root and the expected changes.
    """
    new = [f"{prefix}new-{number:04}" for number in range(creates)]
    old = [f"{prefix}old-{number:04}" for number in range(deletes)]
    other = [f"{prefix}other-{number:04}" for number in range(changes)]
    estate = Estate(spark, folder / "ledger", {"main": kafka})
    estate.declare(*topics(new, num_partitions=2, configs={"retention.ms": "1000"}))
    if other:
        estate.declare(*topics(other, num_partitions=3, configs={"flush.ms": "5"}))
    if old:
        estate.declare(*topics(old, state="absent"))
        with ClusterAdmin(estate.settings.clusters["main"], KafkaSettings()) as admin:
            response = admin.create_topics([target(name) for name in (*old, *other)], validate_only=False)
            assert {each.error_code for each in response.results.values()} == {0}
            until(lambda: {*old, *other} <= {info.topic for info in admin.list_topics()}, seconds=60)
    # Small batches, so that there are several.
    more = f"[kafka]\nmax_batch_records = {max(8, creates)}\n[guards]\nmax_deletes = {deletes}\n"
    if other:
        more += '[changes]\nconfigs = "exact"\npartitions = "grow"\n'
    config = commands.settings_file(folder, {"main": proxy.bootstrap_servers}, more=more)
    return config, folder / "ledger", dict.fromkeys((*new, *other), True) | dict.fromkeys(old, False)


def target(name: str) -> Target:
    return Target(resource=name, action=Action.CREATE, num_partitions=1, replication_factor=1)


@pytest.mark.timeout(240 + 120 * KILLS)
def test_driver_killed_at_each_event_in_turn_loses_nothing(
    spark: SparkSession, kafka: EmbeddedKafka, proxy: FaultProxy, tmp_path: Path
) -> None:
    """C18, D7: a small run, every request, response and commit of it."""
    fault = Fault(name="driver killed at each event in turn")
    FAULTS.append(fault)
    prefix = "killed-each."
    config, root, declared = prepared(spark, kafka, proxy, tmp_path, prefix, creates=6, deletes=3, changes=4)
    # With only a few kills, they are spread over the run.
    step = 1 if THOROUGH else 8
    killed = chain(proxy, config, root, "each", fault, every(2 if THOROUGH else 9, step, KILLS))
    told.check(fault, root, "each", kafka, prefix, declared)
    changed = {name for name in declared if "other" in name}
    client = AnotherClient(kafka)
    assert set(client.config("flush.ms", changed).values()) == {"5"}
    assert {each.num_partitions for each in client.topics(f"{prefix}other").values()} == {3}
    assert fault.tried == len(killed) >= min(KILLS, 2), killed


@pytest.mark.thorough
@pytest.mark.timeout(240 + 120 * KILLS)
@pytest.mark.parametrize("number", range(3))
def test_driver_killed_at_random_in_a_large_run_loses_nothing(
    spark: SparkSession, kafka: EmbeddedKafka, proxy: FaultProxy, tmp_path: Path, number: int
) -> None:
    """C18, D7: 600 creates and 200 deletes; the seed is TOPICLEDGER_SEED."""
    fault = Fault(name=f"driver killed at random, seed {SEED + number}")
    FAULTS.append(fault)
    prefix = f"killed-random-{number}."
    rng = random.Random(SEED + number)
    config, root, declared = prepared(spark, kafka, proxy, tmp_path, prefix, creates=600, deletes=200)

    def points() -> Iterator[int]:
        yield from (rng.randint(1, 24) for _ in range(KILLS // 4))
        while True:
            yield 10**9

    chain(proxy, config, root, "random", fault, points())
    told.check(fault, root, "random", kafka, prefix, declared)
    assert fault.tried > 3


@pytest.mark.thorough
@pytest.mark.timeout(240 + 120 * KILLS)
def test_driver_killed_during_a_prune_deletes_only_planned_topics(
    spark: SparkSession, kafka: EmbeddedKafka, proxy: FaultProxy, tmp_path: Path
) -> None:
    fault = Fault(name="driver killed amid a prune")
    FAULTS.append(fault)
    prefix = "killed-prune."
    names = [f"{prefix}old-{number}" for number in range(6)]
    make(kafka, *names, f"{prefix}new", configs={"retention.ms": "-1"})
    for name in names:
        write(kafka, name, at=datetime.now(UTC) - timedelta(days=40))
    write(kafka, f"{prefix}new", at=datetime.now(UTC))
    more = "[kafka]\nmax_batch_records = 8\n[guards]\nmax_deletes = 6\n"
    config = commands.settings_file(tmp_path, {"main": proxy.bootstrap_servers}, more=more)
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    asked = ("--topics", "^killed-prune[.]", "--idle-days", "30", "--run-id", "prune", "--config", str(config))
    planned = commands.run([str(commands.SUBMIT), "jobs/prune.py", *asked])
    assert planned.returncode == 0, planned.stderr
    # The number of commits before the request depends on concurrent work.
    points = itertools.chain(["delete request"], every(5, 1, max(KILLS, 3) - 1))
    killed = chain(proxy, config, tmp_path / "ledger", "prune", fault, points, "apply")
    assert killed[:1] == ["delete request"], killed
    told.check(fault, tmp_path / "ledger", "prune", kafka, prefix, dict.fromkeys(names, False) | {f"{prefix}new": True})
    assert fault.tried == len(killed) >= 2, killed
    estate.check_invariant("prune")
