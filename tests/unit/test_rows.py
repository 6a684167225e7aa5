"""Outcomes become rows of `audit` that say exactly what the outcomes said."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from topicledger.arrow import arrow_schema
from topicledger.ledger.rows import audit_table
from topicledger.model import Action, ConfigEntry, Outcome, Phase, PhaseResult, Target, TopicResult
from topicledger.schemas import AUDIT

NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
OFFSET = timezone(timedelta(hours=5, minutes=30))

RETENTION = ConfigEntry("retention.ms", "604800000", False, "DYNAMIC_TOPIC_CONFIG", False)
SECRET = ConfigEntry("secret", None, False, "DYNAMIC_TOPIC_CONFIG", True)
POLICY = ConfigEntry("cleanup.policy", "delete", True, "DEFAULT_CONFIG", False)

CREATED = PhaseResult(
    cluster="main",
    cluster_id="kafka-main",
    target=Target(resource="a", action=Action.CREATE, batch=4),
    phase=Phase.APPLY,
    outcome=Outcome.OK,
    result=TopicResult(
        topic_id="6f1c0f0e-0000-4000-8000-000000000001",
        num_partitions=3,
        replication_factor=2,
        configs=(RETENTION, SECRET, POLICY),
        topic_config_error_code=0,
    ),
    attempt=2,
    requested_at=NOON,
    completed_at=datetime(2026, 3, 1, 17, 30, 1, tzinfo=OFFSET),
)


def about(topic: str, **result: Any) -> PhaseResult:
    target = replace(CREATED.target, resource=topic)
    return replace(CREATED, target=target, result=replace(CREATED.result, **result))


SAME_CONFIGS = about("b", configs=(POLICY, replace(RETENTION), SECRET))
OTHER_VALUE = about("c", configs=(replace(RETENTION, value="1"),))
NO_CONFIGS = about("d", configs=())
WITHOUT_CONFIGS = about("e", configs=None, num_partitions=None, topic_config_error_code=29)
REFUSED = replace(
    CREATED,
    cluster_id=None,
    target=Target(resource="f", action=Action.DELETE, batch=4),
    phase=Phase.VALIDATE,
    outcome=Outcome.REFUSED,
    result=replace(CREATED.result, error_code=-1, configs=None),
    error="RECREATED",
    error_message="'quoted' \\ and\nbroken; ü",
)
EVERY = [WITHOUT_CONFIGS, CREATED, SAME_CONFIGS, NO_CONFIGS, OTHER_VALUE, REFUSED, CREATED]


def plain(ended: PhaseResult) -> dict[str, Any]:
    """A row of `audit` as plain values, made the obvious way."""
    configs = ended.configs
    return {
        **{name: getattr(ended, name) for name in AUDIT.schema.names if hasattr(ended, name)},
        "run_id": "run-1",
        "manifest_version": 7,
        "violations": None,
        "configs": None
        if configs is None
        else [{name: getattr(entry, name) for name in ConfigEntry.__slots__} for entry in configs],
    }


def test_each_outcome_is_a_row_with_all_it_said() -> None:
    table = audit_table("run-1", 7, EVERY)
    assert table.schema == arrow_schema(AUDIT.schema)
    assert table.to_pylist() == [plain(ended) for ended in EVERY]


def test_spark_reads_the_rows_as_they_were_written(spark: SparkSession) -> None:
    """C9: sensitive values are null. C10: the code that says why configs are missing is kept."""
    rows = spark.createDataFrame(audit_table("run-1", 7, EVERY), AUDIT.schema)
    times = ("requested_at", "completed_at")
    texts = [F.date_format(name, "yyyy-MM-dd HH:mm:ss.SSSSSS").alias(name) for name in times]
    found = [row.asDict(recursive=True) for row in rows.select(*rows.drop(*times).columns, *texts).collect()]
    assert rows.schema == AUDIT.schema
    told = {"requested_at": "2026-03-01 12:00:00.123456", "completed_at": "2026-03-01 12:00:01.000000"}
    assert found == [{**plain(ended), **told} for ended in EVERY]


def test_entries_that_many_topics_share_are_held_once() -> None:
    configs = tuple(replace(RETENTION, name=f"config {number}", value="x" * 1_000) for number in range(30))
    ended = [about(f"t{number}", configs=configs) for number in range(100)]
    column = audit_table("run-1", 7, ended).column("configs")
    assert column.to_pylist()[99][29]["name"] == "config 29"
    assert len(column) == 100


def test_no_outcomes_are_no_rows(spark: SparkSession) -> None:
    table = audit_table("run-1", None, [])
    assert (table.num_rows, table.column_names) == (0, AUDIT.schema.names)
    assert spark.createDataFrame(table, AUDIT.schema).count() == 0


def test_rows_need_no_manifest_version_and_no_configs() -> None:
    table = audit_table("run-1", None, [WITHOUT_CONFIGS])
    assert table.to_pylist() == [{**plain(WITHOUT_CONFIGS), "manifest_version": None}]
