"""DataFrames that are computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from pyspark.sql import Column, DataFrame, Observation, is_remote


def materialised(rows: DataFrame) -> DataFrame:
    """Run a query once, and return its rows as a DataFrame that no longer depends on what was read.

    Through Spark Connect, the query first becomes a temporary view: Python's protobuf can't parse messages that are
    nested more than 100 deep, as long queries are, and a view stands for its query by a name.
    """
    if not is_remote():
        return rows.localCheckpoint()
    name = f"rows_{uuid4().hex}"
    rows.createTempView(name)
    try:
        return rows.sparkSession.table(name).localCheckpoint()
    finally:
        # A server keeps views for as long as the session, which `serve` has for days.
        rows.sparkSession.catalog.dropTempView(name)


def with_metrics(
    rows: DataFrame, metrics: Sequence[Column], transform: Callable[[DataFrame], DataFrame]
) -> tuple[DataFrame, Mapping[str, Any]]:
    """Run a query once; return its transformed rows, materialised, and aggregates of all its rows by their names."""
    if is_remote():
        # Through Spark Connect, a checkpoint returns no observed metrics.
        rows = materialised(rows)
        return materialised(transform(rows)), rows.agg(*metrics).collect()[0].asDict()
    observation = Observation("metrics")
    made = materialised(transform(rows.observe(observation, *metrics)))
    return made, observation.get
