"""Two benchmarks run and report, at a size that shows nothing of speed; `make bench SIZE=small` runs all of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from benchmarks.measure import MemoryWatch, Work, in_turns
from tests.commands import REPOSITORY, run

pytestmark = pytest.mark.thorough


def _data() -> set[Path]:
    return {path for path in (REPOSITORY / "build" / "bench").glob("*") if path.is_dir()}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a run of the small size reported to, once it left no data behind."""
    folder = tmp_path_factory.mktemp("bench")
    before = _data()
    done = run([sys.executable, "-m", "benchmarks", "policies", "quota", "--size", "small", "--out", str(folder)])
    assert done.returncode == 0, done.stdout + done.stderr
    assert _data() <= before, "a benchmark leaves its data behind"
    return folder


def _report(out: Path, name: str) -> Mapping[str, Any]:
    report: Mapping[str, Any] = json.loads((out / "bench-small.json").read_text(encoding="utf-8"))
    assert report["size"] == "small"
    assert report["machine"]["cores"] >= 1
    assert set(report["versions"]) == {"topicledger", "Spark", "Delta", "Arrow", "Python", "Java"}
    assert list(report["benchmarks"]) == ["policies", "quota"]
    result: Mapping[str, Any] = report["benchmarks"][name]
    return result


@pytest.mark.thorough
def test_the_report_has_every_sample_and_the_targets(out: Path) -> None:
    result = _report(out, "policies")
    assert [series["name"] for series in result["series"]] == ["without", "ten", "own"]
    for series in result["series"]:
        assert [set(sample) for sample in series["samples"]] == [{"seconds", "others"}]
        assert series["median"] == series["samples"][0]["seconds"] > 0
    without, ten, own = (series["median"] for series in result["series"])
    ratios = {(ratio["of"], ratio["to"]): (ratio["value"], ratio["reach"]) for ratio in result["ratios"]}
    assert ratios == {("ten", "without"): (ten / without, 3.0), ("own", "without"): (own / without, None)}


@pytest.mark.thorough
def test_the_memory_of_java_and_python_is_told_apart(out: Path) -> None:
    memory = _report(out, "policies")["memory"]
    kinds = {process["kind"] for process in memory["processes"]}
    assert kinds == {"java", "python"}
    assert memory["processes"][0]["kind"] == "java"
    assert memory["peak_bytes"] > 100 * 2**20
    for series in _report(out, "policies")["series"]:
        row = series["memory"]
        assert 100 * 2**20 < row["java_bytes"] + row["python_bytes"] < memory["peak_bytes"] * 1.3
        assert row["java_bytes"] > row["python_bytes"] > 10 * 2**20


@pytest.mark.thorough
def test_the_cost_of_a_quota_is_compared_with_its_lower_bound(out: Path) -> None:
    """Counted from the quota alone: 125 topics, validated and created, less the burst, at 20 a second (KIP-599)."""
    result = _report(out, "quota")
    paced, least = result["series"]
    assert least["memory"] is None
    assert paced["counts"] == {"validated": 125, "created": 125}
    assert least["median"] == (250 - 220) / 20
    (ratio,) = result["ratios"]
    assert (ratio["value"], ratio["reach"]) == (paced["median"] / least["median"], 1.25)


@pytest.mark.thorough
def test_policies_had_something_to_refuse(out: Path) -> None:
    """Else nothing of what they do would be measured."""
    without, ten, own = (series["counts"] for series in _report(out, "policies")["series"])
    assert without["create"] > ten["create"] > 0
    assert without["delete"] > ten["delete"] > 0
    assert ten["ended"] > without["ended"] > 0
    assert without["create"] > own["create"] > 0
    for counts in (ten, own):
        assert sum(counts.values()) == sum(without.values())


@pytest.mark.thorough
def test_the_report_to_read_says_that_its_numbers_mean_nothing(out: Path) -> None:
    text = (out / "bench-small.md").read_text(encoding="utf-8")
    assert "its numbers mean nothing" in text
    assert "| ten / without |" in text
    rows = [line for line in text.splitlines() if line.startswith("| ten | ")]
    assert re.search(r" \| \d\.\d\d, \d\.\d\d \| ", rows[0])


def test_an_unknown_benchmark_is_a_usage_error_that_names_those_there_are(tmp_path: Path) -> None:
    done = run([sys.executable, "-m", "benchmarks", "--out", str(tmp_path), "polices"])
    assert done.returncode == 2
    assert "no benchmark polices; there are creates, whole, cold, growth" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_works_take_turns_and_warm_ups_are_not_measured() -> None:
    done: list[str] = []

    def work(name: str) -> Work:
        def do(given: str) -> Mapping[str, int]:
            done.append(given)
            return {"so far": len(done)}

        return Work(name=name, what="notes what it is given", do=do, around=lambda: nullcontext(name))

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
    assert memory.most == {"java": 0, "python": memory.peak_bytes}
    assert [(each.kind, each.peak_bytes > 200 * 2**20) for each in memory.processes] == [("python", True)]


def test_the_memory_of_a_process_that_only_waits_is_left_out() -> None:
    other = "import time; taken = bytearray(50 * 2**20); time.sleep(2)"
    waits = f"import subprocess, sys; taken = bytearray(200 * 2**20); subprocess.run([sys.executable, '-c', {other!r}])"
    with subprocess.Popen([sys.executable, "-c", waits]) as process, MemoryWatch(process.pid, itself=False) as memory:
        process.wait()
    assert 50 * 2**20 < memory.peak_bytes < 200 * 2**20
    assert memory.most == {"java": 0, "python": memory.peak_bytes}
