"""Logging to stderr, as text or as one JSON object per line; control characters are escaped."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

from topicledger.text import json_value, printable

_about: ContextVar[tuple[str | None, int | None, int | None]] = ContextVar("_about", default=(None, None, None))


@contextmanager
def about(*, cluster: str | None = None, batch: int | None = None, attempt: int | None = None) -> Iterator[None]:
    """Add a cluster, batch or attempt to this thread's log lines within a context; others keep their value."""
    before = _about.get()
    given = (cluster, batch, attempt)
    _about.set(tuple(new if new is not None else old for new, old in zip(given, before, strict=True)))  # type: ignore[arg-type]
    try:
        yield
    finally:
        _about.set(before)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class _Json(logging.Formatter):
    def __init__(self, run_id: str | None) -> None:
        super().__init__()
        self._run_id = run_id

    def format(self, record: logging.LogRecord) -> str:
        cluster, batch, attempt = _about.get()
        content = {
            "time": json_value(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname,
            "logger": record.name,
            "run_id": self._run_id,
            "cluster": cluster,
            "batch": batch,
            "attempt": attempt,
            "message": record.getMessage(),
        }
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        return json.dumps(content)


def _not_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"


def set_up(form: Literal["text", "json"], *, verbose: bool, run_id: str | None = None) -> None:
    """Send the package's log to stderr: warnings and above, and with `verbose` also info."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(run_id) if form == "json" else _Text("%(levelname)s %(name)s: %(message)s"))
    if not verbose:
        # Py4J logs each exception that it passes on, with its stack trace, partly as root; the catcher reports it.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        logging.getLogger().addFilter(_not_py4j)
    logger = logging.getLogger("topicledger")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(logging.INFO if verbose else logging.WARNING)


@contextmanager
def kept() -> Iterator[None]:
    """Context after which the log is set up as before it, for a process that runs one command after another."""
    logger, py4j, root = (logging.getLogger(name) for name in ("topicledger", "py4j", None))
    handlers, propagate, level = logger.handlers, logger.propagate, logger.level
    filtered, its_level = _not_py4j in root.filters, py4j.level
    try:
        yield
    finally:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)
        py4j.setLevel(its_level)
        if not filtered:
            root.removeFilter(_not_py4j)
