"""The SparkSession: spark-submit's own where it started us, else one with the same settings."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from topicledger.errors import TopicLedgerError

_CHECKOUT = Path(__file__).resolve().parents[2]

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
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return builder.getOrCreate()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = builder.master(os.environ.get("SPARK_MASTER", "local[*]"))
    for key, value in {**DEFAULTS, "spark.jars": ",".join(map(str, _delta_jars()))}.items():
        builder = builder.config(key, value)
    if verbose:
        return builder.getOrCreate()
    with _stderr_in(_log_folder() / "spark.log"):
        return builder.getOrCreate()


def _log_folder() -> Path:
    """Where Spark's own log goes: TOPICLEDGER_LOG_DIR, else the checkout's build/logs, else the temporary folder."""
    build = _CHECKOUT / "build"
    default = build / "logs" if build.is_dir() else Path(tempfile.gettempdir())
    folder = Path(os.environ.get("TOPICLEDGER_LOG_DIR", default))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _stderr_in(path: Path) -> Iterator[None]:
    """Within it, stderr is a file: the JVM started there keeps it so, this process gets its own back."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _delta_jars() -> list[Path]:
    folder = Path(os.environ.get("TOPICLEDGER_JARS") or _CHECKOUT / "build" / "jars")
    jars = sorted((folder / "delta").glob("delta-*.jar"))
    if not jars:
        raise TopicLedgerError(f"no Delta jars in {folder / 'delta'}: run `make setup`, or set TOPICLEDGER_JARS")
    return jars
