"""A live cluster exported, loaded and audited: what an existing estate starts from says exactly what it has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic
from kafka.admin import ACLOperation, ACLResourcePatternType
from pyspark.sql import SparkSession

from tests import clusters, commands
from tests.broker.another_hand import AnotherHand
from tests.broker.changes import allow
from tests.broker.direct import admin_of, make
from tests.broker.invoking import invoke
from tests.harness import UNREACHABLE, Estate
from topicledger.config.settings import ChangeSettings
from topicledger.files import export as exporting
from topicledger.schemas import DRIFT, MANIFESTS
from topicledger_testing.embedded_kafka import EmbeddedKafka

TOPICS = 2_000
OVERRIDES: list[dict[str, str]] = [
    {},
    {"retention.ms": "604800000"},
    {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.25", "segment.ms": "3600000"},
    {"retention.bytes": "-1", "compression.type": "zstd", "preallocate": "true"},
    {"message.timestamp.type": "LogAppendTime", "max.message.bytes": " 2000000 "},
    {"leader.replication.throttled.replicas": "0:1", "unclean.leader.election.enable": "TRUE"},
    {"follower.replication.throttled.replicas": "*", "cleanup.policy": "compact, delete"},
]
IGNORED = "streams-app-changelog"
ODD_NAMES = ["no", "1e3", "0777", "null", "2026-11-21", "-", "_", "1_000", "x" * 249]


@pytest.fixture(scope="module")
def own() -> Iterator[EmbeddedKafka]:
    """A broker of our own, so that all of its topics are ours."""
    with clusters.plain() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def live(own: EmbeddedKafka) -> dict[str, NewTopic]:
    names = [*ODD_NAMES, *(f"export.{number:04}" for number in range(TOPICS - len(ODD_NAMES) - 1)), IGNORED]
    topics = [
        NewTopic(name, 1 + number % 3, 1, config=OVERRIDES[number % len(OVERRIDES)])
        for number, name in enumerate(names)
    ]
    # Kafka flags it as internal by its name.
    AnotherHand(own).create(*topics, NewTopic("__consumer_offsets", 1, 1))
    return {topic.topic: topic for topic in topics}


@pytest.fixture
def config(own: EmbeddedKafka, tmp_path: Path, spark: SparkSession) -> Path:
    assert spark is not None
    return commands.settings_file(tmp_path, {"main": own.bootstrap_servers, "dark": [UNREACHABLE]})


def audit(config: Path, *more: str) -> dict[str, Any]:
    result = invoke("drift", "--config", config, "--cluster", "main", "--format", "json", "--detailed-exitcode", *more)
    document: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == document["exit_code"]
    return document


@pytest.mark.thorough
def test_a_loaded_export_has_no_drift_and_equals_into_table(
    config: Path, live: dict[str, NewTopic], own: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "main.yaml"
    exported = invoke("export", "--config", config, "--cluster", "main", "--to", file)
    assert exported.exit_code == 0, exported.output
    assert f"{TOPICS}" in exported.stdout
    loaded = invoke("load_manifests", file, "--config", config)
    assert loaded.stdout == f"{TOPICS} added, 0 changed, 0 unchanged, 0 removed\n"
    estate = Estate(spark, tmp_path / "ledger", {"main": own})
    declared = {row["topic"]: row for row in estate.rows(MANIFESTS)}
    assert set(declared) == set(live)
    for topic, row in declared.items():
        assert row["num_partitions"] == live[topic].num_partitions
        # The throttles of a move are nobody's declaration.
        assert set(row["configs"] or {}) == set(live[topic].config) - set(ChangeSettings().ignore)
    assert audit(config)["drift_count"] == 0

    again = invoke("export", "--config", config, "--cluster", "main", "--into-table")
    assert again.exit_code == 0
    assert f"0 added, 0 changed, {TOPICS} unchanged" in again.stdout
    AnotherHand(own).set_configs("export.0001", {"retention.ms": "1"})
    found = audit(config)
    assert (found["exit_code"], [(each["topic"], each["what"]) for each in found["drift"]]) == (
        3,
        [("export.0001", "retention.ms")],
    )
    assert [row["kind"] for row in estate.rows(DRIFT)] == [found["drift"][0]["kind"]]


@pytest.mark.thorough
def test_a_selection_is_written_and_an_unreachable_cluster_reported(
    config: Path, live: dict[str, NewTopic], tmp_path: Path
) -> None:
    """Internal topics, and those that the settings leave to other tools, are left out."""
    config.write_text(f'{config.read_text()}[kafka]\nconnect_timeout = 2\n[scope]\nignore_topics = ["^{IGNORED}$"]\n')
    folder = tmp_path / "exported"
    chosen = ("--pattern", f"^(export[.]000|__|{IGNORED}$)", "--exclude", "[2-9]$")
    arguments = ("export", "--config", config, "--cluster", "main", "--cluster", "dark", "--to", folder, *chosen)
    result = invoke(*arguments, "--owner", "payments", "--with-assignments", "--format", "json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    file = folder / "main.yaml"
    assert document["clusters"] == [{"cluster": "main", "topics": 2, "file": str(file), "resources": {}}]
    assert "dark" in document["problems"][0]
    text = file.read_text()
    assert text.count("\n  - topic: ") == 2
    assert 'owner: "payments"' in text
    assert "assignments: {0: [1]" in text
    assert "num_partitions" not in text

    none = ("--pattern", "^none$", "--to", tmp_path / "acls.yaml", "--with-acls")
    without = invoke("export", "--config", config, "--cluster", "main", *none)
    assert (without.exit_code, "to export the rest, omit --with-acls" in without.stdout) == (1, True), without.output
    refused = invoke(*arguments)
    assert (refused.exit_code, "--overwrite" in refused.stderr) == (2, True)
    assert file.read_text() == text


@pytest.mark.thorough
def test_throttle_lists_of_a_move_are_neither_exported_nor_drift(
    config: Path, live: dict[str, NewTopic], tmp_path: Path
) -> None:
    """An export while replicas move; then the same file as an older export wrote it."""
    lists = {each: set(live[each].config) & set(ChangeSettings().ignore) for each in ("export.0003", "export.0004")}
    assert all(lists.values())
    file, chosen = tmp_path / "throttled.yaml", ("--pattern", "^export[.]000[34]$")
    exported = invoke("export", "--config", config, "--cluster", "main", "--to", file, *chosen)
    assert exported.exit_code == 0, exported.output
    text = file.read_text()
    assert "throttled.replicas" not in text
    assert text.count("configs:") == 2
    file.write_text(text.replace("configs: {", 'configs: {"leader.replication.throttled.replicas": "0:2", '))
    assert invoke("load_manifests", file, "--config", config).exit_code == 0
    config.write_text(config.read_text() + '[changes]\nconfigs = "exact"\n')
    planned = invoke("plan", "--config", config, "--cluster", "main", "--detailed-exitcode")
    assert planned.exit_code == 0, planned.output
    assert {each["topic"] for each in audit(config)["drift"] if each["kind"] != "unmanaged"} == set()


def test_an_export_keeps_what_only_the_table_knows(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a topic that is declared absent, and a row that another load adds while the cluster is observed."""
    make(kafka, *(f"export.000{number}" for number in range(3)))
    config = commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers})
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    kept = {"owner": "payments", "labels": {"tier": "gold"}, "description": "Money", "placement": "spread"}
    estate.declare({"topic": "export.0000", "num_partitions": 99, **kept}, {"topic": "export.gone"})
    estate.declare({"topic": "export.0001", "state": "absent"})
    adopt = exporting.adopt

    def late(*arguments: Any) -> Any:
        estate.declare({"topic": "export.0002", "num_partitions": 77})
        return adopt(*arguments)

    monkeypatch.setattr(exporting, "adopt", late)
    asked = ("--cluster", "main", "--pattern", "^export[.]000[012]$")
    result = invoke("export", "--config", config, *asked, "--into-table")
    assert "0 added, 1 changed, 0 unchanged" in result.stdout
    assert "changed after they were compared, so they aren't loaded: main export.0002" in result.stderr
    rows = {row["topic"]: row for row in estate.rows(MANIFESTS)}
    assert set(rows) == {"export.0000", "export.0001", "export.0002", "export.gone"}
    assert (rows["export.0001"]["state"], rows["export.0002"]["num_partitions"]) == ("absent", 77)
    assert {name: rows["export.0000"][name] for name in kept} == kept
    assert rows["export.0000"]["num_partitions"] == 1
    file = tmp_path / "again.yaml"
    assert invoke("export", "--config", config, *asked, "--to", file).exit_code == 0
    again = invoke("load_manifests", file, "--config", config, "--dry-run")
    assert "1 changed, 1 unchanged" in again.stdout


@pytest.mark.thorough
def test_an_export_proposes_owners_and_splits_by_them(
    config: Path, live: dict[str, NewTopic], own: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Owners: of a manifest, of [owners], of a prefix. An owner that [owners] doesn't allow is never proposed."""
    config.write_text(config.read_text() + "[owners.Billing]\ntopics = ['^export[.]000[12]$']\n")
    estate = Estate(spark, tmp_path / "ledger", {"main": own})
    estate.declare({"topic": "export.0003", "owner": "orders"})
    chosen = ("export", "--config", config, "--cluster", "main", "--pattern", "^(export[.]000[1-4]|no|null)$")
    file = tmp_path / "all.yaml"
    assert invoke(*chosen, "--to", file).exit_code == 0
    top, *lines = file.read_text().splitlines()
    assert top == 'cluster: "main"'
    noted = [line for line in lines if "#" in line]
    why = "  # owner orders is proposed: owns the 1 declared topic with prefix export."
    assert noted == [f'  - topic: "export.0004"{why}']

    folder = tmp_path / "split"
    split = (*chosen, "--to", folder, "--split", "owner", "--with-quotas")
    document = json.loads(invoke(*split, "--format", "json").stdout)
    assert {(each["file"], each["topics"]) for each in document["clusters"]} == {
        (str(folder / owner / "main.yaml"), 2) for owner in ("unowned", "billing", "orders")
    }
    assert 'owner: "Billing"' in (folder / "billing" / "main.yaml").read_text()
    assert [path.parent.name for path in folder.glob("*/*") if "quotas: []" in path.read_text()] == ["unowned"]
    again = invoke(*split)
    assert (again.exit_code, "billing/main.yaml" in again.stderr) == (2, True)
    loaded = invoke("load_manifests", *sorted(folder.glob("*/*.yaml")), "--config", config, "--dry-run")
    assert loaded.exit_code == 0, loaded.output

    assert invoke(*chosen, "--into-table").exit_code == 0
    owners = {row["topic"]: row["owner"] for row in estate.rows(MANIFESTS)}
    assert (owners["export.0001"], owners["export.0003"], owners["export.0004"]) == ("Billing", "orders", None)


@pytest.mark.thorough
def test_topics_that_can_not_be_described_are_listed_and_not_exported(
    kafka_sasl: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    make(kafka_sasl, "exported.seen", "exported.half", "exported.hidden")
    with admin_of(kafka_sasl) as admin:
        admin._admin.create_acls(
            [
                allow("creator", ACLOperation.DESCRIBE, "exported.half", ACLResourcePatternType.LITERAL),
                allow("creator", ACLOperation.DESCRIBE, "exported.seen", ACLResourcePatternType.LITERAL),
                allow("creator", ACLOperation.DESCRIBE_CONFIGS, "exported.seen", ACLResourcePatternType.LITERAL),
            ]
        )
    client = """
[clusters.main.client]
security_protocol = "SASL_PLAINTEXT"
sasl_mechanism = "PLAIN"
sasl_plain_username = "creator"
sasl_plain_password = "file:PASSWORD"
"""
    secret = tmp_path / "password"
    secret.write_text(clusters.SASL_USERS["creator"])
    more = client.replace("PASSWORD", str(secret))
    config = commands.settings_file(tmp_path, {"main": kafka_sasl.bootstrap_servers}, more=more)
    file = tmp_path / "out.json"
    result = invoke(
        "export", "--config", config, "--cluster", "main", "--to", file, "--pattern", "^exported[.]", "--format", "json"
    )
    assert result.exit_code == 4, result.output
    document = json.loads(result.stdout)
    assert [each["topic"] for each in document["not_exported"]] == ["exported.half"]
    (seen,) = json.loads(file.read_text())
    assert (seen["topic"], seen["num_partitions"], "replication_factor" in seen) == ("exported.seen", 1, False)
    (note,) = (each for each in document["notes"] if each["topic"])
    assert note["message"] == "it is unknown whether its replicas are being moved: replication_factor is left out"

    secret.write_text(clusters.SASL_USERS["admin"])
    config.write_text(config.read_text().replace('"creator"', '"admin"'))
    rights = tmp_path / "rights.json"
    result = invoke(
        "export", "--config", config, "--cluster", "main", "--to", rights, "--pattern", "^no$", "--with-acls"
    )
    assert result.exit_code == 0, result.output
    rows = json.loads(rights.read_text())
    assert {"exported.half", "exported.seen"} <= {each["resource_name"] for each in rows}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--to", "x.yaml"), "needs --cluster"),
        (("--cluster", "main"), "one of --to and --into-table"),
        (("--cluster", "main", "--to", "x.yaml", "--into-table"), "one of --to and --into-table"),
        (("--cluster", "main", "--to", "x.csv"), "must end in"),
        (("--cluster", "main", "--to", "x.yaml", "--split", "owner"), "needs a folder"),
        (("--cluster", "main", "--into-table", "--split", "owner"), "needs --to, a folder"),
        (("--cluster", "main", "--cluster", "dark", "--to", "x.yaml"), "need a folder"),
        (("--cluster", "main", "--to", "x.yaml", "--pattern", "("), "RE2"),
    ],
)
@pytest.mark.usefixtures("spark")
def test_wrong_options_exit_2(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    config = commands.settings_file(tmp_path, {"main": [UNREACHABLE], "dark": [UNREACHABLE]})
    result = invoke("export", "--config", config, *arguments)
    assert (result.exit_code, message in result.stderr) == (2, True), result.output
