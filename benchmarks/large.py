"""One cluster with 100,000 topics: plan, drift, `runs show` and a report, as a scheduler starts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks import brokers
from benchmarks.jobs import SUBMIT, Ground, create_plainly, document, ground, ledger, run
from benchmarks.measure import Work, in_turns
from benchmarks.report import GIB, Ratio, Result, Series, Size

DRIVER_MEMORY = "512m"
"""Memory of the measuring process; the jobs have Spark's default of 1 GB."""
REACH_SECONDS = 90.0
REACH_BYTES = 2 * GIB

_TOPICS = {Size.FULL: 100_000, Size.SMALL: 40}
_BROKERS = {Size.FULL: 6, Size.SMALL: 1}
"""A broker keeps a file open for each log, and may often open 20,000 (`ulimit -Hn`)."""
_SAMPLES = {Size.FULL: 2, Size.SMALL: 1}
_SHOWN = "shown"
_OTHER_RETENTION = "7200000"


@dataclass(frozen=True, kw_only=True)
class _Jobs:
    """A cluster whose topics are as one ledger declares them, and not as another does."""

    same: Ground
    different: Ground
    names: Iterator[str]
    """Ids of runs."""

    def unchanged(self, _: object) -> Mapping[str, int]:
        return {"unchanged": _plan(self.same, next(self.names))["decisions"]["unchanged"]}

    def changed(self, _: object) -> Mapping[str, int]:
        return {"pending": _plan(self.different, next(self.names))["pending_changes"]}

    def drift(self, _: object) -> Mapping[str, int]:
        return {"drift": document(_job("drift", self.different, "--format", "json"))["drift_count"]}

    def show(self, _: object) -> Mapping[str, int]:
        return {"lines": len(_job("runs", self.different, first=("show", _SHOWN)).splitlines())}

    def report(self, _: object) -> Mapping[str, int]:
        made = self.different.root.parent / "report.html"
        _job("report", self.different, "--to", str(made), first=(_SHOWN,))
        return {"bytes": made.stat().st_size}


def run_large(size: Size, folder: Path) -> Result:
    """Plan and audit a cluster, once as declared, and once with a change for every topic."""
    topics, samples = _TOPICS[size], _SAMPLES[size]
    with brokers.of_one_cluster(_BROKERS[size]) as kafka:
        brokers.with_topics(kafka, topics)
        same = ground(folder, ledger(folder, topics), kafka)
        different = ground(folder, ledger(folder, topics, retention=_OTHER_RETENTION), kafka)
        with different.settings.open("a", encoding="utf-8") as file:
            file.write('[changes]\nconfigs = "declared"\n')
        jobs = _Jobs(same=same, different=different, names=(f"run-{number}" for number in count()))
        _plan(different, _SHOWN)
        whats: Mapping[str, tuple[str, Callable[[object], Mapping[str, int]]]] = {
            "nothing": ("plan, all as declared", jobs.unchanged),
            "plan": ("plan, a config of every topic differs; validated", jobs.changed),
            "drift": ("drift, every topic drifts", jobs.drift),
            "show": ("runs show of such a plan", jobs.show),
            "report": ("report of such a plan", jobs.report),
            "plain": ("librdkafka: list, describe", lambda _: create_plainly(kafka, topics)),
        }
        works = [Work(name=name, what=what, do=do) for name, (what, do) in whats.items()]
        series = in_turns(works, warm_ups=0, samples=samples, elsewhere=True)
    plain = series[-1]
    return Result(
        work=f"From shell to exit: {topics:,} topics of one partition on one cluster of {_BROKERS[size]} brokers.",
        series=series,
        ratios=[Ratio(of=each.name, to=plain.name, value=each.median / plain.median) for each in series[:3]],
        notes=[
            *(_limits(each) for each in series[1:3]),
            "The plain script records and checks nothing. The brokers share the cores.",
        ],
    )


def _plan(place: Ground, run_id: str) -> Mapping[str, Any]:
    return document(_job("plan", place, "--run-id", run_id, "--format", "json"))


def _job(name: str, place: Ground, *options: str, first: tuple[str, ...] = ()) -> str:
    return run([str(SUBMIT), f"jobs/{name}.py", *first, "--config", str(place.settings), *options])


def _limits(series: Series) -> str:
    """Return a sentence that compares a work with the targets."""
    assert series.memory is not None
    used = series.memory.java_bytes + series.memory.python_bytes
    met = "met" if series.median <= REACH_SECONDS and used <= REACH_BYTES else "missed"
    return f"{series.name}: at most {REACH_SECONDS:g} s and {REACH_BYTES / GIB:g} GiB are {met}."
