"""Topics that a principal with few permissions can't see: how many there are, and how policies treat them (M3)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.admin import ACLOperation, ResourceType
from pyspark.sql import SparkSession

from tests.broker.direct import admin_of, live, make, settings_for
from tests.broker.granted import ANY_TOPIC, CLUSTER, USER, Rights
from tests.harness import Estate, cluster_settings, policy
from tests.waiting import until
from topicledger.config.settings import KafkaSettings, PolicySettings
from topicledger.errors import ClusterError, GuardStopped
from topicledger.model.moves import Rebalance
from topicledger.resources.topics.observe.topic_use import read_unseen_topics
from topicledger.schemas import PLANS
from topicledger_testing.embedded_kafka import EmbeddedKafka

MINE = "unseen.mine."
PARTITION = {"num_partitions": 1, "replication_factor": 1}


@pytest.fixture
def rights(kafka_sasl: EmbeddedKafka) -> Iterator[Rights]:
    made = Rights(kafka_sasl)
    yield made
    made.take_all()


DOWN = 99
"""A broker that isn't up."""


def unseen(kafka: EmbeddedKafka, on: int | None = None) -> int | str:
    """Return what the user can find out about hidden topics."""
    with admin_of(kafka, USER) as admin:
        try:
            return admin.unseen_topics(on)
        except ClusterError as error:
            return str(error)


def test_only_describe_on_the_cluster_tells_the_hidden_topics(kafka_sasl: EmbeddedKafka, rights: Rights) -> None:
    make(kafka_sasl, f"{MINE}counted", "unseen.theirs")
    every = len(live(kafka_sasl, ""))
    needed = "which topics there are can't be read (CLUSTER_AUTHORIZATION_FAILED): "
    needed += "the principal in clusters.main.client needs the ACL Describe on the cluster"
    assert needed in str(unseen(kafka_sasl))
    rights.allow(ACLOperation.DESCRIBE, ANY_TOPIC)

    def listed() -> int:
        with admin_of(kafka_sasl, USER) as admin:
            return len(list(admin.list_topics()))

    until(lambda: listed() == every, seconds=30)
    # It sees all of them, and can't know that it does.
    assert needed in str(unseen(kafka_sasl))
    rights.take_all()
    rights.allow(ACLOperation.DESCRIBE, CLUSTER)
    until(lambda: unseen(kafka_sasl) == every, seconds=30)
    rights.allow(ACLOperation.DESCRIBE, (ResourceType.TOPIC, MINE), "PREFIXED")
    until(lambda: unseen(kafka_sasl) == every - len(live(kafka_sasl, MINE)), seconds=30)
    assert unseen(kafka_sasl, DOWN) == unseen(kafka_sasl)
    rights.allow(ACLOperation.DESCRIBE, ANY_TOPIC)
    until(lambda: unseen(kafka_sasl) == 0, seconds=30)
    assert unseen(kafka_sasl, DOWN) == 0
    rights.deny(ACLOperation.DESCRIBE, (ResourceType.TOPIC, "unseen.gone."), "PREFIXED")
    until(lambda: "broker 99 is down and may have topics" in str(unseen(kafka_sasl, DOWN)), seconds=30)
    assert unseen(kafka_sasl) == 0
    with admin_of(kafka_sasl) as admin:
        assert admin.unseen_topics(DOWN) == 0, "a super user sees all"


def test_without_rights_to_give_nothing_is_hidden(kafka: EmbeddedKafka) -> None:
    with admin_of(kafka) as admin:
        assert admin.unseen_topics() == admin.unseen_topics(DOWN) == 0


def test_brokers_that_name_no_error_are_understood_all_the_same(kafka_sasl: EmbeddedKafka, rights: Rights) -> None:
    """Before Kafka 3.2 a missing right is an empty answer."""
    with admin_of(kafka_sasl, USER, api_version=(2, 3)) as admin, pytest.raises(ClusterError, match="Describe on the"):
        admin.unseen_topics()
    with admin_of(kafka_sasl, api_version=(2, 3)) as admin:
        assert admin.unseen_topics() == 0


def test_clusters_are_asked_side_by_side_and_one_that_is_gone_says_so(
    spark: SparkSession, kafka: EmbeddedKafka, kafka_sasl: EmbeddedKafka
) -> None:
    clusters = [
        cluster_settings("plain", kafka),
        settings_for("narrow", kafka_sasl, USER),
        cluster_settings("gone", "127.0.0.1:1"),
    ]
    named = spark.createDataFrame([(name,) for name in ("plain", "narrow", "gone", "stranger")], "cluster string")
    rows = read_unseen_topics(spark, clusters, KafkaSettings(connect_timeout=5.0), named).collect()
    found = {row["cluster"]: (row["unseen"], row["error"]) for row in rows}
    assert set(found) == {"plain", "narrow", "gone"}
    assert found["plain"] == (0, None)
    assert found["narrow"][0] is None
    assert "Describe on the cluster" in found["narrow"][1]
    assert "can't be reached" in found["gone"][1]


@pytest.mark.thorough
def test_a_broker_is_drained_only_if_its_topics_are_all_visible(
    spark: SparkSession, kafka_sasl: EmbeddedKafka, rights: Rights, tmp_path: Path
) -> None:
    """The log directories of the broker list topics that this principal may not describe (M3)."""
    make(kafka_sasl, f"{MINE}drained", "unseen.drained")
    (broker,) = live(kafka_sasl, "unseen.drained")["unseen.drained"].assignments[0]
    estate = Estate(spark, tmp_path / "ledger", {"main": settings_for("main", kafka_sasl, USER)})
    rights.allow(ACLOperation.DESCRIBE, (ResourceType.TOPIC, MINE), "PREFIXED")
    drain = Rebalance(broker=broker, fills=False)

    def sees() -> int:
        with admin_of(kafka_sasl, USER) as admin:
            return len([info for info in admin.list_topics() if info.topic == f"{MINE}drained"])

    until(lambda: sees() == 1, seconds=30)
    with pytest.raises(GuardStopped, match=r"can't be drained: it is unknown whether topics are hidden.*Describe on"):
        estate.run("plan", "unknown", instead=drain)
    rights.allow(ACLOperation.DESCRIBE, CLUSTER)
    until(lambda: isinstance(unseen(kafka_sasl), int), seconds=30)
    hidden = unseen(kafka_sasl)
    assert isinstance(hidden, int)
    assert hidden > 0
    with pytest.raises(GuardStopped, match=rf"broker {broker} can't be drained: {hidden} topics? (is|are) hidden"):
        estate.run("plan", "hidden", instead=drain)
    rights.allow(ACLOperation.DESCRIBE, ANY_TOPIC)
    until(lambda: unseen(kafka_sasl) == 0, seconds=30)
    # With all topics visible it is planned, as far as other brokers could take the replicas: there are none here.
    assert estate.run("plan", "visible", instead=drain).exit_code == 4
    assert {row["error"] for row in estate.rows(PLANS, "visible")} == {"TOO_FEW_BROKERS"}


@pytest.mark.thorough
def test_a_budget_refuses_if_topics_may_be_hidden(
    spark: SparkSession, kafka_sasl: EmbeddedKafka, rights: Rights, tmp_path: Path
) -> None:
    make(kafka_sasl, "unseen.budget", num_partitions=5)
    for operation in (ACLOperation.CREATE, ACLOperation.DESCRIBE, ACLOperation.DESCRIBE_CONFIGS):
        rights.allow(operation, (ResourceType.TOPIC, MINE), "PREFIXED")

    def run(run_id: str, topic: str, **more: str) -> tuple[int, tuple[str, str, str | None], str]:
        rules = PolicySettings(create=(policy("partition_budget", max=1_000_000), policy("topics_per_owner", max=9)))
        if more:
            rules = PolicySettings(create=(policy("partition_budget", max=1_000_000, **more),))
        estate = Estate(spark, tmp_path / run_id, {"main": settings_for("main", kafka_sasl, USER)}, policies=rules)
        estate.declare({"topic": topic, "owner": "mine", **PARTITION})
        summary = estate.run("provision", run_id=run_id, wait_visible=30.0)
        ended = [row for row in estate.audit(run_id).values() if row["phase"] in ("policy", "apply")]
        return summary.exit_code, estate.last(run_id)[topic], str(ended[-1]["error_message"])

    def allowed() -> bool:
        with admin_of(kafka_sasl, USER) as admin:
            return MINE + "there" in {info.topic for info in admin.list_topics()}

    make(kafka_sasl, MINE + "there")
    until(allowed, seconds=30)
    code, last, message = run("unknown", f"{MINE}a")
    assert (code, last) == (4, ("policy", "refused", "UNJUDGEABLE"))
    assert "needs the ACL Describe on the cluster" in message

    rights.allow(ACLOperation.DESCRIBE, CLUSTER)
    until(lambda: isinstance(unseen(kafka_sasl), int), seconds=30)
    code, last, message = run("hidden", f"{MINE}a")
    assert (code, last) == (4, ("policy", "refused", "UNJUDGEABLE"))
    hidden = f"{unseen(kafka_sasl)} topics of cluster main are hidden from this principal: grant it Describe on all"
    assert hidden in message
    assert run("visible", f"{MINE}a", needs="visible")[:2] == (0, ("verify", "ok", None))

    rights.allow(ACLOperation.DESCRIBE, ANY_TOPIC)
    until(lambda: unseen(kafka_sasl) == 0, seconds=30)
    assert run("full", f"{MINE}b")[:2] == (0, ("verify", "ok", None))
