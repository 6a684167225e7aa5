"""`[changes] undeclared = "delete"`: topics whose row was removed are deleted, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.unit.frames import decision_rows, dicts, frame, manifest_rows, plain, validated_rows
from topicledger.config.reading import load_settings
from topicledger.config.settings import ChangeSettings, KafkaSettings
from topicledger.model.renames import REPLACED_BY, UNDECLARED
from topicledger.resources.topics.plan import guards
from topicledger.resources.topics.plan.former import Former
from topicledger.resources.topics.plan.renames import renames
from topicledger.resources.topics.plan.undeclared import deleting, no_longer_asked_for, with_deletes
from topicledger.schemas import AUDIT, PLANS

CREATED_AT = datetime(2026, 11, 20, tzinfo=UTC)
DELETE = ChangeSettings(undeclared="delete")


def audited(topic: str, action: str = "create", topic_id: str | None = "", **more: Any) -> dict[str, Any]:
    ids = {"cluster_id": "kafka-main", "topic_id": f"id of {topic}" if topic_id == "" else topic_id}
    done = {"phase": "apply", "outcome": "ok", "run_id": "first", "completed_at": CREATED_AT, **ids}
    return {
        "cluster": "main",
        "resource_type": "topic",
        "resource": topic,
        "topic": topic,
        "action": action,
        **done,
        **more,
    }


def run_of(spark: SparkSession, declared: Any, **more: Any) -> Any:
    audit = [
        *(audited(topic) for topic in ("gone", "declared", "refused", "ignored", "elsewhere")),
        audited("recreated", topic_id="an older id"),
        audited("without id", topic_id=None),
        audited("of another cluster", cluster_id="kafka-before"),
    ]
    audited_rows = frame(spark, plain(AUDIT.schema), audit)
    usual = {
        "by_manifests": True,
        "of_earlier_manifests": False,
        "of_files": False,
        "manifest_version": 7,
        "manifests": lambda _: declared,
        "ledger": SimpleNamespace(read=lambda _: audited_rows),
        "spark": spark,
        "clusters": (),
        "settings": SimpleNamespace(
            changes={"main": DELETE},
            clusters={"main": None, "other": None},
            scope=SimpleNamespace(ignore_topics=("^ign",)),
        ),
    }
    return SimpleNamespace(**usual | more)


def former_rows(spark: SparkSession, *replaced: tuple[str, str, str]) -> Former:
    """Former rows, by which the topic `gone` had the owner a."""
    owners = spark.createDataFrame([("main", "gone", "a")], "cluster string, topic string, _owner_then string")
    by = spark.createDataFrame(list(replaced), "cluster string, topic string, _replaced_by string")
    known = spark.createDataFrame([("main", "gone")], "cluster string, topic string").withColumn("_known", F.lit(True))
    return Former(owners=owners, replaced=by, known=known)


def decided(spark: SparkSession, run: Any) -> dict[tuple[str, str], dict[str, Any]]:
    names = ("gone", "ignored", "recreated", "without id", "of another cluster", "never ours", "refused")
    rows = decision_rows(
        spark,
        *({"topic": name, "decision": "unmanaged", "topic_id": f"id of {name}"} for name in names),
        {"topic": "declared", "decision": "unchanged", "owner": "c", "topic_id": "id of declared"},
        {"topic": "elsewhere", "cluster": "other", "decision": "unmanaged", "topic_id": "id of elsewhere"},
    )
    transform = with_deletes(run, former_rows(spark))
    assert transform is not None
    found = rows.transform(transform)
    assert found.columns == rows.columns
    assert found.count() == rows.count()
    return {(row["cluster"], row["topic"]): row for row in dicts(found)}


def test_only_topics_of_this_ledger_without_a_row_are_deleted(spark: SparkSession) -> None:
    run = run_of(spark, manifest_rows(spark, {"topic": "declared"}, {"topic": "refused", "num_partitions": -1}))
    found = decided(spark, run)
    assert {key for key, row in found.items() if row["decision"] == "delete"} == {("main", "gone")}
    gone = found["main", "gone"]
    assert (gone["owner"], gone["before"]) == (
        "a", {"num_partitions": "1", "replication_factor": "1", UNDECLARED: "first"},
    )  # fmt: skip
    (warned,) = gone["violations"]
    assert (warned["warns"], warned["message"]) == (True, "no row declares it any more; run first created it")
    assert found["main", "declared"]["owner"] == "c"
    stopped = dicts(decision_rows(spark, gone).transform(guards.max_deletes(0)))
    assert [row["error"] for row in stopped] == ["MAX_DELETES_EXCEEDED"]


@pytest.mark.parametrize(
    "row",
    [
        {"topic": None},
        {"topic": "gone", "cluster": "mian"},
        {"topic": "go ne"},
        {"topic": "new", "replaces": "gone"},
        {"topic": "new", "replaces": "gone", "state": "absent"},
        {"topic": "new", "replaces": "go ne"},
    ],
)
def test_a_row_that_may_mean_the_topic_keeps_it(spark: SparkSession, row: dict[str, Any]) -> None:
    found = decided(spark, run_of(spark, manifest_rows(spark, row)))
    assert found["main", "gone"]["decision"] == "unmanaged"


def test_a_topic_that_may_have_been_replaced_stays(spark: SparkSession) -> None:
    """That is unknown if the row was removed so long ago that the table has no changes of that time any more."""
    former = former_rows(spark)
    former = replace(former, known=former.known.limit(0))
    transform = with_deletes(run_of(spark, manifest_rows(spark)), former)
    assert transform is not None
    rows = decision_rows(spark, {"topic": "gone", "decision": "unmanaged", "topic_id": "id of gone"})
    (found,) = dicts(rows.transform(transform))
    assert (found["decision"], found["phase"], found["outcome"]) == ("delete", "observe", "skipped")
    assert found["error_message"].startswith("it stays: its row was removed more than 7 days ago, or changes of")


def test_only_runs_from_the_latest_manifests_delete_undeclared_topics(spark: SparkSession) -> None:
    declared = manifest_rows(spark)
    assert deleting(run_of(spark, declared)) == ["main"]
    before = former_rows(spark)
    assert with_deletes(run_of(spark, declared, by_manifests=False), before) is None
    assert with_deletes(run_of(spark, declared, of_earlier_manifests=True), before) is None
    kept = SimpleNamespace(changes={"main": ChangeSettings(configs="exact")})
    assert with_deletes(run_of(spark, declared, settings=kept), before) is None
    assert with_deletes(run_of(spark, declared), None) is None


@pytest.mark.parametrize("days", [None, 14])
def test_a_topic_that_was_replaced_once_goes_only_if_it_is_idle(spark: SparkSession, days: int | None) -> None:
    """The row that replaces it is gone, or no longer says so: `_schemas` and the like stay, whatever replaces them."""
    changes = {"main": ChangeSettings(undeclared="delete", replaced_idle_days=days)}
    run = run_of(spark, manifest_rows(spark, {"topic": "new", "replaces": "_schemas", "owner": "b"}))
    run.settings.changes, run.settings.kafka = changes, KafkaSettings()
    gone = {"topic": "gone", "decision": "delete", "owner": "a", "before": {UNDECLARED: "first"}, "topic_id": "g"}
    rows = decision_rows(
        spark,
        gone,
        {**gone, "topic": "never.replaced"},
        {"topic": "declared", "decision": "delete", "before": {}, "topic_id": "d"},
        {"topic": "_schemas", "decision": "unmanaged", "topic_id": "s"},
        {"topic": "new", "decision": "unchanged", "owner": "b"},
    )
    before = former_rows(spark, ("main", "gone", "late"), ("main", "declared", "late"))
    found = renames(run, validated_rows(spark, {"topic": "new", "replaces": "_schemas", "owner": "b"}), before)
    assert found is not None
    by_topic = {row["topic"]: row for row in dicts(rows.transform(found.decided, None))}
    assert {topic: row["decision"] for topic, row in by_topic.items()} == {
        "gone": "unmanaged" if days is None else "delete",
        "never.replaced": "delete",
        "declared": "delete",
        "_schemas": "unmanaged",
        "new": "unchanged",
    }
    if days is not None:
        kept = {"num_partitions": "1", "replication_factor": "1", REPLACED_BY: "late", UNDECLARED: "first"}
        assert (by_topic["gone"]["owner"], by_topic["gone"]["before"]) == ("a", kept)


def test_a_topic_that_is_declared_again_is_not_deleted(spark: SparkSession) -> None:
    """A delete of a row with state absent is asked for as long as that row is there."""
    common = {"cluster": "main", "resource_type": "topic", "action": "delete", "manifest_version": 7}
    planned = frame(
        spark,
        plain(PLANS.schema),
        [
            *(
                {**common, "topic": each, "resource": each, "before": {UNDECLARED: "first"}}
                for each in ("gone", "back")
            ),
            *({**common, "topic": each, "resource": each, "before": {}} for each in ("absent", "no longer")),
            {**common, "topic": "once", "resource": "once", "before": {UNDECLARED: "first", REPLACED_BY: "late"}},
            *({**common, "topic": each, "resource": each, "before": {REPLACED_BY: "new"}} for each in ("old", "x")),
        ],
    )
    rows = ({"topic": "back", "replaces": "gone"}, {"topic": "absent", "state": "absent"}, {"topic": "x"})
    rows = (*rows, {"topic": "new", "replaces": "old"})
    transform = no_longer_asked_for(
        manifest_rows(spark, *rows), validated_rows(spark, *rows), 8, run_of(spark, manifest_rows(spark))
    )
    refused = {row["topic"]: row["error_message"] for row in dicts(planned.transform(transform))}
    assert set(refused) == {"back", "gone", "no longer", "x"}
    assert refused["gone"] == refused["back"]
    assert refused["back"].startswith("no manifest named it when it was planned, but manifests at version 8 do")
    assert "don't declare it" in refused["no longer"]


def test_the_default_keeps_topics_and_the_digest(tmp_path: Path) -> None:
    def of(changes: str) -> Any:
        path = tmp_path / "s.toml"
        path.write_text(f'[tables]\nroot = "x"\n[clusters.main]\nbootstrap_servers = ["h:1"]\n[changes]\n{changes}')
        return load_settings(path)

    assert of('undeclared = "keep"').changes == {}
    assert of('configs = "exact"').digest() == of('configs = "exact"\nundeclared = "keep"').digest()
    assert of('undeclared = "delete"').changes["main"].undeclared == "delete"
    assert of('undeclared = "delete"').digest() != of("").digest()
