"""Client quotas whose request or answer is lost: each entity ends once, and matches the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.broker.direct import admin_of
from tests.fault.proxy import ALTER_CLIENT_QUOTAS, CUT, DROP, Direction, Fault, FaultProxy
from tests.harness import cluster_settings
from tests.waiting import until
from topicledger.apply.executor import Executor
from topicledger.config.settings import KafkaSettings
from topicledger.kafka import ClusterAdmin
from topicledger.kafka.sending import ClusterLimits, RetryPolicy
from topicledger.model import Outcome, Target
from topicledger.resources.quotas import requests as quota_requests
from topicledger.resources.quotas.entity import Entity
from topicledger.resources.quotas.names import QuotaAction
from topicledger_testing.embedded_kafka import EmbeddedKafka

PATIENT = RetryPolicy(attempts=12, first_backoff=0.05, longest_backoff=1.0, visibility=30.0)


@contextmanager
def executor_of(kafka: EmbeddedKafka, server: FaultProxy | EmbeddedKafka) -> Iterator[Executor]:
    """Provide an executor that waits at most 1.5 seconds for an answer."""
    options = {name: each for name, each in kafka.client_options().items() if name != "bootstrap_servers"}
    settings = cluster_settings("main", server, request_timeout_ms=1500, **options)
    with ClusterAdmin(settings, KafkaSettings(connect_timeout=10.0, operation_timeout=1.0)) as admin:
        limits = ClusterLimits(max_batch_records=8_000)
        yield Executor(cluster="main", cluster_id=kafka.cluster_id, admin=admin, limits=limits, retry_policy=PATIENT)


def target(user: str, before: str | None, after: str | None) -> Target:
    """Return a change of a user's producer_byte_rate; None means no limit."""
    values = [{} if value is None else {"producer_byte_rate": value} for value in (before, after)]
    return Target(resource=f"user={user}", action=QuotaAction.ALTER_QUOTA, before=values[0], after=values[1])


def live(kafka: EmbeddedKafka, user: str) -> float | None:
    with admin_of(kafka) as admin:
        return quota_requests.describe_quotas(admin).get(Entity(user=user), {}).get("producer_byte_rate")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("direction", "fault"),
    [
        pytest.param("request", DROP, id="request_dropped"),
        pytest.param("response", DROP, id="answer_dropped"),
        pytest.param("response", CUT, id="cut_before_the_answer_arrived"),
    ],
)
def test_entity_with_a_lost_request_is_altered_once(
    kafka_sasl: EmbeddedKafka, request: pytest.FixtureRequest, direction: Direction, fault: Fault
) -> None:
    """The entity is compared and sent again, and is then as planned."""
    user = f"lost-{request.node.callspec.id}"
    for planned in (target(user, None, "1000"), target(user, "1000", "2000"), target(user, "2000", None)):
        with FaultProxy(kafka_sasl) as proxy, executor_of(kafka_sasl, proxy) as executor:
            rule = proxy.on(ALTER_CLIENT_QUOTAS, direction, do=fault)
            (row,) = executor.apply([planned])
        assert rule.fired == 1
        assert (row.outcome, row.error, row.attempt) == (Outcome.OK, None, 2)
        assert (row.before, row.after) == (planned.before, planned.after)
        wanted = planned.after.get("producer_byte_rate")
        until(lambda wanted=wanted: live(kafka_sasl, user) == (wanted and float(wanted)), seconds=20)


@pytest.mark.thorough
def test_requests_of_an_earlier_start_are_checked_or_sent_again(kafka_sasl: EmbeddedKafka) -> None:
    """RECOVERED only if the request may have been sent; another client's change is refused."""
    done, open_ = target("earlier-done", None, "1000"), target("earlier-open", None, "1000")
    with executor_of(kafka_sasl, kafka_sasl) as executor:
        assert [row.outcome for row in executor.apply([done])] == [Outcome.OK]
        until(lambda: live(kafka_sasl, "earlier-done") == 1000.0, seconds=20)
        sent = [replace(each, maybe_sent=True) for each in (done, open_)]
        assert [(row.resource, row.error) for row in executor.recover(sent)] == [(done.resource, "RECOVERED")]
        assert [*executor.changed_since_plan(sent)] == []
        assert [row.outcome for row in executor.apply(sent[1:])] == [Outcome.OK]
        until(lambda: live(kafka_sasl, "earlier-open") == 1000.0, seconds=20)
        foreign = target("earlier-open", None, "3000")
        assert [row.error for row in executor.apply([foreign])] == ["CHANGED_SINCE_PLAN"]
        removed = [target(user, "1000", None) for user in ("earlier-done", "earlier-open")]
        assert [row.outcome for row in executor.apply(removed)] == [Outcome.OK] * 2
    until(lambda: live(kafka_sasl, "earlier-done") is live(kafka_sasl, "earlier-open") is None, seconds=20)
