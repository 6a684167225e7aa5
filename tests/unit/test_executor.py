"""The meaning of a cluster's answers, and repeated requests; the cluster is a stand-in."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock, create_autospec

import pytest

from tests.unit.executing import ATTEMPTS, executor_for
from topicledger import kafka
from topicledger.actions.context import WrongCluster
from topicledger.actions.costs import WHOLE_TOPIC
from topicledger.apply.executor import Executor
from topicledger.errors import ClusterError
from topicledger.kafka import Cluster, ClusterAdmin, RequestLost, Response
from topicledger.kafka.connection import THROTTLE_MARGIN_SECONDS
from topicledger.kafka.sending import (
    THROTTLING_QUOTA_EXCEEDED,
    ClusterLimits,
    OutcomeUnknown,
    QuotaWait,
    RetryPolicy,
    StaysOpen,
)
from topicledger.model import (
    Action,
    ConfigEntry,
    Maker,
    Outcome,
    Phase,
    PhaseResult,
    Refusal,
    Target,
    TopicConfigs,
    TopicInfo,
    TopicResult,
)
from topicledger.model.moves import Withdrawn
from topicledger.resources.topics.actions import create as creates
from topicledger.resources.topics.actions import delete as deletes
from topicledger.resources.topics.actions.create import difference_from_plan
from topicledger.resources.topics.actions.delete import delete_refusal

TOO_LARGE = "Excessively large number of partitions per request."
LOST = RequestLost("cluster main at h:1 gave no answer: connection reset")


@pytest.fixture
def admin() -> MagicMock:
    """A cluster of today that answers nothing yet."""
    stand_in: MagicMock = create_autospec(ClusterAdmin, instance=True)
    stand_in.has_default_counts = True
    stand_in.returns_configs = True
    stand_in.describe_topics.return_value = []
    stand_in.connect_to_controller.return_value = "kafka-main"
    stand_in.topic_configs.side_effect = lambda topics: [TopicConfigs(topic=topic, configs=()) for topic in topics]
    return stand_in


class Clock:
    """A clock that only waiting moves on."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def paced(admin: MagicMock, clock: Clock, **fields: Any) -> Executor:
    """An executor whose waits take no time and are kept."""
    return executor_for(admin, clock.sleep, clock=clock, **fields)


@pytest.fixture
def executor(admin: MagicMock, no_sleep: Callable[[float], None]) -> Executor:
    return executor_for(admin, no_sleep)


def create(topic: str, **fields: Any) -> Target:
    return Target(resource=topic, action=Action.CREATE, **fields)


def delete(topic: str, topic_id: str = "id-1", **fields: Any) -> Target:
    return Target(resource=topic, action=Action.DELETE, topic_id=topic_id, **fields)


def live(topic: str, topic_id: str = "id-1", partitions: int = 1, replicas: int = 1, **fields: Any) -> TopicInfo:
    assignments = {partition: tuple(range(1, replicas + 1)) for partition in range(partitions)}
    return TopicInfo(topic=topic, topic_id=topic_id, assignments=assignments, **fields)


def answers(results: Mapping[str, int | TopicResult], throttle_time_ms: int = 0) -> Response:
    given = {topic: TopicResult(error_code=each) if isinstance(each, int) else each for topic, each in results.items()}
    return Response(results=given, throttle_time_ms=throttle_time_ms)


def sent(request: MagicMock) -> list[list[str]]:
    """The topics of each request."""
    return [[target.topic for target in call.args[0]] for call in request.call_args_list]


def until_unknown(ended: Iterator[PhaseResult]) -> list[PhaseResult]:
    """Return the results that are yielded before OutcomeUnknown is raised."""
    told: list[PhaseResult] = []
    with pytest.raises(OutcomeUnknown):
        told.extend(ended)
    return told


def brief(ended: Sequence[PhaseResult]) -> list[tuple[str, str, int, str | None]]:
    return [(each.topic, each.outcome.value, each.error_code, each.error) for each in ended]


def test_each_topic_of_a_request_has_an_outcome_of_its_own(admin: MagicMock, executor: Executor) -> None:
    """C7, C8, C14"""
    told = TopicResult(error_code=44, error_message="No topic may be called 'refused'.")
    admin.create_topics.return_value = answers({"ok": 0, "forbidden": 29, "refused": told, "wrong": 40})
    ended = list(executor.apply([create(name, batch=3) for name in ("ok", "forbidden", "refused", "wrong")]))
    assert brief(ended) == [
        ("ok", "ok", 0, None),
        ("forbidden", "failed", 29, "TOPIC_AUTHORIZATION_FAILED"),
        ("refused", "refused", 44, "POLICY_VIOLATION"),
        ("wrong", "failed", 40, "INVALID_CONFIG"),
    ]
    assert ended[2].error_message == "No topic may be called 'refused'."
    assert {(each.cluster, each.cluster_id, each.batch, each.attempt) for each in ended} == {
        ("main", "kafka-main", 3, 1)
    }
    assert all(each.requested_at <= each.completed_at for each in ended)
    assert sent(admin.create_topics) == [["ok", "forbidden", "refused", "wrong"]]


def test_returned_values_are_kept_and_missing_configs_are_no_failure(admin: MagicMock, executor: Executor) -> None:
    """C9, C10"""
    config = ConfigEntry("retention.ms", "1", False, "DYNAMIC_TOPIC_CONFIG", False)
    full = TopicResult(
        topic_id="id", num_partitions=3, replication_factor=2, configs=(config,), topic_config_error_code=0
    )
    admin.create_topics.return_value = answers({"a": full, "b": TopicResult(topic_id="id", topic_config_error_code=29)})
    a, b = executor.apply([create("a"), create("b")])
    assert (a.topic_id, a.num_partitions, a.replication_factor, a.configs) == ("id", 3, 2, (config,))
    assert (b.outcome, b.error_code, b.topic_config_error_code, b.configs) == (Outcome.OK, 0, 29, None)


@pytest.mark.parametrize("code", [kafka.NOT_CONTROLLER, kafka.REQUEST_TIMED_OUT])
def test_an_answer_that_tells_no_outcome_is_asked_for_again_for_those_topics_alone(
    admin: MagicMock, executor: Executor, code: int
) -> None:
    """C12, C13"""
    admin.create_topics.side_effect = [answers({"a": 0, "b": code, "c": code}), answers({"b": 0, "c": 40})]
    ended = list(executor.apply([create("a"), create("b"), create("c")]))
    assert brief(ended) == [("a", "ok", 0, None), ("b", "ok", 0, None), ("c", "failed", 40, "INVALID_CONFIG")]
    assert [each.attempt for each in ended] == [1, 2, 2]
    assert sent(admin.create_topics) == [["a", "b", "c"], ["b", "c"]]


@pytest.mark.parametrize("code", [kafka.NOT_CONTROLLER, kafka.REQUEST_TIMED_OUT])
def test_an_outcome_that_never_comes_is_unknown_and_not_failed(admin: MagicMock, executor: Executor, code: int) -> None:
    """C12, C13: the controller says neither what a delete did nor whether the name is free."""
    admin.delete_topics.side_effect = lambda targets: answers({target.topic: code for target in targets})
    admin.create_topics.side_effect = lambda targets, **_: answers({target.topic: code for target in targets})
    with pytest.raises(StaysOpen, match=r"main: a: no known outcome \(\w+ \(\d attempts\)\); start the run again"):
        list(executor.apply([delete("a")]))
    assert admin.delete_topics.call_count == ATTEMPTS


def test_a_lost_request_is_sent_again(admin: MagicMock, executor: Executor) -> None:
    admin.create_topics.side_effect = [LOST, LOST, answers({"a": 0})]
    (ended,) = executor.apply([create("a")])
    assert (ended.outcome, ended.attempt) == (Outcome.OK, 3)


def test_an_answer_does_not_tell_that_an_earlier_request_is_over(admin: MagicMock) -> None:
    """A broker that stood still may carry it out later: the lease expires, as that of a run without any answer."""
    clock = Clock()
    executor = paced(admin, clock)
    admin.create_topics.side_effect = [LOST, answers({"a": 0}), answers({"b": 0})]
    assert not executor.may_still_change()
    assert [each.outcome for each in executor.apply([create("a")])] == [Outcome.OK]
    clock.sleep(executor.retry_policy.visibility - 5)
    assert executor.may_still_change()
    clock.sleep(6)
    assert [each.outcome for each in executor.apply([create("b")])] == [Outcome.OK]
    assert not executor.may_still_change()


def test_known_outcomes_are_yielded_if_others_stay_unknown(admin: MagicMock, executor: Executor) -> None:
    """C12"""
    admin.create_topics.side_effect = [answers({"a": 0, "b": kafka.REQUEST_TIMED_OUT, "c": 40}), *[LOST] * 9]
    told = until_unknown(executor.apply([create("a"), create("b"), create("c")]))
    assert brief(told) == [("a", "ok", 0, None), ("c", "failed", 40, "INVALID_CONFIG")]
    sends = [call for call in admin.create_topics.call_args_list if not call.kwargs["validate_only"]]
    assert [[each.topic for each in call.args[0]] for call in sends] == [["a", "b", "c"], *[["b"]] * ATTEMPTS]


def test_attempts_are_counted_from_the_last_answer_that_told_something(admin: MagicMock, executor: Executor) -> None:
    admin.create_topics.side_effect = [
        LOST,
        LOST,
        answers({"a": 0, "b": kafka.NOT_CONTROLLER}),
        LOST,
        LOST,
        answers({"b": 0}),
    ]
    assert brief(list(executor.apply([create("a"), create("b")]))) == [("a", "ok", 0, None), ("b", "ok", 0, None)]


def test_waits_between_attempts_grow_and_are_bounded(admin: MagicMock) -> None:
    waits: list[float] = []
    retry_policy = RetryPolicy(attempts=8, first_backoff=1.0, longest_backoff=4.0)
    executor = executor_for(admin, waits.append, retry_policy=retry_policy)
    admin.create_topics.side_effect = LOST
    until_unknown(executor.validate([create("a")]))
    assert len(waits) == 7
    assert all(most / 2 <= wait <= most for wait, most in zip(waits, [1, 2, 4, 4, 4, 4, 4], strict=True))


def test_topics_over_the_quota_are_retried_for_as_long_as_it_takes(admin: MagicMock, clock: Clock) -> None:
    """C17"""
    executor = paced(admin, clock)
    over = {"b": THROTTLING_QUOTA_EXCEEDED}
    admin.create_topics.side_effect = [
        answers({"a": 0, **over}, throttle_time_ms=1_500),
        *[answers(over, throttle_time_ms=250)] * (3 * ATTEMPTS),
        answers({"b": 0}),
    ]
    ended = list(executor.apply([create("a"), create("b")]))
    assert brief(ended) == [("a", "ok", 0, None), ("b", "ok", 0, None)]
    assert [each.attempt for each in ended] == [1, 2 + 3 * ATTEMPTS]
    assert clock.waits[0] > 1.5 + THROTTLE_MARGIN_SECONDS
    assert all(0.25 < wait <= 5 for wait in clock.waits[1:])


def test_a_quota_whose_wait_the_broker_does_not_tell_is_no_failure_either(admin: MagicMock, clock: Clock) -> None:
    """C17"""
    executor = paced(admin, clock)
    over = answers({"a": THROTTLING_QUOTA_EXCEEDED}, throttle_time_ms=0)
    admin.create_topics.side_effect = [*[over] * (3 * ATTEMPTS), answers({"a": 0})]
    assert brief(list(executor.apply([create("a")]))) == [("a", "ok", 0, None)]
    assert len(clock.waits) == 3 * ATTEMPTS
    assert all(wait > 0 for wait in clock.waits)


class QuotaBroker:
    """A stand-in's answers, with a quota on creates and deletes; validateOnly is charged too."""

    def __init__(self, admin: MagicMock, clock: Clock, rate: float, partitions: int = 1) -> None:
        self.clock, self.rate, self.partitions = clock, rate, partitions
        self.level, self.at, self.spent = 11 * rate, clock(), 0
        self.quiet_until = clock()
        self.throttled = 0
        admin.create_topics.side_effect = self.create_topics
        admin.delete_topics.side_effect = self.spend
        admin.describe_topics.side_effect = self.describe_topics

    def create_topics(self, targets: Sequence[Target], *, validate_only: bool) -> Response:
        return self.spend(targets)

    def describe_topics(self, topics: Sequence[str]) -> list[TopicInfo]:
        self.require_patience()
        return [live(topic, partitions=self.partitions) for topic in topics]

    def require_patience(self) -> None:
        """kafka-python sends nothing to a throttled broker."""
        if self.clock() < self.quiet_until:
            raise AssertionError("sent too early")

    def spend(self, targets: Sequence[Target]) -> Response:
        self.require_patience()
        self.level = min(self.level + (self.clock() - self.at) * self.rate, 11 * self.rate)
        self.at = self.clock()
        results: dict[str, int | TopicResult] = {}
        for target in targets:
            if self.level < 0:
                results[target.topic] = THROTTLING_QUOTA_EXCEEDED
                continue
            partitions = target.num_partitions or self.partitions
            self.level -= partitions
            self.spent += partitions
            results[target.topic] = TopicResult(num_partitions=partitions)
        over = THROTTLING_QUOTA_EXCEEDED in results.values()
        self.throttled += over
        throttle_time_ms = round(-self.level / self.rate * 1000) if over else 0
        self.quiet_until = self.clock() + throttle_time_ms / 1000
        return answers(results, throttle_time_ms)


def test_a_quota_is_used_up_in_few_requests_and_nothing_is_sent_twice(admin: MagicMock, clock: Clock) -> None:
    """C17"""
    broker = QuotaBroker(admin, clock, rate=20.0)
    limits = ClusterLimits(max_batch_records=8_000)
    targets = [create(f"topic.{number:03}", num_partitions=1) for number in range(400)]
    began = clock()
    validated = list(paced(admin, clock, limits=limits).validate(targets))
    applied = list(paced(admin, clock, limits=limits).apply(targets))
    assert [each.topic for each in validated] == [each.topic for each in applied] == [each.topic for each in targets]
    assert {each.outcome for each in (*validated, *applied)} == {Outcome.OK}
    assert broker.spent == 800
    assert clock() - began <= 1.25 * (800 - 220) / 20
    assert admin.create_topics.call_count <= 25
    assert broker.throttled <= 10


def test_counts_left_to_the_broker_cost_what_validate_told(admin: MagicMock, clock: Clock) -> None:
    """C17"""
    broker = QuotaBroker(admin, clock, rate=20.0, partitions=6)
    limits = ClusterLimits(max_batch_records=8_000)
    targets = [create(f"topic.{number:02}") for number in range(60)]
    list(paced(admin, clock, limits=limits).validate(targets))
    assert set(limits.partitions.values()) == {6}
    before = admin.create_topics.call_count, broker.throttled
    list(paced(admin, clock, limits=limits).apply(targets))
    assert admin.create_topics.call_count - before[0] <= 12
    assert broker.throttled - before[1] <= 5


def test_deletes_cost_as_many_as_the_live_topic_has_partitions(admin: MagicMock, clock: Clock) -> None:
    """C17, D6"""
    broker = QuotaBroker(admin, clock, rate=20.0, partitions=6)
    limits = ClusterLimits(max_batch_records=8_000)
    targets = [delete(f"topic.{number:02}") for number in range(100)]
    list(paced(admin, clock, limits=limits).validate(targets))
    assert limits.partitions == dict.fromkeys((target.topic for target in targets), 6)
    ended = list(paced(admin, clock, limits=limits).apply(targets))
    assert (len(ended), {each.outcome for each in ended}, broker.spent) == (100, {Outcome.OK}, 600)
    assert admin.delete_topics.call_count <= 16


def test_a_look_at_topics_waits_until_the_broker_listens_again(admin: MagicMock, clock: Clock) -> None:
    """C17, C18"""
    executor = paced(admin, clock)
    broker = QuotaBroker(admin, clock, rate=1.0)
    admin.create_topics.side_effect = [answers({"a": kafka.TOPIC_ALREADY_EXISTS}, throttle_time_ms=4_000)]
    broker.quiet_until = clock() + 4.0
    assert brief(list(executor.apply([create("a", maybe_sent=True)]))) == [("a", "ok", 0, "RECOVERED")]
    assert clock.waits == [pytest.approx(4.0 + THROTTLE_MARGIN_SECONDS)]


def test_two_clusters_have_two_paces(admin: MagicMock, clock: Clock) -> None:
    """C17"""
    QuotaBroker(admin, clock, rate=1.0)
    list(paced(admin, clock).apply([create(f"topic.{number}") for number in range(40)]))
    admin.create_topics.side_effect = refuse_above(1_000)
    admin.create_topics.reset_mock()
    waited = len(clock.waits)
    list(paced(admin, clock).apply([create(f"topic.{number}") for number in range(40)]))
    assert (admin.create_topics.call_count, len(clock.waits)) == (1, waited)


def test_a_wait_for_the_quota_says_how_fast_it_is_and_what_is_left(admin: MagicMock, clock: Clock) -> None:
    """C17"""
    QuotaBroker(admin, clock, rate=10.0)
    told: list[QuotaWait | None] = []
    executor = paced(admin, clock, limits=ClusterLimits(max_batch_records=8_000), waiting=told.append)
    executor.expect(1_000)
    list(executor.apply([create(f"topic.{number:03}", num_partitions=1) for number in range(300)]))
    first, *later, last = told
    assert first is not None
    assert (first.rate, first.eta, last) == (None, None, None)
    assert 1_000 < first.left < 1_300
    for each in later:
        assert each is not None
        assert each.rate == pytest.approx(10.0, rel=0.2)
        assert each.eta == pytest.approx(each.left / 10.0, rel=0.2)
    assert [each.left for each in later if each] == sorted((each.left for each in later if each), reverse=True)


def test_a_wait_for_the_quota_ends_when_asked_to_stop(admin: MagicMock) -> None:
    """C17"""
    executor = executor_for(admin, sleep=None)
    admin.create_topics.side_effect = lambda targets, validate_only: (
        executor.stop.set(),
        answers({"a": 0, "b": THROTTLING_QUOTA_EXCEEDED}, throttle_time_ms=3_600_000),
    )[1]
    assert brief(until_unknown(executor.apply([create("a"), create("b")]))) == [("a", "ok", 0, None)]
    assert admin.create_topics.call_count == 1


class NotAllowedError(ClusterError):
    """Somebody else changes the cluster now."""


def allow(times: int) -> MagicMock:
    """Return a hook that allows this many requests."""
    return MagicMock(side_effect=[*[None] * times, NotAllowedError("the lease ran out")])


def test_every_request_that_changes_something_asks_first_repeats_included(admin: MagicMock, clock: Clock) -> None:
    events: list[str] = []
    executor = paced(admin, clock, may_send=lambda: events.append("asked"))

    def lost_once(targets: Sequence[Target], **_: Any) -> Response:
        events.append("sent")
        if len(events) == 2:
            raise LOST
        return answers({target.topic: 0 for target in targets})

    admin.create_topics.side_effect = admin.delete_topics.side_effect = lost_once
    list(executor.apply([create("a"), delete("b")]))
    assert events == ["asked", "sent"] * 3


def test_requests_that_change_nothing_need_no_permission(admin: MagicMock, clock: Clock) -> None:
    """C5"""
    admin.create_topics.return_value = answers({"a": 0})
    executor = paced(admin, clock, may_send=allow(0))
    assert brief(list(executor.validate([create("a")]))) == [("a", "ok", 0, None)]


def test_a_run_without_permission_yields_known_outcomes_only(admin: MagicMock, clock: Clock) -> None:
    executor = paced(admin, clock, may_send=allow(1))
    admin.create_topics.side_effect = [answers({"a": 0, "b": kafka.NOT_CONTROLLER})]
    told: list[PhaseResult] = []
    with pytest.raises(NotAllowedError):
        told.extend(executor.apply([create("a"), create("b")]))
    assert brief(told) == [("a", "ok", 0, None)]
    assert admin.create_topics.call_count == 1


def refuse_above(records: int, message: str = TOO_LARGE) -> Callable[..., Response]:
    """A broker that refuses larger requests whole."""

    def create_topics(targets: Sequence[Target], *, validate_only: bool) -> Response:
        code = 44 if sum(WHOLE_TOPIC.records(target) for target in targets) > records else 0
        result = TopicResult(error_code=code, error_message=message if code else None)
        return answers({target.topic: result for target in targets})

    return create_topics


@pytest.mark.parametrize(
    "message", [TOO_LARGE, "Unable to perform excessively large batch operation.", f"{TOO_LARGE} (again)"]
)
def test_a_batch_that_is_refused_for_its_size_is_halved_and_the_size_kept(
    admin: MagicMock, executor: Executor, message: str
) -> None:
    """C15"""
    admin.create_topics.side_effect = refuse_above(10, message)
    first = [create(f"first.{number:02}", num_partitions=2) for number in range(16)]
    ended = list(executor.apply(first))
    assert [(each.topic, each.outcome) for each in ended] == [(target.topic, Outcome.OK) for target in first]
    assert executor.limits.max_batch_records <= 10
    requests = admin.create_topics.call_count
    second = [create(f"second.{number:02}", num_partitions=2) for number in range(16)]
    assert all(each.outcome is Outcome.OK for each in executor.apply(second))
    later = [len(batch) for batch in sent(admin.create_topics)[requests:]]
    assert later == [2] * 8, "no request is refused for its size again"


def test_the_size_that_a_cluster_took_is_kept_for_the_next_phase(
    admin: MagicMock, no_sleep: Callable[[float], None]
) -> None:
    """C15"""
    limits = ClusterLimits(max_batch_records=100)
    admin.create_topics.side_effect = refuse_above(10)
    targets = [create(f"topic.{number:02}") for number in range(40)]
    list(executor_for(admin, no_sleep, limits=limits).validate(targets))
    admin.create_topics.reset_mock()
    assert {each.attempt for each in executor_for(admin, no_sleep, limits=limits).apply(targets)} == {1}
    assert sum(len(batch) for batch in sent(admin.create_topics)) == 40, "no request is refused for its size again"


def test_known_validations_are_yielded_if_others_stay_unknown(admin: MagicMock, executor: Executor) -> None:
    """C12, C17: what was validated need not be again."""
    admin.create_topics.side_effect = [answers({"a": 0, "b": kafka.REQUEST_TIMED_OUT}), *[LOST] * (ATTEMPTS + 1)]
    assert brief(until_unknown(executor.validate([create("a"), create("b")]))) == [("a", "ok", 0, None)]


def test_a_batch_above_the_limit_is_split_before_it_is_sent(admin: MagicMock, executor: Executor) -> None:
    """C15"""
    admin.create_topics.side_effect = refuse_above(100)
    ended = list(executor.apply([create(name, num_partitions=60) for name in "abc"]))
    assert [each.outcome for each in ended] == [Outcome.OK] * 3
    assert sent(admin.create_topics) == [["a"], ["b"], ["c"]]


def test_a_topic_too_large_by_itself_is_refused_in_the_brokers_words(admin: MagicMock, executor: Executor) -> None:
    """C15"""
    admin.create_topics.side_effect = refuse_above(100)
    ended = list(executor.apply([create("a"), create("large", num_partitions=1_000), create("c")]))
    assert brief(ended) == [
        ("a", "ok", 0, None),
        ("large", "refused", 44, "POLICY_VIOLATION"),
        ("c", "ok", 0, None),
    ]
    assert ended[1].error_message == TOO_LARGE


def test_a_policy_that_refuses_every_topic_is_not_taken_for_a_size(admin: MagicMock, executor: Executor) -> None:
    """C8"""
    refused = TopicResult(error_code=44, error_message="No.")
    admin.create_topics.return_value = answers({"a": refused, "b": refused})
    assert {each.outcome for each in executor.apply([create("a"), create("b")])} == {Outcome.REFUSED}
    assert (admin.create_topics.call_count, executor.limits.max_batch_records) == (1, 100)


EXISTS = answers({"a": TopicResult(error_code=36, error_message="Topic 'a' already exists.")})


def test_a_topic_that_exists_as_planned_is_ours_and_described(admin: MagicMock, executor: Executor) -> None:
    """C18"""
    entry = ConfigEntry("retention.ms", "1", False, "DYNAMIC_TOPIC_CONFIG", False)
    admin.create_topics.side_effect = [LOST, EXISTS]
    admin.describe_topics.return_value = [live("a", "id-9", partitions=3, replicas=2)]
    admin.topic_configs.side_effect = lambda _: [TopicConfigs(topic="a", configs=(entry,))]
    (ended,) = executor.apply([create("a", num_partitions=3, configs={"retention.ms": "1"})])
    assert brief([ended]) == [("a", "ok", 0, "RECOVERED")]
    assert (ended.topic_id, ended.num_partitions, ended.replication_factor) == ("id-9", 3, 2)
    assert (ended.configs, ended.topic_config_error_code, ended.attempt) == ((entry,), 0, 2)
    assert "already exists" not in (ended.error_message or "")


@pytest.mark.parametrize(
    ("planned", "difference"),
    [
        ({"num_partitions": 4}, "num_partitions is 3, planned 4"),
        ({"replication_factor": 3}, "replication_factor is 2, planned 3"),
        ({"configs": {"retention.ms": "2"}}, "retention.ms is 1, planned 2"),
        ({"configs": {}}, "retention.ms is 1, not planned"),
    ],
)
def test_a_topic_that_exists_otherwise_than_planned_is_a_failure_that_says_how(
    admin: MagicMock, executor: Executor, planned: dict[str, Any], difference: str
) -> None:
    """C18"""
    admin.create_topics.side_effect = [LOST, EXISTS]
    admin.describe_topics.return_value = [live("a", partitions=3, replicas=2)]
    set_on_topic = (ConfigEntry("retention.ms", "1", False, "DYNAMIC_TOPIC_CONFIG", False),)
    admin.topic_configs.side_effect = lambda _: [TopicConfigs(topic="a", configs=set_on_topic)]
    (ended,) = executor.apply([create("a", **{"configs": {"retention.ms": "1"}, **planned})])
    assert brief([ended]) == [("a", "failed", 36, "TOPIC_ALREADY_EXISTS")]
    assert ended.error_message == f"the topic exists and is not as planned: {difference}"


def test_a_topic_that_differs_from_what_the_broker_resolved_is_not_taken_for_ours(
    admin: MagicMock, no_sleep: Callable[[float], None]
) -> None:
    """C18: the manifest leaves the counts to the broker, and validateOnly told them."""
    validated = {"a": TopicResult(num_partitions=6, replication_factor=2)}
    executor = executor_for(admin, no_sleep, validated=lambda _: validated)
    admin.create_topics.return_value = EXISTS
    admin.describe_topics.return_value = [live("a", partitions=3, replicas=2)]
    (ended,) = executor.apply([create("a", maybe_sent=True)])
    assert brief([ended]) == [("a", "failed", 36, "TOPIC_ALREADY_EXISTS")]
    assert ended.error_message == "the topic exists and is not as planned: num_partitions is 3, planned 6"


def test_a_broker_that_tells_no_counts_makes_no_other_counts_ours(
    admin: MagicMock, no_sleep: Callable[[float], None]
) -> None:
    """C10, C11, C18: validateOnly of an old broker returns nothing; the plan's own counts are compared."""
    executor = executor_for(admin, no_sleep, validated=lambda _: {"a": TopicResult()})
    admin.create_topics.return_value = EXISTS
    admin.describe_topics.return_value = [live("a", partitions=3, replicas=2)]
    (ended,) = executor.apply([create("a", num_partitions=6, replication_factor=2, maybe_sent=True)])
    assert brief([ended]) == [("a", "failed", 36, "TOPIC_ALREADY_EXISTS")]
    assert ended.error_message == "the topic exists and is not as planned: num_partitions is 3, planned 6"


@pytest.mark.parametrize("before", [(), (89,), (41,)], ids=["at once", "after the quota", "after another controller"])
def test_a_topic_that_exists_although_no_request_was_lost_may_be_ours(
    admin: MagicMock, executor: Executor, before: tuple[int, ...]
) -> None:
    """C18: a broker repeats a request by itself if the controller that carried it out goes down.

    It may be another client's, too, so it counts as neither.
    """
    admin.create_topics.side_effect = [*(answers({"a": code}) for code in before), EXISTS]
    admin.describe_topics.return_value = [live("a", partitions=3)]
    (ended,) = executor.apply([create("a", num_partitions=3)])
    assert brief([ended]) == [("a", "skipped", 0, None)]
    assert str(ended.error_message).startswith("the topic exists as planned: this request created it, if the broker")


def test_a_topic_that_another_client_created_otherwise_fails(admin: MagicMock, executor: Executor) -> None:
    """C6"""
    admin.create_topics.return_value = EXISTS
    admin.describe_topics.return_value = [live("a", partitions=3)]
    (ended,) = executor.apply([create("a", num_partitions=1)])
    assert brief([ended]) == [("a", "failed", 36, "TOPIC_ALREADY_EXISTS")]
    assert ended.error_message == "the topic exists and is not as planned: num_partitions is 3, planned 1"


@pytest.mark.parametrize(
    ("listed", "code", "right"),
    [(TopicInfo(topic="a", permitted=False), 0, "Describe"), (live("a"), 29, "DescribeConfigs")],
)
def test_a_topic_that_exists_and_can_not_be_described_is_failed_and_says_what_to_grant(
    admin: MagicMock, executor: Executor, listed: TopicInfo, code: int, right: str
) -> None:
    """C18, M3"""
    admin.create_topics.return_value = EXISTS
    admin.describe_topics.return_value = [listed]
    admin.topic_configs.side_effect = lambda _: [TopicConfigs(topic="a", error_code=code)]
    (ended,) = executor.apply([create("a", num_partitions=1, maybe_sent=True)])
    assert brief([ended]) == [("a", "failed", 36, "TOPIC_ALREADY_EXISTS")]
    assert f"grant it {right}, and plan again" in str(ended.error_message)


def test_a_topic_that_exists_is_waited_for_until_it_is_listed(
    admin: MagicMock, no_sleep: Callable[[float], None]
) -> None:
    """C21"""
    executor = executor_for(admin, no_sleep, retry_policy=RetryPolicy(attempts=ATTEMPTS, visibility=60.0))
    admin.create_topics.return_value = EXISTS
    admin.describe_topics.side_effect = [[], [], [live("a")]]
    assert brief(list(executor.apply([create("a", maybe_sent=True)]))) == [("a", "ok", 0, "RECOVERED")]


def test_a_topic_that_exists_and_is_never_listed_stays_open(admin: MagicMock, executor: Executor) -> None:
    """C21"""
    admin.create_topics.return_value = answers({"a": 36, "b": 0})
    both = [create("a", maybe_sent=True), create("b", maybe_sent=True)]
    assert brief(until_unknown(executor.apply(both))) == [("b", "ok", 0, None)]


def test_a_question_that_gets_no_answer_is_asked_again_and_not_for_ever(admin: MagicMock, executor: Executor) -> None:
    admin.create_topics.return_value = EXISTS
    admin.describe_topics.side_effect = [LOST, LOST, [live("a")]]
    assert [each.outcome for each in executor.apply([create("a", maybe_sent=True)])] == [Outcome.OK]
    admin.describe_topics.side_effect = [LOST] * ATTEMPTS
    assert until_unknown(executor.apply([create("a", maybe_sent=True)])) == []


def test_the_clusters_id_is_asked_for_until_a_broker_answers(admin: MagicMock, executor: Executor) -> None:
    """A run of many requests must not end for one that was lost before the first."""
    admin.describe_cluster.side_effect = [
        LOST,
        LOST,
        Cluster(cluster_id="kafka-main", brokers=(), gives_topic_ids=True),
    ]
    assert executor.live_cluster_id() == "kafka-main"
    admin.describe_cluster.side_effect = LOST
    with pytest.raises(OutcomeUnknown, match=f"{ATTEMPTS} attempts; start the run again with its id"):
        executor.live_cluster_id()


GONE: dict[str, tuple[list[TopicInfo], str, int, str | None]] = {
    "the name is gone too": ([], "ok", 0, None),
    "the listing is late": ([live("a", "id-1")], "ok", 0, None),
    "the topic was recreated": ([live("a", "id-2")], "failed", 100, "RECREATED"),
    "nobody may know": ([TopicInfo(topic="a", permitted=False)], "failed", 100, "UNKNOWN_TOPIC_ID"),
}


@pytest.mark.parametrize("case", GONE)
def test_a_delete_whose_topic_id_is_gone_is_done_unless_the_name_lives_on(
    admin: MagicMock, executor: Executor, case: str
) -> None:
    """D3, D7"""
    listed, outcome, code, error = GONE[case]
    admin.delete_topics.return_value = answers({"a": kafka.UNKNOWN_TOPIC_ID})
    admin.describe_topics.return_value = listed
    (ended,) = executor.apply([delete("a")])
    assert brief([ended]) == [("a", outcome, code, error)]
    assert ended.topic_id == "id-1"


def test_a_delete_by_name_that_finds_nothing_is_done(admin: MagicMock, executor: Executor) -> None:
    """D3"""
    admin.delete_topics.return_value = answers({"a": kafka.UNKNOWN_TOPIC_OR_PARTITION})
    assert brief(list(executor.apply([delete("a")]))) == [("a", "ok", 0, None)]
    assert brief(list(executor.apply([delete("a", maybe_sent=True)]))) == [("a", "ok", 0, "RECOVERED")]


BEFORE = {"num_partitions": "1", "replication_factor": "1", "assignments": "0:1"}


def without_id(topic: str, before: Mapping[str, str] = BEFORE, **fields: Any) -> Target:
    return Target(resource=topic, action=Action.DELETE, before=before, **fields)


def nameless(topic: str, **fields: Any) -> TopicInfo:
    """A live topic of a broker that gives no ids."""
    return replace(live(topic, **fields), topic_id=None)


def set_on(topic: str, **configs: str) -> TopicConfigs:
    entries = [ConfigEntry(name, value, False, "DYNAMIC_TOPIC_CONFIG", False) for name, value in configs.items()]
    default = ConfigEntry("segment.ms", "1", False, "DEFAULT_CONFIG", False)
    return TopicConfigs(topic=topic, configs=(*entries, default))


ANOTHER_SHAPE: dict[str, tuple[TopicInfo, TopicConfigs]] = {
    "more partitions": (nameless("a", partitions=2), set_on("a")),
    "more replicas": (nameless("a", replicas=2), set_on("a")),
    "another broker": (replace(nameless("a"), assignments={0: (7,)}), set_on("a")),
    "a config that is set now": (nameless("a"), set_on("a", x="1")),
}


@pytest.mark.parametrize("case", ANOTHER_SHAPE)
def test_a_topic_without_an_id_is_deleted_only_where_it_is_as_planned(
    admin: MagicMock, executor: Executor, case: str
) -> None:
    """D7: on such a broker, only the shape of a topic distinguishes it from a recreated one."""
    info, configs = ANOTHER_SHAPE[case]
    admin.describe_topics.return_value = [info]
    admin.topic_configs.side_effect = lambda _: [configs]
    assert brief(list(executor.apply([without_id("a")]))) == [("a", "failed", 3, "RECREATED")]
    admin.delete_topics.assert_not_called()


def test_a_topic_without_an_id_that_is_as_planned_is_deleted_by_name(admin: MagicMock, executor: Executor) -> None:
    """D7"""
    admin.describe_topics.return_value = [nameless("a")]
    admin.topic_configs.side_effect = lambda _: [set_on("a", x="1")]
    admin.delete_topics.return_value = answers({"a": 0})
    assert brief(list(executor.apply([without_id("a", {**BEFORE, "x": "1"})]))) == [("a", "ok", 0, None)]


@pytest.mark.parametrize(("code", "why"), [(29, "grant it DescribeConfigs"), (-1, "UNKNOWN")])
def test_a_topic_without_an_id_stays_if_its_configs_are_unknown(
    admin: MagicMock, executor: Executor, code: int, why: str
) -> None:
    """D7: another client may have recreated it with other configs."""
    admin.describe_topics.return_value = [nameless("a")]
    admin.topic_configs.side_effect = lambda _: [TopicConfigs(topic="a", error_code=code)]
    (ended,) = executor.apply([without_id("a")])
    assert (ended.outcome, why in str(ended.error_message)) == (Outcome.FAILED, True), ended
    admin.delete_topics.assert_not_called()


def test_a_delete_without_an_id_whose_answer_was_lost_is_not_repeated_while_the_name_is_there(
    admin: MagicMock, executor: Executor
) -> None:
    """D7: the first request may have deleted it, and what is there now may be somebody's new topic."""
    admin.describe_topics.return_value = [nameless("a")]
    admin.delete_topics.side_effect = LOST
    admin.create_topics.return_value = EXISTS
    with pytest.raises(StaysOpen, match="a: no known outcome"):
        list(executor.apply([without_id("a")]))
    assert len(sent(admin.delete_topics)) == 1
    admin.describe_topics.side_effect = [[nameless("a")], [], []]
    admin.create_topics.return_value = FREE
    assert brief(list(executor.apply([without_id("a")]))) == [("a", "ok", 0, "RECOVERED")]


def test_a_topic_without_an_id_that_is_not_listed_is_gone_only_where_the_controller_says_so(
    admin: MagicMock, executor: Executor
) -> None:
    """C21, D7: a broker that has just started lists nothing."""
    admin.describe_topics.return_value = []
    admin.create_topics.return_value = answers({"a": 36, "b": 0})
    assert brief(until_unknown(executor.apply([without_id("a"), without_id("b")]))) == [("b", "ok", 0, None)]
    assert [call.kwargs for call in admin.create_topics.call_args_list] == [{"validate_only": True}]
    admin.delete_topics.assert_not_called()


def test_a_topic_without_an_id_is_not_deleted_where_another_cluster_answers_after_it_was_compared(
    admin: MagicMock, executor: Executor
) -> None:
    """D7: comparing takes requests of its own, and the connection to the controller may be lost meanwhile."""
    admin.describe_topics.return_value = [nameless("a")]
    admin.connect_to_controller.side_effect = ["kafka-main", "kafka-other"]
    with pytest.raises(WrongCluster):
        list(executor.apply([without_id("a")]))
    admin.delete_topics.assert_not_called()


def test_a_saved_delete_without_an_id_is_refused(admin: MagicMock, executor: Executor) -> None:
    """D7"""
    (ended,) = executor.changed_since_plan([without_id("a")])
    assert brief([ended]) == [("a", "refused", -1, "CHANGED_SINCE_PLAN")]
    assert "with `provision`" in str(ended.error_message)


FREE = answers({"a": 0})
LEARNT: dict[str, tuple[Target, Response, list[TopicInfo], list[tuple[str, str, int, str | None]]]] = {
    "a create that was carried out": (create("a"), EXISTS, [live("a")], [("a", "ok", 0, "RECOVERED")]),
    "a create that was not": (create("a"), FREE, [], []),
    "a create of what is another's": (
        create("a", num_partitions=2), EXISTS, [live("a")], [("a", "failed", 36, "TOPIC_ALREADY_EXISTS")],
    ),
    "a delete that was carried out": (delete("a"), FREE, [], [("a", "ok", 0, "RECOVERED")]),
    "a delete that is still listed": (delete("a"), FREE, [live("a")], [("a", "ok", 0, "RECOVERED")]),
    "a delete that was not": (delete("a"), EXISTS, [live("a")], []),
    "a delete whose name has another topic": (
        delete("a"), EXISTS, [live("a", "id-2")], [("a", "failed", 100, "RECREATED")],
    ),
    "a delete, and whether it was is unknown": (delete("a"), answers({"a": 29}), [], [("a", "pending", 0, None)]),
    "the same, and it is there": (delete("a"), answers({"a": 29}), [live("a")], []),
    "a delete of a name that a broker's policy refuses": (
        delete("a"), answers({"a": 44}), [live("a")], [("a", "ok", 0, "RECOVERED")],
    ),
    "a delete, and an answer that tells nothing of the name": (delete("a"), answers({"a": 17}), [live("a")], []),
}  # fmt: skip


@pytest.mark.parametrize("case", LEARNT)
def test_outcomes_are_recovered_without_sending_again(admin: MagicMock, executor: Executor, case: str) -> None:
    """C18, D3: the controller is asked by validateOnly, since a listing lags (C21)."""
    target, answer, listed, expected = LEARNT[case]
    admin.create_topics.return_value = answer
    admin.describe_topics.return_value = listed
    assert brief(list(executor.recover([replace(target, maybe_sent=True)]))) == expected
    assert [call.kwargs for call in admin.create_topics.call_args_list] == [{"validate_only": True}]
    admin.delete_topics.assert_not_called()


def test_delete_that_may_be_done_is_never_called_refused(admin: MagicMock, executor: Executor) -> None:
    """A refusal found by a later start keeps it from being sent again; its row doesn't say that nothing was sent."""
    why = Withdrawn(error=Refusal.PLAN_EXPIRED, message="planned a week ago")
    executor.limits.moving = replace(executor.limits.moving, withdrawn={("delete", "a"): why})
    (ended,) = executor.apply([replace(delete("a"), maybe_sent=True)])
    assert brief([ended]) == [("a", "failed", -1, "PLAN_EXPIRED")]
    assert "an earlier start may have deleted it" in str(ended.error_message)
    admin.delete_topics.assert_not_called()


def test_answer_without_any_topic_halves_no_batch(admin: MagicMock, executor: Executor) -> None:
    """C15: no broker said that the request was too large."""
    admin.create_topics.return_value = answers({})
    before = executor.limits.max_batch_records
    rows = list(executor.validate([create("a"), create("b")]))
    assert {row.outcome for row in rows} == {Outcome.FAILED}
    assert executor.limits.max_batch_records == before


@pytest.mark.parametrize("target", [create("a"), delete("a")])
@pytest.mark.parametrize("answer", [EXISTS, FREE])
def test_answers_of_a_different_cluster_recover_nothing(
    admin: MagicMock, executor: Executor, target: Target, answer: Response
) -> None:
    """Also where it says that nothing was done: then the plan would be taken for refused, and it may be done."""
    admin.create_topics.return_value = answer
    admin.describe_topics.return_value = [live("a")] if answer is EXISTS else []
    admin.connect_to_controller.return_value = "kafka-other"
    with pytest.raises(WrongCluster):
        list(executor.recover([replace(target, maybe_sent=True)]))


def test_an_unknown_server_error_is_asked_again_and_brokers_show_the_outcome(
    admin: MagicMock, executor: Executor
) -> None:
    """N1: what answers -1 may have been done."""
    admin.create_topics.side_effect = [answers({"a": -1}), EXISTS]
    admin.describe_topics.return_value = [live("a")]
    assert brief(list(executor.apply([create("a")]))) == [("a", "ok", 0, "RECOVERED")]
    admin.delete_topics.side_effect = lambda _: answers({"a": -1})
    admin.create_topics.side_effect = lambda *_, **__: answers({"a": -1})
    assert brief(list(executor.apply([delete("a")]))) == [("a", "failed", -1, "UNKNOWN_SERVER_ERROR")]


def test_nothing_is_sent_where_another_cluster_answers(admin: MagicMock, executor: Executor) -> None:
    """The brokers' addresses may lead to a different cluster during a run."""
    admin.connect_to_controller.return_value = "kafka-other"
    with pytest.raises(WrongCluster, match="planned for cluster id kafka-main, its brokers now say kafka-other"):
        list(executor.apply([create("a")]))
    admin.create_topics.assert_not_called()


def test_leave_to_send_is_asked_for_after_everything_that_may_take_long(admin: MagicMock, clock: Clock) -> None:
    """Looking for the controller may take longer than what was allowed."""
    order: list[str] = []
    admin.connect_to_controller.side_effect = lambda: order.append("connected") or "kafka-main"
    admin.create_topics.side_effect = lambda *_, **__: order.append("sent") or answers({"a": 0})
    executor = paced(admin, clock, may_send=lambda: order.append("allowed"))
    list(executor.apply([create("a")]))
    assert order == ["connected", "allowed", "sent"]


def test_a_batch_is_never_compared_target_by_target(
    admin: MagicMock, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B7: where each of 4,000 deletes was looked for among the others, that took longer than deleting them."""

    def compared(*_: object) -> bool:
        raise AssertionError("targets were compared")

    monkeypatch.setattr(Target, "__eq__", compared)
    topics = [f"t{number}" for number in range(20)]
    admin.delete_topics.return_value = answers(dict.fromkeys(topics, 0))
    admin.create_topics.return_value = answers(dict.fromkeys(topics, 0))
    admin.describe_topics.return_value = [live(topic) for topic in topics]
    for targets in ([delete(topic) for topic in topics], [create(topic) for topic in topics]):
        assert len(list(executor.validate(targets))) == len(topics)
        assert len(list(executor.apply(targets))) == len(topics)


def test_deletes_that_the_brokers_have_turned_off_fail_each_and_are_warned_of_once(
    admin: MagicMock, executor: Executor, caplog: pytest.LogCaptureFixture
) -> None:
    """D8"""
    admin.delete_topics.return_value = answers({"a": 73, "b": 73})
    with caplog.at_level(logging.WARNING):
        ended = list(executor.apply([delete("a"), delete("b")]))
    assert brief(ended) == [(name, "failed", 73, "TOPIC_DELETION_DISABLED") for name in "ab"]
    assert len([record for record in caplog.records if "delete.topic.enable" in record.message]) == 1


def test_creates_are_validated_by_the_broker_and_nothing_is_created(admin: MagicMock, executor: Executor) -> None:
    """C5"""
    admin.create_topics.return_value = answers({"a": TopicResult(num_partitions=3), "b": 38})
    ended = list(executor.validate([create("a"), create("b")]))
    assert brief(ended) == [("a", "ok", 0, None), ("b", "failed", 38, "INVALID_REPLICATION_FACTOR")]
    assert {each.phase for each in ended} == {Phase.VALIDATE}
    assert ended[0].num_partitions == 3
    assert [call.kwargs for call in admin.create_topics.call_args_list] == [{"validate_only": True}]


def test_a_topic_that_exists_and_that_the_ledger_knows_as_ours_is_unchanged(
    admin: MagicMock, executor: Executor
) -> None:
    """C21, M3"""
    asked: list[list[str]] = []

    def created_by(topics: Any) -> dict[str, Maker]:
        asked.append(list(topics))
        return {"ours": Maker("earlier", "id-1")}

    executor.created_by = created_by
    admin.create_topics.return_value = answers({"ours": 36, "theirs": 36, "new": 0})
    ended = list(executor.validate([create("ours"), create("theirs"), create("new")]))
    assert brief(ended) == [
        ("new", "ok", 0, None),
        ("ours", "skipped", 36, "TOPIC_ALREADY_EXISTS"),
        ("theirs", "failed", 36, "TOPIC_ALREADY_EXISTS"),
    ]
    assert asked == [["ours", "theirs"]]


def test_a_broker_without_default_counts_is_not_asked_about_topics_that_need_them(
    admin: MagicMock, executor: Executor
) -> None:
    """C4"""
    admin.has_default_counts = False
    admin.create_topics.return_value = answers({"counted": 0, "assigned": 0})
    targets = [
        create("counted", num_partitions=1, replication_factor=1),
        create("assigned", assignments={0: (1,)}),
        create("half", num_partitions=1),
        create("bare"),
    ]
    ended = {each.topic: each for each in executor.validate(targets)}
    assert {topic: each.error for topic, each in ended.items()} == {
        "counted": None,
        "assigned": None,
        "half": "COUNTS_REQUIRED",
        "bare": "COUNTS_REQUIRED",
    }
    assert (ended["bare"].outcome, ended["bare"].error_code) == (Outcome.REFUSED, -1)
    assert sent(admin.create_topics) == [["counted", "assigned"]]


def test_a_broker_too_old_to_return_configs_is_warned_of_once(
    admin: MagicMock, executor: Executor, caplog: pytest.LogCaptureFixture
) -> None:
    """C11"""
    admin.returns_configs = False
    admin.create_topics.return_value = answers({"a": 0, "b": 0})
    with caplog.at_level(logging.WARNING):
        list(executor.validate([create("a"), create("b")]))
    assert len([record for record in caplog.records if "too old to return" in record.message]) == 1


def test_deletes_are_validated_by_a_fresh_look_and_never_sent(admin: MagicMock, executor: Executor) -> None:
    """D6"""
    admin.describe_topics.return_value = [live("a"), live("recreated", "id-2"), live("kept", authorized_operations=())]
    targets = [delete(topic) for topic in ("a", "recreated", "kept", "gone")]
    ended = list(executor.validate(targets))
    assert brief(ended) == [
        ("a", "ok", 0, None),
        ("recreated", "refused", -1, "RECREATED"),
        ("kept", "refused", 29, "TOPIC_AUTHORIZATION_FAILED"),
        ("gone", "refused", -1, "CHANGED_SINCE_PLAN"),
    ]
    assert admin.delete_topics.call_count == 0


def test_changes_since_a_saved_plan_are_refused(admin: MagicMock, executor: Executor) -> None:
    """D6"""
    there = [
        live("appeared", partitions=3),
        live("same"),
        live("ours"),
        live("again", "id-2"),
        live("set"),
        TopicInfo(topic="hidden", permitted=False),
        live("old"),
        live("redone", "x"),
    ]
    admin.describe_topics.side_effect = lambda topics: [info for info in there if info.topic in topics]
    flush = ConfigEntry("flush.ms", "6", False, "DYNAMIC_TOPIC_CONFIG", False)
    admin.topic_configs.side_effect = lambda topics: [
        TopicConfigs(topic=topic, configs=(flush,) if topic == "set" else ()) for topic in topics
    ]
    executor.created_by = lambda topics: {name: Maker("run-2", "id-1") for name in ("ours", "again")}
    creates = [create(name, num_partitions=1) for name in ("new", "appeared", "same", "ours", "again", "set", "hidden")]
    ended = list(executor.changed_since_plan([*creates, delete("old"), delete("redone"), delete("gone")]))
    assert brief(ended) == [
        ("redone", "refused", -1, "RECREATED"),
        ("gone", "refused", -1, "CHANGED_SINCE_PLAN"),
        ("appeared", "refused", -1, "CHANGED_SINCE_PLAN"),
        ("same", "skipped", 0, None),
        ("ours", "skipped", 0, None),
        ("again", "skipped", 0, None),
        ("set", "refused", -1, "CHANGED_SINCE_PLAN"),
    ]
    assert {each.phase for each in ended} == {Phase.APPLY}
    messages = {each.topic: each.error_message for each in ended}
    assert messages["ours"] == "the topic exists as planned: run run-2 created it since the plan"
    # Another client deleted the topic of run-2 and created this one.
    assert messages["again"] == "the topic exists as planned: another client created it since the plan"
    assert "flush.ms is 6, not planned; another client created it; plan again" in str(messages["set"])


def test_a_change_whose_answer_was_lost_is_not_refused(admin: MagicMock, executor: Executor) -> None:
    """C12, K6: refused means that nothing was sent. Another client changes it before the request is repeated."""
    found = ["1"]
    admin.describe_topics.side_effect = lambda topics: [live(topic) for topic in topics]
    admin.topic_configs.side_effect = lambda topics, names: [
        TopicConfigs(topic=topic, configs=(ConfigEntry("flush.ms", found[-1], False, "DYNAMIC_TOPIC_CONFIG", False),))
        for topic in topics
    ]

    def lose(targets: Sequence[Target], *, validate_only: bool) -> Response:
        found.append("7")
        raise LOST

    admin.alter_configs.side_effect = lose
    change = {"before": {"flush.ms": "1"}, "after": {"flush.ms": "2"}}
    (ended,) = executor.apply([Target(resource="a", action=Action.ALTER_CONFIGS, topic_id="id-1", **change)])
    assert brief([ended]) == [("a", "failed", -1, "CHANGED_SINCE_PLAN")]
    assert "the answer to an earlier request for it was lost" in str(ended.error_message)
    assert admin.alter_configs.call_count == 1


@pytest.mark.parametrize(("maybe_sent", "outcome"), [(False, "refused"), (True, "failed")])
def test_a_change_that_may_have_been_sent_before_another_clients_is_not_called_unsent(
    admin: MagicMock, executor: Executor, maybe_sent: bool, outcome: str
) -> None:
    """C18: the driver died after its request, and another client changed the value again before the next start.

    A random walk of whole runs found this: seed 9101, history 11418.
    """
    admin.topic_configs.side_effect = lambda topics, names: [set_on("a", **{"flush.ms": "9"})]
    admin.describe_topics.side_effect = lambda topics: [live("a")]
    change = {"before": {"flush.ms": "1"}, "after": {"flush.ms": "2"}, "maybe_sent": maybe_sent}
    (ended,) = executor.changed_since_plan(
        [Target(resource="a", action=Action.ALTER_CONFIGS, topic_id="id-1", **change)]
    )
    assert brief([ended]) == [("a", outcome, -1, "CHANGED_SINCE_PLAN")]


def test_a_delete_that_may_have_been_sent_and_is_not_listed_is_left_to_the_same_delete(
    admin: MagicMock, executor: Executor
) -> None:
    """C21, D3: a broker that has just started lists nothing; without a right to create the controller doesn't tell."""
    maybe_sent = delete("a", maybe_sent=True)
    assert list(executor.changed_since_plan([maybe_sent])) == []
    admin.delete_topics.return_value = answers({"a": 100})
    assert brief(list(executor.apply([maybe_sent]))) == [("a", "ok", 0, "RECOVERED")]


CREATE, DELETE = create("a", num_partitions=3), delete("a")
ANSWER = TopicResult(topic_id="id-1", num_partitions=3)
UNTOLD = TopicResult()
HIDDEN = TopicInfo(topic="a", permitted=False)

VERDICTS: dict[str, tuple[Target, TopicResult, TopicInfo | None, tuple[Outcome, int, Refusal | None]]] = {
    "created, all there": (CREATE, ANSWER, live("a", partitions=3), (Outcome.OK, 0, None)),
    "created, not listed": (CREATE, ANSWER, None, (Outcome.PENDING, 0, None)),
    "created, no leader yet": (
        CREATE,
        ANSWER,
        live("a", partitions=3, other_leaders={0: -1}),
        (Outcome.PENDING, 0, None),
    ),
    "created, partitions to come": (CREATE, ANSWER, live("a", partitions=2), (Outcome.PENDING, 0, None)),
    "created, then recreated": (
        CREATE,
        ANSWER,
        live("a", "id-2", partitions=3),
        (Outcome.FAILED, -1, Refusal.RECREATED),
    ),
    "created, too many partitions": (
        CREATE,
        ANSWER,
        live("a", partitions=4),
        (Outcome.FAILED, -1, Refusal.DIFFERS_FROM_PLAN),
    ),
    "created, other replicas": (
        replace(CREATE, replication_factor=2),
        ANSWER,
        live("a", partitions=3),
        (Outcome.FAILED, -1, Refusal.DIFFERS_FROM_PLAN),
    ),
    "created, answer told nothing": (CREATE, UNTOLD, live("a", partitions=3), (Outcome.OK, 0, None)),
    "created by defaults": (create("a"), UNTOLD, live("a", partitions=7, replicas=2), (Outcome.OK, 0, None)),
    "deleted, gone": (DELETE, UNTOLD, None, (Outcome.OK, 0, None)),
    "deleted, still listed": (DELETE, UNTOLD, live("a", "id-1"), (Outcome.PENDING, 0, None)),
    "deleted, then recreated": (DELETE, UNTOLD, live("a", "id-2"), (Outcome.OK, 0, Refusal.RECREATED)),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_acknowledged_creates_are_ok_failed_or_not_visible_yet(case: str) -> None:
    """C10, C21, M2"""
    target, result, info, expected = VERDICTS[case]
    outcome, code, note, message = (deletes if target.action == "delete" else creates).verdict(target, result, info)
    assert (outcome, code, note) == expected
    assert (message is None) == (outcome is Outcome.OK and note is None)


@pytest.mark.parametrize("target", [CREATE, DELETE], ids=lambda target: target.action)
def test_undescribable_topics_are_not_verified(admin: MagicMock, executor: Executor, target: Target) -> None:
    """M3"""
    admin.describe_topics.return_value = [HIDDEN]
    (ended,) = executor.verify([(target, UNTOLD)])
    assert (ended.outcome, ended.error_code, ended.num_partitions) == (Outcome.SKIPPED, 29, None)


def test_verify_tells_what_it_saw(admin: MagicMock, executor: Executor) -> None:
    """C21"""
    admin.describe_topics.return_value = [live("a", "id-1", partitions=3, replicas=2), live("old", "id-5")]
    applied = [(CREATE, ANSWER), (create("late"), ANSWER), (delete("old", "id-4"), UNTOLD)]
    old, a, late = executor.verify(applied)
    assert (a.outcome, a.phase, a.topic_id, a.num_partitions, a.replication_factor) == ("ok", "verify", "id-1", 3, 2)
    assert (late.outcome, late.topic_id, late.num_partitions) == ("pending", None, None)
    assert (old.outcome, old.error, old.topic_id) == ("ok", "RECREATED", "id-4")
    assert list(executor.verify([])) == []


REFUSALS: dict[str, tuple[TopicInfo | None, int | Refusal | None]] = {
    "as planned": (live("a"), None),
    "operations untold": (live("a", authorized_operations=None), None),
    "may delete": (live("a", authorized_operations=("DELETE", "DESCRIBE")), None),
    "may not delete": (live("a", authorized_operations=("DESCRIBE",)), 29),
    "may do nothing": (live("a", authorized_operations=()), 29),
    "may not be described": (HIDDEN, 29),
    "gone": (None, Refusal.CHANGED_SINCE_PLAN),
    "recreated": (live("a", "id-2"), Refusal.RECREATED),
    "internal": (live("a", internal=True), Refusal.POLICY_VIOLATION),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_delete_is_sent_only_for_the_topic_that_was_planned_and_may_go(case: str) -> None:
    """D4, D6, D9"""
    info, expected = REFUSALS[case]
    refusal = delete_refusal(DELETE, info)
    assert (refusal[0] if refusal else None) == expected
    assert refusal is None or refusal[1]


DIFFERENCES: dict[str, tuple[Target, Mapping[str, str | None] | None, str | None]] = {
    "nothing planned": (create("a"), {"x": "1"}, None),
    "same counts": (create("a", num_partitions=2, replication_factor=2), {}, None),
    "same assignments": (create("a", assignments={1: (1, 2), 0: (1, 2)}), {}, None),
    "other leader": (create("a", assignments={0: (2, 1), 1: (1, 2)}), {}, "assignments differ"),
    "same config": (create("a", configs={"x": "1"}), {"x": "1", "y": "2"}, None),
    "config in capitals and spaces": (create("a", configs={"x": " TRUE "}), {"x": "true"}, None),
    "a list in another order": (
        create("a", configs={"cleanup.policy": "delete, compact", "leader.replication.throttled.replicas": "0:1,1:1"}),
        {"cleanup.policy": "compact,delete", "leader.replication.throttled.replicas": "1:1,0:1"},
        None,
    ),
    "a name in another case": (
        create("a", configs={"compression.type": "LZ4"}),
        {"compression.type": "lz4"},
        "compression.type is lz4, planned LZ4",
    ),
    "a comma that makes no list": (create("a", configs={"x": "1,2"}), {"x": "2,1"}, "x is 2,1, planned 1,2"),
    "sensitive config": (create("a", configs={"x": "1"}), {"x": None}, None),
    "configs unreadable": (create("a", configs={"x": "1"}), None, None),
    "all of it": (
        create("a", num_partitions=3, replication_factor=1, configs={"z": "1", "x": "1"}),
        {"x": "2", "z": "3"},
        "num_partitions is 2, planned 3; replication_factor is 2, planned 1; x is 2, planned 1; z is 3, planned 1",
    ),
}


@pytest.mark.parametrize("case", DIFFERENCES)
def test_only_what_the_plan_says_can_differ_from_it(case: str) -> None:
    """C18"""
    target, configs, expected = DIFFERENCES[case]
    assert difference_from_plan(target, live("a", partitions=2, replicas=2), configs) == expected
