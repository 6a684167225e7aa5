"""A planned action is still declared if the manifests say the same, however they spell it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyspark.sql import SparkSession

from topicledger.actions import alter_configs
from topicledger.actions.declared import declared_differently

PLANNED = {"retention.ms": "604800000", "cleanup.policy": "compact,delete"}


@pytest.mark.parametrize(
    ("now", "others"),
    [
        (PLANNED, None),
        ({"retention.ms": " +604800000", "cleanup.policy": "delete , compact"}, None),
        ({**PLANNED, "retention.ms": "5"}, "retention.ms"),
        ({**PLANNED, "flush.ms": "5"}, "flush.ms"),
        ({}, "cleanup.policy, retention.ms"),
        (None, "cleanup.policy, retention.ms"),
    ],
)
def test_configs_are_compared_as_brokers_read_them(
    spark: SparkSession, now: Mapping[str, str] | None, others: str | None
) -> None:
    types = ", ".join(f"{name} map<string,string>" for name in ("configs", "before", "after", "now_configs"))
    row = (PLANNED, {"flush.ms": "5"}, PLANNED, now, "present")
    rows = spark.createDataFrame([row], f"{types}, now_state string")
    created = declared_differently(("configs",)).alias("created")
    (found,) = rows.select(created, alter_configs.not_declared().alias("altered")).collect()
    assert found["created"] == (None if others is None else "declare it with other configs")
    assert found["altered"] == (None if others is None else f"declare it with other configs: {others}")
