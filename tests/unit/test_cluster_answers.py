"""Answers about groups and records that a real broker doesn't give on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.admin import (
    AlterPartitionReassignmentsResponse,
    DeleteTopicsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from tests.unit.answering import TOPIC, Coordinator, connection, live, log_dirs, topic
from topicledger.errors import ClusterError
from topicledger.kafka import ClusterAdmin, RequestLost, groups, members, offsets, unseen
from topicledger.model import GroupUse

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


def election(code: int) -> Any:
    """An answer of a controller, about two partitions."""
    named = ElectLeadersResponse.ReplicaElectionResult
    parts = [
        named.PartitionResult(partition_id=0, error_code=0, error_message=None),
        named.PartitionResult(partition_id=1, error_code=code, error_message=None),
    ]
    elected = [named(topic="a", partition_result=parts)]
    return ElectLeadersResponse(throttle_time_ms=0, error_code=0, replica_election_results=elected)


def deletion(code: int) -> Any:
    deleted = DeleteTopicsResponse.DeletableTopicResult(name="a", error_code=code)
    return DeleteTopicsResponse(throttle_time_ms=0, responses=[deleted])


def reassignment(code: int) -> Any:
    return AlterPartitionReassignmentsResponse(throttle_time_ms=0, error_code=code, error_message=None, responses=[])


@pytest.mark.parametrize("answer", [election, deletion, reassignment])
def test_an_answer_of_a_former_controller_is_noticed_wherever_it_is(answer: Callable[[int], Any]) -> None:
    """The next request must find out which broker is the controller (C13)."""
    admin: Any = ClusterAdmin.__new__(ClusterAdmin)
    for code, controller_id in ((0, 1), (41, None)):
        admin._admin = SimpleNamespace(_controller_id=1)
        admin._manager = SimpleNamespace(send=None, run=lambda *_, code=code: answer(code))
        admin.change(ElectLeadersRequest())
        assert admin._admin._controller_id == controller_id


def test_topics_are_hidden_only_where_the_principal_may_not_describe_them() -> None:
    """M3: one that was deleted meanwhile is unknown (3), one that was created meanwhile is described."""
    codes = {"hidden": 29, "gone": 3, "new": 0}

    def metadata(names: Sequence[str]) -> Any:
        return live(*(topic(name, 1, error_code=codes[name]) for name in names))

    made = connection(lambda request, broker_id: log_dirs(*codes), metadata)
    assert unseen.unseen_topics(made) == 1


def acls(*resources: tuple[str, int], error_code: int = 0) -> Any:
    """An answer with ACLs on topics, by name and type of pattern."""
    named = [SimpleNamespace(resource_name=name, pattern_type=kind) for name, kind in resources]
    return SimpleNamespace(error_code=error_code, resources=named)


LITERAL, PREFIXED = 3, 4


@pytest.mark.parametrize(
    ("listed", "hidden", "known"),
    [
        pytest.param(acls(error_code=54), "", True, id="no authorizer"),
        pytest.param(acls(), "nothing", True, id="super user"),
        pytest.param(acls(("*", LITERAL), ("a", LITERAL), ("b", PREFIXED)), "nothing", True, id="all allowed"),
        pytest.param(acls(("b", PREFIXED)), "Q", False, id="only a prefix allowed"),
        pytest.param(acls(("*", LITERAL), ("a", LITERAL)), "a", False, id="one denied"),
        pytest.param(acls(("*", LITERAL), ("b", PREFIXED)), "bQ", False, id="a prefix denied"),
        pytest.param(acls(error_code=31), "nothing", False, id="not told"),
        pytest.param(acls(error_code=-1), "nothing", False, id="no answer"),
    ],
)
def test_a_broker_that_is_down_may_have_hidden_topics_unless_acls_hide_none(
    listed: Any, hidden: str, known: bool
) -> None:
    """M3: a topic that only it has is in no log directory of a broker that is up, and no listing shows it."""

    def metadata(names: Sequence[str]) -> Any:
        return live(*(topic(name, error_code=29 if name.startswith(hidden) else 3) for name in names))

    asked: list[str] = []

    def answer(request: Any, broker_id: int | None = None) -> Any:
        asked.append(type(request).__name__)
        return listed if asked[-1] == "DescribeAclsRequest" else log_dirs()

    made = connection(answer, metadata)
    assert unseen.unseen_topics(made, on=1) == 0, "it is up"
    assert "DescribeAclsRequest" not in asked
    if known:
        assert unseen.unseen_topics(made, on=3) == 0
    else:
        with pytest.raises(ClusterError, match=r"broker 3 is down and may have topics|permissions on topics can't be"):
            unseen.unseen_topics(made, on=3)


def test_a_log_directory_that_cannot_be_read_may_hold_hidden_topics() -> None:
    made = connection(lambda request, broker_id: log_dirs(error_code=56), lambda names: live())
    with pytest.raises(ClusterError, match=r"cluster main: .* from broker 1 \(KAFKA_STORAGE_ERROR\)"):
        unseen.unseen_topics(made)


class Rebalancing(Coordinator):
    """The group `g` has a member, and never settles."""

    committed = True

    def answer(self, request: Any, broker_id: int | None = None) -> Any:
        self.group.group_state = "PreparingRebalance"
        answered = super().answer(request, broker_id)
        if getattr(request, "groups", None) == ["g"]:
            member = SimpleNamespace(member_metadata=b"", member_assignment=b"")
            described = {"error_code": 0, "group_id": "g", "protocol_type": "consumer", "members": [member]}
            return SimpleNamespace(groups=[SimpleNamespace(**described, group_state="PreparingRebalance")])
        if type(request).__name__ == "OffsetFetchRequest" and not self.committed:
            answered.groups[0].topics = []
        return answered


def test_a_group_that_keeps_rebalancing_counts_where_it_has_committed_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only for the memory of audits: before a delete, every group must be known."""
    monkeypatch.setattr(groups, "_PAUSE_SECONDS", 0.0)
    coordinator = Rebalancing()
    coordinator.connection.operation_timeout = 0.0
    topics = [TOPIC, "idle"]
    with pytest.raises(RequestLost, match="group g: it is rebalancing"):
        groups.consumer_groups(coordinator.connection, topics)
    known = groups.known_groups(coordinator.connection, topics)
    (use,) = known.uses
    assert (use.topic, use.group, use.members, use.committed) == (TOPIC, "g", 1, True)
    assert "(group g: it is rebalancing)" in str(known.unknown)
    coordinator.committed = False
    with pytest.raises(RequestLost, match="group g: it is rebalancing"):
        groups.known_groups(coordinator.connection, topics)


class Settling(Rebalancing):
    """The group rebalances while all groups are read for the first time; each answer takes 20 s."""

    now, passes = 1000.0, 0

    def answer(self, request: Any, broker_id: int | None = None) -> Any:
        self.now += 20
        self.passes += type(request).__name__ == "ListGroupsRequest"
        if self.passes <= 1:
            return super().answer(request, broker_id)
        self.group.group_state = "Empty"
        return Coordinator.answer(self, request, broker_id)


def test_a_rebalancing_group_is_read_again_however_long_all_groups_took(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Settling()
    coordinator.connection.operation_timeout = 10.0
    monkeypatch.setattr(groups, "time", SimpleNamespace(monotonic=lambda: coordinator.now, sleep=lambda _: None))
    (use,) = groups.consumer_groups(coordinator.connection, [TOPIC, "idle"])
    assert (use.topic, use.group, use.members, use.committed) == (TOPIC, "g", 0, True)
    assert coordinator.passes == 2


USED = [GroupUse(topic=TOPIC, group="g", members=0, committed=True)]


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_coordinator_that_is_not_ready_is_asked_again(coordinator: Coordinator, code: int) -> None:
    coordinator.list_codes = iter([code])
    coordinator.offset_codes = iter([code])
    assert groups.consumer_groups(coordinator.connection, [TOPIC]) == USED


@pytest.mark.parametrize("probes", [[16, 0], [69, 14]], ids=["not there yet", "gone meanwhile"])
def test_groups_that_are_handed_over_during_the_listing_are_listed_again(
    coordinator: Coordinator, probes: list[int]
) -> None:
    """Neither the old coordinator nor the new one lists them at that moment, and neither says so."""
    coordinator.probe_codes = iter(probes)
    assert groups.consumer_groups(coordinator.connection, [TOPIC]) == USED
    lists = [call for call in coordinator.connection.ask.call_args_list if "ListGroups" in type(call.args[0]).__name__]
    assert len(lists) == 2


@pytest.mark.parametrize(
    ("bend", "why"),
    [
        (
            {"leaders": [topic("__consumer_offsets", 1, -1)] * 100},
            r"partitions \[1\] of __consumer_offsets have no lead",
        ),
        (
            {"leaders": [topic("__consumer_offsets", 1, 2)] * 100},
            r"partitions \[1\] of __consumer_offsets have no lead",
        ),
        ({"probe_codes": [16] * 100}, "the list of groups of broker 1: NOT_COORDINATOR"),
        ({"list_codes": [14] * 100}, "the list of groups of broker 1: COORDINATOR_LOAD_IN_PROGRESS"),
        ({"offset_codes": [16] * 100}, "group g: NOT_COORDINATOR"),
    ],
)
def test_unstable_groups_are_an_error_and_not_absent(
    coordinator: Coordinator, bend: dict[str, list[Any]], why: str
) -> None:
    for name, values in bend.items():
        setattr(coordinator, name, iter(values))
    with pytest.raises(RequestLost, match=rf"cluster main: .*{why}"):
        groups.consumer_groups(coordinator.connection, [TOPIC])


def test_a_group_that_its_coordinator_leaves_out_is_an_error(coordinator: Coordinator) -> None:
    coordinator.forgets = True
    with pytest.raises(RequestLost, match="group g: its coordinator gave no answer about it"):
        groups.consumer_groups(coordinator.connection, [TOPIC])


def test_a_group_of_a_type_to_come_is_an_error(coordinator: Coordinator) -> None:
    coordinator.group.group_type = "quantum"
    with pytest.raises(ClusterError, match="group g has a type that this topicledger doesn't know, quantum"):
        groups.consumer_groups(coordinator.connection, [TOPIC])


def subscription(*topics: str) -> bytes:
    return bytes(
        ConsumerProtocolSubscription(
            version=3, topics=list(topics), user_data=None, owned_partitions=[], generation_id=1, rack_id=None
        ).encode()
    )


def assignment(*topics: str) -> bytes:
    part = ConsumerProtocolAssignment.TopicPartition
    partitions = [part(topic=name, partitions=[0]) for name in topics]
    return bytes(ConsumerProtocolAssignment(version=1, assigned_partitions=partitions, user_data=None).encode())


def classic_group(*described: tuple[bytes, bytes], protocol_type: str = "consumer", state: str = "Stable") -> Any:
    return SimpleNamespace(
        protocol_type=protocol_type,
        group_state=state,
        members=[SimpleNamespace(member_metadata=sub, member_assignment=ass) for sub, ass in described],
    )


def test_members_of_the_classic_protocol_are_counted_by_what_is_assigned_to_them() -> None:
    """A newer version of the protocol only adds at the end."""
    newer = b"\x00\x09" + subscription("a", "b")[2:] + b"more"
    found = members.classic(classic_group((subscription("a", "b"), assignment("a")), (newer, b"")))
    assert (found.count, dict(found.assigned), dict(found.subscribed)) == (2, {"a": 1}, {"a": 2, "b": 2})
    assert found.unknown is None


@pytest.mark.parametrize(
    "garbage", [b"", b"\x00", b"\x00\x01\x7f\xff\xff\xff", b"\x00\x00\x00\x00\x00\x01\x00\x02\xff\xff"]
)
def test_a_subscription_that_nobody_can_read_is_unknown_and_not_empty(garbage: bytes) -> None:
    found = members.classic(classic_group((garbage, b"")))
    assert "not in the consumer protocol's form" in str(found.unknown)


def test_a_group_for_something_else_than_reading_uses_nothing() -> None:
    found = members.classic(classic_group((b"what Kafka Connect says", b""), protocol_type="connect"))
    assert (found.unknown, found.assigned, found.subscribed) == (None, {}, {})


def test_a_streams_member_uses_what_its_tasks_read_and_write() -> None:
    """KIP-1071"""
    named = SimpleNamespace
    part = named(
        subtopology_id="1",
        source_topics=["in"],
        repartition_sink_topics=["out-repartition"],
        state_changelog_topics=[named(name="store-changelog")],
        repartition_source_topics=[named(name="in-repartition")],
    )
    other = named(**{**vars(part), "subtopology_id": "2", "source_topics": ["elsewhere"]})
    none = named(active_tasks=[], standby_tasks=[], warmup_tasks=[])
    busy = named(**{**vars(none), "standby_tasks": [named(subtopology_id="1", partitions=[0])]})
    group = named(
        members=[named(assignment=busy, target_assignment=none), named(assignment=none, target_assignment=none)],
        topology=named(subtopologies=[part, other]),
        group_state="Stable",
    )
    found = members.streams(group)
    assert dict(found.assigned) == dict.fromkeys(["in", "out-repartition", "store-changelog", "in-repartition"], 1)
    assert found.subscribed["elsewhere"] == 2
    group.topology = None
    assert "topology" in str(members.streams(group).unknown)


def records_of(answers: dict[int, Callable[[], tuple[int, int, int]]], *topics: Any) -> list[Any]:
    """Return the last records of topics whose partitions all answer (error code, offset, timestamp) to ListOffsets."""

    def answer(request: Any, broker_id: int | None = None) -> Any:
        def told(partition: Any) -> Any:
            code, offset, at = answers[partition.timestamp]()
            return SimpleNamespace(
                partition_index=partition.partition_index, error_code=code, offset=offset, timestamp=at
            )

        return SimpleNamespace(
            topics=[
                SimpleNamespace(name=each.name, partitions=[told(partition) for partition in each.partitions])
                for each in request.topics
            ]
        )

    def metadata(names: Sequence[str]) -> Any:
        return live(*(each for each in topics if each.name in names))

    return offsets.last_records(connection(answer, metadata), [each.name for each in topics])


def always(*values: int) -> Callable[[], Any]:
    return lambda: values


WRITTEN = {LATEST: always(0, 5, -1), EARLIEST: always(0, 0, -1), MAX_TIMESTAMP: always(0, 4, 1_000)}


def test_a_topic_without_a_leader_is_an_error_of_its_own() -> None:
    lost, there = records_of(WRITTEN, topic("lost", 1, -1), topic("there", 1, 1))
    assert "partitions [1] have no leader" in str(lost.error)
    assert (there.end_offset, there.error) == (10, None)


def test_a_partition_whose_leader_moved_is_asked_again() -> None:
    codes = iter([6, 0])
    (found,) = records_of({**WRITTEN, EARLIEST: lambda: (next(codes), 0, -1)}, topic("moved", 1))
    assert (found.end_offset, found.error) == (5, None)


@pytest.mark.parametrize(
    ("newest", "why"),
    [
        ((0, 4, 2**60), "is not a date"),
        ((43, -1, -1), "too old to return the time"),
        ((56, -1, -1), "KAFKA_STORAGE_ERROR; it was asked for 0.5 s"),
        ((2, -1, -1), "CORRUPT_MESSAGE"),
    ],
)
def test_a_missing_time_is_an_error_and_not_no_records(newest: tuple[int, int, int], why: str) -> None:
    (found,) = records_of({**WRITTEN, MAX_TIMESTAMP: always(*newest)}, topic("odd", 1))
    assert why in str(found.error)
    assert (found.end_offset, found.last_record_at) == (None, None)


def test_the_time_of_a_deleted_record_does_not_count() -> None:
    (found,) = records_of({**WRITTEN, EARLIEST: always(0, 5, -1)}, topic("dropped", 1))
    assert (found.end_offset, found.last_record_at, found.error) == (5, None, None)


def test_a_topic_that_no_broker_answers_about_is_an_error() -> None:
    def forgetful(names: Sequence[str]) -> Any:
        return live()

    (found,) = offsets.last_records(connection(lambda request, broker_id=None: None, forgetful), ["forgotten"])
    assert "no broker gave an answer about it" in str(found.error)
