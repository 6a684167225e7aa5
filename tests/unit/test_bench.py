"""The benchmarks run and report, at a size that shows nothing of speed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.measure import MemoryWatch, Work, in_turns
from tests.commands import REPOSITORY, run


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a run of the small size reported to."""
    folder = tmp_path_factory.mktemp("bench")
    done = run([sys.executable, "-m", "benchmarks", "--size", "small", "--out", str(folder), "policies"])
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def _policies(out: Path) -> Mapping[str, Any]:
    report: Mapping[str, Any] = json.loads((out / "bench-small.json").read_text(encoding="utf-8"))
    assert report["size"] == "small"
    assert report["machine"]["cores"] >= 1
    assert set(report["versions"]) == {"topicledger", "Spark", "Delta", "Arrow", "Python", "Java"}
    assert list(report["benchmarks"]) == ["policies"]
    result: Mapping[str, Any] = report["benchmarks"]["policies"]
    return result


def test_the_report_has_every_sample_and_what_is_to_be_reached(out: Path) -> None:
    result = _policies(out)
    assert [series["name"] for series in result["series"]] == ["without", "ten", "own"]
    for series in result["series"]:
        assert [set(sample) for sample in series["samples"]] == [{"seconds", "others"}]
        assert series["median"] == series["samples"][0]["seconds"] > 0
    without, ten, own = (series["median"] for series in result["series"])
    ratios = {(ratio["of"], ratio["to"]): (ratio["value"], ratio["reach"]) for ratio in result["ratios"]}
    assert ratios == {("ten", "without"): (ten / without, 3.0), ("own", "without"): (own / without, None)}


def test_the_memory_of_java_and_python_is_told_apart(out: Path) -> None:
    memory = _policies(out)["memory"]
    kinds = {process["kind"] for process in memory["processes"]}
    assert kinds == {"java", "python"}
    assert memory["processes"][0]["kind"] == "java"
    assert memory["peak_bytes"] > 100 * 2**20


def test_policies_had_something_to_refuse(out: Path) -> None:
    """Else nothing of what they do would be measured."""
    without, ten, own = (series["counts"] for series in _policies(out)["series"])
    assert without["create"] > ten["create"] > 0
    assert without["delete"] > ten["delete"] > 0
    assert ten["ended"] > without["ended"] > 0
    assert without["create"] > own["create"] > 0
    for counts in (ten, own):
        assert sum(counts.values()) == sum(without.values())


def test_the_report_to_read_says_that_its_numbers_mean_nothing(out: Path) -> None:
    text = (out / "bench-small.md").read_text(encoding="utf-8")
    assert "its numbers mean nothing" in text
    assert "| ten / without |" in text


def test_nothing_is_left_of_the_data(out: Path) -> None:
    assert list((REPOSITORY / "build" / "bench").glob("policies-*")) == []


def test_an_unknown_benchmark_is_a_usage_error_that_names_those_there_are(tmp_path: Path) -> None:
    done = run([sys.executable, "-m", "benchmarks", "--out", str(tmp_path), "polices"])
    assert done.returncode == 2
    assert "no benchmark polices; there are policies" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_works_take_turns_and_warm_ups_are_not_measured() -> None:
    done: list[str] = []

    def work(name: str) -> Work:
        def do() -> Mapping[str, int]:
            done.append(name)
            return {"so far": len(done)}

        return Work(name=name, what="notes its name", do=do)

    series = in_turns([work("one"), work("other")], warm_ups=1, samples=2)
    assert done == ["one", "other"] * 3
    assert [(each.name, len(each.samples), each.counts) for each in series] == [
        ("one", 2, {"so far": 5}),
        ("other", 2, {"so far": 6}),
    ]


def test_memory_of_a_process_that_ended_is_remembered() -> None:
    takes = "import time; taken = bytearray(200 * 2**20); time.sleep(2)"
    shell = ["/bin/sh", "-c", f"{sys.executable} -c '{takes}'; true"]
    with subprocess.Popen(shell) as process, MemoryWatch(process.pid) as memory:
        process.wait()
        time.sleep(0.1)
    assert memory.peak_bytes > 200 * 2**20
    assert [(each.kind, each.peak_bytes > 200 * 2**20) for each in memory.processes] == [("python", True)]
