"""The SparkSession: spark-submit's own where it started us, else one with the same settings."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from topicledger.errors import TopicLedgerError

_CHECKOUT = Path(__file__).resolve().parents[3]

DEFAULTS: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""What conf/spark-defaults.conf says too, for sessions that spark-submit didn't start."""

JAVA_OPTIONS = (
    "-XX:Tier4InvocationThreshold=100000 -XX:Tier4MinInvocationThreshold=12000 "
    "-XX:Tier4CompileThreshold=300000 -XX:Tier4BackEdgeThreshold=800000"
)
"""The same, of Java: its second compiler twenty times later than by default."""
SERVE = "serve"
BY_HAND_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Of commands by hand but for `serve`, which stays: Java's first compiler only, and the collector that starts at once.
A command is over before the second compiler's work pays (docs/performance.md)."""

LOCAL_FILES: Mapping[str, str] = {
    "spark.hadoop.fs.file.impl": "LocalFiles",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "LocalFiles$Context",
}
"""Hadoop's local files by LocalFiles.java, where `make setup` has compiled it; spark-submit.sh says so, too."""

S3_LOG_STORE: Mapping[str, str] = {"spark.delta.logStore.s3a.impl": "ConditionalS3LogStore"}
"""Delta's commits on S3 by ConditionalS3LogStore.java, where `make setup` has compiled it; spark-submit.sh says so,
too. PYSPARK_SUBMIT_ARGS may name another one."""

FEW_ROWS: Mapping[str, tuple[str, str]] = {
    "spark.sql.codegen.wholeStage": ("true", "false"),
    "spark.sql.codegen.factoryMode": ("FALLBACK", "NO_CODEGEN"),
    "spark.sql.adaptive.enabled": ("true", "false"),
    "spark.sql.shuffle.partitions": (DEFAULTS["spark.sql.shuffle.partitions"], "1"),
    "spark.databricks.delta.snapshotPartitions": (DEFAULTS["spark.databricks.delta.snapshotPartitions"], "1"),
}
"""Setting -> its default, and the better value where compiling or replanning a query takes longer than its rows."""


def get_session(name: str, *, verbose: bool = False) -> SparkSession:
    """The session of this process; made where there is none, with Delta's jars from TOPICLEDGER_JARS or the checkout.

    Raises TopicLedgerError where Delta's jars aren't to be found.
    """
    builder = SparkSession.builder.appName(f"topicledger {name}")
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return builder.getOrCreate()
    master = os.environ.get("SPARK_MASTER", "local[*]")
    # Executors on other machines don't have the class.
    files = _local_files() if master.startswith("local") else None
    log_store = _log_store()
    ours = {
        **DEFAULTS,
        **_java(name),
        **(LOCAL_FILES if files else {}),
        **({key: value for key, value in S3_LOG_STORE.items() if key not in _submit_args()} if log_store else {}),
        "spark.jars": ",".join(map(str, [*_delta_jars(), *log_store])),
    }
    builder = builder.master(master)
    for key, value in ours.items():
        builder = builder.config(key, value)
    started = _started_with_output_in(None if verbose else _log_folder() / "spark.log")
    with started, workers_python(), _behind_sparks_jars(files):
        return builder.getOrCreate()


@contextmanager
def for_few_rows(spark: SparkSession) -> Iterator[Callable[[], None]]:
    """A context in which queries are tuned for few rows (`FEW_ROWS`); yields a function that ends that early.

    A setting that isn't at its default was chosen by somebody, and stays.
    """
    ours = {name: before for name, (before, _) in FEW_ROWS.items() if spark.conf.get(name, before) == before}

    def for_many() -> None:
        for name in list(ours):
            if (before := ours.pop(name, None)) is not None:
                spark.conf.set(name, before)

    for name in ours:
        spark.conf.set(name, FEW_ROWS[name][1])
    try:
        yield for_many
    finally:
        for_many()


def _log_folder() -> Path:
    """Where Spark's own log goes: TOPICLEDGER_LOG_DIR, else the checkout's build/logs, else the temporary folder."""
    build = _CHECKOUT / "build"
    default = build / "logs" if build.is_dir() else Path(tempfile.gettempdir())
    folder = Path(os.environ.get("TOPICLEDGER_LOG_DIR", default))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _started_with_output_in(log: Path | None) -> Iterator[None]:
    """A context in which new processes write to `log`, or to stderr where that is None.

    Stdout is for the command's data. Afterwards this process has its own streams again; a JVM that was
    started keeps those it got.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    kept = [os.dup(1), os.dup(2)]
    try:
        if log is None:
            os.dup2(2, 1)
        else:
            with log.open("ab") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
        yield
    finally:
        for number, before in enumerate(kept, start=1):
            os.dup2(before, number)
            os.close(before)


@contextmanager
def _behind_sparks_jars(jar: Path | None) -> Iterator[None]:
    """A session made within it has the jar on Java's class path. Before Spark's own, the archive would be unread."""
    if jar is None:
        yield
        return
    before = os.environ.get("SPARK_DIST_CLASSPATH")
    os.environ["SPARK_DIST_CLASSPATH"] = os.pathsep.join(filter(None, [str(jar), before]))
    try:
        yield
    finally:
        if before is None:
            del os.environ["SPARK_DIST_CLASSPATH"]
        else:
            os.environ["SPARK_DIST_CLASSPATH"] = before


@contextmanager
def workers_python() -> Iterator[None]:
    """A session made within it starts workers with this Python, as spark-submit.sh has it; PYSPARK_PYTHON wins."""
    if "PYSPARK_PYTHON" in os.environ:
        yield
        return
    script = _CHECKOUT / "scripts" / "python.sh"
    before = os.environ.get("TOPICLEDGER_PYTHON")
    os.environ["PYSPARK_PYTHON"] = str(script) if script.exists() else sys.executable
    os.environ["TOPICLEDGER_PYTHON"] = sys.executable
    try:
        yield
    finally:
        # For this session's workers only: what this process starts has its own.
        del os.environ["PYSPARK_PYTHON"], os.environ["TOPICLEDGER_PYTHON"]
        if before is not None:
            os.environ["TOPICLEDGER_PYTHON"] = before


def _java(name: str) -> Mapping[str, str]:
    """Java as spark-submit.sh starts it, with the classes that `make setup` has parsed and checked."""
    archive = _CHECKOUT / "build" / "classes" / "spark.jsa"
    shared = f" '-XX:SharedArchiveFile={archive}' -Xshare:auto -Xlog:cds=off" if archive.exists() else ""
    return {"spark.driver.extraJavaOptions": (JAVA_OPTIONS if name == SERVE else BY_HAND_JAVA_OPTIONS) + shared}


def _jars() -> Path:
    return Path(os.environ.get("TOPICLEDGER_JARS") or _CHECKOUT / "build" / "jars")


def _delta_jars() -> list[Path]:
    folder = _jars() / "delta"
    jars = sorted(folder.glob("delta-*.jar"))
    if not jars:
        raise TopicLedgerError(f"no Delta jars in {folder}: run `make setup`, or set TOPICLEDGER_JARS")
    return jars


def _log_store() -> list[Path]:
    """Its jar; none where it wasn't compiled."""
    return sorted((_jars() / "s3-log-store").glob("*.jar"))


def _submit_args() -> str:
    return os.environ.get("PYSPARK_SUBMIT_ARGS", "")


def _local_files() -> Path | None:
    jar = _jars() / "local-files" / "local-files.jar"
    return jar if jar.exists() else None
