"""Topics about which brokers answer only errors: unknown is neither gone nor there, and the others continue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, create_autospec

import pytest

from tests.harness import cluster_settings
from tests.unit.answering import Coordinator, connection, live, log_dirs, topic
from tests.unit.executing import ATTEMPTS, executor_for
from tests.unit.moving_cluster import MovingCluster, Written, executor_of, move
from topicledger.actions.asking import MovesUnlisted
from topicledger.apply.executor import Executor
from topicledger.config.settings import KafkaSettings
from topicledger.errors import ClusterError
from topicledger.kafka import ClusterAdmin, RequestLost, Response, groups, topics, unseen
from topicledger.kafka.connection import ErrorAnswered
from topicledger.kafka.reassignments import Partition, PartitionState, Replicas, TopicState, topic_states
from topicledger.kafka.sending import StaysOpen
from topicledger.model import Action, ConfigEntry, Outcome, ReplicaAction, Target, TopicConfigs, TopicInfo, TopicResult
from topicledger.observe import cluster_queries
from topicledger.observe import topics as observing
from topicledger.observe.cluster_queries import ClusterAccess

UNKNOWN = "UNKNOWN_SERVER_ERROR"
BEFORE, AFTER = {0: (1,), 1: (1,)}, {0: (2,), 1: (2,)}


@pytest.mark.parametrize("code", [-1, 5, 7, 56])
def test_a_topic_with_an_error_is_neither_gone_nor_there(code: int) -> None:
    """Metadata of three topics, one with an error: the other two are described."""
    answer = [topic("there"), topic("bad", error_code=code), topic("gone", error_code=3)]
    for each in answer:
        each.is_internal = False
    found = {info.topic: (info.permitted, info.unknown is not None) for info in topics.infos(answer)}
    assert found == {"there": (True, False), "bad": (False, True)}
    states = topic_states(connection(lambda *_: None, lambda _: live(*answer)), ["there", "bad", "gone"])
    assert {name: (state.permitted, state.unknown is not None) for name, state in states.items()} == found


def test_a_topic_is_internal_by_its_flag_or_by_its_name() -> None:
    """I1: brokers don't mark `__remote_log_metadata`, nor topics of newer Kafkas that a client created before."""
    answer = [topic("marked"), topic("__share_group_state"), topic("__remote_log_metadata"), topic("__own")]
    for each in answer:
        each.is_internal = each.name == "marked"
    internal = [info.topic for info in topics.infos(answer) if info.internal]
    assert internal == ["marked", "__share_group_state", "__remote_log_metadata"]


def observed(answers: Sequence[Sequence[TopicInfo]], monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the rows of a cluster that lists the first answer, and is then asked again about unknown topics."""
    admin = MagicMock()
    admin.__enter__.return_value = admin
    admin.describe_cluster.return_value = SimpleNamespace(cluster_id="k", brokers=(), gives_topic_ids=True)
    admin.list_topics.return_value, admin.describe_topics.side_effect = answers[0], answers[1:]
    monkeypatch.setattr(observing, "ClusterAdmin", lambda *_: admin)
    monkeypatch.setattr(cluster_queries.time, "sleep", lambda _: None)
    access = ClusterAccess(cluster=cluster_settings("main", "h:1"), kafka=KafkaSettings())
    return [row for batch in observing.observe_cluster(access) for row in batch.to_pylist()]


def test_one_topic_with_an_error_leaves_its_cluster_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = TopicInfo(topic="bad", permitted=False, unknown=UNKNOWN)
    rows = observed([[TopicInfo(topic="a", topic_id="id"), bad], [bad], [bad], [bad]], monkeypatch)
    assert [(row["topic"], row["permitted"], row["unknown"], row["error"]) for row in rows] == [
        ("a", True, None, None),
        ("bad", False, UNKNOWN, None),
        (None, None, None, None),
    ]


def test_a_topic_with_an_error_that_passes_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = TopicInfo(topic="bad", permitted=False, unknown=UNKNOWN)
    rows = observed([[bad], [bad], [TopicInfo(topic="bad", topic_id="id")]], monkeypatch)
    assert [(row["topic"], row["permitted"], row["unknown"]) for row in rows] == [
        ("bad", True, None),
        (None, None, None),
    ]


def test_a_topic_with_an_error_may_be_a_hidden_one() -> None:
    """A drain would lose it with its broker, and a budget can't count it."""
    made = connection(lambda *_: log_dirs("bad"), lambda names: live(*(topic(each, error_code=-1) for each in names)))
    with pytest.raises(ClusterError, match=f"brokers answer {UNKNOWN} about topic bad, which may or may not exist"):
        unseen.unseen_topics(made)


def test_groups_are_unknown_if_brokers_do_not_describe_their_topic() -> None:
    coordinator = Coordinator()
    coordinator.leaders = iter([topic("__consumer_offsets", error_code=-1)] * 100)
    with pytest.raises(RequestLost, match=f"brokers answer {UNKNOWN} about topic __consumer_offsets"):
        groups.consumer_groups(coordinator.connection, ["orders"])


STATE = TopicState(topic_id="id", partitions={0: PartitionState((1,), frozenset({1}), 1)})
INFO = {"topic_id": "id", "assignments": {0: (1,)}}
CHANGES: Mapping[str, Target] = {
    each.action: each
    for each in (
        Target(resource="", action=Action.DELETE, topic_id="id"),
        Target(
            resource="",
            action=Action.ADD_PARTITIONS,
            topic_id="id",
            before={"num_partitions": "1"},
            after={"num_partitions": "2"},
        ),
        Target(
            resource="",
            action=Action.ALTER_CONFIGS,
            topic_id="id",
            before={"retention.ms": "1"},
            after={"retention.ms": "2"},
        ),
        Target(
            resource="",
            action=ReplicaAction.REASSIGN,
            topic_id="id",
            before={"assignments": "0:1"},
            after={"assignments": "0:2", "bytes": "1"},
        ),
        Target(resource="", action=ReplicaAction.ELECT_LEADERS, topic_id="id", after={"partitions": "0"}),
    )
}


def of_topics(action: str, *names: str, **fields: Any) -> list[Target]:
    return [replace(CHANGES[action], resource=name, **fields) for name in names]


@pytest.fixture
def admin() -> MagicMock:
    """A cluster with topics of one partition, which answers -1 about those named bad."""
    stand_in: MagicMock = create_autospec(ClusterAdmin, instance=True)
    stand_in.connect_to_controller.return_value = "kafka-main"
    stand_in.describe_cluster.return_value = MovingCluster().describe_cluster()
    stand_in.topics_reassigned_now.return_value = frozenset()
    stand_in.list_reassignments.return_value = {}
    stand_in.describe_topics.side_effect = lambda names: [
        TopicInfo(topic=each, permitted=False, unknown=UNKNOWN) if each == "bad" else TopicInfo(topic=each, **INFO)
        for each in names
    ]
    stand_in.topic_states.side_effect = lambda names: {
        each: TopicState(permitted=False, unknown=UNKNOWN) if each == "bad" else STATE for each in names
    }
    entry = ConfigEntry("retention.ms", "1", False, "DYNAMIC_TOPIC_CONFIG", False)
    stand_in.topic_configs.side_effect = lambda names, *_: [
        TopicConfigs(topic=name, configs=(entry,)) for name in names
    ]
    for method in (stand_in.add_partitions, stand_in.alter_configs, stand_in.delete_topics, stand_in.create_topics):
        method.side_effect = lambda targets, **_: Response(
            results={each.resource: TopicResult() for each in targets}, throttle_time_ms=0
        )
    return stand_in


@pytest.fixture
def executor(admin: MagicMock, no_sleep: Callable[[float], None]) -> Executor:
    return executor_for(admin, no_sleep, records=8_000)


@pytest.mark.parametrize("action", CHANGES)
def test_an_action_on_an_untold_topic_is_refused_alone(admin: MagicMock, executor: Executor, action: str) -> None:
    """It isn't sent, whether it is the first start or a later one."""
    rows = [*executor.changed_since_plan(of_topics(action, "bad", "good"))]
    assert [(row.resource, row.outcome, row.error) for row in rows if row.outcome is not Outcome.OK] == [
        ("bad", Outcome.REFUSED, "NO_ANSWER")
    ]
    assert f"brokers answer {UNKNOWN} about the topic; look for it in their logs" in str(rows[0].error_message)


@pytest.mark.parametrize("action", [each for each in CHANGES if each not in ("delete", "reassign")])
def test_an_untold_action_that_may_be_sent_is_not_called_unsent(executor: Executor, action: str) -> None:
    (row,) = executor.changed_since_plan(of_topics(action, "bad", maybe_sent=True))
    assert (row.outcome, row.error) == (Outcome.FAILED, "NO_ANSWER")
    assert "an earlier request for it was lost, which may have changed it" in str(row.error_message)


def test_a_delete_of_an_untold_topic_that_may_be_sent_is_sent_by_id(admin: MagicMock, executor: Executor) -> None:
    """Only the controller can tell what became of it."""
    admin.create_topics.side_effect = lambda targets, **_: Response(
        results={each.resource: TopicResult(error_code=36) for each in targets}, throttle_time_ms=0
    )
    (bad,) = of_topics("delete", "bad", maybe_sent=True)
    (row,) = executor.recover([bad])
    assert row.outcome is Outcome.PENDING


@pytest.mark.parametrize("action", ["alter_configs", "add_partitions", "delete"])
def test_an_error_about_a_topic_that_passes_is_no_refusal(admin: MagicMock, executor: Executor, action: str) -> None:
    """Topics with an error are asked about again, a few times, and only they."""
    asked: list[list[str]] = []

    def describe(names: Sequence[str]) -> list[TopicInfo]:
        asked.append(list(names))
        first = len(asked) == 1
        return [
            TopicInfo(topic=each, permitted=False, unknown=UNKNOWN)
            if first and each == "bad"
            else TopicInfo(topic=each, **INFO)
            for each in names
        ]

    admin.describe_topics.side_effect = describe
    rows = list(executor.changed_since_plan(of_topics(action, "bad", "good")))
    assert {row.outcome for row in rows} <= {Outcome.OK}
    assert asked == [["bad", "good"], ["bad"]]


def test_an_untold_topic_keeps_the_others_waiting_once(admin: MagicMock, executor: Executor) -> None:
    for _ in range(3):
        executor.describe(["bad", "good"])
    assert admin.describe_topics.call_count == ATTEMPTS + 2


def test_configs_with_an_error_refuse_one_alter(admin: MagicMock, executor: Executor) -> None:
    """DescribeConfigs answers -1 about one topic."""
    admin.describe_topics.side_effect = lambda names: [TopicInfo(topic=each, **INFO) for each in names]
    entry = ConfigEntry("retention.ms", "1", False, "DYNAMIC_TOPIC_CONFIG", False)
    admin.topic_configs.side_effect = lambda names, *_: [
        TopicConfigs(topic=each, error_code=-1) if each == "bad" else TopicConfigs(topic=each, configs=(entry,))
        for each in names
    ]
    rows = {row.resource: row for row in executor.apply(of_topics("alter_configs", "bad", "good"))}
    assert {name: (row.outcome, row.error) for name, row in rows.items()} == {
        "bad": (Outcome.REFUSED, "NO_ANSWER"),
        "good": (Outcome.OK, None),
    }
    assert f"brokers answer {UNKNOWN} about the topic's configs" in str(rows["bad"].error_message)
    (skipped, _) = executor.verify([(each, TopicResult()) for each in of_topics("alter_configs", "bad", "good")])
    assert (skipped.resource, skipped.outcome, skipped.error) == ("bad", Outcome.SKIPPED, "NO_ANSWER")


def unlisted() -> Mapping[Partition, Replicas]:
    raise ErrorAnswered(f"cluster main: brokers answer {UNKNOWN} when asked for reassignments")


def test_only_moves_and_new_partitions_need_the_list_of_moves(admin: MagicMock, executor: Executor) -> None:
    """ListPartitionReassignments always answers -1: what needs it is refused, and the rest continues."""
    admin.list_reassignments.side_effect = admin.topics_reassigned_now.side_effect = unlisted
    kinds = ("add_partitions", "alter_configs", "reassign", "elect_leaders")
    rows = list(executor.validate([each for kind in kinds for each in of_topics(kind, "good")]))
    assert {row.action: (row.outcome, row.error) for row in rows} == {
        "add_partitions": (Outcome.REFUSED, "NO_ANSWER"),
        "alter_configs": (Outcome.OK, None),
        "reassign": (Outcome.REFUSED, "NO_ANSWER"),
        "elect_leaders": (Outcome.OK, None),
    }
    words = f"brokers answer {UNKNOWN} when asked for reassignments, so it is unknown whether"
    assert {words in str(row.error_message) for row in rows if row.error} == {True}


def test_moves_that_are_not_listed_any_more_stay_open_alone() -> None:
    """They keep their throttles, and another kind's action of the batch is sent."""
    cluster, written = MovingCluster(t=BEFORE, u=BEFORE), Written()
    waits: list[int] = []

    def meanwhile() -> None:
        waits.append(1)
        if len(waits) == 2:
            cluster.list_reassignments = unlisted  # type: ignore[assignment, method-assign]

    executor = executor_of(cluster, written, meanwhile=meanwhile)
    with pytest.raises(StaysOpen, match=f"t: no known outcome .*brokers answer {UNKNOWN} when asked for reassignments"):
        list(executor.apply([move("t", BEFORE, AFTER)]))
    assert cluster.targets.keys() == {("t", 0), ("t", 1)}
    assert len(cluster.throttles()) == len(written.rows) == 6
    with pytest.raises(StaysOpen):
        list(executor.recover([move("t", BEFORE, AFTER, maybe_sent=True)]))
    with pytest.raises(MovesUnlisted):
        list(executor.cancel([move("t", BEFORE, AFTER, maybe_sent=True)]))


class Untold(MovingCluster):
    """Doesn't describe t any more, once it moves."""

    answer: str | None = UNKNOWN
    """Name of the error; None: this principal may not describe the topic."""

    def topic_states(self, topics: Sequence[str]) -> dict[str, TopicState]:
        found = super().topic_states(topics)
        if "t" in found and self.requests:
            found["t"] = TopicState(permitted=False, unknown=self.answer)
        return found

    def partition_sizes(self, topics: Mapping[str, Collection[int]]) -> dict[Partition, int]:
        return {}


@pytest.mark.parametrize(
    ("answer", "error", "why"),
    [
        (UNKNOWN, "NO_ANSWER", f"brokers answer {UNKNOWN} about the topic"),
        (None, "NOT_PERMITTED", "this principal may not describe the topic any more; grant it Describe"),
    ],
)
def test_a_topic_that_becomes_untold_while_it_moves_fails_alone(answer: str | None, error: str, why: str) -> None:
    """It is waited for as long as the cluster lists its moves."""
    cluster, written = Untold(t=BEFORE, u=BEFORE), Written()
    cluster.answer = answer
    waits: list[int] = []

    def meanwhile() -> None:
        waits.append(len(cluster.targets))
        if len(waits) > 20:
            cluster.finish()

    executor = executor_of(cluster, written, meanwhile=meanwhile)
    rows = {row.resource: row for row in executor.apply([move(name, BEFORE, AFTER) for name in ("t", "u")])}
    assert (rows["t"].outcome, rows["t"].error) == (Outcome.FAILED, error)
    assert str(rows["t"].error_message).startswith(f"it is unknown how many of 2 partitions moved; {why}")
    assert rows["u"].outcome is Outcome.OK
    assert cluster.throttles() == set()


@pytest.mark.parametrize(("code", "granted"), [(29, True), (31, True), (40, False), (44, False)])
def test_a_refused_throttle_names_what_to_grant_only_if_that_helps(code: int, granted: bool) -> None:
    class Refusing(MovingCluster):
        def alter_configs(self, targets: Sequence[Target], *, validate_only: bool) -> Response:
            result = TopicResult(error_code=code, error_message="said the broker")
            return Response(results={each.resource: result for each in targets}, throttle_time_ms=0)

    cluster = Refusing(t=BEFORE)
    (row,) = executor_of(cluster, Written()).apply([move("t", BEFORE, AFTER)])
    assert row.outcome is Outcome.FAILED
    assert "said the broker" in str(row.error_message)
    assert ("grant this principal AlterConfigs on the cluster and on the topic" in str(row.error_message)) is granted
    assert cluster.requests == []
