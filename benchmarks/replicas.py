"""Cost of planning replicas, and how even and cheap the plan is compared with those of other tools."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, LongType, MapType, StringType, StructField, StructType
from tests.other_planners import generate, rebuild

from benchmarks.measure import Work, in_turns
from benchmarks.report import Result, Size
from topicledger.arrow import arrow_schema
from topicledger.ledger.session import get_session
from topicledger.manifests.rows import validate
from topicledger.observe.topics import ClusterStatus, Observation
from topicledger.resources.topics.plan.moving import Asked, Sizes, planned
from topicledger.resources.topics.plan.replicas import (
    Change,
    LiveCluster,
    TopicReplicas,
    Wish,
    bytes_moved,
    create,
    plan,
)
from topicledger.schemas import BROKERS, MANIFESTS, OBSERVED

DRIVER_MEMORY = "1g"
_CLUSTER = "big"
_JARS = Path(__file__).resolve().parent.parent / "build" / "jars"
_SAMPLES = {Size.FULL: 3, Size.SMALL: 1}
_TOPICS = {Size.FULL: 20_000, Size.SMALL: 50}
_PARTITIONS, _BROKERS, _RACKS = 10, 100, 10

Placed = Mapping[str, Mapping[int, tuple[int, ...]]]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The result of one planner."""

    name: str
    seconds: float
    target: Placed
    """The replicas of every partition, by topic."""


def estate(topics: int, replication_factor: int) -> tuple[LiveCluster, list[TopicReplicas]]:
    """Return a cluster with evenly created topics in distinct racks, with sizes from 1 MB to several GB."""
    racks: dict[int, str | None] = {number: f"rack{number % _RACKS}" for number in range(_BROKERS)}
    rng = random.Random(7)
    wish = Wish(replication_factor=replication_factor)
    made = create(LiveCluster(racks=racks), [], {f"topic{n:05}": (_PARTITIONS, wish) for n in range(topics)})
    found = [
        TopicReplicas(
            topic=name,
            replicas=change.target,
            sizes={each: round(rng.lognormvariate(18, 2)) for each in change.target},
        )
        for name, change in made.items()
    ]
    return LiveCluster(racks=racks), found


def run(size: Size, folder: Path) -> Result:
    """Plan a third replica for every topic, in this process and as a run does; then compare with other tools."""
    cluster, topics = estate(_TOPICS[size], 2)
    wishes = {each.topic: Wish(replication_factor=3) for each in topics}
    spark = get_session("bench")
    spark.sparkContext.setLogLevel("ERROR")
    validated, seen, sizes = _observed(spark, cluster, topics)
    asked = Asked(moves=[_CLUSTER], elections=[_CLUSTER])
    works = [
        Work(
            name="planner",
            what="the pure planner, in one process",
            do=lambda _: {"topics": len(plan(cluster, topics, wishes))},
        ),
        Work(
            name="planned",
            what="as in a run: on an executor, from DataFrames to rows of moves",
            do=lambda _: {"topics": planned(validated, seen, sizes, asked).count()},
        ),
    ]
    series = in_turns(works, warm_ups=0, samples=_SAMPLES[size])
    spark.stop()
    count = len(topics) * _PARTITIONS
    return Result(
        work=f"Plan a third replica for {count:,} partitions on {_BROKERS} brokers in {_RACKS} racks.",
        series=series,
        ratios=[],
        notes=[*_compared("a third replica", cluster, topics, 3), *_drained(_TOPICS[size])],
    )


def _observed(
    spark: SparkSession, cluster: LiveCluster, topics: Sequence[TopicReplicas]
) -> tuple[DataFrame, Observation, Sizes]:
    now = datetime.now(UTC)
    topic_rows = [
        {
            "cluster": _CLUSTER,
            "topic": each.topic,
            "topic_id": each.topic,
            "permitted": True,
            "internal": False,
            "num_partitions": len(each.replicas),
            "assignments": [(number, list(brokers)) for number, brokers in each.replicas.items()],
            "observed_at": now,
        }
        for each in topics
    ]
    leaders = StructField("other_leaders", MapType(IntegerType(), IntegerType()))
    observed = StructType([*(each for each in OBSERVED.schema if each.name != "run_id"), leaders])
    brokers = StructType([each for each in BROKERS.schema if each.name != "run_id"])
    broker_rows = [{"cluster": _CLUSTER, "broker_id": b, "rack": rack} for b, rack in cluster.racks.items()]
    declared = [
        {"cluster": _CLUSTER, "topic": each.topic, "state": "present", "replication_factor": 3} for each in topics
    ]
    replicas = StructType(
        [
            *(StructField(name, StringType()) for name in ("cluster", "topic")),
            StructField("partition", IntegerType()),
            StructField("bytes", LongType()),
        ]
    )
    size_rows = [
        {"cluster": _CLUSTER, "topic": each.topic, "partition": number, "bytes": size}
        for each in topics
        for number, size in each.sizes.items()
    ]

    def frame(schema: StructType, rows: Sequence[Mapping[str, object]]) -> DataFrame:
        nullable = StructType([StructField(each.name, each.dataType) for each in schema])
        table = pa.Table.from_pylist(list(rows), schema=arrow_schema(nullable))
        return spark.createDataFrame(table, nullable).localCheckpoint()

    seen = Observation(
        topics=frame(observed, topic_rows),
        brokers=frame(brokers, broker_rows),
        statuses={_CLUSTER: ClusterStatus(cluster_id="id of big")},
    )
    validated = frame(MANIFESTS.schema, declared).transform(validate([_CLUSTER], None)).localCheckpoint()
    return validated, seen, Sizes(replicas=frame(replicas, size_rows))


def _drained(topics: int) -> Sequence[str]:
    cluster, found = estate(topics, 3)
    return _compared("broker 0 drained", replace(cluster, leaving=frozenset([0])), found, 3)


def _compared(title: str, cluster: LiveCluster, topics: Sequence[TopicReplicas], factor: int) -> Sequence[str]:
    """Return one line for each planner."""
    allowed = [broker for broker in cluster.racks if broker not in cluster.leaving]
    racks = {broker: cluster.racks[broker] for broker in allowed}
    rng = random.Random(3)
    every = [(each, part) for each in topics for part in each.replicas]

    def ours() -> Placed:
        changes = plan(cluster, topics, {each.topic: Wish(replication_factor=factor) for each in topics})
        return {
            each.topic: {**each.replicas, **(changes[each.topic].target if each.topic in changes else {})}
            for each in topics
        }

    def kip_36() -> Placed:
        return {
            each.topic: generate(
                racks, len(each.replicas), factor, rng.randrange(len(allowed)), rng.randrange(len(allowed))
            )
            for each in topics
        }

    def topicmappr() -> Placed:
        # All topics in one call, as a user would do, since it counts only replicas of the given topics.
        numbered = {(each.topic, part): number for number, (each, part) in enumerate(every)}
        now = {numbered[each.topic, part]: each.replicas[part] for each, part in every}
        placed = rebuild(cluster.racks, now, factor, allowed)
        return {each.topic: {part: placed[numbered[each.topic, part]] for part in each.replicas} for each in topics}

    def kafka() -> Placed:
        return _kafka_generate(racks, topics, factor)

    ways: Mapping[str, Callable[[], Placed]] = {
        "topicledger": ours,
        "kafka-reassign-partitions --generate, Kafka 4.3.1": kafka,
        "kafka-reassign-partitions --generate, KIP-36": kip_36,
        "topicmappr rebuild, by count": topicmappr,
    }
    return [f"{title}: {_line(_timed(name, way), cluster, topics)}" for name, way in ways.items()]


def _timed(name: str, way: Callable[[], Placed]) -> Measured:
    began = time.perf_counter()
    target = way()
    return Measured(name=name, seconds=time.perf_counter() - began, target=target)


def _kafka_generate(racks: Mapping[int, str | None], topics: Sequence[TopicReplicas], factor: int) -> Placed:
    lines = [f"b {broker} {rack}" for broker, rack in racks.items()]
    lines += [f"p {each.topic} {number} {factor}" for each in topics for number in each.replicas]
    classpath = f"{_JARS / 'kafka'}/*:{_JARS / 'kafka-tools'}/*"
    command = ["java", "-cp", classpath, str(Path(__file__).with_name("KafkaGenerate.java"))]
    answer = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=True).stdout
    found: dict[str, dict[int, tuple[int, ...]]] = {}
    for line in answer.splitlines():
        topic, number, brokers = line.split(" ")
        found.setdefault(topic, {})[int(number)] = tuple(map(int, brokers.split(",")))
    return found


def _line(measured: Measured, cluster: LiveCluster, topics: Sequence[TopicReplicas]) -> str:
    allowed = [broker for broker in cluster.racks if broker not in cluster.leaving]
    replicas, leaders = Counter[int](), Counter[int]()
    skew = shared = moved = changed = 0
    for each in topics:
        target = measured.target[each.topic]
        of_topic = Counter(broker for brokers in target.values() for broker in brokers)
        replicas.update(of_topic)
        leaders.update(brokers[0] for brokers in target.values())
        skew = max(skew, max(of_topic[b] for b in allowed) - min(of_topic[b] for b in allowed))
        shared += sum(len({cluster.racks[b] for b in brokers}) < len(brokers) for brokers in target.values())
        moved += bytes_moved(each, Change(target=target)) or 0
        changed += sum(set(brokers) != set(each.replicas[number]) for number, brokers in target.items())

    def spread(counts: Counter[int]) -> str:
        return f"{min(counts[b] for b in allowed):,} to {max(counts[b] for b in allowed):,}"

    return (
        f"{measured.name}: {moved / 1e12:.2f} TB copied, {changed:,} partitions moved, replicas per broker "
        f"{spread(replicas)}, leaders {spread(leaders)}, largest difference within a topic between two brokers {skew}, "
        f"{shared:,} partitions with two replicas in a rack, {measured.seconds:.1f} s"
    )
