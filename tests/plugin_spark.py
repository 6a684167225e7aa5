"""One Spark for the whole run: processes that test share one Java, which would otherwise compile everything in each.

Where tests run in several processes (`--numprocesses`), the process that hands them out starts Spark. The others use
its Java through PySpark's gateway, each with its own session.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession, is_remote

from topicledger.ledger.session import SERVE, for_few_rows, get_session, workers_python

_GATEWAY = "TOPICLEDGER_TEST_GATEWAY"
"""Environment variable with port and secret of the gateway to the Java that this run's processes share."""


def pytest_sessionstart(session: pytest.Session) -> None:
    """Start Spark for the processes that test; they start after this."""
    if getattr(session.config.option, "numprocesses", None) and not is_remote():
        java: Any = get_session(SERVE)
        _forget_sources(java)
        parameters = java.sparkContext._gateway.java_parameters
        os.environ[_GATEWAY] = f"{parameters.port} {parameters.auth_token}"


def _forget_sources(session: Any) -> None:
    """Make Hadoop's configuration forget which of its files each of its 1,100 defaults came from.

    Spark sends the configuration with every scan and every write, and Hadoop compresses these names one by one: 22 ms
    of CPU instead of 1. It needs private fields, so the product leaves it.
    """
    of, jvm = session.sparkContext._jsc.hadoopConfiguration(), session.sparkContext._jvm
    # The first use of files loads more defaults, and with them all names again.
    jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass("file", of)
    of.size()
    found = []
    for name in ("updatingResource", "overlay"):
        field = jvm.java.lang.Class.forName("org.apache.hadoop.conf.Configuration").getDeclaredField(name)
        field.setAccessible(True)
        found.append(field.get(of))
    sources, was_set = found
    sources.keySet().retainAll(was_set.keySet())


def shares_java() -> bool:
    """Whether other processes that test use the same Java."""
    return _GATEWAY in os.environ


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """For few rows, as most tests have; jobs that tests start run with the real settings.

    It lasts as long as the one of `serve`, so it gets Java's second compiler, too. SPARK_REMOTE names a server of Spark
    Connect instead.
    """
    if shares_java():
        _attach()
    session = get_session(SERVE)
    if not is_remote():
        session.sparkContext.setLogLevel("ERROR")
    with for_few_rows(session):
        yield session
    if not shares_java():
        session.stop()


def _attach() -> None:
    """Make a session in the shared Java the one that `get_session` returns."""
    port, secret = os.environ[_GATEWAY].split()
    with patch.dict(os.environ, PYSPARK_GATEWAY_PORT=port, PYSPARK_GATEWAY_SECRET=secret):
        launch: Any = launch_gateway
        gateway = launch()
    java = gateway.jvm.SparkSession.getDefaultSession().get()
    # A context's own handler of Ctrl-C cancels all jobs of this Java, those of other processes that test, too.
    handler = signal.getsignal(signal.SIGINT)
    with workers_python():
        context = SparkContext(gateway=gateway, jsc=gateway.jvm.JavaSparkContext(java.sparkContext()))
    signal.signal(signal.SIGINT, handler)
    SparkSession(context, java.newSession())
