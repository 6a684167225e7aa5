"""What a command came to, as a file for the textfile collector of Prometheus' node exporter.

Names and labels are stable: docs/operations.md lists them. One file a command, since each writes its file whole.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from topicledger import __version__
from topicledger.apply.progress import Progress
from topicledger.errors import ExitCode

_SUCCESS = "topicledger_last_success_timestamp_seconds"
_HELP: Mapping[str, str] = {
    "topicledger_info": "The version that ran.",
    "topicledger_last_run_timestamp_seconds": "When the command last ended.",
    _SUCCESS: "When it last ended with exit code 0 or 3.",
    "topicledger_exit_code": "Its exit code.",
    "topicledger_duration_seconds": "How long it took, once Python was there.",
    "topicledger_phase_duration_seconds": "How long each phase of it took.",
    "topicledger_quota_wait_seconds": "How long it waited for a cluster's quota (KIP-599).",
    "topicledger_topics": "Topics of a run by the outcome of their last phase.",
    "topicledger_topics_left_alone": "Topics of a run that no action was planned for.",
    "topicledger_drift": "Differences that an audit found.",
    "topicledger_manifests": "Rows of manifests that a load came across.",
}
SUCCESSES = (ExitCode.DONE, ExitCode.CHANGES_PENDING)
"""Exit codes after which a command has done all that it was asked to."""


@dataclass
class Metrics:
    """Collects the metrics of one command."""

    clock: Callable[[], float] = time.time
    """Seconds since 1970."""
    progress: Progress | None = None
    """Where the durations of phases and the waits for quotas are counted."""
    _samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._started = self.clock()

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set one value; `name` is one of the documented metrics."""
        if name not in _HELP:
            raise ValueError(f"no metric {name}")
        self._samples.setdefault(name, {})[tuple(labels.items())] = value

    def write(self, path: Path, command: str, exit_code: int) -> None:
        """Replace the file; where this command failed, the time of the last success is kept. Raises OSError."""
        now = self.clock()
        self.set("topicledger_info", 1, version=__version__)
        self.set("topicledger_last_run_timestamp_seconds", now)
        self.set("topicledger_exit_code", exit_code)
        self.set("topicledger_duration_seconds", now - self._started)
        succeeded = now if exit_code in SUCCESSES else _last_success(path, command)
        if succeeded is not None:
            self.set(_SUCCESS, succeeded)
        if self.progress is not None:
            for phase, seconds in self.progress.took.items():
                self.set("topicledger_phase_duration_seconds", seconds, phase=phase)
            for cluster, seconds in self.progress.waited.items():
                self.set("topicledger_quota_wait_seconds", seconds, cluster=cluster)
        temporary = path.with_name(path.name + ".part")
        temporary.write_text(self._rendered(command), encoding="utf-8")
        temporary.replace(path)

    def _rendered(self, command: str) -> str:
        lines = []
        for name, text in _HELP.items():
            samples = self._samples.get(name)
            if samples:
                lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
                lines += [f"{name}{_labels(command, labels)} {value:.17g}" for labels, value in samples.items()]
        return "\n".join([*lines, ""])


def _labels(command: str, labels: tuple[tuple[str, str], ...]) -> str:
    given = [("command", command), *labels]
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in given) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _last_success(path: Path, command: str) -> float | None:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    found = re.search(rf"^{_SUCCESS}{re.escape(_labels(command, ()))} ([0-9.e+-]+)$", text, re.MULTILINE)
    return float(found[1]) if found else None
