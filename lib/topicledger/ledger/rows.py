"""Rows of `audit` for brokers' responses and for our own decisions; in Arrow, without a Python object per config."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.arrow import arrow_schema, arrow_type
from topicledger.model import TOPIC, ConfigEntry, PhaseResult
from topicledger.model.renames import END_OFFSET, REPLACED_BY, REVERTS, UNDECLARED
from topicledger.schemas import AUDIT, CONFIGS

_SAME_NAME = (
    "cluster",
    "cluster_id",
    "topic",
    "resource_type",
    "resource",
    "action",
    "phase",
    "outcome",
    "error_code",
    "error",
    "error_message",
    "topic_id",
    "num_partitions",
    "replication_factor",
    "topic_config_error_code",
    "batch",
    "attempt",
    "requested_at",
    "completed_at",
)


def audit_table(run_id: str, manifest_version: int | None, ended: Sequence[PhaseResult]) -> pa.Table:
    """Return the rows of `audit` for phases that ended."""
    schema = arrow_schema(AUDIT.schema)
    columns: dict[str, pa.Array] = {
        name: pa.array([getattr(each, name) for each in ended], type=schema.field(name).type) for name in _SAME_NAME
    }
    count = len(ended)
    columns["run_id"] = pa.array([run_id] * count, type=pa.string())
    columns["manifest_version"] = pa.array([manifest_version] * count, type=pa.int64())
    violations = [[asdict(violation) for violation in each.violations] or None for each in ended]
    columns["violations"] = pa.array(violations, type=schema.field("violations").type)
    columns["configs"] = configs_column([each.configs for each in ended])
    for name in ("before", "after"):
        pairs = [None if (values := getattr(each, name)) is None else list(values.items()) for each in ended]
        columns[name] = pa.array(pairs, type=schema.field(name).type)
    return pa.Table.from_arrays([columns[field.name] for field in schema], schema=schema)


def configs_column(lists: Sequence[tuple[ConfigEntry, ...] | None]) -> pa.Array:
    """Return a list column that stores each distinct entry once: most topics share most of their configs."""
    numbers: dict[ConfigEntry, int] = {}
    known: dict[int, int] = {}
    indices: list[int] = []
    offsets: list[int | None] = [0]
    for configs in lists:
        for entry in configs or ():
            number = known.get(id(entry))
            if number is None:
                number = known[id(entry)] = numbers.setdefault(entry, len(numbers))
            indices.append(number)
        offsets.append(len(indices))
    list_type = arrow_type(CONFIGS)
    entries = list(numbers)
    distinct = pa.StructArray.from_arrays(
        [
            pa.array([getattr(entry, field.name) for entry in entries], type=field.type)
            for field in list_type.value_type
        ],
        fields=list(list_type.value_type),
    )
    values = distinct.take(pa.array(indices, type=pa.int32()))
    missing = pa.array([configs is None for configs in lists], type=pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets, type=pa.int32()), values, type=list_type, mask=missing)


def audit_rows(run_id: str, manifest_version: int, **values: Column) -> Callable[[DataFrame], DataFrame]:
    """Build rows of `audit` for our own decisions.

    In: any columns; those of `audit` are used. Out: all columns of `audit`; `values` take precedence, `completed_at` is
    now and the resource is the topic unless given, the rest is null.
    """

    def transform(rows: DataFrame) -> DataFrame:
        own = {
            "resource_type": F.lit(TOPIC),
            "resource": F.col("topic"),
            "completed_at": F.lit(datetime.now(UTC)),
            **{name: F.col(name) for name in rows.columns},
            "run_id": F.lit(run_id),
            "manifest_version": F.lit(manifest_version),
            **values,
        }
        return rows.select(*(own.get(c.name, F.lit(None)).cast(c.dataType).alias(c.name) for c in AUDIT.schema))

    return transform


def parts_of(text: Column, separator: str) -> Column:
    """Split a text of `before` or `after` into parts (array<string>): empty for an empty text, null for null."""
    return F.filter(F.split(text, separator), lambda each: each != "")


def read_moves() -> Column:
    """Read the partitions that a reassignment moves. In: its `before` and `after`. Out: `phases.MOVES`."""

    def one(part: Column) -> Column:
        brokers = parts_of(F.substring_index(part, ":", -1), ",").cast("array<int>")
        return F.struct(F.substring_index(part, ":", 1).cast("int").alias("partition"), brokers.alias("brokers"))

    before, after = (F.transform(parts_of(F.col(name)["assignments"], ";"), one) for name in ("before", "after"))
    old = F.map_from_entries(before)
    return F.transform(
        after,
        lambda each: F.struct(
            each["partition"].alias("partition"),
            F.try_element_at(old, each["partition"]).alias("before"),
            each["brokers"].alias("after"),
        ),
    )


WARNING = "warning: "
"""Prefix of the message in `plans` and `audit` if the violated policy only warns."""


def written_violations(violations: Column) -> Column:
    """Convert violations for `plans` and `audit`. In: `phases.VIOLATIONS`. Out: `schemas.VIOLATIONS`."""

    def one(each: Column) -> Column:
        message = F.when(each["warns"], F.concat(F.lit(WARNING), each["message"])).otherwise(each["message"])
        return F.struct(each["policy"].alias("policy"), message.alias("message"))

    return _of_few(violations, one)


def read_violations(violations: Column) -> Column:
    """Convert violations of `plans` or `audit` for phases. In: `schemas.VIOLATIONS`. Out: `phases.VIOLATIONS`."""

    def one(each: Column) -> Column:
        warns = F.startswith(each["message"], F.lit(WARNING))
        message = F.regexp_replace(each["message"], f"^{WARNING}", "")
        return F.struct(each["policy"].alias("policy"), message.alias("message"), warns.alias("warns"))

    return _of_few(violations, one)


def _of_few(values: Column, one: Callable[[Column], Column]) -> Column:
    # Spark interprets `transform` instead of compiling it. Most rows have no violations, and skip it here.
    return F.when(values.isNotNull(), F.transform(values, one))


def touched() -> Column:
    """Return the names that a change sets or resets (array<string>). In: `before` and `after`."""
    return F.array_union(F.map_keys("before"), F.map_keys("after"))


def is_undeclared() -> Column:
    """Return whether a row is about a topic that is deleted because its row was removed. In: `before`."""
    return F.coalesce(F.col("before")[UNDECLARED].isNotNull(), F.lit(False))


def is_replaced() -> Column:
    """Return whether a row is about a replaced topic that is deleted. In: `before`."""
    return F.coalesce(F.col("before")[REPLACED_BY].isNotNull(), F.lit(False))


def has_no_row() -> Column:
    """Return whether a deleted topic has no row of `manifests`: by a prune or a revert, too. In: `before`."""
    before = F.col("before")
    return is_undeclared() | is_replaced() | before[END_OFFSET].isNotNull() | before[REVERTS].isNotNull()
