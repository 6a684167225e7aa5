"""Measurements on Linux: time of works in turns, CPU used by other processes, memory of a process tree.

Everything is read from /proc; a process counts as ours if the given process is one of its ancestors.
"""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from benchmarks.report import Peak, Process, Sample, Series

T = TypeVar("T")

_PROC = Path("/proc")
_PR_SET_CHILD_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")
_EVERY = 0.5
_KINDS = ("java", "python")
"""Kinds of processes whose memory is recorded."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """A work to measure."""

    name: str
    what: str
    """Short description for the report."""
    do: Callable[[Any], Mapping[str, int]]
    """Does the work once with what `around` provides; returns counts that show that it was done."""
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Provides what the work needs and isn't measured, for example a fresh broker."""


def in_turns(works: Sequence[Work], *, warm_ups: int, samples: int, elsewhere: bool = False) -> list[Series]:
    """Do the works in turns, several times, so that changes on the machine affect all of them alike.

    The first `warm_ups` rounds aren't measured, since they would measure compilation and caches. Works that are done
    `elsewhere` have their own processes, so the memory of this process, which only waits, doesn't count.
    """
    _adopt_orphans()
    measured: dict[str, list[Sample]] = {work.name: [] for work in works}
    peaks: dict[str, list[Mapping[str, int]]] = {work.name: [] for work in works}
    counts: dict[str, Mapping[str, int]] = {}
    for number in range(1 - warm_ups, samples + 1):
        for work in works:
            memory = MemoryWatch(os.getpid(), itself=not elsewhere)
            with work.around() as given, memory, _timed() as taken:
                counts[work.name] = work.do(given)
            sample = taken[0]
            line = f"{work.name}: {sample.seconds:.1f} s, others kept {sample.others:.1f} cores busy"
            print(f"{line}{'' if number > 0 else ' (warm-up)'}", flush=True)
            if number > 0:
                measured[work.name].append(sample)
                peaks[work.name].append(memory.most)
    return [
        Series(
            name=work.name,
            what=work.what,
            samples=measured[work.name],
            counts=counts[work.name],
            memory=Peak(
                java_bytes=max(each["java"] for each in peaks[work.name]),
                python_bytes=max(each["python"] for each in peaks[work.name]),
            ),
        )
        for work in works
    ]


def fastest(
    sizes: Iterable[int], around: Callable[[], AbstractContextManager[T]], do: Callable[[T, int], object]
) -> tuple[int, Mapping[int, float]]:
    """Return the size with which `do` is fastest, and the seconds for each size, without the time of `around`."""
    took = {}
    for size in sizes:
        with around() as given:
            began = time.monotonic()
            do(given, size)
            took[size] = time.monotonic() - began
    return min(took, key=lambda size: took[size]), took


@contextmanager
def _timed() -> Iterator[list[Sample]]:
    """Measure a block; the yielded list contains the sample after the block has ended."""
    taken: list[Sample] = []
    start, busy, ours = time.monotonic(), _busy_seconds(), cpu_seconds(os.getpid())
    yield taken
    seconds = time.monotonic() - start
    others = (_busy_seconds() - busy) - (cpu_seconds(os.getpid()) - ours)
    taken.append(Sample(seconds=round(seconds, 3), others=round(max(0.0, others / seconds), 2)))


def _adopt_orphans() -> None:
    """Adopt orphans, so that the CPU time of Java processes that outlive their command counts as ours."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "can't adopt orphans, so their CPU time would not count as ours")


def _busy_seconds() -> float:
    """Return the CPU seconds of all cores since boot, including those stolen by other virtual machines."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, _read(_PROC / "stat").split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS


def cpu_seconds(root: int) -> float:
    """Return the CPU seconds of a process and its descendants, including those that have ended."""
    return sum(sum(map(int, _stat(pid)[11:15])) for pid in family(root)) / _TICKS


def resident_bytes(root: int) -> int:
    """Return the resident memory of a process and its descendants; shared memory counts for each of them."""
    pages = sum(int((_read(_PROC / str(pid) / "statm").split() or ["0", "0"])[1]) for pid in family(root))
    return pages * os.sysconf("SC_PAGE_SIZE")


def family(root: int) -> list[int]:
    """Return the ids of a process and its descendants that still exist."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name)))[1] != "0":
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def _stat(pid: int) -> list[str]:
    """Read /proc/PID/stat from the state on: index 1 is the parent, 11 to 14 are CPU times; zeros if it has ended."""
    text = _read(_PROC / str(pid) / "stat")
    return text.rpartition(")")[2].split() if text else ["0"] * 15


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        # The process has ended since it was listed.
        return ""


class MemoryWatch:
    """Records the memory of the Java and Python processes among a process and its descendants, twice a second.

    Without `itself`, the process itself doesn't count.
    """

    def __init__(self, root: int, *, itself: bool = True) -> None:
        self.peak_bytes = 0
        """The highest total at one time."""
        self.most = dict.fromkeys(_KINDS, 0)
        """The highest total of each kind at one time."""
        self._root = root
        self._first = 0 if itself else 1
        self._peaks: dict[int, Process] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def processes(self) -> list[Process]:
        """All processes seen, the largest first."""
        return sorted(self._peaks.values(), key=lambda each: -each.peak_bytes)

    def _watch(self) -> None:
        while not self._stop.wait(_EVERY):
            together = dict.fromkeys(_KINDS, 0)
            for pid in family(self._root)[self._first :]:
                program = _read(_PROC / str(pid) / "cmdline")
                if not program or "\0kafka." in program:
                    # Brokers aren't part of the measurement, and a process without a name is ending.
                    continue
                memory = _read(_PROC / str(pid) / "status") + _read(_PROC / str(pid) / "smaps_rollup")
                fields = dict(line.split(":", 1) for line in memory.splitlines() if ":" in line)
                kind = fields.get("Name", "").strip().rstrip("0123456789.")
                if "Pss" not in fields or kind not in _KINDS:
                    continue
                together[kind] += _bytes(fields["Pss"])
                self._peaks[pid] = Process(kind=kind, peak_bytes=_bytes(fields["VmHWM"]))
            self.peak_bytes = max(self.peak_bytes, sum(together.values()))
            self.most = {kind: max(self.most[kind], together[kind]) for kind in _KINDS}


def _bytes(kilobytes: str) -> int:
    return int(kilobytes.split()[0]) * 1024


def machine() -> dict[str, object]:
    """Return the properties of this machine that affect the numbers."""
    model = [line.partition(":")[2].strip() for line in _read(_PROC / "cpuinfo").splitlines() if "model name" in line]
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": model[0] if model else platform.machine(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def versions() -> dict[str, str]:
    """Return the versions of topicledger and of the software it ran on."""
    packages = {"topicledger": "topicledger", "Spark": "pyspark", "Delta": "delta-spark", "Arrow": "pyarrow"}
    return {
        **{name: version(package) for name, package in packages.items()},
        "Python": platform.python_version(),
        "Java": _java(),
    }


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    return version.split('"')[1]
