"""An executor of one cluster, for tests with a stand-in for its admin client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topicledger.apply.executor import Executor
from topicledger.kafka.sending import ClusterLimits, RetryPolicy

ATTEMPTS = 3


def executor_for(
    admin: Any, sleep: Callable[[float], None] | None, *, records: int = 100, attempts: int = ATTEMPTS, **fields: Any
) -> Executor:
    """Return an executor whose requests have at most `records` records and are sent `attempts` times."""
    usual = {
        "cluster": "main",
        "cluster_id": "kafka-main",
        "limits": ClusterLimits(max_batch_records=records),
        "retry_policy": RetryPolicy(attempts=attempts, visibility=0.0),
    }
    return Executor(**{**usual, "admin": admin, "sleep": sleep, **fields})
