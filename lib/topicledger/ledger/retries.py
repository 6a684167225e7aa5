"""Retries of writes that conflicted with another writer's commit, or failed because of the storage.

Failures are classified by Delta's error conditions, and by the Java exception classes in the stack trace.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

from pyspark.errors import PySparkException

from topicledger.errors import TableError
from topicledger.ledger.jars import explained

try:
    from py4j.protocol import Py4JError, Py4JNetworkError
except ImportError:
    # A client of Spark Connect has no Java.
    SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException,)
    JAVA_IS_GONE: tuple[type[Exception], ...] = ()
else:
    SPARK_ERRORS = (PySparkException, Py4JError)
    """Spark's errors, and those of the connection to Java."""
    JAVA_IS_GONE = (Py4JNetworkError,)
    """Errors of every call after Spark's Java process has ended."""

log = logging.getLogger(__name__)

_T = TypeVar("_T")


class Trouble(StrEnum):
    """Reason why a write may succeed when it is retried."""

    CONFLICT = "another writer was faster"
    STORAGE = "the storage failed"


SECONDS = {Trouble.CONFLICT: 120.0, Trouble.STORAGE: 30.0}
"""How long writes are retried for each reason, from its first failure."""
_LEAST_TRIES = 5
"""Fewest tries, however long they take: on a busy machine or a slow storage, one may take a minute."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0

_DELTA = re.compile(r"(?:io\.delta\.exceptions|org\.apache\.spark\.sql\.delta|delta\.exceptions)\.(?:\w+\.)*(\w+)")
_CONFLICTS = {
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "DeltaConcurrentModificationException",
    "MetadataChangedException",
    "ProtocolChangedException",
}
_CONFLICT_CONDITION = re.compile(r"\[DELTA_(?:CONCURRENT_[A-Z_]+|METADATA_CHANGED|PROTOCOL_CHANGED)(?:\.[A-Z_]+)?\]")
"""Conflicts by message: through Spark Connect, an exception has no Java class."""
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+)(?:\.[A-Z0-9_]+)*\]")
"""An error's condition, with which its message begins in every kind of session."""
_OTHER_MAINTENANCE = "[DELTA_CANNOT_MODIFY_APPEND_ONLY]"
"""The condition if two processes delete from an append-only table at once, and one has locked it again."""

_CLASS = re.compile(r"^(?:Caused by: )?((?:\w+\.)+[A-Z][\w$]*)(?:: (.*))?$", re.MULTILINE)
_TRANSIENT = re.compile(
    r"\w*(?:IOException|TimeoutException|TimedOutException|ServiceThrottledException|SdkClientException"
    r"|AWSStatus50\dException|AbfsRestOperationException|GoogleJsonResponseException)"
    r"|(?:Socket|Connect|NoRouteToHost|UnknownHost|NoHttpResponse|SSL|EOF|FileNotFound|NoSuchFile|FileSystem)"
    r"Exception"
)
_PERMANENT = re.compile(
    r"\w*(?:AccessDenied|AccessControl|NoAuthWithAWS|CredentialInitialization|UnknownStore|AWSBadRequest"
    r"|DiskOutOfSpace|InvalidPath|QuotaExceeded)Exception"
)
_NO_LOG = "[DELTA_CANNOT_CREATE_LOG_PATH]"
"""The condition if the folder of a table can't be created: the storage refused it, without an exception."""
# Java has no class for these: a plain IOException has the system's message.
_PERMANENT_TEXT = re.compile(
    "No space left on device|[Qq]uota exceeded|Read-only file system|Permission denied|Mkdirs failed"
)


def trouble(error: BaseException | None) -> Trouble | None:
    """The reason why a retry may succeed; None if it won't."""
    if not isinstance(error, SPARK_ERRORS):
        return None
    names = [f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__]
    thrown = [(found[1], found[2] or "") for found in _CLASS.finditer(_stack_trace(error))]
    names += [name for name, _ in thrown]
    if any((found := _DELTA.fullmatch(name)) and found[1] in _CONFLICTS for name in names):
        return Trouble.CONFLICT
    if _CONFLICT_CONDITION.search(str(error)) or _OTHER_MAINTENANCE in str(error):
        return Trouble.CONFLICT
    if _NO_LOG in str(error):
        return None
    simple = [(re.split(r"[.$]", name)[-1], message) for name, message in thrown]
    if any(_PERMANENT.fullmatch(name) or _PERMANENT_TEXT.search(message) for name, message in simple):
        return None
    return Trouble.STORAGE if any(_TRANSIENT.fullmatch(name) for name, _ in simple) else None


def condition(error: BaseException) -> str | None:
    """The name of an error's condition without its subclass, such as DELTA_TABLE_NOT_FOUND; None if it has none."""
    found = _CONDITION.match(str(error))
    return found[1] if found else None


def _stack_trace(error: BaseException) -> str:
    """The Java stack trace, with each exception of the chain at the start of a line."""
    trace = getattr(error, "_stackTrace", None) or str(error)
    return re.sub(r"^: ", "", trace, flags=re.MULTILINE)


def retried(what: str, write: Callable[[], _T], *, done: Callable[[], _T | None] = lambda: None) -> _T:
    """Call `write`, with retries and pauses, for the `SECONDS` of the trouble and at least five times.

    A failed write may have succeeded if only its response was lost. So a second write must change nothing, or `done`
    must detect it: it is called before each retry, and its result is returned unless it is None. Raises TableError,
    which begins with `what` and says how long it was tried.
    """
    since: dict[Trouble, float] = {}
    attempt = 0
    while True:
        attempt += 1
        try:
            result = done() if attempt > 1 else None
            return write() if result is None else result
        except SPARK_ERRORS as error:
            why, sentence = trouble(error), first_sentence(error)
            if why is None:
                raise TableError(f"{what}: {sentence}") from error
            tried = time.monotonic() - since.setdefault(why, time.monotonic())
            if tried >= SECONDS[why] and attempt >= _LEAST_TRIES:
                raise TableError(f"{what}: {sentence}; tried {attempt} times in {tried:.0f} s") from error
            log.info("%s, try %d: %s: %s", what, attempt, why, sentence)
        time.sleep(random.uniform(0.5, 1.0) * min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(attempt, 10)))


_CAUSE = re.compile(r"^\s*Caused by: (?:[a-z]\w*\.)+[A-Z]\w*: (.+)$", re.MULTILINE)
_EXPLAINED_BY_THEIR_CAUSE = ("[TASK_WRITE_FAILED]", "[FAILED_READ_FILE", "Job aborted")
"""Prefixes of messages that say where something failed, but not why."""


def first_sentence(error: Exception) -> str:
    """The first line that is meaningful to a user, without Java class names and stack trace."""
    text = str(error)
    if (why := explained(text)) is not None:
        return why
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not isinstance(error, PySparkException):
        lines = [line.removeprefix(": ") for line in lines if not line.startswith("An error occurred while calling")]
    first = lines[0] if lines else type(error).__name__
    message = re.sub(r"^(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ", "", first).split(" SQLSTATE")[0]
    causes = (
        _CAUSE.findall(getattr(error, "_stackTrace", None) or text)
        if message.startswith(_EXPLAINED_BY_THEIR_CAUSE)
        else []
    )
    return f"{message} {causes[-1].strip()}" if causes else message
