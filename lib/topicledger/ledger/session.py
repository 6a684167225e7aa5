"""The SparkSession: spark-submit's own if it started us, else one with the same settings."""

from __future__ import annotations

import atexit
import errno
import logging
import os
import shutil
import signal
import socket
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from topicledger.config.secrets import redact
from topicledger.errors import TopicLedgerError, UsageError
from topicledger.ledger import jars
from topicledger.ledger.retries import first_sentence

log = logging.getLogger(__name__)

DEFAULTS: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.autoBroadcastJoinThreshold": "1m",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings of conf/spark-defaults.conf, for sessions that spark-submit didn't start."""

SERVE = "serve"
REMOTE = "SPARK_REMOTE"
"""Environment variable with the address of a Spark Connect server, such as sc://host:15002."""
_METASTORE = "spark.sql.catalogImplementation"
_PORT = 15002
_CONNECT_SECONDS = 20.0
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
"""Environment variables of proxies through which gRPC, Spark Connect's protocol, reaches a server."""
_GIVEN = ("PYSPARK_GATEWAY_PORT", "DATABRICKS_RUNTIME_VERSION")
"""Environment variables in a process that spark-submit or Databricks gives a session."""
BY_HAND_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Java options for commands by hand: only the first compiler, and the garbage collector that starts fastest. A command
ends before the second compiler pays off (benchmarks/NOTES.md). `serve` keeps running: it has Java's defaults."""

LOCAL_FILES: Mapping[str, str] = {
    "spark.hadoop.fs.file.impl": "LocalFiles",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "LocalFiles$Context",
}
"""Hadoop's local files by LocalFiles.java, if `make setup` has compiled it; spark-submit.sh sets the same."""

LOOPBACK: Mapping[str, str] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Settings for local masters: executors are on this machine, so nobody else has to reach the driver. SPARK_LOCAL_IP,
which spark-submit.sh sets, or PYSPARK_SUBMIT_ARGS may set a different address."""

S3_LOG_STORE: Mapping[str, str] = {"spark.delta.logStore.s3a.impl": "ConditionalS3LogStore"}
"""Delta's commits on S3 by ConditionalS3LogStore.java, if `make setup` has compiled it; spark-submit.sh sets the same.
PYSPARK_SUBMIT_ARGS may set a different one."""

FEW_ROWS: Mapping[str, tuple[str, str]] = {
    "spark.sql.codegen.wholeStage": ("true", "false"),
    "spark.sql.codegen.factoryMode": ("FALLBACK", "NO_CODEGEN"),
    "spark.sql.adaptive.enabled": ("true", "false"),
    "spark.sql.shuffle.partitions": (DEFAULTS["spark.sql.shuffle.partitions"], "1"),
    "spark.databricks.delta.snapshotPartitions": (DEFAULTS["spark.databricks.delta.snapshotPartitions"], "1"),
}
"""Setting -> its default, and the better value for queries with few rows, which take longer to compile than to run."""


def get_session(name: str, *, verbose: bool = False, remote: str | None = None) -> SparkSession:
    """Get this process's session, or create it with Delta's jars (`jars.session_jars`).

    `remote`: the server of Spark Connect in the settings, unless the environment names one. Raises TopicLedgerError if
    Spark is too old, if Delta's jars are missing or for another version of Spark, or if Java doesn't start.
    """
    print_sparks_errors(verbose)
    builder = SparkSession.builder.appName(f"topicledger {name}")
    if (warning := jars.require_spark()) is not None:
        log.warning("%s", warning)
    if is_given():
        # spark-submit, or the platform, has chosen the master, the jars and the Java options.
        return builder.getOrCreate()
    server = os.environ.get(REMOTE) or remote
    if server is not None:
        return _client_of(server, builder)
    jars.require_home()
    master = os.environ.get("SPARK_MASTER", "local[*]")
    # Executors on other machines don't have the class.
    files = jars.local_files() if is_local(master) else None
    own_jars = jars.session_jars()
    if (warning := jars.untested_delta()) is not None:
        log.warning("%s", warning)
    ours = {
        **DEFAULTS,
        **_java(name),
        **(LOCAL_FILES if files else {}),
        **(_unless_named(LOOPBACK) if is_local(master) and "SPARK_LOCAL_IP" not in os.environ else {}),
        **(_unless_named(S3_LOG_STORE) if "spark.jars" in own_jars and jars.log_store() else {}),
        **_warehouse(),
        **own_jars,
    }
    builder = builder.master(master)
    for key, value in ours.items():
        builder = builder.config(key, value)
    started = _started_with_output_in(None if verbose else log_folder())
    try:
        with started, workers_python(), _behind_sparks_jars(files), _outliving_sigterm():
            return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        where = "above" if verbose else f"in {log_folder() / 'spark.log'}"
        raise TopicLedgerError(
            f"Java did not start, or ended at once; what it printed is {where}. Spark needs Java 17 or newer, in "
            "JAVA_HOME or on PATH"
        ) from None


def is_given() -> bool:
    """Whether spark-submit or a platform gave this process its session."""
    return any(name in os.environ for name in _GIVEN)


def print_sparks_errors(wanted: bool) -> None:
    """Let PySpark print each error of a query, with Java's stack trace, or leave that to whoever catches it."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.WARNING if wanted else logging.CRITICAL)


def _client_of(server: str, builder: SparkSession.Builder) -> SparkSession:
    """Return a session of a Spark Connect server, which has chosen everything else.

    Raises TopicLedgerError if the client's packages are missing or the server can't be reached.
    """
    # A token may follow the address, and errors may quote it.
    where, _, parameters = server.partition(";")
    try:
        if parameters and not urlsplit(where).path:
            raise ValueError("a slash is missing before the first semicolon")
        _require_answer(where)
        session = builder.remote(server).getOrCreate()
        version = session.version
    except ImportError as error:
        raise TopicLedgerError(
            f"the client of Spark Connect lacks a package ({error.name or first_sentence(error)}): pip install "
            f"'pyspark[connect]=={jars.spark_minor()}.*'"
        ) from None
    except Exception as error:
        why = redact(first_sentence(error), _secrets(parameters))
        raise TopicLedgerError(
            f"the Spark Connect server {where} can't be used: {why}: check [spark] remote in the settings or {REMOTE}, "
            "and that it is up"
        ) from None
    if jars.minor(version) != jars.spark_minor():
        log.warning(
            "the server %s has Spark %s, this client %s: untested; pip install 'pyspark[connect]==%s.*'",
            where,
            version,
            jars.spark_minor(),
            jars.minor(version),
        )
    return session


def _secrets(parameters: str) -> Iterator[str]:
    """Yield what follows the address of a server, such as `token=...;user_id=...`, as errors may quote it."""
    for part in (parameters, *parameters.split(";")):
        name, _, value = part.partition("=")
        yield from filter(None, (part, "" if name == "use_ssl" else value))


def _require_answer(address: str) -> None:
    """Raise OSError if nothing listens at the address of a server: its client would try for ten minutes."""
    if any(name in os.environ for name in _PROXIES):
        return
    url = urlsplit(address)
    with socket.create_connection((url.hostname, url.port or _PORT), timeout=_CONNECT_SECONDS):
        pass


def is_local(master: str) -> bool:
    """Whether a master's executors are on the driver's machine; spark-submit.sh decides in the same way."""
    return master.startswith("local")


@contextmanager
def for_few_rows(spark: SparkSession) -> Iterator[Callable[[], None]]:
    """Context in which queries are tuned for few rows (`FEW_ROWS`); yields a function that ends the tuning early.

    Settings that were set to other values than their defaults were chosen on purpose, and stay.
    """
    given = {name: spark.conf.get(name, None) for name in FEW_ROWS}
    ours = {name: value for name, value in given.items() if value in (None, FEW_ROWS[name][0])}

    def for_many() -> None:
        # Two threads may end the tuning at once.
        with suppress(KeyError):
            while True:
                name, value = ours.popitem()
                if value is None:
                    # A server of Spark Connect, or a platform, may have a default of its own.
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, value)

    for name in ours:
        spark.conf.set(name, FEW_ROWS[name][1])
    try:
        yield for_many
    finally:
        for_many()


def log_folder() -> Path:
    """Return the folder of Spark's own log: TOPICLEDGER_LOG_DIR, else the checkout's build/logs, else the user's own
    one in the temporary folder.

    Raises UsageError if another user created that one, who could read the log.
    """
    build = jars.CHECKOUT / "build"
    own = Path(tempfile.gettempdir()) / f"topicledger-{os.getuid()}"
    default = build / "logs" if build.is_dir() else own
    folder = Path(os.environ.get("TOPICLEDGER_LOG_DIR") or default)
    folder.mkdir(mode=0o700 if folder == own else 0o777, parents=True, exist_ok=True)
    if folder == own and folder.lstat().st_uid != os.getuid():
        raise UsageError(f"Spark's log: {folder} belongs to another user. {_INSTEAD}")
    return folder


@cache
def _warehouse() -> Mapping[str, str]:
    """Place of Spark's own catalog, which Spark makes in the working folder by default; a metastore has its own."""
    if _METASTORE in jars.spark_settings():
        return {}
    folder = tempfile.mkdtemp(prefix="topicledger-warehouse-")
    _warehouses.append(folder)
    return _unless_named({"spark.sql.warehouse.dir": Path(folder).as_uri()})


_warehouses: list[str] = []
"""The folder of Spark's own catalog in this process, if it has made one."""


@atexit.register
def remove_warehouse() -> None:
    """Remove the folder of Spark's own catalog: for a process that ends without Python's own end."""
    while _warehouses:
        shutil.rmtree(_warehouses.pop(), ignore_errors=True)


_INSTEAD = "Set TOPICLEDGER_LOG_DIR to a folder of your own"


def open_log(folder: Path) -> int:
    """Open `spark.log` in a folder to append to it, and return its file descriptor.

    Raises UsageError if it can't be opened, or if somebody else may have put it there: a link, no regular file, or a
    file of another user unless that user owns the folder and nobody else may write to it.
    """
    path = folder / "spark.log"
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        number = os.open(path, flags, 0o600)
    except OSError as error:
        reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise UsageError(f"Spark's log {path} can't be opened: {reason}. {_INSTEAD}") from error
    file, around = os.fstat(number), folder.stat()
    owners = {os.getuid(), *(() if around.st_mode & stat.S_IWOTH else (around.st_uid,))}
    if not stat.S_ISREG(file.st_mode) or file.st_nlink != 1 or file.st_uid not in owners:
        os.close(number)
        raise UsageError(f"Spark's log {path} is no regular file of this user. {_INSTEAD}")
    return number


@contextmanager
def _started_with_output_in(folder: Path | None) -> Iterator[None]:
    """Context in which new processes write to `spark.log` in `folder`, or to stderr if that is None.

    Stdout is for the command's data. Afterwards this process has its own streams again; a JVM that was
    started keeps its streams.
    """
    log = None if folder is None else open_log(folder)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    kept = [os.dup(1), os.dup(2)]
    try:
        if log is None:
            os.dup2(2, 1)
        else:
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
        yield
    finally:
        for number, before in enumerate(kept, start=1):
            os.dup2(before, number)
            os.close(before)


_java_starts = threading.Event()


def _ignore_sigterm() -> None:
    if _java_starts.is_set():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


# Called between fork and exec of a process whose starter runs code there, as PySpark does to ignore Ctrl-C in Java.
os.register_at_fork(after_in_child=_ignore_sigterm)


@contextmanager
def _outliving_sigterm() -> Iterator[None]:
    """Context in which a Java that is started ignores SIGTERM, which `timeout` or systemd may send to all processes.

    A run that is asked to stop needs it to record the batches under way. It ends when this process does.
    """
    _java_starts.set()
    try:
        yield
    finally:
        _java_starts.clear()


@contextmanager
def _behind_sparks_jars(jar: Path | None) -> Iterator[None]:
    """Context in which a new session has the jar on Java's class path, after Spark's: else the archive isn't used."""
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
    """Context in which a new session starts workers with this Python, as spark-submit.sh does; PYSPARK_PYTHON wins."""
    if "PYSPARK_PYTHON" in os.environ:
        yield
        return
    script = jars.CHECKOUT / "scripts" / "python.sh"
    before = os.environ.get("TOPICLEDGER_PYTHON")
    os.environ["PYSPARK_PYTHON"] = str(script) if script.exists() else sys.executable
    os.environ["TOPICLEDGER_PYTHON"] = sys.executable
    try:
        yield
    finally:
        # For this session's workers only: processes that this process starts have their own.
        del os.environ["PYSPARK_PYTHON"], os.environ["TOPICLEDGER_PYTHON"]
        if before is not None:
            os.environ["TOPICLEDGER_PYTHON"] = before


def _java(name: str) -> Mapping[str, str]:
    """Java options, with the archive of classes that `make setup` has parsed and checked."""
    archive = jars.CHECKOUT / "build" / "classes" / "spark.jsa"
    shared = f" '-XX:SharedArchiveFile={archive}' -Xshare:auto -Xlog:cds=off" if archive.exists() else ""
    return {"spark.driver.extraJavaOptions": ("" if name == SERVE else BY_HAND_JAVA_OPTIONS) + shared}


def _unless_named(settings: Mapping[str, str]) -> Mapping[str, str]:
    """Settings that Spark isn't started with anyway."""
    given = jars.spark_settings()
    return {key: value for key, value in settings.items() if key not in given}
