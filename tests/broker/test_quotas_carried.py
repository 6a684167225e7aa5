"""Quotas that a cluster has become rows of `quotas`, and a plan of these rows finds nothing to do."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import clusters, commands
from tests.broker.invoking import invoke
from tests.broker.quotas import alter, declare, described, estate_of, live
from tests.harness import policy
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import PolicySettings
from topicledger.errors import ExitCode
from topicledger.files import export as exporting
from topicledger.files.load import load
from topicledger.files.read import read
from topicledger.resources.quotas.entity import Entity
from topicledger.resources.registry import KINDS
from topicledger.schemas import AUDIT, PLANS, QUOTAS
from topicledger_testing.embedded_kafka import EmbeddedKafka

TOOLS = clusters.JARS.with_name("kafka-tools")
WANTED: Mapping[Entity, Mapping[str, float]] = {
    Entity(user="CN=b, O=\u00fc\\"): {"producer_byte_rate": 1e9, "request_percentage": 12.5},
    Entity(user="a", client_id="one two"): {"consumer_byte_rate": 2e6},
    Entity(user="a", client_id="<default>"): {"controller_mutation_rate": 0.5},
    Entity(user="<default>"): {"producer_byte_rate": 3e9},
    Entity(client_id="\\<default>"): {"producer_byte_rate": 5.0},
    Entity(ip="10.0.0.1"): {"connection_creation_rate": 9.0},
    Entity(ip="<default>"): {"connection_creation_rate": 900.0},
    Entity(user="stranger"): {"producer_byte_rate": 77.0},
}


def settings(kafka: EmbeddedKafka, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return commands.admins_settings(folder, kafka, kafka.bootstrap_servers, monkeypatch)


@pytest.fixture
def wanted(spark: SparkSession, kafka_quotas: EmbeddedKafka, tmp_path: Path) -> EmbeddedKafka:
    """The broker, with quotas of every kind of entity."""
    estate = estate_of(spark, kafka_quotas, tmp_path / "setting-up")
    declare(estate, *({**entity._asdict(), **limits} for entity, limits in WANTED.items()))
    assert estate.run().exit_code == 0
    assert live(kafka_quotas) == WANTED
    return kafka_quotas


@pytest.mark.thorough
@pytest.mark.timeout(400)
def test_quotas_that_the_tool_describes_are_loaded_as_they_are(
    spark: SparkSession, wanted: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "described.txt"
    kinds = (("users",), ("clients",), ("users", "clients"), ("ips",))
    file.write_text("".join(described(wanted, tmp_path, *each) for each in kinds))
    config = settings(wanted, tmp_path, monkeypatch)
    options = (file, "--config", config, "--from", "kafka-configs", "--cluster", "main")
    loaded = invoke("load_manifests", *options)
    assert loaded.exit_code == 0, loaded.output + file.read_text()
    assert f"quotas: {len(WANTED)} added" in loaded.output
    planned = invoke("plan", "--config", config, "--run-id", "carried", "--detailed-exitcode")
    assert planned.exit_code == 0, planned.output
    estate = estate_of(spark, wanted, tmp_path)
    assert estate.rows(PLANS, "carried") == []
    assert len(estate.rows(QUOTAS)) == len(WANTED)


@pytest.mark.thorough
@pytest.mark.timeout(400)
@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_a_load_of_exported_quotas_plans_nothing(
    suffix: str, spark: SparkSession, wanted: EmbeddedKafka, tmp_path: Path
) -> None:
    """Q2, Q4: every kind of entity; what no manifest can declare is listed."""
    alter(wanted, Entity(user="endless"), request_percentage=float("inf"))
    estate = estate_of(spark, wanted, tmp_path)
    (quotas,) = (each for each in KINDS if each.table is QUOTAS)
    file = tmp_path / f"main.{suffix}"

    def exported(to: Path | None, **more: bool) -> exporting.Exported:
        request = exporting.ExportRequest(to=to, owner="payments" if to else None, resources=[quotas], **more)
        return exporting.export(estate.ledger, estate.settings, list(estate.settings.clusters.values()), request)

    found = exported(file)
    assert found.exit_code == ExitCode.TOPICS_FAILED
    assert [each.resource for each in found.not_exported] == ["user=endless"]
    assert found.clusters[0].resources == {"quotas": len(WANTED)}
    loaded = load(estate.ledger, estate.settings, read(estate.settings, [file], io.StringIO()))
    assert loaded.resources["quotas"]["added"] == len(WANTED)
    again = estate.run("plan", only=("quotas",))
    assert (again.exit_code, estate.rows(PLANS, again.run_id)) == (0, [])
    assert again.decisions["quotas_unchanged"] == len(WANTED)
    into = exported(None)
    assert into.loaded is not None
    assert into.loaded.resources["quotas"] == {"added": 0, "changed": 0, "unchanged": len(WANTED), "removed": 0}
    assert {row["owner"] for row in estate.rows(QUOTAS)} == {"payments"}
    alter(wanted, Entity(user="new"), request_percentage=1.0)
    assert exported(tmp_path / f"new.{suffix}", unmanaged=True).clusters[0].resources == {"quotas": 1}


@pytest.mark.thorough
@pytest.mark.timeout(400)
def test_reverting_a_run_gives_entities_the_limits_that_they_had(
    spark: SparkSession,
    kafka_quotas: EmbeddedKafka,
    tmp_path: Path,
) -> None:
    """Limits that the run didn't touch stay; what another hand, or a later run, changed since is skipped."""
    estate = estate_of(spark, kafka_quotas, tmp_path)
    names = ("changed", "by hand", "later", "gone")
    declare(estate, *({"user": name, "producer_byte_rate": 1.0, "request_percentage": 5.0} for name in names))
    assert estate.run().outcomes() == {"ok": 4}
    rows = [{"user": name, "producer_byte_rate": 2.0, "request_percentage": 5.0} for name in names[:3]]
    new = {"user": "new", "client_id": "<default>", "consumer_byte_rate": 7.0}
    declare(estate, *rows, {"user": "gone", "state": "absent"}, new)
    assert estate.run(run_id="change").outcomes() == {"ok": 5}
    declare(estate, *rows[:2], {**rows[2], "producer_byte_rate": 3.0}, {"user": "gone", "state": "absent"})
    assert estate.run(run_id="later").outcomes() == {"ok": 1}
    alter(kafka_quotas, Entity(user="by hand"), producer_byte_rate=9.0)
    alter(kafka_quotas, Entity(user="changed"), consumer_byte_rate=8.0)

    estate.settings = replace(estate.settings, guards=GuardSettings(of_kinds={"max_quota_changes": 2}))
    assert estate.run("plan", "too-many", reverts="change").exit_code == 5
    estate.settings = replace(estate.settings, guards=GuardSettings(of_kinds={"max_quota_changes": 3}))
    plan = estate.run("plan", "undo", reverts="change")
    planned = {row["resource"]: row for row in estate.rows(PLANS, "undo")}
    changes = {name: (row["before"], row["after"]) for name, row in planned.items() if row["phase"] is None}
    assert changes == {
        "user=changed": ({"producer_byte_rate": "2"}, {"producer_byte_rate": "1"}),
        "user=gone": ({}, {"producer_byte_rate": "1", "request_percentage": "5"}),
        "user=new client-id=<default>": ({"consumer_byte_rate": "7"}, {}),
    }
    skipped = {name: row["error_message"] for name, row in planned.items() if row["outcome"] == "skipped"}
    assert set(skipped) == {r"user=by\ hand", "user=later"}
    assert "its limits were changed since: producer_byte_rate" in skipped[r"user=by\ hand"]
    warned = {each.message for each in plan.warnings}
    assert len(warned) == 2, warned
    done = estate.run("apply", "undo")
    assert (done.exit_code, done.outcomes()) == (0, {"ok": 3, "skipped": 2})
    assert {entity.user: limits for entity, limits in live(kafka_quotas).items()} == {
        "changed": {"producer_byte_rate": 1.0, "request_percentage": 5.0, "consumer_byte_rate": 8.0},
        "by hand": {"producer_byte_rate": 9.0, "request_percentage": 5.0},
        "later": {"producer_byte_rate": 3.0, "request_percentage": 5.0},
        "gone": {"producer_byte_rate": 1.0, "request_percentage": 5.0},
        "stranger": {"producer_byte_rate": 77.0},
    }


@pytest.mark.thorough
def test_a_saved_plan_is_applied_but_for_the_quotas_that_policies_refuse_by_now(
    spark: SparkSession,
    kafka_quotas: EmbeddedKafka,
    tmp_path: Path,
) -> None:
    """All limits of an entity are evaluated again, not only those that change: `kept` keeps the required limit."""
    estate = estate_of(spark, kafka_quotas, tmp_path)
    required = policy("quota_range", limit="request_percentage", required=True, max=50)
    owned = policy("owner_required", values=["payments"])
    estate.settings = replace(estate.settings, policies=PolicySettings(of_kinds={"quota": (required, owned)}))
    alter(kafka_quotas, Entity(user="kept"), request_percentage=5.0)
    rows = [
        {"user": name, "request_percentage": 5.0, "producer_byte_rate": 1.0, "owner": "payments"}
        for name in ("kept", "given")
    ]
    declare(estate, *rows)
    planned = estate.run("plan", "saved")
    assert (planned.exit_code, planned.pending_changes) == (0, 2)
    declare(estate, rows[0], {**rows[1], "owner": "other"})
    done = estate.run("apply", "saved")
    assert (done.exit_code, done.outcomes()) == (4, {"ok": 1, "refused": 1})
    assert live(kafka_quotas)[Entity(user="kept")] == {"request_percentage": 5.0, "producer_byte_rate": 1.0}
    (refused,) = [row for row in estate.rows(AUDIT, "saved") if row["outcome"] == "refused"]
    assert (refused["resource"], refused["error"]) == ("user=given", "POLICY_VIOLATION")
    assert [each["policy"] for each in refused["violations"]] == ["owner_required"]
