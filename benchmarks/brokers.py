"""Real brokers to measure on, fresh for every sample, so that each finds the same cluster."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from topicledger.apply.executor import Executor
from topicledger.config.settings import ClusterSettings, KafkaSettings
from topicledger.kafka import ClusterAdmin, RequestLost
from topicledger.kafka.sending import ClusterLimits
from topicledger.model import Action, Outcome, Target
from topicledger.resources.registry import ACTIONS
from topicledger_testing.embedded_kafka import EmbeddedKafka, KafkaOptions

JARS = Path(os.environ.get("TOPICLEDGER_JARS") or Path(__file__).resolve().parent.parent / "build" / "jars")
NAME = "bench"
RETENTION = "3600000"
CONFIGS = {"retention.ms": RETENTION}
_VISIBLE_SECONDS = 600.0
_OPTIONS = KafkaOptions(heap="2g")
"""With the default of 512 MB, a broker with 20,000 topics does nothing but collect garbage."""
_LONG_SESSION = {"broker.session.timeout.ms": "7200000"}
"""A killed broker stays in the metadata for two hours, so topics can still be created on it."""
_OTHER_FILES = 500
"""Allowance for a broker's open files beside topics' logs: 91 files without a topic, and its connections."""


@contextmanager
def fresh(count: int = 1) -> Iterator[list[EmbeddedKafka]]:
    """Start this many empty clusters of one broker each."""
    with ExitStack() as stack:
        yield [stack.enter_context(EmbeddedKafka(JARS / "kafka", _OPTIONS)) for _ in range(count)]


@contextmanager
def without_logs(count: int) -> Iterator[EmbeddedKafka]:
    """Start a cluster with this many topics of one partition that no broker has made a log for.

    Their only replica is on one of three brokers, which was killed before. A machine makes at most some ten thousand
    logs: they cost files, maps of memory and minutes (C21). The others still list the killed broker, also as the
    controller, so a client may have to repeat a request.
    """
    with EmbeddedKafka(JARS / "kafka", replace(_OPTIONS, brokers=3, properties=_LONG_SESSION)) as kafka:
        killed = kafka.brokers[-1].node_id
        kafka.kill_broker(killed)
        with executor(kafka) as sending:
            _create(
                sending,
                [
                    Target(resource=name, action=Action.CREATE, assignments={0: (killed,)}, configs=CONFIGS)
                    for name in names(count)
                ],
            )
        yield kafka


@contextmanager
def with_authorizer() -> Iterator[EmbeddedKafka]:
    """Start an empty cluster that enforces ACLs; every client is the super user."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with EmbeddedKafka(JARS / "kafka", replace(_OPTIONS, properties=properties)) as kafka:
        yield kafka


def names(count: int) -> list[str]:
    """Return names of topics, the same ones each time."""
    return [f"bench.{number:05}" for number in range(count)]


def creates(count: int) -> list[Target]:
    """Return creates of topics with one partition and one config each."""
    return [
        Target(resource=name, action=Action.CREATE, num_partitions=1, replication_factor=1, configs=CONFIGS)
        for name in names(count)
    ]


def cluster_settings(kafka: EmbeddedKafka, name: str = NAME) -> ClusterSettings:
    """Return the run settings of a cluster."""
    return ClusterSettings(name=name, bootstrap_servers=tuple(kafka.bootstrap_servers))


@contextmanager
def executor(kafka: EmbeddedKafka) -> Iterator[Executor]:
    """Provide an executor, which sends a run's requests to one cluster and decodes the answers."""
    settings = KafkaSettings()
    with ClusterAdmin(cluster_settings(kafka), settings) as admin:
        limits = ClusterLimits(max_batch_records=settings.max_batch_records)
        yield Executor(cluster=NAME, cluster_id=kafka.cluster_id, admin=admin, limits=limits)


def batches(targets: Sequence[Target], most: int) -> Iterator[Sequence[Target]]:
    """Yield batches of at most `most` records each, as the plan makes them (C15)."""
    batch: list[Target] = []
    records = 0
    for target in targets:
        cost = ACTIONS[target.action].cost.records(target)
        if batch and records + cost > most:
            yield batch
            batch, records = [], 0
        batch.append(target)
        records += cost
    yield batch


def _create(sending: Executor, targets: Sequence[Target]) -> None:
    for batch in batches(targets, sending.limits.max_batch_records):
        if any(ended.outcome is not Outcome.OK for ended in sending.apply(batch)):
            raise AssertionError("a topic to measure on could not be created")


def with_topics(kafka: EmbeddedKafka, count: int) -> list[Target]:
    """Create topics on one broker, wait for their leaders, and return their deletes; it may still make logs (C21)."""
    _, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != resource.RLIM_INFINITY and allowed < count + _OTHER_FILES:
        limit = f"a broker keeps a file open for each of {count:,} logs, and may open {allowed:,} (ulimit -Hn)"
        print(f"warning: {limit}: it may end while it is measured", file=sys.stderr, flush=True)
    with executor(kafka) as sending:
        _create(sending, creates(count))
        until = time.monotonic() + _VISIBLE_SECONDS
        while True:
            seen = []
            # A broker that is creating logs may not answer in time.
            with suppress(RequestLost):
                seen = [info for info in sending.admin.list_topics() if not info.internal]
            if len(seen) == count and not any(info.leaderless for info in seen):
                break
            if time.monotonic() > until:
                raise AssertionError(f"only {len(seen)} of {count} topics are listed")
            time.sleep(1.0)
    return [Target(resource=info.topic, action=Action.DELETE, topic_id=info.topic_id) for info in seen]
