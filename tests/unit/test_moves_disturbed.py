"""Moves when other clients cancel them or remove throttles, brokers restart, a plan expires, or a driver hangs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.unit.moving_cluster import MovingCluster, Written, executor_of, move
from topicledger.apply.executor import Executor
from topicledger.kafka.reassignments import Replicas, TopicState
from topicledger.model import Outcome, PhaseResult, Refusal
from topicledger.model.moves import BROKER, FOLLOWER_RATE, LEADER_RATE
from topicledger.resources.topics.actions.cancelling import StillMoved
from topicledger.resources.topics.actions.moved import moves_of
from topicledger.resources.topics.actions.throttling import Throttling

BEFORE, AFTER = {0: (1,), 1: (1,)}, {0: (2,), 1: (2,)}


def one_at_a_time(executor: Executor) -> Executor:
    settings = replace(executor.limits.moving.settings, max_partitions_per_broker=1)
    executor.limits.moving = replace(executor.limits.moving, settings=settings)
    return executor


def rates(cluster: MovingCluster) -> set[int]:
    """Brokers that have both rates."""
    set_now = cluster.throttles()
    return {
        each for each in (1, 2, 3) if {(BROKER, str(each), LEADER_RATE), (BROKER, str(each), FOLLOWER_RATE)} <= set_now
    }


def ended(row: PhaseResult) -> tuple[Outcome, str | None]:
    return row.outcome, row.error


@pytest.mark.parametrize(("before", "after"), [((1,), (2,)), ((1, 2), (1, 3))])
def test_move_that_another_client_cancels_is_not_sent_again(before: Replicas, after: Replicas) -> None:
    """Tools that cancel moves in an emergency usually remove their throttles, too."""
    cluster, written, looks = MovingCluster(t={0: before}), Written(), [0]

    def meanwhile() -> None:
        looks[0] += 1
        if looks[0] == 5:
            cluster.targets.clear()
            cluster.configs.clear()

    (row,) = executor_of(cluster, written, meanwhile=meanwhile).apply([move("t", {0: before}, {0: after})])
    assert ended(row) == (Outcome.FAILED, Refusal.CANCELLED)
    assert row.error_message == "0 of 1 partitions moved; another client cancelled the move of partition 0"
    assert [list(asked) for asked in cluster.requests] == [[("t", 0)]]
    assert not written.rows


def test_throttles_that_another_client_removed_are_set_again_before_the_next_wave() -> None:
    """`kafka-reassign-partitions --verify` of another move removes the throttles of all brokers."""
    cluster, written, at_request = MovingCluster(t=BEFORE), Written(), list[tuple[set[int], int]]()

    def before_request(number: int) -> None:
        lists = sum(kind != BROKER for kind, _, _ in cluster.throttles())
        at_request.append((rates(cluster), lists))

    def meanwhile() -> None:
        if cluster.targets:
            cluster.finish()
            cluster.configs.clear()

    cluster.before_request = before_request
    executor = one_at_a_time(executor_of(cluster, written, meanwhile=meanwhile))
    (row,) = executor.apply([move("t", BEFORE, AFTER)])
    assert ended(row) == (Outcome.OK, None)
    assert at_request == [({1, 2}, 2), ({1, 2}, 2)]
    assert not written.rows
    assert not cluster.throttles()


@pytest.mark.parametrize(
    ("live", "before", "after"),
    [
        # A resumed start: partition 0 is moved already.
        ({0: (2,), 1: (1,)}, {0: (1,), 1: (1,)}, {0: (2,), 1: (3,)}),
        ({0: (1, 3)}, {0: (1, 3)}, {0: (1, 2)}),
    ],
    ids=["the receiver", "a source"],
)
def test_broker_that_was_down_is_throttled_once_it_is_back(
    live: Mapping[int, Replicas], before: Mapping[int, Replicas], after: Mapping[int, Replicas]
) -> None:
    cluster, written, looks = MovingCluster(t=live), Written(), [0]
    cluster.brokers = (1, 2)
    at_end: list[set[int]] = []

    def meanwhile() -> None:
        looks[0] += 1
        if looks[0] == 4:
            cluster.brokers = (1, 2, 3)
        if looks[0] == 8:
            at_end.append(rates(cluster))
            cluster.finish()

    executor = executor_of(cluster, written, meanwhile=meanwhile)
    (row,) = executor.apply([move("t", before, after, maybe_sent=True)])
    assert ended(row) == (Outcome.OK, None)
    (limited,) = at_end
    assert 3 in limited
    assert not cluster.throttles()


def test_no_move_begins_once_its_plan_has_expired() -> None:
    cluster, written = MovingCluster(t=BEFORE, other={0: (1,)}), Written()

    def meanwhile() -> None:
        if cluster.targets:
            executor.limits.moving = replace(executor.limits.moving, begin_until=datetime.now(UTC))
            cluster.finish()

    executor = one_at_a_time(executor_of(cluster, written, meanwhile=meanwhile))
    rows = {
        row.resource: row for row in executor.apply([move("t", BEFORE, AFTER), move("other", {0: (1,)}, {0: (2,)})])
    }
    assert len(cluster.requests) == 1
    assert ended(rows["t"]) == (Outcome.FAILED, Refusal.PLAN_EXPIRED)
    why = "1 of 2 partitions moved; the rest was not begun: guards.max_plan_age is over"
    assert rows["t"].error_message == why
    assert ended(rows["other"]) == (Outcome.REFUSED, Refusal.PLAN_EXPIRED)
    assert not written.rows


def test_a_cancel_counts_a_move_that_ended_before_brokers_show_it() -> None:
    """R4: the controller lists it no longer, and metadata still has old and new replicas."""
    cluster, written, waits = MovingCluster(t=BEFORE), Written(), [0]
    cluster.targets.update({("t", 1): (2,)})
    cluster.replicas["t", 0] = (2, 1)

    def meanwhile() -> None:
        waits[0] += 1
        if waits[0] == 3:
            cluster.replicas["t", 0] = (2,)

    executor = executor_of(cluster, written, meanwhile=meanwhile)
    (row,) = executor.cancel([move("t", BEFORE, AFTER, maybe_sent=True)])
    assert ended(row) == (Outcome.FAILED, Refusal.CANCELLED)
    assert row.error_message is not None
    assert row.error_message.startswith("cancelled; 1 of 2 partitions moved")


def test_a_cancel_leaves_a_move_whose_only_replicas_in_sync_are_new() -> None:
    """R3: Kafka would drop them, and with unclean elections a replica that lacks records would lead."""
    cluster, written = MovingCluster(t=BEFORE), Written()
    cluster.targets.update({("t", 0): (2,), ("t", 1): (2,)})
    cluster.in_sync["t", 0] = frozenset({2})
    executor = executor_of(cluster, written)
    with pytest.raises(StillMoved, match="partition 0 is in sync only on brokers that it is moved to"):
        list(executor.cancel([move("t", BEFORE, AFTER, maybe_sent=True)]))
    assert cluster.requests == [{("t", 1): None}]


def test_a_cancel_leaves_a_move_whose_replicas_in_sync_are_unknown() -> None:
    """R3: brokers answer about the topic with an error, and topics of older clusters have no ids to compare."""
    cluster, written = MovingCluster(t=BEFORE), Written()
    cluster.targets.update({("t", 0): (2,), ("t", 1): (2,)})
    executor = executor_of(cluster, written)
    unknown = TopicState(permitted=False, unknown="UNKNOWN_SERVER_ERROR")
    executor.topic_states = lambda topics: dict.fromkeys(topics, unknown)  # type: ignore[method-assign]
    with pytest.raises(StillMoved):
        list(executor.cancel([replace(move("t", BEFORE, AFTER, maybe_sent=True), topic_id=None)]))
    assert cluster.requests == []


def test_a_suspended_driver_removes_no_record_of_a_later_run() -> None:
    """Its throttles are gone when it is suspended; its lease expires, and another run sets and records new ones."""
    cluster, written = MovingCluster(t={0: (1,)}), Written()
    first, second = executor_of(cluster, written), executor_of(cluster, written)
    Throttling(first, written).begin(moves_of(move("t", {0: (1,)}, {0: (2,)})), 1_000)
    connect: Callable[[], None] = first.require_planned_cluster

    def suspended() -> None:
        if not cluster.configs:
            Throttling(second, written).begin(moves_of(move("t", {0: (1,)}, {0: (3,)})), 1_000)
        connect()

    first.require_planned_cluster = suspended  # type: ignore[method-assign]
    Throttling(first, written).end()
    assert {(each.resource_type, each.resource, each.config) for each in written.rows} == cluster.throttles()
    Throttling(second, written).end()
    assert not cluster.throttles()
    assert not written.rows
