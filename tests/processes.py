"""A process with its descendants: whether they run, and signals to them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path

from benchmarks.measure import family

__all__ = ["command_line", "family", "is_alive", "kill_all", "send"]


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to the processes that still exist."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def kill_all(root: int) -> None:
    """SIGKILL a process and its descendants; all are stopped first, so that none can clean up after another."""
    pids = family(root)
    send(pids, signal.SIGSTOP)
    send(pids, signal.SIGKILL)


def command_line(pid: int) -> str:
    """Return a process's arguments; empty if it has ended."""
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended may wait for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
