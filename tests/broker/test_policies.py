"""Policies on real clusters: they also evaluate values that brokers resolve, and again before anything is sent."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.broker.direct import live, make, remove, settings_for
from tests.harness import Estate, policy, topics
from topicledger.apply.summary import Summary
from topicledger.config.settings import ChangeSettings, PolicySettings
from topicledger.errors import PolicyError
from topicledger.schemas import USAGES
from topicledger_testing.embedded_kafka import EmbeddedKafka

DAY_MS = 86_400_000
PARTITION = {"num_partitions": 1, "replication_factor": 1}


def register(estate: Estate, *rows: tuple[str, str, datetime | None]) -> None:
    """Add topic, consumer and valid_until to the registry of users."""
    estate.ledger.ensure(USAGES)
    complete = [("main", *row, None) for row in rows]
    frame = estate.spark.createDataFrame(complete, USAGES.schema)
    frame.write.format("delta").mode("append").save(estate.ledger.location(USAGES))


def partitions(kafka: EmbeddedKafka) -> int:
    """Partitions of the whole cluster."""
    return sum(info.num_partitions for info in live(kafka, "").values())


def told(row: dict[str, Any]) -> list[str]:
    """The policies that a row of `audit` names."""
    return [violation["policy"] for violation in row["violations"] or ()]


@pytest.fixture(scope="module")
def ruled(
    spark: SparkSession, kafka_policy: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Estate, Summary]:
    """A run under rules of ours and a broker's."""
    rules = PolicySettings(
        create=(
            policy("topic_name_pattern", pattern=r"^(ruled|forbidden)\."),
            policy("num_partitions", max=5),
            policy("config_range", config="retention.ms", max=DAY_MS),
            policy("labels_required", "warn", names=["tier"]),
            policy("config_range", "warn", config="segment.bytes", max=2_000_000),
        )
    )
    estate = Estate(spark, tmp_path_factory.mktemp("ruled") / "ledger", {"main": kafka_policy}, policies=rules)
    short = {"configs": {"retention.ms": "60000", "segment.bytes": "2000000"}, "labels": {"tier": "gold"}}
    estate.declare(
        {"topic": "ruled.fine", **short},
        {"topic": "ruled.unlabelled", **short, "labels": None},
        {"topic": "ruled.by-default", "labels": {"tier": "gold"}},
        {"topic": "ruled.big-segments", "configs": {"retention.ms": "60000"}, "labels": {"tier": "gold"}},
        {"topic": "ruled.everything", "num_partitions": 9, "configs": {"retention.ms": "-1"}},
        {"topic": "unruly", **short},
        {"topic": "forbidden.ruled", **short},
    )
    return estate, estate.run("provision", run_id="ruled-1", wait_visible=30.0)


def test_our_refusals_and_the_brokers_are_in_one_column(
    ruled: tuple[Estate, Summary],
) -> None:
    """C8, P3"""
    estate, first = ruled
    audit = estate.audit("ruled-1")
    ours, broker = audit["unruly", "policy"], audit["forbidden.ruled", "validate"]
    assert (ours["error"], ours["error_code"], told(ours)) == ("POLICY_VIOLATION", -1, ["topic_name_pattern"])
    assert (broker["error"], broker["error_code"], told(broker)) == ("POLICY_VIOLATION", 44, ["broker"])
    assert broker["violations"][0]["message"] == broker["error_message"]
    assert first.exit_code == 4
    estate.check_invariant("ruled-1")


def test_every_rule_broken_is_told_before_anything_is_sent(ruled: tuple[Estate, Summary]) -> None:
    """P3"""
    row = ruled[0].audit("ruled-1")["ruled.everything", "policy"]
    assert told(row) == ["num_partitions", "config_range", "labels_required"]
    assert row["error_message"] == (
        "num_partitions: num_partitions is 9; allowed is 1 to 5; config_range: retention.ms is -1, without limit; "
        "allowed is any to 86400000"
    )


def test_values_left_to_the_broker_are_evaluated_after_validate(
    ruled: tuple[Estate, Summary], kafka_policy: EmbeddedKafka
) -> None:
    """C9; a row of phase policy after validate's ends the topic."""
    estate, _ = ruled
    audit = estate.audit("ruled-1")
    assert audit["ruled.by-default", "validate"]["outcome"] == "ok"
    row = audit["ruled.by-default", "policy"]
    assert (row["outcome"], row["error"], row["error_code"]) == ("refused", "POLICY_VIOLATION", -1)
    assert row["error_message"] == (
        "config_range: retention.ms is 604800000, the broker's default; allowed is any to 86400000"
    )
    assert ("ruled.by-default", "apply") not in audit
    assert set(live(kafka_policy, "ruled.")) == {"ruled.fine", "ruled.unlabelled", "ruled.big-segments"}


def test_a_warning_is_reported_and_refuses_nothing(ruled: tuple[Estate, Summary]) -> None:
    estate, first = ruled
    audit = estate.audit("ruled-1")
    assert audit["ruled.unlabelled", "apply"]["outcome"] == "ok"
    assert audit["ruled.unlabelled", "validate"]["violations"] == [
        {"policy": "labels_required", "message": "warning: label tier is missing"}
    ]
    # A warning that only validate made possible has a row of its own.
    resolved = audit["ruled.big-segments", "policy"]
    assert (resolved["outcome"], told(resolved)) == ("ok", ["config_range"])
    assert audit["ruled.big-segments", "apply"]["outcome"] == "ok"
    assert {(each.topic, each.policy) for each in first.warnings} == {
        ("ruled.unlabelled", "labels_required"),
        ("ruled.big-segments", "config_range"),
        ("ruled.by-default", "config_range"),
        ("ruled.everything", "labels_required"),
    }
    assert first.warning_count == 4


@pytest.mark.thorough
def test_the_same_rules_on_the_same_manifests_refuse_the_same_again(ruled: tuple[Estate, Summary]) -> None:
    estate, _ = ruled
    second = estate.run("plan", run_id="ruled-2")
    refused = {topic for (topic, _), row in estate.audit("ruled-2").items() if row["outcome"] == "refused"}
    assert refused == {"ruled.by-default", "ruled.everything", "unruly", "forbidden.ruled"}
    assert (second.exit_code, second.pending_changes, second.decisions["unchanged"]) == (4, 0, 3)


@pytest.mark.thorough
def test_values_that_a_broker_does_not_return_are_unjudgeable(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """C11"""
    old = settings_for("main", kafka, api_version=(2, 3))
    rules = (policy("config_range", config="retention.ms", max=DAY_MS),)
    estate = Estate(spark, tmp_path / "ledger", {"main": old}, policies=PolicySettings(create=rules))
    estate.declare(
        {"topic": "untold.declared", **PARTITION, "configs": {"retention.ms": "60000"}},
        {"topic": "untold.left", **PARTITION},
    )
    assert estate.run("provision", run_id="untold", wait_visible=30.0).exit_code == 4
    row = estate.audit("untold")["untold.left", "policy"]
    assert (row["outcome"], row["error"]) == ("refused", "UNJUDGEABLE")
    assert set(live(kafka, "untold.")) == {"untold.declared"}


@pytest.mark.thorough
def test_a_budget_is_given_out_by_name_and_twice_in_a_row_the_same(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """P1, KIP-170's case: N more partitions, N + 5 asked for."""
    most = partitions(kafka) + 6
    rules = PolicySettings(create=(policy("partition_budget", max=most),))
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka}, policies=rules)
    # Counts that are left to the broker are known after validate only.
    asked = [f"budget.{number:02}" for number in range(11)]
    estate.declare(*topics(asked[::2]), *topics(asked[1::2], **PARTITION))
    for run_id in ("budget-1", "budget-2"):
        assert estate.run("provision", run_id=run_id, wait_visible=30.0).exit_code == 4
        assert sorted(live(kafka, "budget.")) == asked[:6]
        last = estate.last(run_id)
        assert {topic for topic, (_, outcome, _) in last.items() if outcome == "refused"} == set(asked[6:])
        estate.check_invariant(run_id)


def freeing(
    spark: SparkSession, folder: Path, kafka: EmbeddedKafka, prefix: str
) -> tuple[Estate, Summary, dict[tuple[str | None, str], dict[str, Any]]]:
    """A run with room for one create, and for one more where its delete goes through."""
    ids = make(kafka, f"{prefix}.old", num_partitions=2)
    rules = PolicySettings(create=(policy("partition_budget", max=partitions(kafka) + 1),))
    estate = Estate(spark, folder / "ledger", {"main": kafka}, max_deletes=1, policies=rules)
    estate.declare(
        {"topic": f"{prefix}.a", **PARTITION},
        {"topic": f"{prefix}.b", **PARTITION, "num_partitions": 2},
        {"topic": f"{prefix}.c", **PARTITION},
        *topics(ids, state="absent"),
    )
    summary = estate.run("provision", run_id=prefix, wait_visible=30.0)
    estate.check_invariant(prefix)
    return estate, summary, estate.audit(prefix)


@pytest.mark.thorough
def test_creates_that_need_freed_room_go_after_the_deletes(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    _, summary, audit = freeing(spark, tmp_path, kafka, "freed")
    assert summary.exit_code == 4
    assert audit["freed.c", "policy"]["outcome"] == "refused"
    applied = {topic: row for (topic, phase), row in audit.items() if phase == "apply"}
    assert {topic: row["outcome"] for topic, row in applied.items()} == {
        "freed.old": "ok",
        "freed.a": "ok",
        "freed.b": "ok",
    }
    assert applied["freed.b"]["requested_at"] >= applied["freed.old"]["completed_at"]
    assert applied["freed.b"]["requested_at"] >= applied["freed.a"]["completed_at"]
    assert set(live(kafka, "freed.")) == {"freed.a", "freed.b"}


@pytest.mark.thorough
def test_creates_whose_room_was_not_freed_fail_and_say_so(
    spark: SparkSession, kafka_no_delete: EmbeddedKafka, tmp_path: Path
) -> None:
    """BUDGET_NOT_FREED, D8"""
    _, summary, audit = freeing(spark, tmp_path, kafka_no_delete, "unfreed")
    assert summary.exit_code == 4
    assert audit["unfreed.old", "apply"]["error"] == "TOPIC_DELETION_DISABLED"
    assert audit["unfreed.a", "apply"]["outcome"] == "ok"
    row = audit["unfreed.b", "apply"]
    assert (row["outcome"], row["error"], row["error_code"]) == ("failed", "BUDGET_NOT_FREED", -1)
    assert told(row) == ["partition_budget"]
    assert set(live(kafka_no_delete, "unfreed.")) == {"unfreed.old", "unfreed.a"}


@pytest.mark.thorough
def test_a_saved_plan_is_evaluated_on_the_state_at_apply(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """P2: a consumer that registered since keeps its topic; room that others took meanwhile is not given out again."""
    ids = make(kafka, "stale.wanted", "stale.unwanted")
    rules = PolicySettings(create=(policy("partition_budget", max=partitions(kafka) + 3),), delete=(policy("in_use"),))
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka}, max_deletes=2, policies=rules)
    estate.declare(*topics(["stale.a", "stale.b", "stale.c"], **PARTITION), *topics(ids, state="absent"))
    yesterday = datetime.now(UTC) - timedelta(days=1)
    register(estate, ("stale.wanted", "long gone", yesterday), ("stale.unwanted", "long gone", yesterday))
    assert estate.run("plan", run_id="stale").pending_changes == 5

    register(estate, ("stale.wanted", "billing", None))
    make(kafka, "stale-stranger", num_partitions=3)
    assert estate.run("apply", run_id="stale", wait_visible=30.0).exit_code == 4
    audit = estate.audit("stale")
    kept = audit["stale.wanted", "apply"]
    assert (kept["outcome"], kept["error"], told(kept)) == ("refused", "POLICY_VIOLATION", ["in_use"])
    assert "billing" in kept["error_message"]
    # One delete still goes through: there is room for one create, by name the first.
    assert audit["stale.a", "apply"]["outcome"] == "ok"
    for topic in ("stale.b", "stale.c"):
        assert (audit[topic, "apply"]["outcome"], told(audit[topic, "apply"])) == ("refused", ["partition_budget"])
    assert set(live(kafka, "stale.")) == {"stale.wanted", "stale.a"}
    estate.check_invariant("stale")


def test_topics_that_got_consumers_or_records_since_the_plan_are_not_deleted(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Their rows were removed: policies go by the last owner, also before `apply`; any labels may have been theirs."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    rules = PolicySettings(
        delete=(
            policy("owner_required"),
            replace(policy("no_consumer_groups"), owners=("payments",)),
            replace(policy("no_recent_records", days=1), labels={"tier": "gold"}),
        )
    )
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka}, max_deletes=3, policies=rules)
    estate.settings = replace(estate.settings, changes={"main": ChangeSettings(undeclared="delete")})
    owned = {"owner": "payments", "labels": {"tier": "gold"}}
    estate.declare(*topics(["going.read", "going.written", "going.quiet"], **PARTITION, **owned))
    assert estate.run("provision", run_id="coming", wait_visible=30.0).exit_code == 0
    estate.declare_anew()
    assert estate.run("plan", run_id="going").pending_changes == 3

    servers = ",".join(kafka.bootstrap_servers)
    producer = Producer({"bootstrap.servers": servers})
    producer.produce("going.written", b"a record")
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "readers-of-going"})
    consumer.commit(offsets=[TopicPartition("going.read", 0, 0)], asynchronous=False)
    consumer.close()
    assert estate.run("apply", run_id="going", wait_visible=30.0).exit_code == 4
    audit = estate.audit("going")
    assert told(audit["going.read", "apply"]) == ["no_consumer_groups"]
    assert "readers-of-going" in audit["going.read", "apply"]["error_message"]
    assert told(audit["going.written", "apply"]) == ["no_recent_records"]
    assert set(live(kafka, "going.")) == {"going.read", "going.written"}


@pytest.mark.thorough
def test_a_broken_policy_sends_nothing_until_it_is_corrected(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P4"""
    (tmp_path / "broken_rules.py").write_text(
        "from pyspark.sql import functions as F\n"
        "BROKEN = True\n"
        "def first_only():\n"
        "    def rule(topics, facts):\n"
        "        rows = topics.limit(1) if BROKEN else topics\n"
        "        return rows.withColumn('reason', F.when(F.col('topic') != 'own.a', F.lit('not the first')))\n"
        "    return rule\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    rules = PolicySettings(create=(policy("broken_rules:first_only"),))
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka}, policies=rules)
    estate.declare(*topics(["own.a", "own.b"], **PARTITION))
    with pytest.raises(PolicyError, match=r"broken_rules:first_only must return the rows it was given.*dropped"):
        estate.run("provision", run_id="own")
    assert not live(kafka, "own.")

    monkeypatch.setattr("broken_rules.BROKEN", False)
    assert estate.run("provision", run_id="own", wait_visible=30.0).exit_code == 4
    assert told(estate.audit("own")["own.b", "policy"]) == ["broken_rules:first_only"]
    assert set(live(kafka, "own.")) == {"own.a"}


@pytest.mark.thorough
def test_topics_of_a_lost_cluster_are_created_again_under_stricter_policies(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Each exemption is a warning. A topic that this ledger never created is refused."""
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    rows = [{"topic": f"lost.{each}", "num_partitions": 2, "replication_factor": 1} for each in ("a", "b")]
    estate.declare(*rows)
    assert estate.run(run_id="first", wait_visible=30.0).exit_code == 0
    remove(kafka, {name: str(info.topic_id) for name, info in live(kafka, "lost.").items()})
    estate.declare({"topic": "lost.new", "num_partitions": 2, "replication_factor": 1})
    stricter = PolicySettings(create=(policy("num_partitions", max=1),), recreated="exempt")
    estate.settings = replace(estate.settings, policies=stricter)
    again = estate.run(run_id="again", wait_visible=30.0)
    assert again.exit_code == 4
    assert [(each.topic, each.error) for each in again.failures] == [("lost.new", "POLICY_VIOLATION")]
    assert {(each.topic, each.policy) for each in again.warnings} == {
        ("lost.a", "num_partitions"),
        ("lost.b", "num_partitions"),
    }
    assert set(live(kafka, "lost.")) == {"lost.a", "lost.b"}
