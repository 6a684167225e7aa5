"""Estates that change topics, and what their runs did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
)
from pyspark.sql import SparkSession

from tests.harness import Estate
from tests.waiting import until
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import ChangeSettings, PolicySettings
from topicledger.model import SET_ON_TOPIC
from topicledger.schemas import AUDIT
from topicledger_testing.embedded_kafka import EmbeddedKafka

WEEK = "604800000"


def changing(
    spark: SparkSession,
    root: Path,
    kafka: EmbeddedKafka,
    *,
    policies: PolicySettings | None = None,
    guards: GuardSettings | None = None,
    **changes: Any,
) -> Estate:
    """An estate whose settings ask for these changes on its cluster."""
    estate = Estate(spark, root / "ledger", {"main": kafka}, policies=policies)
    estate.settings = replace(
        estate.settings,
        changes={"main": ChangeSettings(**changes)},
        guards=guards or GuardSettings(),
    )
    return estate


def set_on(kafka: EmbeddedKafka, *topics: str) -> dict[str, dict[str, str]]:
    """By topic, the configs that are set on it, as kafka-python describes them."""
    admin = KafkaAdminClient(**kafka.client_options())
    try:
        found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name) for name in topics])["topic"]
    finally:
        admin.close()
    return {
        topic: {name: each["value"] for name, each in configs.items() if each["config_source"] == SET_ON_TOPIC}
        for topic, configs in found.items()
    }


def alter(kafka: EmbeddedKafka, topic: str, **configs: str) -> None:
    """As another client would; returns when it is visible."""
    wanted = {name.replace("_", "."): value for name, value in configs.items()}
    admin = KafkaAdminClient(**kafka.client_options())
    try:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=wanted)], raise_on_unknown=False)
    finally:
        admin.close()
    until(lambda: wanted.items() <= set_on(kafka, topic)[topic].items(), seconds=30)


def ended(estate: Estate, run_id: str) -> dict[tuple[str, str], tuple[str, str, str | None]]:
    """By topic and action, its last phase but verify: phase, outcome, error."""
    order = ["manifest", "observe", "guard", "validate", "policy", "apply"]
    found: dict[tuple[str, str], tuple[str, str, str | None]] = {}
    for row in sorted(
        (row for row in estate.rows(AUDIT, run_id) if row["phase"] != "verify"),
        key=lambda row: order.index(row["phase"]),
    ):
        found[row["topic"], row["action"]] = (row["phase"], row["outcome"], row["error"])
    return found


def of_phase(estate: Estate, run_id: str, phase: str) -> dict[tuple[str, str], Mapping[str, Any]]:
    return {(row["topic"], row["action"]): row for row in estate.rows(AUDIT, run_id) if row["phase"] == phase}


OK = ("apply", "ok", None)


def allow(user: str, operation: ACLOperation, name: str, pattern: ACLResourcePatternType) -> ACL:
    return ACL(
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission_type=ACLPermissionType.ALLOW,
        resource_pattern=ResourcePattern(ResourceType.TOPIC, name, pattern),
    )
