"""A live topic as a manifest row, and rows in files that are read back as they were."""

from __future__ import annotations

import io
import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from tests.commands import REPOSITORY
from tests.unit.frames import MANIFEST_ROWS, by_topic, frame
from topicledger.config.settings import ClusterSettings, Owners, OwnerSettings
from topicledger.files.export import _files, _folder, _name_left, _write
from topicledger.files.exported import ClusterExport, ExportRequest, TopicMessage, folded, top_notes
from topicledger.files.exported_rows import TableExport
from topicledger.files.reading import read_manifest_files
from topicledger.files.writing import write_manifests
from topicledger.manifests.files import FIELDS, ManifestRow
from topicledger.resources.topics.files.export_topics import _selected, as_manifests, with_owned_by_others
from topicledger.schemas import CONFIGS, DECLARING, OBSERVED

LIVE = StructType(
    [
        *OBSERVED.schema,
        StructField("configs", CONFIGS),
        StructField("config_error", StringType()),
        StructField("moving", BooleanType()),
        StructField("unknown", StringType()),
    ]
)
OUT = StructType([*MANIFEST_ROWS, StructField("not_exported", StringType()), StructField("note", StringType())])


def config(name: str, value: str | None, source: str = "DYNAMIC_TOPIC_CONFIG", sensitive: bool = False) -> Any:
    return {"name": name, "value": value, "config_source": source, "is_sensitive": sensitive}


IGNORED = {"main": ("throttled",)}
TWO = {"num_partitions": 2, "replication_factor": 2, "assignments": {0: [1, 2], 1: [2, 1]}}
TOPICS: list[dict[str, Any]] = [
    {"topic": "plain", **TWO, "configs": [config("a", "1", "DEFAULT_CONFIG")]},
    {"topic": "set", **TWO, "configs": [config("a", "1"), config("b", ""), config("c", "2", "STATIC_BROKER_CONFIG")]},
    {"topic": "throttled", **TWO, "configs": [config("a", "1"), config("throttled", "0:1")]},
    {"topic": "secret", **TWO, "configs": [config("a", "1"), config("s", None, sensitive=True)]},
    {"topic": "uneven", **TWO, "assignments": {0: [1, 2], 1: [2]}, "configs": []},
    {
        "topic": "moved",
        "num_partitions": 2,
        "replication_factor": 4,
        "assignments": {0: [3, 4, 1, 2], 1: [1, 2]},
        "configs": [],
        "moving": True,
    },
    {"topic": "hidden", **TWO, "config_error": "TOPIC_AUTHORIZATION_FAILED"},
    {"topic": "silent", "unknown": "UNKNOWN_SERVER_ERROR"},
]


def exported(spark: SparkSession, owner: str | None, *, with_assignments: bool, unlisted: Collection[str] = ()) -> Any:
    live = frame(spark, LIVE, ({"cluster": "main", **row} for row in TOPICS))
    return live.transform(as_manifests(owner, IGNORED, with_assignments=with_assignments, unlisted=unlisted))


def test_a_manifest_has_what_is_set_on_the_topic_and_no_secret(spark: SparkSession) -> None:
    rows = by_topic(exported(spark, None, with_assignments=False))
    usual = {"cluster": "main", "state": "present", "num_partitions": 2, "replication_factor": 2}
    nothing = dict.fromkeys(
        ("assignments", "configs", "owner", "labels", "placement", "replaces", "description", "not_exported", "note")
    )
    assert rows["main", "plain"] == {**nothing, **usual, "topic": "plain"}
    assert rows["main", "set"] == {**nothing, **usual, "topic": "set", "configs": {"a": "1", "b": ""}}
    assert rows["main", "throttled"] == {**nothing, **usual, "topic": "throttled", "configs": {"a": "1"}}
    secret = rows["main", "secret"]
    assert (secret["configs"], secret["note"]) == ({"a": "1"}, "sensitive, so not exported: s")
    uneven = rows["main", "uneven"]
    assert (uneven["num_partitions"], uneven["replication_factor"]) == (2, None)
    assert "different numbers of replicas" in uneven["note"]
    moved = rows["main", "moved"]
    assert (moved["num_partitions"], moved["replication_factor"]) == (2, None)
    assert moved["note"] == "its replicas are being moved: replication_factor is left out"
    hidden = rows["main", "hidden"]
    assert hidden["not_exported"] == "its configs can't be described: TOPIC_AUTHORIZATION_FAILED"
    assert hidden["note"] is None
    silent = rows["main", "silent"]
    assert silent["not_exported"] == "brokers answer an error about it: UNKNOWN_SERVER_ERROR"


def test_a_given_owner_that_may_not_declare_a_topic_is_noted(spark: SparkSession) -> None:
    """A load of the file refuses the row."""
    owners = Owners(names={"payments": OwnerSettings(topics=("^plain",)), "billing": OwnerSettings(topics=("^set",))})
    rows = by_topic(exported(spark, "Payments", with_assignments=False).transform(with_owned_by_others(owners)))
    assert rows["main", "plain"]["note"] is None
    assert "billing" in rows["main", "set"]["note"]
    assert rows["main", "secret"]["note"].startswith("sensitive, so not exported: s; ")
    assert rows["main", "set"]["owner"] == "Payments"


def test_assignments_take_the_place_of_counts_where_asked_for(spark: SparkSession) -> None:
    """C1, C3: uneven ones would be refused, and those of a move under way have too many replicas."""
    rows = exported(spark, "payments", with_assignments=True).where("topic in ('moved', 'plain', 'uneven')")
    expected = [
        {
            "topic": "moved",
            "num_partitions": 2,
            "note": "its replicas are being moved: replication_factor is left out",
        },
        {"topic": "plain", "assignments": {0: [1, 2], 1: [2, 1]}},
        {
            "topic": "uneven",
            "num_partitions": 2,
            "note": "its partitions have different numbers of replicas: replication_factor is left out",
        },
    ]
    common = {"cluster": "main", "state": "present", "owner": "payments"}
    wanted = frame(spark, OUT, ({**common, **row} for row in expected))
    maps = ("configs", "labels", "assignments")
    assert_df_equality(rows.drop(*maps), wanted.drop(*maps), ignore_row_order=True, ignore_nullable=True)
    assert [row["assignments"] for row in rows.orderBy("topic").collect()] == [None, {0: [1, 2], 1: [2, 1]}, None]


def test_a_topic_that_may_be_moving_has_neither_a_factor_nor_assignments(spark: SparkSession) -> None:
    """Brokers count old and new replicas of a move; unknown is never taken for none."""
    rows = by_topic(exported(spark, None, with_assignments=True, unlisted=["main"]))
    found = {
        topic: (row["num_partitions"], row["replication_factor"], row["assignments"], row["note"])
        for (_, topic), row in rows.items()
        if topic in ("plain", "uneven", "moved")
    }
    unknown = "it is unknown whether its replicas are being moved: replication_factor is left out"
    moved = "its replicas are being moved: replication_factor is left out"
    assert found == {
        "plain": (2, None, None, unknown), "uneven": (2, None, None, unknown), "moved": (2, None, None, moved),
    }  # fmt: skip


def test_every_pattern_of_topics_and_of_topics_to_leave_out_counts(spark: SparkSession) -> None:
    request = ExportRequest(to=None, patterns=("^a", "^b"), exclude=("1$", "2$"))
    names = spark.createDataFrame([(each,) for each in ("a", "a1", "b", "b2", "c")], "topic string")
    assert {row["topic"] for row in names.where(_selected(request)).collect()} == {"a", "b"}


SURPRISING = ["no", "1_000", "0777", "2026-11-21", "null", "~", "", " ", "1e3", "a: b", "# x", "'", '"', "\\", "{", "-"]


def row(topic: str, **fields: Any) -> dict[str, Any]:
    return {**dict.fromkeys(FIELDS), "state": "present", "topic": topic, **fields}


def read_back(path: Path) -> list[ManifestRow]:
    parsed = read_manifest_files([path], io.StringIO())
    assert parsed.errors == []
    return parsed.rows


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_a_null_label_is_left_out_of_files(tmp_path: Path, suffix: str) -> None:
    """Other writers may leave one in the table; a file can't have it, and None isn't its text."""
    path = tmp_path / f"out.{suffix}"
    write_manifests(path, "main", {"manifests": [row("t", labels={"tier": None, "x": "y"})]}, [])
    assert [each.labels for each in read_back(path)] == [{"x": "y"}]


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_written_files_are_read_back_exactly(tmp_path: Path, suffix: str) -> None:
    rows = [
        row(
            "no", num_partitions=3, replication_factor=2, owner="yes", configs={"y": "no", "retention.ms": "604800000"}
        ),
        row("1e3", assignments={0: [1, 2], 1: [2, 1]}, labels={"tier": "~"}),
        *(row(f"topic-{number}", configs={"a": text}, labels={text: "c"}) for number, text in enumerate(SURPRISING)),
        row("long", labels={"k" * 1_023: "v", "k" * 2_000: "w", "ü" * 400 + "\x01" * 300: "x"}),
        row("last", owner="line\nbreak \x1b[2J \u2028 \ufeff \x85 \U0001f600 ü"),
    ]
    path = tmp_path / f"out.{suffix}"
    assert write_manifests(path, "it's\x07: a", {"manifests": rows}, ["a note\nof two lines: \x1b"]) == {
        "manifests": len(rows)
    }
    found = read_back(path)
    assert [each.cluster for each in found] == ["it's\x07: a"] * len(rows)
    for written, read in zip(rows, found, strict=True):
        for name in FIELDS[1:]:
            value = getattr(read, name)
            if name == "assignments" and value is not None:
                value = {partition: list(brokers) for partition, brokers in value.items()}
            assert value == written[name], (name, written)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_units_are_written_and_read_back_as_plain_numbers(tmp_path: Path, suffix: str) -> None:
    configs = {"retention.ms": "604800000", "segment.bytes": "1073741824", "flush.ms": "1500", "new.ms": "86400000"}
    path = tmp_path / f"out.{suffix}"
    write_manifests(path, "main", {"manifests": [row("a", configs=configs), row("b")]}, [], units=True)
    for text in ('"7d"', '"1GiB"', '"1500"', '"86400000"'):
        assert text in path.read_text()
    assert [each.configs for each in read_back(path)] == [configs, None]


def test_a_note_stands_beside_its_topic_and_is_not_read_back(tmp_path: Path) -> None:
    path = tmp_path / "out.yaml"
    note = "owner a: b is proposed: # 'x\n" + "y" * 5_000
    rows = [{**row("noted", owner="a: b"), "note": note}, row("plain")]
    write_manifests(path, "main", {"manifests": rows}, ["on top"])
    top, cluster, topics, noted, *_ = path.read_text().splitlines()
    assert (top, cluster, topics) == ("# on top", 'cluster: "main"', "topics:")
    assert noted.startswith('  - topic: "noted"  # owner a: b is proposed: # \'x\\ny')
    assert [(each.topic, each.owner) for each in read_back(path)] == [("noted", "a: b"), ("plain", None)]


def test_the_same_message_is_one_line_with_the_first_names() -> None:
    def message(cluster: str, topic: str | None, text: str) -> TopicMessage:
        return TopicMessage(cluster=cluster, topic=topic, message=text)

    given = [message("main", f"t.{number}", "owner a is proposed") for number in range(138)]
    given += [
        message("main", "odd", "sensitive"),
        message("eu", "t.1", "owner a is proposed"),
        message("eu", None, "x"),
    ]
    assert folded(given) == [
        ("main", "t.0, t.1, t.2 and 135 more: owner a is proposed"),
        ("main", "odd: sensitive"),
        ("eu", "t.1: owner a is proposed"),
        ("eu", "x"),
    ]


HOST = "host is {}; brokers compare hosts with addresses: write an address"
NAME = "resource_name is {}, which is not a legal topic name or prefix"


@pytest.mark.parametrize(("reason", "own"), [(HOST, "app{}.example.org"), (NAME, "orders-{}")])
def test_messages_that_differ_in_values_of_their_own_resource_are_one_line(reason: str, own: str) -> None:
    messages = [
        TopicMessage(
            cluster="main",
            topic=None,
            message=reason.format(own.format(number)),
            resource_type="acl",
            resource=f"User:a ALLOW READ TOPIC LITERAL {own.format(number)}",
        )
        for number in range(138)
    ]
    ((_, line),) = folded(messages)
    assert line.endswith(f" and 135 more: {reason.format(own.format(0))}")


def test_a_file_has_at_most_twenty_lines_of_notes_on_top() -> None:
    messages = [
        TopicMessage(cluster=name, topic=f"t{number}", message=f"replaced by new.{number}, which a row declares")
        for number in range(138)
        for name in ("main", "eu")
    ]
    lines = top_notes(messages, "main")
    assert lines[:2] == [f"t{number}: replaced by new.{number}, which a row declares" for number in range(2)]
    assert lines[20:] == ["and 118 more lines; `export --format json` has all of them"]
    assert top_notes(messages[:1], "main") == lines[:1]


def test_no_file_of_a_cluster_is_hidden(tmp_path: Path) -> None:
    """Loads of a folder leave hidden files out."""
    names = [".eu", "..", "eu/1", "eu"]
    clusters = [ClusterSettings(name=name, bootstrap_servers=("h:1",)) for name in names]
    files = _files(clusters, ExportRequest(to=tmp_path / "files"))
    assert [files[name].name for name in names] == ["%2Eeu.yaml", "%2E..yaml", "eu%2F1.yaml", "eu.yaml"]


@pytest.mark.parametrize("owner", ["..", ".", "unowned", "a/b", "../../etc", "x" * 5_000, "ü" * 300, "\0", "a b"])
def test_any_owner_is_a_folder_of_its_own(tmp_path: Path, owner: str) -> None:
    folder = tmp_path / _folder(owner)
    folder.mkdir()
    assert [each.parent for each in tmp_path.iterdir()] == [tmp_path]
    assert folder.resolve().parent == tmp_path.resolve()
    assert folder.name != "unowned"


OWNED: dict[str, list[dict[str, Any]]] = {
    "manifests": [{"topic": "t1", "owner": " Payments"}, {"topic": "t2", "owner": "billing"}, {"topic": "t3"}],
    "quotas": [{"user": "p", "owner": "payments", "producer_byte_rate": 1.0}, {"user": "n", "producer_byte_rate": 1.0}],
    "group_configs": [{"group": "g", "owner": "search", "configs": {"a": "1"}}],
}


def split(spark: SparkSession, folder: Path, rows: dict[str, list[dict[str, Any]]], owner: str | None = None) -> Any:
    tables = [
        TableExport(
            table=table,
            resource_type=table.name,
            text=F.lit("x"),
            rows=frame(
                spark,
                StructType([*table.schema, StructField("not_exported", StringType())]),
                [{"cluster": "main", "state": "present", **each} for each in those],
            ),
            problems={},
        )
        for table, those in ((table, rows[table.name]) for table in DECLARING if table.name in rows)
    ]
    note = TopicMessage(cluster="main", topic="hidden", message="its configs can't be described")
    request = ExportRequest(to=folder, split="owner", owner=owner)
    done = list(_write(folder / "unowned" / "main.yaml", "main", tables, [note], request))
    assert sorted(str(each.file) for each in done) == sorted(map(str, folder.glob("*/*")))
    return {path.parent.name: path.read_text() for path in folder.glob("*/main.yaml")}


def test_rows_of_every_kind_go_into_the_file_of_their_owner(spark: SparkSession, tmp_path: Path) -> None:
    files = split(spark, tmp_path, OWNED)
    named = {owner: re.findall(r"(?:topic|user|group): (.*?)[,\n]", text) for owner, text in files.items()}
    assert named == {
        "payments": ['"t1"', '"p"'],
        "billing": ['"t2"'],
        "search": ['"g"'],
        "unowned": ['"t3"', '"n"'],
    }
    assert [owner for owner, text in files.items() if "# hidden: its configs" in text] == ["unowned"]
    assert "groups: []" in files["unowned"], "a section for each requested kind"
    assert "quotas" not in files["billing"]
    assert "topics: []" in files["search"]
    read_back(tmp_path / "search" / "main.yaml")


def test_files_of_owners_without_anything_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Loaded again, they would declare what is gone or has another owner."""
    for owner in ("payments", "gone", "unowned"):
        (tmp_path / owner).mkdir()
        (tmp_path / owner / "main.yaml").write_text("topics: []")
    done = [ClusterExport(cluster="main", topics=1, file=str(tmp_path / "payments" / "main.yaml"))]
    request = ExportRequest(to=tmp_path, split="owner", overwrite=True)
    own = [tmp_path / "unowned" / "main.yaml"]
    _name_left(own, done, request)
    (said,) = [record.getMessage() for record in caplog.records]
    left = [str(tmp_path / owner / "main.yaml") for owner in ("gone", "unowned")]
    assert said == f"files of owners without anything, left as they were: {', '.join(left)}"
    _name_left(own, done, replace(request, patterns=("^a",)))
    assert len(caplog.records) == 1, "a part of a cluster says nothing about the rest"


@pytest.mark.parametrize(("owner", "folder"), [(None, "unowned"), ("Payments", "payments")])
def test_a_cluster_without_anything_to_export_has_one_file(
    spark: SparkSession, tmp_path: Path, owner: str | None, folder: str
) -> None:
    files = split(spark, tmp_path, {"manifests": [], "quotas": []}, owner)
    assert list(files) == [folder]
    assert "topics: []\nquotas: []" in files[folder]


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_a_cluster_without_topics_is_a_file_without_rows(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"none.{suffix}"
    assert write_manifests(path, "main", {"manifests": []}, []) == {"manifests": 0}
    assert read_back(path) == []


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_read_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("any") / "out.yaml"
    write_manifests(path, "main", {"manifests": [row("a", configs={"x": text}, owner=text)]}, [text])
    (found,) = read_back(path)
    assert (found.configs, found.owner) == ({"x": text}, text)


def test_a_file_without_owners_gets_one_as_the_page_says(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "adopt.md").read_text(encoding="utf-8")
    (said,) = re.findall(r"`unowned` an `owner`, or add `(defaults: .*?)` to their file", page)
    path = tmp_path / "unowned.yaml"
    write_manifests(path, "main", {"manifests": [row("a")]}, ["a note"])
    assert [each.owner for each in read_back(path)] == [None]
    path.write_text(f"{path.read_text()}{said}\n")
    assert [each.owner for each in read_back(path)] == ["NAME"]
