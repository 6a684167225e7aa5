"""Manifest files become rows of `manifests`: all of them, or none."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.unit.frames import MANIFEST_ROWS, dicts, frame
from topicledger.errors import ExitCode, ManifestFileError, UsageError
from topicledger.loading import Foreign, Loaded, leftovers, load
from topicledger.manifest_files import NotCarriedOver
from topicledger.schemas import MANIFESTS
from topicledger.settings import ClusterSettings, Settings, TablesSettings
from topicledger.tables import Ledger

FIRST = """\
cluster: orders
defaults: {replication_factor: 3, owner: payments}
topics:
  - {topic: same, num_partitions: 12, configs: {retention.ms: 604800000, cleanup.policy: compact}}
  - {topic: changes, num_partitions: 1, labels: {tier: gold}}
  - {topic: leaves, state: absent}
"""
SECOND = """\
cluster: orders
defaults: {replication_factor: 3, owner: payments}
topics:
  - {topic: same, num_partitions: 12, configs: {cleanup.policy: compact, retention.ms: 604800000}}
  - {topic: changes, num_partitions: 1, labels: {tier: silver}}
  - {topic: comes, num_partitions: 2}
"""


def settings_for(ledger: Ledger) -> Settings:
    return Settings(
        path=Path("tests.toml"),
        tables=TablesSettings(root=ledger.root),
        clusters={name: ClusterSettings(name=name, bootstrap_servers=("h:1",)) for name in ("orders", "billing")},
    )


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def load_files(ledger: Ledger, *paths: Path, **options: Any) -> Loaded:
    return load(ledger, settings_for(ledger), paths, io.StringIO(""), **options)


def keys(ledger: Ledger) -> list[tuple[str, str]]:
    return sorted((row["cluster"], row["topic"]) for row in ledger.read(MANIFESTS).select("cluster", "topic").collect())


def test_a_load_says_what_it_added_and_changed_and_the_same_again_commits_nothing(
    ledger: Ledger, tmp_path: Path
) -> None:
    first, second = put(tmp_path, "first.yaml", FIRST), put(tmp_path, "second.yaml", SECOND)
    assert load_files(ledger, first) == Loaded(added=3, changed=0, unchanged=0, removed=0)
    version = ledger.latest_version(MANIFESTS)
    assert load_files(ledger, first) == Loaded(added=0, changed=0, unchanged=3, removed=0)
    assert ledger.latest_version(MANIFESTS) == version
    assert load_files(ledger, second) == Loaded(added=1, changed=1, unchanged=1, removed=0)
    assert ledger.latest_version(MANIFESTS) == version + 1
    assert keys(ledger) == [("orders", topic) for topic in ("changes", "comes", "leaves", "same")]
    row = dicts(ledger.read(MANIFESTS).where("topic = 'same'"))[0]
    assert row == {
        "cluster": "orders",
        "topic": "same",
        "state": "present",
        "num_partitions": 12,
        "replication_factor": 3,
        "assignments": None,
        "configs": {"retention.ms": "604800000", "cleanup.policy": "compact"},
        "owner": "payments",
        "labels": None,
    }


def test_replacing_removes_what_no_file_has_from_the_clusters_that_the_files_name_and_no_others(
    spark: SparkSession, ledger: Ledger, tmp_path: Path
) -> None:
    rows = [
        {"cluster": "orders", "topic": "leaves", "state": "present"},
        {"cluster": "billing", "topic": "stays", "state": "present"},
        {"cluster": "nobody's", "topic": "stays", "state": "present"},
    ]
    before = frame(spark, MANIFEST_ROWS, rows)
    before.write.format("delta").mode("append").save(ledger.location(MANIFESTS))
    file = put(tmp_path, "orders.json", json.dumps([{"cluster": "orders", "topic": "comes"}]))
    assert load_files(ledger, file, replace=True) == Loaded(added=1, changed=0, unchanged=0, removed=1)
    assert keys(ledger) == [("billing", "stays"), ("nobody's", "stays"), ("orders", "comes")]


def test_a_row_that_another_tool_left_without_a_topic_counts_as_nothing(spark: SparkSession, tmp_path: Path) -> None:
    ledger = Ledger(spark, str(tmp_path))
    theirs = frame(spark, MANIFEST_ROWS, [{"cluster": "orders"}, {"topic": "a"}])
    theirs.write.format("delta").save(ledger.location(MANIFESTS))
    file = put(tmp_path, "orders.json", '{"cluster": "orders", "topic": "a"}')
    assert load_files(ledger, file) == Loaded(added=1, changed=0, unchanged=0, removed=0)
    assert load_files(ledger, file) == Loaded(added=0, changed=0, unchanged=1, removed=0)
    assert ledger.latest_version(MANIFESTS) == 1


def test_a_topic_in_two_files_that_say_the_same_is_loaded_once(ledger: Ledger, tmp_path: Path) -> None:
    """C2"""
    row = {"cluster": "orders", "topic": "a", "assignments": {"0": [1, 2], "1": [2, 1]}, "configs": {"x": "1"}}
    turned = {**row, "assignments": {"1": [2, 1], "0": [1, 2]}}
    files = [put(tmp_path, f"{number}.json", json.dumps([each])) for number, each in enumerate([row, turned])]
    assert load_files(ledger, *files) == Loaded(added=1, changed=0, unchanged=0, removed=0)


def test_every_error_of_every_file_is_told_with_its_place_and_nothing_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    """C1, C2, C3"""
    one = put(
        tmp_path,
        "1.yaml",
        """\
cluster: orders
topics:
  - {topic: good}
  - {topic: both, num_partitions: 1, assignments: {0: [1]}}
  - {topic: "bad name", num_partitions: 0}
  - {topic: gaps, assignments: {0: [1], 2: [1]}}
  - {topic: surprise, configs: {a: 0777}}
  - {topic: misspelt, partitions: 3}
""",
    )
    two = put(
        tmp_path,
        "2.jsonl",
        '{"cluster": "order", "topic": "elsewhere"}\n'
        '{"cluster": "orders", "topic": "good", "num_partitions": 3}\n'
        '{"cluster": "orders", "topic": \n'
        '{"cluster": "orders", "topic": "odd", "state": "gone\\u001b[2J"}\n',
    )
    ledger = Ledger(spark, str(tmp_path / "ledger"))
    with pytest.raises(ManifestFileError) as error:
        load_files(ledger, one, two, tmp_path / "3.yaml")
    lines = str(error.value).splitlines()
    told = [line.removeprefix(f"{tmp_path}/") for line in lines]
    expected = [
        ("1.yaml:4: topic both: ", "assignments exclude num_partitions and replication_factor"),
        ("1.yaml:5: topic bad name: ", "ASCII letters"),
        ("1.yaml:6: topic gaps: ", "without gaps"),
        ("1.yaml:7: ", "quote"),
        ("1.yaml:8: ", "num_partitions"),
        ("2.jsonl:1: unknown cluster `order`; ", "did you mean `orders`?"),
        ("2.jsonl:2: topic good is declared otherwise at ", "1.yaml:3; keep one of them"),
        ("2.jsonl:3: ", ""),
        ("2.jsonl:4: topic odd: ", "state is gone"),
        ("3.yaml: ", "no such file or folder"),
    ]
    assert len(told) == len(expected) + 1, told
    for line, (start, part) in zip(told, expected, strict=False):
        assert line.startswith(start), line
        assert part in line
    assert "; num_partitions is 0" in told[1], "each reason of a row is told"
    assert told[-1] == f"{len(expected)} errors: nothing was loaded"
    assert error.value.exit_code == ExitCode.USAGE
    assert str(error.value).replace("\n", "").isprintable()
    assert not Path(ledger.root).exists()


def test_one_error_is_counted_as_one(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(ManifestFileError, match=r"\n1 error: nothing was loaded$"):
        load_files(ledger, tmp_path / "missing.yaml")


def test_files_that_declare_nothing_change_nothing_even_when_replacing(ledger: Ledger, tmp_path: Path) -> None:
    file = put(tmp_path, "empty.json", "[]")
    assert load_files(ledger, file, replace=True) == Loaded(added=0, changed=0, unchanged=0, removed=0)
    assert ledger.latest_version(MANIFESTS) == 0


STRIMZI = """\
apiVersion: kafka.strimzi.io/v1
kind: KafkaTopic
metadata: {name: invoices, namespace: live, labels: {strimzi.io/cluster: CLUSTER}}
spec: {partitions: 12, config: {retention.ms: 604800000}}
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaTopic
metadata: {name: orders, namespace: live, labels: {strimzi.io/cluster: CLUSTER}}
spec: {partitions: PARTITIONS}
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaUser
metadata: {name: someone}
"""


def test_another_tools_file_is_loaded_as_a_native_one_and_what_is_left_of_it_is_listed(
    ledger: Ledger, tmp_path: Path
) -> None:
    file = put(tmp_path, "topics.yaml", STRIMZI.replace("CLUSTER", "orders").replace("PARTITIONS", "1"))
    version = ledger.latest_version(MANIFESTS)
    loaded = load_files(ledger, file, foreign=Foreign(form="strimzi"))
    assert ledger.latest_version(MANIFESTS) == version + 1
    namespace = "Kubernetes' own place of the resource"
    assert loaded == Loaded(
        added=2,
        changed=0,
        unchanged=0,
        removed=0,
        not_carried_over=tuple(
            NotCarriedOver(file=str(file), line=line, key="metadata.namespace", what=namespace) for line in (3, 8)
        ),
        skipped={"KafkaUser": 1},
    )
    assert leftovers(loaded) == [
        f"not carried over: `metadata.namespace` ({namespace}), 2 times, first at {file}:3",
        "skipped: 1 KafkaUser",
    ]
    native = put(
        tmp_path,
        "same.yaml",
        """\
cluster: orders
defaults: {labels: {strimzi.io/cluster: orders}}
topics:
  - {topic: invoices, num_partitions: 12, configs: {retention.ms: 604800000}}
  - {topic: orders, num_partitions: 1}
""",
    )
    assert load_files(ledger, native) == Loaded(added=0, changed=0, unchanged=2, removed=0)


def test_another_tools_files_are_checked_whole_before_anything_is_written(ledger: Ledger, tmp_path: Path) -> None:
    """C2"""
    text = STRIMZI.replace("CLUSTER", "ordres").replace("PARTITIONS", "0").replace("invoices", "in/voices")
    file = put(tmp_path, "topics.yaml", text)
    with pytest.raises(ManifestFileError) as caught:
        load_files(ledger, file, foreign=Foreign(form="strimzi"))
    unknown = "unknown cluster `ordres`; did you mean `orders`?; --cluster NAME puts the topics on another one"
    *told, last = str(caught.value).split("\n")
    assert [line for line in told if "cluster" in line] == [f"{file}:{line}: {unknown}" for line in (1, 6)]
    assert any(line.startswith(f"{file}:1: topic in/voices: topic has a character") for line in told)
    assert any(line.startswith(f"{file}:6: topic orders: num_partitions is 0") for line in told)
    assert last == "4 errors: nothing was loaded"
    assert keys(ledger) == []
    other = put(tmp_path, "other.yaml", STRIMZI.replace("CLUSTER", "ordres").replace("PARTITIONS", "1"))
    assert load_files(ledger, other, foreign=Foreign(form="strimzi", cluster="billing")).added == 2
    assert keys(ledger) == [("billing", "invoices"), ("billing", "orders")]


def test_a_format_that_names_no_cluster_needs_one(ledger: Ledger, tmp_path: Path) -> None:
    file = put(tmp_path, "topics.txt", "")
    with pytest.raises(UsageError, match="--from kafka-topics needs --cluster NAME"):
        load_files(ledger, file, foreign=Foreign(form="kafka-topics"))
    with pytest.raises(UsageError, match="--stdin-format is for native files"):
        load_files(ledger, file, foreign=Foreign(form="julie", cluster="orders"), stdin_format="yaml")
