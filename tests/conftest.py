"""One SparkSession and one cluster of each kind for the whole run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.harness import Estate
from topicledger.embedded_kafka import EmbeddedKafka
from topicledger.session import get_session

# Test runs are short and many: a JVM that compiles less is up to speed sooner. Jobs that tests start inherit it.
_JAVA = '--conf "spark.driver.defaultJavaOptions=-XX:+UseSerialGC"'
os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"{_JAVA} pyspark-shell")
os.environ.setdefault("TOPICLEDGER_SUBMIT_ARGS", _JAVA)

_QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""For a few rows, compiling a query takes longer than running it. Jobs that tests start run with the real settings."""

pytest_plugins = ["tests.plugin_kafka"]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = get_session("tests")
    for name, value in _QUICK.items():
        session.conf.set(name, value)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def estate(spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path) -> Estate:
    """An empty ledger and the plain broker as cluster `main`."""
    return Estate(spark, tmp_path / "ledger", {"main": kafka})
