"""A prune leaves what any row of `manifests` may mean, whatever is wrong with the row."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from tests.unit.frames import dicts, frame, manifest_rows
from topicledger.plan.undeclared import declared_since
from topicledger.schemas import PLANS

MAY_MEAN: dict[str, tuple[dict[str, Any], set[str]]] = {
    "as it is": ({"topic": "t"}, {"main"}),
    "refused": ({"topic": "t", "num_partitions": -1}, {"main"}),
    "an unknown cluster": ({"topic": "t", "cluster": "mian"}, {"main", "other"}),
    "no cluster": ({"topic": "t", "cluster": None}, {"main", "other"}),
    "no topic": ({"topic": None}, {"main"}),
    "a topic that can't be": ({"topic": "t/new"}, {"main"}),
    "nothing at all": ({"topic": None, "cluster": None}, {"main", "other"}),
    "another topic": ({"topic": "u"}, set()),
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
