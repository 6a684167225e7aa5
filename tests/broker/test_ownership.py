"""Whose topics a run creates: [owners] of the settings, on a real broker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from tests.broker.direct import live
from tests.harness import Estate
from topicledger.config.settings import OwnerLine, Owners, OwnerSettings
from topicledger.testing.embedded_kafka import EmbeddedKafka


def test_a_topic_of_others_is_refused_until_its_owner_declares_it(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    estate.settings = replace(
        estate.settings, owners=Owners(names={"payments": OwnerSettings(topics=(r"^owned\.payments\.",))})
    )
    counts = {"num_partitions": 1, "replication_factor": 1}
    mine, theirs = "owned.payments.mine", "owned.payments.theirs"
    estate.declare(
        {"topic": mine, "owner": "Payments", **counts},
        {"topic": theirs, "owner": "orders", **counts},
        {"topic": "owned.payments.gone", "owner": "orders", "state": "absent"},
    )
    assert estate.run(run_id="first").exit_code == 4
    refused = ("manifest", "refused", "NOT_YOURS")
    assert estate.last("first") == {mine: ("verify", "ok", None), theirs: refused, "owned.payments.gone": refused}
    message = estate.audit("first")[theirs, "manifest"]["error_message"]
    assert message == "owner orders may not declare it: it belongs to payments ([owners])"
    assert (mine in live(kafka, "owned."), theirs in live(kafka, "owned.")) == (True, False)

    by_line = (OwnerLine(pattern=r"^[^/]*/owned\.payments\..*$", owners=("payments", "orders"), place="CODEOWNERS:1"),)
    estate.settings = replace(estate.settings, owners=Owners(lines=by_line))
    assert estate.run(run_id="second").exit_code == 0
    assert estate.last("second") == {theirs: ("verify", "ok", None)}
    assert theirs in live(kafka, "owned.")


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
