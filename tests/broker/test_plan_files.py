"""`plan FILE...` and `load_manifests --dry-run`: files are tried before they are loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests import commands
from tests.broker.direct import live, make
from tests.broker.invoking import invoke, load, planned
from topicledger.config.reading import load_settings
from topicledger.ledger.tables import Ledger
from topicledger.ledger.verifying import verify
from topicledger.schemas import APPROVALS, MANIFESTS, RUNS
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
NEW = "  - {topic: files.new, num_partitions: 2, owner: others}\n"
WITH_VARIABLE = FILE.replace(NEW, "  - topic: files.new\n    num_partitions: ${COUNT}\n    owner: others\n")


@pytest.fixture
def config(kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession) -> Path:
    return commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers}, more="[guards]\nmax_deletes = 1\n")


def written(folder: Path, text: str = FILE, name: str = "proposed.yaml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


@pytest.mark.thorough
def test_a_plan_of_files_is_applied_with_its_files(
    kafka: EmbeddedKafka, config: Path, tmp_path: Path, spark: SparkSession
) -> None:
    make(kafka, "files.there")
    ledger = Ledger(spark, str(config.with_name("ledger")))
    assert load(config, LOADED).exit_code == 0
    version, file = ledger.latest_version(MANIFESTS), written(tmp_path, WITH_VARIABLE)
    document = planned(config, "--run-id", "proposed", "--all", "--var", "COUNT=2", file)
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
    again = invoke("plan", "--config", config, "--run-id", "proposed", "--all", "--var", "COUNT=2", file)
    assert f"4 changes are planned: apply --run-id proposed {file} makes them" in again.stdout

    # Without the files, or with changed ones, the plan is refused as a whole and stays good.
    early = invoke("apply", "--config", config, "--run-id", "proposed")
    assert early.exit_code == 2, early.output
    assert f"`apply --run-id proposed {file}` loads the files and applies the plan" in early.stderr
    changed = invoke("apply", "--config", config, "--run-id", "proposed", written(tmp_path, WITH_VARIABLE + " "))
    assert changed.exit_code == 2
    assert "no file is as it was when run proposed was planned" in changed.stderr
    assert ledger.latest_version(MANIFESTS) == version
    assert [row["state"] for row in ledger.read(RUNS).where("run_id = 'proposed'").collect()] == ["planned"]

    # `apply` takes the values of variables from the plan.
    file = written(tmp_path, WITH_VARIABLE)
    other = written(tmp_path, "cluster: main\ntopics: [{topic: files.other}]", "other.yaml")
    done = invoke("apply", "--config", config, "--run-id", "proposed", "--wait-visible", "30", file, other)
    assert done.exit_code == 0, done.output
    assert set(live(kafka, "files.")) == {"files.kept", "files.changed", "files.new"}
    (load_row,) = ledger.read(RUNS).where("arguments['plan'] = 'proposed'").collect()
    assert load_row["counts"]["added"] == 2


@pytest.mark.thorough
def test_an_unapproved_or_overtaken_plan_loads_no_file(
    kafka: EmbeddedKafka, config: Path, tmp_path: Path, spark: SparkSession
) -> None:
    config.write_text(config.read_text() + "approvals = 1\n")
    file = written(tmp_path, "cluster: main\ntopics: [{topic: overtaken.a, num_partitions: 2}]")
    planned(config, "--run-id", "waits", "--requested-by", "ann", file)
    ledger = Ledger(spark, str(config.with_name("ledger")))
    version = ledger.latest_version(MANIFESTS)
    early = invoke("apply", "--config", config, "--run-id", "waits", file)
    assert early.exit_code == 5, early.output
    approved = invoke("runs", "approve", "--config", config, "--run-id", "waits", "--by", "bob")
    assert f"apply --run-id waits {file} applies it" in approved.stdout
    assert ledger.latest_version(MANIFESTS) == version

    assert load(config, "cluster: main\ntopics: [{topic: overtaken.a, num_partitions: 5}]").exit_code == 0
    late = invoke("apply", "--config", config, "--run-id", "waits", file)
    assert late.exit_code == 2, late.output
    assert "its files declare otherwise main overtaken.a: plan again" in late.stderr
    assert (ledger.latest_version(MANIFESTS), live(kafka, "overtaken.")) == (version + 1, {})

    # The approval still counts, once the row is as it was planned.
    assert load(config, file.read_text()).exit_code == 0
    done = invoke("apply", "--config", config, "--run-id", "waits", "--wait-visible", "30", file)
    assert done.exit_code == 0, done.output
    assert set(live(kafka, "overtaken.")) == {"overtaken.a"}

    # A plan with nothing to send is approved after its end: the row of its load proves the approval.
    written(tmp_path, file.read_text().replace("topic: overtaken.a", "topic: overtaken.a, owner: others"))
    assert planned(config, "--run-id", "owner", file)["pending_changes"] == 0
    assert invoke("apply", "--config", config, "--run-id", "owner", file).exit_code == 5
    assert invoke("runs", "approve", "--config", config, "--run-id", "owner", "--by", "bob").exit_code == 0
    waits = verify(ledger, load_settings(config))
    assert (waits.findings, waits.unproven_runs) == ([], ["owner"])
    done = invoke("apply", "--config", config, "--run-id", "owner", file)
    assert done.exit_code == 0, done.output
    proven = verify(ledger, load_settings(config))
    assert (proven.findings, proven.unproven_runs, proven.runs) == ([], [], waits.runs + 1)
    forged = ledger.read(APPROVALS).where("run_id = 'waits'").limit(1).withColumn("by", F.lit("mallory"))
    forged.write.format("delta").mode("append").save(ledger.location(APPROVALS))
    found = verify(ledger, load_settings(config)).findings
    assert [(each.run_id, each.kind, each.table) for each in found] == [("waits", "rows_added", "approvals")]


@pytest.mark.thorough
def test_merges_of_one_folder_load_their_own_rows_in_either_order(
    kafka: EmbeddedKafka, config: Path, tmp_path: Path, spark: SparkSession
) -> None:
    """The first one changes only a label, so its plan has nothing to send; the second one is a plan of one owner."""
    folder = tmp_path / "topics"
    folder.mkdir()
    old = {
        name: f"cluster: main\ntopics:\n  - {{topic: merges.{name}, num_partitions: 1, owner: {name}}}\n"
        for name in "ab"
    }
    new = {
        "a": old["a"].replace("owner: a", "owner: a, labels: {tier: gold}"),
        "b": old["b"] + "  - {topic: merges.more, owner: b}\n  - {topic: merges.other, owner: c}\n",
    }

    def merged(**files: str) -> Path:
        for name, text in {**old, **files}.items():
            written(folder, text, f"{name}.yaml")
        return folder

    def run(*arguments: str | Path) -> None:
        done = invoke(*arguments, "--config", config)
        assert done.exit_code == 0, done.output

    ledger = Ledger(spark, str(config.with_name("ledger")))
    run("load-manifests", merged())
    run("provision")
    assert planned(config, "--run-id", "label", merged(a=new["a"]))["pending_changes"] == 0
    assert planned(config, "--run-id", "more", "--owner", "b", merged(b=new["b"]))["pending_changes"] == 1
    run("apply", "--run-id", "more", merged(b=new["b"]))
    assert set(live(kafka, "merges.")) == {"merges.a", "merges.b", "merges.more"}
    run("apply", "--run-id", "label", merged(**new))
    rows = {row["topic"]: row["labels"] for row in ledger.read(MANIFESTS).where("topic LIKE 'merges.%'").collect()}
    assert rows == {"merges.a": {"tier": "gold"}, "merges.b": None, "merges.more": None}


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
    assert first.exit_code == 0
    assert first.stdout == "dry run, nothing was written: 3 added, 0 changed, 0 unchanged, 0 removed\n"
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
