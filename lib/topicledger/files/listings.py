"""Rows of a listing beside the tables: what the output of Kafka's own tools can't say stays as it is declared."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from topicledger.files.changes import KEPT
from topicledger.files.load import clusters_of
from topicledger.ledger.sql import key_part
from topicledger.ledger.tables import Ledger
from topicledger.ledger.versions import latest_if_exists
from topicledger.manifests.files import FileRow, ManifestRow, ParsedManifests, ResourceRow
from topicledger.manifests.row_rules import ABSENT
from topicledger.schemas import MANIFESTS, TABLES, Table
from topicledger.text import show

_KEPT = ("owner", *KEPT, "placement")
"""Columns that keep their value, if they have one."""
_COUNTS = ("replication_factor", "assignments")
_IS_ABSENT = "a row declares it absent, and stays"
_Key = tuple[object, ...]
_R = TypeVar("_R", ManifestRow, ResourceRow)


def declared(ledger: Ledger, parsed: ParsedManifests) -> Mapping[str, DataFrame]:
    """Return one version of each table that the files have rows of, by name."""
    tables = (TABLES[name] for name in parsed.tables)
    return {each.name: ledger.read_at(each, latest_if_exists(ledger, each)) for each in tables}


def with_declared(parsed: ParsedManifests, there: Mapping[str, DataFrame]) -> ParsedManifests:
    """Give the rows of a listing what their declarations have and the listing lacks. `there`: what `declared` returned.

    Leaves out what a row declares absent, and topics that a declared one replaces, as `export` does.
    """
    known = {name: _known(TABLES[name], there[name], rows) for name, rows in parsed.tables.items()}
    left_out = [each for name, rows in parsed.tables.items() for each in _left_out(name, rows, known[name])]
    kept = parsed.without(left_out)

    def completed(table: str, rows: list[_R]) -> list[_R]:
        return [_completed(row, known[table].get(_key_of(table, row))) for row in rows]

    return dataclasses.replace(
        kept,
        rows=completed(MANIFESTS.name, kept.rows),
        resources={table: completed(table, rows) for table, rows in kept.resources.items()},
    )


def _known(table: Table, there: DataFrame, rows: Sequence[FileRow]) -> Mapping[_Key, Row]:
    """Return the rows of a table on the clusters of `rows`, by key: of several, one that is absent."""
    key = (key_part(table, name).alias(name) for name in table.key)
    more = [name for name in ("state", *_KEPT, *_COUNTS) if name in table.schema.names]
    found: dict[_Key, Row] = {}
    for row in there.where(F.col("cluster").isin(*clusters_of(rows))).select(*key, *more).collect():
        its_key = row[: len(table.key)]
        if its_key not in found or row["state"] == ABSENT:
            found[its_key] = row
    return found


def _key_of(table: str, row: FileRow) -> _Key:
    return tuple(row.value(column) for column in TABLES[table].key)


def _left_out(table: str, rows: Sequence[FileRow], known: Mapping[_Key, Row]) -> Iterator[tuple[FileRow, str]]:
    replaced = {}
    if table == MANIFESTS.name:
        replaced = {(each["cluster"], each["replaces"]): each["topic"] for each in known.values() if each["replaces"]}
    for row in rows:
        key = _key_of(table, row)
        if key in known and known[key]["state"] == ABSENT:
            yield row, _IS_ABSENT
        elif key in replaced:
            yield row, f"replaced by {show(str(replaced[key]))}, which a row declares"


def _completed(row: _R, known: Row | None) -> _R:
    if known is None:
        return row
    values: dict[str, Any] = {name: known[name] for name in _KEPT if name in known and known[name] is not None}
    if isinstance(row, ManifestRow):
        values |= _counts(row, known)
    return dataclasses.replace(row, **values)


def _counts(row: ManifestRow, known: Row) -> Mapping[str, object]:
    """Return the declared assignments if they fit the listing; the declared replication factor if it has none."""
    factor, assignments = row.replication_factor, known["assignments"]
    if not assignments or len(assignments) != row.num_partitions:
        return {"replication_factor": known["replication_factor"] if factor is None else factor}
    if factor is not None and any(len(brokers) != factor for brokers in assignments.values()):
        return {}
    return {"assignments": assignments, "num_partitions": None, "replication_factor": None}
