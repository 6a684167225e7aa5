"""300 topics with real producers and consumers: the views against counts by librdkafka and on the brokers' disks."""

from __future__ import annotations

import math
import os
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyspark.sql import SparkSession

from tests.broker.records import client, commit
from tests.commands import REPOSITORY
from tests.harness import Estate
from tests.waiting import until
from topicledger.config.views import ViewSettings
from topicledger.queries.asking import answered
from topicledger.schemas import USAGE
from topicledger_testing.embedded_kafka import EmbeddedKafka

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1800)]

OWNERS = tuple(f"inuse-team-{number}" for number in range(6))
EACH = 50
"""Topics of each owner."""
KINDS = ("busy", "read", "written", "left", "empty")
"""A fifth of an owner's topics: written and read; written before and read; written, without a group; written before,
with a group that committed and left; never written."""
PARTITIONS = {"busy": 4, "read": 2, "written": 1, "left": 6, "empty": 3}
SECONDS = int(os.environ.get("TOPICLEDGER_IN_USE_SECONDS", "60"))
"""How long producers write before each of the two later audits."""
VIEWS = ViewSettings(partition_bytes=20_000, gigabyte_price=1_000.0, partition_price=0.25, currency="EUR")
"""20 records are more or fewer bytes than `partition_bytes`: what topics need doesn't depend on the machine's speed."""


def names(*kinds: str, owner: str | None = None) -> list[str]:
    return [
        f"{each}.{KINDS[number % 5]}.{number:02}"
        for each in (OWNERS if owner is None else (owner,))
        for number in range(EACH)
        if KINDS[number % 5] in kinds
    ]


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Each topic's counts at one time, by librdkafka's clients and from the brokers' disks."""

    starts: Mapping[str, int]
    ends: Mapping[str, int]
    last_records: Mapping[str, int]
    """Largest timestamp in milliseconds; no topic without records."""
    sizes: Mapping[str, int]
    sizes_one_copy: Mapping[str, int]
    members: Mapping[str, int]
    """Members of the largest group."""
    groups: Mapping[str, set[str]]
    """Groups with members or committed offsets."""


@dataclass(frozen=True, kw_only=True)
class InUse:
    """The estate after three audits, and the counts at the time of each."""

    estate: Estate
    runs: Sequence[str]
    counts: Sequence[Counted]

    def ask(self, query: str) -> list[dict[str, Any]]:
        settings = replace(self.estate.settings, views=VIEWS)
        with answered(self.estate.ledger, settings, query) as rows:
            return [row.asDict(recursive=True) for row in rows.collect()]


@pytest.fixture(scope="module")
def in_use(spark: SparkSession, kafka_three: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> InUse:
    estate = Estate(spark, tmp_path_factory.mktemp("in-use") / "ledger", {"main": kafka_three})
    estate.declare(
        *(
            {"topic": topic, "num_partitions": PARTITIONS[kind], "replication_factor": 2, "owner": owner}
            for owner in OWNERS
            for kind in KINDS
            for topic in names(kind, owner=owner)
        )
    )
    assert estate.run(wait_visible=60.0).exit_code == 0
    produce(kafka_three, names("busy", "read", "written", "left"), records=20)
    for owner in OWNERS:
        commit(kafka_three, f"{owner}.left", *names("left", owner=owner))
    counts, runs = [], []
    with consuming(kafka_three):
        for number in range(3):
            if number:
                produce(kafka_three, names("busy", "written"), records=5, seconds=SECONDS)
            before = settled(kafka_three)
            summary = estate.run_audit(f"in-use-{number}", usage=True)
            assert summary.exit_code == 0
            assert counted(kafka_three) == before, "use changed during the audit"
            counts.append(before)
            runs.append(summary.run_id)
    month_earlier(estate, runs[0])
    return InUse(estate=estate, runs=runs, counts=counts)


def produce(kafka: EmbeddedKafka, topics: Sequence[str], *, records: int, seconds: float = 0.0) -> None:
    """Write records of 400 to 1,400 bytes to every partition of the topics, in rounds until the time is over."""
    producer = Producer(client(kafka, acks="all", linger_ms=20))
    over = threading.Event()
    timer = threading.Timer(seconds, over.set)
    timer.start()
    rounds = 0
    while rounds == 0 or not over.is_set():
        for place, topic in enumerate(topics):
            for number in range(records):
                producer.produce(topic, os.urandom(400 + 40 * (place % 26)), key=str(number))
            producer.poll(0)
        assert producer.flush(60) == 0
        rounds += 1
        # A busy estate, not a benchmark: rounds come once a second.
        over.wait(1.0 if seconds else 0.0)
    timer.cancel()


@contextmanager
def consuming(kafka: EmbeddedKafka) -> Iterator[None]:
    """Two members of each owner's busy group and one of its reading group poll and commit meanwhile."""
    with ExitStack() as stack:
        consumers = []
        for owner in OWNERS:
            for kind, members in (("busy", 2), ("read", 1)):
                for _ in range(members):
                    settings = client(kafka, group_id=f"{owner}.{kind}", auto_offset_reset="earliest")
                    consumer = stack.enter_context(closing(Consumer(settings)))
                    consumer.subscribe(names(kind, owner=owner))
                    consumers.append(consumer)
        ended = threading.Event()

        def poll() -> None:
            while not ended.is_set():
                for each in consumers:
                    each.consume(500, timeout=0.02)

        thread = threading.Thread(target=poll)
        thread.start()
        try:
            until(lambda: all(each.assignment() for each in consumers), seconds=60)
            yield
        finally:
            ended.set()
            thread.join()


def settled(kafka: EmbeddedKafka) -> Counted:
    """Count once replicas have all records and groups have committed what they read."""
    last: list[Counted] = []

    def same() -> bool:
        last.append(counted(kafka))
        return len(last) > 1 and last[-1] == last[-2] and equal_copies(last[-1])

    until(same, seconds=120, every=1.0)
    return last[-1]


def equal_copies(count: Counted) -> bool:
    return all(count.sizes[topic] == 2 * size for topic, size in count.sizes_one_copy.items())


def counted(kafka: EmbeddedKafka) -> Counted:
    admin = AdminClient(client(kafka))
    topics = admin.list_topics(timeout=30).topics
    partitions = [TopicPartition(name, number) for name in names(*KINDS) for number in topics[name].partitions]
    starts, ends = offsets(admin, partitions, OffsetSpec.earliest()), offsets(admin, partitions, OffsetSpec.latest())
    latest = admin.list_offsets({each: OffsetSpec.max_timestamp() for each in partitions})
    last_records: dict[str, int] = {}
    for partition, future in latest.items():
        if (timestamp := future.result(30).timestamp) >= 0:
            last_records[partition.topic] = max(timestamp, last_records.get(partition.topic, 0))
    sizes: Counter[str] = Counter()
    one_copy: Counter[str] = Counter()
    for broker in kafka.brokers:
        for each in partitions:
            folder = kafka.folder / f"broker-{broker.node_id}" / "data" / f"{each.topic}-{each.partition}"
            size = sum(file.stat().st_size for file in folder.glob("*.log"))
            sizes[each.topic] += size
            one_copy[each.topic] += (
                size if topics[each.topic].partitions[each.partition].leader == broker.node_id else 0
            )
    members, groups = used(admin)
    return Counted(
        starts=starts,
        ends=ends,
        last_records=last_records,
        sizes=dict(sizes),
        sizes_one_copy=dict(one_copy),
        members=members,
        groups=groups,
    )


def offsets(admin: AdminClient, partitions: Sequence[TopicPartition], spec: OffsetSpec) -> dict[str, int]:
    found: Counter[str] = Counter()
    for partition, future in admin.list_offsets(dict.fromkeys(partitions, spec)).items():
        found[partition.topic] += future.result(30).offset
    return dict(found)


def used(admin: AdminClient) -> tuple[dict[str, int], dict[str, set[str]]]:
    """Return the members of the largest group of each topic, and its groups."""
    ids = [each.group_id for each in admin.list_consumer_groups().result(30).valid]
    ids = [each for each in ids if each.startswith("inuse-")]
    most: dict[str, int] = defaultdict(int)
    groups: dict[str, set[str]] = defaultdict(set)
    for group, future in admin.describe_consumer_groups(ids).items():
        of_topic = Counter(
            topic
            for member in future.result(30).members
            for topic in {each.topic for each in member.assignment.topic_partitions}
        )
        for topic, members in of_topic.items():
            most[topic] = max(most[topic], members)
            groups[topic].add(group)
        (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        for each in asked.result(30).topic_partitions:
            groups[each.topic].add(group)
    return dict(most), dict(groups)


def month_earlier(estate: Estate, run_id: str) -> None:
    """Make the usage of a run 31 days older: nobody can wait that long here."""
    table = f"delta.`{estate.ledger.location(USAGE)}`"
    estate.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
    estate.spark.sql(f"UPDATE {table} SET observed_at = observed_at - INTERVAL 31 DAYS WHERE run_id = '{run_id}'")


def by_topic(rows: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {row["topic"]: row for row in rows if row["topic"].startswith("inuse-")}


def test_each_audit_counts_what_the_clients_count(in_use: InUse) -> None:
    """Sizes, offsets, last records, groups, members and lag, and what was written between audits."""
    previous: Counted | None = None
    for run_id, count in zip(in_use.runs, in_use.counts, strict=True):
        rows = by_topic(in_use.ask(f"SELECT * FROM usage WHERE run_id = '{run_id}'"))
        assert set(rows) == set(names(*KINDS))

        def all_of(value: Callable[[Mapping[str, Any]], Any], rows: Mapping[str, Any] = rows) -> dict[str, Any]:
            return {topic: value(row) for topic, row in rows.items()}

        assert all_of(lambda row: row["start_offset"]) == count.starts
        assert all_of(lambda row: row["end_offset"]) == count.ends
        assert all_of(lambda row: row["bytes"]) == count.sizes
        assert all_of(lambda row: row["bytes_one_copy"]) == count.sizes_one_copy
        stamps = all_of(lambda row: row["last_record_at"] and round(row["last_record_at"].timestamp() * 1000))
        assert {topic: stamp for topic, stamp in stamps.items() if stamp is not None} == count.last_records
        groups = all_of(lambda row: {each["group"] for each in row["groups"]})
        assert {topic: found for topic, found in groups.items() if found} == count.groups
        members = all_of(lambda row: max((each["members"] for each in row["groups"]), default=0))
        assert {topic: found for topic, found in members.items() if found} == count.members
        since = set() if previous else {"since", "records_since", "bytes_since"}
        unknown = {topic: {"last_record_at", *since} if topic in names("empty") else since for topic in names(*KINDS)}
        assert all_of(lambda row: set(row["reasons"] or {})) == unknown, "the rest is known"
        written = all_of(lambda row: row["records_since"])
        if previous is None:
            assert set(written.values()) == {None}
        else:
            assert written == {topic: end - previous.ends[topic] for topic, end in count.ends.items()}
        previous = count


def test_unused_topics_are_those_that_no_client_used(in_use: InUse) -> None:
    first, second, third = in_use.counts
    expected = {
        topic
        for topic in names(*KINDS)
        if first.ends[topic] == second.ends[topic] == third.ends[topic]
        and not second.members.get(topic)
        and not third.members.get(topic)
    }
    assert expected == set(names("left", "empty")), "the traffic is as planned"
    rows = by_topic(in_use.ask("SELECT * FROM unused_topics"))
    assert set(rows) == expected
    assert {row["owner"] for row in rows.values()} == set(OWNERS)


def test_stale_topics_have_no_live_group(in_use: InUse) -> None:
    """The query of the documentation for topics that nobody reads."""
    page = (REPOSITORY / "docs" / "queries.md").read_text(encoding="utf-8")
    (query,) = [each for each in page.split("```sql\n") if "unread_until >=" in each]
    rows = by_topic(in_use.ask(query.split("```")[0]))
    _, second, third = in_use.counts
    expected = {topic for topic in names(*KINDS) if not second.members.get(topic) and not third.members.get(topic)}
    assert expected == set(names("written", "left", "empty")), "the traffic is as planned"
    assert set(rows) == expected


def test_over_partitioned_topics_have_twice_what_bytes_and_members_need(in_use: InUse) -> None:
    expected = {}
    for topic in names(*KINDS):
        most = max(each.sizes_one_copy[topic] for each in in_use.counts[1:])
        members = max(each.members.get(topic, 0) for each in in_use.counts[1:])
        needed = max(1, math.ceil(most / VIEWS.partition_bytes), members)
        if PARTITIONS[topic.split(".")[1]] >= 2 * needed:
            expected[topic] = (needed, most, members)
    assert len({needed for needed, *_ in expected.values()}) > 1, "the sizes matter"
    rows = by_topic(in_use.ask("SELECT * FROM over_partitioned"))
    found = {topic: (row["partitions_needed"], row["most_bytes"], row["most_members"]) for topic, row in rows.items()}
    assert found == expected


def test_costs_are_those_of_the_bytes_on_disks_and_the_partitions(in_use: InUse) -> None:
    last = in_use.counts[-1]
    rows = {row["owner"]: row for row in in_use.ask("SELECT * FROM cost_by_owner") if row["owner"] in OWNERS}
    assert set(rows) == set(OWNERS)
    for owner, row in rows.items():
        topics = names(*KINDS, owner=owner)
        partitions = sum(PARTITIONS[topic.split(".")[1]] for topic in topics)
        size = sum(last.sizes[topic] for topic in topics)
        assert (row["topics"], row["partitions"], row["bytes"], row["currency"]) == (EACH, partitions, size, "EUR")
        assert row["topics_of_unknown_size"] == 0
        assert row["cost"] == pytest.approx(size / 1e9 * 1_000.0 + partitions * 0.25)
