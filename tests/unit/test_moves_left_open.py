"""Moves end though a topic of theirs stays open, is deleted meanwhile, or is observed too late."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import pytest

from tests.unit.moving_cluster import MovingCluster, Written, executor_of, move
from topicledger.apply.executor import Executor
from topicledger.kafka.moving import Withdrawn
from topicledger.kafka.reassignments import Replicas
from topicledger.kafka.sending import StaysOpen
from topicledger.model import Outcome, PhaseResult, Refusal, TopicConfigs

Places = Mapping[int, Replicas]
BEFORE, AFTER, GONE = ({0: (broker,), 1: (broker,)} for broker in (1, 2, 3))
"""Places of a topic. Broker 3 is, or was, down in some tests."""
MOST_WAITS = 500


def bounded(step: Callable[[], None]) -> Callable[[], None]:
    """Fail once moves have waited too often; `step` is what happens during each wait."""
    waits = itertools.count(1)

    def meanwhile() -> None:
        assert next(waits) < MOST_WAITS, "moves wait for ever"
        step()

    return meanwhile


class Hiding(MovingCluster):
    """Doesn't show the configs of t, as a broker that lags behind."""

    def topic_configs(self, topics: Sequence[str], names: Mapping[str, Collection[str]]) -> list[TopicConfigs]:
        return [each for each in super().topic_configs(topics, names) if each.topic != "t"]


def one_by_one(executor: Executor) -> Executor:
    """Limit the moves to one partition of each broker at once."""
    settings = replace(executor.limits.moving.settings, max_partitions_per_broker=1)
    executor.limits.moving = replace(executor.limits.moving, settings=settings)
    return executor


def test_room_of_a_topic_left_open_is_free_when_its_moves_are_done() -> None:
    """An earlier start moved t; nothing else may move beside it, and its throttle can't be set now."""
    cluster = Hiding(t=BEFORE, u=BEFORE)
    cluster.reassign({("t", 0): (2,)})
    cluster.requests.clear()

    @bounded
    def meanwhile() -> None:
        cluster.finish()

    executor = one_by_one(executor_of(cluster, Written(), meanwhile=meanwhile))
    rows: list[PhaseResult] = []
    with pytest.raises(StaysOpen, match="main: t: no known outcome"):
        rows.extend(executor.apply([move("t", BEFORE, AFTER, maybe_sent=True), move("u", BEFORE, AFTER)]))
    assert [(row.resource, row.outcome) for row in rows] == [("u", Outcome.OK)]
    assert [sorted(each) for each in cluster.requests] == [[("u", 0)], [("u", 1)]]


def test_topic_that_is_deleted_while_it_moves_fails_in_the_next_start() -> None:
    cluster = MovingCluster(t=BEFORE, u=BEFORE)
    cluster.reassign({("t", 0): (2,)})
    cluster.targets.clear()
    del cluster.ids["t"]
    executor = executor_of(cluster, Written(), meanwhile=cluster.finish)
    rows = list(executor.apply([move("t", BEFORE, AFTER, maybe_sent=True), move("u", BEFORE, AFTER)]))
    by_topic = {row.resource: row for row in rows}
    assert (by_topic["t"].outcome, by_topic["t"].error) == (Outcome.FAILED, "CHANGED_SINCE_PLAN")
    assert "the topic was deleted while it was moved" in str(by_topic["t"].error_message)
    assert by_topic["u"].outcome is Outcome.OK


def test_withdrawn_topic_that_is_deleted_while_it_moves_fails_in_the_next_start() -> None:
    """Its plan has expired meanwhile: nothing more of it is begun, and a start still finds out that it is gone."""
    cluster = MovingCluster(t=BEFORE)
    cluster.reassign({("t", 0): (2,)})
    cluster.targets.clear()
    del cluster.ids["t"]
    why = Withdrawn(error=Refusal.PLAN_EXPIRED, message="planned a week ago")
    (row,) = executor_of(cluster, Written(), withdrawn={("reassign", "t"): why}).apply(
        [move("t", BEFORE, AFTER, maybe_sent=True)]
    )
    assert (row.outcome, row.error) == (Outcome.FAILED, "PLAN_EXPIRED")
    assert "0 of 2 partitions moved" in str(row.error_message)


def test_broker_that_stays_down_leaves_only_its_own_moves_open() -> None:
    cluster = MovingCluster(t=BEFORE, u=BEFORE)
    cluster.reassign({("t", 0): (3,)})
    cluster.brokers = (1, 2)
    rows: list[PhaseResult] = []

    def meanwhile() -> None:
        for key in [key for key, brokers in cluster.targets.items() if 3 not in brokers]:
            cluster.replicas[key] = cluster.targets.pop(key)

    executor = executor_of(cluster, Written(), meanwhile=meanwhile)
    with pytest.raises(StaysOpen, match=r"main: t: no known outcome \(brokers \[3\], which get replicas, are down"):
        rows.extend(executor.apply([move("t", BEFORE, GONE, maybe_sent=True), move("u", BEFORE, AFTER)]))
    assert [(row.resource, row.outcome) for row in rows] == [("u", Outcome.OK)]


def test_moves_to_a_broker_that_stays_down_take_no_room_and_are_not_begun() -> None:
    """Else moves elsewhere would wait for ever, also in the next start."""
    cluster = MovingCluster(t=BEFORE, u=BEFORE, v=BEFORE)
    cluster.reassign({("t", 0): (3,)})
    cluster.requests.clear()
    rows: list[PhaseResult] = []

    @bounded
    def meanwhile() -> None:
        cluster.brokers = (1, 2)
        for key in [key for key, brokers in cluster.targets.items() if 3 not in brokers]:
            cluster.replicas[key] = cluster.targets.pop(key)

    executor = one_by_one(executor_of(cluster, Written(), meanwhile=meanwhile))
    asked = [move("t", BEFORE, GONE, maybe_sent=True), move("v", BEFORE, GONE), move("u", BEFORE, AFTER)]
    with pytest.raises(StaysOpen, match=r"main: t: no known outcome \(brokers \[3\], which get replicas, are down"):
        rows.extend(executor.apply(asked))
    ends = {row.resource: (row.outcome, row.error) for row in rows}
    assert ends == {"u": (Outcome.OK, None), "v": (Outcome.REFUSED, "BROKERS_UNAVAILABLE")}
    assert "which get replicas, are down for more than 120 s" in str(rows[-1].error_message)
    assert [sorted(each) for each in cluster.requests] == [[("u", 0)], [("u", 1)]]


def test_moves_that_lose_their_only_source_take_no_room_and_are_not_begun() -> None:
    """Else moves elsewhere would wait for ever, and the run would hold its lease."""
    cluster = MovingCluster(t=BEFORE, v=BEFORE, u=GONE)
    cluster.reassign({("t", 0): (2,)})
    cluster.requests.clear()
    rows: list[PhaseResult] = []

    @bounded
    def meanwhile() -> None:
        cluster.brokers = (2, 3)
        cluster.finish()

    executor = one_by_one(executor_of(cluster, Written(), meanwhile=meanwhile))
    asked = [move("t", BEFORE, AFTER, maybe_sent=True), move("v", BEFORE, AFTER), move("u", GONE, AFTER)]
    open_now = r"main: t: no known outcome \(partition 0 has had no leader to copy from for more than 120 s: start a"
    with pytest.raises(StaysOpen, match=open_now):
        rows.extend(executor.apply(asked))
    ends = {row.resource: (row.outcome, row.error) for row in rows}
    assert ends == {"u": (Outcome.OK, None), "v": (Outcome.REFUSED, "BROKERS_UNAVAILABLE")}
    assert "partition 0 has had no leader to copy from for more than 120 s: start a" in str(rows[-1].error_message)
    assert [sorted(each) for each in cluster.requests] == [[("u", 0)], [("u", 1)]]


def test_move_without_a_source_is_refused_before_anything_of_it_is_sent() -> None:
    cluster = MovingCluster(t=BEFORE, u=GONE)
    cluster.brokers = (2, 3)
    executor = executor_of(cluster, Written(), meanwhile=cluster.finish)
    for step in (executor.validate, executor.apply):
        rows = {row.resource: row for row in step([move("t", BEFORE, AFTER), move("u", GONE, AFTER)])}
        assert (rows["t"].outcome, rows["t"].error) == (Outcome.REFUSED, "BROKERS_UNAVAILABLE")
        assert str(rows["t"].error_message).startswith("partition 0 has no leader to copy from: start a broker with a ")
        assert rows["u"].outcome is Outcome.OK
    assert [sorted(each) for each in cluster.requests] == [[("u", 0), ("u", 1)]]


def test_move_whose_source_is_gone_at_the_last_moment_is_sent_when_it_is_back() -> None:
    """It dies after the run looked, while throttles are set: a request is compared right before it is sent."""
    cluster, waits = MovingCluster(t=BEFORE), 0

    def lose() -> None:
        cluster.brokers = (2, 3)

    def meanwhile() -> None:
        nonlocal waits
        waits += 1
        if waits == 3:
            assert cluster.requests == []
            cluster.before_alter = lambda: None
            cluster.brokers = (1, 2, 3)
        cluster.finish()

    cluster.before_alter = lose
    (row,) = executor_of(cluster, Written(), meanwhile=meanwhile).apply([move("t", BEFORE, AFTER)])
    assert (row.outcome, row.error) == (Outcome.OK, None)
    assert [sorted(each) for each in cluster.requests] == [[("t", 0), ("t", 1)]]


@pytest.mark.parametrize(("before", "after"), [(BEFORE, GONE), (GONE, BEFORE)], ids=["to it", "from it"])
def test_moves_wait_for_a_broker_that_is_down_while_others_move(before: Places, after: Places) -> None:
    """It comes back after minutes, as after a restart that recovers its logs."""
    cluster, waits = MovingCluster(u=BEFORE, v=before), 0

    def meanwhile() -> None:
        nonlocal waits
        waits += 1
        assert waits < MOST_WAITS, "moves wait for ever"
        cluster.brokers = (1, 2) if waits < 60 else (1, 2, 3)
        if waits > 60:
            cluster.finish()

    executor = one_by_one(executor_of(cluster, Written(), meanwhile=meanwhile))
    rows = list(executor.apply([move("u", BEFORE, AFTER), move("v", before, after)]))
    assert [(row.resource, row.outcome) for row in rows] == [("u", Outcome.OK), ("v", Outcome.OK)]
    assert [sorted(each) for each in cluster.requests] == [[("u", 0)], [("u", 1)], [("v", 0)], [("v", 1)]]


def test_move_that_ends_between_two_late_observations_is_done() -> None:
    """R4: metadata lags behind the listing, and no one observed when the listing lost the move."""
    cluster, waits = MovingCluster(t={0: (1,)}), 0

    def meanwhile() -> None:
        nonlocal waits
        waits += 1
        if waits == 10:
            cluster.targets.clear()
            cluster.replicas["t", 0] = (2, 1)
            clock = executor.clock
            executor.clock = lambda: clock() + 10 * executor.retry_policy.visibility
        elif waits == 12:
            cluster.replicas["t", 0] = (2,)

    executor = executor_of(cluster, Written(), meanwhile=meanwhile)
    (row,) = executor.apply([move("t", {0: (1,)}, {0: (2,)})])
    assert (row.outcome, row.error) == (Outcome.OK, None)
