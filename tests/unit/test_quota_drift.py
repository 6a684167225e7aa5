"""Quotas that are declared and quotas that there are, compared: each kind where it is, and nothing where it isn't."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.unit.frames import dicts, frame, observed_rows, validated_rows
from topicledger.config.settings import AuditSettings, Settings, TablesSettings
from topicledger.config.severities import SEVERITIES
from topicledger.drift.beside import find_resource_drift
from topicledger.model import Refusal
from topicledger.observe.listed import Listed, ListedStatus
from topicledger.resources.quotas import rows as quotas
from topicledger.resources.quotas.kind import KIND
from topicledger.resources.quotas.names import QuotaDrift
from topicledger.resources.topics.drift.find import DRIFT_COLUMNS, Estate
from topicledger.schemas import AUDIT, OBSERVED_CONFIGS, OBSERVED_QUOTAS, QUOTAS


def found(
    spark: SparkSession,
    declared: Sequence[dict[str, Any]],
    live: Sequence[dict[str, Any]],
    statuses: dict[str, ListedStatus] | None = None,
    audit: AuditSettings | None = None,
) -> set[tuple[str | None, ...]]:
    """kind, what, declared, live."""
    settings = Settings(
        path=Path("drawn.toml"), tables=TablesSettings(root=""), clusters={}, audit=audit or AuditSettings()
    )
    nothing = frame(spark, OBSERVED_CONFIGS.schema, [])
    estate = Estate(
        cluster_ids={"main": "kafka-main"},
        topics=observed_rows(spark, {"topic": "t"}),
        configs=nothing,
        earlier_configs=nothing,
        audit=frame(spark, AUDIT.schema, []),
    )
    there = frame(spark, OBSERVED_QUOTAS.schema, [{"cluster": "main", **row} for row in live]).drop("run_id")
    listed = Listed(rows=there, statuses=statuses or {"main": ListedStatus()})
    rows = frame(spark, QUOTAS.schema, [{"cluster": "main", **row} for row in declared])
    validated = rows.transform(quotas.validate(["main", "other"], None))
    differing = validated.transform(
        find_resource_drift(KIND, estate, listed, validated_rows(spark, {"topic": "t"}), settings)
    )
    assert tuple(differing.columns) == DRIFT_COLUMNS
    told = dicts(differing)
    assert all(row["severity"] == settings.audit.severity[row["kind"]] for row in told)
    assert {(row["cluster_id"], row["topic"]) for row in told} <= {("kafka-main", None)}
    return {(row["kind"], row["what"], row["declared"], row["live"]) for row in told}


def test_quotas_as_declared_are_no_drift(spark: SparkSession) -> None:
    rows = [{"user": "a", "producer_byte_rate": 1e6, "request_percentage": 0.5}, {"ip": "<default>"}]
    rows[1]["connection_creation_rate"] = 5.0
    assert found(spark, [*rows, {"user": "gone", "state": "absent"}], rows) == set()


def test_missing_differing_and_unmanaged_quotas(spark: SparkSession) -> None:
    declared = [
        {"user": "missing", "producer_byte_rate": 5.0, "request_percentage": 0.5},
        {"user": "other", "producer_byte_rate": 5.0, "consumer_byte_rate": 7.0, "controller_mutation_rate": 1.5},
        {"user": "absent", "state": "absent"},
        {"user": "wrong", "producer_byte_rate": 0.5},
        {"cluster": "other", "user": "elsewhere", "producer_byte_rate": 5.0},
    ]
    live = [
        {"user": "other", "producer_byte_rate": 5.0, "consumer_byte_rate": 8.0, "request_percentage": 3.0},
        {"user": "absent", "producer_byte_rate": 1.0},
        {"user": "wrong", "producer_byte_rate": 1.0},
        {"user": "stranger", "client_id": "<default>", "producer_byte_rate": 1.0},
    ]
    assert found(spark, declared, live) == {
        ("quota_missing", "user=missing", "producer_byte_rate=5, request_percentage=0.5", None),
        (
            "quota_differs",
            "user=other",
            "consumer_byte_rate=7, controller_mutation_rate=1.5",
            "consumer_byte_rate=8, request_percentage=3",
        ),
        ("quota_differs", "user=absent", None, "producer_byte_rate=1"),
        ("quota_unmanaged", "user=stranger client-id=<default>", None, "producer_byte_rate=1"),
    }


def test_quotas_that_may_not_be_described_are_not_known_which_is_not_none(spark: SparkSession) -> None:
    statuses = {"main": ListedStatus(error=Refusal.NOT_PERMITTED, message="grant it")}
    rows = [{"user": "a", "producer_byte_rate": 1.0}]
    assert found(spark, rows, [], statuses) == {("not_permitted", "quotas", None, None)}


def test_kinds_that_are_ignored_are_left_out(spark: SparkSession) -> None:
    severity = {kind: each for kind, each in SEVERITIES.items() if kind != QuotaDrift.QUOTA_MISSING}
    audit = AuditSettings(severity=severity)
    assert found(spark, [{"user": "a", "producer_byte_rate": 1.0}], [], audit=audit) == set()
