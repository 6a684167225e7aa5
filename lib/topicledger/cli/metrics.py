"""Metrics of a command, as a file for the textfile collector of Prometheus' node exporter.

Names and labels are stable: docs/metrics.md lists them. Each command needs its own file, since it replaces the file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

from topicledger import __version__
from topicledger.apply.progress import Progress
from topicledger.errors import ExitCode

_SUCCESS = "topicledger_last_success_timestamp_seconds"
METRICS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "topicledger_last_run_timestamp_seconds": ("When the command last ended.", ()),
    _SUCCESS: ("When it last ended with exit code 0 or 3; kept while it fails.", ()),
    "topicledger_exit_code": ("Exit code of the last run.", ()),
    "topicledger_duration_seconds": ("How long the last run took, from the start of Python.", ()),
    "topicledger_phase_duration_seconds": ("Duration of each phase that the run reached.", ("phase",)),
    "topicledger_quota_wait_seconds": ("How long the run waited for a cluster's quota (KIP-599).", ("cluster",)),
    "topicledger_topics": ("Topics of a run by the outcome of their last phase.", ("cluster", "outcome")),
    "topicledger_topics_left_alone": (
        "Topics for which a run planned no action: unchanged, drifted or unmanaged.",
        ("decision",),
    ),
    "topicledger_drift": ("Findings of an audit; a kind without findings has no line.", ("cluster", "kind")),
    "topicledger_manifests": ("Rows that a load added, changed, removed or found unchanged.", ("change",)),
    "topicledger_info": ("The version that ran; its value is 1.", ("version",)),
}
"""Each metric's text and labels; all have the label `command` too, with the name by which `runs` knows the command."""
SUCCESSES = (ExitCode.DONE, ExitCode.CHANGES_PENDING)
"""Exit codes of commands that did everything that was requested."""


@dataclass
class Metrics:
    """Collects the metrics of one command."""

    clock: Callable[[], float] = time.time
    """Seconds since 1970."""
    progress: Progress | None = None
    """Counts the durations of phases and the waits for controller mutation quotas."""
    _samples: dict[str, list[tuple[Mapping[str, str], float]]] = field(default_factory=dict)
    _of_others: bool = False

    def __post_init__(self) -> None:
        self._started = self.clock()

    def leave_file(self) -> None:
        """Leave the file to other commands, as `serve --every` does to its runs."""
        self._of_others = True

    def count(self, progress: Progress) -> Progress:
        """Count the durations of phases and the waits for controller mutation quotas that `progress` notes."""
        self.progress = progress
        return progress

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set one value; `name` is one of `METRICS`."""
        if name not in METRICS:
            raise ValueError(f"no metric {name}")
        self._samples.setdefault(name, []).append((labels, value))

    def write(self, path: Path, command: str, exit_code: int) -> None:
        """Replace the file; if this command failed, the time of the last success is kept. Raises OSError."""
        if self._of_others:
            return
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
        registry = CollectorRegistry()
        for name, (text, labels) in METRICS.items():
            if name in self._samples:
                gauge = Gauge(name, text, ("command", *labels), registry=registry)
                for given, value in self._samples[name]:
                    gauge.labels(command=command, **given).set(value)
        write_to_textfile(str(path), registry)


def _last_success(path: Path, command: str) -> float | None:
    try:
        families = list(text_string_to_metric_families(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):  # not there, or not what this wrote
        return None
    samples = (sample for family in families if family.name == _SUCCESS for sample in family.samples)
    return next((sample.value for sample in samples if sample.labels == {"command": command}), None)
