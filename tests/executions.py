"""The number of a session's SQL executions: unlike seconds, it is the same on every machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest
from pyspark.sql import SparkSession, is_remote


@contextmanager
def counted(spark: SparkSession) -> Iterator[Callable[[], int]]:
    """Context that counts executions; call the result afterwards.

    Other sessions of this process and renewed leases count, too. Through Spark Connect, the call skips the rest of the
    test.
    """
    if is_remote():
        yield _untold
        return
    first = _last(spark)
    ended: list[int] = []
    yield lambda: ended[0] - first
    ended.append(_last(spark))


def _untold() -> NoReturn:
    pytest.skip("a server of Spark Connect doesn't say how many executions it made")


def _last(spark: SparkSession) -> int:
    """Return the number of the last execution."""
    # PySpark has no API for it.
    java: Any = spark
    java.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    store = java._jsparkSession.sharedState().statusStore()
    found = store.executionsList(max(0, store.executionsCount() - 1), 1)
    return int(found.apply(0).executionId()) if found.size() else -1
