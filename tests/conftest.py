"""One SparkSession and one cluster of each kind for the whole run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.harness import Estate
from topicledger.embedded_kafka import EmbeddedKafka
from topicledger.session import get_session

pytest_plugins = ["tests.plugin_kafka"]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = get_session("tests")
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def estate(spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path) -> Estate:
    """An empty ledger and the plain broker as cluster `main`."""
    return Estate(spark, tmp_path / "ledger", {"main": kafka})
