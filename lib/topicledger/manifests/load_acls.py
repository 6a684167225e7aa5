"""Rights of manifest files into the table `acls`: compared with it first, then one MERGE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from topicledger.ledger.tables import Ledger, differ
from topicledger.manifests import acls as rules
from topicledger.manifests.files import AclRow, FileError
from topicledger.manifests.owners import is_one_of
from topicledger.manifests.rows import with_reasons
from topicledger.schemas import ACL_KEY, ACLS
from topicledger.text import show

KEY = ("cluster", *ACL_KEY)
_REASON_CHARACTERS = 2_000
_SHOWN_SHORTHANDS = 20
_SHOWN_RIGHTS = 8


@dataclass(frozen=True, kw_only=True)
class AclChanges:
    """What the table `acls` doesn't say yet."""

    rows: DataFrame
    counts: Mapping[str, int]
    """added, changed, unchanged, removed."""
    removed: DataFrame | None = None
    """`KEY` of rows that no file has; None where nothing is replaced."""


def checked(spark: SparkSession, rows: Sequence[AclRow]) -> tuple[DataFrame, Sequence[FileError]]:
    """Rows of `acls`, one per right, and an error for each that a run would refuse by itself."""
    place = [StructField("file", StringType()), StructField("line", IntegerType())]
    schema = StructType([*(StructField(f.name, f.dataType) for f in ACLS.schema), *place])

    def values(row: AclRow) -> dict[str, object]:
        labels = None if row.labels is None else list(row.labels.items())
        own = {name: getattr(row, name) for name in ("cluster", "state", "owner", "file", "line")}
        return {**own, **row.acl, "labels": labels}

    arrow = pa.Table.from_pylist([values(row) for row in rows], schema=to_arrow_schema(schema, timezone="UTC"))
    frame = spark.createDataFrame(arrow, schema)
    bad = frame.transform(with_reasons(rules.row_rules())).where("error is not null")
    errors = [
        FileError(file=row["file"], line=row["line"], message=f"acl: {show(row['error_message'], _REASON_CHARACTERS)}")
        for row in bad.select("file", "line", "error_message").distinct().collect()
    ]
    return frame.drop("file", "line").dropDuplicates([*KEY]), [*errors, *_repeated(rows)]


def _repeated(rows: Sequence[AclRow]) -> list[FileError]:
    """Rows that call a right present which an earlier one calls absent, or the other way round."""
    first: dict[tuple[str, ...], AclRow] = {}
    errors = []
    for row in rows:
        earlier = first.setdefault((row.cluster, *row.acl.values()), row)
        if row.state != earlier.state:
            message = f"this right is {earlier.state} at {earlier.file}:{earlier.line}, and {row.state} here; keep one"
            errors.append(FileError(file=row.file, line=row.line, message=message))
    return errors


def difference(
    table: DataFrame, rows: DataFrame, clusters: Sequence[str], owners: tuple[str, ...] | None
) -> AclChanges:
    """What `rows` change of `table`. `owners`: whose rows of `clusters` are removed where `rows` lack them, empty for
    everybody's, None for nobody's."""
    same = [F.col(f"old.{name}").eqNullSafe(F.col(f"new.{name}")) for name in KEY]
    old, differs = F.col("old.cluster").isNotNull(), differ(ACLS, "old", "new")
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
        return AclChanges(rows=rows, counts={**counts, "removed": 0})
    removable = table.where(F.col("cluster").isin(*clusters))
    if owners:
        removable = removable.where(is_one_of(F.col("owner"), owners))
    gone = removable.alias("old").join(rows.alias("new"), on=same, how="left_anti").select(*KEY).localCheckpoint()
    return AclChanges(rows=rows, counts={**counts, "removed": gone.count()}, removed=gone)


def make(ledger: Ledger, changes: AclChanges) -> None:
    """Make the table say so, in one commit, or none where it says so already."""
    if any(changes.counts[name] for name in ("added", "changed", "removed")):
        ledger.merge(ACLS, KEY, changes.rows, removed=changes.removed)


def expansions(rows: Sequence[AclRow]) -> list[str]:
    """What shorthands became, in lines for the terminal: the first, and how many more there are."""
    by_entry: dict[tuple[str, int, str], list[AclRow]] = {}
    for row in rows:
        if row.shorthand is not None:
            by_entry.setdefault((row.file, row.line, row.shorthand), []).append(row)
    lines = []
    for (file, line, shorthand), those in list(by_entry.items())[:_SHOWN_SHORTHANDS]:
        rights = [
            f"{row.acl['operation']} {row.acl['resource_type']} {row.acl['resource_name']}"
            + ("*" if row.acl["pattern_type"] == "PREFIXED" else "")
            for row in those
        ]
        more = f" and {len(rights) - _SHOWN_RIGHTS} more" if len(rights) > _SHOWN_RIGHTS else ""
        shown = ", ".join(map(show, rights[:_SHOWN_RIGHTS])) + more
        lines.append(f"{show(file)}:{line}: {shorthand} {show(those[0].acl['principal'])}: {shown}")
    if len(by_entry) > _SHOWN_SHORTHANDS:
        lines.append(f"and {len(by_entry) - _SHOWN_SHORTHANDS} more shorthands")
    return lines
