"""Export live topics as rows of `manifests`, with their configs, and with proposed owners."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from topicledger.arrow import over_arrow
from topicledger.config import patterns
from topicledger.config.ownership import not_yours
from topicledger.config.settings import ClusterSettings, KafkaSettings, Owners, Settings
from topicledger.files.changes import KEPT, as_declared
from topicledger.files.exported import ExportRequest, TopicMessage
from topicledger.files.exported_rows import NOTE, REASON, TableExport, without_absent
from topicledger.files.proposals import proposals
from topicledger.frames import materialised
from topicledger.ledger.tables import Ledger
from topicledger.manifests.ignored import Ignored, is_ignored
from topicledger.manifests.row_rules import PRESENT
from topicledger.manifests.rows import Transform
from topicledger.model import INTERNAL_TOPICS, SET_ON_TOPIC, TOPIC
from topicledger.observe.clusters import observe
from topicledger.observe.topics import as_expected
from topicledger.resources.topics.observe.configs import observe_configs
from topicledger.resources.topics.observe.moves import observe_unsettled
from topicledger.resources.topics.observe.topic_use import read_consumer_groups
from topicledger.schemas import MANIFESTS
from topicledger.text import show


@dataclass(frozen=True, kw_only=True)
class ExportedTopics:
    """Exported topics, and the clusters that were reached for them."""

    found: TableExport
    ids: Mapping[str, str]
    """Kafka's cluster ids, by the name of each reached cluster."""
    unreached: Sequence[str]
    """Messages about the other clusters."""
    unread: Sequence[TopicMessage]
    """A message for each cluster whose consumer groups can't be read."""


def export(
    ledger: Ledger,
    settings: Settings,
    clusters: Sequence[ClusterSettings],
    request: ExportRequest,
    declared: DataFrame,
) -> ExportedTopics:
    """Observe clusters and the configs of their topics. `declared`: the rows of `manifests`."""
    selected = _selected(request)
    selected &= ~patterns.any_matches("topic", settings.scope.ignore_topics)
    spark = ledger.spark
    nobody = spark.createDataFrame([], "cluster string, topic string")
    seen = observe(ledger, settings, clusters, nobody)
    ids, unreached = as_expected(clusters, seen)
    # On old brokers, some internal topics are ordinary topics, but no file may declare them.
    internal = F.col("internal") | F.col("topic").isin(*INTERNAL_TOPICS)
    wanted = seen.topics.where(F.col("cluster").isin(*ids) & ~internal).where(selected)
    reached = [cluster for cluster in clusters if cluster.name in ids]
    if request.unmanaged:
        wanted = wanted.join(declared, on=["cluster", "topic"], how="left_anti").transform(materialised)
    described = observe_configs(spark, reached, settings.kafka, wanted)
    configs = described.configs.select("cluster", "topic", "configs", "config_error")
    moves = observe_unsettled(spark, reached, settings.kafka, wanted)
    moving = moves.topics.withColumn("moving", F.lit(True))
    convert = as_manifests(
        request.owner, settings.ignored_configs, with_assignments=request.with_assignments, unlisted=moves.unknown
    )
    rows = (
        # A topic about which brokers answer an error has no configs: a file without a word about it would remove it.
        wanted.where(~F.col("cluster").isin(*described.errors))
        .join(configs, on=["cluster", "topic"], how="left")
        .join(moving, on=["cluster", "topic"], how="left")
        .transform(convert)
        .transform(as_declared(MANIFESTS, declared, (*KEPT, "placement")))
        # Assignments are exported only on request, and exclude a placement.
        .withColumn("placement", F.when(F.col("assignments").isNull(), F.col("placement")))
        .transform(_without_replaced(declared))
        .transform(without_absent(MANIFESTS, declared))
        .transform(materialised)
    )
    unread: list[TopicMessage] = []
    if request.owner is None:
        groups = _Groups(spark, reached, settings.kafka)
        # Guessed owners go only to files, because people read a file before they load it.
        proposed = _with_owners(declared, settings.owners, groups if request.to is not None else None)
        rows = rows.transform(proposed).transform(materialised)
        unread = groups.unread
    elif settings.owners != Owners():
        rows = rows.transform(with_owned_by_others(settings.owners)).transform(materialised)
    found = TableExport(table=MANIFESTS, resource_type=TOPIC, text=F.col("topic"), rows=rows, problems=described.errors)
    return ExportedTopics(found=found, ids=ids, unreached=unreached, unread=unread)


def _selected(request: ExportRequest) -> Column:
    taken = patterns.any_matches("topic", request.patterns) if request.patterns else F.lit(True)
    left = patterns.any_matches("topic", request.exclude)
    return taken & ~left


def as_manifests(
    owner: str | None, ignored: Ignored, *, with_assignments: bool, unlisted: Collection[str] = ()
) -> Transform:
    """Convert live topics to rows of `manifests`.

    In: the columns of `observed`, `configs` as in `observed_configs`, `config_error`, and `moving`, true if replicas of
    the topic are being moved: its assignments then have old and new ones. `unlisted`: clusters where that is unknown.
    Out: the columns of `manifests`, with the configs that are set on the topic, readable and not `ignored`;
    `not_exported`, why a topic can't be exported (else null); `note`, what the row doesn't contain (else null).
    """
    set_here = F.filter(
        "configs", lambda each: (each["config_source"] == SET_ON_TOPIC) & ~is_ignored(ignored, each["name"])
    )
    readable = F.filter(set_here, lambda each: ~each["is_sensitive"] & each["value"].isNotNull())
    hidden = F.transform(F.filter(set_here, lambda each: each["is_sensitive"]), lambda each: each["name"])
    moving = F.coalesce(F.col("moving"), F.lit(False))
    unknown = ~moving & F.col("cluster").isin(*unlisted)
    uneven = ~moving & ~unknown & (F.size(F.array_distinct(F.transform(F.map_values("assignments"), F.size))) > 1)
    by_name = F.map_from_entries(F.transform(readable, lambda each: F.struct(each["name"], each["value"])))
    notes = F.concat_ws(
        "; ",
        F.when(F.size(hidden) > 0, F.concat(F.lit("sensitive, so not exported: "), F.array_join(hidden, ", "))),
        F.when(uneven, F.lit("its partitions have different numbers of replicas: replication_factor is left out")),
        F.when(moving, F.lit("its replicas are being moved: replication_factor is left out")),
        F.when(unknown, F.lit("it is unknown whether its replicas are being moved: replication_factor is left out")),
    )
    why = F.coalesce(
        F.concat(F.lit("its configs can't be described: "), F.col("config_error")),
        F.concat(F.lit("brokers answer an error about it: "), F.col("unknown")),
        F.lit("its configs can't be described"),
    )
    usual = ~uneven & ~moving & ~unknown
    assigned = F.lit(with_assignments) & usual
    values = {
        "state": F.lit(PRESENT),
        "num_partitions": F.when(~assigned, F.col("num_partitions")),
        "replication_factor": F.when(~assigned & usual, F.col("replication_factor")),
        "assignments": F.when(assigned, F.col("assignments")),
        "configs": F.when(F.size(readable) > 0, by_name),
        "owner": F.lit(owner).cast("string"),
        "labels": F.lit(None),
        "placement": F.lit(None),
        "replaces": F.lit(None),
        "description": F.lit(None),
        REASON: F.when(F.col("configs").isNull(), why),
        NOTE: F.when((notes != "") & F.col("configs").isNotNull(), notes),
    }

    def transform(topics: DataFrame) -> DataFrame:
        types = {each.name: each.dataType for each in MANIFESTS.schema}
        columns = {name: values.get(name, F.col(name)).cast(data_type) for name, data_type in types.items()}
        return topics.select(
            *(column.alias(name) for name, column in columns.items()),
            *(values[name].alias(name) for name in (REASON, NOTE)),
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
        .withColumn(REASON, F.coalesce(REASON, reason))
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
        notes = F.nullif(F.concat_ws("; ", NOTE, "_why"), F.lit(""))
        both = rows.join(made, on=["cluster", "topic"], how="left")
        return both.withColumns({"owner": F.col("_owner"), NOTE: notes}).select(*rows.columns)

    return transform


def with_owned_by_others(owners: Owners) -> Transform:
    """Add to `note` why [owners] doesn't let a topic's owner declare it: a load of the file would refuse the row.

    In and out: the columns that `as_manifests` returns.
    """

    def why(clusters: pa.Array, topics: pa.Array, given: pa.Array) -> pa.Array:
        rows = zip(clusters.to_pylist(), topics.to_pylist(), given.to_pylist(), strict=True)
        return pa.array(not_yours(owners, list(rows)), pa.string())

    refused = over_arrow(why, "string", "cluster", "topic", "owner")
    return lambda rows: rows.withColumn(NOTE, F.nullif(F.concat_ws("; ", NOTE, refused), F.lit("")))
