"""One SparkSession and one cluster of each kind for the whole run."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from tests import commands
from tests.harness import SHARED, Estate, new_folder
from topicledger_testing.embedded_kafka import EmbeddedKafka

_LATE = commands.spark_defaults()["spark.driver.defaultJavaOptions"]
"""Three processes leave Java's second compiler no time."""

# Jobs that tests start are short and many: over before compiling well would pay. The session of the tests lasts, and
# with room for what is new it has to be tidied less often. A driver that is killed leaves its files behind.
_SERIAL = f"-XX:+UseSerialGC -Xmn1200m -XX:ReservedCodeCacheSize=480m {_LATE} -Djava.io.tmpdir={new_folder()}"
_QUICK = f"{commands.QUICK_JAVA} -Djava.io.tmpdir={new_folder()}"
# No test cuts the power: thousands of commits need not be on the disk.
_UNSYNCED = "--conf spark.hadoop.topicledger.fsync=false"
# Each test has tables of its own, and Delta keeps 3 MB for each that was read: without a limit, Java spent 200 s of a
# run's 25 minutes on full garbage collections.
_FEW_TABLES = (
    "--conf spark.databricks.delta.delta.log.cacheSize=200 --conf spark.sql.ui.retainedExecutions=50 "
    "--conf spark.ui.retainedJobs=50 --conf spark.ui.retainedStages=50 --conf spark.buffer.pageSize=1m"
)
_SESSION = (
    f'--driver-memory 3g {_UNSYNCED} {_FEW_TABLES} --conf "spark.driver.defaultJavaOptions={_SERIAL}" pyspark-shell'
)
os.environ.setdefault(SHARED, str(new_folder()))
os.environ.setdefault("PYSPARK_SUBMIT_ARGS", _SESSION)
os.environ.setdefault("TOPICLEDGER_SUBMIT_ARGS", f'{_UNSYNCED} --conf "spark.driver.defaultJavaOptions={_QUICK}"')

# How long an example takes is no test: the machine may be doing something else.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

pytest_plugins = ["tests.plugin_faults", "tests.plugin_kafka", "tests.plugin_spark", "tests.plugin_storage"]


@pytest.fixture(autouse=True)
def _log_untouched() -> Iterator[None]:
    """A command run in this process, by a test or a fixture of its module, sets the package's log up as its own."""
    _forget_log_settings()
    yield
    _forget_log_settings()


def _forget_log_settings() -> None:
    logger = logging.getLogger("topicledger")
    logger.handlers, logger.propagate = [], True
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def estate(spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path) -> Estate:
    """An empty ledger and the plain broker as cluster `main`."""
    return Estate(spark, tmp_path / "ledger", {"main": kafka})
