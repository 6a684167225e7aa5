"""The promises of every kind of resource about whole runs, on a real broker."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from tests.broker.direct import executor_of, settings_for
from tests.harness import Estate
from tests.resources.examples import EXAMPLES
from topicledger.config.guards import OF_KINDS, GuardSettings
from topicledger.files.export import ExportRequest, export
from topicledger.files.load import load
from topicledger.files.read import read
from topicledger.model import Outcome
from topicledger.resources.registry import KINDS
from topicledger.schemas import AUDIT, DRIFT, PLANS
from topicledger_testing.embedded_kafka import EmbeddedKafka

GUARDS = dict.fromkeys(OF_KINDS, 10)
TEXTS = {example.text("whole-run") for example in EXAMPLES}


def estate_of(spark: SparkSession, kafka: EmbeddedKafka, root: Path) -> Estate:
    estate = Estate(spark, root, {"main": settings_for("main", kafka)})
    estate.settings = replace(estate.settings, guards=GuardSettings(of_kinds=GUARDS))
    return estate


def declare(estate: Estate) -> None:
    """Declare one resource of each kind."""
    for example in EXAMPLES:
        table = example.kind.table
        estate.ledger.ensure(table)
        rows = estate.ledger.rows(table, [{"cluster": "main", "state": "present", **example.row("whole-run")}])
        rows.write.format("delta").mode("append").save(estate.ledger.location(table))


def test_resources_that_a_run_adds_are_exported_and_loaded_as_they_are(
    spark: SparkSession, kafka_sasl: EmbeddedKafka, tmp_path: Path
) -> None:
    """An audit finds nothing, and a plan of what was exported and loaded is empty."""
    estate = estate_of(spark, kafka_sasl, tmp_path / "ledger")
    declare(estate)
    assert estate.run(run_id="adds").outcomes() == {"ok": len(EXAMPLES)}
    applied = [row for row in estate.rows(AUDIT, "adds") if row["phase"] == "apply"]
    assert {(row["resource"], row["outcome"]) for row in applied} == {(text, "ok") for text in TEXTS}
    estate.run_audit("compares")
    # Warnings may say that nobody uses them.
    assert not TEXTS & {row["what"] for row in estate.rows(DRIFT, "compares") if row["severity"] == "error"}

    copy, file = estate_of(spark, kafka_sasl, tmp_path / "copy"), tmp_path / "main.yaml"
    request = ExportRequest(to=file, owner="payments", resources=[*KINDS])
    exported = export(copy.ledger, copy.settings, list(copy.settings.clusters.values()), request)
    assert not TEXTS & {each.resource for each in exported.not_exported}
    loaded = load(copy.ledger, copy.settings, read(copy.settings, [file], io.StringIO()))
    assert {name for name, counts in loaded.resources.items() if counts["added"]} == {each.table for each in EXAMPLES}
    assert copy.run("plan", "empty").pending_changes == 0
    assert copy.rows(PLANS, "empty") == []

    with executor_of(kafka_sasl) as executor:
        for example in EXAMPLES:
            (gone,) = executor.apply([example.target("whole-run", adds=False)])
            assert gone.outcome is Outcome.OK
