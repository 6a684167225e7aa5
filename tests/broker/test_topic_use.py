"""The use of topics by librdkafka's clients, and the time of their last record, as real brokers report it."""

from __future__ import annotations

import sys
import uuid
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import new_class
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka.admin import ACL, ACLOperation, ACLPermissionType, KafkaAdminClient, ResourcePattern, ResourceType
from kafka.protocol.api_message import ApiMessage
from pyspark.sql import SparkSession

from tests import clusters
from tests.broker.direct import admin_of, make, settings_for
from tests.broker.records import client, commit, drop_records, write
from tests.harness import UNREACHABLE, cluster_settings
from tests.waiting import until
from topicledger.config.settings import KafkaSettings
from topicledger.errors import ClusterError
from topicledger.kafka import ClusterAdmin, RequestLost
from topicledger.model import GroupUse, LastRecord
from topicledger.resources.topics.observe.topic_use import read_consumer_groups, read_last_records
from topicledger_testing.embedded_kafka import EmbeddedKafka

AN_HOUR_AGO = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
QUICK = KafkaSettings(connect_timeout=10.0, operation_timeout=1.0)


@contextmanager
def members(
    kafka: EmbeddedKafka, group: str, *topics: str, count: int = 1, protocol: str = "classic"
) -> Iterator[Sequence[Consumer]]:
    """Live members of a group that commit nothing; each has partitions."""
    with ExitStack() as stack:
        settings = client(kafka, group_id=group, group_protocol=protocol, enable_auto_commit=False)
        consumers = [stack.enter_context(closing(Consumer(settings))) for _ in range(count)]
        for consumer in consumers:
            consumer.subscribe(list(topics))
        until(lambda: assigned(*consumers), seconds=30, every=0.0)
        yield consumers


def assigned(*consumers: Consumer) -> bool:
    """Whether each has partitions, after a moment of doing its part."""
    for consumer in consumers:
        consumer.poll(0.05)
    return all(consumer.assignment() for consumer in consumers)


def uses(kafka: EmbeddedKafka, *topics: str) -> list[tuple[str, str, int, bool]]:
    with admin_of(kafka) as admin:
        return brief(admin.consumer_groups(topics))


def brief(found: Sequence[GroupUse]) -> list[tuple[str, str, int, bool]]:
    return [(use.topic, use.group, use.members, use.committed) for use in found]


def test_a_group_that_committed_and_left_still_uses_its_topic(kafka: EmbeddedKafka) -> None:
    make(kafka, "use.left", "use.left.too", "use.nobody")
    commit(kafka, "g.left", "use.left", "use.left.too")
    assert uses(kafka, "use.nobody", "use.left") == [("use.left", "g.left", 0, True)]
    assert uses(kafka, "use.nobody") == []
    assert uses(kafka) == []


# Two members share by way of a heartbeat, which in the consumer protocol comes every 5 s at the most often.
@pytest.mark.parametrize(("protocol", "count"), [("classic", 2), ("consumer", 1)])
def test_members_that_never_committed_are_seen_while_they_live(kafka: EmbeddedKafka, protocol: str, count: int) -> None:
    """KIP-848 is `consumer`."""
    shared, single, group = f"use.{protocol}.shared", f"use.{protocol}.single", f"g.{protocol}"
    make(kafka, shared, num_partitions=2)
    make(kafka, single)
    with members(kafka, group, shared, single, count=count, protocol=protocol) as (first, *_):
        assert uses(kafka, shared, single) == [(shared, group, count, False), (single, group, 1, False)]
        first.commit(offsets=[TopicPartition(single, 0, 0)], asynchronous=False)
        assert uses(kafka, single) == [(single, group, 1, True)]
    assert uses(kafka, shared, single) == [(single, group, 0, True)]


@pytest.mark.skipif(not hasattr(confluent_kafka, "ShareConsumer"), reason="needs confluent-kafka 2.16")
def test_a_share_group_uses_its_topic(kafka: EmbeddedKafka) -> None:
    """KIP-932: it commits nothing, but Kafka keeps how far it came."""
    make(kafka, "use.share")
    with closing(confluent_kafka.ShareConsumer(client(kafka, group_id="g.share"))) as consumer:
        consumer.subscribe(["use.share"])

        def joined() -> bool:
            consumer.poll(0.05)
            return uses(kafka, "use.share") == [("use.share", "g.share", 1, False)]

        until(joined, seconds=30)

        def has_read() -> bool:
            write(kafka, "use.share", at=AN_HOUR_AGO)
            consumer.poll(0.1)
            return uses(kafka, "use.share") == [("use.share", "g.share", 1, True)]

        until(has_read, seconds=30)
    assert uses(kafka, "use.share") == [("use.share", "g.share", 0, True)]


def test_a_streams_group_uses_the_topics_of_its_topology(
    kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-1071: its member's heartbeat is written by hand; there is no client for it but Kafka Streams."""
    make(kafka, "use.streams")
    heartbeat = message_of_broker("StreamsGroupHeartbeat", tmp_path, monkeypatch)
    topology = heartbeat.Topology
    part = topology.Subtopology(
        subtopology_id="0",
        source_topics=["use.streams"],
        source_topic_regex=[],
        state_changelog_topics=[],
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )
    joining = heartbeat(
        group_id="g.streams",
        member_id=str(uuid.uuid4()),
        member_epoch=0,
        endpoint_information_epoch=0,
        rebalance_timeout_ms=10_000,
        topology=topology(epoch=0, subtopologies=[part]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="by hand",
        client_tags=[],
        shutdown_application=False,
        **dict.fromkeys(("instance_id", "rack_id", "user_endpoint", "task_offsets", "task_end_offsets")),
    )
    with admin_of(kafka) as admin:
        assert admin.ask(joining).error_code == 0
        assert brief(admin.consumer_groups(["use.streams"])) == [("use.streams", "g.streams", 1, False)]
        leaving = heartbeat(
            group_id="g.streams", member_id=joining.member_id, member_epoch=-1, endpoint_information_epoch=0
        )
        assert admin.ask(leaving).error_code == 0
        assert admin.consumer_groups(["use.streams"]) == []


def message_of_broker(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A request that kafka-python doesn't have, as the broker's own jar describes it."""
    package = folder / "messages_of_broker"
    package.mkdir()
    (package / "__init__.py").touch()
    (jar,) = clusters.JARS.glob("kafka-clients-*.jar")
    with zipfile.ZipFile(jar) as content:
        for kind in ("Request", "Response"):
            (package / f"{name}{kind}.json").write_bytes(content.read(f"common/message/{name}{kind}.json"))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, package.name, raising=False)
    request, response = (
        new_class(f"{name}{kind}", (ApiMessage,), {"load_json": package.name}) for kind in ("Request", "Response")
    )
    # kafka-python looks answers up without holding on to them.
    request.response = response
    return request


def test_topics_of_a_rebalancing_group_are_unknown_until_it_settles(kafka: EmbeddedKafka) -> None:
    """But that it reads what it committed on is known all the time."""
    topics = ["use.moving", "use.moving.committed"]
    make(kafka, *topics, num_partitions=2)
    joining = Consumer(client(kafka, group_id="g.moving", enable_auto_commit=False))
    with members(kafka, "g.moving", *topics) as (first,), closing(joining):
        first.commit(offsets=[TopicPartition("use.moving.committed", 0, 0)], asynchronous=False)
        joining.subscribe(topics)
        with ClusterAdmin(settings_for("main", kafka), QUICK) as admin:

            def waits() -> bool:
                # The first isn't polled, and so doesn't join again: the group waits for it.
                joining.poll(0.05)
                return "group g.moving: it is rebalancing" in answer(admin, "use.moving")

            until(waits, seconds=30)
            sure = [("use.moving.committed", "g.moving", 2, True)]
            assert brief(admin.consumer_groups(["use.moving.committed"])) == sure
            until(lambda: assigned(first, joining), seconds=30)
            assert uses(kafka, *topics) == [("use.moving", "g.moving", 2, False), *sure]


def test_groups_of_every_coordinator_are_found_by_any_broker(kafka_three: EmbeddedKafka) -> None:
    make(kafka_three, "use.spread")
    groups = [f"g.spread.{n:02}" for n in range(12)]
    for group in groups:
        commit(kafka_three, group, "use.spread")
    with closing(KafkaAdminClient(**kafka_three.client_options())) as other:
        at = {n: {each["group_id"] for each in other.list_groups(broker_ids=[n])} for n in (1, 2, 3)}
    assert sum(bool(found & set(groups)) for found in at.values()) > 1, "all groups have the same coordinator"
    for broker in kafka_three.brokers:
        with ClusterAdmin(cluster_settings("main", f"127.0.0.1:{broker.port}"), QUICK) as admin:
            assert [use.group for use in admin.consumer_groups(["use.spread"])] == groups


def test_clients_that_speak_too_old_a_protocol_to_know_all_say_so(kafka: EmbeddedKafka) -> None:
    """C11's trick: an old api_version makes the client talk as to an old broker."""
    make(kafka, "use.old", "use.old.written")
    write(kafka, "use.old.written", at=AN_HOUR_AGO)
    with (
        members(kafka, "g.old", "use.old", protocol="consumer"),
        ClusterAdmin(settings_for("main", kafka, api_version=(3, 7)), QUICK) as newer,
        ClusterAdmin(settings_for("main", kafka, api_version=(2, 7)), QUICK) as older,
    ):
        with pytest.raises(RequestLost, match=r"group g\.old: its coordinator doesn't know it"):
            newer.consumer_groups(["use.old"])
        with pytest.raises(ClusterError, match=r"older than Kafka 2\.8"):
            older.consumer_groups(["use.old"])
        empty, written = older.last_records(["use.old", "use.old.written"])
    assert (empty.end_offset, empty.last_record_at, empty.error) == (0, None, None)
    assert "too old to return the time" in str(written.error)


def test_the_last_record_is_the_newest_that_is_kept(kafka: EmbeddedKafka) -> None:
    """KIP-734: none if nothing was ever written, and none if everything was deleted."""
    make(kafka, "rec.never", "rec.some", "rec.dropped")
    write(kafka, "rec.some", at=AN_HOUR_AGO, records=2)
    write(kafka, "rec.some", at=AN_HOUR_AGO - timedelta(minutes=5))
    write(kafka, "rec.dropped", at=AN_HOUR_AGO, records=4)
    drop_records(kafka, "rec.dropped")
    with admin_of(kafka) as admin:
        dropped, gone, never, some = admin.last_records(["rec.some", "rec.gone", "rec.never", "rec.dropped"])
    assert never == LastRecord(topic="rec.never", end_offset=0)
    assert some == LastRecord(topic="rec.some", end_offset=3, last_record_at=AN_HOUR_AGO)
    assert dropped == LastRecord(topic="rec.dropped", end_offset=4)
    assert (gone.topic, gone.end_offset, gone.last_record_at) == ("rec.gone", None, None)
    assert "there is no such topic" in str(gone.error)


def test_partitions_on_three_brokers_are_added_up(kafka_three: EmbeddedKafka) -> None:
    make(kafka_three, "rec.spread", assignments={n: (n + 1,) for n in range(3)}, num_partitions=None,
         replication_factor=None)  # fmt: skip
    for partition in range(3):
        at = AN_HOUR_AGO - timedelta(minutes=partition)
        write(kafka_three, "rec.spread", partition=partition, at=at, records=partition + 1)
    with admin_of(kafka_three) as admin:
        assert admin.last_records(["rec.spread"]) == [
            LastRecord(topic="rec.spread", end_offset=6, last_record_at=AN_HOUR_AGO)
        ]


def test_a_principal_that_may_not_see_everything_is_told_which_acl_it_needs(kafka_sasl: EmbeddedKafka) -> None:
    """A listing leaves out, without a word, what the principal may not see: that must not look like no groups."""
    make(kafka_sasl, "use.acl", "use.acl.other")
    commit(kafka_sasl, "g.acl", "use.acl")
    steps = [
        ("needs the ACL Describe on the cluster", (ResourceType.CLUSTER, "kafka-cluster")),
        ("needs the ACL Describe on topic use.acl", (ResourceType.TOPIC, "use.acl")),
        ("needs the ACL Describe on topic __consumer_offsets", (ResourceType.TOPIC, "__consumer_offsets")),
        (
            "the list of groups of broker 1 can't be read .* needs the ACL Describe on every group",
            (ResourceType.GROUP, "*"),
        ),
    ]
    with (
        closing(KafkaAdminClient(**kafka_sasl.client_options())) as boss,
        admin_of(kafka_sasl, "describer") as admin,
        ExitStack() as stack,
    ):
        for missing, resource in steps:
            with pytest.raises(ClusterError, match=f"cluster main: .*{missing}") as refused:
                admin.consumer_groups(["use.acl"])
            (record,) = admin.last_records(["use.acl"])
            assert ("needs the ACL Describe on topic use.acl" in str(record.error)) == (record.end_offset is None)
            acl = describe(*resource)
            boss.create_acls([acl])
            stack.callback(boss.delete_acls, [acl])
            until(lambda told=str(refused.value): told != answer(admin, "use.acl"), seconds=20)  # type: ignore[misc]
        assert brief(admin.consumer_groups(["use.acl"])) == [("use.acl", "g.acl", 0, True)]
        assert record.end_offset == 0
        with (
            members(kafka_sasl, "g.acl.other", "use.acl.other", protocol="consumer"),
            pytest.raises(ClusterError, match="Describe on every topic that the group's members subscribe to"),
        ):
            admin.consumer_groups(["use.acl"])


def describe(kind: ResourceType, name: str) -> ACL:
    return ACL(
        principal="User:describer",
        host="*",
        operation=ACLOperation.DESCRIBE,
        permission_type=ACLPermissionType.ALLOW,
        resource_pattern=ResourcePattern(kind, name),
    )


def answer(admin: ClusterAdmin, topic: str) -> str:
    try:
        return str(admin.consumer_groups([topic]))
    except ClusterError as error:
        return str(error)


def test_a_cluster_out_of_reach_says_so_for_each_of_its_topics_and_the_others_are_read(
    spark: SparkSession, kafka: EmbeddedKafka, kafka_sasl: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: reading the DataFrame again asks nobody. A secret that executors don't have is the driver's to use."""
    make(kafka, "all.used", "all.unused")
    make(kafka_sasl, "all.driver")
    write(kafka, "all.used", at=AN_HOUR_AGO)
    for cluster, topic in ((kafka, "all.used"), (kafka_sasl, "all.driver")):
        commit(cluster, "g.all", topic)
    # Python workers have the environment that Spark was started with.
    monkeypatch.setenv("TOPICLEDGER_TEST_LATE", clusters.SASL_USERS["admin"])
    secret = {"sasl_plain_password": "env:TOPICLEDGER_TEST_LATE"}
    known = [
        cluster_settings("main", kafka),
        cluster_settings("away", UNREACHABLE),
        settings_for("late", kafka_sasl, **secret),
        settings_for("never", kafka_sasl, sasl_plain_password="env:TOPICLEDGER_TEST_NOWHERE"),
    ]
    asked = [("main", "all.used"), ("main", "all.unused"), ("away", "all.a"), ("away", "all.b"), ("late", "all.driver")]
    asked += [("never", "all.driver"), ("stranger", "all.used"), ("main", "all.used")]
    topics = spark.createDataFrame(asked, "cluster string, topic string")
    short_timeout = KafkaSettings(connect_timeout=2.0)

    groups = read_consumer_groups(spark, known, short_timeout, topics)
    commit(kafka, "g.all.later", "all.unused")
    found = sorted(tuple(row) for row in groups.where("error is null").drop("error").collect())
    assert found == [("late", "all.driver", "g.all", 0, True), ("main", "all.used", "g.all", 0, True)]
    untold = groups.where("error is not null").orderBy("cluster", "topic").collect()
    assert [(row.cluster, row.topic) for row in untold] == [
        ("away", "all.a"),
        ("away", "all.b"),
        ("never", "all.driver"),
    ]
    assert UNREACHABLE in untold[0].error
    assert "TOPICLEDGER_TEST_NOWHERE is not set" in untold[2].error
    assert {row[column] for row in untold for column in ("group", "members", "committed")} == {None}

    records = read_last_records(spark, known, short_timeout, topics).orderBy("cluster", "topic").collect()
    assert [(row.cluster, row.topic, row.end_offset) for row in records] == [
        ("away", "all.a", None),
        ("away", "all.b", None),
        ("late", "all.driver", 0),
        ("main", "all.unused", 0),
        ("main", "all.used", 1),
        ("never", "all.driver", None),
    ]
    assert [row.last_record_at.timestamp() for row in records if row.last_record_at] == [AN_HOUR_AGO.timestamp()]
    assert [row.cluster for row in records if row.error] == ["away", "away", "never"]


def test_asking_about_no_topics_asks_nobody(spark: SparkSession) -> None:
    none = spark.createDataFrame([], "cluster string, topic string")
    assert read_consumer_groups(spark, [], QUICK, none).collect() == []
    assert read_last_records(spark, [cluster_settings("away", UNREACHABLE)], QUICK, none).collect() == []
