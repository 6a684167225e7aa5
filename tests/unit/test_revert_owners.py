"""Owners of what `runs revert` undoes: by the current rows, and else by those of the reverted run."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.unit.frames import dicts, judged_rows
from topicledger.plan.revert import _as_manifests


def test_topics_without_a_row_belong_to_their_owner_of_then(spark: SparkSession) -> None:
    """Without that, `runs revert --owner` would leave out what its own removed rows have caused."""
    rows = [("same", "a"), ("removed", "a"), ("given away", "a"), ("given up", "a"), ("never owned", None)]
    done = spark.createDataFrame(
        [("main", topic, "create", True, owner) for topic, owner in rows],
        "cluster string, topic string, action string, known boolean, owner string",
    )
    declared = judged_rows(
        spark, {"topic": "same", "owner": "a"}, {"topic": "given away", "owner": "b"}, {"topic": "given up"}
    )
    found = dicts(_as_manifests(done, declared, deletes=True))
    owners = {"same": "a", "removed": "a", "given away": "b", "given up": None, "never owned": None}
    assert {row["topic"]: row["owner"] for row in found} == owners
    assert {row["state"] for row in found} == {"absent"}
