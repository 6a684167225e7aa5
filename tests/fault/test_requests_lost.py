"""Requests and answers that are lost: they are sent again, and each topic ends once and matches the cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pytest

from tests.broker.direct import creates, deletes, make, remove
from tests.fault.another_client import AnotherClient, Live
from tests.fault.patience import REQUEST_TIMEOUT, executor_of
from tests.fault.proxy import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    CUT,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DROP,
    METADATA,
    Direction,
    Fault,
    FaultProxy,
    Frame,
    delay,
    hold,
    refuse,
)
from tests.waiting import until
from topicledger.apply.executor import Executor
from topicledger.kafka import Response
from topicledger.kafka.sending import OutcomeUnknown, RetryPolicy
from topicledger.model import Action, Note, Outcome, PhaseResult, Target
from topicledger_testing.embedded_kafka import EmbeddedKafka

HASTY = RetryPolicy(attempts=3, first_backoff=0.05, longest_backoff=0.2, visibility=30.0)
GIVES_UP = replace(HASTY, visibility=2.0)
"""Retries for silent clusters: sent topics are looked up after `visibility`."""

UNDONE = [
    pytest.param("request", DROP, id="request_dropped"),
    pytest.param("request", CUT, id="cut_before_the_request_arrived"),
    pytest.param("request", refuse(1.0), id="connections_refused_for_a_while"),
]
"""Faults of requests before the broker can act on them."""
DONE = [
    pytest.param("response", DROP, id="answer_dropped"),
    pytest.param("response", CUT, id="cut_before_the_answer_arrived"),
    pytest.param("response", delay(4 * REQUEST_TIMEOUT), id="answer_too_late"),
    pytest.param("response", refuse(1.0), id="cut_and_connections_refused_for_a_while"),
]
"""Faults of answers after the broker has acted."""
MATRIX = pytest.mark.parametrize(("direction", "fault"), [*UNDONE, *DONE])


@pytest.fixture(scope="module")
def cluster(kafka: EmbeddedKafka) -> AnotherClient:
    return AnotherClient(kafka)


def names_of(prefix: str, request: pytest.FixtureRequest, count: int = 3) -> list[str]:
    """Return names for this case of a test only."""
    case = request.node.callspec.id if hasattr(request.node, "callspec") else "one"
    return [f"{prefix}.{case}.{number}" for number in range(count)]


def told(rows: Iterable[PhaseResult]) -> set[tuple[Outcome, int, str | None]]:
    """Return the distinct outcomes of rows."""
    return {(row.outcome, row.error_code, row.error) for row in rows}


def as_live(rows: Sequence[PhaseResult]) -> dict[str, Live]:
    """Return the topics that the cluster must have if the rows are true."""
    assert all(row.topic_id and row.num_partitions and row.replication_factor for row in rows)
    return {row.topic: Live(row.num_partitions, row.replication_factor, row.topic_id) for row in rows}


@MATRIX
def test_lost_create_is_sent_again_and_ends_once(
    kafka: EmbeddedKafka,
    cluster: AnotherClient,
    proxy: FaultProxy,
    request: pytest.FixtureRequest,
    direction: Direction,
    fault: Fault,
) -> None:
    """C18, C12: topics that were already created are RECOVERED; rows match the cluster, including ids."""
    names = names_of("lost.create", request)
    rule = proxy.on(CREATE_TOPICS, direction, do=fault)
    with executor_of(proxy) as executor:
        rows = list(executor.apply(creates(names, num_partitions=2, configs={"retention.ms": "7000"})))
    assert rule.fired == 1
    assert sorted(row.topic for row in rows) == names
    assert told(rows) == {(Outcome.OK, 0, Note.RECOVERED if direction == "response" else None)}
    assert {row.attempt > 1 for row in rows} == {True}
    cluster.await_topics(f"{names[0][:-1]}", as_live(rows))
    assert set(cluster.config("retention.ms", set(names)).values()) == {"7000"}
    assert all(next(e.value for e in row.configs or () if e.name == "retention.ms") == "7000" for row in rows)


@MATRIX
def test_lost_validation_is_repeated_and_creates_nothing(
    kafka: EmbeddedKafka,
    cluster: AnotherClient,
    proxy: FaultProxy,
    request: pytest.FixtureRequest,
    direction: Direction,
    fault: Fault,
) -> None:
    """C5: validations can be repeated."""
    names = names_of("lost.validate", request)
    rule = proxy.on(CREATE_TOPICS, direction, validate_only=True, do=fault)
    with executor_of(proxy) as executor:
        rows = list(executor.validate(creates(names, num_partitions=2)))
    assert rule.fired == 1
    assert [row.topic for row in rows] == names
    assert told(rows) == {(Outcome.OK, 0, None)}
    assert proxy.count(CREATE_TOPICS, "request", validate_only=False) == 0
    assert not cluster.names("lost.validate.")


@MATRIX
def test_partitions_with_a_lost_request_are_added_once(
    kafka: EmbeddedKafka,
    cluster: AnotherClient,
    proxy: FaultProxy,
    request: pytest.FixtureRequest,
    direction: Direction,
    fault: Fault,
) -> None:
    """N2: the controller refuses a repeated increase, and the count is the planned one."""
    ids = make(kafka, *names_of("lost.grow", request))
    rule = proxy.on(CREATE_PARTITIONS, direction, do=fault)
    counts = {"before": {"num_partitions": "1"}, "after": {"num_partitions": "3"}}
    with executor_of(proxy) as executor:
        grows = [
            Target(resource=name, topic_id=each, action=Action.ADD_PARTITIONS, **counts) for name, each in ids.items()
        ]
        rows = list(executor.apply(grows))
    assert rule.fired == 1
    assert {row.topic: (row.before, row.after) for row in rows} == dict.fromkeys(ids, tuple(counts.values()))
    assert told(rows) == {(Outcome.OK, 0, Note.RECOVERED if direction == "response" else None)}
    cluster.await_topics(next(iter(ids))[:-1], {name: Live(3, 1, topic_id) for name, topic_id in ids.items()})


@MATRIX
def test_configs_with_a_lost_request_are_altered_with_their_before(
    kafka: EmbeddedKafka,
    cluster: AnotherClient,
    proxy: FaultProxy,
    request: pytest.FixtureRequest,
    direction: Direction,
    fault: Fault,
) -> None:
    """K6: altering twice has the same effect as once; `before` was read before the first request."""
    ids = make(kafka, *names_of("lost.alter", request), configs={"flush.ms": "4", "flush.messages": "9"})
    rule = proxy.on(ALTER_CONFIGS, direction, do=fault)
    values = {"before": {"flush.ms": "4", "flush.messages": "9"}, "after": {"flush.ms": "5"}}
    with executor_of(proxy) as executor:
        alters = [
            Target(resource=name, topic_id=each, action=Action.ALTER_CONFIGS, **values) for name, each in ids.items()
        ]
        rows = list(executor.apply(alters))
    assert rule.fired == 1
    assert told(rows) == {(Outcome.OK, 0, None)}
    assert {row.topic: (row.before, row.after) for row in rows} == dict.fromkeys(ids, tuple(values.values()))
    default = "9223372036854775807"
    until(lambda: set(cluster.config("flush.ms", set(ids)).values()) == {"5"}, seconds=30)
    until(lambda: set(cluster.config("flush.messages", set(ids)).values()) == {default}, seconds=30)


@MATRIX
def test_lost_delete_is_sent_again_and_ends_once(
    kafka: EmbeddedKafka,
    cluster: AnotherClient,
    proxy: FaultProxy,
    request: pytest.FixtureRequest,
    direction: Direction,
    fault: Fault,
) -> None:
    """D3, D5, D7: a planned id that is gone was deleted by the lost request; a neighbour stays."""
    *names, neighbour = names_of("lost.delete", request, 4)
    ids = make(kafka, *names, neighbour)
    rule = proxy.on(DELETE_TOPICS, direction, do=fault)
    with executor_of(proxy) as executor:
        rows = list(executor.apply(deletes({name: ids[name] for name in names})))
    assert rule.fired == 1
    assert sorted(row.topic for row in rows) == names
    assert told(rows) == {(Outcome.OK, 0, Note.RECOVERED if direction == "response" else None)}
    cluster.await_topics(f"{names[0][:-1]}", {neighbour: Live(1, 1, ids[neighbour])})


def test_create_that_arrives_after_its_repeat_changes_nothing(
    kafka: EmbeddedKafka, cluster: AnotherClient, proxy: FaultProxy
) -> None:
    """C18: the repeat created them, so nothing was recovered."""
    arrives = threading.Event()
    proxy.on(CREATE_TOPICS, "request", do=hold(arrives))
    with executor_of(proxy) as executor:
        rows = list(executor.apply(creates(["late.create.a", "late.create.b"])))
    assert told(rows) == {(Outcome.OK, 0, None)}
    arrives.set()
    until(lambda: proxy.count(CREATE_TOPICS, "response") == 2, seconds=20)
    cluster.await_topics("late.create.", as_live(rows))


def test_delete_that_arrives_late_spares_the_recreated_topic(
    kafka: EmbeddedKafka, cluster: AnotherClient, proxy: FaultProxy
) -> None:
    """D7: the request names the id that its repeat has already deleted."""
    planned = make(kafka, "late.phoenix")
    arrives = threading.Event()
    proxy.on(DELETE_TOPICS, "request", do=hold(arrives))
    with executor_of(proxy) as executor:
        rows = list(executor.apply(deletes(planned)))
    assert told(rows) == {(Outcome.OK, 0, None)}
    cluster.await_names("late.phoenix", set())
    anew = make(kafka, "late.phoenix")
    arrives.set()
    until(lambda: proxy.count(DELETE_TOPICS, "response") == 2, seconds=20)
    cluster.await_topics("late.phoenix", {"late.phoenix": Live(1, 1, anew["late.phoenix"])})


def test_listing_continues_with_another_broker_if_one_is_gone(kafka: EmbeddedKafka, proxy: FaultProxy) -> None:
    """A dead broker is listed for seconds, so observing must not depend on the broker that kafka-python picks."""
    ids = make(kafka, "gone.a")
    with executor_of(proxy) as executor:
        proxy.on(METADATA, "response", nth=proxy.count(METADATA, "response") + 1, times=2, do=CUT)
        assert "gone.a" in {info.topic for info in executor.admin.list_topics()}
    remove(kafka, ids)


def test_requests_of_recovery_may_be_lost(kafka: EmbeddedKafka, cluster: AnotherClient, proxy: FaultProxy) -> None:
    """C18: the descriptions that compare a live topic with the plan are requested again."""

    def then_lose_the_descriptions(frame: Frame) -> None:
        proxy.on(METADATA, "response", nth=proxy.count(METADATA, "response") + 1, do=CUT)
        proxy.on(DESCRIBE_CONFIGS, "response", do=DROP)

    proxy.on(CREATE_TOPICS, "response", do=CUT)
    proxy.on(CREATE_TOPICS, "response", nth=2, do=then_lose_the_descriptions)
    with executor_of(proxy) as executor:
        rows = list(executor.apply(creates(["lost.descriptions"], configs={"retention.ms": "7000"})))
    assert told(rows) == {(Outcome.OK, 0, Note.RECOVERED)}
    assert proxy.count(DESCRIBE_CONFIGS, "response") == 2
    cluster.await_topics("lost.descriptions", as_live(rows))


def test_different_topic_created_before_the_repeat_is_not_ours(
    kafka: EmbeddedKafka, cluster: AnotherClient, proxy: FaultProxy
) -> None:
    """C18: the lost request never arrived; the batch's other topic is created."""

    def be_faster(frame: Frame) -> Fault:
        make(kafka, "lost.race.theirs", num_partitions=5)
        return CUT

    proxy.on(CREATE_TOPICS, "request", do=be_faster)
    with executor_of(proxy) as executor:
        targets = creates(["lost.race.theirs", "lost.race.ours"], num_partitions=2)
        rows = {row.topic: row for row in executor.apply(targets)}
    assert told([rows["lost.race.ours"]]) == {(Outcome.OK, 0, None)}
    assert told([rows["lost.race.theirs"]]) == {(Outcome.FAILED, 36, "TOPIC_ALREADY_EXISTS")}
    assert "num_partitions is 5, planned 2" in str(rows["lost.race.theirs"].error_message)
    cluster.await_topics("lost.race.", as_live(list(rows.values())))


def end_in_doubt(rows: Iterator[PhaseResult]) -> list[PhaseResult]:
    """Return the rows until the executor gives up, which it must do in time."""
    known: list[PhaseResult] = []
    requests = 2 * (GIVES_UP.attempts + 4)
    latest = time.monotonic() + requests * (REQUEST_TIMEOUT + GIVES_UP.longest_backoff) + GIVES_UP.visibility + 5

    def listen() -> None:
        for row in rows:
            known.append(row)

    with pytest.raises(OutcomeUnknown, match="start the run again"):
        listen()
    assert time.monotonic() < latest
    return known


def next_start(executor: Executor, targets: Sequence[Target]) -> list[PhaseResult]:
    """Do what a start does with targets that an earlier start may have sent: recover them, then send the rest."""
    marked = [replace(target, maybe_sent=True) for target in targets]
    learnt = list(executor.recover(marked))
    known = {row.topic for row in learnt}
    return [*learnt, *executor.apply([target for target in marked if target.topic not in known])]


@pytest.mark.parametrize(
    ("direction", "fault"),
    [pytest.param("response", DROP, marks=pytest.mark.thorough), ("response", CUT), ("request", CUT)],
)
def test_creates_without_any_answer_are_found_by_the_next_start(
    kafka: EmbeddedKafka,
    cluster: AnotherClient,
    proxy: FaultProxy,
    request: pytest.FixtureRequest,
    direction: Direction,
    fault: Fault,
) -> None:
    """C18: RECOVERED if the broker acted, created now if no request arrived.

    All requests are lost, so the executor doesn't ask topic by topic.
    """
    names = names_of(f"never.create.{direction}.{fault.name}", request)
    targets = creates(names, num_partitions=2)
    proxy.on(CREATE_TOPICS, direction, times=None, do=fault)
    with executor_of(proxy, GIVES_UP) as executor:
        assert end_in_doubt(executor.apply(targets)) == []
    # Recovery may send the same number of requests again.
    assert proxy.count(CREATE_TOPICS, "request") <= 2 * (GIVES_UP.attempts + 4)
    proxy.clear()
    with executor_of(proxy) as executor:
        rows = next_start(executor, targets)
    assert told(rows) == {(Outcome.OK, 0, Note.RECOVERED if direction == "response" else None)}
    cluster.await_topics(f"never.create.{direction}.{fault.name}.", as_live(rows))


def test_delete_without_any_answer_is_found_by_the_same_start(
    kafka: EmbeddedKafka, cluster: AnotherClient, proxy: FaultProxy
) -> None:
    """D3: the controller answers other requests, and reports that the name is free."""
    ids = make(kafka, "never.delete.a")
    proxy.on(DELETE_TOPICS, "response", times=None, do=DROP)
    with executor_of(proxy, replace(HASTY, visibility=5.0)) as executor:
        assert told(list(executor.apply(deletes(ids)))) == {(Outcome.OK, 0, Note.RECOVERED)}
    cluster.await_names("never.delete.", set())


def test_validations_without_any_answer_have_no_rows(
    kafka: EmbeddedKafka, cluster: AnotherClient, proxy: FaultProxy
) -> None:
    """C5"""
    proxy.on(CREATE_TOPICS, "response", times=None, do=CUT)
    with executor_of(proxy, GIVES_UP) as executor:
        assert end_in_doubt(executor.validate(creates(["never.validate"]))) == []
    assert not cluster.names("never.validate")


def test_only_answers_received_before_the_loss_have_rows(
    kafka: EmbeddedKafka, cluster: AnotherClient, proxy: FaultProxy
) -> None:
    """C18: two of four requests were answered; the third took effect, and so did some requests for single topics."""
    names = [f"never.half.{number}" for number in range(8)]
    targets = creates(names, num_partitions=1)
    proxy.on(CREATE_TOPICS, "response", nth=3, times=None, do=CUT)
    with executor_of(proxy, GIVES_UP, max_batch_records=4) as executor:
        known = end_in_doubt(executor.apply(targets))
    assert told(known) == {(Outcome.OK, 0, None)}
    assert {row.topic for row in known} == set(names[:4])
    proxy.clear()
    until(lambda: cluster.names("never.half.") >= set(names[:6]), seconds=30)
    created = cluster.names("never.half.")
    left = [target for target in targets if target.topic in names[4:]]
    with executor_of(proxy, max_batch_records=4) as executor:
        rows = {row.topic: row for row in next_start(executor, left)}
    assert {name: row.error for name, row in rows.items()} == {
        name: Note.RECOVERED if name in created else None for name in names[4:]
    }
    cluster.await_topics("never.half.", as_live([*known, *rows.values()]))


def test_topic_that_closes_the_connection_fails_alone(
    kafka: EmbeddedKafka, cluster: AnotherClient, proxy: FaultProxy
) -> None:
    """Each request with this topic is cut before the broker sees it; requests without it create the other topics."""
    names, poisoned = [f"poison.{number:02}" for number in range(12)], "poison.07"
    in_request: list[str] = []
    proxy.on(
        CREATE_TOPICS, "request", times=None, validate_only=False, do=lambda _: CUT if poisoned in in_request else None
    )
    with executor_of(proxy, replace(HASTY, visibility=3.0)) as executor:
        create = executor.admin.create_topics

        def remembered(targets: Sequence[Target], *, validate_only: bool) -> Response:
            in_request[:] = [target.topic for target in targets]
            return create(targets, validate_only=validate_only)

        executor.admin.create_topics = remembered  # type: ignore[method-assign]
        rows = {row.topic: row for row in executor.apply(creates(names, num_partitions=1))}
    failed = rows.pop(poisoned)
    assert (failed.outcome, failed.error) == (Outcome.FAILED, "NO_ANSWER")
    assert "the cluster shows no effect of the request" in str(failed.error_message)
    assert told(rows.values()) == {(Outcome.OK, 0, None)}
    cluster.await_names("poison.", set(rows))


def test_descriptions_without_any_answer_leave_deletes_open(
    kafka: EmbeddedKafka, cluster: AnotherClient, proxy: FaultProxy
) -> None:
    """D6: topics are described before their deletes are validated; a missing description leaves the deletes open."""
    ids = make(kafka, "never.look")
    with executor_of(proxy, HASTY) as executor:
        proxy.on(METADATA, "response", nth=proxy.count(METADATA, "response") + 1, times=None, do=CUT)
        assert end_in_doubt(executor.validate(deletes(ids))) == []
    remove(kafka, ids)
