"""Throttles outlive the moves that they protect, and a broker that refuses one stops only its own moves."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.moving_cluster import ATTEMPTS, LOST, MovingCluster, Written, executor_of, move
from topicledger.config.settings import ClusterSettings, Settings, TablesSettings
from topicledger.errors import ClusterError
from topicledger.kafka.sending import OutcomeUnknown, StaysOpen
from topicledger.ledger.throttles import Leftover
from topicledger.model import Outcome, PhaseResult, TopicResult
from topicledger.model.moves import BROKER, LEADER_REPLICAS, TOPIC
from topicledger.resources.topics.actions.moved import moves_of
from topicledger.resources.topics.actions.throttling import Throttling
from topicledger.resources.topics.apply.throttles import left_on

BEFORE, AFTER = {0: (1,)}, {0: (2,)}
LATE = 40.0
"""Seconds until a lost request is carried out all the same."""


class Late(MovingCluster):
    """Loses each request that names `late`; the first of them is carried out when `land` is called."""

    late = "t"

    def __init__(self) -> None:
        super().__init__(t=BEFORE, u=BEFORE)
        self.landed_at: float | None = None
        self.before_request = self._lose
        self.unthrottled: list[float] = []

    def _lose(self, number: int) -> Exception | int | None:
        if any(topic == self.late for topic, _ in self.requests[-1]):
            raise LOST
        return None

    def pass_time(self, now: float) -> None:
        """Carry out the lost request at `LATE`, and finish its move 300 s later; note moments without its throttle."""
        if self.landed_at is None and now >= LATE:
            self.landed_at = now
            self.targets[self.late, 0] = AFTER[0]
        elif self.landed_at is not None and now > self.landed_at + 300:
            self.finish()
        moves = self.landed_at is not None and (self.late, 0) in self.targets
        if moves and (TOPIC, self.late, LEADER_REPLICAS) not in self.configs:
            self.unthrottled.append(now)


def test_a_lost_request_that_lands_late_finds_its_throttle() -> None:
    """No answer about t comes, and u is moved: t counts as under way for as long as its request may be carried out."""
    cluster, written = Late(), Written()

    def meanwhile() -> None:
        if ("u", 0) in cluster.targets:
            cluster.finish(("u", 0))
        cluster.pass_time(executor.clock())

    executor = executor_of(cluster, written, meanwhile=meanwhile)
    rows = {row.resource: row for row in executor.apply([move(name, BEFORE, AFTER) for name in ("t", "u")])}
    assert cluster.unthrottled == []
    assert {name: row.outcome for name, row in rows.items()} == {"t": Outcome.OK, "u": Outcome.OK}
    assert (cluster.throttles(), written.rows) == (set(), [])


def test_a_refused_repetition_does_not_settle_a_lost_request() -> None:
    """The first request gets lost and is carried out late, the second one is refused with 31."""
    cluster, written = Late(), Written()

    def fate(number: int) -> int:
        if number == 1:
            raise LOST
        return 31

    cluster.before_request = fate

    executor = executor_of(cluster, written, meanwhile=lambda: cluster.pass_time(executor.clock()))
    (row,) = executor.apply([move("t", BEFORE, AFTER)])
    assert (row.outcome, cluster.landed_at is not None, cluster.unthrottled) == (Outcome.OK, True, [])
    assert (cluster.throttles(), written.rows) == (set(), [])


def test_a_throttle_stays_while_a_lost_request_may_be_carried_out() -> None:
    """The run is stopped: whatever it does next on the cluster, cancelling included, takes no throttle away yet."""
    cluster, written, stop = Late(), Written(), threading.Event()
    executor = executor_of(cluster, written, stop=stop, meanwhile=stop.set)
    with pytest.raises(OutcomeUnknown, match="asked to stop"):
        list(executor.apply([move("t", BEFORE, AFTER)]))
    stop.clear()
    later = executor_of(cluster, written)
    later.limits = executor.limits
    assert Throttling(later, written).end() == 6
    assert len(cluster.throttles()) == 6
    later.wait(later.retry_policy.visibility + 1)
    assert Throttling(later, written).end() == 0


def test_a_throttle_stays_while_a_request_of_a_killed_driver_may_be_carried_out() -> None:
    """Nobody knows what the driver sent: its throttles are looked at again when nothing can arrive any more."""
    cluster, written = Late(), Written()
    moves = moves_of(move("t", BEFORE, AFTER))
    executor = executor_of(cluster, written, meanwhile=lambda: cluster.pass_time(executor.clock()))
    Throttling(executor, written).begin(moves, 1_000)
    assert len(cluster.throttles()) == 6
    executor.limits.move_within(replace(executor.limits.moving, late_until=LATE))
    assert Throttling(executor, written).end() == 6
    assert (cluster.landed_at, cluster.unthrottled) == (LATE, [])
    cluster.finish()
    assert Throttling(executor, written).end() == 0
    assert (cluster.throttles(), executor.clock()) == (set(), LATE)


def test_the_lease_is_checked_before_the_request_to_each_broker() -> None:
    """The driver was suspended after the first of them: another run may hold the lease by now."""
    cluster, written = MovingCluster(t=BEFORE), Written()
    asked: list[int] = []

    def may_send() -> None:
        asked.append(len(cluster.throttles()))
        if asked[-1]:
            raise ClusterError("another run holds the lease")

    throttling = Throttling(executor_of(cluster, written, may_send=may_send), written)
    with pytest.raises(ClusterError, match="another run holds the lease"):
        throttling.begin(moves_of(move("t", BEFORE, AFTER)), 7)
    assert asked == [0, 2]
    assert {name for _, name, _ in cluster.throttles()} == {"1"}


class Refusing(MovingCluster):
    """A broker that refuses changes of its configs, or to show them, or that answers nothing about them."""

    broker = "3"
    how = ""

    def alter_broker_configs(self, broker: int, configs: Mapping[str, str | None]) -> TopicResult:
        if str(broker) == self.broker and self.how == "refuses":
            return TopicResult(error_code=42, error_message="said the broker")
        if str(broker) == self.broker and self.how == "is silent":
            raise LOST
        return super().alter_broker_configs(broker, configs)

    def broker_configs(self, broker: int, names: Collection[str]) -> dict[str, str]:
        if str(broker) == self.broker and self.how == "hides":
            raise ClusterError("cluster main: configs of broker 3 can't be read")
        if str(broker) == self.broker and self.how == "shows nothing":
            raise LOST
        return super().broker_configs(broker, names)


@pytest.mark.parametrize("how", ["refuses", "hides", "is silent", "shows nothing"])
def test_a_broker_without_a_throttle_stops_only_its_own_moves(how: str) -> None:
    cluster, written = Refusing(t=BEFORE, u=BEFORE), Written()
    cluster.how = how
    executor = executor_of(cluster, written, meanwhile=cluster.finish)
    rows: dict[str, PhaseResult] = {}
    open_topics: list[str] = []
    try:
        for row in executor.apply([move("t", BEFORE, {0: (3,)}), move("u", BEFORE, AFTER)]):
            rows[row.resource] = row
    except StaysOpen as error:
        open_topics = [topic for topic, _ in error.actions]
    assert rows["u"].outcome is Outcome.OK
    assert {key for each in cluster.requests for key in each} == {("u", 0)}
    if how in ("is silent", "shows nothing"):
        assert open_topics == ["t"]
    else:
        assert rows["t"].outcome is Outcome.FAILED
        assert "broker 3" in str(rows["t"].error_message)
    assert {key for key in cluster.throttles() if key[1] != "3"} == set()


def test_a_silent_cluster_is_not_one_silent_broker() -> None:
    """Each broker would be asked in vain for minutes."""
    cluster, written, asked = Refusing(t=BEFORE), Written(), list[int]()

    def nothing(broker: int, names: Collection[str]) -> dict[str, str]:
        asked.append(broker)
        cluster.describe_cluster = silent  # type: ignore[method-assign]
        raise LOST

    def silent() -> None:
        raise LOST

    cluster.broker_configs = nothing  # type: ignore[method-assign, assignment]
    with pytest.raises(OutcomeUnknown):
        list(executor_of(cluster, written).apply([move("t", BEFORE, AFTER)]))
    assert len(asked) == ATTEMPTS
    assert cluster.requests == []


@pytest.mark.parametrize("how", ["refuses", "hides", "is silent", "shows nothing"])
def test_a_throttle_that_a_broker_keeps_does_not_end_the_step(how: str) -> None:
    """It is moved, and the next batch continues; the throttle stays recorded, and known to be this start's."""
    cluster, written = Refusing(t=BEFORE, u=BEFORE), Written()
    cluster.broker = "2"

    def meanwhile() -> None:
        cluster.finish()
        cluster.how = how

    executor = executor_of(cluster, written, meanwhile=meanwhile)
    (row,) = executor.apply([move("t", BEFORE, AFTER)])
    assert row.outcome is Outcome.OK
    assert {(each.resource_type, each.resource) for each in written.rows} == {(BROKER, "2")}
    assert {key[1] for key in executor.limits.moving.throttled} == {"2"}
    cluster.how = ""
    assert Throttling(executor, written).end() == 0
    assert executor.limits.moving.throttled == set()


def test_without_a_limit_only_what_still_moves_keeps_its_throttle() -> None:
    """replicas.throttle = 0 on a resumed run: what an earlier start left, and nothing needs, goes before a request."""
    cluster, written = MovingCluster(t=BEFORE, u={0: (3,)}), Written()
    throttling = Throttling(executor_of(cluster, written), written)
    throttling.begin(moves_of(move("t", BEFORE, AFTER)), 1_000)
    throttling.begin(moves_of(move("u", {0: (3,)}, {0: (1,)})), 1_000)
    cluster.reassign({("u", 0): (1,)})
    cluster.requests.clear()
    seen: list[set[str]] = []

    def before(number: int) -> None:
        seen.append({resource for _, resource, _ in cluster.throttles()})

    cluster.before_request = before
    (row,) = executor_of(cluster, written, 0, meanwhile=cluster.finish).apply([move("t", BEFORE, AFTER)])
    assert row.outcome is Outcome.OK
    assert seen == [{"u", "1", "3"}]
    assert cluster.throttles() == set()


def test_throttles_belong_to_a_cluster_whatever_its_name_is() -> None:
    """`old` was renamed to `new`, and another cluster is `old` now; the id behind `first` isn't known yet."""
    ids = {"new": "id-1", "old": "id-2", "first": None}
    settings = Settings(
        path=Path("x.toml"),
        tables=TablesSettings(root="memory"),
        clusters={
            name: ClusterSettings(name=name, bootstrap_servers=("h:1",), cluster_id=cluster_id)
            for name, cluster_id in ids.items()
        },
    )
    by_one = Leftover(names=frozenset({"old"}), run_ids=frozenset({"one"}))
    by_two = Leftover(names=frozenset({"first"}), run_ids=frozenset({"two"}))
    ledger: Any = SimpleNamespace(exists=lambda _: False)
    left = {"id-1": by_one, "id-3": by_two, "id-4": Leftover(names=frozenset({"new"}), run_ids=frozenset({"one"}))}
    assert left_on(ledger, settings, ids, left) == {"new": ("id-1", by_one), "first": ("id-3", by_two)}
    assert left_on(ledger, settings, ["old"], left) == {}
