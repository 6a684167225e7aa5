"""A move that comes no closer is waited for, with a warning; a cancel whose row got lost is a cancel."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence

import pytest

from tests.unit.moving_cluster import MovingCluster, Written, executor_of, move
from topicledger.kafka.reassignments import PartitionState, TopicState
from topicledger.kafka.sending import OutcomeUnknown
from topicledger.model import Outcome

ONE, TWO = {0: (1,)}, {0: (2,)}


def warnings_of_an_hour(cluster: MovingCluster, caplog: pytest.LogCaptureFixture, grows: int) -> Sequence[str]:
    """Return the warnings while t moves for an hour, and broker 2 gets `grows` bytes in each pause."""
    stop, written = threading.Event(), Written()

    def meanwhile() -> None:
        cluster.sizes = {("t", 0, 1): 10**9, ("t", 0, 2): cluster.sizes.get(("t", 0, 2), 0) + grows}
        if executor.clock() > 3_600:
            stop.set()

    executor = executor_of(cluster, written, stop=stop, meanwhile=meanwhile)
    with caplog.at_level(logging.WARNING), pytest.raises(OutcomeUnknown):
        list(executor.apply([move("t", ONE, TWO)]))
    return [each.getMessage() for each in caplog.records if "no move has come closer" in each.getMessage()]


def test_a_replica_that_never_joins_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """It says since when, which replica, and what ends the wait; nothing else does."""
    found = warnings_of_an_hour(MovingCluster(t=ONE), caplog, grows=0)
    assert 5 <= len(found) <= 6, "each 10 minutes"
    assert "cluster main: no move has come closer to its end since 20" in found[0]
    assert "(10 min): t-0 waits for broker 2; see the log of the brokers that get replicas" in found[0]
    assert "--cancel" in found[0]
    assert "(50 min)" in found[4]


def test_a_large_replica_that_is_copied_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_of_an_hour(MovingCluster(t=ONE), caplog, grows=1_000) == []


def test_a_replica_that_falls_behind_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """More is written than the throttle lets through: the copy grows, and lacks more and more."""

    class Busy(MovingCluster):
        def replica_sizes(self, topics: Mapping[str, object]) -> dict[tuple[str, int, int], int]:  # type: ignore[override]
            own = self.sizes.get(("t", 0, 2), 0)
            return {("t", 0, 1): 10**9 + 2 * own, ("t", 0, 2): own}

    assert warnings_of_an_hour(Busy(t=ONE), caplog, grows=1_000)


def test_a_partition_without_a_leader_is_warned_of_as_such(caplog: pytest.LogCaptureFixture) -> None:
    """The brokers that get replicas are fine: t's only source has died, and u keeps the run waiting."""
    stop, cluster = threading.Event(), MovingCluster(t=ONE, u={0: (3,)})

    def meanwhile() -> None:
        cluster.brokers = (2, 3)
        if executor.clock() > 1_000:
            stop.set()

    executor = executor_of(cluster, Written(), stop=stop, meanwhile=meanwhile)
    cluster.reassign({("t", 0): (2,)})
    with caplog.at_level(logging.WARNING), pytest.raises(OutcomeUnknown):
        list(executor.apply([move("t", ONE, TWO, maybe_sent=True), move("u", {0: (3,)}, TWO)]))
    said = [each.getMessage() for each in caplog.records]
    assert said.count("cluster main: partitions that the run moves have no leader to copy from: t-0") == 1
    (still,) = (each for each in said if "no move has come closer" in each)
    assert ": t-0 has no leader to copy from: start a broker with a replica in sync" in still
    assert "; u-0 waits for broker 2; see the log" in still


BEFORE, AFTER = {0: (1, 2)}, {0: (2, 3)}


def restored() -> MovingCluster:
    """A cluster on which an earlier start's move was cancelled: Kafka left the same brokers in another order (R3)."""
    return MovingCluster(t={0: (2, 1)})


def test_a_cancel_whose_row_got_lost_is_reported_as_cancelled() -> None:
    """The next start doesn't begin it again."""
    cluster = restored()
    (row,) = executor_of(cluster, Written()).apply([move("t", BEFORE, AFTER, maybe_sent=True)])
    assert (row.outcome, row.error) == (Outcome.FAILED, "CANCELLED")
    assert "an earlier start, or another client, cancelled it" in str(row.error_message)
    assert "partition 0 is on [2, 1], and was on [1, 2]: Kafka restores brokers, not their order" in str(
        row.error_message
    )
    assert cluster.requests == []


def test_a_second_cancel_writes_the_row_that_the_first_one_lost() -> None:
    cluster = restored()
    (row,) = executor_of(cluster, Written()).cancel([move("t", BEFORE, AFTER, maybe_sent=True)])
    assert (row.outcome, row.error) == (Outcome.FAILED, "CANCELLED")
    assert "partition 0 is on [2, 1], and was on [1, 2]" in str(row.error_message)
    assert cluster.requests == []


def test_another_order_of_a_topic_that_was_not_moved_is_a_foreign_change() -> None:
    (row,) = executor_of(restored(), Written()).apply([move("t", BEFORE, AFTER)])
    assert (row.outcome, row.error) == (Outcome.REFUSED, "CHANGED_SINCE_PLAN")


def test_a_partition_that_another_client_moved_is_no_cancel() -> None:
    state = PartitionState((3, 1), frozenset({3, 1}), 3)

    class Elsewhere(MovingCluster):
        def topic_states(self, topics: Sequence[str]) -> dict[str, TopicState]:
            return {"t": TopicState(topic_id="id of t", partitions={0: state})}

    (row,) = executor_of(Elsewhere(t=BEFORE), Written()).apply([move("t", BEFORE, AFTER, maybe_sent=True)])
    assert (row.outcome, row.error) == (Outcome.FAILED, "CHANGED_SINCE_PLAN")
