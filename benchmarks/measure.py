"""Measuring on Linux: time in turns, what others took of the machine meanwhile, memory of a tree of processes.

All of it comes from /proc; a process counts as ours where one of its ancestors is the one asked about.
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
"""Of processes whose memory is noted."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is measured."""

    name: str
    what: str
    """In a few words, for the report."""
    do: Callable[[Any], Mapping[str, int]]
    """Does it once, on what `around` gives; returns counts that show that it was done."""
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    """What has to be there and isn't measured: a fresh broker, say."""


def in_turns(works: Sequence[Work], *, warm_ups: int, samples: int, elsewhere: bool = False) -> list[Series]:
    """Do each work in turn, over and over, so that whatever changes on the machine meanwhile is everyone's.

    The first `warm_ups` rounds aren't measured: compiling and caches are what they would measure. Works that are done
    `elsewhere` have processes of their own: the memory of this one, which only waits, is no part of theirs.
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
    """The size with which `do` is done soonest, and the seconds that each took; what `around` does isn't measured."""
    took = {}
    for size in sizes:
        with around() as given:
            began = time.monotonic()
            do(given, size)
            took[size] = time.monotonic() - began
    return min(took, key=lambda size: took[size]), took


@contextmanager
def _timed() -> Iterator[list[Sample]]:
    """The sample of the block is in the list once the block has ended."""
    taken: list[Sample] = []
    start, busy, ours = time.monotonic(), _busy_seconds(), _cpu_seconds(os.getpid())
    yield taken
    seconds = time.monotonic() - start
    others = (_busy_seconds() - busy) - (_cpu_seconds(os.getpid()) - ours)
    taken.append(Sample(seconds=round(seconds, 3), others=round(max(0.0, others / seconds), 2)))


def _adopt_orphans() -> None:
    """A command of ours may end before its Java does: from now on that is our child, and what it worked is ours."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "orphans can't be adopted, so what they work would count as others'")


def _busy_seconds() -> float:
    """What all cores together worked since the machine's start, also for other machines on the same hardware."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, _read(_PROC / "stat").split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS


def _cpu_seconds(root: int) -> float:
    """What a process and its descendants worked, those that ended included."""
    return sum(sum(map(int, _stat(pid)[11:15])) for pid in family(root)) / _TICKS


def resident_bytes(root: int) -> int:
    """What a process and its descendants have in memory; what they share counts for each."""
    pages = sum(int((_read(_PROC / str(pid) / "statm").split() or ["0", "0"])[1]) for pid in family(root))
    return pages * os.sysconf("SC_PAGE_SIZE")


def family(root: int) -> list[int]:
    """A process and its descendants, as far as they are still there."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name)))[1] != "0":
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def _stat(pid: int) -> list[str]:
    """/proc/PID/stat from the state on: index 1 is the parent, 11 to 14 are CPU times; zeros where it has ended."""
    text = _read(_PROC / str(pid) / "stat")
    return text.rpartition(")")[2].split() if text else ["0"] * 15


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        # It has ended since it was listed.
        return ""


class MemoryWatch:
    """Within it, twice a second, a thread notes the memory of a process and its descendants: Java's and Python's.

    Without `itself` only that of its descendants.
    """

    def __init__(self, root: int, *, itself: bool = True) -> None:
        self.peak_bytes = 0
        """The most that they had together at one time."""
        self.most = dict.fromkeys(_KINDS, 0)
        """By kind, the most that its processes had at one time."""
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
        """Each process that was seen, the largest first."""
        return sorted(self._peaks.values(), key=lambda each: -each.peak_bytes)

    def _watch(self) -> None:
        while not self._stop.wait(_EVERY):
            together = dict.fromkeys(_KINDS, 0)
            for pid in family(self._root)[self._first :]:
                program = _read(_PROC / str(pid) / "cmdline")
                if not program or "\0kafka." in program:
                    # A cluster that is measured on is no part of what is measured; what has no name any more ends.
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
    """What bears on the numbers of the machine."""
    model = [line.partition(":")[2].strip() for line in _read(_PROC / "cpuinfo").splitlines() if "model name" in line]
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": model[0] if model else platform.machine(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def versions() -> dict[str, str]:
    """What was measured, and what it ran on."""
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
