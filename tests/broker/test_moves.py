"""Planned moves on a real cluster, without Spark."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from tests.broker.direct import admin_of, make, remove
from tests.broker.moving import Kept, make_everywhere, move, mover, replicas, throttles_on, with_data
from tests.waiting import until
from topicledger.config.settings import ReplicaSettings
from topicledger.kafka.sending import OutcomeUnknown
from topicledger.model import Note, Outcome, PhaseResult, Refusal, ReplicaAction, Target
from topicledger.model.moves import FOLLOWER_RATE, LEADER_RATE
from topicledger.resources.topics.actions.elect_leaders import ELECTION_NOT_NEEDED
from topicledger.resources.topics.actions.moved import moves_of
from topicledger.resources.topics.actions.throttling import Throttling
from topicledger_testing.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.thorough

SLOW = ReplicaSettings(throttle=100_000)
"""Two megabytes take some 20 s."""


def test_replicas_move_in_waves_and_no_throttle_stays(kafka_three: EmbeddedKafka) -> None:
    """R4, R6: done is in sync where planned; one partition at a time per broker."""
    before = dict.fromkeys(range(3), (1, 2))
    topic_id = with_data(kafka_three, "waves.one", before, 400_000)
    after = {0: (1, 2, 3), 1: (3, 2), 2: (2, 1)}
    target = move("waves.one", topic_id, before, after)
    kept = Kept()
    with mover(kafka_three, ReplicaSettings(max_partitions_per_broker=1, throttle=5_000_000), kept) as executor:
        assert [row.outcome for row in executor.validate([target])] == [Outcome.OK]
        (row,) = executor.apply([target])
        assert (row.outcome, row.error_message) == (Outcome.OK, None)
        assert row.after is not None
        # Two partitions were copied, once each, as brokers say their sizes; the third only changed its order.
        assert (row.after["partitions"], 800_000 < int(row.after["bytes"]) < 820_000) == ("3", True)
        assert row.completed_at > row.requested_at
        states = executor.topic_states(["waves.one"])["waves.one"].partitions
        assert {part: state.replicas for part, state in states.items()} == after
        assert all(state.isr == set(state.replicas) for state in states.values())
        assert not kept.left()
        (seen,) = executor.verify([(target, row.result)])
        assert seen.outcome is Outcome.OK
    until(lambda: throttles_on(kafka_three) == {}, seconds=30)


def test_errors_that_kafka_reports_too_late_are_refused_before(kafka_three: EmbeddedKafka) -> None:
    """R1: an unknown broker, one twice, none, a missing partition, replicas elsewhere, a recreated topic."""
    topic_id = make_everywhere(kafka_three, "checked.one", {0: (1,)})
    wrong = {
        Refusal.BROKERS_UNAVAILABLE: move("checked.one", topic_id, {0: (1,)}, {0: (9,)}),
        Refusal.CHANGED_SINCE_PLAN: move("checked.one", topic_id, {0: (2,)}, {0: (3,)}),
        Refusal.RECREATED: move("checked.one", "another", {0: (1,)}, {0: (3,)}),
    }
    with mover(kafka_three) as executor:
        for refusal, target in wrong.items():
            (row,) = executor.validate([target])
            assert (row.outcome, row.error) == (Outcome.REFUSED, refusal.value)
        (row,) = executor.validate([move("checked.one", topic_id, {5: (1,)}, {5: (2,)})])
        assert "partition 5 doesn't exist" in str(row.error_message)
        answers, _ = executor.admin.reassign({("checked.one", 0): (9,), ("checked.one", 5): (2,)})
        assert {part: each.error_code for (_, part), each in answers.items()} == {0: 39, 5: 3}
        for brokers in ((1, 1), ()):
            answers, _ = executor.admin.reassign({("checked.one", 0): brokers})
            assert [each.error_code for each in answers.values()] == [39]


def test_a_second_target_would_win_silently_so_another_hands_move_is_refused(kafka_three: EmbeddedKafka) -> None:
    """R2: Kafka takes the second target without a word."""
    topic_id = with_data(kafka_three, "hands.one", {0: (1,)})
    with mover(kafka_three, SLOW) as executor:
        throttling = Throttling(executor, Kept())
        target = move("hands.one", topic_id, {0: (1,)}, {0: (1, 3)})
        throttling.begin(moves_of(move("hands.one", topic_id, {0: (1,)}, {0: (1, 2, 3)})), 1)
        assert executor.admin.reassign({("hands.one", 0): (1, 2)})[0]["hands.one", 0].error_code == 0
        for rows, outcome in (
            (executor.validate([target]), Outcome.REFUSED),
            (executor.apply([target]), Outcome.REFUSED),
            (executor.apply([replace(target, maybe_sent=True)]), Outcome.FAILED),
        ):
            (row,) = rows
            assert (row.outcome, row.error) == (outcome, Refusal.REASSIGNMENT_IN_PROGRESS.value)
        assert executor.reassignments() == {("hands.one", 0): (1, 2)}
        assert executor.admin.reassign({("hands.one", 0): (1, 3)})[0]["hands.one", 0].error_code == 0
        assert executor.reassignments() == {("hands.one", 0): (1, 3)}
        executor.admin.reassign({("hands.one", 0): None})
        until(lambda: executor.reassignments() == {}, seconds=30)
        assert 1 in replicas(kafka_three, "hands.one")[0]
        throttling.end()
    until(lambda: throttles_on(kafka_three) == {}, seconds=30)


def test_a_stopped_run_leaves_what_is_under_way_and_the_next_start_ends_it(kafka_three: EmbeddedKafka) -> None:
    """R2, R4: nothing is sent twice with another target; the throttle stays written down until then."""
    topic_id = with_data(kafka_three, "stopped.one", {0: (1,)})
    target, stop, kept = move("stopped.one", topic_id, {0: (1,)}, {0: (2, 3)}), threading.Event(), Kept()
    with mover(kafka_three, SLOW, kept) as executor:
        executor.stop = stop
        executor._sender.stop = stop
        timer = threading.Timer(4.0, stop.set)
        timer.start()
        with pytest.raises(OutcomeUnknown, match="asked to stop"):
            list(executor.apply([target]))
        assert executor.reassignments() == {("stopped.one", 0): (2, 3)}
        assert kept.left()
        until(lambda: throttles_on(kafka_three) != {}, seconds=30)
    again = replace(target, maybe_sent=True)
    with mover(kafka_three, ReplicaSettings(throttle=50_000_000), kept) as executor:
        assert list(executor.changed_since_plan([again])) == []
        assert [row.outcome for row in executor.recover([again])] == [Outcome.PENDING]
        (row,) = executor.apply([again])
        assert row.outcome is Outcome.OK
        (row,) = executor.recover([again])
        assert row.error == Note.RECOVERED.value
    until(lambda: replicas(kafka_three, "stopped.one") == {0: (2, 3)}, seconds=30)
    until(lambda: throttles_on(kafka_three) == {}, seconds=30)


def test_another_clients_throttles_stay(kafka_three: EmbeddedKafka) -> None:
    """R6: a rate of its own, replicas of its own, and what it changed meanwhile."""
    topic_id = with_data(kafka_three, "others.one", {0: (1,), 1: (1,)}, 100_000)
    target = move("others.one", topic_id, {0: (1,)}, {0: (2,)})
    lists = "leader.replication.throttled.replicas"
    with mover(kafka_three, SLOW) as executor:
        admin = executor.admin
        assert admin.alter_broker_configs(2, {FOLLOWER_RATE: "77777"}).error_code == 0
        config = Target(resource="others.one", action="alter_configs", after={lists: "1:1"})
        admin.alter_configs([config], validate_only=False)
        # Whichever broker is asked: each takes a while to know what another has acknowledged, on 3.x up to a second.
        until(lambda: all("others.one" in throttles_on(kafka_three, ["others.one"]) for _ in range(10)), seconds=30)
        until(lambda: admin.broker_configs(2, (FOLLOWER_RATE,)) != {}, seconds=30)
        throttling = Throttling(executor, Kept())
        throttling.begin(moves_of(target), 50_000)
        assert admin.broker_configs(2, (FOLLOWER_RATE,)) == {FOLLOWER_RATE: "77777"}
        until(lambda: throttles_on(kafka_three, ["others.one"])["others.one"][lists] == "0:1,1:1", seconds=30)
        admin.alter_broker_configs(1, {LEADER_RATE: "88888"})
        until(lambda: admin.broker_configs(1, (LEADER_RATE,)) == {LEADER_RATE: "88888"}, seconds=30)
        throttling.end()
        theirs = {
            "broker 1": {LEADER_RATE: "88888"},
            "broker 2": {FOLLOWER_RATE: "77777"},
            "others.one": {lists: "1:1"},
        }
        until(lambda: throttles_on(kafka_three, ["others.one"]) == theirs, seconds=30)
        admin.alter_broker_configs(1, {LEADER_RATE: None})
        admin.alter_broker_configs(2, {FOLLOWER_RATE: None})
        admin.alter_configs([replace(config, before={lists: ""}, after={})], validate_only=False)


def test_a_topic_that_is_deleted_while_it_moves_fails_alone(kafka_three: EmbeddedKafka) -> None:
    """R7"""
    before = {0: (1,)}
    ids = {name: with_data(kafka_three, name, before) for name in ("deleted.one", "deleted.two")}
    targets = [move(name, topic_id, before, {0: (2,)}) for name, topic_id in ids.items()]
    with mover(kafka_three, SLOW) as executor:
        timer = threading.Timer(4.0, lambda: remove(kafka_three, {"deleted.one": ids["deleted.one"]}))
        timer.start()
        rows = {row.topic: row for row in executor.apply(targets)}
    assert (rows["deleted.one"].outcome, rows["deleted.one"].error) == (Outcome.FAILED, "CHANGED_SINCE_PLAN")
    assert rows["deleted.two"].outcome is Outcome.OK
    until(lambda: throttles_on(kafka_three) == {}, seconds=30)


def test_a_broker_that_dies_amid_a_wave_is_waited_for(kafka_three: EmbeddedKafka) -> None:
    """R4: the move continues by itself once it is back; its throttle is removed, too."""
    before = {0: (1, 2), 1: (2, 1)}
    topic_id, kept = with_data(kafka_three, "dying.one", before), Kept()
    target = move("dying.one", topic_id, before, {0: (1, 3), 1: (3, 1)})
    rows: list[PhaseResult] = []
    with mover(kafka_three, SLOW, kept) as executor:
        moving = threading.Thread(target=lambda: rows.extend(executor.apply([target])))
        moving.start()
        with admin_of(kafka_three) as admin:
            until(lambda: len(admin.list_reassignments() or ()) == 2, seconds=60)
        kafka_three.kill_broker(3)
        time.sleep(3)
        kafka_three.start_broker(3)
        moving.join(timeout=240)
    assert [(row.outcome, row.error_message) for row in rows] == [(Outcome.OK, None)]
    until(lambda: replicas(kafka_three, "dying.one") == {0: (1, 3), 1: (3, 1)}, seconds=30)
    assert not kept.left()
    until(lambda: throttles_on(kafka_three) == {}, seconds=30)


def test_preferred_leaders_are_elected(kafka_three: EmbeddedKafka) -> None:
    """R7: 84 is ok, 3 is a row of its own."""
    topic_id = with_data(kafka_three, "leaders.one", {0: (1, 2)}, 20_000)

    def elect(partitions: str) -> Target:
        after = {"partitions": partitions}
        return Target(resource="leaders.one", action=ReplicaAction.ELECT_LEADERS, topic_id=topic_id, after=after)

    with mover(kafka_three) as executor:
        turned = move("leaders.one", topic_id, {0: (1, 2)}, {0: (2, 1)})
        assert [row.outcome for row in executor.apply([turned])] == [Outcome.OK]
        until(lambda: executor.topic_states(["leaders.one"])["leaders.one"].partitions[0].leader == 1, seconds=30)
        (row,) = executor.apply([elect("0")])
        assert row.outcome is Outcome.OK
        until(lambda: executor.topic_states(["leaders.one"])["leaders.one"].partitions[0].leader == 2, seconds=30)
        assert executor.admin.elect_leaders([("leaders.one", 0)])[0]["leaders.one", 0].error_code == ELECTION_NOT_NEEDED
        (row,) = executor.apply([elect("0")])
        assert row.outcome is Outcome.OK
        (row,) = executor.apply([elect("7")])
        assert (row.outcome, row.error) == (Outcome.FAILED, "UNKNOWN_TOPIC_OR_PARTITION")


def test_without_the_right_a_row_says_what_to_grant(kafka_sasl: EmbeddedKafka) -> None:
    """31's own message dumps what is inside of the broker."""
    make(kafka_sasl, "rights.moved")
    with admin_of(kafka_sasl, "nobody") as admin:
        answers, _ = admin.reassign({("rights.moved", 0): (1,)})
        assert {each.error_code for each in answers.values()} == {31}
        assert {each.error_message for each in answers.values()} == {
            "this principal may not move replicas or leaders: grant it Alter on the cluster"
        }
        elected, _ = admin.elect_leaders([("rights.moved", 0)])
        assert {each.error_code for each in elected.values()} == {31}
        assert admin.list_reassignments() is None
