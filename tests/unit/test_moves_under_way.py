"""Moves that are under way when answers get lost, other hands interfere, or the run isn't wanted any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

import pytest

from tests.unit.moving_cluster import LOST, MovingCluster, Written, executor_of, move
from topicledger.kafka import Response
from topicledger.kafka.moving import Unanswered
from topicledger.kafka.sending import OutcomeUnknown
from topicledger.ledger.throttles import Leftover
from topicledger.model import Outcome, PhaseResult, Refusal, Target, TopicConfigs, TopicResult
from topicledger.model.moves import (
    BROKER,
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    TOPIC,
    Throttle,
    Withdrawn,
)
from topicledger.resources.topics.actions.cancelling import StillMoved
from topicledger.resources.topics.actions.min_insync import MIN_INSYNC, NEEDED_MIN_INSYNC
from topicledger.resources.topics.actions.moved import moves_of
from topicledger.resources.topics.actions.throttling import Throttling
from topicledger.resources.topics.actions.unthrottled import ThrottleRefused
from topicledger.resources.topics.apply.throttles import take_away

BEFORE, AFTER = {0: (1,), 1: (1,)}, {0: (2,), 1: (2,)}
LISTS = {(TOPIC, "t", LEADER_REPLICAS), (TOPIC, "t", FOLLOWER_REPLICAS)}
RATES = {(BROKER, broker, rate) for broker in ("1", "2") for rate in (LEADER_RATE, FOLLOWER_RATE)}


def ended(row: PhaseResult) -> tuple[Outcome, str | None, str | None]:
    return row.outcome, row.error, row.error_message


def started(cluster: MovingCluster, written: Written, *partitions: int) -> None:
    """An earlier start moved these partitions, and died."""
    moves = [each for each in moves_of(move("t", BEFORE, AFTER)) if each.partition in partitions]
    Throttling(executor_of(cluster, written), written).begin(moves, 1_000)
    cluster.reassign({("t", each.partition): each.after for each in moves})
    cluster.requests.clear()


@pytest.mark.parametrize("how", ["losses", "stop"])
def test_a_wave_without_an_answer_keeps_its_throttle(how: str) -> None:
    """The first wave is carried out and no answer comes: nothing that moves loses its throttle."""
    cluster, written, stop = MovingCluster(t=BEFORE), Written(), threading.Event()

    def lose(number: int) -> Exception:
        cluster.is_down = how == "losses"
        return LOST

    cluster.before_request = lose
    executor = executor_of(cluster, written, stop=stop, meanwhile=stop.set if how == "stop" else lambda: None)
    with pytest.raises(OutcomeUnknown):
        list(executor.apply([move("t", BEFORE, AFTER)]))
    assert len(cluster.requests) == 1
    cluster.is_down = False
    assert cluster.targets == {("t", part): (2,) for part in AFTER}
    assert cluster.throttles() == LISTS | RATES
    assert len(written.rows) == 6


def test_a_wave_that_moves_without_any_answer_is_waited_for() -> None:
    """The listing shows it, so that it isn't sent again."""
    cluster, written, waits = MovingCluster(t=BEFORE), Written(), 0
    cluster.before_request = lambda _: LOST

    def meanwhile() -> None:
        nonlocal waits
        waits += 1
        if waits == 5:
            cluster.finish()

    (row,) = executor_of(cluster, written, meanwhile=meanwhile).apply([move("t", BEFORE, AFTER)])
    assert row.outcome is Outcome.OK
    assert len(cluster.requests) == 1
    assert cluster.throttles() == set()


def test_a_move_of_hours_is_done_though_metadata_lags() -> None:
    """R4: the listing is empty before metadata shows that the old replica is gone."""
    cluster, waits = MovingCluster(t={0: (1,)}), 0

    def meanwhile() -> None:
        nonlocal waits
        waits += 1
        if waits == 100:
            cluster.targets.clear()
            cluster.replicas["t", 0] = (2, 1)
        elif waits == 101:
            cluster.replicas["t", 0] = (2,)

    (row,) = executor_of(cluster, Written(), meanwhile=meanwhile).apply([move("t", {0: (1,)}, {0: (2,)})])
    assert ended(row) == (Outcome.OK, None, None)


def test_a_topic_that_is_always_answered_minus_one_fails_alone() -> None:
    """C12, N1: the others of its wave are moved, and so are later waves."""
    cluster, written = MovingCluster(t=BEFORE, u=BEFORE), Written()
    cluster.silent = frozenset({"t"})
    executor = executor_of(cluster, written, meanwhile=cluster.finish)
    rows = {row.resource: ended(row) for row in executor.apply([move(name, BEFORE, AFTER) for name in ("t", "u")])}
    outcome, error, message = rows["t"]
    assert (outcome, error) == (Outcome.FAILED, "UNKNOWN_SERVER_ERROR")
    assert str(message).startswith("0 of 2 partitions moved; ")
    assert str(message).endswith(": the rest was not begun")
    assert rows["u"][0] is Outcome.OK
    assert cluster.throttles() == set()
    assert written.rows == []


def test_a_foreign_change_ends_nothing_that_moves() -> None:
    """Another hand changes one partition of a topic: the other one stays throttled, and is waited for."""
    cluster, written, waits = MovingCluster(t=BEFORE), Written(), list[int]()
    started(cluster, written, 0)
    cluster.replicas["t", 1] = (3,)

    def meanwhile() -> None:
        waits.append(len(cluster.throttles()))
        if len(waits) == 3:
            cluster.finish()

    executor, target = executor_of(cluster, written, meanwhile=meanwhile), move("t", BEFORE, AFTER, maybe_sent=True)
    assert list(executor.changed_since_plan([target])) == []
    (row,) = executor.apply([target])
    assert ended(row) == (
        Outcome.FAILED,
        "CHANGED_SINCE_PLAN",
        "1 of 2 partitions moved; partition 1 is on brokers [3], neither as planned nor as it was",
    )
    assert waits == [6, 6, 6]
    assert cluster.requests == []
    assert cluster.throttles() == set()
    assert written.rows == []


def test_a_second_hand_that_comes_before_a_repetition_keeps_its_target() -> None:
    """The request is lost; until it is repeated, another hand moves the partition."""
    cluster, written = MovingCluster(t=BEFORE), Written()

    def interfere(number: int) -> None:
        cluster.targets["t", 0] = (3,)
        raise LOST

    cluster.before_request = interfere
    (row,) = executor_of(cluster, written).apply([move("t", BEFORE, AFTER)])
    assert ended(row) == (
        Outcome.FAILED,
        "REASSIGNMENT_IN_PROGRESS",
        "0 of 2 partitions moved; partition 0 is being moved to [3] by another client",
    )
    assert cluster.targets == {("t", 0): (3,)}
    assert len(cluster.requests) == 1


def test_a_second_hand_that_comes_while_throttles_are_set_keeps_its_target() -> None:
    cluster, written = MovingCluster(t=BEFORE, u={0: (3,)}), Written()
    cluster.before_alter = lambda: cluster.targets.setdefault(("t", 0), (3,))  # type: ignore[assignment, return-value]

    def meanwhile() -> None:
        cluster.finish(*(key for key in cluster.targets if key[0] == "u"))

    executor = executor_of(cluster, written, meanwhile=meanwhile)
    rows = {
        row.resource: ended(row) for row in executor.apply([move("t", BEFORE, AFTER), move("u", {0: (3,)}, {0: (2,)})])
    }
    assert rows["t"] == (
        Outcome.REFUSED,
        "REASSIGNMENT_IN_PROGRESS",
        "partition 0 is being moved to [3] by another client: nothing of it was sent; plan again",
    )
    assert rows["u"][0] is Outcome.OK
    assert cluster.requests == [{("u", 0): (2,)}]
    assert cluster.targets == {("t", 0): (3,)}


def test_a_withdrawn_move_begins_no_further_wave() -> None:
    """One partition moves, one doesn't yet, when the plan gets too old: the row says what happened."""
    cluster, written = MovingCluster(t=BEFORE), Written()
    started(cluster, written, 0)
    why = Withdrawn(error=Refusal.PLAN_EXPIRED, message="the plan is too old; plan again")
    target = move("t", BEFORE, AFTER, maybe_sent=True)
    (row,) = executor_of(cluster, written, meanwhile=cluster.finish, withdrawn={("reassign", "t"): why}).apply([target])
    assert ended(row) == (
        Outcome.FAILED,
        "PLAN_EXPIRED",
        "1 of 2 partitions moved; the rest was not begun: the plan is too old; plan again",
    )
    assert cluster.requests == []
    assert cluster.replicas == {("t", 0): (2,), ("t", 1): (1,)}
    assert cluster.throttles() == set()
    moved = move("t", {0: (1,)}, {0: (2,)}, maybe_sent=True)
    (row,) = executor_of(cluster, written, withdrawn={("reassign", "t"): why}).apply([moved])
    assert row.outcome is Outcome.OK


def recreate(cluster: MovingCluster) -> None:
    cluster.ids["t"] = "another"


def hide(cluster: MovingCluster) -> None:
    del cluster.ids["t"]


def interfere(cluster: MovingCluster) -> None:
    cluster.targets["t", 1] = (3,)


@pytest.mark.parametrize("happens", [recreate, hide, interfere])
def test_recovery_says_what_it_can_not_show_as_never_begun(happens: Callable[[MovingCluster], None]) -> None:
    target = move("t", BEFORE, AFTER, maybe_sent=True)
    cluster = MovingCluster(t=BEFORE)
    executor = executor_of(cluster, Written())
    assert list(executor.recover([target])) == []
    happens(cluster)
    (row,) = executor.recover([target])
    assert row.outcome is Outcome.PENDING
    assert list(executor.changed_since_plan([target])) == []


def test_recovery_tells_done_from_under_way() -> None:
    cluster, target = MovingCluster(t=BEFORE), move("t", BEFORE, AFTER, maybe_sent=True)
    executor = executor_of(cluster, Written())
    cluster.reassign({("t", 0): (2,)})
    assert [row.outcome for row in executor.recover([target])] == [Outcome.PENDING]
    cluster.finish()
    assert [row.outcome for row in executor.recover([target])] == [Outcome.PENDING]
    cluster.reassign({("t", 1): (2,)})
    cluster.finish()
    assert [row.outcome for row in executor.recover([target])] == [Outcome.OK]


def test_another_run_takes_throttles_away_when_nothing_moves_any_more() -> None:
    cluster, written = MovingCluster(t=BEFORE, u={0: (3,)}), Written()
    started(cluster, written, 0, 1)
    another = Throttling(executor_of(cluster, written), written)
    assert another.end() == 6
    cluster.finish(("t", 0))
    assert another.end() == 6
    cluster.may_list = False
    assert another.end() == 6
    assert cluster.throttles() == LISTS | RATES
    cluster.may_list = True
    cluster.finish()
    cluster.reassign({("u", 0): (1,)})
    # The rates of a broker stay as long as anything moves to it or from it.
    assert another.end() == 2
    assert cluster.throttles() == {each for each in RATES if each[1] == "1"}
    cluster.finish()
    assert another.end() == 0
    assert cluster.throttles() == set()


def test_a_throttle_that_two_runs_add_to_is_taken_away_whole() -> None:
    """A later run adds a partition to the list, and changes the rate, that an earlier one left."""
    cluster, written = MovingCluster(t=BEFORE), Written()
    cluster.configs[TOPIC, "t", LEADER_REPLICAS] = "7:1"
    started(cluster, written, 0)
    later = Throttling(executor_of(cluster, written), written)
    later.begin(moves_of(move("t", {1: (1,)}, {1: (2,)})), 2_000)
    assert cluster.configs[TOPIC, "t", LEADER_REPLICAS] == "0:1,1:1,7:1"
    assert cluster.configs[TOPIC, "t", FOLLOWER_REPLICAS] == "0:2,1:2"
    assert {cluster.configs[each] for each in RATES} == {"2000"}
    assert later.end() == 6 < len(written.rows)
    cluster.finish()
    assert later.end() == 0
    assert cluster.configs == {(TOPIC, "t", LEADER_REPLICAS): "7:1"}
    assert written.rows == []


def test_throttles_are_not_forgotten_while_another_cluster_answers() -> None:
    """Answers count only after the cluster's id was compared."""
    cluster, written = MovingCluster(), Written()
    written.intend([Throttle(resource_type=TOPIC, resource="t", config=LEADER_REPLICAS, before=None, value="0:1")])
    executor = executor_of(cluster, written)
    executor.cluster_id = "kafka-other"
    with pytest.raises(Exception, match="planned for cluster id kafka-other"):
        Throttling(executor, written).end()
    assert written.rows


def test_a_cancel_that_kafka_refuses_is_no_cancel() -> None:
    cluster, written = MovingCluster(t=BEFORE, u=BEFORE), Written()
    started(cluster, written, 0, 1)
    cluster.before_request = lambda _: 31
    rows: list[PhaseResult] = []
    with pytest.raises(StillMoved, match=r"main: t: still moved, not cancelled \(CLUSTER_AUTHORIZATION_FAILED"):
        rows.extend(executor_of(cluster, written).cancel([move("t", BEFORE, AFTER, maybe_sent=True)]))
    assert rows == []
    assert set(cluster.targets) == {("t", 0), ("t", 1)}
    assert Throttling(executor_of(cluster, written), written).end() == 6
    cluster.before_request = lambda _: None
    (row,) = executor_of(cluster, written).cancel([move("t", BEFORE, AFTER, maybe_sent=True)])
    assert ended(row) == (Outcome.FAILED, "CANCELLED", "cancelled; 0 of 2 partitions moved")


def test_nothing_is_cancelled_while_a_lost_request_may_begin_its_move() -> None:
    """Its row would say that it's over, and the controller may still carry the request out."""
    cluster, written = MovingCluster(t=BEFORE), Written()
    started(cluster, written, 0)
    cluster.finish()
    executor = executor_of(cluster, written)
    executor.limits.moving.unanswered["t", 1] = Unanswered(after=(2,), at=executor.clock())
    with pytest.raises(StillMoved, match=r"t: still moved, not cancelled .*may still begin a move"):
        list(executor.cancel([move("t", BEFORE, AFTER, maybe_sent=True)]))
    executor.sleep(2 * executor.retry_policy.visibility)
    (row,) = executor.cancel([move("t", BEFORE, AFTER, maybe_sent=True)])
    assert ended(row) == (Outcome.FAILED, "CANCELLED", "cancelled; 1 of 2 partitions moved")


def test_a_move_of_a_killed_driver_that_begins_late_is_cancelled_too() -> None:
    """Else its row would say that it was cancelled, while the controller carries out the driver's last request."""
    cluster, written = MovingCluster(t=BEFORE), Written()
    started(cluster, written, 0)
    cluster.finish()

    def arrives() -> None:
        if executor.clock() >= late:
            cluster.targets.setdefault(("t", 1), (2,))

    executor = executor_of(cluster, written, meanwhile=arrives)
    late = executor.clock() + 40
    executor.limits.move_within(replace(executor.limits.moving, late_until=late))
    (row,) = executor.cancel([move("t", BEFORE, AFTER, maybe_sent=True)])
    assert ended(row) == (Outcome.FAILED, "CANCELLED", "cancelled; 1 of 2 partitions moved")
    assert cluster.requests[-1] == {("t", 1): None}
    assert executor.clock() >= late


@pytest.mark.parametrize("code", [-1, 3, 7])
def test_throttles_of_a_topic_whose_configs_are_not_shown_are_not_forgotten(code: int) -> None:
    """3: the broker asked lags behind, and others list the topic. -1 and 7 may be answered for good."""
    cluster, written = MovingCluster(t=BEFORE), Written()
    started(cluster, written, 0)
    cluster.finish()
    hidden = [TopicConfigs(topic="t", error_code=code, configs=None)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cluster, "topic_configs", lambda *_: hidden)
        with pytest.raises(ThrottleRefused) if code == 3 else nullcontext():
            assert Throttling(executor_of(cluster, written), written).end() == 2
    assert (TOPIC, "t", LEADER_REPLICAS) in cluster.configs
    assert {(each.resource_type, each.resource) for each in written.rows} == {(TOPIC, "t")}
    assert Throttling(executor_of(cluster, written), written).end() == 0
    assert cluster.throttles() == set()


def test_a_topic_that_was_recreated_is_not_cancelled() -> None:
    """Also where that happens between two requests: the topic's id is compared before each."""
    cluster, written = MovingCluster(t=BEFORE), Written()
    started(cluster, written, 0, 1)

    def recreated(number: int) -> None:
        cluster.ids["t"] = "another"
        raise LOST

    cluster.before_request = recreated
    (row,) = executor_of(cluster, written).cancel([move("t", BEFORE, AFTER, maybe_sent=True)])
    assert ended(row) == (
        Outcome.FAILED,
        "RECREATED",
        "recreated since the plan, with id another: nothing of the new topic was cancelled",
    )
    assert len(cluster.requests) == 1
    assert set(cluster.targets) == {("t", 0), ("t", 1)}


def test_a_move_with_a_new_target_is_not_cancelled_by_a_repetition() -> None:
    cluster, written = MovingCluster(t=BEFORE), Written()
    started(cluster, written, 0)

    def retargeted(number: int) -> None:
        cluster.targets["t", 0] = (3,)
        raise LOST

    cluster.before_request = retargeted
    (row,) = executor_of(cluster, written).cancel([move("t", BEFORE, AFTER, maybe_sent=True)])
    assert "partition 0 is still being moved to [3]" in str(row.error_message)
    assert cluster.targets == {("t", 0): (3,)}
    assert len(cluster.requests) == 1


@pytest.mark.parametrize("how", ["moves it", "has moved it"])
def test_a_repetition_leaves_out_what_is_done_or_under_way(how: str) -> None:
    """R2: another client moves a partition on that our first request moved; the second must not name it."""
    cluster, written, waits = MovingCluster(t=BEFORE), Written(), 0

    def interfere(number: int) -> None:
        if number == 1:
            cluster.replicas["t", 0] = (2,)
            raise LOST
        where = cluster.targets if how == "moves it" else cluster.replicas
        where["t", 0] = (3,)

    def meanwhile() -> None:
        nonlocal waits
        waits += 1
        if waits > 3:
            cluster.finish(*(key for key in cluster.targets if key == ("t", 1)))

    cluster.before_request = interfere
    (row,) = executor_of(cluster, written, meanwhile=meanwhile).apply([move("t", BEFORE, AFTER)])
    assert row.outcome is Outcome.OK
    assert [sorted(each) for each in cluster.requests] == [[("t", 0), ("t", 1)], [("t", 1)]]


def test_another_clients_later_move_is_kept() -> None:
    """Acknowledged, then moved on within the time that metadata may lag."""
    cluster = MovingCluster(t=BEFORE)

    def meanwhile() -> None:
        if cluster.targets.pop(("t", 0), None):
            cluster.replicas["t", 0] = (3,)
        cluster.finish()

    executor = executor_of(cluster, Written(), meanwhile=meanwhile)
    (row,) = executor.apply([move("t", BEFORE, AFTER)])
    assert ended(row) == (
        Outcome.FAILED,
        "CHANGED_SINCE_PLAN",
        "1 of 2 partitions moved; partition 0 is on brokers [3], neither as planned nor as it was",
    )
    assert executor.clock() < executor.retry_policy.visibility
    assert cluster.replicas["t", 0] == (3,)


def test_the_same_brokers_in_another_order_are_another_target() -> None:
    """The first replica is the preferred leader."""
    before, after = {0: (1, 2)}, {0: (2, 3)}
    cluster = MovingCluster(t=before)

    def lose(number: int) -> Exception:
        cluster.targets["t", 0] = (3, 2)
        raise LOST

    cluster.before_request = lose
    (row,) = executor_of(cluster, Written()).apply([move("t", before, after)])
    assert (row.error, cluster.targets) == ("REASSIGNMENT_IN_PROGRESS", {("t", 0): (3, 2)})
    assert list(executor_of(cluster, Written()).cancel([move("t", before, after, maybe_sent=True)])) == []
    assert cluster.targets == {("t", 0): (3, 2)}
    cluster.finish()
    (row,) = executor_of(cluster, Written()).apply([move("t", before, after, maybe_sent=True)])
    assert (row.error, cluster.replicas) == ("CHANGED_SINCE_PLAN", {("t", 0): (3, 2)})


def test_a_topic_without_an_outcome_does_not_lose_the_rows_of_a_cancel() -> None:
    """The others are cancelled; without a row the next start would move them again."""
    cluster = MovingCluster(t=BEFORE, u=BEFORE)
    cluster.reassign({(name, part): (2,) for name in ("t", "u") for part in BEFORE})
    cluster.silent = frozenset({"u"})
    rows: list[PhaseResult] = []
    with pytest.raises(StillMoved, match=r"main: u: still moved, not cancelled \(UNKNOWN_SERVER_ERROR"):
        rows.extend(
            executor_of(cluster, Written()).cancel([move(name, BEFORE, AFTER, maybe_sent=True) for name in ("t", "u")])
        )
    assert [row.resource for row in rows] == ["t"]


class Restricted(MovingCluster):
    """Keeps the configs of topics from this principal, and answers -1 to changes of others."""

    denied: frozenset[str] = frozenset()
    stuck: frozenset[str] = frozenset()

    def topic_configs(self, topics: Sequence[str], names: Mapping[str, Collection[str]]) -> list[TopicConfigs]:
        found = super().topic_configs([topic for topic in topics if topic not in self.denied], names)
        return [*found, *(TopicConfigs(topic=each, error_code=29) for each in topics if each in self.denied)]

    def alter_configs(self, targets: Sequence[Target], *, validate_only: bool) -> Response:
        rest = [target for target in targets if target.topic not in self.stuck]
        response = super().alter_configs(rest, validate_only=validate_only)
        silent = {target.topic: TopicResult(error_code=-1) for target in targets if target.topic in self.stuck}
        return Response(results={**response.results, **silent}, throttle_time_ms=0)


@pytest.mark.parametrize("rate", [0, 1_000])
def test_throttles_that_another_run_left_do_not_end_this_one(rate: int) -> None:
    """This principal may not describe the other run's topic: that one's list stays, and ours go."""
    cluster, written = Restricted(a=BEFORE, t=BEFORE), Written()
    Throttling(executor_of(cluster, written), written).begin(moves_of(move("a", BEFORE, AFTER)), 1_000)
    cluster.denied = frozenset({"a"})
    (row,) = executor_of(cluster, written, rate, meanwhile=cluster.finish).apply([move("t", BEFORE, AFTER)])
    assert row.outcome is Outcome.OK
    assert {resource for _, resource, _ in cluster.throttles()} == {"a"}
    assert {each.resource for each in written.rows} == {"a"}


def test_a_topic_whose_throttle_is_always_answered_minus_one_fails_alone() -> None:
    cluster, written = Restricted(t=BEFORE, u=BEFORE), Written()
    cluster.stuck = frozenset({"t"})
    executor = executor_of(cluster, written, meanwhile=cluster.finish)
    rows = {row.resource: ended(row) for row in executor.apply([move(name, BEFORE, AFTER) for name in ("t", "u")])}
    assert rows["t"][0] is Outcome.FAILED
    assert "of topic t can't be altered: UNKNOWN_SERVER_ERROR" in str(rows["t"][2])
    assert rows["u"][0] is Outcome.OK
    assert {key for each in cluster.requests for key in each} == {("u", 0), ("u", 1)}
    assert cluster.throttles() == set()
    assert written.rows == []


def test_a_throttle_of_which_only_errors_are_answered_keeps_no_run_open(caplog: pytest.LogCaptureFixture) -> None:
    """t is moved, and from then on brokers answer -1 to each change of it: its list stays recorded for a later run."""
    cluster, written = Restricted(t=BEFORE), Written()

    def meanwhile() -> None:
        cluster.finish()
        cluster.stuck = frozenset({"t"})

    executor = executor_of(cluster, written, meanwhile=meanwhile)
    (row,) = executor.apply([move("t", BEFORE, AFTER)])
    assert row.outcome is Outcome.OK
    left = {"kafka-main": Leftover(names=frozenset({"main"}), run_ids=frozenset({"mine"}))}
    take_away("mine", left, executor)
    assert {each.resource for each in written.rows} == {resource for _, resource, _ in cluster.throttles()} == {"t"}
    assert "throttles of cluster main stay for now" in caplog.text
    assert "of topic t can't be altered: UNKNOWN_SERVER_ERROR" in caplog.text
    cluster.stuck = frozenset()
    take_away("another", left, executor_of(cluster, written))
    assert (cluster.throttles(), written.rows) == (set(), [])


def test_recovery_waits_for_a_broker_that_lags() -> None:
    """All is moved and unlisted, and the broker asked still shows it where it was."""
    cluster, shown, waits = MovingCluster(t=BEFORE), MovingCluster(t=BEFORE), 0
    cluster.topic_states = shown.topic_states  # type: ignore[method-assign]

    def meanwhile() -> None:
        nonlocal waits
        waits += 1
        if waits == 3:
            shown.replicas = {("t", part): (2,) for part in AFTER}

    (row,) = executor_of(cluster, Written(), meanwhile=meanwhile).recover([move("t", BEFORE, AFTER, maybe_sent=True)])
    assert row.outcome is Outcome.OK


@pytest.mark.parametrize(
    ("live", "error"),
    [("1", None), ("2", "BELOW_MIN_INSYNC"), (None, "NOT_PERMITTED")],
)
def test_min_insync_raised_since_the_plan_stops_fewer_replicas(live: str | None, error: str | None) -> None:
    before, after = {0: (1, 2), 1: (2, 3)}, {0: (1,), 1: (3,)}
    cluster, written = MovingCluster(t=before, other={0: (1,)}), Written()
    if live is not None:
        cluster.configs[TOPIC, "t", MIN_INSYNC] = live
    executor = executor_of(cluster, written, meanwhile=cluster.finish)
    rows = list(executor.apply([move("t", before, after), move("other", {0: (1,)}, {0: (2,)})]))
    assert {row.resource: row.error for row in rows} == {"t": error, "other": None}
    assert (("t", 0) in {key for asked in cluster.requests for key in asked}) == (error is None)


@pytest.mark.parametrize("when", ["throttles are set", "a request gets lost", "others move"])
def test_min_insync_raised_by_another_client_stops_what_was_not_sent(when: str) -> None:
    """It is compared right before each request, as replicas are: moves may take days."""
    before, after = {0: (1, 2), 1: (1,)}, {0: (3,), 1: (3,)}
    cluster = MovingCluster(t=before)
    cluster.configs[TOPIC, "t", MIN_INSYNC] = "1"
    sends = executor_of(cluster, Written(), meanwhile=cluster.finish)

    def raised() -> None:
        cluster.configs[TOPIC, "t", MIN_INSYNC] = "2"

    def request(number: int) -> None:
        raised()
        if when == "a request gets lost" and number == 1:
            raise LOST

    if when == "throttles are set":
        cluster.before_alter = raised
    else:
        cluster.before_request = request
    one_by_one = replace(sends.limits.moving.settings, max_partitions_per_broker=1)
    sends.limits.moving = replace(sends.limits.moving, settings=one_by_one)
    (row,) = sends.apply([move("t", before, after)])
    assert row.error == "BELOW_MIN_INSYNC"
    assert row.outcome is (Outcome.REFUSED if when == "throttles are set" else Outcome.FAILED)
    assert "replication factor 1 is below the topic's min.insync.replicas, which is 2 now" in str(row.error_message)
    assert [set(each) for each in cluster.requests] == ([] if when == "throttles are set" else [{("t", 0)}])
    assert set(cluster.throttles()) == {(TOPIC, "t", MIN_INSYNC)}


def test_min_insync_lowered_by_the_same_run_is_waited_for() -> None:
    """Brokers show it late (K6)."""
    before, after = {0: (1, 2)}, {0: (1,)}
    cluster, written = MovingCluster(t=before), Written()
    cluster.configs[TOPIC, "t", MIN_INSYNC] = "2"

    def later() -> None:
        cluster.configs[TOPIC, "t", MIN_INSYNC] = "1"
        cluster.finish()

    (row,) = executor_of(cluster, written, meanwhile=later).apply([move("t", before, after)])
    assert ended(row) == (Outcome.OK, None, None)


@pytest.mark.parametrize(
    ("live", "sent"), [("1", True), ("2", False), (None, False)], ids=["altered", "not altered", "unknown"]
)
def test_move_waits_for_the_min_insync_that_its_policies_needed(live: str | None, sent: bool) -> None:
    """Its own alter_configs may have failed. Two replicas are enough for a min.insync.replicas of 2, and not spare."""
    before, after = {0: (1, 2, 3)}, {0: (1, 2)}
    cluster = MovingCluster(t=before, u=before)
    for topic, value in (("t", live), ("u", "2")):
        if value is not None:
            cluster.configs[TOPIC, topic, MIN_INSYNC] = value
    relying = move("t", before, after)
    relying = replace(relying, after={**relying.after, NEEDED_MIN_INSYNC: "1"})
    executor = executor_of(cluster, Written(), meanwhile=cluster.finish)
    rows = {row.resource: row for row in executor.apply([relying, move("u", before, after)])}
    assert rows["u"].outcome is Outcome.OK, "nothing was altered for it"
    assert (("t", 0) in {key for asked in cluster.requests for key in asked}) == sent
    assert rows["t"].outcome is (Outcome.OK if sent else Outcome.REFUSED)
    if live == "2":
        assert rows["t"].error == "CHANGED_SINCE_PLAN"
        assert str(rows["t"].error_message).startswith("policies allow this move only with min.insync.replicas 1, ")


@pytest.mark.parametrize("replicas", [(2,), (2, 3)], ids=["as many", "more"])
def test_move_to_as_many_replicas_may_need_a_lower_min_insync_too(replicas: tuple[int, ...]) -> None:
    cluster = MovingCluster(t={0: (1,)})
    cluster.configs[TOPIC, "t", MIN_INSYNC] = "2"
    relying = move("t", {0: (1,)}, {0: replicas})
    relying = replace(relying, after={**relying.after, NEEDED_MIN_INSYNC: "1"})
    (row,) = executor_of(cluster, Written(), meanwhile=cluster.finish).apply([relying])
    assert (row.outcome, row.error, cluster.requests) == (Outcome.REFUSED, "CHANGED_SINCE_PLAN", [])


@pytest.mark.parametrize("how", ["under way", "done in part", "back where it was"])
def test_move_that_may_have_been_sent_is_never_refused(how: str) -> None:
    cluster, written = MovingCluster(t=BEFORE), Written()
    cluster.configs[TOPIC, "t", MIN_INSYNC] = "2"
    if how != "back where it was":
        started(cluster, written, *((0, 1) if how == "under way" else (0,)))
    if how == "done in part":
        cluster.finish()
    relying = move("t", BEFORE, AFTER, maybe_sent=True)
    relying = replace(relying, after={**relying.after, NEEDED_MIN_INSYNC: "1"})
    (row,) = executor_of(cluster, written, meanwhile=cluster.finish).apply([relying])
    assert cluster.requests == []
    assert row.outcome is (Outcome.OK if how == "under way" else Outcome.FAILED)
    if how == "done in part":
        assert str(row.error_message).startswith("1 of 2 partitions moved; ")
