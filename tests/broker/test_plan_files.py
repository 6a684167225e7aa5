"""`plan FILE...` and `load_manifests --dry-run`: files are tried before they are loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.broker.direct import live, make
from tests.broker.invoking import invoke, load
from topicledger.ledger.tables import Ledger
from topicledger.schemas import MANIFESTS, RUNS
from topicledger_testing.embedded_kafka import EmbeddedKafka

LOADED = """
cluster: main
topics:
  - {topic: files.kept, num_partitions: 1, owner: tests}
  - {topic: files.changed, num_partitions: 1, owner: tests}
"""
FILE = """
cluster: main
topics:
  - {topic: files.changed, num_partitions: 3, owner: tests}
  - {topic: files.new, num_partitions: 2, owner: others}
  - {topic: files.there, state: absent}
"""


@pytest.fixture
def config(kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession) -> Path:
    return commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers}, more="[guards]\nmax_deletes = 1\n")


def written(folder: Path, text: str = FILE, name: str = "proposed.yaml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def planned(config: Path, *more: str | Path, code: int = 0) -> dict[str, Any]:
    result = invoke("plan", "--config", config, "--format", "json", *more)
    assert result.exit_code == code, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


@pytest.mark.thorough
def test_a_plan_of_files_is_applied_once_they_are_loaded(
    kafka: EmbeddedKafka, config: Path, tmp_path: Path, spark: SparkSession
) -> None:
    make(kafka, "files.there")
    ledger = Ledger(spark, str(config.with_name("ledger")))
    assert load(config, LOADED).exit_code == 0
    version, file = ledger.latest_version(MANIFESTS), written(tmp_path)
    document = planned(config, "--run-id", "proposed", file)
    whats = {each["topic"]: (each["owner"], each["action"], each["what"]) for each in document["planned"]}
    assert whats == {
        "files.kept": ("tests", "create", "1 partition, replication factor 1"),
        "files.changed": ("tests", "create", "3 partitions, replication factor 1"),
        "files.new": ("others", "create", "2 partitions, replication factor 1"),
        "files.there": (None, "delete", "1 partition"),
    }
    assert ledger.latest_version(MANIFESTS) == version
    (run,) = ledger.read(RUNS).where("run_id = 'proposed'").collect()
    (kept,) = json.loads(json.loads(run["arguments"]["files"])["files"])
    assert kept["file"] == str(file)
    # Not loaded yet: what only the files ask for is refused, and the reason says what to do.
    early = invoke("apply", "--config", config, "--run-id", "proposed", "--format", "json")
    assert early.exit_code == 4, early.output
    reasons = {each["topic"]: each["error_message"] for each in json.loads(early.stdout)["failures"]}
    assert set(reasons) == {"files.changed", "files.new", "files.there"}
    assert reasons["files.new"] == (
        f"the manifests at version {version} don't declare it; it was planned from files beside version {version}: "
        "load the files, or plan again"
    )
    assert "declare it with other num_partitions" in reasons["files.changed"]
    assert set(live(kafka, "files.")) == {"files.kept", "files.there"}

    again = invoke("plan", "--config", config, "--run-id", "reviewed", file)
    assert again.exit_code == 0
    assert "3 changes are planned: load_manifests the files, then apply --run-id reviewed makes them" in again.stdout
    assert invoke("load_manifests", file, "--config", config).exit_code == 0
    done = invoke("apply", "--config", config, "--run-id", "reviewed", "--wait-visible", "30")
    assert done.exit_code == 0, done.output
    assert set(live(kafka, "files.")) == {"files.kept", "files.changed", "files.new"}


@pytest.mark.thorough
def test_a_plan_of_files_resumes_only_with_the_same_files(config: Path, tmp_path: Path) -> None:
    file = written(tmp_path, "cluster: main\ntopics: [{topic: samefiles.new}]")
    planned(config, "--run-id", "same", file)
    assert planned(config, "--run-id", "same", file)["pending_changes"] == 1
    written(tmp_path, "cluster: main\ntopics: [{topic: samefiles.new, num_partitions: 7}]")
    for given in ((file,), ()):
        other = invoke("plan", "--config", config, "--run-id", "same", *given)
        assert other.exit_code == 2
        assert "the same id needs the same arguments" in other.stderr
    both = invoke("plan", "--config", config, "--manifest-version", "0", file)
    assert both.exit_code == 2
    assert "leave out --manifest-version" in both.stderr


def test_invalid_files_are_refused_and_nothing_is_planned(config: Path, tmp_path: Path) -> None:
    file = written(tmp_path, "cluster: main\ntopics:\n  - {topic: wrongfiles.a}\n  - {topic: 'wrong files'}")
    for command in ("plan", "load_manifests"):
        extra = ("--dry-run",) if command == "load_manifests" else ()
        result = invoke(command, "--config", config, file, *extra)
        assert result.exit_code == 2
        assert f"{file}:4: topic wrong files" in result.stderr
    assert not (config.with_name("ledger") / RUNS.name).exists()


def test_a_dry_run_of_a_load_counts_and_writes_nothing(config: Path, tmp_path: Path, spark: SparkSession) -> None:
    root = config.with_name("ledger")
    file = written(tmp_path)
    first = invoke("load_manifests", file, "--config", config, "--dry-run")
    assert (first.exit_code, first.stdout) == (0, "dry run, nothing was written: 3 added, 0 changed, 0 unchanged\n")
    assert not (root / MANIFESTS.name).exists()
    assert load(config, LOADED).exit_code == 0
    ledger = Ledger(spark, str(root))
    before = ledger.latest_version(MANIFESTS), ledger.latest_version(RUNS)
    again = invoke("load_manifests", file, "--config", config, "--dry-run", "--format", "json")
    document = json.loads(again.stdout)
    assert (document["dry_run"], document["run_id"]) == (True, None)
    assert (document["added"], document["changed"], document["unchanged"], document["removed"]) == (2, 1, 0, 0)
    guarded = invoke("load_manifests", file, "--config", config, "--dry-run", "--replace")
    assert guarded.exit_code == 5
    assert "files.kept" in guarded.stderr
    assert (ledger.latest_version(MANIFESTS), ledger.latest_version(RUNS)) == before
