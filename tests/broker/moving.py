"""Moving replicas of a real cluster, by hand and by targets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from tests.broker.direct import admin_of, executor_of, live, make
from tests.fault.another_client import options_of
from tests.waiting import until
from topicledger.apply.executor import Executor
from topicledger.config.settings import ReplicaSettings
from topicledger.kafka.moving import MoveLimits
from topicledger.model import ReplicaAction, Target
from topicledger.model.moves import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS, Throttle
from topicledger_testing.embedded_kafka import EmbeddedKafka

Assignments = Mapping[int, Sequence[int]]


class Kept:
    """Throttles that are written down, in the order in which it happened."""

    def __init__(self) -> None:
        self.written: list[Throttle] = []

    def intend(self, throttles: Sequence[Throttle]) -> None:
        self.written += throttles

    def left(self) -> Sequence[Throttle]:
        return list(self.written)

    def removed(self, throttles: Sequence[Throttle]) -> None:
        self.written = [each for each in self.written if each not in throttles]


def text(assignments: Assignments) -> str:
    """As `plans` has it."""
    return ";".join(f"{part}:{','.join(map(str, brokers))}" for part, brokers in sorted(assignments.items()))


def move(topic: str, topic_id: str, before: Assignments, after: Assignments, **fields: bool) -> Target:
    """A planned reassignment."""
    return Target(
        resource=topic,
        action=ReplicaAction.REASSIGN,
        topic_id=topic_id,
        assignments={part: tuple(brokers) for part, brokers in after.items()},
        before={"assignments": text(before)},
        after={"assignments": text(after), "bytes": "2000000"},
        **fields,
    )


@contextmanager
def mover(kafka: EmbeddedKafka, limits: ReplicaSettings | None = None, kept: Kept | None = None) -> Iterator[Executor]:
    """Yield the executor that a run has for a cluster, with throttles recorded in this process."""
    with executor_of(kafka) as executor:
        executor.limits.moving = MoveLimits(settings=limits or ReplicaSettings(), throttles=kept or Kept())
        yield executor


def make_everywhere(kafka: EmbeddedKafka, topic: str, assignments: Assignments) -> str:
    """A topic that every broker lists: one that lags behind would have it gone since the plan. Returns its id."""
    given = {part: tuple(brokers) for part, brokers in assignments.items()}
    made = make(kafka, topic, assignments=given, num_partitions=None, replication_factor=None)
    for server in kafka.bootstrap_servers:
        until(lambda server=server: topic in _listed_by(kafka, server), seconds=30)  # type: ignore[misc]
    return made[topic]


def _listed_by(kafka: EmbeddedKafka, server: str) -> set[str]:
    """Return the listing of one broker: a new client knows no other broker."""
    client = AdminClient({**options_of(kafka), "bootstrap.servers": server})
    return set(client.list_topics(timeout=30).topics)


def with_data(
    kafka: EmbeddedKafka,
    topic: str,
    assignments: Assignments,
    size: int = 2_000_000,
    *,
    into: Collection[int] | None = None,
) -> str:
    """Create a topic with about this many bytes in each partition, or only `into` some; return its id."""
    topic_id = make_everywhere(kafka, topic, assignments)
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, acks="all")
    for part in assignments if into is None else into:
        for _ in range(size // 20_000):
            producer.send(topic, bytes(20_000), partition=part)
    producer.flush()
    producer.close()
    return topic_id


def replicas(kafka: EmbeddedKafka, topic: str) -> dict[int, tuple[int, ...]]:
    """Where a topic's partitions are."""
    return dict(live(kafka, topic)[topic].assignments)


def throttles_on(kafka: EmbeddedKafka, topics: Sequence[str] | None = None) -> dict[str, dict[str, str]]:
    """Every throttle of every broker and of the cluster's topics: nothing may be left."""
    lists = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
    found: dict[str, dict[str, str]] = {}
    with admin_of(kafka) as admin:
        for broker in admin.describe_cluster().brokers:
            found[f"broker {broker.broker_id}"] = admin.broker_configs(broker.broker_id, (LEADER_RATE, FOLLOWER_RATE))
        names = list(topics) if topics is not None else [info.topic for info in admin.list_topics()]
        for each in admin.topic_configs(names, dict.fromkeys(names, lists)):
            found[each.topic] = {entry.name: str(entry.value) for entry in each.configs or () if entry.value}
    return {name: configs for name, configs in found.items() if configs}
