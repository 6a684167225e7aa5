"""The holder of a lease, and the clocks by which it knows how long the lease is still valid.

`leases` takes leases and renews them.
"""

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
    """Seconds since some moment, including sleep of the machine, during which Linux's monotonic clock stops."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@dataclass(frozen=True, kw_only=True)
class Clocks:
    """The clocks by which a holder knows how long its lease is still valid: the lower value counts."""

    elapsed: Callable[[], float] = _elapsed
    """Seconds, of a clock that can't be set."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    """The clock that other drivers use; it can be set."""


CLOCKS = Clocks()
"""This machine's clocks."""


_ENDED = "ended"
"""Stands for the start of a process that is done with a cluster, but not all of whose requests are."""
_GONE = "gone"
"""Stands for the start of a process that has ended."""
_UNSEEN = "unseen"
"""Stands for the start of a process that may be alive: /proc can't be read, or hides processes of other users."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A process that holds a lease or wants one."""

    run_id: str
    host: str
    process: str
    """Boot id, pid namespace, pid, start time, token: unique for every start.

    Older versions wrote no token.
    """

    @classmethod
    def here(cls, run_id: str) -> Holder:
        """Create the holder of a run's start in this process; each call returns a different one."""
        words = (*machine(), *process_of(os.getpid()), secrets.token_hex(4))
        return cls(run_id=run_id, host=socket.gethostname(), process=" ".join(words))

    @property
    def ended(self) -> str:
        """Return `process` for a lease that this holder leaves to expire: until then, nobody may take it."""
        boot, namespace, pid, _, *token = self.process.split(" ")
        return " ".join((boot, namespace, pid, _ENDED, *token))

    def is_dead(self) -> bool:
        """Whether it is known to have ended: a process of this host that no longer exists."""
        boot, namespace, pid, started = self.process.split(" ")[:4]
        if started in (_ENDED, _UNSEEN) or self.host != socket.gethostname() or (boot, namespace) != machine():
            return False
        return process_of(int(pid))[1] not in (started, _UNSEEN)


def machine() -> tuple[str, str]:
    """The scope of pids: the boot, and the pid namespace (containers of one host may share its name)."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return boot, str(Path("/proc/self/ns/pid").readlink())
    except OSError:  # not Linux: then no process is known to have ended
        return "unknown", str(os.getpid())


def process_of(pid: int) -> tuple[str, str]:
    """A process's pid, and its start in clock ticks since the boot, or `gone` or `unseen`."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        # With hidepid=2, or ProtectProc=invisible of systemd, processes of others look the same: so does the first one.
        return str(pid), _GONE if Path("/proc/1").exists() else _UNSEEN
    except OSError:
        return str(pid), _UNSEEN
    return str(pid), _GONE if stat[0] in "ZX" else stat[19]
