"""Results of benchmarks, and the report of a run: JSON with every sample, and Markdown for people."""

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
    """The amount of work that the benchmarks do."""

    FULL = "full"
    """The amounts that the targets are defined for."""
    SMALL = "small"
    """Enough to show that the benchmarks run; the numbers mean nothing."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One measurement of a work."""

    seconds: float
    others: float
    """Average number of cores that other processes kept busy; their effect on the work is unknown."""


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The highest memory of a work's processes at one time, over all its samples; shared memory is counted once.

    With a local master, Spark's driver and executors are one Java process; Python is the driver program and the
    workers. Brokers aren't counted. Processes shared by several works of a benchmark keep the memory that an earlier
    work took.
    """

    java_bytes: int
    python_bytes: int


@dataclass(frozen=True, kw_only=True)
class Series:
    """All measurements of a work."""

    name: str
    what: str
    """Short description of the work."""
    samples: Sequence[Sample]
    counts: Mapping[str, int] = field(default_factory=dict)
    """Counts that show that the work was done."""
    memory: Peak | None = None
    """None if nothing ran."""

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
    """The target: the largest accepted value; None if there is no target."""

    @property
    def reached(self) -> bool | None:
        return None if self.reach is None else self.value <= self.reach


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of one benchmark."""

    work: str
    """One sentence that describes the work."""
    series: Sequence[Series]
    ratios: Sequence[Ratio]
    notes: Sequence[str] = ()
    """Facts that the numbers don't show."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """The memory of one process of a benchmark; brokers aren't listed."""

    kind: str
    """`java` or `python`."""
    peak_bytes: int
    """The highest resident memory at any time (VmHWM)."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The memory of a benchmark's processes."""

    java_heap: str
    """The largest Java heap of the driver: spark.driver.memory."""
    processes: Sequence[Process]
    """All processes, those with the largest peaks first."""
    peak_bytes: int
    """The highest total at one time, sampled twice a second; shared memory is counted once."""


def as_json(result: Result) -> dict[str, Any]:
    """Return a result for JSON, with medians and whether targets were reached."""
    return {
        **asdict(result),
        "series": [{**asdict(each), "median": each.median} for each in result.series],
        "ratios": [{**asdict(each), "reached": each.reached} for each in result.ratios],
    }


def write(report: Mapping[str, Any], folder: Path) -> tuple[Path, Path]:
    """Write a report as bench-SIZE.json and bench-SIZE.md; return both paths."""
    folder.mkdir(parents=True, exist_ok=True)
    as_data, to_read = (folder / f"bench-{report['size']}.{ending}" for ending in ("json", "md"))
    as_data.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    to_read.write_text(markdown(report), encoding="utf-8")
    return as_data, to_read


def markdown(report: Mapping[str, Any]) -> str:
    """Return a report in Markdown."""
    machine = report["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    lines = [
        f"# Benchmarks, size {report['size']}, {report['started_at']}",
        "",
        f"{machine['cores']} cores ({machine['processor']}), {machine['memory_bytes'] / GIB:.1f} GiB of memory, "
        f"{machine['system']}; {versions}.",
    ]
    if report["size"] == Size.SMALL:
        lines += ["", "This size only shows that the benchmarks run; its numbers mean nothing."]
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
