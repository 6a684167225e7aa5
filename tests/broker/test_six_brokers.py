"""Moves of many topics over six brokers in three racks, while others write and read; told by librdkafka throughout."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType
from pyspark.sql import SparkSession

from tests.broker.changes import changing
from tests.broker.direct import admin_of, creates
from tests.clusters import KAFKA, QuickKafka
from tests.fault.another_client import options_of
from tests.waiting import until
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import ReplicaSettings
from topicledger.model.moves import Rebalance, parse_assignments
from topicledger.schemas import AUDIT, PLANS, THROTTLES
from topicledger_testing.embedded_kafka import EmbeddedKafka, KafkaOptions

pytestmark = pytest.mark.thorough

TOPICS = int(os.environ.get("TOPICLEDGER_TOPICS", "100"))
PARTITIONS = 6
RECORD = bytes(1_000)
RECORDS_BEFORE = 50
"""Of each partition, before anything is moved."""
RACKS = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
NAMES = [f"six.{number:03}" for number in range(TOPICS)]

# Fewer replicas are a loss, and leave as many as min.insync.replicas: one broker down would stop producers.
ALLOWED = GuardSettings(max_moves=10_000, max_losses=TOPICS, max_disruptions=TOPICS)

Placed = Mapping[tuple[str, int], tuple[int, ...]]


@pytest.fixture
def six() -> Iterator[EmbeddedKafka]:
    """Six brokers in three racks."""
    # Six of them beside Spark: one that gets no CPU for some seconds isn't to count as dead.
    timing = {"broker.session.timeout.ms": "30000"}
    options = KafkaOptions(brokers=6, racks=tuple(RACKS.values()), properties=timing, heap="256m")
    with QuickKafka(KAFKA, options) as cluster:
        yield cluster


@dataclass
class Watch:
    """Observations of other clients while replicas moved."""

    acknowledged: list[tuple[str, int, int]] = field(default_factory=list)
    """Topic, partition and number of each record that a producer with acks=all was told is written."""
    failed: list[str] = field(default_factory=list)
    read: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    """How often a consumer read each."""
    fewest_in_sync: int = 99
    looks: int = 0


@contextmanager
def watched(kafka: EmbeddedKafka) -> Iterator[Watch]:
    """A producer, a consumer, and a look at all ISRs every half second; at the end the consumer has read to the end."""
    watch, stop = Watch(), threading.Event()
    errors: list[BaseException] = []

    def delivered(error: KafkaError | None, record: Message) -> None:
        if error is not None:
            watch.failed.append(str(error))
        else:
            watch.acknowledged.append((record.topic(), record.partition(), int(record.key())))

    def produce() -> None:
        producer = Producer({**options_of(kafka), "acks": "all", "enable.idempotence": True, "linger.ms": 20})
        number = 0
        while not stop.is_set():
            for each in range(20):
                topic = NAMES[(number * 7 + each) % TOPICS]
                producer.produce(topic, RECORD, key=str(number), partition=number % PARTITIONS, on_delivery=delivered)
                number += 1
            producer.poll(0)
            # 200 records a second: a producer that writes faster than replicas may be copied keeps them out of the ISR.
            stop.wait(0.1)
        assert producer.flush(60) == 0

    def consume() -> None:
        consumer = Consumer({**options_of(kafka), "group.id": "six", "enable.auto.commit": False})
        # Not by its group: if its coordinator moves, it might begin again and read twice.
        every = (TopicPartition(name, part, OFFSET_BEGINNING) for name in NAMES for part in range(PARTITIONS))
        consumer.assign(list(every))
        try:
            while not (stop.is_set() and ended.is_set()):
                for record in consumer.consume(500, timeout=0.5):
                    if record.error() is None and record.key() is not None:
                        watch.read[record.topic(), record.partition(), int(record.key())] += 1
        finally:
            consumer.close()

    def look() -> None:
        client = AdminClient(options_of(kafka))
        while not stop.wait(0.5):
            topics = client.list_topics(timeout=30).topics
            in_sync = [len(each.isrs) for name in NAMES for each in topics[name].partitions.values()]
            watch.fewest_in_sync = min(watch.fewest_in_sync, *in_sync)
            watch.looks += 1

    def guarded(work: object) -> threading.Thread:
        def run() -> None:
            try:
                work()  # type: ignore[operator]
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    ended = threading.Event()
    reader, *others = guarded(consume), guarded(produce), guarded(look)
    try:
        yield watch
        stop.set()
        for thread in others:
            thread.join(timeout=90)
        until(lambda: set(watch.acknowledged) <= set(watch.read), seconds=120, every=0.5)
    finally:
        stop.set()
        ended.set()
        for thread in (reader, *others):
            thread.join(timeout=90)
    assert errors == []


def make_topics(kafka: EmbeddedKafka) -> None:
    """All of them with two replicas of which both must be in sync, and with data."""
    with admin_of(kafka) as admin:
        wanted = creates(NAMES, num_partitions=PARTITIONS, replication_factor=2, configs={"min.insync.replicas": "2"})
        answers = admin.create_topics(wanted, validate_only=False).results
        assert {each.error_code for each in answers.values()} == {0}
        until(lambda: set(NAMES) <= {info.topic for info in admin.list_topics() if not info.leaderless}, seconds=120)
    producer = Producer({**options_of(kafka), "acks": "all", "linger.ms": 50})
    for name in NAMES:
        for partition in range(PARTITIONS):
            for _ in range(RECORDS_BEFORE):
                producer.produce(name, RECORD, partition=partition)
        producer.poll(0)
    assert producer.flush(120) == 0


def placed(kafka: EmbeddedKafka) -> Placed:
    """Where partitions are whose replicas are all in sync, as librdkafka is told."""
    topics = AdminClient(options_of(kafka)).list_topics(timeout=30).topics
    return {
        (name, part.id): tuple(part.replicas)
        for name in NAMES
        for part in topics[name].partitions.values()
        if set(part.isrs) == set(part.replicas)
    }


def throttled(kafka: EmbeddedKafka) -> dict[str, str]:
    """Every throttle that is set in any config of any broker and topic, as librdkafka is told."""
    client = AdminClient(options_of(kafka))
    names = list(client.list_topics(timeout=30).topics)
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    asked += [ConfigResource(ResourceType.BROKER, str(broker)) for broker in RACKS]
    found: dict[str, str] = {}
    for each in asked:
        # One broker in a request.
        for resource, answer in client.describe_configs([each]).items():
            for name, entry in answer.result(timeout=30).items():
                default = entry.source == ConfigSource.DEFAULT_CONFIG.value
                if "throttled" in name and entry.value and not default:
                    found[f"{resource} {name}"] = str(entry.value)
    return found


@pytest.mark.timeout(1500)
def test_a_hundred_topics_move_while_others_write_and_read(
    spark: SparkSession, six: EmbeddedKafka, tmp_path: Path
) -> None:
    """R2, R4, R6: replication factor 2 -> 3, a broker drained, placements by racks; nothing is lost, no ISR falls
    below min.insync.replicas, no throttle stays."""
    make_topics(six)
    estate = changing(spark, tmp_path, six, replicas="on", guards=ALLOWED)
    estate.settings = replace(estate.settings, replicas=ReplicaSettings(throttle=5_000_000))

    def moves_as_planned(run_id: str) -> Placed:
        """Where all is after a run that moved it, compared with its plan and its rows."""
        planned = [row for row in estate.rows(PLANS, run_id) if row["action"] == "reassign"]
        ours = [row for row in planned if row["topic"] in set(NAMES)]
        assert ours
        wanted = {
            (row["topic"], part): brokers
            for row in ours
            for part, brokers in parse_assignments(row["after"]["assignments"]).items()
        }
        # Brokers tell it some moments after the one that the run asked.
        until(lambda: wanted.items() <= placed(six).items(), seconds=60, every=1.0)
        until(lambda: len(placed(six)) == TOPICS * PARTITIONS, seconds=60, every=1.0)
        live = placed(six)
        rows = [row for row in estate.rows(AUDIT, run_id) if (row["action"], row["phase"]) == ("reassign", "apply")]
        assert sorted(row["topic"] for row in rows) == sorted(row["topic"] for row in planned)
        assert {row["outcome"] for row in rows} == {"ok"}
        for row in rows:
            before, after = (parse_assignments(row[each]["assignments"]) for each in ("before", "after"))
            assert int(row["after"]["partitions"]) == len(after)
            copies = sum(len(set(brokers) - set(before[part])) for part, brokers in after.items())
            if row["topic"] in set(NAMES):
                assert int(row["after"]["bytes"]) >= copies * RECORDS_BEFORE * len(RECORD)
                assert (int(row["after"]["bytes"]) == 0) == (copies == 0)
            assert row["requested_at"] < row["completed_at"]
        until(lambda: throttled(six) == {}, seconds=60, every=1.0)
        return live

    def run(run_id: str, **request: Any) -> None:
        began = time.monotonic()
        assert estate.run(run_id=run_id, **request).exit_code == 0
        print(f"{run_id}: {time.monotonic() - began:.0f} s")

    with watched(six) as watch:
        estate.declare(*({"topic": name, "replication_factor": 3} for name in NAMES))
        run("three")
        for key, brokers in moves_as_planned("three").items():
            assert sorted(RACKS[each] for each in brokers) == ["a", "b", "c"], key
        drain = Rebalance(broker=6, fills=False)
        run("drain", instead=drain)
        for key, brokers in moves_as_planned("drain").items():
            assert 6 not in brokers, key
            assert sorted(RACKS[each] for each in brokers) == ["a", "b", "c"], key
        half = TOPICS // 2
        estate.declare_anew(
            *({"topic": name, "replication_factor": 2, "placement": "racks"} for name in NAMES[:half]),
            *({"topic": name, "replication_factor": 2, "placement": "rack:b"} for name in NAMES[half:]),
        )
        run("racks")
        for (name, part), brokers in moves_as_planned("racks").items():
            racks = {RACKS[each] for each in brokers}
            assert (len(brokers), len(racks) == 2 if name in NAMES[:half] else racks == {"b"}) == (2, True), (
                name,
                part,
            )
    assert (watch.failed, set(watch.read) >= set(watch.acknowledged)) == ([], True)
    assert len(set(watch.acknowledged)) == len(watch.acknowledged) > 1_000
    assert set(watch.read.values()) == {1}
    assert (watch.fewest_in_sync, watch.looks > 20) == (2, True)
    assert throttled(six) == {}
    assert None not in {row["removed_at"] for row in estate.rows(THROTTLES)}
    print(f"{TOPICS} topics, {len(watch.acknowledged)} records, {watch.looks} looks")
