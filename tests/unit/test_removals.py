"""Rows that a plan's files remove, on clusters that can't be reached."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.unit.frames import by_topic, dicts, frame, manifest_rows, observed_rows, plain
from topicledger.ledger.unloaded import Unloaded
from topicledger.manifests.rows import validate
from topicledger.observe.topics import ClusterStatus, Observation
from topicledger.plan.decided import NOTHING
from topicledger.plan.removals import reached_again, with_removed
from topicledger.resources.topics.plan.decide import decide
from topicledger.schemas import BROKERS, MANIFESTS, PLANS, TABLES, Table

STATUSES = {"main": ClusterStatus(cluster_id="kafka-main"), "dark": ClusterStatus(error="dark can't be reached")}


def seen(spark: SparkSession) -> Observation:
    brokers = frame(spark, BROKERS.schema, [])
    return Observation(topics=observed_rows(spark, {"topic": "gone"}), brokers=brokers, statuses=STATUSES)


def test_a_removed_row_on_an_unreachable_cluster_is_unreached(spark: SparkSession) -> None:
    removed = manifest_rows(
        spark,
        *({"topic": "gone", "cluster": each, "owner": "a"} for each in ("main", "dark", "kept")),
        {"topic": "refused", "cluster": "dark", "num_partitions": 0},
    )
    run: Any = SimpleNamespace(unloaded={MANIFESTS.name: Unloaded(rows=removed.limit(0), removed=removed)})
    look, validated_by = seen(spark), validate(["main", "dark", "kept"], None)
    validated = manifest_rows(spark, {"topic": "new"}).transform(validated_by)
    rows = validated.transform(with_removed(run, MANIFESTS, validated_by, ["dark"]))
    decided = by_topic(rows.transform(decide(look.topics, STATUSES)))
    assert {key: (row["decision"], row["error"]) for key, row in decided.items()} == {
        ("main", "new"): ("create", None),
        ("main", "gone"): ("unmanaged", None),
        ("dark", "gone"): (None, "CLUSTER_UNREACHABLE"),
    }
    assert validated.transform(with_removed(run, MANIFESTS, validated_by, [])).count() == 1


@pytest.mark.thorough
def test_a_removed_row_that_needs_nothing_is_skipped_later(spark: SparkSession) -> None:
    lost = {"phase": "observe", "outcome": "failed", "error": "CLUSTER_UNREACHABLE", "resource_type": "topic"}
    planned = [
        {**lost, "cluster": cluster, "topic": topic, "resource": topic, "owner": "a"}
        for cluster, topic in (("main", "gone"), ("main", "decided"), ("dark", "gone"))
    ]
    quota = {**lost, "cluster": "main", "resource_type": "quota", "resource": "user=a"}
    declared = {MANIFESTS.name: manifest_rows(spark), "quotas": frame(spark, plain(TABLES["quotas"].schema), [])}

    def read(table: Table) -> DataFrame:
        return declared.get(table.name, frame(spark, plain(table.schema), []))

    run: Any = SimpleNamespace(
        plans=lambda: frame(spark, plain(PLANS.schema), [*planned, quota]),
        ledger=SimpleNamespace(read=read, read_if_exists=read),
        settings=SimpleNamespace(clusters={"main": None, "dark": None}),
    )
    one = frame(spark, plain(PLANS.schema), [{"cluster": "main", "resource_type": "topic", "resource": "decided"}])
    found = reached_again(run, SimpleNamespace(rows=one), seen(spark))  # type: ignore[arg-type]
    assert found.rows is not None
    told = {(row["cluster"], row["resource_type"], row["resource"]): row for row in dicts(found.rows)}
    assert set(told) == {("main", "topic", "gone"), ("main", "quota", "user=a")}
    assert {(row["phase"], row["outcome"], row["action"]) for row in told.values()} == {("policy", "skipped", None)}
    again = reached_again(run, NOTHING, seen(spark))
    assert again.size == 3
    # Their file changed since the plan: the run must not end as one without actions.
    declared[MANIFESTS.name] = manifest_rows(spark, {"topic": "gone"}, {"topic": "decided", "cluster": "dark"})
    declared["quotas"] = frame(spark, plain(TABLES["quotas"].schema), [{"cluster": "main", "user": "a"}])
    changed = reached_again(run, SimpleNamespace(rows=one), seen(spark)).rows  # type: ignore[arg-type]
    assert changed is not None
    assert {(row["resource"], row["outcome"], row["error"]) for row in dicts(changed)} == {
        ("gone", "refused", "CHANGED_SINCE_PLAN"),
        ("user=a", "refused", "CHANGED_SINCE_PLAN"),
    }
