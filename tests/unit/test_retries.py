"""Which failures are retried, and for how long."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from delta.exceptions import ConcurrentAppendException
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException, UnknownException

from topicledger.errors import TableError
from topicledger.ledger import retries
from topicledger.ledger.retries import Trouble, retried, trouble


class Captured(PySparkException):
    """An exception of Java's, as PySpark has it: its message, and the stack trace beside it."""

    def __init__(self, *thrown: str) -> None:
        super().__init__(thrown[0].partition(": ")[2])
        frames = "\n\tat org.apache.spark.sql.Somewhere.else(Somewhere.scala:42)\n"
        self._stackTrace = frames.join((thrown[0], *(f"Caused by: {each}" for each in thrown[1:]))) + frames


SPARK = "org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to s3a://bucket/runs."


@pytest.mark.parametrize(
    ("thrown", "expected"),
    [
        (["io.delta.exceptions.ConcurrentAppendException: [DELTA_CONCURRENT_APPEND]"], Trouble.CONFLICT),
        (["io.delta.exceptions.MetadataChangedException: [DELTA_METADATA_CHANGED]"], Trouble.CONFLICT),
        (["io.delta.exceptions.ProtocolChangedException: [DELTA_PROTOCOL_CHANGED]"], Trouble.CONFLICT),
        ([SPARK, "io.delta.exceptions.ConcurrentDeleteReadException: gone"], Trouble.CONFLICT),
        (
            ["org.apache.spark.sql.delta.DeltaUnsupportedOperationException: [DELTA_CANNOT_MODIFY_APPEND_ONLY] no"],
            Trouble.CONFLICT,
        ),
        (["java.io.IOException: Connection reset by peer"], Trouble.STORAGE),
        ([SPARK, "java.net.SocketTimeoutException: Read timed out"], Trouble.STORAGE),
        ([SPARK, "org.apache.hadoop.fs.s3a.AWSStatus500Exception: put: Internal Error"], Trouble.STORAGE),
        (["org.apache.hadoop.fs.s3a.AWSServiceThrottledException: 503 Slow Down"], Trouble.STORAGE),
        (["java.io.FileNotFoundException: 00000000000000000007.json"], Trouble.STORAGE),
        (["java.util.concurrent.ExecutionException: java.io", "java.nio.file.NoSuchFileException: 7"], Trouble.STORAGE),
        ([SPARK, "java.io.IOException: No space left on device"], None),
        ([SPARK, "java.nio.file.FileSystemException: /x: Read-only file system"], None),
        (["java.io.IOException: [DELTA_CANNOT_CREATE_LOG_PATH] Cannot create file:/ledger/runs/_delta_log"], None),
        (["java.io.IOException: Mkdirs failed to create file:/ledger/runs"], None),
        ([SPARK, "java.nio.file.AccessDeniedException: s3a://bucket/runs: 403 Forbidden"], None),
        (["java.io.IOException: denied", "org.apache.hadoop.security.AccessControlException: no"], None),
        (["java.util.ConcurrentModificationException: mutation occurred during iteration"], None),
        (["org.apache.spark.sql.AnalysisException: [UNRESOLVED_COLUMN] java.io.IOException: is a column"], None),
        (["org.apache.spark.SparkException: Python worker exited unexpectedly"], None),
    ],
    ids=lambda given: given[-1].split(".")[-1] if isinstance(given, list) else str(given),
)
def test_failures_are_classified_by_javas_classes(thrown: list[str], expected: Trouble | None) -> None:
    assert trouble(Captured(*thrown)) is expected
    frames = "\n\tat somewhere\n"
    told = f"An error occurred while calling o7.save.\n: {thrown[0]}{frames}"
    told += "".join(f"Caused by: {each}{frames}" for each in thrown[1:])
    assert trouble(Py4JError(told)) is expected


def test_a_python_class_is_enough_without_a_stack_trace() -> None:
    """Spark Connect gives none."""
    assert trouble(ConcurrentAppendException("conflict")) is Trouble.CONFLICT
    assert trouble(AnalysisException("no such column")) is None
    for condition in ("DELTA_CONCURRENT_APPEND.WITHOUT_HINT", "DELTA_CONCURRENT_TRANSACTION", "DELTA_METADATA_CHANGED"):
        by_message = f"(io.delta.exceptions.SomeException) [{condition}] Transaction conflict detected. SQLSTATE: 2D521"
        assert trouble(UnknownException(by_message)) is Trouble.CONFLICT
    assert trouble(UnknownException("[DELTA_TABLE_NOT_FOUND] no table. SQLSTATE: 42P01")) is None
    assert trouble(KeyboardInterrupt()) is None


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits between the tries, and five of them are all."""
    monkeypatch.setattr(retries, "_FIRST_PAUSE", 0.0)
    for kind in Trouble:
        monkeypatch.setitem(retries.SECONDS, kind, 0.0)


def failing(times: int, error: Exception) -> Callable[[], str]:
    left = [error] * times

    def write() -> str:
        if left:
            raise left.pop()
        return "written"

    return write


CONFLICT = Captured("io.delta.exceptions.ConcurrentAppendException: a concurrent UPDATE\nadded data")


def test_a_write_is_retried_until_it_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "topicledger")
    assert retried("table runs can't be updated", failing(4, CONFLICT)) == "written"
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 4
    assert said[2] == "table runs can't be updated, try 3: another writer was faster: a concurrent UPDATE"


def test_the_final_error_says_how_long_it_was_tried() -> None:
    with pytest.raises(TableError, match=r"^table runs can't be updated: a concurrent UPDATE; tried 5 times in 0 s$"):
        retried("table runs can't be updated", failing(5, CONFLICT))


def test_it_is_tried_for_as_long_as_the_seconds_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of each trouble counts from its first failure: one doesn't use up the time of the other."""
    now = [0.0]
    monkeypatch.setattr(retries.time, "monotonic", lambda: now[0])
    monkeypatch.setitem(retries.SECONDS, Trouble.CONFLICT, 120.0)
    monkeypatch.setitem(retries.SECONDS, Trouble.STORAGE, 30.0)
    hiccup = Captured("java.io.IOException: Connection reset")
    errors = [CONFLICT] * 11 + [hiccup] * 9

    def write() -> str:
        now[0] += 10.0
        raise errors.pop(0)

    with pytest.raises(TableError, match="Connection reset; tried 15 times in 30 s"):
        retried("table runs can't be updated", write)


def test_a_permanent_failure_ends_retries_at_once() -> None:
    full = Captured(SPARK, "java.io.IOException: No space left on device")
    with pytest.raises(TableError, match=r"^table runs can't be written: .* No space left on device$"):
        retried("table runs can't be written", failing(1, full))


def test_a_retry_first_checks_whether_the_last_try_succeeded() -> None:
    lost = failing(1, Captured("java.io.IOException: Connection reset"))
    assert retried("table leases can't be updated", lost, done=lambda: "came through") == "came through"
    assert retried("table leases can't be updated", lost, done=lambda: "never asked") == "written"
