"""Drivers that are killed at an event, and chains of starts that finish one run."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from tests import commands
from tests.fault import told
from tests.fault.proxy import (
    ALTER_CLIENT_QUOTAS,
    ALTER_CONFIGS,
    CREATE_ACLS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_ACLS,
    DELETE_TOPICS,
    ELECT_LEADERS,
    REASSIGN,
    FaultProxy,
    Frame,
)
from tests.fault.told import Fault
from tests.processes import kill_all
from topicledger.schemas import (
    AUDIT,
    CLUSTERS,
    LEASES,
    OBSERVED,
    OBSERVED_ACLS,
    OBSERVED_QUOTAS,
    PLANS,
    RUNS,
    SENT_BATCHES,
    THROTTLES,
)

CHANGES = {
    CREATE_TOPICS: "create",
    DELETE_TOPICS: "delete",
    CREATE_PARTITIONS: "grow",
    ALTER_CONFIGS: "alter",
    CREATE_ACLS: "add ACLs",
    DELETE_ACLS: "delete ACLs",
    ALTER_CLIENT_QUOTAS: "alter quotas",
    REASSIGN: "reassign",
    ELECT_LEADERS: "elect",
}
"""The requests that change something."""


WATCHED = (RUNS, CLUSTERS, OBSERVED, OBSERVED_ACLS, OBSERVED_QUOTAS, PLANS, SENT_BATCHES, AUDIT, LEASES, THROTTLES)


class Doomed:
    """A submitted job that is killed with all its processes at its n-th event, or at the first event of a name."""

    def __init__(
        self,
        config: Path,
        run_id: str,
        kill_at: int | str,
        committed: Callable[[], set[tuple[str, str]]],
        job: str = "provision",
        options: tuple[str, ...] = (),
        **more: str,
    ) -> None:
        """`committed` returns the commits so far, table and file; `more` is the job's environment."""
        self.events: list[str] = []
        self.killed_at: str | None = None
        self._kill_at = kill_at
        self._committed = committed
        self._commits = committed()
        self._lock = threading.Lock()
        arguments = [str(commands.SUBMIT), f"jobs/{job}.py", "--config", str(config), "--run-id", run_id, *options]
        self.process = subprocess.Popen(
            arguments,
            cwd=commands.REPOSITORY,
            env=commands.environment(**more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def on_frame(self, frame: Frame) -> None:
        """Handle a frame before the proxy passes it on."""
        validate = " validateOnly" if frame.validate_only else ""
        self._happened(f"{CHANGES[frame.api_key]}{validate} {frame.direction}")

    def wait(self) -> int | None:
        """Wait until the job was killed (None) or has ended (its exit code); watch the ledger in the meantime."""
        output: list[str] = []
        assert self.process.stdout is not None
        reader = threading.Thread(target=lambda: output.append(self.process.stdout.read()), daemon=True)  # type: ignore[union-attr]
        reader.start()
        while self.process.poll() is None:
            for commit in sorted(self._committed() - self._commits):
                self._commits.add(commit)
                self._happened(f"commit to {commit[0]}")
            time.sleep(0.005)
        reader.join()
        if self.killed_at is not None:
            return None
        assert self.process.returncode in (0, 4, 5), f"exit {self.process.returncode}: {output}"
        return self.process.returncode

    def wait_behind(self, proxy: FaultProxy) -> int | None:
        """Wait as `wait` does, while the proxy reports requests and responses."""

        def hook(frame: Frame) -> None:
            self.on_frame(frame)

        for api_key in CHANGES:
            for direction in ("request", "response"):
                proxy.on(api_key, direction, times=None, do=hook)  # type: ignore[arg-type]
        code = self.wait()
        proxy.clear()
        return code

    def _happened(self, event: str) -> None:
        with self._lock:
            if self.killed_at is not None:
                return
            self.events.append(event)
            if self._kill_at in (event, len(self.events)):
                self.killed_at = event
                kill_all(self.process.pid)


def committed(root: Path) -> set[tuple[str, str]]:
    """Return the commits to tables on this machine."""
    logs = ((table.name, root / table.name / "_delta_log") for table in WATCHED)
    return {(name, each.name) for name, log in logs if log.is_dir() for each in log.glob("*.json")}


def chain(
    proxy: FaultProxy,
    config: Path,
    root: Path,
    run_id: str,
    fault: Fault,
    kill_points: Iterator[int | str],
    job: str = "provision",
) -> Sequence[str]:
    """Start a run until it finishes, and kill each start at the next of `kill_points`. Return the actual points."""
    killed: list[str] = []
    while True:
        doomed = Doomed(config, run_id, next(kill_points), partial(committed, root), job)
        code = doomed.wait_behind(proxy)
        if killed:
            fault.resumed += 1
        if code is not None:
            assert code == 0
            return killed
        killed.append(str(doomed.killed_at))
        fault.tried += 1
        fault.doubled += told.doubled(root, run_id)


def every(first: int, step: int, most: int) -> Iterator[int]:
    """Yield later and later kill points; after `most` kills, the next start isn't killed."""
    yield from (first + step * number for number in range(most))
    while True:
        yield 10**9
