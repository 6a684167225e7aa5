"""Changing topics that exist: configs (K1 to K9) and partitions (N1 to N7), from manifest to verify."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import (
    ACLOperation,
    ACLResourcePatternType,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
)
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests import executions
from tests.broker.changes import OK, allow, alter, changing, ended, of_phase, set_on
from tests.broker.direct import admin_of, executor_of, live, make, remove, settings_for
from tests.clusters import KAFKA
from tests.fault.another_client import AnotherClient
from tests.harness import policy
from tests.kafka_versions import BAD_CONFIG
from tests.waiting import until
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import ChangeSettings, PolicySettings
from topicledger.ledger import leases
from topicledger.model import Action, Target
from topicledger.policies import Facts, SetRule
from topicledger.schemas import AUDIT, DRIFT, PLANS
from topicledger_testing.embedded_kafka import EmbeddedKafka, KafkaOptions

MOST_MADE, MOST_LOOKED = 172, 54
"""Most SQL executions of a run with four changes, and of one with nothing to do; alone, 168 and 50."""


def test_declared_configs_are_set_and_counts_grow_and_the_rows_say_from_what_to_what(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`declared` leaves what only lives alone; the broker's default isn't set, nor what `changes.ignore` names."""
    names = ("decl.both", "decl.default", "decl.grows", "decl.left", "decl.same", "decl.unnamed")
    make(kafka, *names, configs={"retention.ms": "700000000", "segment.bytes": "20000000"})
    ignore = (*ChangeSettings().ignore, "flush.messages")
    estate = changing(spark, tmp_path, kafka, configs="declared", partitions="grow", ignore=ignore)
    estate.declare(
        {"topic": "decl.left", "configs": {"flush.messages": "7"}},
        {"topic": "decl.both", "num_partitions": 3, "configs": {"retention.ms": "800000000", "flush.ms": " 5 "}},
        {"topic": "decl.default", "configs": {"cleanup.policy": "delete", "compression.type": "producer"}},
        {"topic": "decl.grows", "num_partitions": 2},
        {"topic": "decl.same", "num_partitions": 1, "configs": {"retention.ms": "0700000000"}},
        {"topic": "decl.new", "num_partitions": 1, "configs": {"retention.ms": "1000", "flush.messages": "7"}},
    )
    with executions.counted(spark) as made, caplog.at_level(logging.INFO, leases.__name__):
        summary = estate.run(run_id="decl", wait_visible=60.0)
    assert (summary.exit_code, summary.outcomes(), summary.failures) == (0, {"ok": 4}, [])
    assert summary.decisions["unchanged"] == 3
    planned = {(row["topic"], row["action"]): row for row in estate.rows(PLANS, "decl")}
    assert set(planned) == {
        ("decl.both", "alter_configs"),
        ("decl.both", "add_partitions"),
        ("decl.grows", "add_partitions"),
        ("decl.new", "create"),
    }
    configs = planned["decl.both", "alter_configs"]
    assert configs["before"] == {"retention.ms": "700000000"}
    assert configs["after"] == {"retention.ms": "800000000", "flush.ms": " 5 "}
    applied, verified = of_phase(estate, "decl", "apply"), of_phase(estate, "decl", "verify")
    assert applied["decl.both", "alter_configs"]["before"] == {"retention.ms": "700000000"}
    assert verified["decl.both", "alter_configs"]["after"] == {"retention.ms": "800000000", "flush.ms": "5"}
    grown = applied["decl.grows", "add_partitions"]
    assert (grown["before"], grown["after"]) == ({"num_partitions": "1"}, {"num_partitions": "2"})
    assert verified["decl.grows", "add_partitions"]["num_partitions"] == 2
    order = [row["action"] for row in sorted(applied.values(), key=lambda row: row["completed_at"])]
    assert order == ["create", "add_partitions", "add_partitions", "alter_configs"]
    as_made = {"retention.ms": "700000000", "segment.bytes": "20000000"}
    assert set_on(kafka, "decl.both", "decl.default", "decl.left", "decl.new") == {
        "decl.both": {"retention.ms": "800000000", "segment.bytes": "20000000", "flush.ms": "5"},
        "decl.default": as_made,
        "decl.left": as_made,
        "decl.new": {"retention.ms": "1000"},
    }
    assert {name: info.num_partitions for name, info in live(kafka, "decl.").items()} == {
        **dict.fromkeys(names, 1),
        "decl.both": 3,
        "decl.grows": 2,
        "decl.new": 1,
    }
    with executions.counted(spark) as looked:
        again = estate.run(run_id="decl-again")
    assert (again.exit_code, again.outcomes(), estate.rows(PLANS, "decl-again")) == (0, {}, [])
    # A slow machine renews its lease, in up to eleven executions each time.
    renewals = sum(message.startswith("leases renewed") for message in caplog.messages) - 1
    assert made() - 11 * renewals <= MOST_MADE
    assert looked() <= MOST_LOOKED


@pytest.mark.thorough
def test_exact_resets_what_is_not_declared_but_for_what_is_ignored(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Afterwards an audit finds no config that differs; topics that no manifest names stay as they are."""
    throttled = "leader.replication.throttled.replicas"
    make(kafka, "exact.one", "exact.none", "exact.unnamed", configs={"flush.ms": "5", throttled: "*"})
    estate = changing(spark, tmp_path, kafka, configs="exact", pin=True)
    estate.declare(
        {"topic": "exact.one", "configs": {"compression.type": "producer", throttled: "none"}}, {"topic": "exact.none"}
    )
    summary = estate.run(run_id="exact", wait_visible=60.0)
    assert (summary.exit_code, summary.outcomes()) == (0, {"ok": 2})
    assert set_on(kafka, "exact.one", "exact.none", "exact.unnamed") == {
        "exact.one": {"compression.type": "producer", throttled: "*"},
        "exact.none": {throttled: "*"},
        "exact.unnamed": {"flush.ms": "5", throttled: "*"},
    }
    verified = of_phase(estate, "exact", "verify")
    assert verified["exact.none", "alter_configs"]["after"] == {}
    assert estate.run(run_id="exact-again").outcomes() == {}
    estate.run_audit("exact-audit")
    assert [row for row in estate.rows(DRIFT, "exact-audit") if row["kind"].startswith("config_")] == []


@pytest.mark.thorough
def test_losses_are_stopped_by_the_guard_and_the_rest_continues(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    make(kafka, "loss.time", "loss.longer", "loss.policy", "loss.reset", configs={"retention.ms": "700000000"})
    make(kafka, "loss.keys", configs={"cleanup.policy": "compact"})
    make(kafka, "loss.isr", "loss.unclean", "loss.smaller")
    estate = changing(spark, tmp_path, kafka, configs="exact", partitions="grow")
    rows = (
        {"topic": "loss.time", "configs": {"retention.ms": "1000"}},
        {"topic": "loss.longer", "configs": {"retention.ms": "-1"}},
        {"topic": "loss.policy", "configs": {"retention.ms": "700000000", "cleanup.policy": "compact"}},
        {"topic": "loss.reset"},
        {"topic": "loss.keys", "num_partitions": 2, "configs": {"cleanup.policy": "compact"}},
        {"topic": "loss.isr", "configs": {"min.insync.replicas": "1", "flush.ms": "7"}},
        {"topic": "loss.unclean", "configs": {"unclean.leader.election.enable": "TRUE"}},
        {"topic": "loss.smaller", "configs": {"max.message.bytes": "1000"}},
    )
    estate.declare(*rows)
    summary = estate.run(run_id="loss")
    assert (summary.exit_code, summary.outcomes()) == (5, {"ok": 1, "refused": 7})
    disrupts = ("guard", "refused", "MAX_DISRUPTIONS_EXCEEDED")
    guarded = ("guard", "refused", "MAX_LOSSES_EXCEEDED")
    assert ended(estate, "loss") == {
        ("loss.time", "alter_configs"): guarded,
        ("loss.longer", "alter_configs"): disrupts,
        ("loss.smaller", "alter_configs"): disrupts,
        ("loss.policy", "alter_configs"): guarded,
        ("loss.reset", "alter_configs"): guarded,
        ("loss.keys", "add_partitions"): guarded,
        ("loss.isr", "alter_configs"): OK,
        ("loss.unclean", "alter_configs"): guarded,
    }
    messages = {row["topic"]: row["error_message"] for row in estate.rows(AUDIT, "loss") if row["phase"] == "guard"}
    assert messages["loss.time"] == (
        "retention.ms 700000000 -> 1000 can lose data at once; topics of this cluster with such changes: 5, "
        "guards.max_losses is 0; if they are meant, before a plan is applied: runs approve RUN_ID --allow losses=5"
    )
    assert messages["loss.longer"].startswith("retention.ms 700000000 -> -1 may fill disks; ")
    assert messages["loss.smaller"].startswith(
        "max.message.bytes 1048588 -> 1000 can refuse records that producers send; topics of this cluster with such "
        "changes: 2, "
    )
    assert messages["loss.reset"].startswith("retention.ms 700000000 -> the broker's default")
    assert "from 1 to 2 partitions loses the order of keys" in messages["loss.keys"]
    estate.settings = replace(estate.settings, guards=GuardSettings(max_losses=5, max_disruptions=4, max_changes=5))
    summary = estate.run(run_id="many")
    assert (summary.exit_code, {each[2] for each in ended(estate, "many").values()}) == (5, {"MAX_CHANGES_EXCEEDED"})
    estate.settings = replace(estate.settings, guards=GuardSettings(max_losses=5, max_disruptions=4))
    assert estate.run(run_id="meant", wait_visible=60.0).outcomes() == {"ok": 7}
    assert set_on(kafka, "loss.time", "loss.reset", "loss.smaller") == {
        "loss.time": {"retention.ms": "1000"},
        "loss.reset": {},
        "loss.smaller": {"max.message.bytes": "1000"},
    }


@pytest.mark.thorough
def test_policies_evaluate_changes_and_budgets_count_growth(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    make(kafka, "pol.range", "pol.scope", "pol.fixed", "pol.keyed", "pol.fast", "pol.a", "pol.b", "pol.fewer")
    make(kafka, "pol.legacy", configs={"flush.ms": "99"})
    owned = {"owner": "pol"}
    policies = PolicySettings(
        create=(
            policy("config_range", config="flush.ms", max=50),
            policy("configs_required", names=["flush.ms"]),
            policy("partitions_per_owner", max=10),
        ),
        change=(
            policy("config_change_forbidden", names=["segment.bytes"]),
            policy("partitions_growth", max_factor=5),
            policy("keyed_topics_keep_partitions"),
        ),
    )
    estate = changing(spark, tmp_path, kafka, configs="declared", partitions="grow", policies=policies)
    estate.declare(
        {"topic": "pol.range", "configs": {"flush.ms": "60"}},
        # Longer than allowed, but nobody changes that now.
        {"topic": "pol.legacy", "configs": {"flush.ms": "99", "flush.messages": "9"}},
        {"topic": "pol.scope", "configs": {"flush.messages": "9"}},
        {"topic": "pol.fixed", "configs": {"segment.bytes": "20000000"}},
        {"topic": "pol.keyed", "num_partitions": 2, "labels": {"keyed": "true"}},
        {"topic": "pol.fast", "num_partitions": 6},
        # Two of the owner's topics with 1 partition each: 10 in all are allowed.
        {"topic": "pol.a", "num_partitions": 5, **owned},
        {"topic": "pol.b", "num_partitions": 5, **owned},
        {"topic": "pol.c", "num_partitions": 1, "configs": {"flush.ms": "1"}, **owned},
        {"topic": "pol.fewer", "assignments": {}, "num_partitions": 1},
    )
    summary = estate.run(run_id="pol", wait_visible=60.0)
    refused = ("policy", "refused", "POLICY_VIOLATION")
    assert ended(estate, "pol") == {
        ("pol.range", "alter_configs"): refused,
        ("pol.legacy", "alter_configs"): OK,
        ("pol.scope", "alter_configs"): OK,
        ("pol.fixed", "alter_configs"): refused,
        ("pol.keyed", "add_partitions"): refused,
        ("pol.fast", "add_partitions"): refused,
        ("pol.a", "add_partitions"): OK,
        ("pol.b", "add_partitions"): OK,
        ("pol.c", "create"): refused,
        ("pol.fewer", None): ("manifest", "refused", "ASSIGNMENTS_AND_COUNTS"),
    }
    assert summary.exit_code == 4


def keeps_small(topics: DataFrame, _: Facts) -> DataFrame:
    """A user's own: a topic's configs are only altered where it stays small."""
    return topics.withColumn(
        "reason", F.when(F.col("after").isNotNull() & (F.col("topic") == "users.both"), F.lit("no"))
    )


def small_topics() -> SetRule:
    return keeps_small


@pytest.mark.thorough
def test_a_users_own_policy_evaluates_each_change_once(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    make(kafka, "users.both", "users.one")
    rules = PolicySettings(change=(policy("tests.broker.test_changes:small_topics"),))
    estate = changing(spark, tmp_path, kafka, configs="declared", partitions="grow", policies=rules)
    estate.declare(
        {"topic": "users.both", "num_partitions": 2, "configs": {"flush.ms": "5"}},
        {"topic": "users.one", "num_partitions": 2, "configs": {"flush.ms": "5"}},
    )
    assert estate.run(run_id="own", wait_visible=60.0).outcomes() == {"ok": 2, "refused": 2}
    refused = ("policy", "refused", "POLICY_VIOLATION")
    assert ended(estate, "own") == {
        ("users.both", "add_partitions"): refused,
        ("users.both", "alter_configs"): refused,
        ("users.one", "add_partitions"): OK,
        ("users.one", "alter_configs"): OK,
    }
    assert len(estate.rows(PLANS, "own")) == 4


@pytest.mark.thorough
def test_fewer_partitions_than_there_are_is_refused(spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path) -> None:
    make(kafka, "fewer.one", num_partitions=3)
    estate = changing(spark, tmp_path, kafka, partitions="grow")
    estate.declare({"topic": "fewer.one", "num_partitions": 2})
    assert estate.run(run_id="fewer").exit_code == 4
    (row,) = estate.rows(AUDIT, "fewer")
    assert (row["action"], row["phase"], row["error"]) == ("add_partitions", "policy", "FEWER_PARTITIONS")
    assert row["error_message"] == (
        "it has 3 partitions, 2 are declared, and Kafka can't remove partitions: declare 3 or more"
    )
    (planned,) = estate.rows(PLANS, "fewer")
    assert (planned["before"], planned["after"]) == ({"num_partitions": "3"}, {"num_partitions": "2"})
    # Nothing was sent.
    assert (row["before"], row["after"]) == (None, None)


@pytest.mark.thorough
def test_a_saved_plan_is_compared_again_with_cluster_and_manifests(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    names = [f"altered.{each}" for each in ("same", "other", "done", "anew", "declared", "gone")]
    ids = make(kafka, *names)
    make(kafka, "altered.grows", "altered.grown")
    estate = changing(spark, tmp_path, kafka, configs="declared", partitions="grow")
    flush = [{"topic": name, "configs": {"flush.ms": "5"}} for name in names]
    grows = [{"topic": name, "num_partitions": 3} for name in ("altered.grows", "altered.grown")]
    estate.declare(*flush, *grows)
    assert estate.run("plan", run_id="saved").pending_changes == 8
    alter(kafka, "altered.other", flush_ms="6")
    alter(kafka, "altered.done", flush_ms="5")
    alter(kafka, "altered.same", segment_bytes="20000000")
    remove(kafka, {name: ids[name] for name in ("altered.anew", "altered.gone")})
    make(kafka, "altered.anew")
    admin = KafkaAdminClient(**kafka.client_options())
    admin.create_partitions({"altered.grown": 2})
    admin.close()
    until(lambda: live(kafka, "altered.grown")["altered.grown"].num_partitions == 2, seconds=30)
    flush[4] = {"topic": "altered.declared", "configs": {"flush.ms": "9"}}
    estate.declare_anew(*flush, *grows)
    assert estate.run("apply", run_id="saved", wait_visible=60.0).exit_code == 4
    changed = ("apply", "refused", "CHANGED_SINCE_PLAN")
    assert ended(estate, "saved") == {
        ("altered.same", "alter_configs"): OK,
        ("altered.other", "alter_configs"): changed,
        ("altered.done", "alter_configs"): OK,
        ("altered.anew", "alter_configs"): ("apply", "refused", "RECREATED"),
        ("altered.gone", "alter_configs"): changed,
        ("altered.declared", "alter_configs"): changed,
        ("altered.grows", "add_partitions"): OK,
        ("altered.grown", "add_partitions"): changed,
    }
    messages = {row["topic"]: row["error_message"] for row in of_phase(estate, "saved", "apply").values()}
    assert messages["altered.other"] == (
        "another client changed it since the plan: flush.ms is 6, the plan saw not set; plan again"
    )
    assert "declare it with other configs: flush.ms" in messages["altered.declared"]
    assert set_on(kafka, "altered.other", "altered.anew") == {"altered.other": {"flush.ms": "6"}, "altered.anew": {}}
    assert live(kafka, "altered.grown")["altered.grown"].num_partitions == 2


@pytest.mark.thorough
@pytest.mark.parametrize("most", [3, 8_000])
def test_one_bad_value_fails_its_own_topic_only(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path, most: int
) -> None:
    """K2: none of its keys are applied, others are unaffected, in batches of any size; the broker's words are kept."""
    names = [f"bad{most}.{number}" for number in range(12)]
    make(kafka, *names)
    estate = changing(spark, tmp_path, kafka, configs="declared")
    estate.settings = replace(estate.settings, kafka=replace(estate.settings.kafka, max_batch_records=most))
    good = {"flush.ms": "5", "flush.messages": "9"}
    bad = {3: {**good, "no.such.config": "1"}, 5: {**good, "compression.type": "brotli"}, 9: {"retention.ms": "soon"}}
    estate.declare(*({"topic": name, "configs": bad.get(number, good)} for number, name in enumerate(names)))
    summary = estate.run(run_id="bad", wait_visible=60.0)
    assert (summary.exit_code, summary.outcomes()) == (4, {"ok": 9, "failed": 3})
    failed = {row["topic"]: row for row in estate.rows(AUDIT, "bad") if row["outcome"] == "failed"}
    assert {row["phase"] for row in failed.values()} == {"validate"}
    assert {(row["error_code"], row["error"]) for row in failed.values()} == BAD_CONFIG
    assert "no.such.config" in failed[names[3]]["error_message"]
    assert set_on(kafka, *names) == {name: {} if number in bad else good for number, name in enumerate(names)}


def test_requests_that_brokers_do_only_in_part_are_not_sent(kafka: EmbeddedKafka) -> None:
    """N1: of more than 10,000 new partitions a broker adds some and answers that it failed."""
    ids = make(kafka, "vast.one", "vast.two")
    with executor_of(kafka) as executor:
        vast, two = executor.validate([grow("vast.one", ids, 10_002), grow("vast.two", ids, 2)])
    assert (vast.topic, vast.outcome, vast.error) == ("vast.one", "refused", "POLICY_VIOLATION")
    assert "declare at most 10000 more at a time" in str(vast.error_message)
    assert (two.topic, two.outcome) == ("vast.two", "ok")
    assert {info.num_partitions for info in live(kafka, "vast.").values()} == {1}


def grow(topic: str, ids: Mapping[str, str], count: int) -> Target:
    return Target(
        resource=topic,
        topic_id=ids[topic],
        action=Action.ADD_PARTITIONS,
        before={"num_partitions": "1"},
        after={"num_partitions": str(count)},
    )


@pytest.mark.thorough
def test_new_partitions_get_the_brokers_that_are_declared(
    spark: SparkSession, kafka_three: EmbeddedKafka, tmp_path: Path
) -> None:
    """N4: only those of the new partitions are sent; a partition whose replicas differ stays as it is."""
    make(kafka_three, "places.one", assignments={0: (1, 2)}, num_partitions=None, replication_factor=None)
    estate = changing(spark, tmp_path, kafka_three, partitions="grow")
    estate.declare({"topic": "places.one", "assignments": {0: [1, 2], 1: [3, 1], 2: [2, 3]}})
    assert estate.run(run_id="places", wait_visible=60.0).outcomes() == {"ok": 1}
    assert live(kafka_three, "places.")["places.one"].assignments == {0: (1, 2), 1: (3, 1), 2: (2, 3)}


@pytest.mark.thorough
def test_a_topic_whose_replicas_are_being_moved_gets_no_partitions_yet(
    spark: SparkSession, kafka_three: EmbeddedKafka, tmp_path: Path
) -> None:
    """N6: its new partitions would have the replicas of both places."""
    make(kafka_three, "shifted.one", assignments={0: (1,)}, num_partitions=None, replication_factor=None)
    estate = changing(spark, tmp_path, kafka_three, partitions="grow")
    estate.declare({"topic": "shifted.one", "num_partitions": 2})
    with moving(kafka_three, "shifted.one", [2]):
        assert estate.run(run_id="moving").exit_code == 4
        assert ended(estate, "moving") == {
            ("shifted.one", "add_partitions"): ("validate", "refused", "REASSIGNMENT_IN_PROGRESS")
        }
        assert live(kafka_three, "shifted.")["shifted.one"].num_partitions == 1
    until(lambda: live(kafka_three, "shifted.")["shifted.one"].assignments == {0: (2,)}, seconds=60)
    assert estate.run(run_id="moved", wait_visible=60.0).outcomes() == {"ok": 1}
    (topic,) = live(kafka_three, "shifted.").values()
    assert (topic.num_partitions, topic.replication_factor) == (2, 1)


@contextmanager
def moving(kafka: EmbeddedKafka, topic: str, replicas: list[int]) -> Iterator[None]:
    """Replicas of partition 0 are on their way, at a byte a second; afterwards without a throttle."""
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    # A follower's first fetch isn't throttled, and may get 10 MB.
    for _ in range(2_000):
        producer.send(topic, bytes(20_000))
    producer.flush()
    producer.close()
    rates = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    lists = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
    brokers, gone = [str(number) for number in (1, 2, 3)], ("DELETE", None)
    admin = KafkaAdminClient(**kafka.client_options())
    try:
        admin.alter_configs(
            [
                *(
                    ConfigResource(ConfigResourceType.BROKER, each, configs=dict.fromkeys(rates, "1"))
                    for each in brokers
                ),
                ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict.fromkeys(lists, "*")),
            ],
            raise_on_unknown=False,
        )
        until(lambda: len(set_on(kafka, topic)[topic]) == 2, seconds=30)
        admin.alter_partition_reassignments({TopicPartition(topic, 0): replicas})
        yield
    finally:
        admin.alter_configs(
            [
                *(
                    ConfigResource(ConfigResourceType.BROKER, each, configs=dict.fromkeys(rates, gone))
                    for each in brokers
                ),
                ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict.fromkeys(lists, gone)),
            ],
            raise_on_unknown=False,
        )
        admin.close()


@pytest.mark.thorough
def test_without_the_rights_a_row_says_which_are_missing(
    spark: SparkSession, kafka_sasl: EmbeddedKafka, tmp_path: Path
) -> None:
    """K2, N7: without AlterConfigs or Alter the broker refuses; without DescribeConfigs we do."""
    names = ("rights.alter", "rights.hidden", "rights.grow")
    make(kafka_sasl, *names)
    rights = [
        *(allow("describer", ACLOperation.DESCRIBE, name, ACLResourcePatternType.LITERAL) for name in names),
        *(
            allow("describer", ACLOperation.DESCRIBE_CONFIGS, name, ACLResourcePatternType.LITERAL)
            for name in ("rights.alter", "rights.grow")
        ),
    ]
    with admin_of(kafka_sasl) as admin:
        admin._admin.create_acls(rights)
    estate = changing(spark, tmp_path, kafka_sasl, configs="declared", partitions="grow")
    estate.settings = replace(estate.settings, clusters={"main": settings_for("main", kafka_sasl, "describer")})
    estate.declare(
        {"topic": "rights.alter", "configs": {"flush.ms": "5"}},
        {"topic": "rights.hidden", "configs": {"flush.ms": "5"}},
        {"topic": "rights.grow", "num_partitions": 2, "replication_factor": 1},
    )
    assert estate.run(run_id="rights").exit_code == 4
    assert ended(estate, "rights") == {
        ("rights.alter", "alter_configs"): ("validate", "failed", "TOPIC_AUTHORIZATION_FAILED"),
        ("rights.hidden", "alter_configs"): ("observe", "refused", "NOT_PERMITTED"),
        ("rights.grow", "add_partitions"): ("validate", "failed", "TOPIC_AUTHORIZATION_FAILED"),
    }


@pytest.mark.thorough
def test_an_estate_of_2000_topics_becomes_what_is_declared_and_stays_so(spark: SparkSession, tmp_path: Path) -> None:
    """1,500 topics with other configs and 300 with more partitions, key by key against what librdkafka describes."""
    rng = random.Random(20261123)
    names = [f"large.{number:04}" for number in range(2_000)]
    values = {
        "flush.ms": ("5", "6", "7"),
        "segment.bytes": ("20000000", "30000000"),
        "compression.type": ("lz4", "zstd"),
    }

    def any_configs() -> dict[str, str]:
        return {name: rng.choice(each) for name, each in values.items() if rng.random() < 0.5}

    with EmbeddedKafka(KAFKA, KafkaOptions(heap="1g")) as kafka:
        before = {name: any_configs() for name in names}
        with admin_of(kafka) as admin:
            for start in range(0, len(names), 500):
                created = [
                    Target(
                        resource=name,
                        action=Action.CREATE,
                        num_partitions=1,
                        replication_factor=1,
                        configs=before[name],
                    )
                    for name in names[start : start + 500]
                ]
                results = admin.create_topics(created, validate_only=False).results
                assert {each.error_code for each in results.values()} == {0}
            until(lambda: len(list(admin.describe_topics(names))) == len(names), seconds=120)
        after = dict(before)
        for name in rng.sample(names, 1_500):
            while after[name] == before[name]:
                after[name] = any_configs()
        grown = set(rng.sample(names, 300))
        # A reset of segment.bytes may do anything, since the broker's default isn't known beforehand.
        guards = GuardSettings(max_losses=len(names), max_disruptions=len(names))
        estate = changing(spark, tmp_path, kafka, guards=guards, configs="exact", partitions="grow")
        estate.declare(
            *({"topic": name, "num_partitions": 2 if name in grown else 1, "configs": after[name]} for name in names)
        )
        summary = estate.run(run_id="large", wait_visible=120.0)
        assert (summary.exit_code, summary.outcomes()) == (0, {"ok": 1_800})
        assert summary.decisions["unchanged"] == len(names) - len(grown | {n for n in names if after[n] != before[n]})
        client = AnotherClient(kafka)
        for name, each in client.topics("large.").items():
            assert each.num_partitions == (2 if name in grown else 1)
        for config in values:
            defaults = {
                "flush.ms": "9223372036854775807",
                "segment.bytes": "1073741824",
                "compression.type": "producer",
            }
            live_values = client.config(config, set(names))
            assert live_values == {name: after[name].get(config, defaults[config]) for name in names}
        kept = {row["topic"]: row for row in estate.rows(PLANS, "large") if row["action"] == "alter_configs"}
        for name, row in kept.items():
            old, new = before[name].items(), after[name].items()
            kept_before = {key: value for key, value in old if after[name].get(key) != value}
            assert (row["before"], row["after"].items()) == (kept_before, new - old)
        again = estate.run(run_id="large-again")
        assert (again.exit_code, again.outcomes(), again.decisions["unchanged"]) == (0, {}, 2_000)
        estate.run_audit("large-audit")
        assert [row for row in estate.rows(DRIFT, "large-audit") if row["kind"] != "broker_default_changed"] == []
