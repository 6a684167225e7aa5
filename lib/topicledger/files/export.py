"""Export live clusters as manifests, to adopt existing topics. Changes no cluster."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from topicledger.config import patterns
from topicledger.config.settings import ClusterSettings, KafkaSettings, Owners, Settings
from topicledger.errors import TopicLedgerError, UsageError
from topicledger.files import export_resources
from topicledger.files.changes import adopt, as_declared
from topicledger.files.export_resources import ResourceExport
from topicledger.files.exported import ClusterExport, Exported, TopicMessage, folded
from topicledger.files.load import Loaded, of_counts
from topicledger.files.proposals import proposals
from topicledger.files.writing import SUFFIXES, write_manifests
from topicledger.frames import materialised
from topicledger.ledger.tables import Ledger
from topicledger.manifests.ignored import Ignored, is_ignored
from topicledger.manifests.owners import owner_key
from topicledger.manifests.rows import PRESENT, Transform
from topicledger.model import INTERNAL_TOPICS, SET_ON_TOPIC
from topicledger.observe.clusters import observe
from topicledger.observe.configs import observe_configs
from topicledger.observe.topic_use import read_consumer_groups
from topicledger.observe.topics import as_expected
from topicledger.resources.kind import ResourceKind
from topicledger.schemas import MANIFESTS
from topicledger.text import SHOWN_FAILURES, listed, show

_REASON, _NOTE = "not_exported", "note"
_UNOWNED = "unowned"
"""The folder for topics without an owner."""
_MOST_FOLDER = 200
"""Longest name of a folder, in characters; file systems accept 255 bytes."""


@dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """What to export, and its destination."""

    to: Path | None
    """A file, or a folder that gets a file for each cluster; None merges into `manifests`."""
    pattern: str | None = None
    """RE2 pattern that topics to export must match; None takes all topics."""
    exclude: str | None = None
    """RE2 pattern of topics to leave out."""
    with_assignments: bool = False
    """Whether to export current assignments instead of counts."""
    owner: str | None = None
    """Owner to set for everything that is exported."""
    overwrite: bool = False
    """Whether to replace existing files."""
    unmanaged: bool = False
    """Only topics that no row of `manifests` names."""
    units: bool = False
    """Whether files have units in configs (`7d`) in place of Kafka's plain numbers."""
    split: Literal["owner"] | None = None
    """`owner` writes a folder for each owner into the folder `to`, with a file for each cluster."""
    resources: Sequence[ResourceKind] = ()
    """Kinds of resources to export beside topics."""


def check(clusters: Sequence[ClusterSettings], request: ExportRequest) -> None:
    """Raise the UsageErrors of `export` before a Spark session is started."""
    _files(clusters, request)
    for pattern in (request.pattern, request.exclude):
        if pattern is not None:
            try:
                patterns.check(pattern)
            except ValueError as error:
                raise UsageError(str(error)) from None


def export(ledger: Ledger, settings: Settings, clusters: Sequence[ClusterSettings], request: ExportRequest) -> Exported:
    """Observe clusters and write their topics to files, or into `manifests` in one commit.

    Raises UsageError for an invalid pattern, and for files that already exist.
    """
    check(clusters, request)
    files = _files(clusters, request)
    selected = _selected(request)
    selected &= ~patterns.any_matches("topic", settings.scope.ignore_topics)
    spark = ledger.spark
    nobody = spark.createDataFrame([], "cluster string, topic string")
    seen = observe(ledger, settings, clusters, nobody)
    ids, problems = as_expected(clusters, seen)
    # On old brokers, some internal topics are ordinary topics, but no file may declare them.
    internal = F.col("internal") | F.col("topic").isin(*INTERNAL_TOPICS)
    wanted = seen.topics.where(F.col("cluster").isin(*ids) & ~internal).where(selected)
    reached = [cluster for cluster in clusters if cluster.name in ids]
    declared = ledger.read_if_exists(MANIFESTS)
    if request.unmanaged:
        wanted = wanted.join(declared, on=["cluster", "topic"], how="left_anti").transform(materialised)
    described = observe_configs(spark, reached, settings.kafka, wanted)
    problems += described.errors.values()
    configs = described.configs.select("cluster", "topic", "configs", "config_error")
    rows = (
        wanted.join(configs, on=["cluster", "topic"], how="inner")
        .transform(as_manifests(request.owner, settings.ignored_configs, with_assignments=request.with_assignments))
        .transform(as_declared(MANIFESTS, declared))
        .transform(_without_replaced(declared))
        .transform(materialised)
    )
    unread: list[TopicMessage] = []
    if request.owner is None:
        groups = _Groups(spark, reached, settings.kafka)
        # Guessed owners go only to files, because people read a file before they load it.
        proposed = _with_owners(declared, settings.owners, groups if request.to is not None else None)
        rows = rows.transform(proposed).transform(materialised)
        unread = groups.unread
    others = [
        export_resources.export(ledger, each, reached, settings, ids, owner=request.owner, unmanaged=request.unmanaged)
        for each in request.resources
    ]
    # A file without a requested kind would claim that the cluster has no such resources.
    problems += [problem for each in others for problem in each.problems.values()]
    unlisted = {name for each in others for name in each.problems}
    names = [name for name in ids if name not in described.errors and name not in unlisted]
    rows = rows.where(~F.col("cluster").isin(*unlisted)) if unlisted else rows
    left_out = [*_messages(rows, _REASON), *(message for each in others for message in each.left_out())]
    notes = [*unread, *_messages(rows, _NOTE)]
    exported = rows.where(F.col(_REASON).isNull())
    if request.to is None:
        counts = _counts(exported)
        of_tables = {each.kind.table.name: _counts(each.exported) for each in others}
        loaded = _merge(ledger, exported, others, request) if names else None
        done = [
            ClusterExport(
                cluster=name,
                topics=counts.get(name, 0),
                file=None,
                resources={table: of_table.get(name, 0) for table, of_table in of_tables.items()},
            )
            for name in names
        ]
        return Exported(clusters=done, not_exported=left_out, notes=notes, loaded=loaded, problems=problems)
    head = [*left_out, *unread]
    done = [each for name in names for each in _write(files[name], name, exported, others, head, request)]
    return Exported(clusters=done, not_exported=left_out, notes=notes, problems=problems)


def _counts(rows: DataFrame) -> Mapping[str, int]:
    return {row["cluster"]: row["count"] for row in rows.groupBy("cluster").count().collect()}


def _merge(ledger: Ledger, topics: DataFrame, others: Sequence[ResourceExport], request: ExportRequest) -> Loaded:
    counts = adopt(ledger, MANIFESTS, topics.select(*MANIFESTS.schema.names), request.owner)
    resources = {each.kind.table.name: adopt(ledger, each.kind.table, each.exported, request.owner) for each in others}
    return replace(of_counts(counts), resources=resources)


def as_manifests(owner: str | None, ignored: Ignored, *, with_assignments: bool) -> Transform:
    """Convert live topics to rows of `manifests`.

    In: the columns of `observed`, `configs` as in `observed_configs` and `config_error`. Out: the columns of
    `manifests`, with the configs that are set on the topic, readable and not `ignored`; `not_exported`, why a topic
    can't be exported (else null); `note`, what the row doesn't contain (else null).
    """
    set_here = F.filter(
        "configs", lambda each: (each["config_source"] == SET_ON_TOPIC) & ~is_ignored(ignored, each["name"])
    )
    readable = F.filter(set_here, lambda each: ~each["is_sensitive"] & each["value"].isNotNull())
    hidden = F.transform(F.filter(set_here, lambda each: each["is_sensitive"]), lambda each: each["name"])
    uneven = F.size(F.array_distinct(F.transform(F.map_values("assignments"), F.size))) > 1
    by_name = F.map_from_entries(F.transform(readable, lambda each: F.struct(each["name"], each["value"])))
    notes = F.concat_ws(
        "; ",
        F.when(F.size(hidden) > 0, F.concat(F.lit("sensitive, so not exported: "), F.array_join(hidden, ", "))),
        F.when(uneven, F.lit("its partitions have different numbers of replicas: replication_factor is left out")),
    )
    assigned = F.lit(with_assignments) & ~uneven
    values = {
        "state": F.lit(PRESENT),
        "num_partitions": F.when(~assigned, F.col("num_partitions")),
        "replication_factor": F.when(~assigned & ~uneven, F.col("replication_factor")),
        "assignments": F.when(assigned, F.col("assignments")),
        "configs": F.when(F.size(readable) > 0, by_name),
        "owner": F.lit(owner).cast("string"),
        "labels": F.lit(None),
        "placement": F.lit(None),
        "replaces": F.lit(None),
        "description": F.lit(None),
        _REASON: F.when(
            F.col("configs").isNull(), F.concat(F.lit("its configs can't be described: "), F.col("config_error"))
        ),
        _NOTE: F.when((notes != "") & F.col("configs").isNotNull(), notes),
    }

    def transform(topics: DataFrame) -> DataFrame:
        types = {each.name: each.dataType for each in MANIFESTS.schema}
        columns = {name: values.get(name, F.col(name)).cast(data_type) for name, data_type in types.items()}
        return topics.select(
            *(column.alias(name) for name, column in columns.items()),
            *(values[name].alias(name) for name in (_REASON, _NOTE)),
        )

    return transform


@dataclass(frozen=True)
class _Groups:
    """Reads the consumer groups of topics on demand."""

    spark: SparkSession
    clusters: Sequence[ClusterSettings]
    kafka: KafkaSettings
    unread: list[TopicMessage] = field(default_factory=list)
    """One message for each cluster whose groups can't be read."""

    def __call__(self, keys: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], Sequence[str]]:
        topics = self.spark.createDataFrame(list(keys), "cluster string, topic string")
        found = read_consumer_groups(self.spark, self.clusters, self.kafka, topics).transform(materialised)
        using: dict[tuple[str, str], list[str]] = {}
        for row in found.where("group is not null").select("cluster", "topic", "group").collect():
            using.setdefault((row["cluster"], row["topic"]), []).append(row["group"])
        unread = found.where("error is not null").groupBy("cluster").agg(F.min("error").alias("error"))
        for row in unread.orderBy("cluster").collect():
            why = f"consumer groups can't be read, so no owners are proposed from them: {row['error']}"
            self.unread.append(TopicMessage(cluster=row["cluster"], topic=None, message=why, resource_type="group"))
        return using


def _without_replaced(declared: DataFrame) -> Transform:
    """Leave out topics that a declared row replaces: declared themselves, they would make that row invalid.

    In and out: the columns that `as_manifests` returns.
    """
    replaced = (
        declared.where(F.col("replaces").isNotNull())
        .groupBy("cluster", F.col("replaces").alias("topic"))
        .agg(F.min("topic").alias("_by"))
    )
    reason = F.when(F.col("_by").isNotNull(), F.concat(F.lit("replaced by "), "_by", F.lit(", which a row declares")))
    return lambda rows: (
        rows.join(replaced, on=["cluster", "topic"], how="left")
        .withColumn(_REASON, F.coalesce(_REASON, reason))
        .select(*rows.columns)
    )


def _with_owners(declared: DataFrame, owners: Owners, groups: _Groups | None) -> Transform:
    """Add owners to topics, with the reason in `note` if an owner is a guess.

    In and out: the columns that `as_manifests` returns.
    """

    def transform(rows: DataFrame) -> DataFrame:
        keys = [(row["cluster"], row["topic"]) for row in rows.select("cluster", "topic").collect()]
        of_topics = declared.select("cluster", "topic", "owner").where("topic is not null and owner is not null")
        found = proposals(keys, (tuple(row) for row in of_topics.collect()), owners, groups)
        made = rows.sparkSession.createDataFrame(
            [
                (*key, each.owner, each.why and f"owner {show(each.owner)} is proposed: {each.why}")
                for key, each in found.items()
            ],
            "cluster string, topic string, _owner string, _why string",
        )
        notes = F.nullif(F.concat_ws("; ", _NOTE, "_why"), F.lit(""))
        both = rows.join(made, on=["cluster", "topic"], how="left")
        return both.withColumns({"owner": F.col("_owner"), _NOTE: notes}).select(*rows.columns)

    return transform


def _selected(request: ExportRequest) -> Column:
    taken = patterns.matches("topic", request.pattern) if request.pattern is not None else F.lit(True)
    left = patterns.matches("topic", request.exclude) if request.exclude is not None else F.lit(False)
    return taken & ~left


def _messages(rows: DataFrame, column: str) -> list[TopicMessage]:
    found = rows.where(F.col(column).isNotNull()).select("cluster", "topic", F.col(column).alias("message"))
    return [TopicMessage(**row.asDict()) for row in found.orderBy("cluster", "topic").collect()]


def _files(clusters: Sequence[ClusterSettings], request: ExportRequest) -> dict[str, Path]:
    """Return each cluster's file; if split by owner, the file for topics without an owner.

    Raises UsageError if the destination doesn't fit the request or can't be created.
    """
    to = request.to
    if to is None:
        if request.split is not None:
            raise UsageError(f"--split {request.split} needs --to, a folder")
        if request.units:
            raise UsageError("--units is for files; the table has plain numbers: leave it out with --into-table")
        if request.overwrite:
            raise UsageError("--overwrite is for files: leave it out with --into-table")
        return {}
    if to.suffix and not to.is_dir():
        if to.suffix.lower() not in SUFFIXES:
            raise UsageError(
                f"--to {to}: a file name must end in {', '.join(SUFFIXES)}, and the name of a new folder has no dot"
            )
        if request.split is not None:
            raise UsageError(f"--to {to}: --split {request.split} needs a folder")
        if len(clusters) > 1:
            raise UsageError(f"--to {to}: several clusters need a folder, which gets a file for each")
        files = {clusters[0].name: to}
    else:
        folder = to if request.split is None else to / _UNOWNED
        # A cluster's name may be anything that TOML can write.
        files = {cluster.name: folder / f"{quote(cluster.name, safe=' ')}.yaml" for cluster in clusters}
    there = [str(file) for name in files.values() for file in _there(name, request)]
    if there and not request.overwrite:
        named = listed(there, most=SHOWN_FAILURES)
        raise UsageError(f"{named} already exists: choose another destination, or add --overwrite")
    try:
        for file in files.values():
            (to if request.split is not None else file.parent).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--to {to}: {error.strerror}: {error.filename}") from None
    return files


def _there(file: Path, request: ExportRequest) -> Sequence[Path]:
    """Return the existing files that an export of this cluster may replace."""
    if request.split is None:
        return [file] if file.exists() else []
    return sorted(each / file.name for each in file.parent.parent.glob("*") if (each / file.name).exists())


def _write(
    file: Path,
    cluster: str,
    exported: DataFrame,
    others: Sequence[ResourceExport],
    messages: Sequence[TopicMessage],
    request: ExportRequest,
) -> Iterator[ClusterExport]:
    """Write a cluster's file, or with `split` one file for each owner.

    Raises TopicLedgerError if a file can't be written.
    """
    notes = [text for name, text in folded([each for each in messages if each.cluster == cluster]) if name == cluster]
    resources = {each.kind.table.name: each.entries(cluster) for each in others}
    by_owner = owner_key(F.col("owner")) if request.split is not None else F.lit(None).cast("string")
    rows = exported.where(F.col("cluster") == cluster).withColumn("_file", by_owner).orderBy("_file", "topic")
    read = (row.asDict(recursive=True) for row in rows.toLocalIterator())
    if request.split is None:
        yield _write_file(file, cluster, read, notes, resources, units=request.units)
        return

    def of_owner(owner: str | None) -> Path:
        return file if owner is None else file.parent.with_name(_folder(owner)) / file.name

    written = False
    for owner, topics in groupby(read, key=lambda row: row["_file"]):
        # Resources beside topics have the given owner, or none.
        is_home = owner is None or request.owner is not None
        written |= is_home or not resources
        home_notes, home_resources = (notes, resources) if is_home else ((), {})
        yield _write_file(of_owner(owner), cluster, topics, home_notes, home_resources, units=request.units)
    if not written:
        yield _write_file(of_owner(request.owner and request.owner.strip().lower()), cluster, (), notes, resources)


def _folder(owner: str) -> str:
    """Return a folder name for an owner's normalised name, which may be any text."""
    name = quote(owner, safe=" ")
    if name.startswith(".") or name == _UNOWNED:
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if len(name) > _MOST_FOLDER:
        name = f"{name[: _MOST_FOLDER - 17]}-{hashlib.sha256(owner.encode()).hexdigest()[:16]}"
    return name


def _write_file(
    file: Path,
    cluster: str,
    rows: Iterable[Mapping[str, Any]],
    notes: Sequence[str],
    resources: Mapping[str, Iterable[Mapping[str, Any]]],
    *,
    units: bool = False,
) -> ClusterExport:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        counts = dict(write_manifests(file, cluster, rows, notes, resources, units=units))
    except OSError as error:
        raise TopicLedgerError(f"can't write {show(str(file))}: {error.strerror}") from error
    return ClusterExport(cluster=cluster, topics=counts.pop("manifests"), file=str(file), resources=counts)
