"""Moves with lost requests or answers, with dead or full brokers, or with a new controller; without Spark."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.broker.direct import admin_of, make
from tests.broker.direct import executor_of as logged_in
from tests.broker.moving import Kept, move, mover, replicas, throttles_on, with_data
from tests.clusters import three_brokers
from tests.fault.patience import executor_of
from tests.fault.proxy import CUT, REASSIGN, Direction, FaultProxy
from tests.fault.quorum import active_controller
from tests.waiting import until
from topicledger.apply.executor import Executor
from topicledger.config.settings import ReplicaSettings
from topicledger.kafka.moving import MoveLimits
from topicledger.kafka.sending import OutcomeUnknown
from topicledger.model import Note, Outcome, PhaseResult, Refusal, ReplicaAction, Target
from topicledger.resources.topics.actions import obstacles, waves
from topicledger.resources.topics.actions.moved import moves_of
from topicledger.resources.topics.actions.throttling import Throttling
from topicledger_testing.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.thorough

SLOW = ReplicaSettings(throttle=100_000)
"""Two megabytes take about 20 s."""
FAST = ReplicaSettings(throttle=20_000_000)


@contextmanager
def behind(proxy: FaultProxy, kept: Kept) -> Iterator[Executor]:
    """Provide a run's executor for a cluster behind a proxy that loses answers."""
    with executor_of(proxy) as executor:
        executor.limits.moving = MoveLimits(settings=FAST, throttles=kept)
        yield executor


def under_way(kafka: EmbeddedKafka, executor: Executor, target: Target) -> tuple[threading.Thread, list[object]]:
    """Apply a target in a separate thread; return when its partitions are listed as being moved."""
    ended: list[object] = []

    def apply() -> None:
        try:
            ended.extend(executor.apply([target]))
        except OutcomeUnknown as error:
            ended.append(error)

    thread = threading.Thread(target=apply)
    thread.start()
    with admin_of(kafka) as admin:
        until(lambda: target.topic in (admin.topics_reassigned_now() or ()), seconds=90)
    return thread, ended


def outcomes(rows: Sequence[object]) -> list[Outcome]:
    assert all(isinstance(row, PhaseResult) for row in rows), rows
    return [row.outcome for row in rows if isinstance(row, PhaseResult)]


@pytest.mark.parametrize("direction", ["request", "response"])
def test_lost_reassignment_is_sent_again_and_moves_once(kafka_three: EmbeddedKafka, direction: Direction) -> None:
    """R2: after a lost answer, the state is compared: a move under way isn't sent again, nor a cancel that is done."""
    topic, before, after, kept = f"lost.{direction}", {0: (1,), 1: (2,)}, {0: (3,), 1: (2, 1)}, Kept()
    target = move(topic, with_data(kafka_three, topic, before), before, after)
    with FaultProxy(kafka_three) as proxy:
        proxy.on(REASSIGN, direction, do=CUT)
        with behind(proxy, kept) as executor:
            assert outcomes(list(executor.apply([target]))) == [Outcome.OK]
        sent = 2 if direction == "request" else 1
        assert proxy.count(REASSIGN, "request") == sent
        assert replicas(kafka_three, topic) == after
        back = move(topic, str(target.topic_id), after, before, maybe_sent=True)
        with mover(kafka_three) as executor:
            throttling = Throttling(executor, kept)
            throttling.begin(moves_of(back), 1_000)
            assert {each.error_code for each in executor.admin.reassign({(topic, 0): (1,)})[0].values()} == {0}
        proxy.on(REASSIGN, direction, nth=1 + proxy.count(REASSIGN, direction), do=CUT)
        with behind(proxy, kept) as executor:
            (row,) = executor.cancel([back])
            assert (row.error, row.error_message) == (Refusal.CANCELLED.value, "cancelled; 0 of 2 partitions moved")
        assert proxy.count(REASSIGN, "request") == 2 * sent
    assert replicas(kafka_three, topic) == after
    with mover(kafka_three) as executor:
        Throttling(executor, kept).end()
    until(lambda: throttles_on(kafka_three) == {}, seconds=30)


def test_requests_stay_below_the_limit_of_kafka(kafka_three: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """R5: tested with a smaller limit than Kafka's 10,000 partitions."""
    monkeypatch.setattr(waves, "_MOST_AT_ONCE", 3)
    before, after = dict.fromkeys(range(7), (1, 2)), dict.fromkeys(range(7), (2, 1))
    ids = make(kafka_three, "limit.one", assignments=before, num_partitions=None, replication_factor=None)
    with FaultProxy(kafka_three) as proxy, behind(proxy, Kept()) as executor:
        (row,) = executor.apply([move("limit.one", ids["limit.one"], before, after)])
        assert row.outcome is Outcome.OK
        assert proxy.count(REASSIGN, "request") == 3


def test_unlisted_move_without_sync_is_not_done(kafka_three: EmbeddedKafka) -> None:
    """R4: an empty listing proves nothing; the run waits for a replica that fell out of sync."""
    before, after = {0: (1,)}, {0: (1, 3)}
    target = move("sync.one", with_data(kafka_three, "sync.one", before, 20_000), before, after)
    with mover(kafka_three, FAST) as executor:
        assert outcomes(list(executor.apply([target]))) == [Outcome.OK]
        kafka_three.kill_broker(3)
        try:
            until(lambda: executor.topic_states(["sync.one"])["sync.one"].partitions[0].isr == {1}, seconds=60)
            assert executor.reassignments() == {}
            assert replicas(kafka_three, "sync.one") == after
            assert outcomes(list(executor.recover([replace(target, maybe_sent=True)]))) == [Outcome.PENDING]
        finally:
            kafka_three.start_broker(3)

        def recovered() -> bool:
            return [row.error for row in executor.recover([replace(target, maybe_sent=True)])] == [Note.RECOVERED.value]

        until(recovered, seconds=60)


def test_moves_of_a_dead_broker_stay_open_until_it_is_back(
    kafka_three: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R4, R6: throttles of the other brokers stay recorded until then, and the last start removes them."""
    monkeypatch.setattr(obstacles, "_GONE_FOR", 5.0)
    before, after, kept = {0: (1, 2), 1: (2, 1)}, {0: (1, 3), 1: (2, 3)}, Kept()
    target = move("dead.one", with_data(kafka_three, "dead.one", before), before, after)
    with mover(kafka_three, SLOW, kept) as executor:
        thread, ended = under_way(kafka_three, executor, target)
        kafka_three.kill_broker(3)
        try:
            thread.join(timeout=120)
            assert ["dead.one: no known outcome (brokers [3], which" in str(each) for each in ended] == [True]
            assert kept.left()
        finally:
            kafka_three.start_broker(3)
    with mover(kafka_three, FAST, kept) as executor:
        assert outcomes(list(executor.apply([replace(target, maybe_sent=True)]))) == [Outcome.OK]
    assert replicas(kafka_three, "dead.one") == after
    assert not kept.left()
    until(lambda: throttles_on(kafka_three) == {}, seconds=30)


def test_move_whose_only_source_dies_stays_open_until_it_is_back(
    kafka_three: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R8: the controller accepts to move a partition without a leader, but can't end or cancel the move."""
    monkeypatch.setattr(obstacles, "_GONE_FOR", 5.0)
    before, after, kept = {0: (3,)}, {0: (2,)}, Kept()
    target = move("source.begun", with_data(kafka_three, "source.begun", before), before, after)
    idle = move("source.idle", with_data(kafka_three, "source.idle", before, 20_000), before, after)
    with mover(kafka_three, SLOW, kept) as executor:
        thread, ended = under_way(kafka_three, executor, target)
        kafka_three.kill_broker(3)
        try:
            thread.join(timeout=120)
            assert ["begun: no known outcome (partition 0 has had no leader" in str(each) for each in ended] == [True]
            (row,) = executor.validate([idle])
            assert (row.outcome, row.error) == (Outcome.REFUSED, Refusal.BROKERS_UNAVAILABLE.value)
            assert "partition 0 has no leader to copy from" in str(row.error_message)
            answered = [executor.admin.reassign({("source.idle", 0): to})[0]["source.idle", 0] for to in ((2,), None)]
            assert [(each.error_code, str(each.error_message)[:40]) for each in answered] == [
                (0, "None"),
                (39, "Unable to revert partition assignment fo"),
            ]
            time.sleep(5)
            listed = executor.reassignments() or {}
            assert {key for key in listed if key[0].startswith("source.")} == {("source.begun", 0), ("source.idle", 0)}
            assert executor.topic_states(["source.idle"])["source.idle"].partitions[0].leader == -1
        finally:
            kafka_three.start_broker(3)
    with mover(kafka_three, FAST, kept) as executor:
        assert outcomes(list(executor.apply([replace(target, maybe_sent=True)]))) == [Outcome.OK]
    assert replicas(kafka_three, "source.begun") == after
    until(lambda: replicas(kafka_three, "source.idle") == after, seconds=30)
    assert not kept.left()
    until(lambda: throttles_on(kafka_three) == {}, seconds=30)


def test_controller_killed_during_a_wave_does_not_disturb_moves(kafka_three: EmbeddedKafka) -> None:
    """R4: the next controller continues the moves under way, and so does the run."""
    controller = active_controller(kafka_three)
    first, second = (each for each in (1, 2, 3) if each != controller)
    before, after, kept = {0: (first,), 1: (first,)}, {0: (first, second), 1: (second,)}, Kept()
    target = move("control.one", with_data(kafka_three, "control.one", before), before, after)
    with mover(kafka_three, SLOW, kept) as executor:
        thread, ended = under_way(kafka_three, executor, target)
        kafka_three.kill_broker(controller)
        try:
            thread.join(timeout=180)
        finally:
            kafka_three.start_broker(controller)
    assert active_controller(kafka_three) != controller or not thread.is_alive()
    assert outcomes(ended) == [Outcome.OK]
    assert replicas(kafka_three, "control.one") == after
    assert not kept.left()
    until(lambda: throttles_on(kafka_three) == {}, seconds=30)


def test_full_disk_on_the_target_leaves_the_move_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """R4: Kafka stops a broker if its only log directory fails; a larger disk and the same run id finish the move."""
    monkeypatch.setattr(obstacles, "_GONE_FOR", 5.0)
    before, after, kept = {0: (1,), 1: (2,)}, {0: (1, 3), 1: (3,)}, Kept()
    with three_brokers() as kafka:
        target = move("full.one", with_data(kafka, "full.one", before, 30_000_000), before, after)
        kafka.stop_broker(3)
        data, aside = kafka.folder / "broker-3" / "data", tmp_path / "data"
        shutil.move(data, aside)
        data.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(data)], check=False, capture_output=True
        )
        if mounted.returncode:
            pytest.skip("this user may not mount")
        try:
            shutil.copytree(aside, data, dirs_exist_ok=True)
            kafka.start_broker(3)
            with mover(kafka, ReplicaSettings(throttle=0), kept) as executor:
                thread, ended = under_way(kafka, executor, target)
                thread.join(timeout=180)
                assert ["full.one: no known outcome (brokers [3], which" in str(each) for each in ended] == [True]
            subprocess.run(["mount", "-o", "remount,size=512m", str(data)], check=True)
            restart(kafka, 3)
            with mover(kafka, FAST, kept) as executor:
                assert outcomes(list(executor.apply([replace(target, maybe_sent=True)]))) == [Outcome.OK]
            assert replicas(kafka, "full.one") == after
            assert throttles_on(kafka) == {}
        finally:
            kafka.stop()
            subprocess.run(["umount", "-l", str(data)], check=False)


def restart(kafka: EmbeddedKafka, broker: int) -> None:
    """Start a broker that has ended by itself."""
    kafka.kill_broker(broker)
    kafka.start_broker(broker)


def test_without_the_acl_to_throttle_no_move_begins(kafka_sasl: EmbeddedKafka) -> None:
    """R6: the error names the missing ACL."""
    make(kafka_sasl, "rights.throttled")
    kept = Kept()
    with logged_in(kafka_sasl, user="nobody") as executor:
        target = move("rights.throttled", "-", {0: (1,)}, {0: (1, 2)})
        without = Throttling(executor, kept).begin(moves_of(target), 1_000)
        assert "grant this principal" in without.refused["rights.throttled"]
        assert not kept.left()


def test_preferred_replica_that_is_down_has_its_own_row(kafka_three: EmbeddedKafka) -> None:
    """R7: error code 80; when the replica is back, the same election is ok."""
    topic_id = with_data(kafka_three, "leaders.down", {0: (3, 1), 1: (1, 2)}, 20_000)
    after = {"partitions": "0,1"}
    target = Target(resource="leaders.down", action=ReplicaAction.ELECT_LEADERS, topic_id=topic_id, after=after)
    with mover(kafka_three) as executor:
        kafka_three.kill_broker(3)
        try:
            until(lambda: executor.topic_states(["leaders.down"])["leaders.down"].partitions[0].leader == 1, seconds=60)
            (row,) = executor.apply([target])
            assert (row.outcome, row.error_code) == (Outcome.FAILED, 80)
            assert row.error == "PREFERRED_LEADER_NOT_AVAILABLE"
            assert str(row.error_message).startswith("partition 0: ")
        finally:
            kafka_three.start_broker(3)
        state = executor.topic_states
        until(lambda: 3 in state(["leaders.down"])["leaders.down"].partitions[0].isr, seconds=60)
        assert outcomes(list(executor.apply([target]))) == [Outcome.OK]
        until(lambda: state(["leaders.down"])["leaders.down"].partitions[0].leader == 3, seconds=30)
