"""Changes that an earlier start may have sent: where the cluster doesn't show that nothing was done, none is refused.

The plan's age, and changed tables, refuse what `recover` leaves; refused means not sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, create_autospec

import pytest

from tests.unit.executing import executor_for
from topicledger.apply.executor import Executor
from topicledger.kafka import ClusterAdmin, Response
from topicledger.kafka.reassignments import PartitionState, TopicState
from topicledger.model import Action, ConfigEntry, Refusal, ReplicaAction, Target, TopicConfigs, TopicInfo, TopicResult
from topicledger.model.moves import Withdrawn

ALTER = Target(
    resource="a", action=Action.ALTER_CONFIGS, topic_id="id", maybe_sent=True,
    before={"flush.ms": "1", "x": "1"}, after={"flush.ms": "2", "x": "2"},
)  # fmt: skip
OF_GROUP = replace(ALTER, action="alter_group_configs", topic_id=None)
ELECT = Target(
    resource="a", action=ReplicaAction.ELECT_LEADERS, topic_id="id", maybe_sent=True, after={"partitions": "0,1"}
)
WITHDRAWN = Withdrawn(error=Refusal.PLAN_EXPIRED, message="planned a week ago")


@pytest.fixture
def admin() -> MagicMock:
    stand_in: MagicMock = create_autospec(ClusterAdmin, instance=True)
    stand_in.name = "main"
    stand_in.connect_to_controller.return_value = "kafka-main"
    stand_in.describe_topics.side_effect = lambda topics: [TopicInfo(topic=each, topic_id="id") for each in topics]
    return stand_in


@pytest.fixture
def executor(admin: MagicMock, no_sleep: Callable[[float], None]) -> Executor:
    return executor_for(admin, no_sleep, clock=iter(range(0, 100_000, 10)).__next__)


def shows(admin: MagicMock, values: Mapping[str, str] | int) -> None:
    """The cluster describes the configs of the topic and of the group, or answers this error."""
    code, found = (values, {}) if isinstance(values, int) else (0, values)
    entries = tuple(ConfigEntry(name, value, False, "DYNAMIC_TOPIC_CONFIG", False) for name, value in found.items())
    configs: Any = {"error_code": code} if code else {"configs": entries}
    admin.topic_configs.side_effect = lambda *_: [TopicConfigs(topic="a", **configs)]
    of_group = [SimpleNamespace(name=name, value=value, config_source=8) for name, value in found.items()]
    group = SimpleNamespace(resource_name="a", error_code=code, configs=of_group)
    admin.ask.return_value = SimpleNamespace(results=[group])


def ends(executor: Executor, target: Target) -> list[tuple[str, str | None]]:
    return [(row.outcome.value, row.error) for row in executor.recover([target])]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"flush.ms": "2", "x": "2"}, [("ok", "RECOVERED")]),
        ({"flush.ms": "1", "x": "1"}, []),
        ({"flush.ms": "2", "x": "1"}, [("pending", None)]),
        ({"flush.ms": "2", "x": "9"}, [("failed", "CHANGED_SINCE_PLAN")]),
        (29, [("failed", "NOT_PERMITTED")]),
        (-1, [("failed", "NO_ANSWER")]),
    ],
    ids=str,
)
@pytest.mark.parametrize("target", [ALTER, OF_GROUP], ids=lambda each: str(each.action))
def test_altered_values_that_may_be_ours_are_never_refused(
    admin: MagicMock, executor: Executor, target: Target, values: Mapping[str, str] | int, expected: Any
) -> None:
    """C18, K6: only values that are all as before show that nothing was done."""
    code = 30 if target is OF_GROUP and values == 29 else values
    shows(admin, code)
    assert ends(executor, target) == expected


def test_a_topic_that_is_hidden_fails(admin: MagicMock, executor: Executor) -> None:
    """C18: it isn't known whether it was altered, or its leaders were elected."""
    admin.describe_topics.side_effect = lambda topics: [TopicInfo(topic=each, permitted=False) for each in topics]
    admin.topic_states.side_effect = lambda topics: dict.fromkeys(topics, TopicState(permitted=False))
    assert ends(executor, ALTER) == ends(executor, ELECT) == [("failed", "NOT_PERMITTED")]


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_create_fails_if_its_right_is_gone(admin: MagicMock, executor: Executor, is_listed: bool) -> None:
    """C18: the controller checks the right before it looks for the topic, which an earlier request may have created."""
    denied = TopicResult(error_code=29)
    admin.create_topics.side_effect = lambda targets, **_: Response(
        results={each.topic: denied for each in targets}, throttle_time_ms=0
    )
    found = [TopicInfo(topic="a", permitted=False)] if is_listed else []
    admin.describe_topics.side_effect = lambda _: found
    (ended,) = executor.recover([replace(ELECT, action=Action.CREATE, topic_id=None, after={})])
    assert (ended.outcome.value, ended.error) == ("failed", "TOPIC_AUTHORIZATION_FAILED")
    assert "this doesn't tell whether an earlier request of this run created the topic" in str(ended.error_message)


@pytest.mark.parametrize(
    ("leaders", "expected"), [((1, 1), [("ok", "RECOVERED")]), ((2, 2), []), ((1, 2), [("pending", None)])]
)
def test_elections_that_are_half_done_are_never_refused(
    admin: MagicMock, executor: Executor, leaders: tuple[int, int], expected: Any
) -> None:
    """C18, R7: each partition is elected separately."""
    partitions = {number: PartitionState((1, 2), frozenset({1, 2}), led) for number, led in enumerate(leaders)}
    state = TopicState(topic_id="id", partitions=partitions)
    admin.topic_states.side_effect = lambda topics: dict.fromkeys(topics, state)
    assert ends(executor, ELECT) == expected


@pytest.mark.parametrize("target", [ALTER, OF_GROUP, ELECT], ids=lambda each: str(each.action))
def test_withdrawn_changes_fail_since_they_may_be_done(executor: Executor, target: Target) -> None:
    executor.limits.moving = replace(
        executor.limits.moving, withdrawn={(str(target.action), "a"): WITHDRAWN, ("reassign", "a"): WITHDRAWN}
    )
    (ended,) = executor.apply([target])
    assert (ended.outcome.value, ended.error) == ("failed", "PLAN_EXPIRED")
    assert "planned a week ago; an earlier start may have " in str(ended.error_message)
