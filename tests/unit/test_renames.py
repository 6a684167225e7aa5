"""Creates that replace a topic: the warning about what their declaration changes."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from topicledger.plan.renames import unlike_old

COLUMNS = (
    "num_partitions int, replication_factor int, assignments map<int,array<int>>, configs map<string,string>, "
    "_old string, _old_num_partitions int, _old_replication_factor int, _old_configs map<string,string>"
)
OLD: dict[str, Any] = {"retention.ms": "-1", "cleanup.policy": "delete"}


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ((3, 2, None, OLD), None),
        ((None, None, None, None), None),
        ((3, 2, None, {"retention.ms": " -01", "cleanup.policy": "delete , delete"}), None),
        ((2, 2, None, OLD), "partitions 3 -> 2 (keys go to other partitions)"),
        (
            (3, 1, None, {**OLD, "retention.ms": "5", "flush.ms": "1"}),
            "replication factor 2 -> 1, retention.ms -1 -> 5",
        ),
        ((None, None, {0: [1, 2], 1: [2, 1], 2: [1, 2]}, OLD), None),
        (
            (None, None, {0: [1]}, None),
            "partitions 3 -> 1 (keys go to other partitions), replication factor 2 -> 1",
        ),
    ],
)
def test_a_warning_says_what_differs_from_the_old_topic(
    spark: SparkSession, declared: tuple[Any, ...], words: str | None
) -> None:
    rows = spark.createDataFrame([(*declared, "old", 3, 2, OLD)], COLUMNS)
    (row,) = rows.select(unlike_old().alias("found")).collect()
    assert row["found"] == (None if words is None else f"declared unlike old, which it replaces: {words}")
