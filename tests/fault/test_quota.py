"""A quota on controller mutations, as a real controller keeps it (KIP-599, C17)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests import clusters
from tests.broker.direct import admin_of, creates, deletes, set_quota
from tests.fault.controller_quota import BURST_SECONDS, RATE, Counted
from tests.fault.effort import THOROUGH
from topicledger.apply.executor import Executor
from topicledger.kafka import ClusterAdmin
from topicledger.kafka.sending import ClusterLimits
from topicledger.model import Outcome, Phase, PhaseResult
from topicledger_testing.embedded_kafka import EmbeddedKafka

TOPICS = 400 if THOROUGH else 150


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    """Provide a broker for this module, since its quota applies to every client."""
    with clusters.plain() as cluster:
        yield cluster


@pytest.fixture
def admin(kafka: EmbeddedKafka) -> Iterator[ClusterAdmin]:
    """Provide a connection to a cluster with a quota of 20 created or deleted partitions per second."""
    with admin_of(kafka) as admin:
        set_quota(admin, RATE)
        # The quota takes effect on the controller shortly after it was acknowledged.
        time.sleep(1.0)
        try:
            yield admin
        finally:
            set_quota(admin, None)


def test_requests_are_paced_to_a_quota_without_failures(
    kafka: EmbeddedKafka, admin: ClusterAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C17, C5, D7: each topic is validated, created and deleted once, in about the minimum time."""
    limits = ClusterLimits(max_batch_records=8_000)
    targets = creates([f"quota.{number:03}" for number in range(TOPICS)], num_partitions=1, replication_factor=1)

    def do(step: Callable[[Executor], Iterator[PhaseResult]], request: str) -> tuple[list[PhaseResult], Counted]:
        # Each phase has its own executor; learned limits of the cluster are passed on.
        counted = Counted(getattr(ClusterAdmin, request).__get__(admin))
        monkeypatch.setattr(admin, request, counted)
        executor = Executor(cluster="main", cluster_id=kafka.cluster_id, admin=admin, limits=limits)
        ended = list(step(executor))
        assert {each.outcome for each in ended} == {Outcome.OK}
        assert sorted(each.topic for each in ended) == [target.topic for target in targets]
        assert sorted(counted.accepted()) == [target.topic for target in targets], "each topic went through once"
        return ended, counted

    began = time.monotonic()
    _, validated = do(lambda executor: executor.validate(targets), "create_topics")
    created, applied = do(lambda executor: executor.apply(targets), "create_topics")
    # Expected are the requests of the burst, then one every two seconds; twice as many are allowed.
    assert validated.requests + applied.requests <= 40
    assert validated.throttled + applied.throttled <= 25
    ids = {each.topic: str(each.topic_id) for each in created if each.phase is Phase.APPLY}
    _, deleted = do(lambda executor: executor.apply(deletes(ids)), "delete_topics")
    assert deleted.requests <= 25
    assert deleted.throttled <= 15
    assert validated.throttled + applied.throttled + deleted.throttled >= 2, "the quota was in force"
    assert limits.pace.rate is not None
    assert RATE / 2 < limits.pace.rate < RATE * 2

    least = (3 * TOPICS - BURST_SECONDS * RATE) / RATE
    assert least - 2 <= time.monotonic() - began <= 2 * least + 30
