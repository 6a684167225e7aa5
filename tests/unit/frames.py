"""Small DataFrames in the shapes that the phases hand each other; columns that a test doesn't care about are null."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, IntegerType, MapType, StringType, StructField, StructType

from topicledger.schemas import MANIFESTS, OBSERVED, VIOLATIONS

_TEXT = MapType(StringType(), StringType())
_ENDED = [StructField(name, StringType()) for name in ("phase", "outcome", "error", "error_message")]

MANIFEST_ROWS = StructType([StructField(field.name, field.dataType) for field in MANIFESTS.schema])
"""`manifests` as another writer may leave it: anything can be null."""

JUDGED = StructType([*MANIFEST_ROWS, *_ENDED[2:], *_ENDED[:2]])
"""What `manifests.judge` returns."""

DECISIONS = StructType(
    [
        *(StructField(name, StringType()) for name in ("cluster", "cluster_id", "topic", "topic_id", "decision")),
        *(StructField(name, IntegerType()) for name in ("num_partitions", "replication_factor")),
        StructField("assignments", MANIFEST_ROWS["assignments"].dataType),
        StructField("configs", _TEXT),
        StructField("owner", StringType()),
        StructField("labels", _TEXT),
        StructField("live", BooleanType()),
        StructField("internal", BooleanType()),
        *_ENDED,
        StructField("violations", VIOLATIONS),
    ]
)
"""What `decide` returns, policies and guards change, and `planned` takes."""


def frame(spark: SparkSession, schema: StructType, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Rows as dicts, absent columns null; maps may be dicts or lists of pairs (which may repeat a key)."""

    def value(row: Mapping[str, Any], field: StructField) -> Any:
        content = row.get(field.name)
        return list(content.items()) if isinstance(content, Mapping) else content

    complete = list(rows)
    unknown = {name for row in complete for name in row} - set(schema.names)
    assert not unknown, unknown
    arrow = to_arrow_schema(schema, timezone="UTC")
    columns = [pa.array([value(row, field) for row in complete], type=arrow.field(field.name).type) for field in schema]
    return spark.createDataFrame(pa.Table.from_arrays(columns, schema=arrow), schema)


def manifest_rows(spark: SparkSession, *rows: Mapping[str, Any]) -> DataFrame:
    """Rows of `manifests`: cluster main, state present where not given."""
    return frame(spark, MANIFEST_ROWS, ({"cluster": "main", "state": "present", **row} for row in rows))


def judged_rows(spark: SparkSession, *rows: Mapping[str, Any]) -> DataFrame:
    """Judged rows of `manifests`: accepted ones of cluster main, state present, where not given."""
    return frame(spark, JUDGED, ({"cluster": "main", "state": "present", **row} for row in rows))


def observed_rows(spark: SparkSession, *rows: Mapping[str, Any]) -> DataFrame:
    """Live topics of cluster main with one replica of one partition, where not said otherwise."""
    usual = {
        "cluster": "main",
        "internal": False,
        "permitted": True,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": {0: [1]},
    }
    return frame(spark, OBSERVED.schema, ({**usual, "topic_id": f"id of {row['topic']}", **row} for row in rows))


def decision_rows(spark: SparkSession, *rows: Mapping[str, Any]) -> DataFrame:
    """Decisions about cluster main; topics whose decision isn't create are live."""
    usual = {"cluster": "main", "cluster_id": "kafka-main", "internal": False}
    return frame(
        spark, DECISIONS, ({**usual, "live": row.get("decision") not in (None, "create"), **row} for row in rows)
    )


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
