"""A prune leaves what any row of `manifests` may mean, whatever is wrong with the row."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.unit.frames import decision_rows, dicts, frame, manifest_rows
from topicledger.config.settings import KafkaSettings
from topicledger.model.prune import Prune
from topicledger.resources.topics.observe.topic_use import LAST_RECORDS
from topicledger.resources.topics.plan import prune
from topicledger.resources.topics.plan.undeclared import declared_since
from topicledger.schemas import PLANS

MAY_MEAN: dict[str, tuple[dict[str, Any], set[str]]] = {
    "as it is": ({"topic": "t"}, {"main"}),
    "refused": ({"topic": "t", "num_partitions": -1}, {"main"}),
    "an unknown cluster": ({"topic": "t", "cluster": "mian"}, {"main", "other"}),
    "no cluster": ({"topic": "t", "cluster": None}, {"main", "other"}),
    "no topic": ({"topic": None}, {"main"}),
    "a topic that can't be": ({"topic": "t/new"}, {"main"}),
    "nothing at all": ({"topic": None, "cluster": None}, {"main", "other"}),
    "replaced": ({"topic": "u", "replaces": "t"}, {"main"}),
    "replaced by a refused row": ({"topic": "u", "replaces": "t", "state": "absent"}, {"main"}),
    "replaced, on an unknown cluster": ({"topic": "u", "replaces": "t", "cluster": "mian"}, {"main", "other"}),
    "replaces what can't be": ({"topic": "u", "replaces": "t/old"}, {"main"}),
    "another topic": ({"topic": "u", "replaces": "v"}, set()),
}


def test_prune_leaves_what_a_wrong_row_may_mean(spark: SparkSession) -> None:
    planned: list[dict[str, Any]] = [
        {"cluster": cluster, "resource_type": "topic", "resource": "t", "topic": "t", "action": "delete", "batch": 0}
        for cluster in ("main", "other")
    ]
    plans = frame(spark, PLANS.schema, planned)
    for what, (row, stays) in MAY_MEAN.items():
        found = dicts(plans.transform(declared_since(manifest_rows(spark, row), 7, ["main", "other"])))
        assert {each["cluster"] for each in found} == stays, what
        assert {each["error"] for each in found} <= {"CHANGED_SINCE_PLAN"}


@pytest.mark.parametrize("row", [{}, {"num_partitions": -1}, {"state": "absent"}])
def test_prune_leaves_a_topic_that_a_row_replaces(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, row: dict[str, Any]
) -> None:
    """Only `replaced_idle_days` deletes it, and a refused row protects it, too."""
    declared = manifest_rows(spark, {"topic": "new", "replaces": "tmp.old", **row})
    settings = SimpleNamespace(kafka=KafkaSettings(), clusters={"main": None}, scope=SimpleNamespace(ignore_topics=()))
    ledger = SimpleNamespace(read=lambda *_: declared)
    run: Any = SimpleNamespace(spark=spark, clusters=(), manifest_version=1, ledger=ledger, settings=settings)
    monkeypatch.setattr(prune, "read_last_records", lambda *_: spark.createDataFrame([], LAST_RECORDS))
    seen = [{"topic": each, "decision": "unmanaged", "topic_id": each} for each in ("tmp.old", "tmp.other")]
    wanted = prune.pruned(run, Prune(patterns=("^tmp",), idle_days=7), None)
    assert wanted.changes is not None
    found = decision_rows(spark, *seen).transform(wanted.changes(None))
    assert {each["topic"]: each["decision"] for each in dicts(found)} == {"tmp.old": "declared", "tmp.other": "delete"}
