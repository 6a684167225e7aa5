"""Who holds a lease, and the clocks that show it how long the lease still holds."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path


def _elapsed() -> float:
    """Seconds since some moment, those included in which the machine slept: Linux's monotonic clock stops then."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@dataclass(frozen=True, kw_only=True)
class Clocks:
    """The clocks that show a holder how long its lease still holds: the one that says less counts."""

    elapsed: Callable[[], float] = _elapsed
    """Seconds; nobody sets it."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    """The clock that other drivers go by; it may be set."""


CLOCKS = Clocks()
"""This machine's."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Who holds a lease, or wants one."""

    run_id: str
    host: str
    process: str
    """Boot id, pid namespace, pid, start time, token: together they are different for every start.

    Older versions wrote no token.
    """

    @classmethod
    def here(cls, run_id: str) -> Holder:
        """A start of a run in this process, another one each time."""
        words = (*machine(), *process_of(os.getpid()), secrets.token_hex(4))
        return cls(run_id=run_id, host=socket.gethostname(), process=" ".join(words))

    def is_dead(self) -> bool:
        """Whether it is known to have ended: a process of this host that isn't there any more."""
        boot, namespace, pid, started = self.process.split(" ")[:4]
        if self.host != socket.gethostname() or (boot, namespace) != machine():
            return False
        return process_of(int(pid)) != (pid, started)


def machine() -> tuple[str, str]:
    """What pids count in: the boot, and the pid namespace (containers of one host may share its name)."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return boot, str(Path("/proc/self/ns/pid").readlink())
    except OSError:  # not Linux: then nobody is known to have ended
        return "unknown", str(os.getpid())


def process_of(pid: int) -> tuple[str, str]:
    """A process's pid, and its start in clock ticks since the boot; `gone` where it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return str(pid), "gone"
    return str(pid), "gone" if stat[0] in "ZX" else stat[19]
