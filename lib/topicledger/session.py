"""The SparkSession: spark-submit's own where it started us, else one with the same settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from topicledger.errors import TopicLedgerError

DEFAULTS: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""What conf/spark-defaults.conf says too, for sessions that spark-submit didn't start."""


def get_session(name: str, *, verbose: bool = False) -> SparkSession:
    """The session of this process; made where there is none, with Delta's jars from TOPICLEDGER_JARS or the checkout.

    Raises TopicLedgerError where Delta's jars aren't to be found.
    """
    builder = SparkSession.builder.appName(f"topicledger {name}")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.master(os.environ.get("SPARK_MASTER", "local[*]"))
        for key, value in {**DEFAULTS, "spark.jars": ",".join(map(str, _delta_jars()))}.items():
            builder = builder.config(key, value)
        if not verbose:
            quiet = Path(__file__).resolve().parents[2] / "conf" / "log4j2.properties"
            if quiet.is_file():
                builder = builder.config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={quiet}")
    return builder.getOrCreate()


def _delta_jars() -> list[Path]:
    folder = Path(os.environ.get("TOPICLEDGER_JARS") or Path(__file__).resolve().parents[2] / "build" / "jars")
    jars = sorted((folder / "delta").glob("delta-*.jar"))
    if not jars:
        raise TopicLedgerError(f"no Delta jars in {folder / 'delta'}: run `make setup`, or set TOPICLEDGER_JARS")
    return jars
