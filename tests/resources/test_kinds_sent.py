"""The promises of every kind of resource about requests: each action ends once, and the cluster is as its row says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.fault.proxy import CUT, DROP, Direction, Fault, FaultProxy
from tests.harness import cluster_settings
from tests.resources.examples import EXAMPLES, Example
from tests.waiting import until
from topicledger.apply.executor import Executor
from topicledger.config.settings import KafkaSettings
from topicledger.kafka import ClusterAdmin
from topicledger.kafka.sending import ClusterLimits, RetryPolicy
from topicledger.model import Outcome, PhaseResult
from topicledger_testing.embedded_kafka import EmbeddedKafka

of_every_kind = pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.table)
PATIENT = RetryPolicy(attempts=12, first_backoff=0.05, longest_backoff=1.0, visibility=30.0)


@contextmanager
def executor_of(
    kafka: EmbeddedKafka, server: FaultProxy | EmbeddedKafka, user: str | None = None
) -> Iterator[Executor]:
    """Provide an executor of a user, by default the super user, that waits at most 1.5 seconds for an answer."""
    options = {name: each for name, each in kafka.client_options(user).items() if name != "bootstrap_servers"}
    settings = cluster_settings("main", server, request_timeout_ms=1500, **options)
    with ClusterAdmin(settings, KafkaSettings(connect_timeout=10.0, operation_timeout=1.0)) as admin:
        limits = ClusterLimits(max_batch_records=8_000)
        yield Executor(cluster="main", cluster_id=kafka.cluster_id, admin=admin, limits=limits, retry_policy=PATIENT)


@of_every_kind
def test_an_action_is_validated_applied_verified_and_undone(kafka_sasl: EmbeddedKafka, example: Example) -> None:
    """Validate changes nothing: the action can be validated again. Applied twice, it has the same result."""
    added, removed = example.target("sent"), example.target("sent", adds=False)
    with executor_of(kafka_sasl, kafka_sasl) as executor:
        for target in (added, removed):
            for _ in range(2):
                assert [row.outcome for row in executor.validate([target])] == [Outcome.OK]
            (row,) = executor.apply([target])
            assert (row.outcome, row.error, row.before, row.after) == (Outcome.OK, None, target.before, target.after)
            (seen,) = executor.verify([(target, row.result)])
            assert seen.outcome in (Outcome.OK, Outcome.PENDING)


@pytest.mark.parametrize(
    ("direction", "fault"),
    [
        pytest.param("response", DROP, id="answer_lost"),
        pytest.param("request", DROP, id="request_lost", marks=pytest.mark.thorough),
        pytest.param("response", CUT, id="connection_cut", marks=pytest.mark.thorough),
    ],
)
@of_every_kind
def test_an_action_whose_answer_is_lost_is_done_once(
    kafka_sasl: EmbeddedKafka, example: Example, direction: Direction, fault: Fault
) -> None:
    target = example.target("lost")
    with FaultProxy(kafka_sasl) as proxy, executor_of(kafka_sasl, proxy) as executor:
        rule = proxy.on(example.request, direction, do=fault)
        (row,) = executor.apply([target])
    assert rule.fired == 1
    assert (row.outcome, row.attempt, row.after) == (Outcome.OK, 2, target.after)
    with executor_of(kafka_sasl, kafka_sasl) as executor:
        (gone,) = executor.apply([example.target("lost", adds=False)])
        assert gone.outcome is Outcome.OK


@of_every_kind
def test_a_resumed_run_recovers_what_was_done_and_sends_the_rest(kafka_sasl: EmbeddedKafka, example: Example) -> None:
    """RECOVERED only if an earlier start may have sent it."""
    done, left = example.target("done"), example.target("left")
    with executor_of(kafka_sasl, kafka_sasl) as executor:
        assert [row.outcome for row in executor.apply([done])] == [Outcome.OK]
        resumed = [replace(each, maybe_sent=True) for each in (done, left)]
        assert [(row.resource, row.error) for row in executor.recover(resumed)] == [(done.resource, "RECOVERED")]
        assert [*executor.changed_since_plan(resumed[1:])] == []
        assert [(row.resource, row.outcome) for row in executor.apply(resumed[1:])] == [(left.resource, Outcome.OK)]
        gone = [example.target(each, adds=False) for each in ("done", "left")]
        assert [row.outcome for row in executor.apply(gone)] == [Outcome.OK] * 2


@of_every_kind
def test_a_change_of_another_client_is_not_overwritten(kafka_sasl: EmbeddedKafka, example: Example) -> None:
    """An action that another client did already is skipped; other values are refused, and stay."""
    theirs, ours = example.by_another("foreign"), example.target("foreign")
    with executor_of(kafka_sasl, kafka_sasl) as executor:
        assert [row.outcome for row in executor.apply([theirs])] == [Outcome.OK]
        found: list[PhaseResult] = []

        def shown() -> bool:
            found.extend(executor.changed_since_plan([ours]))
            return found != []

        # Brokers show a change some time after they acknowledged it (K6).
        until(shown, seconds=PATIENT.visibility)
        (row,) = found
        assert (f"{row.phase} {row.outcome}", row.error) == example.changed_meanwhile
        (gone,) = executor.apply([example.by_another("foreign", adds=False)])
        assert gone.outcome is Outcome.OK


@of_every_kind
def test_a_principal_without_acls_changes_nothing(kafka_sasl: EmbeddedKafka, example: Example) -> None:
    """The message names what to grant; other actions of the request would be refused, too."""
    target = example.target("denied")
    with executor_of(kafka_sasl, kafka_sasl, "nobody") as executor:
        (row,) = executor.validate([target])
        assert (row.outcome, row.error) == (Outcome.REFUSED, "NOT_PERMITTED")
        assert "grant" in str(row.error_message) or "needs the ACL" in str(row.error_message)
