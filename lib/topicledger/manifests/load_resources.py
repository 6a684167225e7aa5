"""What manifest files declare beside topics, into its tables: compared with them first, then one MERGE each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from topicledger.ledger.tables import Ledger, differ
from topicledger.manifests import acls, quotas
from topicledger.manifests.files import FileError, ResourceRow
from topicledger.manifests.owners import is_one_of
from topicledger.manifests.rows import Rule, with_reasons
from topicledger.schemas import ACLS, QUOTAS, RESOURCES, Table
from topicledger.text import show

_REASON_CHARACTERS = 2_000
_SHOWN_SHORTHANDS = 20
_SHOWN_RIGHTS = 8
_RULES: Mapping[str, tuple[str, str, Callable[[], Sequence[Rule]]]] = {
    ACLS.name: ("acl", "right", acls.row_rules),
    QUOTAS.name: ("quota", "entity", quotas.row_rules),
}
"""By table: how errors name a row and what it is about, and what a row can get wrong by itself."""


@dataclass(frozen=True, kw_only=True)
class ResourceChanges:
    """What a table doesn't say yet."""

    table: Table
    rows: DataFrame
    counts: Mapping[str, int]
    """added, changed, unchanged, removed."""
    removed: DataFrame | None = None
    """The key of rows that no file has; None where nothing is replaced."""


def checked(
    spark: SparkSession, declared: Mapping[str, Sequence[ResourceRow]]
) -> tuple[Mapping[str, DataFrame], Sequence[FileError]]:
    """Rows by table, one per its key, and an error for each that a run would refuse by itself. In: what files declare
    of each table; tables of which they declare nothing are left out."""
    frames, errors = {}, list[FileError]()
    for table in RESOURCES:
        rows = declared.get(table.name)
        if rows:
            frames[table.name], wrong = _checked(spark, table, rows)
            errors += wrong
    return frames, errors


def _checked(spark: SparkSession, table: Table, rows: Sequence[ResourceRow]) -> tuple[DataFrame, Sequence[FileError]]:
    place = [StructField("file", StringType()), StructField("line", IntegerType())]
    schema = StructType([*(StructField(f.name, f.dataType) for f in table.schema), *place])

    def values(row: ResourceRow) -> dict[str, object]:
        labels = None if row.labels is None else list(row.labels.items())
        own = {name: getattr(row, name) for name in ("cluster", "state", "owner", "file", "line")}
        return {**own, **row.values, "labels": labels}

    arrow = pa.Table.from_pylist([values(row) for row in rows], schema=to_arrow_schema(schema, timezone="UTC"))
    frame = spark.createDataFrame(arrow, schema)
    kind, _, rules = _RULES[table.name]
    bad = frame.transform(with_reasons(rules())).where("error is not null")
    errors = [
        FileError(
            file=row["file"], line=row["line"], message=f"{kind}: {show(row['error_message'], _REASON_CHARACTERS)}"
        )
        for row in bad.select("file", "line", "error_message").distinct().collect()
    ]
    return frame.drop("file", "line").dropDuplicates([*table.key]), [*errors, *_repeated(table, rows)]


def _repeated(table: Table, rows: Sequence[ResourceRow]) -> list[FileError]:
    """Rows that say of something else than an earlier one: of a right its state, of an entity its limits, too."""
    first: dict[tuple[object, ...], ResourceRow] = {}
    what, errors = _RULES[table.name][1], []
    for row in rows:
        key = (row.cluster, *(row.values[name] for name in table.key if name in row.values))
        earlier = first.setdefault(key, row)
        if row.state != earlier.state:
            says = f"is {earlier.state} at {earlier.file}:{earlier.line}, and {row.state} here"
        elif row.values != earlier.values:
            says = f"is declared otherwise at {earlier.file}:{earlier.line}"
        else:
            continue
        errors.append(FileError(file=row.file, line=row.line, message=f"this {what} {says}; keep one"))
    return errors


def difference(
    declared: Table, table: DataFrame, rows: DataFrame, clusters: Sequence[str], owners: tuple[str, ...] | None
) -> ResourceChanges:
    """What `rows` change of `table`, the rows of `declared`. `owners`: whose rows of `clusters` are removed where
    `rows` lack them, empty for everybody's, None for nobody's."""
    key = declared.key
    same = [F.col(f"old.{name}").eqNullSafe(F.col(f"new.{name}")) for name in key]
    old, differs = F.col("old.cluster").isNotNull(), differ(declared, "old", "new")
    counts = (
        table.alias("old")
        .join(rows.alias("new"), on=same, how="right")
        .agg(
            F.count_if(~old).alias("added"),
            F.count_if(old & differs).alias("changed"),
            F.count_if(old & ~differs).alias("unchanged"),
        )
        .collect()[0]
        .asDict()
    )
    if owners is None:
        return ResourceChanges(table=declared, rows=rows, counts={**counts, "removed": 0})
    removable = table.where(F.col("cluster").isin(*clusters))
    if owners:
        removable = removable.where(is_one_of(F.col("owner"), owners))
    gone = removable.alias("old").join(rows.alias("new"), on=same, how="left_anti").select(*key).localCheckpoint()
    return ResourceChanges(table=declared, rows=rows, counts={**counts, "removed": gone.count()}, removed=gone)


def make(ledger: Ledger, changes: ResourceChanges) -> None:
    """Make the table say so, in one commit, or none where it says so already."""
    if any(changes.counts[name] for name in ("added", "changed", "removed")):
        ledger.merge(changes.table, changes.table.key, changes.rows, removed=changes.removed)


def expansions(rows: Sequence[ResourceRow]) -> list[str]:
    """What shorthands became, in lines for the terminal: the first, and how many more there are."""
    by_entry: dict[tuple[str, int, str], list[ResourceRow]] = {}
    for row in rows:
        if row.shorthand is not None:
            by_entry.setdefault((row.file, row.line, row.shorthand), []).append(row)
    lines = []
    for (file, line, shorthand), those in list(by_entry.items())[:_SHOWN_SHORTHANDS]:
        rights = [
            f"{row.values['operation']} {row.values['resource_type']} {row.values['resource_name']}"
            + ("*" if row.values["pattern_type"] == "PREFIXED" else "")
            for row in those
        ]
        more = f" and {len(rights) - _SHOWN_RIGHTS} more" if len(rights) > _SHOWN_RIGHTS else ""
        shown = ", ".join(map(show, rights[:_SHOWN_RIGHTS])) + more
        lines.append(f"{show(file)}:{line}: {shorthand} {show(str(those[0].values['principal']))}: {shown}")
    if len(by_entry) > _SHOWN_SHORTHANDS:
        lines.append(f"and {len(by_entry) - _SHOWN_SHORTHANDS} more shorthands")
    return lines
