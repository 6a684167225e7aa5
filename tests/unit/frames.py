"""Small DataFrames in the shapes that the phases hand each other; columns that a test doesn't care about are null."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from topicledger.arrow import arrow_schema
from topicledger.model.moves import parse_assignments
from topicledger.phases import DECIDED, DECLARED, OBSERVED
from topicledger.policies import Facts
from topicledger.schemas import BROKERS, MANIFESTS, USAGES

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
"""The time of day that the tests' policies go by."""


def plain(schema: StructType) -> StructType:
    """The same columns without comments, each of which may be null, as another writer may leave them."""
    return StructType([StructField(field.name, field.dataType) for field in schema])


MANIFEST_ROWS = plain(MANIFESTS.schema)
VALIDATED, DECISIONS = plain(DECLARED), plain(DECIDED)


def frame(spark: SparkSession, schema: StructType, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Rows as dicts, absent columns null; maps may be dicts or lists of pairs (which may repeat a key)."""

    def value(row: Mapping[str, Any], field: StructField) -> Any:
        content = row.get(field.name)
        return list(content.items()) if isinstance(content, Mapping) else content

    complete = list(rows)
    unknown = {name for row in complete for name in row} - set(schema.names)
    assert not unknown, unknown
    arrow = arrow_schema(schema)
    columns = [pa.array([value(row, field) for row in complete], type=arrow.field(field.name).type) for field in schema]
    return spark.createDataFrame(pa.Table.from_arrays(columns, schema=arrow), schema)


def manifest_rows(spark: SparkSession, *rows: Mapping[str, Any]) -> DataFrame:
    """Return rows of `manifests`: by default of cluster main with state present."""
    return frame(spark, MANIFEST_ROWS, ({"cluster": "main", "state": "present", **row} for row in rows))


def validated_rows(spark: SparkSession, *rows: Mapping[str, Any]) -> DataFrame:
    """Return validated rows of `manifests`: by default accepted ones of cluster main with state present."""
    return frame(spark, VALIDATED, ({"cluster": "main", "state": "present", **row} for row in rows))


def observed_rows(spark: SparkSession, *rows: Mapping[str, Any], schema: StructType | None = None) -> DataFrame:
    """Return live topics, by default as a look returns them, of cluster main with one replica of one partition."""
    usual = {
        "cluster": "main",
        "internal": False,
        "permitted": True,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": {0: [1]},
    }
    return frame(
        spark, schema or plain(OBSERVED), ({**usual, "topic_id": f"id of {row['topic']}", **row} for row in rows)
    )


def decision_rows(spark: SparkSession, *rows: Mapping[str, Any]) -> DataFrame:
    """Decisions about cluster main; topics whose decision isn't create live, with one replica of one partition."""

    def complete(row: Mapping[str, Any]) -> dict[str, Any]:
        if row.get("decision") == "reassign":
            row = {"moves": moves_of(row.get("before") or {}, row["after"]), **row}
        usual = {"cluster": "main", "cluster_id": "kafka-main", "internal": False, "validated": False, "waits": False}
        live = row.get("live", row.get("decision") not in (None, "create"))
        one = 1 if live else None
        counts = {"live_num_partitions": one, "live_replication_factor": one, **row}
        return {**usual, "live": live, "live_min_replicas": counts["live_replication_factor"], **counts}

    return frame(spark, DECISIONS, map(complete, rows))


def moves_of(before: Mapping[str, str], after: Mapping[str, str]) -> list[dict[str, Any]]:
    """Partitions that a reassignment moves, as its `before` and `after` in `plans` have them."""
    old, new = (parse_assignments(each.get("assignments", "")) for each in (before, after))
    return [{"partition": each, "before": old.get(each), "after": brokers} for each, brokers in new.items()]


def policy_facts(
    spark: SparkSession,
    *,
    racks: Mapping[int, str | None] | None = None,
    usages: Iterable[Mapping[str, Any]] = (),
    groups: Iterable[Mapping[str, Any]] = (),
    last_records: Iterable[Mapping[str, Any]] = (),
    unseen: Mapping[str, int | str | None] | None = None,
    manifests: Iterable[Mapping[str, Any]] = (),
    clusters: Collection[str] = ("main", "another"),
) -> Facts:
    """Return the facts for policies: brokers of cluster main by id and rack, and the given values.

    `unseen` has the number of hidden topics by cluster, or why nobody can say it; None: none is hidden anywhere.
    """
    key = "cluster string, topic string"
    brokers = [{"cluster": "main", "broker_id": broker, "rack": rack} for broker, rack in (racks or {1: None}).items()]
    asked = {
        "groups": _ddl(f"{key}, group string, members int, committed boolean, error string"),
        "last_records": _ddl(f"{key}, end_offset bigint, last_record_at timestamp, error string"),
    }
    told = {
        "groups": frame(spark, asked["groups"], ({"cluster": "main", **each} for each in groups)),
        "last_records": frame(spark, asked["last_records"], ({"cluster": "main", **each} for each in last_records)),
    }

    def unseen_topics(clusters: DataFrame) -> DataFrame:
        if unseen is None:
            return clusters.select("cluster", F.lit(0).alias("unseen"), F.lit(None).cast("string").alias("error"))
        rows = [
            {"cluster": cluster, ("error" if isinstance(each, str) else "unseen"): each}
            for cluster, each in unseen.items()
        ]
        return frame(spark, _ddl("cluster string, unseen bigint, error string"), rows)

    return Facts(
        brokers=frame(spark, BROKERS.schema, brokers),
        usages=frame(spark, USAGES.schema, ({"cluster": "main", **each} for each in usages)),
        now=NOW,
        consumer_groups=lambda topics: told["groups"].join(topics, on=["cluster", "topic"], how="left_semi"),
        last_records=lambda topics: told["last_records"].join(topics, on=["cluster", "topic"], how="left_semi"),
        unseen_topics=unseen_topics,
        manifests=lambda: manifest_rows(spark, *manifests),
        clusters=clusters,
    )


def estate_facts(spark: SparkSession, estates: Collection[Any]) -> Facts:
    """Return the facts for policies. Each estate has a cluster, racks, usages, groups and last_records."""

    def of_all(name: str) -> list[dict[str, Any]]:
        return [{"cluster": estate.cluster, **row} for estate in estates for row in getattr(estate, name)]

    brokers = [
        {"cluster": estate.cluster, "broker_id": broker, "rack": rack}
        for estate in estates
        for broker, rack in estate.racks.items()
    ]
    given = {name: of_all(name) for name in ("usages", "groups", "last_records")}
    everywhere = {"unseen": {estate.cluster: 0 for estate in estates}}
    clusters = ["another", *(estate.cluster for estate in estates)]
    known = policy_facts(spark, **given, **everywhere, clusters=clusters)
    return replace(known, brokers=frame(spark, BROKERS.schema, brokers))


def _ddl(text: str) -> StructType:
    return StructType.fromDDL(text)


def dicts(rows: DataFrame) -> list[dict[str, Any]]:
    """Collected rows as plain dicts."""
    return [row.asDict(recursive=True) for row in rows.collect()]


def by_topic(rows: DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    """Collected rows by (cluster, topic), of which there must be one each."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in dicts(rows):
        assert (row["cluster"], row["topic"]) not in found, row
        found[row["cluster"], row["topic"]] = row
    return found
