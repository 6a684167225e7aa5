"""The number of a session's SQL executions: unlike seconds, it is the same on every machine."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from pyspark.sql import SparkSession, is_remote

_STARTED = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"


@contextmanager
def counted(spark: SparkSession) -> Iterator[Callable[[], int]]:
    """Context that counts the session's executions, those of Delta included; call the result afterwards.

    Renewed leases count, too. Through Spark Connect, the call skips the rest of the test.
    """
    if is_remote():
        yield _untold
        return
    ended: list[int] = []
    with _event_log(spark) as events:
        yield lambda: ended[0]
    # Other processes that test have sessions in the same Java.
    tag = f"spark-session-{_java(spark)._jsparkSession.sessionUUID()}"
    ended.append(sum(each["Event"] == _STARTED and tag in each["jobTags"] for each in events))


def _untold() -> NoReturn:
    pytest.skip("a server of Spark Connect doesn't say how many executions it made")


@contextmanager
def _event_log(spark: SparkSession) -> Iterator[list[dict[str, Any]]]:
    """Context whose result has Spark's events afterwards, as its event log has them."""
    # Spark's list of executions forgets those that ended a while ago.
    context = _java(spark).sparkContext
    scala, jvm = context._jsc.sc(), context._jvm
    conf = scala.conf().clone().set("spark.eventLog.compress", "false").set("spark.eventLog.rolling.enabled", "false")
    events: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        place = jvm.java.net.URI(Path(folder).as_uri())
        none = jvm.scala.Option.apply(None)
        log = jvm.org.apache.spark.scheduler.EventLoggingListener(
            "counted", none, place, conf, context._jsc.hadoopConfiguration()
        )
        log.start()
        scala.addSparkListener(log)
        try:
            yield events
            scala.listenerBus().waitUntilEmpty()
        finally:
            scala.removeSparkListener(log)
            log.stop()
        (written,) = Path(folder).iterdir()
        events += map(json.loads, written.read_text(encoding="utf-8").splitlines())


def _java(spark: SparkSession) -> Any:
    """PySpark has no API for what is read here."""
    return spark
