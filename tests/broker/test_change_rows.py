"""Kafka's rules about changes, row by row (K1 to K9, N3 to N5, N7): what brokers answer, and what a run makes of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import InvalidRecordError
from kafka.protocol.admin import DescribeConfigsRequest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests import clusters
from tests.broker.another_hand import AnotherHand
from tests.broker.changes import OK, changing, ended, of_phase, set_on
from tests.broker.direct import admin_of, creates, executor_of, live, make, set_quota
from tests.clusters import KAFKA
from tests.fault.controller_quota import BURST_SECONDS, RATE, Counted
from tests.harness import policy
from tests.waiting import until
from topicledger.apply.executor import Executor
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import PolicySettings
from topicledger.kafka import ClusterAdmin, changes
from topicledger.model import SET_ON_TOPIC, Action, Outcome, Target, TopicResult
from topicledger.policies import Facts, SetRule
from topicledger.schemas import AUDIT, PLANS
from topicledger_testing.embedded_kafka import EmbeddedKafka, KafkaOptions

SHORT = {"flush.ms": "500", "flush.messages": "7"}
"""What a broker with `ShortFlushPolicy` lets a topic be created with."""


@pytest.fixture(scope="module")
def own() -> Iterator[EmbeddedKafka]:
    """A broker of our own: its defaults and its quota are everybody's, and it has much to do."""
    with clusters.plain() as cluster:
        yield cluster


def alters(topic: str, after: Mapping[str, Any], before: Mapping[str, str] | None = None, **fields: Any) -> Target:
    return Target(resource=topic, action=Action.ALTER_CONFIGS, before=before or {}, after=after, **fields)


def grows(topic: str, count: int, before: int = 1, **fields: Any) -> Target:
    counts = {"before": {"num_partitions": str(before)}, "after": {"num_partitions": str(count)}}
    return Target(resource=topic, action=Action.ADD_PARTITIONS, **counts, **fields)


def answers(admin: ClusterAdmin, *targets: Target, validate_only: bool = False) -> dict[str, tuple[int, str | None]]:
    """By topic, what one IncrementalAlterConfigs request is answered: code and words."""
    found = admin.alter_configs(targets, validate_only=validate_only).results
    return {topic: (each.error_code, each.error_message) for topic, each in found.items()}


UNKNOWN = "Unknown topic config name: no.such.config"
NO_NUMBER = "Invalid value soon for configuration retention.ms: Not a number of type LONG"


def test_validate_gets_the_same_answers_as_apply(kafka_policy: EmbeddedKafka) -> None:
    """K1, K2: a code and words for each topic, none of a bad one's keys is set; the broker's policy comes after the
    checks of values, sees the changed keys only, and a reset as null."""
    names = [f"rows.codes.{each}" for each in ("fine", "policy", "reset", "value", "unknown", "null")]
    fine, by_policy, reset, value, unknown, null = names
    gone, illegal = "rows.codes.gone", "rows.codes/illegal"
    make(kafka_policy, *names, configs={**SHORT, "segment.bytes": "20000000"})
    targets = [
        alters(fine, {"flush.ms": "1000"}),
        alters(by_policy, {"flush.ms": "1001", "retention.ms": "5"}),
        alters(reset, {}, {"flush.messages": "7"}),
        alters(value, {"flush.ms": "1001", "retention.ms": "soon"}),
        alters(unknown, {"flush.ms": "5", "no.such.config": "1"}),
        alters(null, {"flush.ms": None, "retention.ms": "5"}),
        alters(gone, {"flush.ms": "5"}),
        alters(illegal, {"flush.ms": "5"}),
    ]
    expected = {
        fine: (0, None),
        by_policy: (44, f"Topic {by_policy} can't have these configs here: {{flush.ms=1001, retention.ms=5}}"),
        reset: (44, f"Topic {reset} can't have these configs here: {{flush.messages=null}}"),
        value: (40, NO_NUMBER),
        unknown: (40, UNKNOWN),
        null: (42, "Null value not supported for : flush.ms"),
        gone: (3, f"The topic '{gone}' does not exist."),
        illegal: (
            17,
            f"Topic name is invalid: '{illegal}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'",
        ),
    }
    with admin_of(kafka_policy) as admin:
        assert answers(admin, *targets, validate_only=True) == expected
        assert answers(admin, *targets) == expected
        until(lambda: set_on(kafka_policy, fine)[fine]["flush.ms"] == "1000", seconds=30)
    before = {**SHORT, "segment.bytes": "20000000"}
    # One request, one record batch: what is visible of one topic is of all.
    assert set_on(kafka_policy, *names) == {**dict.fromkeys(names, before), fine: {**before, "flush.ms": "1000"}}


@pytest.mark.thorough
def test_a_change_that_the_brokers_policy_refuses_is_told_in_its_words(
    spark: SparkSession, kafka_policy: EmbeddedKafka, tmp_path: Path
) -> None:
    """K1, C8: refused at validate, and nothing of it is sent; other topics' changes are."""
    fine, long, reset = names = [f"rows.policy.{each}" for each in ("fine", "long", "reset")]
    make(kafka_policy, *names, configs=SHORT)
    estate = changing(spark, tmp_path, kafka_policy, configs="exact")
    estate.declare(
        {"topic": fine, "configs": {**SHORT, "flush.ms": "900"}},
        {"topic": long, "configs": {**SHORT, "flush.ms": "2000", "segment.bytes": "20000000"}},
        {"topic": reset, "configs": {"flush.ms": "500"}},
    )
    summary = estate.run(run_id="policy", wait_visible=60.0)
    assert (summary.exit_code, summary.outcomes()) == (4, {"ok": 1, "refused": 2})
    refused = ("validate", "refused", "POLICY_VIOLATION")
    assert {topic: each for (topic, _), each in ended(estate, "policy").items()} == {
        fine: OK,
        long: refused,
        reset: refused,
    }
    rows = {row["topic"]: row for row in estate.rows(AUDIT, "policy") if row["outcome"] == "refused"}
    words = {
        long: f"Topic {long} can't have these configs here: {{flush.ms=2000, segment.bytes=20000000}}",
        reset: f"Topic {reset} can't have these configs here: {{flush.messages=null}}",
    }
    for topic, message in words.items():
        assert (rows[topic]["error_code"], rows[topic]["error_message"]) == (44, message)
        assert rows[topic]["violations"] == [{"policy": "broker", "message": message}]
    estate.check_invariant("policy")
    assert set_on(kafka_policy, *names) == {fine: {**SHORT, "flush.ms": "900"}, long: SHORT, reset: SHORT}


@pytest.mark.thorough
def test_without_permission_existing_and_missing_topics_look_the_same(kafka_sasl: EmbeddedKafka) -> None:
    """K2, N7: for partitions too, and of other topics each has its own answer."""
    make(kafka_sasl, "rows.rights.there")
    names = ("rows.rights.there", "rows.rights.gone")
    with admin_of(kafka_sasl, "nobody") as nobody:
        for validate_only in (True, False):
            denied = dict.fromkeys(names, (29, "Topic authorization failed."))
            asked = [alters(name, {"flush.ms": "5"}) for name in names]
            assert answers(nobody, *asked, validate_only=validate_only) == denied
            added = nobody.add_partitions([grows(name, 2) for name in names], validate_only=validate_only).results
            assert {name: each.error_code for name, each in added.items()} == dict.fromkeys(names, 29)
    assert set_on(kafka_sasl, names[0]) == {names[0]: {}}
    assert live(kafka_sasl, names[0])[names[0]].num_partitions == 1


def test_a_topic_that_goes_at_the_last_moment_fails_alone(kafka: EmbeddedKafka) -> None:
    """K2, N3: between the last look and the request nobody can prevent it; the controller says so."""
    ids = make(kafka, *(f"rows.last.{each}" for each in ("alter", "alter-gone", "grow", "grow-gone")))
    hand, asked = AnotherHand(kafka), list[str]()

    def applied(targets: Sequence[Target], gone: str) -> dict[str, tuple[Outcome, int, str | None]]:
        def remove_before_the_request() -> None:
            # Asked once before the last look at the topics, and once after it.
            asked.append(gone)
            if asked.count(gone) == 2:
                hand.delete(gone)

        with admin_of(kafka) as admin, executor_of(kafka) as plain:
            executor = Executor(
                cluster="main",
                cluster_id=kafka.cluster_id,
                admin=admin,
                limits=plain.limits,
                may_send=remove_before_the_request,
            )
            rows = list(executor.apply(targets))
        return {row.topic: (row.outcome, row.error_code, row.error_message) for row in rows}

    of_alters = [alters(name, {"flush.ms": "5"}, topic_id=ids[name]) for name in ids if "alter" in name]
    assert applied(of_alters, "rows.last.alter-gone") == {
        "rows.last.alter": (Outcome.OK, 0, None),
        "rows.last.alter-gone": (Outcome.FAILED, 3, "The topic 'rows.last.alter-gone' does not exist."),
    }
    of_grows = [grows(name, 2, topic_id=ids[name], replication_factor=1) for name in ids if "grow" in name]
    assert applied(of_grows, "rows.last.grow-gone") == {
        "rows.last.grow": (Outcome.OK, 0, None),
        "rows.last.grow-gone": (Outcome.FAILED, 3, None),
    }


def test_to_reset_what_is_not_set_is_answered_with_no_error(kafka: EmbeddedKafka) -> None:
    """K3: brokers don't look at the name either."""
    make(kafka, "rows.unset.one")
    with admin_of(kafka) as admin:
        for name in ("flush.ms", "no.such.config"):
            unset = alters("rows.unset.one", {}, {name: "5"})
            for validate_only in (True, False):
                assert answers(admin, unset, validate_only=validate_only) == {"rows.unset.one": (0, None)}


@pytest.mark.thorough
def test_a_run_resets_only_what_it_read_from_the_topic(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """K3: what another client has reset since the plan is as planned."""
    ids = make(kafka, "rows.reset.set", configs={"flush.ms": "5", "flush.messages": "9"})
    make(kafka, "rows.reset.unset")
    estate = changing(spark, tmp_path, kafka, configs="exact")
    estate.declare({"topic": "rows.reset.set"}, {"topic": "rows.reset.unset"})
    assert estate.run("plan", run_id="reset").pending_changes == 1
    (planned,) = estate.rows(PLANS, "reset")
    assert (planned["topic"], planned["before"], planned["after"]) == (
        "rows.reset.set",
        {"flush.ms": "5", "flush.messages": "9"},
        {},
    )
    with admin_of(kafka) as admin:
        reset = alters("rows.reset.set", {}, {"flush.ms": "5"}, topic_id=ids["rows.reset.set"])
        assert answers(admin, reset) == {"rows.reset.set": (0, None)}
    until(lambda: set_on(kafka, "rows.reset.set") == {"rows.reset.set": {"flush.messages": "9"}}, seconds=30)
    assert estate.run("apply", run_id="reset", wait_visible=60.0).outcomes() == {"ok": 1}
    (row,) = of_phase(estate, "reset", "apply").values()
    assert (row["before"], row["after"]) == ({"flush.messages": "9"}, {})
    assert set_on(kafka, "rows.reset.set") == {"rows.reset.set": {}}


def test_a_topic_named_twice_is_refused_and_others_continue(kafka: EmbeddedKafka) -> None:
    """K4, K2, N3: two answers about configs, one about partitions, as for a config that is named twice."""
    twice, once = "rows.twice.two", "rows.twice.one"
    make(kafka, twice, once)
    resource = changes.IncrementalAlterConfigsRequest.AlterConfigsResource
    keys = [resource.AlterableConfig(name="flush.ms", config_operation=0, value=value) for value in "12"]
    again = changes.IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=ConfigResourceType.TOPIC, resource_name=twice, configs=keys)],
        validate_only=False,
    )
    asked = [alters(twice, {"flush.ms": "1"}), alters(once, {"flush.ms": "1"}), alters(twice, {"flush.ms": "2"})]
    with admin_of(kafka) as admin:
        altered = admin.change(changes.alter_configs_request(asked, validate_only=False)).responses
        assert sorted((each.resource_name, each.error_code, each.error_message) for each in altered) == [
            (once, 0, None),
            (twice, 42, "Each resource must appear at most once."),
            (twice, 42, "Each resource must appear at most once."),
        ]
        (by_key,) = admin.change(again).responses
        assert (by_key.error_code, by_key.error_message) == (42, "Error due to duplicate config keys")
        request = changes.create_partitions_request(
            [grows(twice, 2), grows(once, 2), grows(twice, 3)], 5_000, validate_only=False
        )
        grown = admin.change(request).results
        assert sorted((each.name, each.error_code, each.error_message) for each in grown) == [
            (once, 0, None),
            (twice, 42, "Duplicate topic name."),
        ]
    until(lambda: set_on(kafka, twice, once) == {twice: {}, once: {"flush.ms": "1"}}, seconds=30)
    until(lambda: live(kafka, once)[once].num_partitions == 2, seconds=30)
    assert live(kafka, twice)[twice].num_partitions == 1


@pytest.mark.thorough
def test_a_plan_has_one_action_of_a_kind_for_a_topic_however_often_it_is_declared(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """K4: partitions and configs are changed by requests of their own."""
    differ, same, once = names = ("rows.plan.differ", "rows.plan.same", "rows.plan.once")
    make(kafka, *names)
    estate = changing(spark, tmp_path, kafka, configs="exact", partitions="grow")
    both = {"num_partitions": 2, "configs": {"flush.ms": "6", "flush.messages": "9"}}
    estate.declare(
        {"topic": differ, "configs": {"flush.ms": "5"}},
        {"topic": differ, "configs": {"flush.ms": "6"}},
        *({"topic": same, **both} for _ in range(3)),
        {"topic": once, **both},
    )
    assert estate.run(run_id="twice", wait_visible=60.0).exit_code == 4
    planned = sorted((row["topic"], row["action"]) for row in estate.rows(PLANS, "twice") if row["action"] is not None)
    assert planned == [(name, action) for name in (once, same) for action in ("add_partitions", "alter_configs")]
    assert ended(estate, "twice") == {
        **dict.fromkeys(planned, OK),
        (differ, None): ("manifest", "refused", "DUPLICATE_MANIFEST"),
        (same, None): ("manifest", "skipped", "DUPLICATE_MANIFEST"),
    }
    estate.check_invariant("twice")
    assert set_on(kafka, *names) == {differ: {}, once: both["configs"], same: both["configs"]}


@pytest.mark.thorough
def test_harmful_values_that_brokers_accept_are_stopped(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """K7: `compact` loses records, and those without a key are refused from then on. A minimum of more in-sync replicas
    than there are means all of them, and an empty policy keeps everything: neither loses anything, and both are allowed
    here."""
    compact, replicas, none = names = [f"rows.hurts.{each}" for each in ("compact", "replicas", "none")]
    make(kafka, *names)
    with closing(KafkaProducer(**kafka.client_options(), acks="all", retries=0)) as producer:
        for name in names:
            producer.send(name, b"no key").get(30)
        allowed = GuardSettings(max_disruptions=2)
        estate = changing(spark, tmp_path, kafka, configs="declared", guards=allowed)
        estate.declare(
            {"topic": compact, "configs": {"cleanup.policy": "compact"}},
            {"topic": replicas, "configs": {"min.insync.replicas": "2"}},
            {"topic": none, "configs": {"cleanup.policy": ""}},
        )
        assert estate.run(run_id="hurts", wait_visible=60.0).exit_code == 5
        assert ended(estate, "hurts") == {
            (compact, "alter_configs"): ("guard", "refused", "MAX_LOSSES_EXCEEDED"),
            (replicas, "alter_configs"): OK,
            (none, "alter_configs"): OK,
        }
        (stopped,) = (row for row in estate.rows(AUDIT, "hurts") if row["phase"] == "guard")
        assert stopped["error_message"].startswith("cleanup.policy delete -> compact can lose data at once")
        expected = {compact: {}, replicas: {"min.insync.replicas": "2"}, none: {"cleanup.policy": ""}}
        assert set_on(kafka, *names) == expected
        producer.send(compact, b"no key").get(30)
        for name in (replicas, none):
            assert producer.send(name, b"no key").get(30).offset == 1
        with admin_of(kafka) as admin:
            assert answers(admin, alters(compact, {"cleanup.policy": "compact"})) == {compact: (0, None)}
        until(lambda: set_on(kafka, compact) == {compact: {"cleanup.policy": "compact"}}, seconds=30)
        with pytest.raises(InvalidRecordError):
            producer.send(compact, b"no key").get(30)
        assert producer.send(compact, b"value", key=b"key").get(30).offset == 2


@pytest.mark.thorough
def test_only_what_is_set_on_the_topic_itself_counts_as_set(
    spark: SparkSession, own: EmbeddedKafka, tmp_path: Path
) -> None:
    """K8: not what all brokers or one of them have as their default, an unset min.insync.replicas among it; a value
    that equals the default stays set."""
    make(own, "rows.sources.bare")
    make(own, "rows.sources.equal", configs={"flush.ms": "9223372036854775807"})
    resource = changes.IncrementalAlterConfigsRequest.AlterConfigsResource
    every_broker = resource(
        resource_type=ConfigResourceType.BROKER,
        resource_name="",
        configs=[resource.AlterableConfig(name="log.index.interval.bytes", config_operation=0, value="5000")],
    )
    with admin_of(own) as admin:
        request = changes.IncrementalAlterConfigsRequest(resources=[every_broker], validate_only=False)
        assert [each.error_code for each in admin.change(request).responses] == [0]
    AnotherHand(own).set_default("log.segment.bytes", "25000000", of_topics="segment.bytes", topic="rows.sources.bare")
    values = ("flush.ms", "index.interval.bytes", "min.insync.replicas", "retention.ms", "segment.bytes")

    def sources(topic: str) -> dict[str, tuple[str | None, str]]:
        with admin_of(own) as admin:
            (found,) = admin.topic_configs([topic], {topic: values})
        return {each.name: (each.value, each.config_source) for each in found.configs or ()}

    until(lambda: sources("rows.sources.bare")["index.interval.bytes"][0] == "5000", seconds=30)
    of_all, built_in = "DYNAMIC_DEFAULT_BROKER_CONFIG", "DEFAULT_CONFIG"
    bare = {
        "flush.ms": ("9223372036854775807", built_in),
        "index.interval.bytes": ("5000", of_all),
        "min.insync.replicas": ("1", of_all),
        "retention.ms": ("604800000", built_in),
        "segment.bytes": ("25000000", "DYNAMIC_BROKER_CONFIG"),
    }
    assert sources("rows.sources.bare") == bare
    assert sources("rows.sources.equal") == {**bare, "flush.ms": ("9223372036854775807", SET_ON_TOPIC)}
    with admin_of(own) as admin:
        (described,) = admin.ask(
            DescribeConfigsRequest(
                resources=[(ConfigResourceType.TOPIC, "rows.sources.bare", ["min.insync.replicas", "retention.ms"])],
                include_synonyms=True,
            )
        ).results
    synonyms = {each.name: [other.source for other in each.synonyms] for each in described.configs}
    assert synonyms == {"min.insync.replicas": [3, 5], "retention.ms": []}

    estate = changing(spark, tmp_path, own, configs="exact")
    estate.declare(
        # Values that it has by a default already, from any source.
        {"topic": "rows.sources.bare", "configs": {name: value for name, (value, _) in bare.items()}},
        {"topic": "rows.sources.equal"},
    )
    assert estate.run(run_id="sources", wait_visible=60.0).outcomes() == {"ok": 1}
    (planned,) = estate.rows(PLANS, "sources")
    assert (planned["topic"], planned["before"], planned["after"]) == (
        "rows.sources.equal",
        {"flush.ms": "9223372036854775807"},
        {},
    )
    assert sources("rows.sources.equal") == bare
    pinning = changing(spark, tmp_path, own, configs="declared", pin=True)
    pinning.declare_anew({"topic": "rows.sources.bare", "configs": {"min.insync.replicas": "1"}})
    assert pinning.run(run_id="pin", wait_visible=60.0).outcomes() == {"ok": 1}
    assert sources("rows.sources.bare") == {**bare, "min.insync.replicas": ("1", SET_ON_TOPIC)}


def test_an_unknown_config_of_one_topic_is_no_reason_to_send_nothing(kafka: EmbeddedKafka) -> None:
    """K9: as kafka-python's own alter_configs does, which also loses a topic's words."""
    names = ("rows.raw.bad", "rows.raw.good")
    bad, good = names
    make(kafka, *names)
    values = {bad: {"no.such.config": "1"}, good: {"flush.ms": "5"}}
    with closing(KafkaAdminClient(**kafka.client_options())) as admin:
        wanted = [ConfigResource(ConfigResourceType.TOPIC, name, configs=each) for name, each in values.items()]
        with pytest.raises(Exception, match=r"no\.such\.config"):
            admin.alter_configs(wanted)
    with admin_of(kafka) as ours:
        # The controller knows what was altered, if anything was: to set what is set changes nothing.
        assert set_on(kafka, *names) == {bad: {}, good: {}}
        assert answers(ours, *(alters(name, each) for name, each in values.items())) == {
            bad: (40, UNKNOWN),
            good: (0, None),
        }
    until(lambda: set_on(kafka, *names) == {bad: {}, good: {"flush.ms": "5"}}, seconds=30)


def test_an_answer_about_partitions_is_its_topics_by_name(kafka: EmbeddedKafka) -> None:
    """N3, N2: answers come in a different order than the requested topics, and have no counts.

    A topic that has the planned count already may have grown by the same request, which a broker repeated by itself.
    """
    names = [f"rows.named.{number:02}" for number in range(60)]
    ids = make(kafka, *names, num_partitions=2)
    counts = {name: (3, 2, 1)[number % 3] for number, name in enumerate(names)}
    with admin_of(kafka) as admin:
        asked = [grows(name, count) for name, count in counts.items()]
        response = admin.change(changes.create_partitions_request(asked, 5_000, validate_only=True))
        assert [each.name for each in response.results] != names
        expected = {
            3: (0, None),
            2: (37, "Topic already has 2 partition(s)."),
            1: (37, "The topic {} currently has 2 partition(s); 1 would not be an increase."),
        }
        found = admin.add_partitions(asked, validate_only=True).results
        assert {name: (each.error_code, each.error_message) for name, each in found.items()} == {
            name: (expected[count][0], (expected[count][1] or "").format(name) or None)
            for name, count in counts.items()
        }
    with executor_of(kafka) as executor:
        targets = [grows(name, count, 2, topic_id=ids[name], replication_factor=1) for name, count in counts.items()]
        rows = list(executor.apply(targets))
    ends = {2: Outcome.SKIPPED, 1: Outcome.FAILED}
    assert {row.topic: (row.outcome, row.num_partitions, row.after) for row in rows} == {
        name: (Outcome.OK, 3, {"num_partitions": "3"}) if count == 3 else (ends[count], None, None)
        for name, count in counts.items()
    }
    assert sorted(row.topic for row in rows) == names

    def as_told() -> bool:
        found = live(kafka, "rows.named.")
        return all(found[name].num_partitions == max(2, count) for name, count in counts.items())

    until(as_told, seconds=30)


def test_brokers_that_can_not_be_and_no_time_at_all_add_no_partition(kafka: EmbeddedKafka) -> None:
    """N4: a validation says so of brokers, too."""
    ids = make(kafka, "rows.places.one")
    wrong = {
        "includes broker 9, but no such broker is registered": (9,),
        "includes the broker 1 more than once": (1, 1),
        "includes an empty replica list": (),
    }
    with executor_of(kafka) as executor:
        for words, brokers in wrong.items():
            target = grows("rows.places.one", 2, topic_id=ids["rows.places.one"], assignments={0: (1,), 1: brokers})
            (row,) = executor.validate([target])
            assert (row.outcome, row.error, row.error_code) == (Outcome.FAILED, "INVALID_REPLICA_ASSIGNMENT", 39)
            assert words in str(row.error_message)
            (row,) = executor.apply([target])
            assert (row.outcome, row.error_code) == (Outcome.FAILED, 39)
    with admin_of(kafka) as admin:
        for timeout_ms in (0, -1):
            request = changes.create_partitions_request([grows("rows.places.one", 2)], timeout_ms, validate_only=False)
            assert [each.error_code for each in admin.change(request).results] == [7]
        # The controller says how many there are, not a listing that lags.
        found = admin.add_partitions([grows("rows.places.one", 1)], validate_only=True).results
        assert found["rows.places.one"].error_message == "Topic already has 1 partition(s)."


@pytest.mark.thorough
def test_growth_keeps_the_pace_of_the_quota_and_configs_need_not(
    own: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N5, K6: each new partition counts, in validateOnly too; what is answered with 89 is sent again."""
    names = [f"rows.quota.{number:03}" for number in range(80)]
    ids = make(own, *names)
    with admin_of(own) as admin, executor_of(own) as plain:
        counted = {name: Counted(getattr(admin, name)) for name in ("add_partitions", "alter_configs")}
        for name, each in counted.items():
            monkeypatch.setattr(admin, name, each)
        executor = Executor(cluster="main", cluster_id=own.cluster_id, admin=admin, limits=plain.limits)
        set_quota(admin, RATE)
        try:
            # As in the tests of the quota: the controller learns of it a moment after it was acknowledged.
            time.sleep(1.0)
            added = [grows(name, 3, topic_id=ids[name], replication_factor=1) for name in names]
            began = time.monotonic()
            validated = list(executor.validate(added))
            applied = list(executor.apply(added))
            took = time.monotonic() - began
            altered = list(executor.apply([alters(name, {"flush.ms": "5"}, topic_id=ids[name]) for name in names]))
        finally:
            set_quota(admin, None)
    for rows in (validated, applied, altered):
        assert sorted(row.topic for row in rows) == names
        assert {row.outcome for row in rows} == {Outcome.OK}
    assert sorted(counted["add_partitions"].accepted()) == sorted(2 * names), "each went through once in each phase"
    assert counted["add_partitions"].throttled >= 1
    tokens = 2 * 2 * len(names)
    least = (tokens - BURST_SECONDS * RATE) / RATE
    assert least - 2 <= took <= 2 * least + 30
    assert (counted["alter_configs"].requests, counted["alter_configs"].throttled) == (1, 0)

    def grown() -> bool:
        return {info.num_partitions for info in live(own, "rows.quota.").values()} == {3}

    until(grown, seconds=60)


NUMBERS = (
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "index.interval.bytes",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
)
"""Configs that may be any number of millions."""


def wide(number: int) -> dict[str, str]:
    """Values of 21 configs, each another for each number."""
    return {
        **{name: str(20_000_000 + number) for name in NUMBERS},
        "min.compaction.lag.ms": str(1_000_000 + number),
        "min.cleanable.dirty.ratio": str((1 + number % 8) / 10),
        "compression.gzip.level": str(1 + number % 8),
        "compression.lz4.level": str(1 + number % 8),
        "compression.zstd.level": str(1 + number % 8),
        "compression.type": ("lz4", "zstd")[number % 2],
    }


@pytest.mark.thorough
def test_more_changes_than_a_broker_takes_at_once_go_in_parts(
    spark: SparkSession, own: EmbeddedKafka, tmp_path: Path
) -> None:
    """K5, K6: batches are cut by what they change, a request that is refused for its size is halved; to repeat a change
    is no change, and never too much."""
    names = [f"rows.wide.{number:03}" for number in range(500)]
    ids = make(own, *names)
    allowed = GuardSettings(max_losses=500, max_disruptions=500)
    estate = changing(spark, tmp_path, own, configs="declared", guards=allowed)
    estate.declare(*({"topic": name, "configs": wide(0)} for name in names))
    assert estate.run(run_id="wide", wait_visible=120.0).outcomes() == {"ok": 500}
    records: Counter[int] = Counter()
    for row in estate.rows(PLANS, "wide"):
        records[row["batch"]] += len(row["after"])
    assert (records.total(), len(records) >= 2, max(records.values()) <= 8_000) == (10_500, True, True)

    targets = [alters(name, wide(1), wide(0), topic_id=ids[name]) for name in names]
    with admin_of(own) as admin:
        too_large = {(44, "Unable to perform excessively large batch operation.")}
        for validate_only in (True, False):
            assert set(answers(admin, *targets, validate_only=validate_only).values()) == too_large
        nothing_new = [alters(name, wide(0)) for name in names]
        assert set(answers(admin, *nothing_new).values()) == {(0, None)}
    assert set_on(own, *names) == dict.fromkeys(names, wide(0))
    with executor_of(own, max_batch_records=20_000) as executor:
        for rows in (executor.validate(targets), executor.apply(targets), executor.apply(targets)):
            assert [(row.topic, row.outcome, row.attempt) for row in rows] == [(name, Outcome.OK, 1) for name in names]
        assert executor.limits.max_batch_records == 5_250
    until(lambda: set_on(own, *names) == dict.fromkeys(names, wide(1)), seconds=60)


@pytest.mark.thorough
def test_acknowledged_changes_are_pending_until_visible(own: EmbeddedKafka) -> None:
    """K6, N7: a broker that makes the logs of new partitions shows nothing newer meanwhile."""
    names = [f"rows.late.{number:03}" for number in range(300)]
    ids = make(own, *names)
    words = {
        Action.ADD_PARTITIONS: "acknowledged, not every partition has a leader yet",
        Action.ALTER_CONFIGS: "acknowledged, not visible yet",
    }
    late: set[str] = set()
    with executor_of(own, max_batch_records=300) as executor:
        # Where the broker is quick, again.
        for round_ in range(8):
            before, count = 1 + 4 * round_, 5 + 4 * round_
            old, new = {"flush.ms": str(before)} if round_ else {}, {"flush.ms": str(count)}
            fields = {name: {"topic_id": ids[name], "replication_factor": 1} for name in names}
            targets = [
                *(grows(name, count, before, **fields[name]) for name in names),
                *(alters(name, new, old, **fields[name]) for name in names),
            ]
            assert [row.outcome for row in executor.apply(targets)] == [Outcome.OK] * len(targets)
            left = [(target, TopicResult()) for target in targets if target.topic in names[-20:]]
            deadline = time.monotonic() + 120
            while left:
                assert time.monotonic() < deadline, f"{len(left)} still not visible"
                rows = list(executor.verify(left))
                pending = {(row.action, row.topic) for row in rows if row.outcome is Outcome.PENDING}
                assert {row.outcome for row in rows} <= {Outcome.OK, Outcome.PENDING}
                assert all(
                    (row.error, row.error_message) == (None, words[Action(row.action)])
                    for row in rows
                    if row.outcome is Outcome.PENDING
                )
                late.update(action for action, _ in pending)
                left = [pair for pair in left if (pair[0].action, pair[0].topic) in pending]
            if late == set(words):
                break
    assert late == set(words)
    assert set_on(own, *names[-20:]) == dict.fromkeys(names[-20:], new)


HAPPENS: list[Callable[[], None]] = []
"""What another client does between observe and validate, once."""


def while_it_is_validated(topics: DataFrame, _: Facts) -> DataFrame:
    while HAPPENS:
        HAPPENS.pop()()
    return topics.withColumn("reason", F.lit(None).cast("string"))


def another_client() -> SetRule:
    return while_it_is_validated


@pytest.mark.thorough
def test_bad_input_is_reported_by_topic_and_the_rest_continues(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """K2: what isn't known, isn't a value, isn't there any more; what is ignored is never sent, declared or not."""
    bad = {
        "unknown": {"no.such.config": "1", "flush.ms": "5"},
        "value": {"retention.ms": "soon", "flush.ms": "5"},
        "range": {"flush.ms": "-1"},
        "empty": {"flush.ms": ""},
        "null": {"flush.ms": None, "flush.messages": "9"},
        "blank": {" ": "1"},
        "gone": {"flush.ms": "5"},
    }
    fine = {
        "good": {"flush.ms": "5"},
        "ignored": {"segment.bytes": "30000000", "flush.ms": "5"},
        "onlyignored": {"segment.bytes": "30000000"},
    }
    names = {each: f"rows.input.{each}" for each in (*bad, *fine)}
    before = {"segment.bytes": "20000000"}
    make(kafka, *names.values(), configs=before)
    rule = PolicySettings(change=(policy("tests.broker.test_change_rows:another_client"),))
    estate = changing(spark, tmp_path, kafka, policies=rule, configs="exact", ignore=("segment.bytes",))
    estate.declare(*({"topic": names[each], "configs": configs} for each, configs in {**bad, **fine}.items()))
    HAPPENS.append(lambda: AnotherHand(kafka).delete(names["gone"]))
    summary = estate.run(run_id="input", wait_visible=60.0)
    assert not HAPPENS
    assert (summary.exit_code, summary.outcomes()) == (4, {"ok": 2, "failed": 5, "refused": 2})
    rows = {row["topic"]: row for row in estate.rows(AUDIT, "input") if row["outcome"] in ("failed", "refused")}
    found = {
        each: (rows[names[each]]["phase"], rows[names[each]]["error"], rows[names[each]]["error_message"])
        for each in bad
    }
    invalid = ("validate", "INVALID_CONFIG")
    assert found == {
        "unknown": (*invalid, UNKNOWN),
        "value": (*invalid, NO_NUMBER),
        "range": (*invalid, "Invalid value -1 for configuration flush.ms: Value must be at least 0"),
        "empty": (*invalid, "Invalid value  for configuration flush.ms: Not a number of type LONG"),
        "null": (
            "manifest",
            "INVALID_CONFIGS",
            "configs without a value: flush.ms; leave the key out for the broker's default",
        ),
        "blank": ("manifest", "INVALID_CONFIGS", "configs have an empty name"),
        "gone": ("validate", "UNKNOWN_TOPIC_OR_PARTITION", f"The topic '{names['gone']}' does not exist."),
    }
    planned = {row["topic"]: row["after"] for row in estate.rows(PLANS, "input") if row["phase"] is None}
    assert (planned[names["ignored"]], names["onlyignored"] in planned) == ({"flush.ms": "5"}, False)
    estate.check_invariant("input")
    left = [name for each, name in names.items() if each != "gone"]
    changed = (names["good"], names["ignored"])
    assert set_on(kafka, *left) == {name: {**before, **({"flush.ms": "5"} if name in changed else {})} for name in left}


@pytest.mark.thorough
def test_one_good_change_among_9999_bad_ones_is_applied_and_each_bad_one_says_why(
    spark: SparkSession, tmp_path: Path
) -> None:
    """K2, K5, in minutes."""
    names = [f"rows.many.{number:04}" for number in range(10_000)]
    good = names[6_789]
    wrong = (
        ({"no.such.config": "1", "flush.ms": "5"}, UNKNOWN),
        ({"retention.ms": "soon"}, NO_NUMBER),
        ({"flush.ms": "-1"}, "Invalid value -1 for configuration flush.ms: Value must be at least 0"),
    )
    with EmbeddedKafka(KAFKA, KafkaOptions(heap="1g")) as kafka:
        with admin_of(kafka) as admin:
            for start in range(0, len(names), 1_000):
                some = creates(names[start : start + 1_000], num_partitions=1, replication_factor=1)
                assert {
                    each.error_code for each in admin.create_topics(some, validate_only=False).results.values()
                } == {0}
            until(lambda: len(list(admin.describe_topics(names))) == len(names), seconds=240, every=1.0)
        estate = changing(spark, tmp_path, kafka, configs="declared")
        declared = {name: wrong[number % len(wrong)] for number, name in enumerate(names)}
        estate.declare(
            *(
                {"topic": name, "configs": {"flush.ms": "5"} if name == good else configs}
                for name, (configs, _) in declared.items()
            )
        )
        began = time.monotonic()
        summary = estate.run(run_id="many", wait_visible=120.0)
        took = time.monotonic() - began
        print(f"10,000 changes, 9,999 of them bad: {took:.1f} s")
        assert (summary.exit_code, summary.outcomes()) == (4, {"ok": 1, "failed": 9_999})
        rows = {row["topic"]: row for row in estate.rows(AUDIT, "many") if row["outcome"] == "failed"}
        assert {name: (row["phase"], row["error_code"], row["error_message"]) for name, row in rows.items()} == {
            name: ("validate", 40, words) for name, (_, words) in declared.items() if name != good
        }
        estate.check_invariant("many")
        with admin_of(kafka) as admin:
            found = {each.topic: each.configs or () for each in admin.topic_configs(names)}
        on_topic = {
            name: {each.name: each.value for each in configs if each.config_source == SET_ON_TOPIC}
            for name, configs in found.items()
        }
        assert on_topic == {name: {"flush.ms": "5"} if name == good else {} for name in names}
        assert took < 180
