"""Whose topics a run creates: [owners] of the settings, on a real broker."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from pyspark.sql import SparkSession

from tests.broker.direct import live, make
from tests.harness import Estate
from topicledger.config.settings import OwnerLine, Owners, OwnerSettings
from topicledger.files import export as exporting
from topicledger.files.read import read
from topicledger_testing.embedded_kafka import EmbeddedKafka


@pytest.mark.thorough
def test_a_line_of_codeowners_says_who_may_declare_a_topic(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    line = OwnerLine(pattern=r"^[^/]*/owned\.both\..*$", owners=("payments", "orders"), place="CODEOWNERS:1")
    estate.settings = replace(estate.settings, owners=Owners(lines=(line,)))
    counts = {"num_partitions": 1, "replication_factor": 1}
    estate.declare(
        {"topic": "owned.both.a", "owner": "orders", **counts}, {"topic": "owned.both.b", "owner": "x", **counts}
    )
    assert estate.run(run_id="lines").exit_code == 4
    assert estate.last("lines") == {
        "owned.both.a": ("verify", "ok", None),
        "owned.both.b": ("manifest", "refused", "NOT_YOURS"),
    }
    assert set(live(kafka, "owned.both.")) == {"owned.both.a"}


@pytest.mark.thorough
def test_a_plan_is_not_applied_where_its_topics_belong_to_others_by_now(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    estate.settings = replace(
        estate.settings, owners=Owners(names={"orders": OwnerSettings(topics=(r"^owned\.later\.",))})
    )
    topic = {"topic": "owned.later.a", "num_partitions": 1, "replication_factor": 1}
    estate.declare({**topic, "owner": "orders"})
    assert estate.run("plan", run_id="planned").pending_changes == 1
    estate.declare_anew({**topic, "owner": "payments"})
    assert estate.run("apply", run_id="planned").exit_code == 4
    phase, outcome, error = estate.last("planned")["owned.later.a"]
    assert (phase, outcome, error) == ("apply", "refused", "CHANGED_SINCE_PLAN")
    assert "owned.later.a" not in live(kafka, "owned.")


@pytest.mark.thorough
def test_unmanaged_topics_are_exported_with_proposed_owners(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    make(kafka, "unowned.a.declared", "unowned.a.found", "unowned-read", "unowned-unknown")
    estate.declare({"topic": "unowned.a.declared", "owner": "team-a"})
    with KafkaConsumer(
        bootstrap_servers=list(kafka.bootstrap_servers), group_id="team-a-reader", enable_auto_commit=False
    ) as consumer:
        consumer.commit({TopicPartition("unowned-read", 0): OffsetAndMetadata(0, "", -1)})
    file = tmp_path / "found.yaml"
    request = exporting.ExportRequest(to=file, patterns=("^unowned",), unmanaged=True)
    exported = exporting.export(estate.ledger, estate.settings, estate.settings.select(), request)
    parsed = read(estate.settings, [file], io.StringIO())
    assert {row.topic: row.owner for row in parsed.rows} == {
        "unowned.a.found": "team-a",
        "unowned-read": "team-a",
        "unowned-unknown": None,
    }
    assert {each.topic: each.message for each in exported.notes} == {
        "unowned.a.found": "owner team-a is proposed: owns the 1 declared topic with prefix unowned.a.",
        "unowned-read": "owner team-a is proposed: consumer group team-a-reader uses it",
    }
    assert "owner team-a is proposed: consumer group team-a-reader uses it" in file.read_text()
