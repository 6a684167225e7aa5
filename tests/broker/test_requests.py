"""An executor's results from a real broker's answers, batch by batch, without Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kafka.admin import ConfigResourceType
from kafka.protocol.admin import CreateTopicsRequest, CreateTopicsResponse, DescribeConfigsRequest

from tests.broker.direct import admin_of, creates, deletes, executor_of, live, make, messages_of, remove
from tests.clusters import VERSION
from tests.kafka_versions import forwards, limits_requests
from tests.waiting import until
from topicledger.kafka import created
from topicledger.kafka.created import LAST_VERSION, CreatedTopics, CreateTopics, created_topics
from topicledger.model import Maker, Note, Outcome, Refusal, Target, TopicResult
from topicledger.model.config_texts import MAXIMA
from topicledger.model.topic_configs import topic_configs
from topicledger.resources.group_configs.names import CONFIGS
from topicledger_testing.embedded_kafka import EmbeddedKafka

UNLIMITED = 1_000_000
BROKER_DEFAULT = "DEFAULT_CONFIG"
TYPES = {1: "boolean", 2: "string", 3: "int", 5: "long", 6: "double", 7: "list"}
"""By number of a described config's type."""
TOGETHER = {"internal.segment.bytes", "remote.storage.enable"}
"""Configs whose values depend on a broker's settings."""


@limits_requests
@pytest.mark.parametrize(
    "targets",
    [
        pytest.param(creates([f"large.p{n:02}" for n in range(11)], num_partitions=1_000), id="partitions"),
        pytest.param(
            creates([f"large.r{n:04}" for n in range(3_400)], num_partitions=1, configs={"retention.ms": "1"}),
            id="records",
        ),
    ],
)
def test_a_batch_that_the_broker_finds_too_large_is_halved_until_it_passes(
    kafka: EmbeddedKafka, targets: list[Target]
) -> None:
    """C15: only validated, or the broker would have to hold them."""
    with executor_of(kafka, max_batch_records=UNLIMITED) as executor, messages_of("topicledger.kafka.sending") as said:
        ended = list(executor.validate(targets))
    assert [row.topic for row in ended] == [target.topic for target in targets]
    assert {row.outcome for row in ended} == {Outcome.OK}
    assert executor.limits.max_batch_records <= 10_000
    assert len(said) == 1


@limits_requests
def test_one_topic_that_is_too_large_by_itself_is_refused_in_the_brokers_words(kafka: EmbeddedKafka) -> None:
    """C15: halving ends at one topic, and its neighbour is created."""
    targets = [*creates(["large.one"], num_partitions=10_001), *creates(["large.neighbour"], num_partitions=1)]
    with executor_of(kafka, max_batch_records=UNLIMITED) as executor:
        ended = {row.topic: row for row in executor.validate(targets)}
    assert (ended["large.one"].outcome, ended["large.one"].error_code) == (Outcome.REFUSED, 44)
    assert "Excessively large number of partitions" in str(ended["large.one"].error_message)
    assert ended["large.neighbour"].outcome is Outcome.OK


def test_a_validated_create_can_still_fail_when_sent(kafka: EmbeddedKafka) -> None:
    """C6, C7: another client was faster, with other partitions; the batch's other topic is created."""
    targets = creates(["faster.taken", "faster.free"], num_partitions=1)
    with executor_of(kafka) as executor:
        assert {row.outcome for row in executor.validate(targets)} == {Outcome.OK}
        make(kafka, "faster.taken", num_partitions=2)
        ended = {row.topic: row for row in executor.apply(targets)}
    taken = ended["faster.taken"]
    assert (taken.outcome, taken.error_code, taken.error) == (Outcome.FAILED, 36, "TOPIC_ALREADY_EXISTS")
    assert taken.error_message == "the topic exists and is not as planned: num_partitions is 2, planned 1"
    assert ended["faster.free"].outcome is Outcome.OK


def test_validate_creates_nothing_and_tells_what_would_be(kafka: EmbeddedKafka) -> None:
    """C5, C19"""
    with executor_of(kafka) as executor:
        (row,) = executor.validate(creates(["dry.run"], configs={"retention.ms": "7"}))
    assert (row.num_partitions, row.replication_factor, row.topic_id) == (1, 1, None)
    assert row.configs is not None
    assert {entry.name: entry.value for entry in row.configs}["retention.ms"] == "7"
    # The catalogue has every config that this version of Kafka describes, with its default.
    known = {name: each for name, each in topic_configs().items() if each.known_in(VERSION)}
    assert {entry.name for entry in row.configs} == set(known) - {"internal.segment.bytes"}
    defaults = {entry.name: entry.value for entry in row.configs if entry.config_source == BROKER_DEFAULT}
    assert defaults == {name: known[name].default_in(VERSION) or value for name, value in defaults.items()}
    assert not live(kafka, "dry.")


def test_types_of_the_catalogue_are_those_that_brokers_describe(kafka: EmbeddedKafka) -> None:
    make(kafka, "types.described")
    request = DescribeConfigsRequest(resources=[(ConfigResourceType.TOPIC, "types.described", None)])
    with admin_of(kafka) as admin:
        (found,) = admin.ask(request).results
    types = {each.name: TYPES[each.config_type] for each in found.configs}
    assert types == {name: topic_configs()[name].type for name in types}


def test_configs_of_groups_that_brokers_describe_are_known(kafka: EmbeddedKafka) -> None:
    if VERSION < (4, 1):
        pytest.skip("these brokers don't describe configs of groups")
    with admin_of(kafka) as admin:
        (found,) = admin.ask(DescribeConfigsRequest(resources=[(ConfigResourceType.GROUP, "any", None)])).results
    assert "consumer.session.timeout.ms" in {each.name for each in found.configs} <= set(CONFIGS)


def test_limits_of_the_catalogue_are_those_of_brokers(kafka: EmbeddedKafka) -> None:
    """A broker accepts the lowest and the highest value, and each one that is named; it refuses the next ones."""
    taken, refused = {}, {}
    for name, each in topic_configs().items():
        if each.known_in(VERSION) and name not in TOGETHER:
            accepted = each.accepted
            least, most = accepted.least_in(VERSION), accepted.most
            taken[name] = {*accepted.values, *accepted.also, *(str(end) for end in (least, most) if end is not None)}
            refused[name] = {str(least - 1)} - taken[name] if least is not None else set()
            refused[name] |= {"another"} if accepted.values else set() if most is None else {str(most + 1)}
            if each.type in MAXIMA and most is None:
                taken[name].add(str(MAXIMA[each.type]))
                refused[name].add(str(MAXIMA[each.type] + 1))
    texts = [(name, text) for of_each in (taken, refused) for name, found in of_each.items() for text in sorted(found)]
    topics = {f"limits.{number:03}": each for number, each in enumerate(texts)}
    targets = [
        target
        for topic, (name, text) in topics.items()
        for target in creates([topic], num_partitions=1, replication_factor=1, configs={name: text})
    ]
    with admin_of(kafka) as admin:
        results = admin.create_topics(targets, validate_only=True).results
    outcome = {each: results[topic].error_message for topic, each in topics.items() if results[topic].error_code}
    assert set(outcome) == {(name, text) for name, found in refused.items() for text in found}, outcome


def test_a_topic_that_exists_and_is_not_ours_fails_to_validate(kafka: EmbeddedKafka) -> None:
    """C5, C21: only what the audit knows as ours is taken for unchanged."""
    make(kafka, "known.ours", "known.foreign")
    targets = creates(["known.ours", "known.foreign"], num_partitions=1)
    with executor_of(kafka) as executor:
        executor.created_by = lambda topics: {each: Maker("earlier", None) for each in topics if each == "known.ours"}
        ended = {row.topic: row for row in executor.validate(targets)}
    assert ended["known.ours"].outcome is Outcome.SKIPPED
    assert (ended["known.foreign"].outcome, ended["known.foreign"].error_code) == (Outcome.FAILED, 36)


def test_a_brokers_responses_are_read_as_kafka_python_reads_them(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C5, C7: byte by byte, of topics that are created and of such that aren't."""
    seen: list[tuple[bytes, int]] = []

    def decode(data: bytes, version: int) -> CreatedTopics:
        seen.append((data, version))
        return decoded(data, version)

    decoded = created.decode
    make(kafka, "bytes.taken")
    monkeypatch.setattr(created, "decode", decode)
    targets = [
        *creates(["bytes.plain", "bytes.taken", "bytes not allowed"], num_partitions=1),
        *creates(["bytes.own"], num_partitions=2, configs={"retention.ms": "1", "cleanup.policy": "compact"}),
        *creates(["bytes.wrong"], num_partitions=1, configs={"retention.ms": "soon"}),
        *creates(["bytes.many"], num_partitions=1, replication_factor=9),
    ]
    with admin_of(kafka) as admin:
        for validate_only in (True, False):
            results = admin.create_topics(targets, validate_only=validate_only).results
            assert {name for name, result in results.items() if not result.error_code} == {"bytes.plain", "bytes.own"}
    assert [version for _, version in seen] == [LAST_VERSION] * 2
    for data, version in seen:
        ours = decoded(data, version)
        assert len(ours.topics) == len(targets)
        assert ours == created_topics(CreateTopicsResponse.decode(data, version=version))


def test_either_decoder_says_the_same_of_what_was_created(kafka: EmbeddedKafka) -> None:
    """`ClusterAdmin.create_request` is the seam: kafka-python's own on the other side."""
    targets = creates(["decoder.a", "decoder not allowed"], num_partitions=2, configs={"retention.ms": "60000"})
    found = []
    for request in (CreateTopics, CreateTopicsRequest):
        with admin_of(kafka) as admin:
            admin.create_request = request
            found.append(admin.create_topics(targets, validate_only=True).results)
    assert found[0] == found[1]
    assert len(found[0]["decoder.a"].configs or ()) > 20


@forwards
@pytest.mark.parametrize("broker", [1, 2, 3])
def test_whichever_broker_takes_the_request_passes_it_to_the_controller(
    kafka_three: EmbeddedKafka, broker: int
) -> None:
    """C13"""
    with admin_of(kafka_three) as admin:
        admin._admin._controller_id = broker
        targets = creates([f"forwarded.{broker}"], num_partitions=1)
        assert admin.create_topics(targets, validate_only=False).results[f"forwarded.{broker}"].error_code == 0


def test_a_planned_delete_that_finds_nothing_is_done(kafka: EmbeddedKafka) -> None:
    """D3, D2: ok, and RECOVERED only where an earlier request was maybe sent; the batch's other delete is done."""
    ids = make(kafka, "vanish.gone", "vanish.ours", "vanish.there")
    remove(kafka, {topic: ids[topic] for topic in ("vanish.gone", "vanish.ours")})
    targets = [replace(each, maybe_sent=each.topic == "vanish.ours") for each in deletes(ids)]
    with executor_of(kafka) as executor:
        ended = {row.topic: row for row in executor.apply(targets)}
    gone, ours = ended["vanish.gone"], ended["vanish.ours"]
    assert (gone.outcome, gone.error_code, gone.error) == (Outcome.OK, 0, None)
    assert "another client deleted it" in str(gone.error_message)
    assert (ours.outcome, ours.error_code, ours.error) == (Outcome.OK, 0, Note.RECOVERED)
    assert (ended["vanish.there"].outcome, ended["vanish.there"].error) == (Outcome.OK, None)
    until(lambda: not live(kafka, "vanish."), seconds=20)


def test_a_topic_recreated_since_the_plan_is_not_touched(kafka: EmbeddedKafka) -> None:
    """D7: the delete names the old id."""
    planned = make(kafka, "phoenix")
    remove(kafka, planned)
    anew = make(kafka, "phoenix")
    with executor_of(kafka) as executor:
        (row,) = executor.apply(deletes(planned))
    assert (row.outcome, row.error_code, row.error) == (Outcome.FAILED, 100, Refusal.RECREATED)
    assert anew["phoenix"] in str(row.error_message)
    assert live(kafka, "phoenix")["phoenix"].topic_id == anew["phoenix"]


def test_a_fresh_look_refuses_deletes_of_what_is_not_as_planned(kafka: EmbeddedKafka) -> None:
    """D6: gone, recreated, and as planned."""
    ids = make(kafka, "look.gone", "look.anew", "look.same")
    remove(kafka, {name: ids[name] for name in ("look.gone", "look.anew")})
    make(kafka, "look.anew")
    with executor_of(kafka) as executor:
        ended = {row.topic: row for row in executor.validate(deletes(ids))}
    assert {name: (row.outcome, row.error) for name, row in ended.items()} == {
        "look.gone": (Outcome.REFUSED, Refusal.CHANGED_SINCE_PLAN),
        "look.anew": (Outcome.REFUSED, Refusal.RECREATED),
        "look.same": (Outcome.OK, None),
    }
    assert all(row.error_message for row in ended.values() if row.outcome is Outcome.REFUSED)
    assert set(live(kafka, "look.")) == {"look.anew", "look.same"}


@pytest.mark.thorough
def test_a_topic_listed_without_a_leader_is_pending_until_it_has_one(kafka_three: EmbeddedKafka) -> None:
    """M2, C21"""
    targets = [
        *creates(["leader.away"], assignments={0: (3,)}),
        *creates(["leader.here"], assignments={0: (1,)}),
    ]
    with executor_of(kafka_three) as executor:
        applied = {row.topic: row for row in executor.apply(targets)}
        pairs = [(target, TopicResult(topic_id=applied[target.topic].topic_id, num_partitions=1)) for target in targets]

        def outcomes() -> dict[str, Outcome]:
            return {row.topic: row.outcome for row in executor.verify(pairs)}

        until(lambda: set(outcomes().values()) == {Outcome.OK}, seconds=20)
        kafka_three.kill_broker(3)
        try:
            pending = {"leader.away": Outcome.PENDING, "leader.here": Outcome.OK}
            until(lambda: outcomes() == pending, seconds=30)
        finally:
            kafka_three.start_broker(3)
        until(lambda: set(outcomes().values()) == {Outcome.OK}, seconds=30)


def test_a_topic_that_may_not_be_described_is_unlisted_and_says_so_by_name(kafka_sasl: EmbeddedKafka) -> None:
    """M3: one that doesn't exist looks the same, so nothing can be concluded."""
    make(kafka_sasl, "secret.there")
    with admin_of(kafka_sasl, "nobody") as admin:
        assert not [info for info in admin.list_topics() if info.topic.startswith("secret.")]
        described = {info.topic: info.permitted for info in admin.describe_topics(["secret.there", "secret.not"])}
    assert described == {"secret.there": False, "secret.not": False}
