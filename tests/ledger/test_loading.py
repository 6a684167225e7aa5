"""Loading manifest files into `manifests`: all of their rows, or none."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from tests.ledger.loading import load_files, put, run_rows, settings_for
from tests.unit.frames import MANIFEST_ROWS, dicts, frame
from topicledger.cli.manifests import load_manifests
from topicledger.errors import ExitCode, GuardStopped, ManifestFileError, TableError, UsageError
from topicledger.files.load import Loaded, Removed, Replace, leftovers, load, removals
from topicledger.files.read import LISTED_FILES, Foreign, read
from topicledger.ledger.tables import Ledger
from topicledger.manifests.files import NotCarriedOver
from topicledger.schemas import MANIFESTS, Table

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


def shared_cluster(spark: SparkSession, ledger: Ledger, owners: Mapping[str, str | None]) -> None:
    """Add topics of these owners to the cluster `orders`, and to another cluster."""
    rows = [
        {"cluster": cluster, "topic": topic, "state": "present", "owner": owner}
        for cluster in ("orders", "billing")
        for topic, owner in owners.items()
    ]
    frame(spark, MANIFEST_ROWS, rows).write.format("delta").mode("append").save(ledger.location(MANIFESTS))


def keys(ledger: Ledger) -> list[tuple[str, str]]:
    return sorted((row["cluster"], row["topic"]) for row in ledger.read(MANIFESTS).select("cluster", "topic").collect())


@pytest.mark.thorough
def test_load_reports_changes_and_an_equal_load_commits_nothing(ledger: Ledger, tmp_path: Path) -> None:
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
        "placement": None,
        "replaces": None,
        "description": None,
    }


@pytest.mark.thorough
def test_replace_removes_rows_only_from_clusters_in_the_files(
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
    gone = (Removed(cluster="orders", topic="leaves", owner=None),)
    loaded = load_files(ledger, file, replace=Replace(), may_remove=1)
    assert loaded == Loaded(added=1, changed=0, unchanged=0, removed=1, removed_rows=gone)
    assert removals(loaded) == ["removed: orders / leaves, no owner"]
    assert keys(ledger) == [("billing", "stays"), ("nobody's", "stays"), ("orders", "comes")]


@pytest.mark.thorough
def test_replace_owner_removes_only_rows_of_that_owner(spark: SparkSession, ledger: Ledger, tmp_path: Path) -> None:
    owners = {"pay.old": " Payments ", "pay.kept": "payments", "ship.a": "shipping", "nobody": None, "blank": " "}
    shared_cluster(spark, ledger, owners)
    file = put(tmp_path, "pay.json", json.dumps([{"cluster": "orders", "topic": "pay.kept", "owner": "payments"}]))
    loaded = load_files(ledger, file, replace=Replace(owners=("PAYMENTS",)), may_remove=1)
    gone = (Removed(cluster="orders", topic="pay.old", owner=" Payments "),)
    assert loaded == Loaded(added=0, changed=0, unchanged=1, removed=1, removed_rows=gone)
    left = ("blank", "nobody", "pay.kept", "ship.a")
    assert keys(ledger) == [("billing", topic) for topic in sorted(owners)] + [("orders", topic) for topic in left]
    arguments = run_rows(ledger)[-1]["arguments"]
    assert (arguments["replace"], arguments["owners"], arguments["clusters"]) == ("owners", '["PAYMENTS"]', "orders")


def test_an_owner_without_a_name_is_refused_before_any_file_is_read(ledger: Ledger) -> None:
    with pytest.raises(UsageError, match="--replace-owner needs the name of an owner"):
        load_files(ledger, Path("nowhere.yaml"), replace=Replace(owners=("payments", " \t")))


def test_load_above_max_removed_rows_lists_rows_and_loads_nothing(
    spark: SparkSession, ledger: Ledger, tmp_path: Path
) -> None:
    shared_cluster(spark, ledger, {f"ship.{number:02}": "shipping" for number in range(27)})
    version = ledger.latest_version(MANIFESTS)
    file = put(tmp_path, "pay.json", json.dumps([{"cluster": "orders", "topic": "pay", "owner": "payments"}]))
    with pytest.raises(GuardStopped) as caught:
        load_files(ledger, file, replace=Replace(), may_remove=26, run_id="stopped", requested_by="alice")
    first, *rows, more, last = str(caught.value).split("\n")
    assert first == f"rows of manifests that loading {file} would remove:"
    assert rows == [f"  orders / ship.{number:02}, owner shipping" for number in range(20)]
    assert more == "  the first 20 of 27"
    assert last == (
        "27 rows in all, and guards.max_removed_rows is 26: nothing was loaded. If they should be removed, set "
        "max_removed_rows = 27 under [guards] in tests.toml and start the command again; --replace-owner OWNER instead "
        "of --replace removes only rows of that owner. Or `plan` the files with the same options: an approval can "
        "allow one plan to remove them"
    )
    assert (caught.value.exit_code, caught.value.run_id) == (5, "stopped")
    assert caught.value.details["removals_refused"] == 27
    assert ledger.latest_version(MANIFESTS) == version
    (row,) = run_rows(ledger)
    assert (row["run_id"], row["state"], row["exit_code"]) == ("stopped", "finished", 5)
    assert (row["requested_by"], row["manifest_version"]) == ("alice", version)
    assert row["counts"] == {"added": 0, "changed": 0, "unchanged": 0, "removed": 0, "removals_refused": 27}
    assert load_files(ledger, file, replace=Replace(), may_remove=27).removed == 27


@pytest.mark.thorough
def test_listed_names_cannot_control_the_terminal(spark: SparkSession, ledger: Ledger, tmp_path: Path) -> None:
    shared_cluster(spark, ledger, {"a\x1b[2J\nb": "c\nd"})
    file = put(tmp_path, "pay.json", json.dumps([{"cluster": "orders", "topic": "pay"}]))
    with pytest.raises(GuardStopped) as caught:
        load_files(ledger, file, replace=Replace())
    assert str(caught.value).split("\n")[1] == r"  orders / a\x1b[2J\nb, owner c\nd"


@pytest.mark.thorough
def test_row_added_after_counting_is_not_removed(
    spark: SparkSession, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared_cluster(spark, ledger, {"counted": "shipping"})
    merge = Ledger.merge

    def late(self: Ledger, table: Table, rows: Any, **options: Any) -> int:
        shared_cluster(spark, ledger, {"late": "shipping"})
        return merge(self, table, rows, **options)

    monkeypatch.setattr(Ledger, "merge", late)
    file = put(tmp_path, "pay.json", json.dumps([{"cluster": "orders", "topic": "pay"}]))
    assert load_files(ledger, file, replace=Replace(), may_remove=1).removed == 1
    assert ("orders", "late") in keys(ledger)
    assert ("orders", "counted") not in keys(ledger)


@pytest.mark.thorough
@pytest.mark.parametrize("owners", [(), ("shipping",)])
def test_row_changed_after_it_was_read_is_not_removed(
    spark: SparkSession,
    ledger: Ledger,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    owners: tuple[str, ...],
) -> None:
    """Another load has just given it other configs: its team was told that they are loaded."""
    shared_cluster(spark, ledger, {"gone": "shipping", "configs": "shipping", "owner": "shipping"})
    ledger.update(MANIFESTS, "topic IN ('gone', 'configs')", {"configs": "map('a', '1', 'b', '2')"})
    merge = Ledger.merge

    def late(self: Ledger, table: Table, rows: Any, **options: Any) -> int:
        ledger.update(MANIFESTS, "topic = 'configs' AND cluster = 'orders'", {"configs": "map('a', '1', 'b', '3')"})
        ledger.update(MANIFESTS, "topic = 'owner' AND cluster = 'orders'", {"owner": "'sales'"})
        return merge(self, table, rows, **options)

    monkeypatch.setattr(Ledger, "merge", late)
    file = put(tmp_path, "pay.json", json.dumps([{"cluster": "orders", "topic": "pay", "owner": "shipping"}]))
    loaded = load_files(ledger, file, replace=Replace(owners=owners), may_remove=3)
    gone = (Removed(cluster="orders", topic="gone", owner="shipping"),)
    assert loaded == Loaded(added=1, changed=0, unchanged=0, removed=1, removed_rows=gone)
    assert [topic for cluster, topic in keys(ledger) if cluster == "orders"] == ["configs", "owner", "pay"]
    assert run_rows(ledger)[-1]["counts"] == {"added": 1, "changed": 0, "unchanged": 0, "removed": 1}
    said = "rows of manifests changed after they were read, so they aren't removed: orders configs, orders owner"
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [said]


@pytest.mark.thorough
def test_row_changed_after_it_was_compared_is_not_loaded(
    spark: SparkSession,
    ledger: Ledger,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`apply` loads the files of its plan so: its command says which rows others have changed meanwhile."""
    shared_cluster(spark, ledger, {"mine": "shipping", "theirs": "shipping", "same": "pay"})
    merge, compared = Ledger.merge, ledger.read(MANIFESTS, ledger.latest_version(MANIFESTS))

    def late(self: Ledger, table: Table, rows: Any, **options: Any) -> int:
        ledger.update(MANIFESTS, "topic = 'theirs' AND cluster = 'orders'", {"owner": "'sales'"})
        shared_cluster(spark, ledger, {"new": "sales"})
        return merge(self, table, rows, **options)

    monkeypatch.setattr(Ledger, "merge", late)
    topics = ("mine", "theirs", "same", "new", "added")
    declared = [{"cluster": "orders", "topic": topic, "owner": "pay"} for topic in topics]
    file, settings = put(tmp_path, "pay.json", json.dumps(declared)), settings_for(ledger)
    parsed = read(settings, [file], io.StringIO())
    loaded = load(ledger, settings, parsed, compared={MANIFESTS.name: compared})
    assert (loaded.added, loaded.changed, loaded.unchanged) == (1, 1, 1)
    assert run_rows(ledger)[-1]["counts"] == {"added": 1, "changed": 1, "unchanged": 1, "removed": 0}
    owners = {row["topic"]: row["owner"] for row in dicts(ledger.read(MANIFESTS).where("cluster = 'orders'"))}
    assert owners == {"mine": "pay", "theirs": "sales", "same": "pay", "new": "sales", "added": "pay"}
    said = "rows of manifests changed after they were compared, so they aren't loaded: orders new, orders theirs"
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [said]


@pytest.mark.thorough
def test_load_is_recorded_with_requester_files_and_result(ledger: Ledger, tmp_path: Path) -> None:
    first, second = put(tmp_path, "first.yaml", FIRST), put(tmp_path, "second.yaml", SECOND)
    load_files(ledger, first, requested_by="alice")
    load_files(ledger, first, run_id="again")
    settings = settings_for(ledger)
    load(ledger, settings, read(settings, ["-"], io.StringIO(SECOND)))
    one, again, piped = run_rows(ledger)
    version = ledger.latest_version(MANIFESTS)
    assert [row["state"] for row in (one, again, piped)] == ["finished"] * 3
    assert [row["exit_code"] for row in (one, again, piped)] == [0] * 3
    assert [row["manifest_version"] for row in (one, again, piped)] == [version - 1, version - 1, version]
    assert one["counts"] == {"added": 3, "changed": 0, "unchanged": 0, "removed": 0}
    assert again["counts"] == {"added": 0, "changed": 0, "unchanged": 3, "removed": 0}
    assert piped["counts"] == {"added": 1, "changed": 1, "unchanged": 1, "removed": 0}
    assert one["arguments"] == {
        "command": "load_manifests",
        "clusters": "orders",
        "files": json.dumps([{"file": str(first), "sha256": hashlib.sha256(first.read_bytes()).hexdigest()}]),
    }
    assert (one["requested_by"], again["run_id"]) == ("alice", "again")
    assert again["requested_by"], "the OS user"
    sha256 = hashlib.sha256(second.read_bytes()).hexdigest()
    assert json.loads(piped["arguments"]["files"]) == [{"file": "-", "sha256": sha256}]
    with pytest.raises(UsageError, match="run again already exists"):
        load_files(ledger, first, run_id="again")


@pytest.mark.thorough
def test_row_of_a_load_lists_the_first_files_and_one_digest(ledger: Ledger, tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    for number in range(LISTED_FILES + 1):
        put(folder, f"{number:04}.json", json.dumps([{"cluster": "orders", "topic": f"t{number}"}]))
    load_files(ledger, folder)
    arguments = run_rows(ledger)[0]["arguments"]
    assert len(json.loads(arguments["files"])) == LISTED_FILES
    assert arguments["files_total"] == str(LISTED_FILES + 1)
    put(folder, f"{LISTED_FILES:04}.json", json.dumps([{"cluster": "orders", "topic": "other"}]))
    load_files(ledger, folder)
    other = run_rows(ledger)[1]["arguments"]
    assert other["files"] == arguments["files"]
    assert other["files_sha256"] != arguments["files_sha256"]


@pytest.mark.thorough
def test_failed_load_is_recorded_with_exit_code_1(ledger: Ledger, tmp_path: Path) -> None:
    file = put(tmp_path, "first.yaml", FIRST)
    ledger.spark.sql(f"ALTER TABLE {ledger.sql_name(MANIFESTS)} ADD CONSTRAINT none CHECK (topic <> 'comes')")
    second = put(tmp_path, "second.yaml", SECOND)
    load_files(ledger, file)
    with pytest.raises(TableError) as caught:
        load_files(ledger, second, run_id="failed")
    assert caught.value.run_id == "failed"
    row = run_rows(ledger)[-1]
    assert (row["run_id"], row["state"], row["exit_code"]) == ("failed", "finished", 1)
    assert row["counts"] == {"added": 0, "changed": 0, "unchanged": 0, "removed": 0}


@pytest.mark.thorough
def test_rows_without_a_topic_are_ignored(spark: SparkSession, tmp_path: Path) -> None:
    ledger = Ledger(spark, str(tmp_path))
    theirs = frame(spark, MANIFEST_ROWS, [{"cluster": "orders"}, {"topic": "a"}])
    theirs.write.format("delta").save(ledger.location(MANIFESTS))
    file = put(tmp_path, "orders.json", '{"cluster": "orders", "topic": "a"}')
    assert load_files(ledger, file) == Loaded(added=1, changed=0, unchanged=0, removed=0)
    assert load_files(ledger, file) == Loaded(added=0, changed=0, unchanged=1, removed=0)
    assert ledger.latest_version(MANIFESTS) == 1


@pytest.mark.thorough
def test_topic_in_two_equal_files_is_loaded_once(ledger: Ledger, tmp_path: Path) -> None:
    """C2"""
    row = {"cluster": "orders", "topic": "a", "assignments": {"0": [1, 2], "1": [2, 1]}, "configs": {"flush.ms": "1"}}
    turned = {**row, "assignments": {"1": [2, 1], "0": [1, 2]}}
    files = [put(tmp_path, f"{number}.json", json.dumps([each])) for number, each in enumerate([row, turned])]
    assert load_files(ledger, *files) == Loaded(added=1, changed=0, unchanged=0, removed=0)


def test_every_error_is_reported_with_its_place_before_any_write(spark: SparkSession, tmp_path: Path) -> None:
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
  - {topic: surprise, labels: {a: 0777}}
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

    def errors_of(*paths: Path, expected: Sequence[tuple[str, str]]) -> Sequence[str]:
        with pytest.raises(ManifestFileError) as error:
            load_files(ledger, *paths)
        *lines, last = [line.removeprefix(f"{tmp_path}/") for line in str(error.value).splitlines()]
        assert len(lines) == len(expected), lines
        for line, (start, part) in zip(lines, expected, strict=True):
            assert line.startswith(start), line
            assert part in line
        assert last == f"{len(expected)} errors: nothing was loaded or planned"
        assert error.value.exit_code == ExitCode.USAGE
        assert str(error.value).replace("\n", "").isprintable()
        assert not Path(ledger.root).exists()
        return lines

    lines = errors_of(
        one,
        two,
        tmp_path / "3.yaml",
        expected=[
            ("1.yaml:4: topic both: ", "assignments exclude num_partitions and replication_factor"),
            ("1.yaml:5: topic bad name: ", "ASCII letters"),
            ("1.yaml:6: topic gaps: ", "without gaps"),
            ("1.yaml:7: ", "quote"),
            ("1.yaml:8: ", "num_partitions"),
            ("2.jsonl:1: unknown cluster `order`; ", "did you mean `orders`?"),
            ("2.jsonl:2: topic good is declared differently at ", "1.yaml:3; keep one of them"),
            ("2.jsonl:3: ", ""),
            ("2.jsonl:4: topic odd: ", "state is gone"),
            ("3.yaml: ", "no such file or folder"),
        ],
    )
    assert "; num_partitions is 0" in lines[1], "each reason of a row is named"


def test_one_error_is_counted_as_one(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(ManifestFileError, match=r"\n1 error: nothing was loaded or planned$"):
        load_files(ledger, tmp_path / "missing.yaml")


@pytest.mark.thorough
def test_empty_files_change_nothing_even_with_replace(ledger: Ledger, tmp_path: Path) -> None:
    file = put(tmp_path, "empty.json", "[]")
    assert load_files(ledger, file, replace=Replace()) == Loaded(added=0, changed=0, unchanged=0, removed=0)
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


@pytest.mark.thorough
def test_foreign_file_is_loaded_and_unsupported_fields_are_listed(ledger: Ledger, tmp_path: Path) -> None:
    file = put(tmp_path, "topics.yaml", STRIMZI.replace("CLUSTER", "orders").replace("PARTITIONS", "1"))
    version = ledger.latest_version(MANIFESTS)
    loaded = load_files(ledger, file, foreign=Foreign(form="strimzi"))
    assert ledger.latest_version(MANIFESTS) == version + 1
    namespace = "the resource's place in Kubernetes"
    assert loaded == Loaded(
        added=2,
        changed=0,
        unchanged=0,
        removed=0,
        not_carried_over=tuple(
            NotCarriedOver(file=str(file), line=line, key="metadata.namespace", what=namespace) for line in (3, 8)
        ),
        skipped={"KafkaUser without ACLs and quotas": 1},
    )
    assert leftovers(loaded) == [
        f"not carried over: `metadata.namespace` ({namespace}), 2 times, first at {file}:3",
        "skipped: 1 KafkaUser without ACLs and quotas",
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


@pytest.mark.thorough
def test_foreign_files_are_checked_completely_before_any_write(ledger: Ledger, tmp_path: Path) -> None:
    """C2"""
    text = STRIMZI.replace("CLUSTER", "ordres").replace("PARTITIONS", "0").replace("invoices", "in/voices")
    file = put(tmp_path, "topics.yaml", text)
    with pytest.raises(ManifestFileError) as caught:
        load_files(ledger, file, foreign=Foreign(form="strimzi"))
    unknown = "unknown cluster `ordres`; did you mean `orders`?; --cluster NAME puts the topics on another cluster"
    *lines, last = str(caught.value).split("\n")
    assert lines[::2] == [f"{file}:{line}: {unknown}" for line in (1, 6)]
    assert [line.split(":")[2] for line in lines[1::2]] == [" topic in/voices", " topic orders"]
    assert last.startswith("4 errors: nothing was loaded or planned")
    with pytest.raises(ManifestFileError) as caught:
        load_files(ledger, file, foreign=Foreign(form="strimzi", cluster="billing"))
    first, second, last = str(caught.value).split("\n")
    assert first.startswith(f"{file}:1: topic in/voices: topic has a character")
    assert second.startswith(f"{file}:6: topic orders: num_partitions is 0")
    assert last == "2 errors: nothing was loaded or planned"
    assert keys(ledger) == []
    other = put(tmp_path, "other.yaml", STRIMZI.replace("CLUSTER", "ordres").replace("PARTITIONS", "1"))
    assert load_files(ledger, other, foreign=Foreign(form="strimzi", cluster="billing")).added == 2
    assert keys(ledger) == [("billing", "invoices"), ("billing", "orders")]


@pytest.mark.thorough
def test_a_listing_changes_what_it_says_and_removes_only_what_it_lacks(ledger: Ledger, tmp_path: Path) -> None:
    shared_cluster(ledger.spark, ledger, {"kept": "payments", "absent": "payments", "gone": "payments"})
    ledger.update(MANIFESTS, "topic = 'absent'", {"state": "'absent'"})
    line = "Topic: {}\tPartitionCount: 3\tReplicationFactor: 1\tConfigs: \n"
    file = put(tmp_path, "live.txt", "".join(map(line.format, ("kept", "absent", "new"))))
    cluster = '[clusters.orders]\nbootstrap_servers = ["nowhere.invalid:9092"]\n'
    guards = "[guards]\nmax_removed_rows = 1\n"
    config = put(tmp_path, "settings.toml", f'[tables]\nroot = "{ledger.root}"\n{cluster}{guards}')
    options = ("--from", "kafka-topics", "--cluster", "orders", "--replace", "--config", str(config))
    for more in (["--dry-run"], []):
        result = CliRunner().invoke(load_manifests, [str(file), *options, *more])
        assert result.exit_code == 0, result.output
        assert "1 added, 1 changed, 0 unchanged, 1 removed" in result.stdout
        assert "not carried over: `absent` (a row declares it absent, and stays)" in result.stderr
    rows = {row["topic"]: row for row in dicts(ledger.read(MANIFESTS).where("cluster = 'orders'"))}
    found = {topic: (row["owner"], row["state"], row["num_partitions"]) for topic, row in rows.items()}
    assert found == {
        "kept": ("payments", "present", 3),
        "absent": ("payments", "absent", None),
        "new": (None, "present", 3),
    }


def test_format_without_clusters_needs_the_cluster_option(ledger: Ledger, tmp_path: Path) -> None:
    file = put(tmp_path, "topics.txt", "")
    with pytest.raises(UsageError, match="--from kafka-topics needs --cluster NAME"):
        load_files(ledger, file, foreign=Foreign(form="kafka-topics"))
    with pytest.raises(UsageError, match="--stdin-format is for native files"):
        load_files(ledger, file, foreign=Foreign(form="julie", cluster="orders"), stdin_format="yaml")


@pytest.mark.thorough
def test_only_the_entries_of_the_named_clusters_are_loaded(ledger: Ledger, tmp_path: Path) -> None:
    text = FIRST + "---\ncluster: billing\ntopics: [{topic: kept}, {topic: 'not legal'}]\n"
    both = put(tmp_path, "both.yaml", text + "acls: [{consumer: {principal: 'User:a', topics: [kept], groups: [g]}}]\n")
    shared_cluster(ledger.spark, ledger, {"kept": "payments"})
    loaded = load_files(ledger, both, clusters=["orders"], replace=Replace(), may_remove=1)
    assert (loaded.added, loaded.removed, loaded.left_out) == (3, 1, {"billing": 5})
    assert keys(ledger) == [("billing", "kept"), *(("orders", topic) for topic in ("changes", "leaves", "same"))]
    (run,) = run_rows(ledger)
    assert run["arguments"]["clusters"] == "orders"
    nothing = load_files(ledger, both, clusters=["main"])
    assert (nothing.added, nothing.left_out) == (0, {"billing": 5, "orders": 3})
