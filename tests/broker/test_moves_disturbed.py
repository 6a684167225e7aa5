"""Moves whose request gets lost, that a stop interrupts, or that another client or run interferes with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.broker.another_hand import AnotherHand
from tests.broker.changes import changing
from tests.broker.direct import admin_of
from tests.broker.moving import Kept, make_everywhere, move, mover, replicas, throttles_on, with_data
from tests.fault.patience import PATIENT, executor_of
from tests.fault.proxy import ALTER_CONFIGS, CUT, REASSIGN, Fault, FaultProxy, Frame, hold
from tests.harness import cluster_settings
from tests.waiting import until
from topicledger.apply.dispatch import Stop, Stopped
from topicledger.apply.executor import Executor
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import KafkaSettings, ReplicaSettings
from topicledger.kafka.moving import MoveLimits
from topicledger.kafka.reassignments import Partition, Replicas
from topicledger.kafka.sending import OutcomeUnknown
from topicledger.ledger import leases
from topicledger.ledger.leases import LeaseHeld
from topicledger.model import Outcome
from topicledger.model.moves import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE
from topicledger.resources.topics.actions.throttling import Throttling
from topicledger.schemas import LEASES, THROTTLES
from topicledger_testing.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.timeout(180)
SLOW = ReplicaSettings(throttle=50_000, max_partitions_per_broker=1)
"""A follower fetches 1 MB at once, and then waits: three megabytes take 40 s."""
FASTER = replace(SLOW, throttle=1_000_000)
FAST = ReplicaSettings(throttle=20_000_000)


@contextmanager
def behind(proxy: FaultProxy, limits: ReplicaSettings, kept: Kept) -> Iterator[Executor]:
    """Provide a run's executor, which waits 1.5 s for an answer, for a cluster behind a proxy."""
    with executor_of(proxy, replace(PATIENT, visibility=5.0)) as executor:
        executor.limits.moving = MoveLimits(settings=limits, throttles=kept)
        yield executor


def listed(kafka: EmbeddedKafka) -> dict[Partition, Replicas]:
    with admin_of(kafka) as admin:
        return admin.list_reassignments() or {}


def test_throttles_outlive_a_lost_request_a_stop_and_a_foreign_change(kafka_three: EmbeddedKafka) -> None:
    """R2, R4, R6: the request for the first wave arrives after the run was stopped; then another client moves a
    partition that wasn't begun. A later start waits for the partition that moves, throttled all the time."""
    topic, before, after, kept = "disturbed.moved", {0: (1, 2), 1: (1, 2)}, {0: (3, 2), 1: (1, 3)}, Kept()
    topic_id = with_data(kafka_three, topic, before, 3_000_000, into=[0])
    target, throttled = move(topic, topic_id, before, after), {"broker 1", "broker 2", "broker 3", topic}
    arrives = threading.Event()
    with FaultProxy(kafka_three) as proxy, behind(proxy, SLOW, kept) as executor:

        def stop(_: Frame) -> Fault:
            executor.stop.set()
            return hold(arrives)

        proxy.on(REASSIGN, "request", times=None, do=stop)
        with pytest.raises(OutcomeUnknown):
            list(executor.apply([target]))
        assert listed(kafka_three) == {}
        assert set(throttles_on(kafka_three, [topic])) == throttled
        arrives.set()
        until(lambda: listed(kafka_three) == {(topic, 0): (3, 2)}, seconds=30)

    with admin_of(kafka_three) as admin:
        assert admin.reassign({(topic, 1): (2,)})[0][topic, 1].error_code == 0
    until(lambda: replicas(kafka_three, topic)[1] == (2,), seconds=30)
    assert set(throttles_on(kafka_three, [topic])) == throttled
    over, samples = threading.Event(), list[set[str]]()

    def watch() -> None:
        while not over.wait(0.2):
            found = throttles_on(kafka_three, [topic])
            if listed(kafka_three):
                samples.append(set(found))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with mover(kafka_three, FASTER, kept) as executor:
            begun = replace(target, maybe_sent=True)
            assert list(executor.changed_since_plan([begun])) == []
            (row,) = executor.apply([begun])
    finally:
        over.set()
        watcher.join()
    words = "1 of 2 partitions moved; partition 1 is on brokers [2], neither as planned nor as it was"
    assert (row.outcome, row.error, row.error_message) == (Outcome.FAILED, "CHANGED_SINCE_PLAN", words)
    assert samples, "too fast for this test"
    assert [each for each in samples if each != throttled] == []
    assert replicas(kafka_three, topic) == {0: (3, 2), 1: (2,)}
    assert not kept.left()
    until(lambda: throttles_on(kafka_three, [topic]) == {}, seconds=30)


def test_moves_of_another_client_between_two_requests_keep_their_targets(kafka_three: EmbeddedKafka) -> None:
    """R2: Kafka would let a second target win. One comes while throttles are set, one after a lost answer."""
    before, after, kept, another = {0: (1,)}, {0: (3,)}, Kept(), AnotherHand(kafka_three)
    first, second, third = (f"disturbed.{each}" for each in ("first", "second", "third"))
    ids = {name: with_data(kafka_three, name, before) for name in (first, second)}
    ids[third] = make_everywhere(kafka_three, third, before)
    for name in (first, second):
        another.set_configs(name, {FOLLOWER_REPLICAS: "*"})
    with admin_of(kafka_three) as admin, FaultProxy(kafka_three) as proxy:
        admin.alter_broker_configs(2, {FOLLOWER_RATE: "1000"})

        def moved(name: str, fault: Fault | None) -> Callable[[Frame], Fault | None]:
            def interfere(_: Frame) -> Fault | None:
                (answer,) = admin.reassign({(name, 0): (2,)})[0].values()
                assert answer.error_code == 0
                return fault

            return interfere

        proxy.on(ALTER_CONFIGS, "request", do=moved(first, None))
        proxy.on(REASSIGN, "response", do=moved(second, CUT))
        try:
            with behind(proxy, FAST, kept) as executor:
                rows = list(executor.apply([move(name, ids[name], before, after) for name in ids]))
            assert listed(kafka_three) == {(first, 0): (2,), (second, 0): (2,)}
        finally:
            admin.alter_broker_configs(2, {FOLLOWER_RATE: None})
        assert proxy.count(REASSIGN, "request") == 1
    found = {row.resource: (row.outcome, row.error, row.error_message) for row in rows}
    error, words = "REASSIGNMENT_IN_PROGRESS", "partition 0 is being moved to [2] by another client"
    assert found[first] == (Outcome.REFUSED, error, f"{words}: nothing of it was sent; plan again")
    assert found[second] == (Outcome.FAILED, error, f"0 of 1 partitions moved; {words}")
    assert found[third][0] is Outcome.OK
    until(lambda: listed(kafka_three) == {}, seconds=60)
    assert {name: replicas(kafka_three, name)[0] for name in ids} == {first: (2,), second: (2,), third: (3,)}
    with mover(kafka_three, kept=kept) as executor:
        assert Throttling(executor, kept).end() == 0
    until(lambda: set(throttles_on(kafka_three, [third])) == set(), seconds=30)


def test_a_move_that_another_client_cancels_stays_cancelled(kafka_three: EmbeddedKafka) -> None:
    """R3: sent again, it would copy without a throttle, since tools that cancel moves remove their throttles."""
    topic, before, after, kept = "disturbed.cancelled", {0: (1,)}, {0: (3,)}, Kept()
    target = move(topic, with_data(kafka_three, topic, before, 3_000_000), before, after)
    with FaultProxy(kafka_three) as proxy, behind(proxy, SLOW, kept) as executor, ThreadPoolExecutor(1) as beside:
        rows = beside.submit(lambda: list(executor.apply([target])))
        until(lambda: listed(kafka_three) == {(topic, 0): (3,)}, seconds=30)
        with admin_of(kafka_three) as admin:
            assert admin.reassign({(topic, 0): None})[0][topic, 0].error_code == 0
            for broker in (1, 3):
                admin.alter_broker_configs(broker, {FOLLOWER_RATE: None, LEADER_RATE: None})
        (row,) = rows.result(timeout=120)
        assert proxy.count(REASSIGN, "request") == 1
    words = "0 of 1 partitions moved; another client cancelled the move of partition 0"
    assert (row.outcome, row.error, row.error_message) == (Outcome.FAILED, "CANCELLED", words)
    assert (listed(kafka_three), replicas(kafka_three, topic)) == ({}, {0: (1,)})
    assert not kept.left()
    until(lambda: throttles_on(kafka_three, [topic]) == {}, seconds=30)


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_another_run_waits_while_a_lost_request_may_arrive(
    spark: SparkSession, kafka_three: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2, R4, R6: the request of a stopped run arrives while its lease still holds, and finds its throttle.

    Until the lease expires, another run is refused, and a run with nothing to do leaves the throttle.
    """
    # Two runs start and end in this time, on slow machines too.
    monkeypatch.setattr(leases, "LEASE_SECONDS", 90.0)
    topic, arrives, stop = "disturbed.leased", threading.Event(), Stop()
    with_data(kafka_three, topic, {0: (1,)}, 40_000_000)
    estate = changing(spark, tmp_path, kafka_three, replicas="on", guards=GuardSettings(max_moves=10))
    direct = replace(estate.settings, replicas=replace(SLOW, throttle=4_000))
    estate.declare({"topic": topic, "placement": "brokers:3"})
    estate.declare({"topic": "disturbed.new", "num_partitions": 1, "replication_factor": 1})
    assert estate.run("plan", "another", only=("creates",)).pending_changes == 1
    with FaultProxy(kafka_three) as proxy:
        slow = {"main": cluster_settings("main", proxy, request_timeout_ms=1_500)}  # type: ignore[arg-type]
        estate.settings = replace(direct, clusters=slow, kafka=KafkaSettings(operation_timeout=1.0))

        def lose(_: Frame) -> Fault:
            stop.set()
            return hold(arrives)

        proxy.on(REASSIGN, "request", times=None, do=lose)
        with pytest.raises(Stopped):
            estate.run(run_id="lost", only=("replicas",), stop=stop)
        estate.settings = direct
        (lease,) = estate.rows(LEASES)
        assert (lease["run_id"], lease["released_at"]) == ("lost", None)
        throttled = throttles_on(kafka_three, [topic])
        assert set(throttled) == {"broker 1", "broker 3", topic}
        assert listed(kafka_three) == {}
        with pytest.raises(LeaseHeld, match=r"cluster main .* is being changed by run lost .*Nothing was sent"):
            estate.run("apply", "another")
        assert estate.run(run_id="nothing", only=("deletes",)).exit_code == 0
        assert throttles_on(kafka_three, [topic]) == throttled
        arrives.set()
        until(lambda: listed(kafka_three) == {(topic, 0): (3,)}, seconds=30)
        assert datetime.now(UTC) < lease["expires_at"].astimezone(UTC), "too slow for this test"

    assert estate.run("apply", "another", wait=True, wait_visible=60.0).exit_code == 0
    assert datetime.now(UTC) >= lease["expires_at"].astimezone(UTC)
    assert listed(kafka_three) == {(topic, 0): (3,)}, "too fast for this test"
    assert throttles_on(kafka_three, [topic]) == throttled
    estate.settings = replace(direct, replicas=FAST)
    assert estate.run(run_id="lost", only=("replicas",)).exit_code == 0
    assert replicas(kafka_three, topic) == {0: (3,)}
    until(lambda: throttles_on(kafka_three, [topic]) == {}, seconds=30)
    assert None not in {row["removed_at"] for row in estate.rows(THROTTLES)}
