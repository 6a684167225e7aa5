"""One run over six views of five clusters, and what each rule of Kafka's made of it.

The run's rows are looked at by many small tests; a second run of the same manifests shows what it leaves to do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ACLOperation, ACLResourcePatternType
from kafka.structs import OffsetAndMetadata
from pyspark.sql import SparkSession

from tests import clusters
from tests.broker.changes import allow
from tests.broker.direct import admin_of, creates, live, make, messages_of, settings_for
from tests.harness import Estate, topics
from tests.kafka_versions import TOPIC_CONFIGS
from tests.waiting import until
from topicledger.apply.summary import Summary
from topicledger.schemas import AUDIT, BROKERS, OBSERVED, PLANS, RUNS
from topicledger_testing.embedded_kafka import EmbeddedKafka

OLD = (2, 3)
"""kafka-python then speaks CreateTopics v4, as to a broker of before KIP-464 and KIP-525."""

THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
MAIN = [
    {"topic": "prov.defaults"},
    {"topic": "prov.half", "num_partitions": 2, "configs": dict.fromkeys(THROTTLED, "0:1")},
    {
        "topic": "prov.counted",
        "num_partitions": 3,
        "replication_factor": 1,
        "configs": {"retention.ms": "60000", "cleanup.policy": "compact"},
    },
    *topics(["prov.copied", "prov.copied"], num_partitions=2, configs={"retention.ms": "1", "segment.ms": "2"}),
    {"topic": "prov.disputed", "num_partitions": 1},
    {"topic": "prov.disputed", "num_partitions": 2},
    {"topic": "prov.both-ways", "num_partitions": 1, "assignments": {0: [1]}},
    {"topic": "prov.too-many-replicas", "replication_factor": 7},
    {"topic": "prov.unknown-config", "configs": {"no.such.config": "1"}},
    {"topic": "prov.mistyped-config", "configs": {"retention.ms": "soon"}},
    {"topic": "prov.collides.new"},
    {"topic": "prov.collides_new"},
    {"topic": "prov.collides_live"},
    *topics(["prov.doomed", "prov.doomed"], state="absent"),
    {"topic": "prov.never-was", "state": "absent"},
    {"topic": "__consumer_offsets", "state": "absent"},
    {"topic": "__transaction_state", "num_partitions": 3},
    {"topic": "__share_group_state"},
    {"topic": "_.transaction.state"},
    {"topic": "_.share_group_state", "state": "absent"},
]
OLD_ROWS = [
    {"topic": "prov.old.counted", "num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "1"}},
    {"topic": "prov.old.assigned", "assignments": {0: [1], 1: [1]}},
    {"topic": "prov.old.uncounted"},
    {"topic": "prov.old.half-counted", "num_partitions": 1},
    {"topic": "prov.old.doomed", "state": "absent"},
]
THREE = [
    {"topic": "prov.led", "assignments": {0: [3, 1, 2], 1: [2, 3, 1], 2: [1, 2, 3]}},
    {"topic": "prov.replicated", "num_partitions": 1, "replication_factor": 3},
    {"topic": "prov.above-the-brokers", "num_partitions": 1, "replication_factor": 4},
    {"topic": "prov.gaps", "assignments": {0: [1], 2: [2]}},
    {"topic": "prov.repeated", "assignments": {0: [1, 1]}},
    {"topic": "prov.uneven", "assignments": {0: [1], 1: [1, 2]}},
]
POLICY = [{"topic": "forbidden.prov"}, {"topic": "permitted.prov"}]
NO_DELETE = topics(["prov.stays-1", "prov.stays-2", "prov.stays-3"], state="absent")
CREATOR = [
    {"topic": "prov.sasl.mine", "num_partitions": 2},
    {"topic": "prov.foreign"},
    {"topic": "prov.sasl.hidden", "state": "absent"},
]
DESCRIBER = [{"topic": "prov.sasl.seen", "state": "absent"}]
NOBODY = [{"topic": "prov.nobodys"}, {"topic": "prov.sasl.unseen", "state": "absent"}]

GOOD_CREATES = {
    "prov.defaults",
    "prov.half",
    "prov.counted",
    "prov.copied",
    "prov.old.counted",
    "prov.old.assigned",
    "prov.led",
    "prov.replicated",
    "permitted.prov",
    "prov.sasl.mine",
}
GOOD_DELETES = {"prov.doomed", "prov.old.doomed", "_.share_group_state"}


@dataclass(frozen=True)
class Provisioned:
    """A run and what it left behind."""

    estate: Estate
    summary: Summary
    audit: dict[tuple[str | None, str], dict[str, Any]]
    rows: list[dict[str, Any]]
    last: dict[str | None, tuple[str, str, str | None]]
    warnings: list[str]
    doomed_id: str


def grant(kafka: EmbeddedKafka) -> None:
    """`creator` may create under a prefix, `describer` may describe one topic, `nobody` may nothing."""
    with closing(KafkaAdminClient(**kafka.client_options())) as client:
        client.create_acls(
            [
                allow("creator", ACLOperation.CREATE, "prov.sasl.", ACLResourcePatternType.PREFIXED),
                allow("describer", ACLOperation.DESCRIBE, "prov.sasl.seen", ACLResourcePatternType.LITERAL),
            ]
        )
    with admin_of(kafka, "creator") as creator, admin_of(kafka, "describer") as describer:
        probe = creates(["prov.sasl.probe"])
        until(
            lambda: creator.create_topics(probe, validate_only=True).results["prov.sasl.probe"].error_code == 0,
            seconds=20,
        )
        until(lambda: any(info.topic == "prov.sasl.seen" for info in describer.list_topics()), seconds=20)


def make_consumer_offsets(kafka: EmbeddedKafka) -> None:
    """A first commit makes the broker create its internal topic."""
    options = {"group_id": "prov", "enable_auto_commit": False}
    partition = TopicPartition("prov.collides.live", 0)
    with closing(KafkaConsumer(**kafka.client_options(), **options)) as consumer:
        consumer.assign([partition])
        consumer.commit({partition: OffsetAndMetadata(0, "", -1)})


@pytest.fixture(scope="module")
def kafka_old() -> Iterator[EmbeddedKafka]:
    """Each name of a run is a cluster of its own: this one is spoken to as to one of Kafka 2.3."""
    with clusters.plain() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka_describer() -> Iterator[EmbeddedKafka]:
    """One broker with SASL/PLAIN and ACLs, for `describer`."""
    with clusters.with_sasl() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka_nobody() -> Iterator[EmbeddedKafka]:
    """One broker with SASL/PLAIN and ACLs, for `nobody`."""
    with clusters.with_sasl() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def provisioned(
    spark: SparkSession,
    kafka: EmbeddedKafka,
    kafka_old: EmbeddedKafka,
    kafka_describer: EmbeddedKafka,
    kafka_nobody: EmbeddedKafka,
    kafka_three: EmbeddedKafka,
    kafka_policy: EmbeddedKafka,
    kafka_no_delete: EmbeddedKafka,
    kafka_sasl: EmbeddedKafka,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Provisioned]:
    folder = tmp_path_factory.mktemp("provisioning")
    ids = make(kafka, "prov.doomed", "prov.collides.live", "_.share_group_state")
    make(kafka_old, "prov.old.doomed")
    make(kafka_no_delete, *(row["topic"] for row in NO_DELETE))
    for each in (kafka_sasl, kafka_describer, kafka_nobody):
        make(each, "prov.sasl.hidden", "prov.sasl.seen", "prov.sasl.unseen")
        grant(each)
    make_consumer_offsets(kafka)
    # The workers were started without the variable: only the driver can be the creator.
    os.environ["PROV_CREATOR_PASSWORD"] = clusters.SASL_USERS["creator"]
    (folder / "describer").write_text(clusters.SASL_USERS["describer"])
    (folder / "nobody").write_text(clusters.SASL_USERS["nobody"])
    estate = Estate(
        spark,
        folder / "ledger",
        {
            "main": kafka,
            "old": settings_for("old", kafka_old, api_version=OLD),
            "three": kafka_three,
            "policy": kafka_policy,
            "no_delete": kafka_no_delete,
            "creator": settings_for("creator", kafka_sasl, "creator", sasl_plain_password="env:PROV_CREATOR_PASSWORD"),
            "describer": settings_for(
                "describer", kafka_describer, "describer", sasl_plain_password=f"file:{folder / 'describer'}"
            ),
            "nobody": settings_for("nobody", kafka_nobody, "nobody", sasl_plain_password=f"file:{folder / 'nobody'}"),
        },
        max_deletes=10,
    )
    declared = {
        "main": MAIN,
        "old": OLD_ROWS,
        "three": THREE,
        "policy": POLICY,
        "no_delete": NO_DELETE,
        "creator": CREATOR,
        "describer": DESCRIBER,
        "nobody": NOBODY,
    }
    estate.declare(*({"cluster": name, **row} for name, rows in declared.items() for row in rows))
    with messages_of("topicledger.actions.context") as warnings:
        summary = estate.run(run_id="prov", wait_visible=60.0)
    yield Provisioned(
        estate=estate,
        summary=summary,
        audit=estate.audit("prov"),
        rows=estate.rows(AUDIT, "prov"),
        last=estate.last("prov"),
        warnings=list(warnings),
        doomed_id=ids["prov.doomed"],
    )
    del os.environ["PROV_CREATOR_PASSWORD"]


@pytest.fixture(scope="module")
def again(provisioned: Provisioned) -> Estate:
    """The same manifests once more, at once."""
    provisioned.estate.run(run_id="prov-again")
    return provisioned.estate


def test_one_topics_failure_stops_no_other(provisioned: Provisioned) -> None:
    """C7: every good create and delete of every cluster is done, whatever became of its neighbours."""
    done = {topic for (topic, phase), row in provisioned.audit.items() if phase == "apply" and row["outcome"] == "ok"}
    assert done == GOOD_CREATES | GOOD_DELETES


def test_every_action_ended_once_and_the_run_is_finished_with_exit_code_4(provisioned: Provisioned) -> None:
    provisioned.estate.check_invariant("prov")
    assert provisioned.summary.exit_code == 4
    (run,) = provisioned.estate.rows(RUNS, "prov")
    assert (run["exit_code"], run["state"]) == (4, "finished")


def test_created_and_visible_topics_are_verified(provisioned: Provisioned) -> None:
    """C21, M2: with `--wait-visible`, ok means that every partition has a leader."""
    seen = (GOOD_CREATES | GOOD_DELETES) - {"prov.sasl.mine"}
    assert {name: provisioned.last[name] for name in seen} == dict.fromkeys(seen, ("verify", "ok", None))


def test_assignments_beside_counts_are_refused_and_never_sent(provisioned: Provisioned) -> None:
    """C1"""
    assert provisioned.last["prov.both-ways"] == ("manifest", "refused", "ASSIGNMENTS_AND_COUNTS")
    assert [phase for topic, phase in provisioned.audit if topic == "prov.both-ways"] == ["manifest"]


def test_identical_rows_count_as_one_and_the_copy_is_noted(provisioned: Provisioned) -> None:
    """C2"""
    note = provisioned.audit["prov.copied", "manifest"]
    assert (note["outcome"], note["error"], note["action"]) == ("skipped", "DUPLICATE_MANIFEST", None)
    assert note["error_message"].startswith("2 identical rows")
    assert provisioned.audit["prov.copied", "apply"]["num_partitions"] == 2


def test_rows_that_disagree_are_both_refused(provisioned: Provisioned, kafka: EmbeddedKafka) -> None:
    """C2"""
    row = provisioned.audit["prov.disputed", "manifest"]
    assert (row["outcome"], row["error"], row["error_code"]) == ("refused", "DUPLICATE_MANIFEST", -1)
    assert "num_partitions" in row["error_message"]
    assert "prov.disputed" not in live(kafka, "prov.")


def test_declared_throttle_lists_are_not_set_and_the_plan_says_so(
    provisioned: Provisioned, kafka: EmbeddedKafka
) -> None:
    """A move's lists that an export took for configs of the topic (`changes.ignore`)."""
    assert provisioned.audit["prov.half", "apply"]["outcome"] == "ok"
    with admin_of(kafka) as admin:
        (described,) = admin.topic_configs(["prov.half"], {"prov.half": THROTTLED})
    assert {each.name: each.value for each in described.configs or ()} == dict.fromkeys(THROTTLED, "")
    (warned,) = [each for each in provisioned.summary.warnings if each.policy == "ignored_configs"]
    assert (warned.topic, warned.action) == ("prov.half", "create")
    assert all(name in warned.message for name in THROTTLED)


def test_the_first_replica_of_an_assignment_leads_its_partition(
    provisioned: Provisioned, kafka_three: EmbeddedKafka
) -> None:
    """C3"""
    with closing(KafkaAdminClient(**kafka_three.client_options())) as client:

        def led() -> dict[int, tuple[int, list[int]]]:
            partitions = client.describe_topics(["prov.led"])[0]["partitions"]
            return {each["partition_index"]: (each["leader_id"], list(each["replica_nodes"])) for each in partitions}

        wanted = {0: (3, [3, 1, 2]), 1: (2, [2, 3, 1]), 2: (1, [1, 2, 3])}
        until(lambda: led() == wanted, seconds=20)
    row = provisioned.audit["prov.led", "apply"]
    assert (row["num_partitions"], row["replication_factor"]) == (3, 3)


@pytest.mark.parametrize("topic", ["prov.gaps", "prov.repeated", "prov.uneven"])
def test_an_impossible_assignment_is_refused_at_the_manifest(provisioned: Provisioned, topic: str) -> None:
    """C3"""
    assert provisioned.last[topic] == ("manifest", "refused", "INVALID_ASSIGNMENTS")


@pytest.mark.parametrize(("topic", "partitions"), [("prov.defaults", 1), ("prov.half", 2)])
def test_counts_left_out_are_the_brokers_and_the_audit_tells_them(
    provisioned: Provisioned, kafka: EmbeddedKafka, topic: str, partitions: int
) -> None:
    """C4"""
    for phase in ("validate", "apply", "verify"):
        row = provisioned.audit[topic, phase]
        assert (row["num_partitions"], row["replication_factor"]) == (partitions, 1), phase
    assert live(kafka, topic)[topic].num_partitions == partitions


@pytest.mark.parametrize("topic", ["prov.old.uncounted", "prov.old.half-counted"])
def test_a_broker_without_default_counts_has_topics_without_them_refused_one_by_one(
    provisioned: Provisioned, kafka_old: EmbeddedKafka, topic: str
) -> None:
    """C4"""
    row = provisioned.audit[topic, "validate"]
    assert (row["outcome"], row["error"], row["error_code"]) == ("refused", "COUNTS_REQUIRED", -1)
    assert (topic, "apply") not in provisioned.audit
    assert topic not in live(kafka_old, "prov.old.")


@pytest.mark.parametrize(("topic", "partitions"), [("prov.old.counted", 2), ("prov.old.assigned", 2)])
def test_an_old_broker_tells_nothing_of_what_it_created(
    provisioned: Provisioned, kafka_old: EmbeddedKafka, topic: str, partitions: int
) -> None:
    """C11, C4: ok all the same, with counts as with assignments; verify sees what it has."""
    row = provisioned.audit[topic, "apply"]
    assert (row["outcome"], row["error_code"]) == ("ok", 0)
    told = ("num_partitions", "replication_factor", "configs", "topic_config_error_code", "topic_id")
    assert {name: row[name] for name in told} == dict.fromkeys(told)
    assert live(kafka_old, topic)[topic].num_partitions == partitions
    assert provisioned.audit[topic, "verify"]["num_partitions"] == partitions


def test_an_old_broker_is_warned_of_once(provisioned: Provisioned) -> None:
    """C11"""
    assert [text for text in provisioned.warnings if "too old to return" in text] == [
        "cluster old: the broker is too old to return what it created a topic with"
    ]


def test_validate_and_apply_both_keep_their_row(provisioned: Provisioned) -> None:
    """C6: the promise and what came of it."""
    for topic in GOOD_CREATES | GOOD_DELETES:
        outcomes = [provisioned.audit[topic, phase]["outcome"] for phase in ("validate", "apply")]
        assert outcomes == ["ok", "ok"], topic


def test_a_brokers_policy_refuses_in_its_own_words(provisioned: Provisioned, kafka_policy: EmbeddedKafka) -> None:
    """C8"""
    row = provisioned.audit["forbidden.prov", "validate"]
    assert (row["outcome"], row["error_code"], row["error"]) == ("refused", 44, "POLICY_VIOLATION")
    assert row["error_message"] == "Topic forbidden.prov is not allowed by the broker's policy"
    assert ("forbidden.prov", "apply") not in provisioned.audit
    assert "forbidden.prov" not in live(kafka_policy, "forbidden.")


def test_the_audit_keeps_every_config_with_where_it_came_from(provisioned: Provisioned) -> None:
    """C9"""
    configs = {config["name"]: config for config in provisioned.audit["prov.counted", "apply"]["configs"]}
    assert len(configs) >= TOPIC_CONFIGS
    source = {name: config["config_source"] for name, config in configs.items()}
    assert {name for name, each in source.items() if each == "DYNAMIC_TOPIC_CONFIG"} == {
        "retention.ms",
        "cleanup.policy",
    }
    assert configs["retention.ms"]["value"] == "60000"
    assert source["segment.bytes"] == "DEFAULT_CONFIG"
    assert all(config["value"] is not None and not config["read_only"] for config in configs.values())
    assert not any(config["is_sensitive"] for config in configs.values())


def test_a_create_without_describe_explains_missing_values(provisioned: Provisioned, kafka_sasl: EmbeddedKafka) -> None:
    """C10"""
    row = provisioned.audit["prov.sasl.mine", "apply"]
    assert (row["outcome"], row["error_code"], row["topic_config_error_code"]) == ("ok", 0, 29)
    assert (row["num_partitions"], row["replication_factor"], row["configs"]) == (None, None, None)
    assert live(kafka_sasl, "prov.sasl.mine")["prov.sasl.mine"].num_partitions == 2
    verified = provisioned.audit["prov.sasl.mine", "verify"]
    assert (verified["outcome"], verified["error_code"]) == ("skipped", 29)


@pytest.mark.parametrize("topic", ["prov.foreign", "prov.nobodys"])
def test_a_create_without_the_right_fails_alone_and_is_not_tried_again(provisioned: Provisioned, topic: str) -> None:
    """C14"""
    row = provisioned.audit[topic, "validate"]
    assert (row["outcome"], row["error_code"], row["error"]) == ("failed", 29, "TOPIC_AUTHORIZATION_FAILED")
    assert row["attempt"] == 1
    assert (topic, "apply") not in provisioned.audit


@pytest.mark.parametrize("topic", ["prov.collides.new", "prov.collides_new", "prov.collides_live"])
def test_creates_whose_metrics_would_collide_are_refused(provisioned: Provisioned, topic: str) -> None:
    """C16: with each other, both; with a live topic."""
    row = provisioned.audit[topic, "policy"]
    assert (row["outcome"], row["error"], row["action"]) == ("refused", "NAME_COLLISION", "create")
    assert [violation["policy"] for violation in row["violations"]] == ["name_collision"]


def test_no_validate_row_of_a_create_has_a_topic_id(provisioned: Provisioned) -> None:
    """C19: each apply row of a broker that tells ids has one."""
    ids = {(row["phase"], row["topic_id"] is None) for row in provisioned.rows if row["topic"] in GOOD_CREATES}
    assert ("validate", True) in ids
    assert ("validate", False) not in ids
    assert provisioned.audit["prov.counted", "apply"]["topic_id"] is not None


@pytest.mark.parametrize(
    ("topic", "code", "error"),
    [
        ("prov.too-many-replicas", 38, "INVALID_REPLICATION_FACTOR"),
        ("prov.above-the-brokers", 38, "INVALID_REPLICATION_FACTOR"),
        ("prov.unknown-config", 40, "INVALID_CONFIG"),
        ("prov.mistyped-config", 40, "INVALID_CONFIG"),
    ],
)
def test_errors_that_only_the_cluster_finds_have_kafkas_code(
    provisioned: Provisioned, topic: str, code: int, error: str
) -> None:
    """C5, C7"""
    row = provisioned.audit[topic, "validate"]
    assert (row["outcome"], row["error_code"], row["error"]) == ("failed", code, error)
    assert row["error_message"]
    assert (topic, "apply") not in provisioned.audit


def test_two_identical_absent_rows_are_one_delete_by_id(provisioned: Provisioned, kafka: EmbeddedKafka) -> None:
    """D1, D7"""
    planned = [row for row in provisioned.estate.rows(PLANS, "prov") if row["topic"] == "prov.doomed" and row["action"]]
    assert [(row["action"], row["topic_id"]) for row in planned] == [("delete", provisioned.doomed_id)]
    row = provisioned.audit["prov.doomed", "apply"]
    assert (row["outcome"], row["topic_id"]) == ("ok", provisioned.doomed_id)
    assert "prov.doomed" not in live(kafka, "prov.")


def test_an_old_broker_deletes_by_name(provisioned: Provisioned, kafka_old: EmbeddedKafka) -> None:
    """D7: it knows no ids."""
    row = provisioned.audit["prov.old.doomed", "apply"]
    assert (row["outcome"], row["topic_id"]) == ("ok", None)
    assert "prov.old.doomed" not in live(kafka_old, "prov.old.")


def test_an_absent_topic_that_never_was_needs_nothing(provisioned: Provisioned) -> None:
    """D2"""
    assert "prov.never-was" not in provisioned.last
    assert provisioned.summary.decisions["unchanged"] == 1


def test_a_missing_delete_permission_is_reported_before_sending(
    provisioned: Provisioned, kafka_describer: EmbeddedKafka
) -> None:
    """D4"""
    row = provisioned.audit["prov.sasl.seen", "validate"]
    assert (row["outcome"], row["error_code"], row["error"]) == ("refused", 29, "TOPIC_AUTHORIZATION_FAILED")
    assert "prov.sasl.seen" in live(kafka_describer, "prov.sasl.")


@pytest.mark.parametrize(("topic", "cluster"), [("prov.sasl.hidden", "creator"), ("prov.sasl.unseen", "nobody")])
def test_a_delete_of_what_may_not_be_seen_is_refused_as_not_permitted(
    provisioned: Provisioned, kafka_sasl: EmbeddedKafka, kafka_nobody: EmbeddedKafka, topic: str, cluster: str
) -> None:
    """D4, M3: it is unknown whether it is gone or unchanged."""
    row = provisioned.audit[topic, "observe"]
    assert (row["outcome"], row["error"], row["error_code"]) == ("refused", "NOT_PERMITTED", -1)
    assert topic in live(kafka_sasl if cluster == "creator" else kafka_nobody, "prov.sasl.")


@pytest.mark.parametrize("topic", [row["topic"] for row in NO_DELETE])
def test_brokers_that_delete_nothing_say_so_of_each_topic(
    provisioned: Provisioned, kafka_no_delete: EmbeddedKafka, topic: str
) -> None:
    """D8"""
    row = provisioned.audit[topic, "apply"]
    assert (row["outcome"], row["error_code"], row["error"]) == ("failed", 73, "TOPIC_DELETION_DISABLED")
    assert topic in live(kafka_no_delete, "prov.stays")


def test_brokers_that_delete_nothing_are_warned_of_once(provisioned: Provisioned) -> None:
    """D8"""
    assert [text for text in provisioned.warnings if "delete.topic.enable" in text] == [
        "cluster no_delete: delete.topic.enable is false on the brokers: no topic can be deleted"
    ]


def test_internal_topics_are_neither_created_nor_deleted(provisioned: Provisioned, kafka: EmbeddedKafka) -> None:
    """D9, I1"""
    for topic in ("__consumer_offsets", "__transaction_state", "__share_group_state"):
        row = provisioned.audit[topic, "manifest"]
        assert (row["outcome"], row["error"]) == ("refused", "INVALID_TOPIC")
        assert "internal to Kafka" in row["error_message"]
    assert live(kafka, "__consumer")["__consumer_offsets"].internal
    assert "__share_group_state" not in live(kafka, "__share")
    # Beside a name that collides with it, Kafka could not create its own topic; one that lives can be deleted.
    row = provisioned.audit["_.transaction.state", "manifest"]
    assert (row["outcome"], row["error"]) == ("refused", "INVALID_TOPIC")
    assert live(kafka, "_.") == {}
    # A __transaction_state of ours would be loading for ever.
    with closing(KafkaProducer(**kafka.client_options(), transactional_id="prov.transactional")) as producer:
        producer.init_transactions()


def test_the_brokers_are_kept_with_racks_and_the_controller(
    provisioned: Provisioned, kafka_three: EmbeddedKafka
) -> None:
    """M1"""
    brokers = [row for row in provisioned.estate.rows(BROKERS, "prov") if row["cluster"] == "three"]
    assert {row["broker_id"]: (row["rack"], row["port"]) for row in brokers} == {
        broker.node_id: (broker.rack, broker.port) for broker in kafka_three.brokers
    }
    assert sum(row["controller"] for row in brokers) == 1
    assert {row["cluster_id"] for row in brokers} == {kafka_three.cluster_id}


@pytest.fixture(scope="module")
def observed(again: Estate) -> Callable[[str, str], dict[str, Any] | None]:
    """Return the second run's observation of a (cluster, topic)."""
    rows = {(row["cluster"], row["topic"]): row for row in again.rows(OBSERVED)}
    return lambda cluster, topic: rows.get((cluster, topic))


def test_live_topics_are_kept_with_all_that_their_metadata_says(
    observed: Callable[..., Any], kafka: EmbeddedKafka
) -> None:
    """M1"""
    row = observed("main", "prov.counted")
    assert (row["num_partitions"], row["replication_factor"]) == (3, 1)
    assert row["assignments"] == {0: [1], 1: [1], 2: [1]}
    assert row["topic_id"] == live(kafka, "prov.counted")["prov.counted"].topic_id
    assert (row["cluster_id"], row["permitted"], row["internal"]) == (kafka.cluster_id, True, False)
    assert {"DELETE", "DESCRIBE", "ALTER_CONFIGS"} <= set(row["authorized_operations"])
    assert observed("main", "__consumer_offsets")["internal"]
    assert observed("main", "prov.doomed") is None
    assert observed("three", "prov.led")["assignments"] == {0: [3, 1, 2], 1: [2, 3, 1], 2: [1, 2, 3]}


def test_authorized_operations_are_kept_with_each_topic(observed: Callable[..., Any]) -> None:
    """M1, D4"""
    assert observed("describer", "prov.sasl.seen")["authorized_operations"] == ["DESCRIBE"]


def test_a_topic_that_may_not_be_described_is_kept_as_not_permitted(observed: Callable[..., Any]) -> None:
    """M3"""
    row = observed("creator", "prov.sasl.hidden")
    assert (row["permitted"], row["num_partitions"], row["assignments"]) == (False, None, None)
    assert observed("creator", "prov.sasl.unseen") is None


def test_the_same_manifests_again_change_nothing(again: Estate, provisioned: Provisioned) -> None:
    """C21: what was done is unchanged, what was refused is refused as before."""
    again.check_invariant("prov-again")
    repeated = again.last("prov-again")
    undone = set(provisioned.last) - GOOD_CREATES - GOOD_DELETES
    assert {topic: repeated[topic] for topic in undone} == {topic: provisioned.last[topic] for topic in undone}
    # A copy is still noted; what this principal can't see is explained below.
    assert set(repeated) - undone == {"prov.copied", "prov.doomed", "prov.sasl.mine"}
    applied = {row["topic"] for row in again.rows(AUDIT, "prov-again") if row["phase"] == "apply"}
    assert applied == {row["topic"] for row in NO_DELETE}


def test_a_create_of_ours_that_cannot_be_seen_is_unchanged(again: Estate) -> None:
    """C21, M3: the listing shows nothing, the broker says that it exists, the audit says that we made it."""
    row = again.audit("prov-again")["prov.sasl.mine", "validate"]
    assert (row["outcome"], row["error_code"], row["error"]) == ("skipped", 36, "TOPIC_ALREADY_EXISTS")
    assert again.last("prov-again")["prov.sasl.mine"][0] == "validate"
