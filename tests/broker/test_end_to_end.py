"""A whole run compared, topic by topic, with what the broker then says to another client."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic, ResourceType
from pyspark.sql import SparkSession

from tests.harness import Estate, topics
from topicledger.config.settings import Owners, OwnerSettings
from topicledger.schemas import MANIFESTS, PLANS, RUNS
from topicledger_testing.embedded_kafka import EmbeddedKafka

CREATED = [f"e2e.create-{number:04}" for number in range(1000)]
DELETED = [f"e2e.delete-{number:04}" for number in range(200)]
BAD = 300
MINE, THEIRS, GONE = "e2e.payments.mine", "e2e.payments.theirs", "e2e.payments.gone"
LEFT = "e2e.left"
"""A topic that lives with fewer partitions and without the config that its row declares."""


def bad_rows() -> list[dict[str, Any]]:
    """300 rows, each wrong in one of many ways; the last sixth only the broker can refuse."""
    kinds: list[dict[str, Any]] = [
        {"num_partitions": 0},
        {"num_partitions": -3},
        {"replication_factor": 0},
        {"state": "maybe"},
        {"configs": {"retention.ms": None}},
        {"assignments": {0: [1], 2: [1]}},
        {"assignments": {0: [1, 1]}},
        {"assignments": {0: [1]}, "num_partitions": 1},
        {"topic": "e2e bad name"},
        {"topic": "e2e.ü"},
        {"replication_factor": 7},
        {"configs": {"no.such.config": "1"}},
        {"configs": {"retention.ms": "soon"}},
        {"assignments": {0: [99]}},
        {"topic": "e2e." + "x" * 250},
    ]
    rows = []
    for number in range(BAD):
        kind = dict(kinds[number % len(kinds)])
        name = kind.pop("topic", "e2e.bad")
        rows.append({"topic": f"{name}-{number:03}", **kind})
    return rows


def partitions_of(number: int) -> int:
    return 1 + number % 3


@pytest.fixture(scope="module")
def provisioned(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Estate, AdminClient]:
    """1,001 creates, 200 deletes, 300 bad rows, 2 of the wrong owner and 1 that differs from its topic, in one run."""
    estate = Estate(spark, tmp_path_factory.mktemp("e2e") / "ledger", {"main": kafka}, max_deletes=200)
    owned = Owners(names={"payments": OwnerSettings(topics=(r"^e2e\.payments\.",))})
    estate.settings = replace(estate.settings, owners=owned)
    client = AdminClient({"bootstrap.servers": ",".join(kafka.bootstrap_servers)})
    for done in client.create_topics([NewTopic(name, 1, 1) for name in (*DELETED, LEFT)]).values():
        done.result(30)
    creates = [
        {
            "topic": name,
            "num_partitions": partitions_of(number),
            "replication_factor": 1,
            "configs": {"retention.ms": str(3_600_000 + number), "cleanup.policy": "compact"} if number % 2 else None,
        }
        for number, name in enumerate(CREATED)
    ]
    estate.declare(*creates, *topics(DELETED, state="absent"), *bad_rows())
    counts = {"num_partitions": 1, "replication_factor": 1}
    estate.declare(
        {"topic": MINE, "owner": "Payments", **counts},
        {"topic": THEIRS, "owner": "orders", **counts},
        {"topic": GONE, "owner": "orders", "state": "absent"},
        {"topic": LEFT, "num_partitions": 3, "configs": {"retention.ms": "6048000000"}},
    )
    summary = estate.run(run_id="e2e", wait_visible=60.0)
    assert summary.exit_code == 4
    assert summary.outcomes() == {"ok": 1201, "refused": 222, "failed": 80}
    return estate, client


def test_the_audit_agrees_with_the_broker_on_every_topic(provisioned: tuple[Estate, AdminClient]) -> None:
    """C7, C9, D7: partitions, RF, configs and existence of 1,500 topics, asked of the broker by another client."""
    estate, client = provisioned
    audit = estate.audit("e2e")
    live = client.list_topics(timeout=30).topics
    said_ok = {topic for (topic, phase), row in audit.items() if phase == "apply" and row["outcome"] == "ok"}
    assert said_ok == {*CREATED, *DELETED, MINE}
    assert {name for name in live if name.startswith("e2e")} == {*CREATED, MINE, LEFT}

    resources = [ConfigResource(ResourceType.TOPIC, name) for name in (*CREATED, LEFT)]
    described = {each.name: done.result(60) for each, done in client.describe_configs(resources).items()}
    for number, name in enumerate(CREATED):
        row = audit[name, "apply"]
        assert row["num_partitions"] == len(live[name].partitions) == partitions_of(number)
        assert row["replication_factor"] == len(live[name].partitions[0].replicas) == 1
        returned = {config["name"]: (config["value"], config["read_only"]) for config in row["configs"]}
        assert returned == {each.name: (each.value, each.is_read_only) for each in described[name].values()}
        set_on_topic = {c["name"]: c["value"] for c in row["configs"] if c["config_source"] == "DYNAMIC_TOPIC_CONFIG"}
        wanted = {"retention.ms": str(3_600_000 + number), "cleanup.policy": "compact"} if number % 2 else {}
        assert set_on_topic == wanted
        assert audit[name, "verify"]["outcome"] == "ok"
    # Without [changes], nothing that exists is changed.
    assert len(live[LEFT].partitions) == 1
    assert not [each for each in described[LEFT].values() if each.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value]
    assert [row for row in estate.rows(PLANS, "e2e") if row["topic"] == LEFT] == []


def test_a_topic_of_others_is_refused(provisioned: tuple[Estate, AdminClient]) -> None:
    """[owners] of the settings says who may declare it."""
    estate, _ = provisioned
    last, refused = estate.last("e2e"), ("manifest", "refused", "NOT_YOURS")
    assert (last[MINE], last[THEIRS], last[GONE]) == (("verify", "ok", None), refused, refused)
    message = estate.audit("e2e")[THEIRS, "manifest"]["error_message"]
    assert message == "owner orders may not declare it: it belongs to payments ([owners])"


def test_each_bad_row_is_refused_with_its_reason_and_the_good_ones_go_through(
    provisioned: tuple[Estate, AdminClient],
) -> None:
    """C1, C3, C7: rows that a look at the row shows wrong end at manifest, the others by the broker's own error."""
    estate, _ = provisioned
    audit = estate.audit("e2e")
    ended = [audit.get((row["topic"], "manifest")) or audit.get((row["topic"], "validate")) for row in bad_rows()]
    assert len(ended) == BAD
    assert all(row is not None and row["error"] and row["error_message"] for row in ended)
    by_kafka = [row for row in ended if row and row["phase"] == "validate"]
    assert {row["error"] for row in by_kafka} == {
        "INVALID_REPLICATION_FACTOR",
        "INVALID_CONFIG",
        "INVALID_REPLICA_ASSIGNMENT",
    }


def test_the_run_is_finished_and_every_action_ended_once(provisioned: tuple[Estate, AdminClient]) -> None:
    estate, _ = provisioned
    estate.check_invariant("e2e")
    (run,) = estate.rows(RUNS, "e2e")
    assert (run["exit_code"], run["counts"]["ok"], run["counts"]["refused"]) == (4, 1201, 222)
    assert set(run["versions"]) == {"topicledger", "spark", "delta", "kafka-python"}


@pytest.mark.thorough
def test_a_second_run_of_the_same_good_manifests_does_nothing(provisioned: tuple[Estate, AdminClient]) -> None:
    estate, _ = provisioned
    estate.ledger.delete(MANIFESTS, "topic NOT LIKE 'e2e.create%' AND topic NOT LIKE 'e2e.delete%'")
    summary = estate.run(run_id="e2e-again")
    assert summary.exit_code == 0
    assert summary.outcomes() == {}
    assert summary.decisions["unchanged"] == 1200
    assert estate.audit("e2e-again") == {}
