"""A server's health for whoever watches it: a file that it keeps writing, and the memory that it has."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from topicledger import __version__
from topicledger.model import FORMAT_VERSION

_PROC = Path("/proc")
_EVERY_SECONDS = 5.0
"""How often the file is written while the server waits."""


@dataclass
class Health:
    """What a server says of itself, in a file where one is wanted."""

    path: Path | None
    _facts: dict[str, object] = field(default_factory=dict)
    _written: float = 0.0

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

    def _write(self, **facts: object) -> None:
        self._facts |= facts
        self._written = time.monotonic()
        if self.path is not None:
            temporary = self.path.with_name(self.path.name + ".part")
            temporary.write_text(json.dumps({**self._facts, "at": _now()}) + "\n", encoding="utf-8")
            temporary.replace(self.path)


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
