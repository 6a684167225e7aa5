"""ACLs whose request or answer is lost: each ACL ends once, and matches the cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.broker.direct import admin_of, set_quota
from tests.fault.another_client import AnotherClient
from tests.fault.proxy import CREATE_ACLS, CUT, DELETE_ACLS, DROP, Direction, Fault, FaultProxy, refuse
from tests.harness import cluster_settings
from tests.waiting import until
from topicledger.apply.executor import Executor
from topicledger.config.settings import KafkaSettings
from topicledger.kafka import ClusterAdmin
from topicledger.kafka.sending import ClusterLimits, RetryPolicy
from topicledger.model import Note, Outcome, Target, TopicResult
from topicledger.resources.acls import requests as acl_requests
from topicledger.resources.acls.acl import Acl
from topicledger.resources.acls.names import AclAction
from topicledger_testing.embedded_kafka import EmbeddedKafka

PATIENT = RetryPolicy(attempts=12, first_backoff=0.05, longest_backoff=1.0, visibility=30.0)
FAULTS = pytest.mark.parametrize(
    ("direction", "fault"),
    [
        pytest.param("request", DROP, id="request_dropped"),
        pytest.param("request", refuse(1.0), id="connections_refused_for_a_while"),
        pytest.param("response", DROP, id="answer_dropped"),
        pytest.param("response", CUT, id="cut_before_the_answer_arrived"),
    ],
)


@contextmanager
def executor_of(kafka: EmbeddedKafka, server: FaultProxy | EmbeddedKafka) -> Iterator[Executor]:
    """Provide an executor of the super user that waits at most 1.5 seconds for an answer."""
    options = {name: each for name, each in kafka.client_options().items() if name != "bootstrap_servers"}
    settings = cluster_settings("main", server, request_timeout_ms=1500, **options)
    with ClusterAdmin(settings, KafkaSettings(connect_timeout=10.0, operation_timeout=1.0)) as admin:
        limits = ClusterLimits(max_batch_records=8_000)
        yield Executor(cluster="main", cluster_id=kafka.cluster_id, admin=admin, limits=limits, retry_policy=PATIENT)


def acls(user: str, count: int) -> list[Acl]:
    """Return literal ACLs on topics."""
    return [Acl(f"User:{user}", "ALLOW", "READ", "TOPIC", "LITERAL", f"lost.{each}", "*") for each in range(count)]


def adds(rights: Sequence[Acl]) -> list[Target]:
    return [Target(resource=" ".join(each), action=AclAction.ACL_ADD, after=each._asdict()) for each in rights]


def deletes(rights: Sequence[Acl]) -> list[Target]:
    return [Target(resource=" ".join(each), action=AclAction.ACL_DELETE, before=each._asdict()) for each in rights]


def live(kafka: EmbeddedKafka, user: str) -> set[Acl]:
    """Return the live ACLs, read with librdkafka."""
    return AnotherClient(kafka).acls(f"User:{user}")


@FAULTS
def test_acl_with_a_lost_request_is_added_once_and_removed_once(
    kafka_sasl: EmbeddedKafka,
    proxy_sasl: FaultProxy,
    request: pytest.FixtureRequest,
    direction: Direction,
    fault: Fault,
) -> None:
    """A2: repeated requests succeed; a removal that finds nothing means that the lost request took effect."""
    user = f"lost-{request.node.callspec.id}"
    rights = acls(user, 3)
    rule = proxy_sasl.on(CREATE_ACLS, direction, do=fault)
    with executor_of(kafka_sasl, proxy_sasl) as executor:
        added = [*executor.apply(adds(rights))]
    assert rule.fired == 1
    assert {(row.outcome, row.error_code, row.error) for row in added} == {(Outcome.OK, 0, None)}
    assert [(row.before, row.after) for row in added] == [({}, each._asdict()) for each in rights]
    assert {row.attempt for row in added} == {2}
    until(lambda: live(kafka_sasl, user) == set(rights), seconds=30)

    rule = proxy_sasl.on(DELETE_ACLS, direction, do=fault)
    with executor_of(kafka_sasl, proxy_sasl) as executor:
        removed = [*executor.apply(deletes(rights[:2]))]
    assert rule.fired == 1
    note = Note.RECOVERED.value if direction == "response" else None
    assert {(row.outcome, row.error_code, row.error) for row in removed} == {(Outcome.OK, 0, note)}
    assert [(row.before, row.after) for row in removed] == [(each._asdict(), {}) for each in rights[:2]]
    until(lambda: live(kafka_sasl, user) == {rights[2]}, seconds=30)
    with executor_of(kafka_sasl, kafka_sasl) as executor:
        assert [row.outcome for row in executor.apply(deletes(rights[2:]))] == [Outcome.OK]


def test_requests_of_an_earlier_start_are_checked_or_sent_again(kafka_sasl: EmbeddedKafka) -> None:
    """RECOVERED only if the request may have been sent; other existing ACLs are skipped."""
    rights = acls("lost-earlier", 2)
    with admin_of(kafka_sasl) as admin:
        acl_requests.create_acls(admin, adds(rights[:1]))
    until(lambda: live(kafka_sasl, "lost-earlier") == {rights[0]}, seconds=30)
    with executor_of(kafka_sasl, kafka_sasl) as executor:
        sent = [replace(each, maybe_sent=True) for each in adds(rights)]
        assert [(row.resource, row.error) for row in executor.recover(sent)] == [(sent[0].resource, "RECOVERED")]
        assert [*executor.changed_since_plan(sent)] == []
        skipped = [*executor.changed_since_plan(adds(rights))]
        assert [(row.resource, row.outcome) for row in skipped] == [(sent[0].resource, Outcome.SKIPPED)]
        gone = [replace(each, maybe_sent=True) for each in deletes(rights)]
        assert [(row.resource, row.error) for row in executor.recover(gone)] == [(gone[1].resource, "RECOVERED")]
        assert {row.outcome for row in executor.apply(gone)} == {Outcome.OK}
        assert [row.outcome for row in executor.apply(deletes(rights[:1]))] == [Outcome.SKIPPED]
    until(lambda: live(kafka_sasl, "lost-earlier") == set(), seconds=30)


@pytest.mark.thorough
def test_five_thousand_acls_are_added_and_five_hundred_removed(kafka_sasl: EmbeddedKafka) -> None:
    """A5: compared entry by entry with another client."""
    rights = acls("lost-many", 5_000)
    with executor_of(kafka_sasl, kafka_sasl) as executor:
        assert {row.outcome for row in executor.apply(adds(rights))} == {Outcome.OK}
        until(lambda: live(kafka_sasl, "lost-many") == set(rights), seconds=60)
        assert {row.outcome for row in executor.apply(deletes(rights[:500]))} == {Outcome.OK}
        until(lambda: live(kafka_sasl, "lost-many") == set(rights[500:]), seconds=60)
        verified = executor.verify([(each, TopicResult()) for each in (*adds(rights[500:]), *deletes(rights[:500]))])
        assert {row.outcome for row in verified} == {Outcome.OK}
        assert {row.outcome for row in executor.apply(deletes(rights[500:]))} == {Outcome.OK}
    until(lambda: live(kafka_sasl, "lost-many") == set(), seconds=60)


@pytest.mark.thorough
def test_acls_are_not_charged_to_the_quota_of_mutations(
    kafka_sasl: EmbeddedKafka,
) -> None:
    """A6: a quota that would delay creates for minutes doesn't delay ACLs; each answer has its ACL."""
    rights = acls("lost-quota", 500)
    with admin_of(kafka_sasl) as admin:
        set_quota(admin, 0.5)
        try:
            with executor_of(kafka_sasl, kafka_sasl) as executor:
                began = time.monotonic()
                added = [*executor.apply(adds(rights))]
                assert time.monotonic() - began < 60, "at half a mutation a second it would be a quarter of an hour"
        finally:
            set_quota(admin, None)
    assert {(row.outcome, row.attempt) for row in added} == {(Outcome.OK, 1)}
    assert [row.after for row in added] == [each._asdict() for each in rights]
    until(lambda: live(kafka_sasl, "lost-quota") == set(rights), seconds=60)
    with executor_of(kafka_sasl, kafka_sasl) as executor:
        assert {row.outcome for row in executor.apply(deletes(rights))} == {Outcome.OK}
    until(lambda: live(kafka_sasl, "lost-quota") == set(), seconds=60)
