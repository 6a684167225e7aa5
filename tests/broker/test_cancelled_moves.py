"""The state of a real cluster after a cancelled move, and its row in `audit`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.broker.direct import admin_of
from tests.broker.moving import Kept, move, mover, replicas, throttles_on, with_data
from tests.waiting import until
from topicledger.apply.executor import Executor
from topicledger.config.settings import ReplicaSettings
from topicledger.kafka.sending import OutcomeUnknown
from topicledger.model import Note, Outcome, PhaseResult, Refusal
from topicledger.resources.topics.actions.cancelling import NO_REASSIGNMENT_IN_PROGRESS
from topicledger.resources.topics.actions.moved import moves_of
from topicledger.resources.topics.actions.throttling import Throttling
from topicledger_testing.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.thorough

SLOW = ReplicaSettings(throttle=50_000)
"""Two megabytes take some 40 s."""


@contextmanager
def slow_topic(kafka: EmbeddedKafka, topic: str, before: dict[int, tuple[int, ...]]) -> Iterator[tuple[Executor, str]]:
    """A topic whose replicas hardly move at all meanwhile."""
    topic_id = with_data(kafka, topic, before)
    everywhere = dict.fromkeys(before, (1, 2, 3))
    with mover(kafka) as executor:
        throttling = Throttling(executor, Kept())
        throttling.begin(moves_of(move(topic, topic_id, before, everywhere)), 1_000)
        yield executor, topic_id
        throttling.end()


def begin(executor: Executor, topic: str, targets: dict[int, tuple[int, ...] | None]) -> set[int]:
    """Move partitions, or cancel that; returns the codes that were answered."""
    answers, _ = executor.admin.reassign({(topic, each): brokers for each, brokers in targets.items()})
    return {each.error_code for each in answers.values()}


def test_kafka_restores_the_brokers_of_a_cancelled_move_not_their_order(kafka_three: EmbeddedKafka) -> None:
    """R2, R3: what the broker does, measured: after a second target not even the brokers; 85 with nothing to cancel."""
    once, twice = dict.fromkeys(range(2), (1, 2)), {0: (1,)}
    with (
        slow_topic(kafka_three, "cancelled.once", once) as (executor, _),
        slow_topic(kafka_three, "cancelled.twice", twice),
    ):
        assert begin(executor, "cancelled.once", {0: (1, 3), 1: (2, 3)}) == {0}
        assert begin(executor, "cancelled.twice", {0: (1, 2)}) == {0}
        assert begin(executor, "cancelled.twice", {0: (1, 3)}) == {0}
        assert begin(executor, "cancelled.once", {0: None, 1: None}) == {0}
        assert begin(executor, "cancelled.twice", {0: None}) == {0}
        until(lambda: executor.reassignments() == {}, seconds=30)
        until(lambda: replicas(kafka_three, "cancelled.once") == {0: (1, 2), 1: (2, 1)}, seconds=30)
        until(lambda: replicas(kafka_three, "cancelled.twice") == {0: (1, 2)}, seconds=30)
        assert begin(executor, "cancelled.once", {0: None}) == {NO_REASSIGNMENT_IN_PROGRESS}
    until(lambda: throttles_on(kafka_three) == {}, seconds=30)


def test_a_cancelled_topic_says_where_its_replicas_were_left(kafka_three: EmbeddedKafka) -> None:
    """R2, R3: only moves to the planned brokers are cancelled; finished ones stay; other clients' moves continue."""
    before = dict.fromkeys(range(4), (1, 2))
    after = {0: (1, 3), 1: (2, 3), 2: (2, 3), 3: (2, 1)}
    with slow_topic(kafka_three, "cancelled.left", before) as (executor, topic_id):
        target = move("cancelled.left", topic_id, before, after, maybe_sent=True)
        assert begin(executor, "cancelled.left", {**after, 2: (1, 3)}) == {0}
        (row,) = executor.cancel([target])
        assert (row.outcome, row.error, row.error_code) == (Outcome.FAILED, Refusal.CANCELLED.value, -1)
        assert row.error_message == (
            "cancelled; 1 of 4 partitions moved; partition 1 is on [2, 1], and was on [1, 2]: Kafka restores brokers, "
            "not their order, so that a different one is the preferred leader; "
            "partition 2 is still being moved to [1, 3]"
        )
        assert row.before == {"assignments": "0:1,2;1:1,2;2:1,2;3:1,2"}
        assert row.after is not None
        assert (row.after["partitions"], row.after["assignments"]) == ("1", "0:1,2;1:2,1;2:1,3,2;3:2,1")
        assert executor.reassignments() == {("cancelled.left", 2): (1, 3)}
        begin(executor, "cancelled.left", {2: None})
        until(lambda: executor.reassignments() == {}, seconds=30)
    until(lambda: throttles_on(kafka_three) == {}, seconds=30)


def test_moves_not_begun_stay_open_and_finished_ones_are_ok(kafka_three: EmbeddedKafka) -> None:
    """R4: the row of a topic that was moved before it could be cancelled is as true as any other."""
    before, after = {0: (1,)}, {0: (2,)}
    topic_id = with_data(kafka_three, "cancelled.late", before, 20_000)
    target = move("cancelled.late", topic_id, before, after, maybe_sent=True)
    with mover(kafka_three) as executor:
        assert list(executor.cancel([target])) == []
        assert [row.outcome for row in executor.apply([replace(target, maybe_sent=False)])] == [Outcome.OK]
        (row,) = executor.cancel([target])
        assert (row.outcome, row.error) == (Outcome.OK, Note.RECOVERED.value)
        assert row.after is not None
        assert (row.after["partitions"], row.after["assignments"]) == ("1", "0:2")


def test_a_stopped_wave_is_cancelled_by_whoever_comes_next(kafka_three: EmbeddedKafka) -> None:
    """R3: its throttles go, too; real sizes of partitions count as bytes moved."""
    before, after = {0: (1,), 1: (1,)}, {0: (1, 3), 1: (3,)}
    topic_id = with_data(kafka_three, "cancelled.wave", before)
    target, stop, kept = move("cancelled.wave", topic_id, before, after), threading.Event(), Kept()
    with mover(kafka_three, SLOW, kept) as executor:
        executor.stop = stop
        executor._sender.stop = stop
        ended: list[BaseException] = []

        def moving() -> None:
            try:
                list(executor.apply([target]))
            except OutcomeUnknown as error:
                ended.append(error)

        thread = threading.Thread(target=moving)
        thread.start()
        with admin_of(kafka_three) as admin:
            until(lambda: len(admin.list_reassignments() or ()) == 2, seconds=60)
        stop.set()
        thread.join(timeout=60)
        assert ended
    assert kept.left()
    with mover(kafka_three, SLOW, kept) as executor:
        rows: list[PhaseResult] = list(executor.cancel([replace(target, maybe_sent=True)]))
        assert [(row.outcome, row.error_message) for row in rows] == [
            (Outcome.FAILED, "cancelled; 0 of 2 partitions moved")
        ]
        Throttling(executor, kept).end()
    assert replicas(kafka_three, "cancelled.wave") == before
    until(lambda: throttles_on(kafka_three) == {}, seconds=30)
    with mover(kafka_three, ReplicaSettings(throttle=50_000_000), kept) as executor:
        (row,) = executor.apply([target])
        assert row.outcome is Outcome.OK
        assert row.after is not None
        # Each of two partitions was copied once: 2,000,000 bytes and a little for what the records are wrapped in.
        assert 4_000_000 < int(row.after["bytes"]) < 4_100_000
