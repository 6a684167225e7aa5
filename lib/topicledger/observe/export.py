"""A live cluster as manifests: what an estate that exists already starts from. Changes no cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from topicledger.config import patterns
from topicledger.config.settings import ClusterSettings, Owners, Settings
from topicledger.errors import ExitCode, TopicLedgerError, UsageError, exit_code
from topicledger.ledger.tables import Ledger
from topicledger.manifests.files.writing import SUFFIXES, write_manifests
from topicledger.manifests.load import Loaded, merge
from topicledger.manifests.rows import PRESENT, Transform
from topicledger.model import FORMAT_VERSION, SET_ON_TOPIC
from topicledger.observe import export_resources
from topicledger.observe.clusters import observe
from topicledger.observe.configs import observe_configs
from topicledger.observe.export_resources import Exportable, ResourceExport
from topicledger.observe.proposals import proposals
from topicledger.observe.topic_use import read_consumer_groups
from topicledger.observe.topics import as_expected
from topicledger.schemas import MANIFESTS
from topicledger.text import SHOWN_FAILURES, cell, printable, show

_REASON, _NOTE = "not_exported", "note"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to export, and where to."""

    to: Path | None
    """A file, or a folder that gets a file for each cluster; None merges into `manifests`."""
    pattern: str | None = None
    """Topics whose names have a match (RE2); None takes all."""
    exclude: str | None = None
    """Less those whose names have a match (RE2)."""
    with_assignments: bool = False
    """Replicas as they are, instead of their counts."""
    owner: str | None = None
    """Owner of all of them."""
    overwrite: bool = False
    """Replace files that are there."""
    unmanaged: bool = False
    """Only topics that no row of `manifests` names, with an owner where something tells one."""
    resources: Sequence[Exportable] = ()
    """What to export beside topics."""


@dataclass(frozen=True, kw_only=True)
class TopicMessage:
    """A message about one topic, or about what `resource_type` and `resource` name."""

    cluster: str
    topic: str | None
    message: str
    resource_type: str = "topic"
    resource: str | None = None

    @property
    def name(self) -> str:
        """What it is about."""
        return str(self.topic) if self.topic is not None else f"{self.resource_type} {self.resource}"


@dataclass(frozen=True, kw_only=True)
class ClusterExport:
    """One cluster's export."""

    cluster: str
    topics: int
    """How many were exported."""
    file: str | None
    """None: into the table."""
    resources: Mapping[str, int] = field(default_factory=dict)
    """How many of what was asked for beside topics, by table."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What an export came to."""

    clusters: Sequence[ClusterExport]
    not_exported: Sequence[TopicMessage]
    """Topics that can't be described."""
    notes: Sequence[TopicMessage]
    """Of topics that were exported: what a manifest can't say, and why an owner is proposed."""
    loaded: Loaded | None = None
    """What merging did to the tables."""
    problems: Sequence[str] = field(default_factory=list)
    """Clusters that could not be exported, and why."""

    @property
    def exit_code(self) -> ExitCode:
        """As of a run: topics that can't be described count as failed."""
        return exit_code({ExitCode.ERROR: bool(self.problems), ExitCode.TOPICS_FAILED: bool(self.not_exported)})

    def to_json(self) -> str:
        """The versioned result document."""
        return json.dumps(
            {"format_version": FORMAT_VERSION, "exit_code": int(self.exit_code), **asdict(self)}, indent=2
        )


def render(exported: Exported, console: Console) -> None:
    """Print an export's result for people."""
    grid = Grid(title="Exported", title_justify="left")
    others = list(dict.fromkeys(name for each in exported.clusters for name in each.resources))
    for name in ("cluster", "topics", *others, "to"):
        grid.add_column(name, overflow="fold")
    for each in exported.clusters:
        counts = (str(each.resources[name]) for name in others)
        grid.add_row(cell(each.cluster), str(each.topics), *counts, cell(each.file or "manifests"))
    console.print(grid)
    if exported.loaded is not None:
        loaded = exported.loaded
        console.print(
            f"{loaded.added} added, {loaded.changed} changed, {loaded.unchanged} unchanged in manifests",
            highlight=False,
        )
        for table, of_table in loaded.resources.items():
            counted = ", ".join(f"{of_table[name]} {name}" for name in ("added", "changed", "unchanged"))
            console.print(f"{counted} in {table}", highlight=False)
    for title, messages in (("Not exported", exported.not_exported), ("Note", exported.notes)):
        for one in messages[:SHOWN_FAILURES]:
            text = f"{title}: {cell(one.cluster)} {cell(one.name)}: {cell(one.message)}"
            console.print(text, highlight=False, soft_wrap=True)
        if len(messages) > SHOWN_FAILURES:
            console.print(f"{title}: the first {SHOWN_FAILURES} of {len(messages)}; all are in --format json")
    for problem in exported.problems:
        console.print(f"not exported: {escape(printable(problem))}", highlight=False, soft_wrap=True)


def check(clusters: Sequence[ClusterSettings], request: Request) -> None:
    """Raises the UsageErrors of `export`, before there is a Spark session."""
    _files(clusters, request)
    for pattern in (request.pattern, request.exclude):
        if pattern is not None:
            try:
                patterns.check(pattern)
            except ValueError as error:
                raise UsageError(str(error)) from None


def export(ledger: Ledger, settings: Settings, clusters: Sequence[ClusterSettings], request: Request) -> Exported:
    """Observe clusters and write their topics: to files, or into `manifests`, in one commit.

    Raises UsageError for a bad pattern, and for files that are in the way.
    """
    check(clusters, request)
    files, selected = _files(clusters, request), _selected(request)
    spark = ledger.spark
    nobody = spark.createDataFrame([], "cluster string, topic string")
    seen = observe(ledger, settings, clusters, nobody)
    ids, problems = as_expected(clusters, seen)
    wanted = seen.topics.where(F.col("cluster").isin(*ids) & ~F.col("internal")).where(selected)
    reached = [cluster for cluster in clusters if cluster.name in ids]
    declared = ledger.read(MANIFESTS) if ledger.exists(MANIFESTS) else ledger.rows(MANIFESTS, [])
    if request.unmanaged:
        wanted = wanted.join(declared, on=["cluster", "topic"], how="left_anti").localCheckpoint()
    described = observe_configs(spark, reached, settings.kafka, wanted)
    problems += described.errors.values()
    configs = described.configs.select("cluster", "topic", "configs", "config_error")
    rows = (
        wanted.join(configs, on=["cluster", "topic"], how="inner")
        .transform(as_manifests(request.owner, with_assignments=request.with_assignments))
        .localCheckpoint()
    )
    if request.unmanaged and request.owner is None:
        groups = read_consumer_groups(spark, reached, settings.kafka, wanted)
        rows = rows.transform(_with_proposals(declared, groups, settings.owners)).localCheckpoint()
    others = [
        export_resources.export(
            ledger, each, reached, settings.kafka, ids, owner=request.owner, unmanaged=request.unmanaged
        )
        for each in request.resources
    ]
    # A file without what was asked for would say that the cluster has none of it.
    problems += [problem for each in others for problem in each.problems.values()]
    unlisted = {name for each in others for name in each.problems}
    names = [name for name in ids if name not in described.errors and name not in unlisted]
    rows = rows.where(~F.col("cluster").isin(*unlisted)) if unlisted else rows
    left_out, notes = _messages(rows, _REASON) + _left_out(others), _messages(rows, _NOTE)
    exported = rows.where(F.col(_REASON).isNull())
    if request.to is None:
        loaded = _merge(ledger, exported, others, request) if names else None
        counts = _counts(exported)
        of_tables = {each.kind.table.name: _counts(each.exported) for each in others}
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
    done = [_write(files[name], name, exported, others, [*left_out, *notes]) for name in names]
    return Exported(clusters=done, not_exported=left_out, notes=notes, problems=problems)


def _counts(rows: DataFrame) -> Mapping[str, int]:
    return {row["cluster"]: row["count"] for row in rows.groupBy("cluster").count().collect()}


def _left_out(others: Sequence[ResourceExport]) -> list[TopicMessage]:
    return [
        TopicMessage(cluster=cluster, topic=None, message=why, resource_type=each.kind.what, resource=name)
        for each in others
        for cluster, name, why in each.left_out()
    ]


def _merge(ledger: Ledger, topics: DataFrame, others: Sequence[ResourceExport], request: Request) -> Loaded:
    loaded = merge(ledger, _keeping_owners(ledger, topics, request))
    return replace(loaded, resources={each.kind.table.name: each.merge(ledger, request.owner) for each in others})


def as_manifests(owner: str | None, *, with_assignments: bool) -> Transform:
    """Live topics as rows of `manifests`.

    In: the columns of `observed`, `configs` as in `observed_configs` and `config_error`. Out: the columns of
    `manifests`, of configs only those that are set on the topic and can be read; `not_exported`, why a topic can't be
    exported (else null); `note`, what the row leaves out of it (else null).
    """
    set_here = F.filter("configs", lambda each: each["config_source"] == SET_ON_TOPIC)
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


def _with_proposals(declared: DataFrame, groups: DataFrame, owners: Owners) -> Transform:
    """Owners that are proposed, each with the reason in `note`. In and out: what `as_manifests` returns.

    Where a cluster doesn't say which groups there are, one note says so.
    """

    def transform(rows: DataFrame) -> DataFrame:
        keys = [(row["cluster"], row["topic"]) for row in rows.select("cluster", "topic").collect()]
        known = [
            tuple(row) for row in declared.select("cluster", "topic", "owner").where("topic is not null").collect()
        ]
        using: dict[tuple[str, str], list[str]] = {}
        for row in groups.where("group is not null").select("cluster", "topic", "group").collect():
            using.setdefault((row["cluster"], row["topic"]), []).append(row["group"])
        found = proposals(keys, known, using, owners)
        made = rows.sparkSession.createDataFrame(
            [(*key, each.owner, f"owner {each.owner} is proposed: {each.why}") for key, each in found.items()],
            "cluster string, topic string, _owner string, _why string",
        )
        unread = (
            groups.where("error is not null")
            .groupBy("cluster")
            .agg(
                F.min("topic").alias("topic"),
                F.concat(F.lit("groups can't be read: "), F.any_value("error")).alias("_unread"),
            )
        )
        key = ["cluster", "topic"]
        both = rows.join(made, on=key, how="left").join(unread, on=key, how="left")
        notes = F.concat_ws("; ", _NOTE, "_why", "_unread")
        return both.withColumns({"owner": F.col("_owner"), _NOTE: F.nullif(notes, F.lit(""))}).select(*rows.columns)

    return transform


def _selected(request: Request) -> Column:
    taken = patterns.matches("topic", request.pattern) if request.pattern is not None else F.lit(True)
    left = patterns.matches("topic", request.exclude) if request.exclude is not None else F.lit(False)
    return taken & ~left


def _messages(rows: DataFrame, column: str) -> list[TopicMessage]:
    found = rows.where(F.col(column).isNotNull()).select("cluster", "topic", F.col(column).alias("message"))
    return [TopicMessage(**row.asDict()) for row in found.orderBy("cluster", "topic").collect()]


def _keeping_owners(ledger: Ledger, rows: DataFrame, request: Request) -> DataFrame:
    """What a cluster doesn't know stays as the table has it: labels, and owners where none is given."""
    ledger.ensure(MANIFESTS)
    known = (
        ledger.read(MANIFESTS)
        .groupBy("cluster", "topic")
        .agg(F.any_value("owner").alias("_owner"), F.any_value("labels").alias("_labels"))
    )
    owner = F.col("_owner") if request.owner is None else F.col("owner")
    kept = rows.join(known, on=["cluster", "topic"], how="left")
    return kept.withColumns({"owner": owner, "labels": F.col("_labels")}).select(*MANIFESTS.schema.names)


def _files(clusters: Sequence[ClusterSettings], request: Request) -> dict[str, Path]:
    """Cluster -> its file; raises UsageError where there can't be one."""
    to = request.to
    if to is None:
        return {}
    if to.suffix and not to.is_dir():
        if to.suffix.lower() not in SUFFIXES:
            raise UsageError(f"--to {to}: a file's name must end in {', '.join(SUFFIXES)}; a folder has no dot in its")
        if len(clusters) > 1:
            raise UsageError(f"--to {to}: several clusters need a folder, which gets a file for each")
        files = {clusters[0].name: to}
    else:
        # A cluster's name may be anything that TOML can write.
        files = {cluster.name: to / f"{quote(cluster.name, safe=' ')}.yaml" for cluster in clusters}
    there = [str(file) for file in files.values() if file.exists()]
    if there and not request.overwrite:
        raise UsageError(f"{', '.join(there)} already exists: name another file, or give --overwrite")
    try:
        for file in files.values():
            file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--to {to}: {error.strerror}: {error.filename}") from None
    return files


def _write(
    file: Path,
    cluster: str,
    exported: DataFrame,
    others: Sequence[ResourceExport],
    messages: Sequence[TopicMessage],
) -> ClusterExport:
    notes = [f"{each.name}: {each.message}" for each in messages if each.cluster == cluster]

    def rows() -> Iterator[Mapping[str, Any]]:
        for row in exported.where(F.col("cluster") == cluster).orderBy("topic").toLocalIterator():
            yield row.asDict(recursive=True)

    try:
        counts = dict(
            write_manifests(
                file, cluster, rows(), notes, {each.kind.table.name: each.entries(cluster) for each in others}
            )
        )
    except OSError as error:
        raise TopicLedgerError(f"can't write {show(str(file))}: {error.strerror}") from error
    return ClusterExport(cluster=cluster, topics=counts.pop("manifests"), file=str(file), resources=counts)
