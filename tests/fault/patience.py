"""An executor whose requests time out soon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.fault.proxy import (
    FaultProxy,
)
from tests.harness import cluster_settings
from topicledger.apply.executor import Executor
from topicledger.config.settings import KafkaSettings
from topicledger.kafka import ClusterAdmin
from topicledger.kafka.sending import ClusterLimits, RetryPolicy
from topicledger_testing.embedded_kafka import EmbeddedKafka

REQUEST_TIMEOUT = 1.5
"""Seconds that the client waits for an answer; it lets the broker take 1."""


PATIENT = RetryPolicy(attempts=12, first_backoff=0.05, longest_backoff=1.0, visibility=30.0)


@contextmanager
def executor_of(
    kafka: FaultProxy | EmbeddedKafka, retry_policy: RetryPolicy = PATIENT, max_batch_records: int = 8_000
) -> Iterator[Executor]:
    """Provide an executor that waits at most 1.5 seconds for an answer."""
    server = cluster_settings("main", kafka, request_timeout_ms=round(REQUEST_TIMEOUT * 1000))
    with ClusterAdmin(server, KafkaSettings(connect_timeout=10.0, operation_timeout=1.0)) as admin:
        yield Executor(
            cluster="main",
            cluster_id=kafka.cluster_id,
            admin=admin,
            limits=ClusterLimits(max_batch_records=max_batch_records),
            retry_policy=retry_policy,
        )
