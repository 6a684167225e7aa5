"""A server's health for whoever watches it: a file that it keeps writing, and the memory that it has."""

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

from topicledger import __version__
from topicledger.model import FORMAT_VERSION

log = logging.getLogger(__name__)

STARTING = "serve"
"""What a server does until it can do commands."""
_PROC = Path("/proc")
_EVERY_SECONDS = 5.0
"""How often the file is written while the server waits."""


@dataclass
class Health:
    """What a server says of itself, in a file where one is wanted."""

    path: Path | None
    _facts: dict[str, object] = field(default_factory=dict)
    _written: float = 0.0
    _failing: bool = False

    def __post_init__(self) -> None:
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
        """A context in which the server does a command; its exit code goes into the list that this yields."""
        code: list[int] = []
        self._write(doing=next((each for each in arguments if not each.startswith("-")), ""), since=_now())
        try:
            yield code
        finally:
            commands = int(str(self._facts["commands"])) + 1
            self._write(doing=None, since=_now(), commands=commands, last_exit_code=code[0] if code else None)

    def waiting(self) -> None:
        """The server has nothing to do, and answers."""
        if time.monotonic() - self._written >= _EVERY_SECONDS:
            self._write()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """A context in which the file is there, from a server's start to its end; it does not outlive the server."""
        self._write(doing=STARTING, since=_now())
        try:
            yield
        finally:
            if self.path is not None:
                with suppress(OSError):
                    self.path.unlink(missing_ok=True)

    def ready(self) -> None:
        """The server has started, and waits for commands."""
        self._write(doing=None, since=_now())

    def _write(self, **facts: object) -> None:
        self._facts |= facts
        self._written = time.monotonic()
        if self.path is None:
            return
        temporary = self.path.with_name(self.path.name + ".part")
        try:
            temporary.write_text(json.dumps({**self._facts, "at": _now()}) + "\n", encoding="utf-8")
            temporary.replace(self.path)
        except OSError as error:
            # A full disk is no reason to stop; whoever watches sees that the file is old.
            if not self._failing:
                log.warning("can't write the health file %s: %s", self.path, error.strerror)
            self._failing = True
        else:
            self._failing = False


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def memory_bytes() -> int:
    """What this process and its descendants, Java and Python's workers, have in memory; 0 without /proc."""
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
    except OSError:  # it has ended, or there is no /proc
        return ""
