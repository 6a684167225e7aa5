"""Logging to stderr, as text or as one JSON object a line; control characters from outside can't act."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal

from topicledger.hints import printable


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class _Json(logging.Formatter):
    def __init__(self, run_id: str | None) -> None:
        super().__init__()
        self._run_id = run_id

    def format(self, record: logging.LogRecord) -> str:
        content = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "run_id": self._run_id,
            "message": record.getMessage(),
        }
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        return json.dumps(content)


def set_up(form: Literal["text", "json"], *, verbose: bool, run_id: str | None = None) -> None:
    """Send the package's log to stderr: warnings and above, with `verbose` what it does as well."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(run_id) if form == "json" else _Text("%(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("topicledger")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
