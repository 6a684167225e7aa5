"""A server's health for monitoring: a file that it writes regularly, and its memory."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from topicledger import __version__, atomic
from topicledger.text import FORMAT_VERSION, iso_time

log = logging.getLogger(__name__)

STARTING = "serve"
"""The value of `doing` until a server can run commands."""
_PROC = Path("/proc")
_EVERY_SECONDS = 5.0
"""Interval at which the file is written while the server waits."""


@dataclass
class Health:
    """A server's state, written to a file if there is a path."""

    path: Path | None
    _facts: dict[str, object] = field(default_factory=dict)
    _written: float = 0.0
    _failing: bool = False

    def __post_init__(self) -> None:
        # Commands run in their clients' folders.
        self.path = None if self.path is None else self.path.absolute()
        self._facts = {
            "format_version": FORMAT_VERSION,
            "version": __version__,
            "pid": os.getpid(),
            "started_at": _now(),
            "commands": 0,
            "doing": None,
            "last_exit_code": None,
        }

    @contextmanager
    def during(self, arguments: Sequence[str]) -> Iterator[list[int]]:
        """Report a command while it runs; the caller appends its exit code to the list that this yields."""
        code: list[int] = []
        self._write(doing=next((each for each in arguments if not each.startswith("-")), ""), since=_now())
        try:
            yield code
        finally:
            commands = int(str(self._facts["commands"])) + 1
            self._write(doing=None, since=_now(), commands=commands, last_exit_code=code[0] if code else None)

    def waiting(self) -> None:
        """Report regularly that the server is idle and answers."""
        if time.monotonic() - self._written >= _EVERY_SECONDS:
            self._write()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the file for the lifetime of the server, and remove it at the end."""
        self._write(doing=STARTING, since=_now())
        try:
            yield
        finally:
            if self.path is not None:
                with suppress(OSError):
                    self.path.unlink(missing_ok=True)

    def ready(self) -> None:
        """Report that the server has started and waits for commands."""
        self._write(doing=None, since=_now())

    def _write(self, **facts: object) -> None:
        self._facts |= facts
        self._written = time.monotonic()
        if self.path is None:
            return
        try:
            atomic.write(self.path, [json.dumps({**self._facts, "at": _now()}), "\n"])
        except OSError as error:
            # A full disk is no reason to stop; monitoring sees that the file is old.
            if not self._failing:
                log.warning("can't write the health file %s: %s", self.path, error.strerror)
            self._failing = True
        else:
            self._failing = False


def _now() -> str:
    return iso_time(datetime.now(UTC))


def memory_bytes() -> int:
    """Return the resident memory of this process and its descendants, Java and Python workers; 0 without /proc."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.glob("[0-9]*"):
        stat = _read(entry / "stat").rpartition(")")[2].split()
        if stat:
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    family = [os.getpid()]
    for pid in family:
        family += children.get(pid, [])
    pages = sum(int((_read(_PROC / str(pid) / "statm").split() or ["0", "0"])[1]) for pid in family)
    return pages * os.sysconf("SC_PAGE_SIZE")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # the process has ended, or there is no /proc
        return ""
