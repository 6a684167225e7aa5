"""Columns that end a row: why nothing more is planned or sent for it."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.manifests.rows import Transform
from topicledger.model import Outcome, Phase
from topicledger.naming import DriftName, RefusalName
from topicledger.phases import ENDED

REFUSED = (
    "cluster", "cluster_id", "topic", "resource_type", "resource", "topic_id", "action", "batch", "error",
    "error_message",
)  # fmt: skip


def ended(phase: Column | str, outcome: Column | str, error: Column | str, message: Column | str) -> Column:
    """Return the struct that ends a row."""
    return F.struct(
        _column(phase).alias("phase"),
        _column(outcome).alias("outcome"),
        _column(error).alias("error"),
        _column(message).alias("error_message"),
    )


def _column(value: Column | str) -> Column:
    return F.col(value) if isinstance(value, str) else value


def lookup(values: Mapping[str, str | None] | Mapping[DriftName, str], key: Column) -> Column:
    """Return the value of `key` (string); null if there is none."""
    if not values:
        return F.lit(None).cast("string")
    entries = [F.lit(part and str(part)).cast("string") for item in values.items() for part in item]
    return F.create_map(*entries)[key]


def with_ended(rows: DataFrame, end: str) -> DataFrame:
    """End rows by the struct `end` (`ended`); rows in which it is null stay as they are."""
    return rows.withColumns({name: F.coalesce(f"{end}.{name}", name) for name in ENDED.names})


def stopped(stop: Column, error: RefusalName, message: Column) -> Transform:
    """End open rows for which `stop` is true: refused, in phase guard."""
    stop = F.coalesce(stop & F.col("phase").isNull(), F.lit(False))
    return lambda rows: (
        rows.withColumn("_stop", stop)
        .withColumns(
            {
                "error": F.when(F.col("_stop"), F.lit(error.value)).otherwise(F.col("error")),
                "error_message": F.when(F.col("_stop"), message).otherwise(F.col("error_message")),
                "outcome": F.when(F.col("_stop"), F.lit(Outcome.REFUSED.value)).otherwise(F.col("outcome")),
                "phase": F.when(F.col("_stop"), F.lit(Phase.GUARD.value)).otherwise(F.col("phase")),
            }
        )
        .drop("_stop")
    )


def refused(error: RefusalName, message: Column) -> Transform:
    """Return planned actions that have a `message`, as `REFUSED`."""
    return lambda planned: (
        planned.withColumns({"error": F.lit(error.value), "error_message": message})
        .where(F.col("error_message").isNotNull())
        .select(*REFUSED)
    )
