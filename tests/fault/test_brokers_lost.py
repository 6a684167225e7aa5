"""Brokers that die or shut down during requests: each topic ends once with ok, and matches the cluster."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests import clusters
from tests.broker.direct import creates, deletes
from tests.fault.another_client import AnotherClient, Live
from tests.fault.effort import THOROUGH
from tests.fault.proxy import CREATE_TOPICS, CUT, DELETE_TOPICS, Direction, Fault, FaultProxy, Frame, delay
from tests.fault.quorum import active_controller
from tests.harness import cluster_settings
from tests.waiting import until
from topicledger.apply.executor import Executor
from topicledger.config.settings import KafkaSettings
from topicledger.kafka import ClusterAdmin
from topicledger.kafka.sending import ClusterLimits, RetryPolicy
from topicledger.model import Note, Outcome, PhaseResult, Target
from topicledger_testing.embedded_kafka import EmbeddedKafka, KafkaOptions

BATCH = 300
INVALID_REPLICATION_FACTOR = 38
PATIENT = RetryPolicy(attempts=40, first_backoff=0.1, longest_backoff=1.0, visibility=60.0)
_MOMENTS = [("request", 1_500), ("answer", 1_500), ("amid", 3_000)]
"""Retries of more than half a minute, for brokers that restart slowly on a busy machine."""
REQUEST_TIMEOUT = 10.0
"""Seconds that the client waits for an answer; it lets the brokers take 5."""


@pytest.fixture(scope="module")
def mortal() -> Iterator[EmbeddedKafka]:
    """Provide three brokers for one test, each also a controller."""
    with clusters.three_brokers() as kafka:
        yield kafka


@pytest.fixture(scope="module")
def alone() -> Iterator[EmbeddedKafka]:
    """Provide one broker for one test; it can rejoin after 3 s instead of 9 s."""
    timing = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    with EmbeddedKafka(clusters.JARS, KafkaOptions(properties=timing)) as kafka:
        yield kafka


@contextmanager
def executor_of(proxy: FaultProxy) -> Iterator[Executor]:
    server = cluster_settings("main", proxy, request_timeout_ms=round(REQUEST_TIMEOUT * 1000))
    with ClusterAdmin(server, KafkaSettings(connect_timeout=30.0, operation_timeout=5.0)) as admin:
        yield Executor(
            cluster="main",
            cluster_id=proxy.cluster_id,
            admin=admin,
            limits=ClusterLimits(max_batch_records=8_000),
            retry_policy=PATIENT,
        )


def in_batches(executor: Executor, targets: list[Target], size: int = BATCH) -> Iterator[PhaseResult]:
    for start in range(0, len(targets), size):
        yield from executor.apply(targets[start : start + size])


def check_all_ok(rows: list[PhaseResult], targets: list[Target]) -> None:
    """Check that each target has one row that is ok and has its values, with at most a note that it was recovered."""
    assert sorted(row.topic for row in rows) == [target.topic for target in targets]
    ends = Counter((row.outcome, row.error_code, row.error, row.error_message) for row in rows)
    assert {end[:3] for end in ends} <= {(Outcome.OK, 0, None), (Outcome.OK, 0, Note.RECOVERED)}, ends


def as_live(rows: list[PhaseResult]) -> dict[str, Live]:
    return {
        row.topic: Live(int(row.num_partitions or 0), int(row.replication_factor or 0), str(row.topic_id))
        for row in rows
    }


@contextmanager
def restarted(kafka: EmbeddedKafka, *, politely: bool = False) -> Iterator[Callable[[Frame], None]]:
    """Provide a hook that ends the frame's broker, by SIGKILL or `politely`, and restarts it in the background."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        restarts: list[Future[None]] = []

        def end(frame: Frame) -> None:
            if not politely:
                kafka.kill_broker(frame.broker)
            restarts.append(pool.submit(start_again, frame.broker))

        def start_again(node_id: int) -> None:
            if politely:
                kafka.stop_broker(node_id)
            kafka.start_broker(node_id)

        yield end
        assert len(restarts) == 1
        restarts[0].result()


def create_and_delete(kafka: EmbeddedKafka, prefix: str, *, politely: bool = False) -> None:
    """Create 300 topics and delete them, in six requests each; a broker restarts at the third request of both."""
    targets = creates([f"{prefix}{n:03}" for n in range(300)], num_partitions=1, replication_factor=1)
    cluster = AnotherClient(kafka)
    with FaultProxy(kafka) as proxy, executor_of(proxy) as executor:
        if politely:
            # A broker takes two seconds to shut down, but all six requests only one.
            proxy.on(CREATE_TOPICS, "response", times=None, do=delay(0.5))
            proxy.on(DELETE_TOPICS, "response", times=None, do=delay(0.5))
        with restarted(kafka, politely=politely) as restart:
            proxy.on(CREATE_TOPICS, "request", nth=3, do=restart)
            created = list(in_batches(executor, targets, 50))
        check_all_ok(created, targets)
        cluster.await_topics(prefix, as_live(created))

        planned = deletes({row.topic: str(row.topic_id) for row in created})
        with restarted(kafka, politely=politely) as restart:
            proxy.on(DELETE_TOPICS, "request", nth=3, do=restart)
            deleted = list(in_batches(executor, planned, 50))
        check_all_ok(deleted, planned)
        cluster.await_names(prefix, set())


@pytest.mark.thorough
@pytest.mark.parametrize("politely", [False, True], ids=["killed", "stopped"])
def test_broker_may_restart_during_creates_and_deletes(mortal: EmbeddedKafka, politely: bool) -> None:
    """C13, D5: the client's broker restarts, while two others are up."""
    create_and_delete(mortal, "restart.stopped." if politely else "restart.killed.", politely=politely)


@pytest.mark.parametrize(("moment", "count"), _MOMENTS if THOROUGH else _MOMENTS[:1])
def test_controller_may_die_during_thousands_of_creates(mortal: EmbeddedKafka, moment: str, count: int) -> None:
    """C13, C18: before it sees the fourth request, after it has acted and its answer is lost, or in between.

    Only that one batch may have taken effect without an answer.
    """
    prefix = f"controller.{moment}."
    targets = creates([f"{prefix}{n:04}" for n in range(count)], num_partitions=1, replication_factor=1)
    dead = active_controller(mortal)
    killed = threading.Event()

    def kill(frame: Frame) -> Fault | None:
        mortal.kill_broker(dead)
        killed.set()
        return CUT if moment == "answer" else None

    def kill_shortly(frame: Frame) -> None:
        threading.Timer(0.03, kill, [frame]).start()

    with FaultProxy(mortal) as proxy, executor_of(proxy) as executor:
        direction: Direction = "response" if moment == "answer" else "request"
        proxy.on(CREATE_TOPICS, direction, nth=4, do=kill_shortly if moment == "amid" else kill)
        rows = list(in_batches(executor, targets))
    assert killed.wait(10)
    try:
        check_all_ok(rows, targets)
        until(lambda: active_controller(mortal) != dead, seconds=20)
    finally:
        mortal.start_broker(dead)
    recovered = {row.topic for row in rows if row.error == Note.RECOVERED}
    in_doubt = {target.topic for target in targets[3 * BATCH : 4 * BATCH]}
    assert recovered == in_doubt if moment == "answer" else recovered <= in_doubt
    AnotherClient(mortal).await_topics(prefix, as_live(rows))


@pytest.mark.thorough
def test_only_broker_may_die_and_restart_during_creates_and_deletes(alone: EmbeddedKafka) -> None:
    """C13, D5: no broker answers in the meantime; after the restart, the broker has everything it acknowledged."""
    create_and_delete(alone, "alone.killed.")


@pytest.mark.thorough
def test_topics_refused_by_a_broker_shutting_down_are_created_later(
    alone: EmbeddedKafka,
) -> None:
    """C13: the broker answers until it is gone, then reports that every broker is fenced; its message is kept."""
    targets = creates([f"alone.stopped.{n:03}" for n in range(300)], num_partitions=1, replication_factor=1)
    cluster = AnotherClient(alone)
    with FaultProxy(alone) as proxy, executor_of(proxy) as executor:
        proxy.on(CREATE_TOPICS, "response", times=None, do=delay(0.5))
        with restarted(alone, politely=True) as restart:
            proxy.on(CREATE_TOPICS, "request", nth=2, do=restart)
            rows = list(in_batches(executor, targets, 50))
        refused = {row.topic for row in rows if row.error_code == INVALID_REPLICATION_FACTOR}
        known = [row for row in rows if row.topic not in refused]
        check_all_ok(known, [target for target in targets if target.topic not in refused])
        cluster.await_topics("alone.stopped.", as_live(known))

        proxy.clear()
        left = [target for target in targets if target.topic in refused]
        again = list(in_batches(executor, left))
        check_all_ok(again, left)
        cluster.await_topics("alone.stopped.", as_live([*known, *again]))
