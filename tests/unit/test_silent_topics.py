"""Topics without any outcome, alone or with every topic of their request; the others continue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock, create_autospec

import pytest

from tests.unit.executing import executor_for
from topicledger import kafka
from topicledger.apply import dispatch
from topicledger.apply.dispatch import Context, Stop, each_cluster
from topicledger.apply.executor import Executor
from topicledger.apply.progress import Progress
from topicledger.kafka import ClusterAdmin, RequestLost, Response
from topicledger.kafka.reassignments import PartitionState, TopicState
from topicledger.kafka.sending import OutcomeUnknown, StaysOpen
from topicledger.ledger.commits import Commits
from topicledger.model import (
    Action,
    ConfigEntry,
    Outcome,
    Phase,
    PhaseResult,
    ReplicaAction,
    Target,
    TopicConfigs,
    TopicInfo,
    TopicResult,
)
from topicledger.resources.acls import requests as acl_requests
from topicledger.resources.acls.acl import Acl
from topicledger.resources.acls.names import AclAction
from topicledger.resources.quotas import requests as quota_requests
from topicledger.resources.quotas.names import QuotaAction

WORDS = "The server experienced an unexpected error."
ATTEMPTS = 4
OK, FREE = TopicResult(), TopicResult()
EXISTS = TopicResult(error_code=kafka.TOPIC_ALREADY_EXISTS)

Answering = Callable[..., Response]


@pytest.fixture
def admin() -> MagicMock:
    """A cluster that lists nothing and answers nothing yet."""
    stand_in: MagicMock = create_autospec(ClusterAdmin, instance=True)
    stand_in.connect_to_controller.return_value = "kafka-main"
    stand_in.describe_topics.return_value = []
    stand_in.topics_reassigned_now.return_value = frozenset()
    stand_in.principal = "User:another"
    return stand_in


@pytest.fixture
def executor(admin: MagicMock, no_sleep: Callable[[float], None]) -> Executor:
    return executor_for(admin, no_sleep, records=8_000, attempts=ATTEMPTS)


def create(topic: str) -> Target:
    return Target(resource=topic, action=Action.CREATE, num_partitions=1, replication_factor=1)


def topics(count: int) -> list[Target]:
    return [create(f"topic.{number:04}") for number in range(count)]


def unknown_error(topic: str) -> TopicResult:
    return TopicResult(error_code=kafka.UNKNOWN_SERVER_ERROR, error_message=WORDS)


def alone(poisoned: Collection[str]) -> Answering:
    """Answers -1 about the poisoned topics only."""

    def answer(targets: Sequence[Target], **_: Any) -> Response:
        results = {each.resource: unknown_error("") if each.resource in poisoned else OK for each in targets}
        return Response(results=results, throttle_time_ms=0)

    return answer


def with_its_request(poisoned: Collection[str]) -> Answering:
    """Answers -1 about every topic of a request with a poisoned one."""

    def answer(targets: Sequence[Target], **_: Any) -> Response:
        all_of_it = any(each.resource in poisoned for each in targets)
        results = {each.resource: unknown_error("") if all_of_it else OK for each in targets}
        return Response(results=results, throttle_time_ms=0)

    return answer


def closing_the_connection(poisoned: Collection[str]) -> Answering:
    """Gives no answer to a request with a poisoned topic."""

    def answer(targets: Sequence[Target], **_: Any) -> Response:
        if any(each.resource in poisoned for each in targets):
            raise RequestLost("cluster main at h:1 gave no answer: socket disconnected")
        return Response(results={each.resource: OK for each in targets}, throttle_time_ms=0)

    return answer


KINDS = {each.__name__: each for each in (alone, with_its_request, closing_the_connection)}


def by_validate_only(real: Answering, asked: Answering) -> Answering:
    return lambda targets, *, validate_only: (asked if validate_only else real)(targets)


def told(result: TopicResult) -> Answering:
    return lambda targets, **_: Response(results={each.resource: result for each in targets}, throttle_time_ms=0)


def until_open(ended: Iterator[PhaseResult]) -> tuple[list[PhaseResult], dict[tuple[str, str], str]]:
    """Return the results that are yielded before StaysOpen is raised, and the topics that stay open."""
    found: list[PhaseResult] = []
    with pytest.raises(StaysOpen) as error:
        found.extend(ended)
    return found, dict(error.value.actions)


POISONED = {
    "first": [0],
    "last": [1_999],
    "two neighbours": [700, 701],
    "three neighbours": [100, 101, 102],
    "last three": [1_997, 1_998, 1_999],
    "fifty neighbours": list(range(100, 150)),
    "far apart": [3, 900, 1_500],
}
"""Numbers of poisoned topics, of 2,000."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("poisoned", POISONED.values(), ids=POISONED)
def test_a_topic_without_an_outcome_fails_alone_in_validate(
    admin: MagicMock, executor: Executor, kind: str, poisoned: Sequence[int]
) -> None:
    """Nothing can have been done; each of the others has its own answer."""
    names = {f"topic.{number:04}" for number in poisoned}
    admin.create_topics.side_effect = KINDS[kind](names)
    ended = {each.resource: each for each in executor.validate(topics(2_000))}
    assert len(ended) == 2_000
    assert {name for name, each in ended.items() if each.outcome is not Outcome.OK} == names
    error, words = ("NO_ANSWER", "socket") if kind == "closing_the_connection" else ("UNKNOWN_SERVER_ERROR", WORDS)
    for name in names:
        assert (ended[name].outcome, ended[name].error, ended[name].error_code) == (Outcome.FAILED, error, -1)
        assert words in str(ended[name].error_message)
        assert "attempts): validateOnly changes nothing" in str(ended[name].error_message)
    assert admin.create_topics.call_count <= 25 * len(names)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("poisoned", [[70], [10, 11, 12], [97, 98, 99]], ids=str)
def test_poisoned_creates_fail_and_the_others_are_created_once(
    admin: MagicMock, executor: Executor, kind: str, poisoned: Sequence[int]
) -> None:
    """The controller says that their names are free: nothing was done."""
    names = {f"topic.{number:04}" for number in poisoned}
    real = KINDS[kind](names)
    created: list[str] = []

    def creating(targets: Sequence[Target]) -> Response:
        response = real(targets)
        created.extend(name for name, each in response.results.items() if each.error_code == 0)
        return response

    admin.create_topics.side_effect = by_validate_only(creating, told(FREE))
    ended = list(executor.apply(topics(100)))
    assert sorted(created) == [each.resource for each in topics(100) if each.resource not in names]
    failed = [each for each in ended if each.outcome is not Outcome.OK]
    assert {each.resource for each in failed} == names
    assert {(each.outcome, each.phase) for each in failed} == {(Outcome.FAILED, Phase.APPLY)}
    assert all("the cluster shows no effect of the request" in str(each.error_message) for each in failed)
    assert len(ended) == 100


def test_a_cluster_that_answers_each_topic_with_an_error_fails_each(admin: MagicMock, executor: Executor) -> None:
    """An error of the broker's own is an answer: the cluster isn't silent."""
    targets = topics(60)
    admin.create_topics.side_effect = with_its_request({each.resource for each in targets})
    assert [each.outcome for each in executor.validate(targets)] == [Outcome.FAILED] * 60
    assert admin.create_topics.call_count <= 3 * 60


def test_neighbours_that_are_the_last_batch_fail_alone_in_validate(admin: MagicMock, executor: Executor) -> None:
    """A topic of an earlier batch is asked again: the cluster still answers."""
    targets = topics(8)
    admin.create_topics.side_effect = closing_the_connection({each.resource for each in targets[2:]})
    assert [each.outcome for each in executor.validate(targets[:2])] == [Outcome.OK] * 2
    assert [each.outcome for each in executor.validate(targets[2:])] == [Outcome.FAILED] * 6


def test_each_start_gets_rows_although_no_topic_left_is_answered(admin: MagicMock, executor: Executor) -> None:
    """Nothing is answered about any of them but questions: what was sent in vain isn't sent again by the next start."""
    left = topics(12)
    admin.create_topics.side_effect = by_validate_only(
        closing_the_connection({each.resource for each in left}), told(FREE)
    )
    starts = 0
    while left:
        starts += 1
        start = replace(executor)
        found: list[PhaseResult] = []
        with suppress(OutcomeUnknown):
            found.extend(start.apply(left))
        assert {each.outcome for each in found} == {Outcome.FAILED}, f"start {starts}"
        left = [each for each in left if each.resource not in {row.resource for row in found}]
    assert starts <= 3


def test_a_cluster_that_takes_no_changes_is_not_sent_topic_by_topic(admin: MagicMock, executor: Executor) -> None:
    changes: list[int] = []

    def lost(targets: Sequence[Target], **_: Any) -> Response:
        changes.append(len(targets))
        raise RequestLost("lost")

    admin.create_topics.side_effect = by_validate_only(lost, lost)
    found: list[PhaseResult] = []
    with pytest.raises(OutcomeUnknown, match=r"2000 actions, .* have no known outcome"):
        found.extend(executor.apply(topics(2_000)))
    assert found == []
    assert len(changes) <= 4 * ATTEMPTS + 8


def test_a_create_without_an_outcome_that_was_done_is_recovered(admin: MagicMock, executor: Executor) -> None:
    """N1, C18"""
    admin.create_topics.side_effect = by_validate_only(alone({"topic.0001"}), told(EXISTS))
    admin.describe_topics.return_value = [TopicInfo(topic="topic.0001", topic_id="id", assignments={0: (1,)})]
    admin.topic_configs.side_effect = lambda names: [TopicConfigs(topic=name, configs=()) for name in names]
    ended = {each.resource: each for each in executor.apply(topics(3))}
    assert {name: (each.outcome, each.error) for name, each in ended.items()} == {
        "topic.0000": (Outcome.OK, None),
        "topic.0001": (Outcome.OK, "RECOVERED"),
        "topic.0002": (Outcome.OK, None),
    }


@pytest.mark.parametrize("unlisted", [None, TopicInfo(topic="topic.0001", permitted=False)], ids=["gone", "hidden"])
def test_a_create_answered_minus_one_fails_and_its_row_denies_nothing(
    admin: MagicMock, executor: Executor, unlisted: TopicInfo | None
) -> None:
    """Both the create and validateOnly are answered with -1: it stayed open at each start."""
    admin.create_topics.side_effect = alone({"topic.0001"})
    admin.describe_topics.return_value = [unlisted] if unlisted else []
    ended = {each.resource: each for each in executor.apply(topics(3))}
    assert {name: each.outcome for name, each in ended.items()} == {
        "topic.0000": Outcome.OK,
        "topic.0001": Outcome.FAILED,
        "topic.0002": Outcome.OK,
    }
    _require_honest(ended["topic.0001"], "may not describe" if unlisted else "brokers don't list it after 0 s")


def test_a_later_start_ends_a_create_about_which_brokers_still_answer_minus_one(
    admin: MagicMock, executor: Executor
) -> None:
    """It is the only one left, so no other topic is answered in between."""
    admin.create_topics.side_effect = alone({"topic.0001"})
    (ended,) = executor.recover([replace(create("topic.0001"), maybe_sent=True)])
    _require_honest(ended, "brokers don't list it after 0 s")
    assert (ended.error, ended.error_code) == ("UNKNOWN_SERVER_ERROR", -1)


def test_a_create_without_any_answer_that_is_listed_is_recovered(admin: MagicMock, executor: Executor) -> None:
    """C18: the controller answers -1, and the brokers show what was created."""
    admin.create_topics.side_effect = alone({"topic.0001"})
    admin.describe_topics.return_value = [TopicInfo(topic="topic.0001", topic_id="id", assignments={0: (1,)})]
    admin.topic_configs.side_effect = lambda names: [TopicConfigs(topic=name, configs=()) for name in names]
    (ended,) = executor.recover([replace(create("topic.0001"), maybe_sent=True)])
    assert (ended.outcome, ended.error, ended.error_code) == (Outcome.OK, "RECOVERED", 0)


def test_a_create_stays_open_if_the_whole_cluster_may_be_silent(admin: MagicMock, executor: Executor) -> None:
    admin.create_topics.side_effect = closing_the_connection({"topic.0001"})
    ended, left_open = until_open(executor.recover([replace(create("topic.0001"), maybe_sent=True)]))
    assert (ended, [*left_open]) == ([], [("topic.0001", "create")])


def _require_honest(ended: PhaseResult, seen: str, done: str = "created") -> None:
    """A failed row tells what was seen and what to do, and claims nothing about what was done."""
    said = str(ended.error_message)
    assert ended.outcome is Outcome.FAILED
    assert f"doesn't tell whether an earlier request of this run {done} the topic" in said
    assert seen in said
    assert "the next plan shows whether the topic exists" in said
    assert "no effect of the request" not in said
    assert "not sent" not in said


def test_a_topic_that_stays_unlisted_leaves_the_others_of_its_batch_recovered(
    admin: MagicMock, executor: Executor
) -> None:
    """C21: one topic that brokers don't list kept all others from their rows."""
    admin.create_topics.side_effect = [RequestLost("lost"), told(EXISTS)(topics(2))]
    admin.describe_topics.return_value = [TopicInfo(topic="topic.0001", topic_id="id", assignments={0: (1,)})]
    admin.topic_configs.side_effect = lambda names: [TopicConfigs(topic=name, configs=()) for name in names]
    ended, left_open = until_open(executor.apply(topics(2)))
    assert [(each.resource, each.error) for each in ended] == [("topic.0001", "RECOVERED")]
    assert [*left_open] == [("topic.0000", "create")]


@pytest.mark.parametrize("silence", [RequestLost("lost"), kafka.REQUEST_TIMED_OUT, kafka.NOT_CONTROLLER], ids=str)
def test_a_cluster_that_answers_nothing_is_not_asked_topic_by_topic(
    admin: MagicMock, executor: Executor, silence: RequestLost | int
) -> None:
    """No row says that a topic failed: it is the cluster that doesn't answer."""
    answer = told(TopicResult(error_code=silence)) if isinstance(silence, int) else silence
    admin.create_topics.side_effect = answer
    ended: list[PhaseResult] = []
    with pytest.raises(OutcomeUnknown, match=r"2000 actions, .* have no known outcome") as error:
        ended.extend(executor.validate(topics(2_000)))
    assert not isinstance(error.value, StaysOpen)
    assert ended == []
    assert admin.create_topics.call_count <= ATTEMPTS + 8


def test_a_cluster_that_stops_answering_leaves_the_rest_open(admin: MagicMock, executor: Executor) -> None:
    """Its earlier answers don't make the next topics the cause."""
    executor.limits.max_batch_records = 20
    answered = iter([True, True])

    def answer(targets: Sequence[Target], **_: Any) -> Response:
        if not next(answered, False):
            raise RequestLost("lost")
        return told(OK)(targets)

    admin.create_topics.side_effect = answer
    ended: list[PhaseResult] = []
    with pytest.raises(OutcomeUnknown):
        ended.extend(executor.validate(topics(100)))
    assert {each.outcome for each in ended} == {Outcome.OK}
    assert len(ended) == 20


def acl(number: int) -> Acl:
    return Acl("User:a", "ALLOW", "READ", "TOPIC", "LITERAL", f"topic.{number}", "*")


def acls(action: AclAction) -> list[Target]:
    field = "after" if action is AclAction.ACL_ADD else "before"
    return [Target(resource=str(acl(n)), action=action, **{field: acl(n)._asdict()}) for n in range(2)]


def changed(action: str, **fields: Any) -> list[Target]:
    return [Target(resource=name, action=action, topic_id="id", **fields) for name in ("bad", "good")]


@pytest.mark.parametrize("phase", [Phase.VALIDATE, Phase.APPLY])
def test_added_partitions_without_an_outcome_fail_alone(admin: MagicMock, executor: Executor, phase: Phase) -> None:
    """N1: validateOnly says that they can still be added."""
    targets = changed(Action.ADD_PARTITIONS, before={"num_partitions": "1"}, after={"num_partitions": "2"})
    admin.describe_topics.side_effect = lambda names: [
        TopicInfo(topic=name, topic_id="id", assignments={0: (1,)}) for name in names
    ]
    silent = alone({"bad"})
    admin.add_partitions.side_effect = by_validate_only(silent, silent if phase is Phase.VALIDATE else told(OK))
    require_one_failed(executor, targets, phase)


GROWN = {
    "not grown": (1, "failed UNKNOWN_SERVER_ERROR", "the cluster shows no effect of the request"),
    "grown": (2, "ok RECOVERED", "an earlier request of this run added the partitions"),
    "grown by others": (3, "failed UNKNOWN_SERVER_ERROR", "num_partitions is 3, planned 2"),
}
"""Partitions that brokers list after the request, and what becomes of the action."""


@pytest.mark.parametrize("case", GROWN)
def test_added_partitions_answered_minus_one_end_by_what_brokers_list(
    admin: MagicMock, executor: Executor, case: str
) -> None:
    """Both the request and validateOnly are answered with -1: it stayed open at each start."""
    count, expected, words = GROWN[case]
    counts = {"bad": 1, "good": 1}

    def add(targets: Sequence[Target], *, validate_only: bool) -> Response:
        counts["bad"] = count
        return alone({"bad"})(targets)

    def describe(names: Sequence[str]) -> list[TopicInfo]:
        shapes = {name: dict.fromkeys(range(counts[name]), (1,)) for name in names}
        return [TopicInfo(topic=name, topic_id="id", assignments=each) for name, each in shapes.items()]

    admin.add_partitions.side_effect, admin.describe_topics.side_effect = add, describe
    targets = changed(Action.ADD_PARTITIONS, before={"num_partitions": "1"}, after={"num_partitions": "2"})
    ended = {each.resource: each for each in executor.apply(targets)}
    assert [f"{ended[name].outcome} {ended[name].error}" for name in ("good", "bad")] == ["ok None", expected]
    assert words in str(ended["bad"].error_message)
    # A later start ends it, too; a topic that hasn't grown is sent again.
    again = [f"{each.outcome} {each.error}" for each in executor.recover([replace(targets[0], maybe_sent=True)])]
    assert again == ([] if case == "not grown" else [expected])


@pytest.mark.parametrize("action", [Action.ADD_PARTITIONS, Action.ALTER_CONFIGS])
def test_an_unlisted_topic_about_which_the_controller_answers_minus_one_fails(
    admin: MagicMock, executor: Executor, action: Action
) -> None:
    """An earlier start may have changed it, and neither validateOnly nor a description shows it."""
    name = "num_partitions" if action is Action.ADD_PARTITIONS else "retention.ms"
    admin.add_partitions.side_effect = admin.alter_configs.side_effect = alone({"bad"})
    (bad, _) = changed(action, before={name: "1"}, after={name: "2"}, maybe_sent=True)
    (ended,) = executor.changed_since_plan([bad])
    assert (ended.outcome, ended.error) == (Outcome.FAILED, "NO_ANSWER")
    assert "UNKNOWN_SERVER_ERROR" in str(ended.error_message)
    assert "which may have changed it" in str(ended.error_message)
    if action is Action.ADD_PARTITIONS:
        (ended,) = executor.recover([bad])
        _require_honest(ended, "brokers don't list it after 0 s", "added partitions to")


@pytest.mark.parametrize("phase", [Phase.VALIDATE, Phase.APPLY])
def test_altered_configs_without_an_outcome_fail_alone(admin: MagicMock, executor: Executor, phase: Phase) -> None:
    """The topic has the values that the plan saw."""
    targets = changed(Action.ALTER_CONFIGS, before={"retention.ms": "1"}, after={"retention.ms": "2"})
    admin.describe_topics.side_effect = lambda names: [
        TopicInfo(topic=name, topic_id="id", assignments={0: (1,)}) for name in names
    ]
    entry = ConfigEntry("retention.ms", "1", False, "DYNAMIC_TOPIC_CONFIG", False)
    admin.topic_configs.side_effect = lambda names, _: [TopicConfigs(topic=name, configs=(entry,)) for name in names]
    admin.alter_configs.side_effect = alone({"bad"})
    executor.clock = iter(range(0, 100_000, 10)).__next__
    require_one_failed(executor, targets, phase)


def test_an_election_without_an_outcome_fails_alone(admin: MagicMock, executor: Executor) -> None:
    """Another replica leads."""
    targets = changed(ReplicaAction.ELECT_LEADERS, after={"partitions": "0"})
    admin.elect_leaders.side_effect = lambda wanted: (
        {each: unknown_error("") if each[0] == "bad" else OK for each in wanted},
        0,
    )
    state = TopicState(topic_id="id", partitions={0: PartitionState((1, 2), frozenset({1, 2}), 2)})
    admin.topic_states.side_effect = lambda names: dict.fromkeys(names, state)
    require_one_failed(executor, targets, Phase.APPLY)


@pytest.mark.parametrize(("planned", "sent"), [("0:2;1:2", False), ("0:1;1:1", True), ("", True)])
def test_only_the_planned_leaders_are_elected(admin: MagicMock, executor: Executor, planned: str, sent: bool) -> None:
    """Kafka elects the first replica, which may be on a drained broker unless a move was done (KIP-460)."""
    (target, _) = changed(ReplicaAction.ELECT_LEADERS, after={"partitions": "0,1", "leaders": planned})
    admin.elect_leaders.side_effect = lambda wanted: (dict.fromkeys(wanted, OK), 0)
    states = {n: PartitionState((1, 2), frozenset({1, 2}), 2) for n in (0, 1)}
    admin.topic_states.side_effect = lambda names: dict.fromkeys(names, TopicState(topic_id="id", partitions=states))
    executor.clock = iter(range(0, 100_000, 10)).__next__
    (ended,) = executor.apply([target])
    assert admin.elect_leaders.called is sent
    if not sent:
        assert (ended.outcome, ended.error) == (Outcome.REFUSED, "CHANGED_SINCE_PLAN")
        assert "make broker 1 the leader of partition 0, not broker 2" in str(ended.error_message)


def test_an_election_waits_until_the_move_before_it_is_visible(admin: MagicMock, executor: Executor) -> None:
    """R4"""
    (target, _) = changed(ReplicaAction.ELECT_LEADERS, after={"partitions": "0", "leaders": "0:2"})
    admin.elect_leaders.side_effect = lambda wanted: (dict.fromkeys(wanted, OK), 0)
    orders = iter([(1, 2), (1, 2), (2, 1)])
    admin.topic_states.side_effect = lambda names: {
        each: TopicState(topic_id="id", partitions={0: PartitionState(next(orders), frozenset({1, 2}), 1)})
        for each in names
    }
    (ended,) = executor.apply([target])
    assert ended.outcome is Outcome.OK


def test_an_election_without_an_outcome_that_was_done_is_recovered(admin: MagicMock, executor: Executor) -> None:
    (bad, _) = changed(ReplicaAction.ELECT_LEADERS, after={"partitions": "0"})
    admin.elect_leaders.side_effect = RequestLost("lost")
    state = TopicState(topic_id="id", partitions={0: PartitionState((1, 2), frozenset({1, 2}), 1)})
    admin.topic_states.side_effect = lambda names: dict.fromkeys(names, state)
    assert [(each.outcome, each.error) for each in executor.apply([bad])] == [(Outcome.OK, "RECOVERED")]


@pytest.mark.parametrize("silent", [0, 1])
def test_a_half_done_election_says_which_partitions_are_led(admin: MagicMock, executor: Executor, silent: int) -> None:
    leaders = {0: 2, 1: 2}

    def elect(wanted: Sequence[tuple[str, int]]) -> tuple[dict[tuple[str, int], TopicResult], int]:
        leaders[1 - silent] = 1
        return {each: unknown_error("") if each[1] == silent else OK for each in wanted}, 0

    admin.elect_leaders.side_effect = elect
    admin.topic_states.side_effect = lambda names: {
        name: TopicState(
            topic_id="id", partitions={n: PartitionState((1, 2), frozenset({1, 2}), led) for n, led in leaders.items()}
        )
        for name in names
    }
    (bad, _) = changed(ReplicaAction.ELECT_LEADERS, after={"partitions": "0,1"})
    (ended,) = executor.apply([bad])
    assert ended.outcome is Outcome.FAILED
    expected = f"preferred replicas lead these of its partitions: {1 - silent}; they don't lead these: {silent}"
    assert expected in str(ended.error_message)
    assert "no effect of the request" not in str(ended.error_message)


def test_a_change_left_open_does_not_touch_the_next_change_of_its_topic(admin: MagicMock, executor: Executor) -> None:
    lost = iter(range(ATTEMPTS))

    def add(targets: Sequence[Target], *, validate_only: bool) -> Response:
        if validate_only:
            admin.connect_to_controller.side_effect = connect
        raise RequestLost("lost")

    def connect() -> str:
        if next(lost, None) is not None:
            raise RequestLost("lost")
        return "kafka-main"

    admin.add_partitions.side_effect = add
    admin.describe_topics.side_effect = lambda names: [
        TopicInfo(topic=name, topic_id="id", assignments={0: (1,)}) for name in names
    ]
    entry = ConfigEntry("retention.ms", "1", False, "DYNAMIC_TOPIC_CONFIG", False)
    admin.topic_configs.side_effect = lambda names, _: [TopicConfigs(topic=name, configs=(entry,)) for name in names]
    admin.alter_configs.side_effect = told(OK)
    (grown, _) = changed(Action.ADD_PARTITIONS, before={"num_partitions": "1"}, after={"num_partitions": "2"})
    (altered, _) = changed(Action.ALTER_CONFIGS, before={"retention.ms": "1"}, after={"retention.ms": "2"})
    ended, left_open = until_open(executor.apply([grown, altered]))
    assert [(each.target.action, each.outcome) for each in ended] == [("alter_configs", Outcome.OK)]
    assert [*left_open] == [("bad", "add_partitions")]


@pytest.mark.thorough
@pytest.mark.parametrize("action", [AclAction.ACL_ADD, AclAction.ACL_DELETE])
def test_an_acl_change_without_an_outcome_fails_alone(
    monkeypatch: pytest.MonkeyPatch, executor: Executor, action: AclAction
) -> None:
    """A2: the list of ACLs shows what there is."""
    bad, good = acls(action)
    there = [] if action is AclAction.ACL_ADD else [acl(0)]
    monkeypatch.setattr(acl_requests, "describe_acls", lambda *_: there)

    def answer(_: ClusterAdmin, targets: Sequence[Target]) -> Response:
        done = TopicResult(before={"principal": "User:a"})
        results = {each.resource: unknown_error("") if each == bad else done for each in targets}
        return Response(results=results, throttle_time_ms=0)

    monkeypatch.setattr(acl_requests, "create_acls", answer)
    monkeypatch.setattr(acl_requests, "delete_acls", answer)
    ended = {each.resource: each.outcome for each in executor.apply([bad, good])}
    assert ended == {bad.resource: Outcome.FAILED, good.resource: Outcome.OK}


def require_one_failed(executor: Executor, targets: Sequence[Target], phase: Phase) -> None:
    step = executor.validate if phase is Phase.VALIDATE else executor.apply
    ended = {each.resource: each for each in step(targets)}
    assert {name: each.outcome for name, each in ended.items()} == {"bad": Outcome.FAILED, "good": Outcome.OK}
    assert (ended["bad"].phase, ended["bad"].error) == (phase, "UNKNOWN_SERVER_ERROR")
    assert WORDS in str(ended["bad"].error_message)


def test_batches_after_an_open_action_are_sent_and_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch, admin: MagicMock, executor: Executor
) -> None:
    ended: list[PhaseResult] = []
    admin.__enter__.return_value = admin
    executor.live_cluster_id = lambda: "kafka-main"  # type: ignore[method-assign]
    monkeypatch.setattr(dispatch, "ClusterAdmin", lambda *_: admin)
    monkeypatch.setattr(dispatch, "Executor", lambda **_: executor)
    admin.create_topics.side_effect = by_validate_only(alone({"topic.0001"}), told(EXISTS))
    run: Any = MagicMock(clusters=[MagicMock()], commits=Commits(), run_id="run")
    run.clusters[0].name = "main"
    run.append_outcomes = lambda some, held: ended.extend(some)
    work = {"main": ("kafka-main", [topics(3), [create("later")]])}
    context = Context(progress=Progress(shown=False), stop=Stop())
    step = each_cluster(run, context, Phase.VERIFY, work, _apply)
    assert [each.resource for each in ended] == ["topic.0000", "topic.0002", "later"]
    assert step.problems == {}
    assert [*step.left_open] == [("main", "topic.0001", "create")]
    assert "cluster main: topic.0001: no known outcome" in step.why_open["main"]


def _apply(executor: Executor, batch: Sequence[Target]) -> Iterator[PhaseResult]:
    return executor.apply(batch)


@pytest.mark.parametrize("phase", [Phase.VALIDATE, Phase.APPLY])
def test_altered_quotas_without_an_outcome_fail_alone(
    monkeypatch: pytest.MonkeyPatch, executor: Executor, phase: Phase
) -> None:
    """The entity has the limits that the plan saw."""
    bad, good = "client-id=bad", "client-id=good"
    targets = [
        Target(resource=each, action=QuotaAction.ALTER_QUOTA, after={"producer_byte_rate": "1"}) for each in (bad, good)
    ]
    answer = alone({bad})
    monkeypatch.setattr(quota_requests, "describe_quotas", lambda _: {})
    monkeypatch.setattr(quota_requests, "alter_quotas", lambda _, targets, **given: answer(targets, **given))
    step = executor.validate if phase is Phase.VALIDATE else executor.apply
    ended = {each.resource: each.outcome for each in step(targets)}
    assert ended == {bad: Outcome.FAILED, good: Outcome.OK}


DELETES = {
    "there": (told(EXISTS), ["bad", "good"], "failed UNKNOWN_SERVER_ERROR"),
    "gone": (told(FREE), ["bad"], "ok RECOVERED"),
    "no right to create": (told(TopicResult(error_code=29)), ["bad"], "failed UNKNOWN_SERVER_ERROR"),
    "not listed": (told(EXISTS), [], None),
    "no answer about the name, there": (alone({"bad"}), ["bad", "good"], "failed UNKNOWN_SERVER_ERROR"),
    "no answer about the name, not listed": (alone({"bad"}), [], "failed UNKNOWN_SERVER_ERROR"),
}
"""What the controller says of the name, what brokers list, and what becomes of the delete; None: it stays open."""


@pytest.mark.parametrize("case", DELETES)
def test_a_delete_without_an_outcome_is_told_by_what_the_cluster_shows(
    admin: MagicMock, executor: Executor, case: str
) -> None:
    """C21, D3"""
    names, listed, expected = DELETES[case]
    admin.delete_topics.side_effect = alone({"bad"})
    admin.create_topics.side_effect = names
    admin.describe_topics.return_value = [
        TopicInfo(topic=name, topic_id="id", assignments={0: (1,)}) for name in listed
    ]
    targets = changed(Action.DELETE)
    if expected is None:
        ended, left_open = until_open(executor.apply(targets))
        assert ([each.resource for each in ended], [*left_open]) == (["good"], [("bad", "delete")])
    else:
        rows = {each.resource: each for each in executor.apply(targets)}
        assert {name: f"{each.outcome} {each.error}" for name, each in rows.items()} == {
            "good": "ok None",
            "bad": expected,
        }
        if case == "no answer about the name, not listed":
            _require_honest(rows["bad"], "brokers don't list it after 0 s", "deleted")
