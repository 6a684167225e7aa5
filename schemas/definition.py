"""The definition of a table of the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql.types import DataType, StringType, StructField, StructType

SCHEMA_VERSION = 11
SCHEMA_VERSION_PROPERTY = "topicledger.schemaVersion"


@dataclass(frozen=True, kw_only=True)
class Table:
    """One Delta table of the ledger."""

    name: str
    """Folder under `tables.root`, or table name in `catalog.schema`."""
    comment: str
    """One line, stored in the table itself."""
    schema: StructType
    """Columns in order; a field's metadata holds its comment."""
    key: tuple[str, ...] = ()
    """The columns that identify a resource, in tables that declare resources."""
    key_defaults: Mapping[str, str] = field(default_factory=dict)
    """Columns of the key that may be null -> the text that null stands for: both name the same resource."""
    partitioned_by: tuple[str, ...] = ()
    """Partition columns."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Delta table properties beside the schema version."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Column -> SQL expression for its nulls, which older rows have."""
    shared: bool = False
    """Whether other tools write the table, too: then extra columns, nullability and properties are up to them."""

    def selected(self, *names: str) -> str:
        """Return columns for a SELECT in SQL; nulls of older rows are replaced."""
        return ", ".join(
            f"COALESCE({name}, {self.defaults[name]}) AS {name}" if name in self.defaults else name for name in names
        )


def column(name: str, data_type: DataType, comment: str = "", *, nullable: bool = True) -> StructField:
    return StructField(name, data_type, nullable, {"comment": comment} if comment else None)


FIRST_OBSERVED_BY = column(
    "run_id",
    StringType(),
    "the run that first observed this state; a cluster's rows are replaced when they change",
)
"""A column of the tables that hold what clusters have."""


def skipping_by(*columns: str) -> Mapping[str, str]:
    """Return properties that let queries on these columns skip files; by default Delta uses the first 32 columns."""
    return {"delta.dataSkippingStatsColumns": ",".join(columns)}
