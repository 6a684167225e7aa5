"""Group configs: entries of files, brokers that are too old, groups that aren't described, comparisons of values."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.harness import cluster_settings
from tests.unit.frames import dicts, frame
from topicledger.config.guards import OF_KINDS, GuardSettings
from topicledger.config.settings import Settings, TablesSettings
from topicledger.drift import beside
from topicledger.files.export_resources import export
from topicledger.files.exported import ExportRequest
from topicledger.files.exported_rows import REASON
from topicledger.files.reading import read_manifest_files
from topicledger.kafka.connection import Connection, TooOld
from topicledger.manifests.files import ParsedManifests
from topicledger.model import Refusal
from topicledger.observe.listed import Listed, ListedStatus, Undescribed
from topicledger.observe.topics import ClusterStatus
from topicledger.resources.group_configs import requests
from topicledger.resources.group_configs.actions import same_config
from topicledger.resources.group_configs.kind import KIND
from topicledger.resources.group_configs.names import TEXTS
from topicledger.resources.group_configs.rows import same_column
from topicledger.schemas import GROUP_CONFIGS, OBSERVED_GROUP_CONFIGS

FILES = {
    "yaml": "cluster: main\ndefaults: {owner: a}\ngroups:\n- {group: g 1, configs: {"
    "share.isolation.level: read_committed, consumer.session.timeout.ms: 46000}}\n- {group: gone, state: absent}\n",
    "json": '[{"cluster": "main", "owner": "a", "group": "g 1", "configs": {"share.isolation.level": "read_committed",'
    ' "consumer.session.timeout.ms": 46000}},\n{"cluster": "main", "owner": "a", "group": "gone", "state": "absent"}]',
    "csv": "cluster,owner,group,configs,state\n"
    'main,a,g 1,"{""share.isolation.level"": ""read_committed"", ""consumer.session.timeout.ms"": 46000}",\n'
    "main,a,gone,,absent\n",
}


def parse(folder: Path, suffix: str, text: str) -> ParsedManifests:
    path = folder / f"f.{suffix}"
    path.write_text(text, encoding="utf-8")
    return read_manifest_files([path], io.StringIO(""))


@pytest.mark.parametrize("suffix", FILES)
def test_every_format_of_files_declares_groups(tmp_path: Path, suffix: str) -> None:
    parsed = parse(tmp_path, suffix, FILES[suffix])
    assert parsed.errors == []
    assert [(row.cluster, row.owner, row.state, row.values) for row in parsed.rows_of("group_configs")] == [
        (
            "main",
            "a",
            "present",
            {
                "group": "g 1",
                "configs": {"share.isolation.level": "read_committed", "consumer.session.timeout.ms": "46000"},
            },
        ),
        ("main", "a", "absent", {"group": "gone", "configs": None}),
    ]


def test_wrong_entries_are_named_with_their_lines(tmp_path: Path) -> None:
    entries = ("{group: a, config: {x: 1}}", "{group: 1, configs: {x: 1}}", "{group: b, configs: [x]}")
    text = "\n- ".join(("cluster: main\ngroups:", *entries))
    assert [f"{each.line}: {each.message}" for each in parse(tmp_path, "yaml", text).errors] == [
        "3: unknown field `config`; did you mean `configs`?",
        "4: `group` must be a string, not the number 1; quote it",
        "5: `configs` must be a mapping, not a list",
    ]


def test_names_that_no_kafka_knows_are_warnings(tmp_path: Path) -> None:
    configs = "{share.session.timout.ms: 1, streams.assignor.name: x, fork.only: 1}"
    found = parse(tmp_path, "yaml", f"cluster: main\ngroups:\n- group: g\n  configs: {configs}\n")
    assert [f"{each.line}: {each.message}" for each in found.warnings] == [
        "4: unknown config `share.session.timout.ms`; did you mean `share.session.timeout.ms`?",
        "4: unknown config `fork.only`; only a newer Kafka or a fork may have it",
    ]


@pytest.mark.parametrize("ask", [requests.list_groups, lambda admin: requests.describe_groups(admin, ["a"])])
def test_brokers_before_4_1_are_not_asked(ask: Any) -> None:
    """They list config resources only for client metrics, if at all."""
    old = create_autospec(Connection, instance=True)
    old.name = "main"
    old.supports.return_value = False
    with pytest.raises(TooOld, match=r"main: its brokers are too old for group configs \(before Kafka 4\.1\)"):
        ask(old)
    old.ask.assert_not_called()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("46000", " 46000 ", True), ("true", "TRUE", True), ("a", "A", False), (None, None, True), ("1", None, False)],
)
def test_values_that_a_broker_reads_alike_are_the_same(one: str | None, other: str | None, same: bool) -> None:
    assert same_config("n", one, other) is same


@pytest.mark.parametrize("name", TEXTS)
def test_names_are_compared_as_texts(spark: SparkSession, name: str) -> None:
    """`042` and `42` are two topics for dead letters."""
    pairs = [("042", "42", False), ("TRUE", "true", False), ("a", "a", True), (None, None, True), ("a", None, False)]
    assert [same_config(name, one, other) for one, other, _ in pairs] == [same for *_, same in pairs]
    rows = spark.createDataFrame([(one, other) for one, other, _ in pairs], "one string, other string")
    found = rows.select(same_column(F.lit(name), F.col("one"), F.col("other")).alias("same")).collect()
    assert [bool(row["same"]) for row in found] == [same for *_, same in pairs]


def test_a_group_that_is_not_described_is_unknown_by_itself() -> None:
    """Its error is neither an empty group nor the answer about the others of its request."""
    config = SimpleNamespace(name="consumer.session.timeout.ms", value="46000", config_source=8)
    answers = {"denied": (30, []), "known": (0, [config]), "none": (0, []), "silent": (-1, [])}
    connection = create_autospec(Connection, instance=True)
    connection.name = "main"
    connection.needs.side_effect = lambda what: f"grant {what}"
    connection.ask.return_value = SimpleNamespace(
        results=[
            SimpleNamespace(resource_name=name, error_code=code, configs=configs)
            for name, (code, configs) in answers.items()
        ]
    )
    words = "cluster main: configs of group {} can't be described: "
    assert requests.describe_groups(connection, answers) == {
        "denied": Undescribed(
            error=Refusal.NOT_PERMITTED, message=words.format("denied") + "grant DescribeConfigs on the group"
        ),
        "known": {"consumer.session.timeout.ms": "46000"},
        "none": {},
        "silent": Undescribed(
            error=Refusal.NO_ANSWER,
            message=words.format("silent") + "brokers answer UNKNOWN_SERVER_ERROR; look for it in their logs",
        ),
    }


@pytest.mark.thorough
def test_undescribed_groups_end_only_their_own_rows(spark: SparkSession) -> None:
    """They are decided neither as missing nor as different, and audit reports them as unknown."""
    configs = {"consumer.session.timeout.ms": "46000"}
    seen = {"cluster": "main", "cluster_id": "id", "observed_at": datetime.now(UTC)}
    schema = OBSERVED_GROUP_CONFIGS.schema
    live = frame(spark, schema, [{**seen, "group": "other", "configs": {"a": "1"}}]).drop("run_id")
    undescribed = (
        frame(spark, schema, [{**seen, "group": name} for name in ("denied", "silent", "undeclared")])
        .drop("run_id")
        .withColumn("error", F.when(F.col("group") == "silent", F.lit("NO_ANSWER")).otherwise(F.lit("NOT_PERMITTED")))
        .withColumn("error_message", F.lit("why"))
    )
    listed = Listed(rows=live, statuses={"main": ListedStatus()}, undescribed=undescribed)
    assert {row["group"]: row["configs"] for row in dicts(listed.observed)} == {
        "other": {"a": "1"}, "denied": None, "silent": None, "undeclared": None,
    }  # fmt: skip
    rows = [{"cluster": "main", "group": name, "configs": configs} for name in ("denied", "silent", "other", "new")]
    validated = frame(spark, GROUP_CONFIGS.schema, rows).transform(KIND.rows.validate(["main"], None)).localCheckpoint()
    settings = Settings(
        path=Path("groups.toml"),
        tables=TablesSettings(root=""),
        clusters={"main": cluster_settings("main", "127.0.0.1:1")},
        guards=GuardSettings(of_kinds=dict.fromkeys(OF_KINDS, 100)),
    )
    statuses = {"main": ClusterStatus(cluster_id="id")}
    decided = dicts(validated.transform(KIND.deciding.decide(listed, statuses, settings, lambda rows: rows)))
    assert {row["resource"]: (row["decision"], row["phase"], row["outcome"], row["error"]) for row in decided} == {
        "denied": (None, "observe", "refused", "NOT_PERMITTED"),
        "silent": (None, "observe", "failed", "NO_ANSWER"),
        "other": ("alter_group_configs", None, None, None),
        "new": ("alter_group_configs", None, None, None),
    }
    found = validated.transform(KIND.drift.find(listed, validated, settings))
    for each in beside.unknown(listed, validated, KIND):
        found = found.unionByName(each)
    assert {(row["what"], row["kind"]) for row in dicts(found)} == {
        ("denied", "not_permitted"),
        ("silent", "not_permitted"),
        ("undeclared", "not_permitted"),
        ("other", "group_config_differs"),
        ("new", "group_config_missing"),
    }
    observed: Any = SimpleNamespace(observe=lambda *_: listed)
    ledger: Any = SimpleNamespace(spark=spark)
    declared = frame(spark, GROUP_CONFIGS.schema, [])
    request = ExportRequest(to=None, owner="a")
    exported = export(ledger, replace(KIND, observed=observed), [], settings, {}, request, declared)
    assert [row["group"] for row in dicts(exported.exported)] == ["other"]
    assert {each.resource: each.message for each in exported.messages(REASON)} == dict.fromkeys(
        ("denied", "silent", "undeclared"), "why"
    )
