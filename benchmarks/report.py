"""What a benchmark hands back, and the report of a run: JSON with every sample, Markdown to read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import Any

GIB = 2**30
_PROCESSES_SHOWN = 6


class Size(StrEnum):
    """How much work the benchmarks do."""

    FULL = "full"
    """As much as what is to be reached speaks of."""
    SMALL = "small"
    """Enough to see that they run; the numbers mean nothing."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One time that a work was done."""

    seconds: float
    others: float
    """Cores that others kept busy meanwhile, on average; how much that slowed the work isn't known."""


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The most memory that a work's processes had at one time, of all its samples; what they share is counted once.

    Spark's driver and, where the master is local, its executors are one Java process; Python is what drives it, and its
    workers. Brokers aren't counted. Processes that several works of a benchmark share keep what an earlier one took.
    """

    java_bytes: int
    python_bytes: int


@dataclass(frozen=True, kw_only=True)
class Series:
    """A work, and how long it took each time."""

    name: str
    what: str
    """In a few words: what was done."""
    samples: Sequence[Sample]
    counts: Mapping[str, int] = field(default_factory=dict)
    """What came out of it, to see that it did the work."""
    memory: Peak | None = None
    """None where nothing ran."""

    @property
    def median(self) -> float:
        return median(sample.seconds for sample in self.samples)


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """Two series' medians compared."""

    of: str
    to: str
    value: float
    reach: float | None = None
    """At most this is wanted; None where it is only printed."""

    @property
    def reached(self) -> bool | None:
        return None if self.reach is None else self.value <= self.reach


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one benchmark measured."""

    work: str
    """In a sentence: on what, and what is compared."""
    series: Sequence[Series]
    ratios: Sequence[Ratio]
    notes: Sequence[str] = ()
    """What the numbers don't show."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """The memory of one process of a benchmark; brokers aren't listed."""

    kind: str
    """`java` or `python`."""
    peak_bytes: int
    """The most that it had in memory at any time (VmHWM)."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The memory of a benchmark's processes."""

    java_heap: str
    """The most that the driver's Java heap may take: spark.driver.memory."""
    processes: Sequence[Process]
    """Those with the largest peaks first."""
    peak_bytes: int
    """The most that all of them had at one time, looked at twice a second; what they share is counted once."""


def as_json(result: Result) -> dict[str, Any]:
    """A result as JSON takes it, with medians and verdicts."""
    return {
        **asdict(result),
        "series": [{**asdict(each), "median": each.median} for each in result.series],
        "ratios": [{**asdict(each), "reached": each.reached} for each in result.ratios],
    }


def write(report: Mapping[str, Any], folder: Path) -> tuple[Path, Path]:
    """Write a report as bench-SIZE.json and bench-SIZE.md; the two paths."""
    folder.mkdir(parents=True, exist_ok=True)
    as_data, to_read = (folder / f"bench-{report['size']}.{ending}" for ending in ("json", "md"))
    as_data.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    to_read.write_text(markdown(report), encoding="utf-8")
    return as_data, to_read


def markdown(report: Mapping[str, Any]) -> str:
    """A report to read."""
    machine = report["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    lines = [
        f"# Benchmarks, size {report['size']}, {report['started_at']}",
        "",
        f"{machine['cores']} cores ({machine['processor']}), {machine['memory_bytes'] / GIB:.1f} GiB of memory, "
        f"{machine['system']}; {versions}.",
    ]
    if report["size"] == Size.SMALL:
        lines += ["", "This size only shows that the benchmarks run: its numbers mean nothing."]
    for name, each in report["benchmarks"].items():
        lines += ["", f"## {name}", "", each["work"], "", *_ratios(each), "", *_series(each), "", *_memory(each)]
        lines += [f"- {note}" for note in each["notes"]]
    return "\n".join(lines) + "\n"


def _ratios(result: Mapping[str, Any]) -> list[str]:
    words = {True: "reached", False: "missed", None: ""}
    lines = ["| ratio of medians | measured | reach | |", "|---|---|---|---|"]
    for each in result["ratios"]:
        reach = "" if each["reach"] is None else f"<= {each['reach']:g}"
        lines.append(f"| {each['of']} / {each['to']} | {each['value']:.2f} | {reach} | {words[each['reached']]} |")
    return lines


def _series(result: Mapping[str, Any]) -> list[str]:
    lines = [
        "| | what | median s | memory at most, GiB: Java, Python | each sample, s (cores that others kept busy) |",
        "|---|---|---|---|---|",
    ]
    for each in result["series"]:
        samples = ", ".join(f"{sample['seconds']:.1f} ({sample['others']:.1f})" for sample in each["samples"])
        peaks = ", ".join(f"{most / GIB:.2f}" for most in (each["memory"] or {}).values())
        lines.append(f"| {each['name']} | {each['what']} | {each['median']:.1f} | {peaks} | {samples} |")
    return lines


def _memory(result: Mapping[str, Any]) -> list[str]:
    memory = result["memory"]
    largest = memory["processes"][:_PROCESSES_SHOWN]
    peaks = ", ".join(f"{each['kind']} {each['peak_bytes'] / GIB:.2f}" for each in largest)
    return [
        f"Memory, Java heap of at most {memory['java_heap']}: all processes together {memory['peak_bytes'] / GIB:.2f} "
        f"GiB at most; the largest peaks in GiB: {peaks}.",
        "",
    ]
