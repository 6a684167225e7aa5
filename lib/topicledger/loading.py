"""Manifest files into the table `manifests`: checked whole first, then one MERGE."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TextIO

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from topicledger import manifests
from topicledger.errors import ManifestFileError, UsageError
from topicledger.hints import nearest, show
from topicledger.manifest_files import (
    FileError,
    Format,
    ManifestRow,
    NotCarriedOver,
    ParsedManifests,
    read_foreign_files,
    read_manifest_files,
)
from topicledger.manifest_files.foreign import FOREIGN_FORMATS
from topicledger.schemas import MANIFESTS
from topicledger.settings import Settings
from topicledger.tables import Ledger, manifests_differ

_REASON_CHARACTERS = 2_000
_KEYS_SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What a load did to the table."""

    added: int
    changed: int
    unchanged: int
    removed: int
    """With --replace: rows of the files' clusters that no file has."""
    not_carried_over: Sequence[NotCarriedOver] = ()
    """With --from: each value that no row has, with its place."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """With --from: entries that are no topics to manage, counted by kind."""


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """That the files are another tool's."""

    form: str
    """A name in FOREIGN_FORMATS."""
    cluster: str | None = None
    """The cluster of all topics; None: the one that the files name."""


def load(
    ledger: Ledger,
    settings: Settings,
    paths: Sequence[Path | Literal["-"]],
    stdin: TextIO,
    *,
    stdin_format: Format | None = None,
    replace: bool = False,
    foreign: Foreign | None = None,
) -> Loaded:
    """Load files into `manifests`, in one commit, or nothing at all.

    Additive; with `replace` the files are the whole truth for the clusters they name; `foreign` says that they are
    another tool's. Raises ManifestFileError listing every error of every file with its line: a row that a run would
    refuse by itself is an error here already (C1, C3).
    """
    parsed = _parse(paths, stdin, stdin_format, foreign)
    frame = _frame(ledger.spark, parsed.rows)
    hint = "; --cluster NAME puts the topics on another one" if foreign is not None else ""
    unknown = _unknown_clusters(parsed.rows, settings, hint)
    errors = [*parsed.errors, *unknown, *_row_errors(frame), *_repeated(parsed.rows)]
    if errors:
        told = [str(error) for error in sorted(errors, key=lambda error: (error.file, error.line or 0))]
        total = "1 error" if len(told) == 1 else f"{len(told)} errors"
        raise ManifestFileError("\n".join([*told, f"{total}: nothing was loaded"]))
    rows = frame.drop("file", "line").dropDuplicates(["cluster", "topic"])
    loaded = merge(ledger, rows, sorted({row.cluster for row in parsed.rows}) if replace else [])
    return dataclasses.replace(loaded, not_carried_over=tuple(parsed.not_carried_over), skipped=parsed.skipped)


def merge(ledger: Ledger, rows: DataFrame, replaced: Sequence[str] = ()) -> Loaded:
    """Merge rows of `manifests`, one per (cluster, topic), in one commit, or none where the table says so already.

    Rows of the clusters `replaced` that aren't among them are removed.
    """
    ledger.ensure(MANIFESTS)
    loaded = _compare(ledger.read(MANIFESTS), rows, replaced)
    if loaded.added or loaded.changed or loaded.removed:
        ledger.merge_manifests(rows, replace_clusters=replaced)
    return loaded


def _parse(
    paths: Sequence[Path | Literal["-"]], stdin: TextIO, stdin_format: Format | None, foreign: Foreign | None
) -> ParsedManifests:
    if foreign is None:
        return read_manifest_files(paths, stdin, stdin_format=stdin_format)
    if stdin_format is not None:
        raise UsageError(f"--stdin-format is for native files; with --from {foreign.form} leave it out")
    form = FOREIGN_FORMATS[foreign.form]
    if foreign.cluster is None and not form.names_cluster:
        raise UsageError(f"--from {form.name} needs --cluster NAME: its files don't say which cluster they are for")
    return read_foreign_files(paths, stdin, form, cluster=foreign.cluster)


def _frame(spark: SparkSession, rows: Sequence[ManifestRow]) -> DataFrame:
    place = [StructField("file", StringType()), StructField("line", IntegerType())]
    schema = StructType([*(StructField(f.name, f.dataType) for f in MANIFESTS.schema), *place])
    arrow = to_arrow_schema(schema, timezone="UTC")

    def value(row: ManifestRow, name: str) -> object:
        content = getattr(row, name)
        return (
            list(content.items()) if name in ("assignments", "configs", "labels") and content is not None else content
        )

    columns = [pa.array([value(row, field.name) for row in rows], type=field.type) for field in arrow]
    return spark.createDataFrame(pa.Table.from_arrays(columns, schema=arrow), schema)


def _unknown_clusters(rows: Sequence[ManifestRow], settings: Settings, hint: str) -> list[FileError]:
    return [
        FileError(
            file=row.file,
            line=row.line,
            message=f"unknown cluster `{show(row.cluster)}`; {nearest(row.cluster, settings.clusters)}{hint}",
        )
        for row in rows
        if row.cluster not in settings.clusters
    ]


def _row_errors(frame: DataFrame) -> list[FileError]:
    bad = frame.transform(manifests.with_reasons(manifests.row_rules())).where("error is not null")
    return [
        FileError(file=row["file"], line=row["line"], message=_reason(row))
        for row in bad.select("file", "line", "topic", "error_message").collect()
    ]


def _reason(row: Row) -> str:
    return f"topic {show(row['topic'])}: {show(row['error_message'], _REASON_CHARACTERS)}"


def _repeated(rows: Sequence[ManifestRow]) -> list[FileError]:
    """Rows that say of a topic something else than an earlier one; a copy that says the same is no error (C2)."""
    first: dict[tuple[str, str], ManifestRow] = {}
    errors = []
    for row in rows:
        earlier = first.setdefault((row.cluster, row.topic), row)
        if any(getattr(row, name) != getattr(earlier, name) for name in manifests.COLUMNS):
            message = (
                f"topic {show(row.topic)} is declared otherwise at {earlier.file}:{earlier.line}; keep one of them"
            )
            errors.append(FileError(file=row.file, line=row.line, message=message))
    return errors


def _compare(table: DataFrame, rows: DataFrame, replaced: Sequence[str]) -> Loaded:
    same_key = (F.col("old.cluster") == F.col("new.cluster")) & (F.col("old.topic") == F.col("new.topic"))
    differs = manifests_differ("old", "new")
    old, new = F.col("old.topic").isNotNull(), F.col("new.topic").isNotNull()
    counted = (
        table.alias("old")
        .join(rows.alias("new"), on=same_key, how="full_outer")
        .agg(
            F.count_if(new & ~old).alias("added"),
            F.count_if(old & new & differs).alias("changed"),
            F.count_if(old & new & ~differs).alias("unchanged"),
            F.count_if(~new & F.col("old.cluster").isin(*replaced)).alias("removed"),
        )
        .collect()[0]
    )
    return Loaded(**counted.asDict())


def leftovers(loaded: Loaded) -> list[str]:
    """What was not carried over and what was skipped, in lines for the terminal: alike ones together."""
    alike: dict[str, list[NotCarriedOver]] = {}
    for each in loaded.not_carried_over:
        alike.setdefault(each.what, []).append(each)
    lines = []
    for what, those in alike.items():
        keys = list(dict.fromkeys(each.key for each in those))
        more = f" and {len(keys) - _KEYS_SHOWN} more" if len(keys) > _KEYS_SHOWN else ""
        named = ", ".join(f"`{show(key)}`" for key in keys[:_KEYS_SHOWN]) + more
        first = f"{show(those[0].file)}:{those[0].line}"
        place = first if len(those) == 1 else f"{len(those)} times, first at {first}"
        lines.append(f"not carried over: {named} ({show(what)}), {place}")
    if loaded.skipped:
        counted = ", ".join(f"{count} {show(kind)}" for kind, count in sorted(loaded.skipped.items()))
        lines.append(f"skipped: {counted}")
    return lines
