"""One cluster with 100,000 topics: plan, drift, `runs show` and a report, as a scheduler starts them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks import brokers
from benchmarks.jobs import SUBMIT, Ground, document, ground, ledger, run
from benchmarks.measure import Work, in_turns
from benchmarks.report import GIB, Ratio, Result, Series, Size

DRIVER_MEMORY = "512m"
"""Memory of the measuring process; the jobs have Spark's default of 1 GB."""
REACH_SECONDS = 90.0
REACH_BYTES = 2 * GIB

_TOPICS = {Size.FULL: 100_000, Size.SMALL: 40}
_SAMPLES = 1
"""A round of all tasks takes ten minutes."""
_SHOWN = "shown"
_OTHER_RETENTION = "7200000"


def run_large(size: Size, folder: Path) -> Result:
    """Plan and audit a cluster, once as declared, and once with a change for every topic."""
    topics = _TOPICS[size]
    with brokers.without_logs(topics) as kafka:
        same = ground(folder, ledger(folder, topics), kafka)
        different = ground(folder, ledger(folder, topics, retention=_OTHER_RETENTION), kafka)
        with different.settings.open("a", encoding="utf-8") as file:
            file.write('[changes]\nconfigs = "declared"\n')
        names = (f"run-{number}" for number in count())
        _plan(different, _SHOWN)

        def reported() -> int:
            made = folder / "report.html"
            _job("report", different, "--to", str(made), first=(_SHOWN,))
            return made.stat().st_size

        works = [
            Work(
                name="nothing",
                what="plan, all as declared",
                do=lambda _: {"unchanged": _plan(same, next(names))["decisions"]["unchanged"]},
            ),
            Work(
                name="audit",
                what="drift, all as declared",
                do=lambda _: {"drift": document(_job("drift", same, "--format", "json"))["drift_count"]},
            ),
            Work(
                name="plan",
                what="plan, a config of every topic differs; validated",
                do=lambda _: {"pending": _plan(different, next(names))["pending_changes"]},
            ),
            Work(
                name="drift",
                what="drift, every topic drifts",
                do=lambda _: {"drift": document(_job("drift", different, "--format", "json"))["drift_count"]},
            ),
            Work(
                name="show",
                what="runs show of such a plan",
                do=lambda _: {"lines": len(_job("runs", different, first=("show", _SHOWN)).splitlines())},
            ),
            Work(name="report", what="report of such a plan", do=lambda _: {"bytes": reported()}),
        ]
        series = in_turns(works, warm_ups=0, samples=_SAMPLES, elsewhere=True)
    nothing, audit, plan, drift, *_ = series
    return Result(
        work=f"From shell to exit: {topics:,} topics of one partition on one cluster.",
        series=series,
        ratios=[
            Ratio(of=plan.name, to=nothing.name, value=plan.median / nothing.median),
            Ratio(of=drift.name, to=audit.name, value=drift.median / audit.median),
        ],
        notes=[
            *(_limits(each) for each in (nothing, audit, plan, drift)),
            "Three brokers share the cores; the one with all replicas was killed before the topics were created, so no "
            "logs were made.",
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
