"""Usage of topics when brokers refuse, fail or change: what they don't report is missing, with a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.answering import DESCRIBE, connection
from topicledger.kafka import RequestLost, usage
from topicledger.kafka.groups import KnownUses
from topicledger.kafka.usage import MEASURED, TopicUsage, topic_usage
from topicledger.model import GroupUse

TOPIC = "orders"
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


class Brokers:
    """Brokers 1 and 2 keep one topic with two partitions, 10 records and 100 bytes in each; a test bends that."""

    def __init__(self) -> None:
        self.leaders: list[Sequence[int]] = [(1, 2)]
        """Leaders of the partitions, by call of Metadata; the last ones stay. Without leaders there is no topic."""
        self.live = [1, 2]
        self.silent: set[int] = set()
        self.lacking: set[str] = set()
        self.sizes: dict[int, Any] = {1: {0: 100, 1: 100}, 2: {0: 100, 1: 100}}
        self.offline: Mapping[int, int] = {}
        self.codes: dict[str, int] = {}
        self.operations = {DESCRIBE}
        self.asked: list[str] = []
        self.connection = connection(self.answer, self.metadata)
        self.connection.supports.side_effect = lambda request, version=0: name_of(request) not in self.lacking
        self.connection.needs.side_effect = lambda acl: f"the principal needs the ACL {acl}"

    def metadata(self, topics: Sequence[str]) -> Any:
        brokers = [SimpleNamespace(node_id=each) for each in self.live]
        named = [each for each in topics if each.startswith(TOPIC)]
        leaders = (self.leaders.pop(0) if len(self.leaders) > 1 else self.leaders[0]) if named else ()
        parts = [
            SimpleNamespace(partition_index=index, leader_id=leader, replica_nodes=[1, 2], isr_nodes=self.live)
            for index, leader in enumerate(leaders)
        ]
        live = named if parts else []
        found = [SimpleNamespace(name=each, topic_id="id", error_code=0, partitions=parts) for each in live]
        return SimpleNamespace(topics=found, brokers=brokers)

    def answer(self, request: Any, broker_id: int | None = None) -> Any:
        kind = name_of(type(request))
        self.asked.append(kind)
        code = self.codes.get(kind, 0)
        if broker_id in self.silent:
            raise RequestLost(f"broker {broker_id} is silent")
        if kind == "DescribeCluster":
            return SimpleNamespace(error_code=0, authorized_operations=self.operations)
        if kind == "ListGroups":
            return SimpleNamespace(error_code=code, groups=[])
        if kind == "DescribeLogDirs":
            assert broker_id is not None
            held = [
                SimpleNamespace(partition_index=each, partition_size=size, is_future_key=False)
                for each, size in self.sizes[broker_id].items()
            ]
            good = SimpleNamespace(error_code=0, topics=[SimpleNamespace(name=TOPIC, partitions=held)])
            bad = [SimpleNamespace(error_code=each, topics=[]) for each in [self.offline.get(broker_id)] if each]
            return SimpleNamespace(error_code=code, results=[good, *bad])
        answered = [self.of_topic(kind, each, code) for each in request.topics]
        return SimpleNamespace(topics=answered)

    def of_topic(self, kind: str, topic: Any, code: int) -> Any:
        if kind == "DescribeProducers":
            one = [] if code else [SimpleNamespace(producer_id=7)]
            parts = [
                SimpleNamespace(partition_index=each, error_code=code, active_producers=one)
                for each in topic.partition_indexes
            ]
        else:
            assert kind == "ListOffsets"
            value = {EARLIEST: (0, -1), LATEST: (10, -1), MAX_TIMESTAMP: (9, 1_000)}
            parts = [
                SimpleNamespace(
                    partition_index=each.partition_index,
                    error_code=code,
                    offset=value[each.timestamp][0],
                    timestamp=value[each.timestamp][1],
                )
                for each in topic.partitions
            ]
        return SimpleNamespace(name=topic.name, partitions=parts)


def name_of(request: type) -> str:
    return request.__name__.removesuffix("Request")


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    monkeypatch.setattr(usage, "_PAUSE_SECONDS", 0.0)
    return Brokers()


def found(brokers: Brokers) -> TopicUsage:
    (only,) = topic_usage(brokers.connection, [TOPIC])
    assert set(only.values) | set(only.reasons) == set(MEASURED)
    assert not set(only.values) & set(only.reasons)
    return only


def test_all_is_known_if_all_brokers_answer(brokers: Brokers) -> None:
    only = found(brokers)
    assert only.reasons == {}
    assert {name: only.values[name] for name in ("bytes", "bytes_one_copy", "end_offset", "producers", "groups")} == {
        "bytes": 400,
        "bytes_one_copy": 200,
        "end_offset": 20,
        "producers": 1,
        "groups": [],
    }


@pytest.mark.parametrize(
    ("bend", "unknown"),
    [
        ({"offline": {2: 56}, "sizes": {1: {0: 100, 1: 100}, 2: {1: 100}}}, {"bytes": "KAFKA_STORAGE_ERROR"}),
        (
            {"codes": {"DescribeLogDirs": 31}},
            dict.fromkeys(("bytes", "bytes_one_copy"), "needs the ACL Describe on the cluster"),
        ),
        (
            {"lacking": {"DescribeLogDirs"}},
            dict.fromkeys(("bytes", "bytes_one_copy"), "its brokers are older than Kafka 1.0"),
        ),
        ({"live": [1], "leaders": [(1, 1)]}, {"bytes": "partition 0: broker 2 is down"}),
        ({"operations": set()}, {"groups": "needs the ACL Describe on the cluster"}),
        ({"lacking": {"DescribeCluster"}}, {"groups": "older than Kafka 2.8"}),
        ({"codes": {"ListGroups": 30}}, {"groups": "needs the ACL Describe on every group"}),
        ({"codes": {"DescribeProducers": 29}}, {"producers": "needs the ACL Read on topic orders"}),
        ({"lacking": {"DescribeProducers"}}, {"producers": "older than Kafka 2.8"}),
        (
            {"codes": {"ListOffsets": 2}},
            dict.fromkeys(("start_offset", "end_offset", "last_record_at"), "CORRUPT_MESSAGE"),
        ),
        (
            {"leaders": [(1, -1)]},
            dict.fromkeys(
                ("bytes_one_copy", "start_offset", "end_offset", "last_record_at", "producers"), "have no leader"
            ),
        ),
    ],
)
def test_values_that_brokers_do_not_report_are_missing(
    brokers: Brokers, bend: Mapping[str, Any], unknown: Mapping[str, str]
) -> None:
    for name, value in bend.items():
        setattr(brokers, name, value)
    only = found(brokers)
    assert set(only.reasons) == set(unknown), only.reasons
    for name, why in unknown.items():
        assert why in only.reasons[name].replace("has no leader", "have no leader")


@pytest.mark.parametrize(
    ("committed", "lag"),
    [({0: 4}, 6), ({0: 10, 1: 0}, 10), ({0: 11}, None), ({0: 4, 1: 1_000}, None), ({0: 4, 7: 1}, 6), ({}, None)],
)
def test_a_lag_beyond_the_end_is_unknown(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, committed: Mapping[int, int], lag: int | None
) -> None:
    """Such offsets are of an earlier topic of the same name, or of records that were lost."""
    use = GroupUse(topic=TOPIC, group="g", members=0, committed=True, state="Empty", offsets=committed)
    monkeypatch.setattr(usage, "known_groups", lambda *_: KnownUses(uses=[use], unknown=None))
    assert found(brokers).values["groups"] == [{"group": "g", "state": "Empty", "members": 0, "lag": lag}]


@pytest.mark.parametrize(("members", "known"), [((), False), ((0,), False), ((0, 2), True)])
def test_groups_are_unknown_where_one_may_be_that_never_settles(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, members: Sequence[int], known: bool
) -> None:
    """It may be subscribed to a topic on which it has committed nothing; a live group shows use without it."""
    uses = [GroupUse(topic=TOPIC, group=f"g{each}", members=each, committed=True) for each in members]
    said = KnownUses(uses=uses, unknown="group g: it is rebalancing")
    monkeypatch.setattr(usage, "known_groups", lambda *_: said)
    only = found(brokers)
    assert only.reasons == ({} if known else {"groups": "group g: it is rebalancing"})
    assert len(only.values.get("groups", ())) == (2 if known else 0)


def test_a_silent_broker_is_asked_for_offsets_once(brokers: Brokers) -> None:
    brokers.leaders = [(1, 2)]
    brokers.silent = {2}
    only = found(brokers)
    assert {"bytes", "bytes_one_copy", "start_offset", "end_offset", "last_record_at", "producers"} <= set(only.reasons)
    assert only.reasons["end_offset"] == "broker 2 gave no answer: broker 2 is silent"
    assert only.values["offline"] == 0
    asked_of_two = [
        call for call in brokers.connection.ask.call_args_list
        if name_of(type(call.args[0])) == "ListOffsets" and call.args[1] == 2
    ]  # fmt: skip
    assert len(asked_of_two) == 1


def test_a_partition_that_gets_a_leader_meanwhile_is_asked_again(brokers: Brokers) -> None:
    # The first call is about the groups' topics.
    brokers.leaders = [(1, 2), (1, -1), (1, 2)]
    assert found(brokers).reasons == {}


@pytest.mark.parametrize("leaders", [[(1, 2), ()], [(1, 2), (1, -1), ()]], ids=["at once", "while it is asked again"])
def test_a_topic_deleted_meanwhile_has_no_usage(brokers: Brokers, leaders: list[Sequence[int]]) -> None:
    brokers.leaders = leaders
    assert list(topic_usage(brokers.connection, [TOPIC])) == []


def test_a_thousand_topics_need_no_more_requests_than_one(brokers: Brokers) -> None:
    found(brokers)
    of_one, brokers.asked = brokers.asked, []
    assert len(list(topic_usage(brokers.connection, [f"{TOPIC}.{each}" for each in range(1_000)]))) == 1_000
    assert brokers.asked == of_one
