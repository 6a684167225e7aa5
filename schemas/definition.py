"""What a table of the ledger is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql.types import DataType, StructField, StructType

SCHEMA_VERSION = 8
SCHEMA_VERSION_PROPERTY = "topicledger.schemaVersion"


@dataclass(frozen=True, kw_only=True)
class Table:
    """One Delta table of the ledger."""

    name: str
    """Folder under `tables.root`, or table name in `catalog.schema`."""
    comment: str
    """One line, kept in the table itself."""
    schema: StructType
    """Columns in order; a field's metadata holds its comment."""
    key: tuple[str, ...] = ()
    """Of tables that declare resources beside topics: the columns that name one."""
    partitioned_by: tuple[str, ...] = ()
    """Partition columns."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Delta table properties beside the schema version."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Column -> what null stands for in it, in SQL: older rows have none."""
    shared: bool = False
    """Other tools write it too: extra columns, nullability and properties are theirs."""


def column(name: str, data_type: DataType, comment: str = "", *, nullable: bool = True) -> StructField:
    return StructField(name, data_type, nullable, {"comment": comment} if comment else None)


def skipping_by(*columns: str) -> Mapping[str, str]:
    """Queries that name these columns skip files; by default Delta looks at each value of the first 32 for it."""
    return {"delta.dataSkippingStatsColumns": ",".join(columns)}
