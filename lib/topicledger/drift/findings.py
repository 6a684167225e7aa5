"""Findings of drift checks, as columns."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from topicledger.config.severities import DriftKind

FINDING = StructType([StructField(name, StringType()) for name in ("kind", "what", "declared", "live", "message")])

ARRAY = f"array<{FINDING.simpleString()}>"
"""Type of a check's result."""


def finding(
    kind: DriftKind,
    message: Column,
    *,
    what: Column | None = None,
    declared: Column | None = None,
    live: Column | None = None,
) -> Column:
    """Build a finding (`FINDING`)."""
    values = {"kind": F.lit(kind.value), "what": what, "declared": declared, "live": live, "message": message}
    return F.struct(
        *((F.lit(None) if value is None else value).cast("string").alias(name) for name, value in values.items())
    )


def one(kind: DriftKind, message: str, declared: Column | None = None, live: Column | None = None) -> Column:
    """Build the result of a check with exactly one finding."""
    return F.array(finding(kind, F.lit(message), declared=declared, live=live))


def nothing() -> Column:
    """The result of a check that finds nothing wrong."""
    return F.array().cast(ARRAY)


def ids(brokers: Column) -> Column:
    """Broker ids as text, separated by commas (string)."""
    return F.array_join(brokers.cast("array<string>"), ",")
