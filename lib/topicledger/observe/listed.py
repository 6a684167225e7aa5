"""List resources beside topics, completely or not at all, in the driver or on the executors, as topics are.

Brokers may list a resource and not describe it: it is unknown by itself, and the others of its cluster are known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from topicledger.config.settings import ClusterSettings, KafkaSettings
from topicledger.kafka import ClusterAdmin
from topicledger.kafka.connection import NotListed, TooOld
from topicledger.model import Refusal
from topicledger.observe.cluster_queries import ask_each, failure, record_batch
from topicledger.schemas import Table

_OF_STATUS = (
    *(StructField(name, StringType()) for name in ("own_principal", "error", "error_message")),
    StructField("allow_everyone", BooleanType()),
    StructField("undescribed", LongType()),
)
"""Columns of the one row per cluster without `observed_at`: this client's principal, or why nothing is known.

`undescribed` is the number of resources that brokers don't describe; their rows have `error` and `error_message`, too.
"""
_ERRORS = {each.value: each for each in (Refusal.NOT_PERMITTED, Refusal.BROKER_TOO_OLD)}

Columns = Mapping[str, Sequence[object]]
"""Columns of an observed table: a list of values by column name. `error` and `error_message`: see `Undescribed`."""
Describe = Callable[[ClusterAdmin], tuple[Columns, int]]
"""Returns the columns of the resources of a cluster, and their number. Raises NotListed if they can't be listed."""


@dataclass(frozen=True, kw_only=True)
class Undescribed:
    """Why one resource is unknown, although its cluster describes others."""

    error: Refusal
    """NOT_PERMITTED or NO_ANSWER."""
    message: str


@dataclass(frozen=True, kw_only=True)
class ListedStatus:
    """Status of listing a cluster."""

    own_principal: str | None = None
    """The principal that brokers see in this client; None if it is unknown."""
    allow_everyone: bool | None = None
    """Whether any broker has a setting that may allow everyone what nothing denies; None if unknown or not asked."""
    error: Refusal | None = None
    """NOT_PERMITTED, BROKER_TOO_OLD or CLUSTER_UNREACHABLE if nothing is known."""
    message: str | None = None
    """The reason, for the user."""


@dataclass(frozen=True, kw_only=True)
class Listed:
    """Listed resources, materialised: reading them asks no cluster again."""

    rows: DataFrame
    """Columns of the observed table without run_id, for the clusters that were listed."""
    statuses: Mapping[str, ListedStatus]
    """Statuses by cluster that was asked."""
    undescribed: DataFrame | None = None
    """Resources that brokers list but don't describe: the columns of `rows`, `error` and `error_message`; None if there
    are none. They are not in `rows`."""
    declared_only: bool = False
    """Whether undeclared resources are left alone, managed or not."""
    declared: DataFrame | None = None
    """The table's validated rows, if a run decides on others: on the changes that it reverts."""

    @property
    def known(self) -> Collection[str]:
        """The clusters that were listed."""
        return [name for name, status in self.statuses.items() if status.error is None]

    @property
    def observed(self) -> DataFrame:
        """`rows`, and the undescribed resources, whose values are null."""
        return self.rows if self.undescribed is None else self.rows.union(self.undescribed.select(*self.rows.columns))


def list_each(
    spark: SparkSession,
    clusters: Sequence[ClusterSettings],
    kafka: KafkaSettings,
    ids: Mapping[str, str],
    table: Table,
    describe: Describe,
    allows_everyone: Callable[[ClusterAdmin], bool | None] | None,
) -> Listed:
    """List resources of each cluster, with the columns of `table`.

    `ids`: Kafka's cluster ids by name. For `allows_everyone` see `ListedStatus.allow_everyone`.
    """
    own = ("run_id", "cluster_id")
    schema = StructType([*(StructField(f.name, f.dataType) for f in table.schema if f.name not in own), *_OF_STATUS])
    ask = partial(_ask, schema, describe, allows_everyone)
    found = ask_each(spark, clusters, kafka, ask, schema)
    of_status = found.where("observed_at IS NULL").select("cluster", *(field.name for field in _OF_STATUS)).collect()
    statuses = {
        row["cluster"]: ListedStatus(
            own_principal=row["own_principal"],
            allow_everyone=row["allow_everyone"],
            error=None if row["error"] is None else _ERRORS.get(row["error"], Refusal.CLUSTER_UNREACHABLE),
            message=row["error_message"],
        )
        for row in of_status
    }
    known = {name: ids[name] for name, status in statuses.items() if status.error is None}
    cluster_id = F.create_map(*(F.lit(part) for item in known.items() for part in item)) if known else None
    rows = found.where(F.col("observed_at").isNotNull() & F.col("cluster").isin(*known)).withColumn(
        "cluster_id", F.lit(None).cast("string") if cluster_id is None else cluster_id[F.col("cluster")]
    )
    columns = [name for name in table.schema.names if name != "run_id"]
    if not any(row["undescribed"] for row in of_status):
        return Listed(rows=rows.select(*columns), statuses=statuses)
    undescribed = rows.where(F.col("error").isNotNull()).select(*columns, "error", "error_message")
    return Listed(rows=rows.where(F.col("error").isNull()).select(*columns), statuses=statuses, undescribed=undescribed)


def _ask(
    schema: StructType,
    describe: Describe,
    allows_everyone: Callable[[ClusterAdmin], bool | None] | None,
    admin: ClusterAdmin,
) -> Iterator[pa.RecordBatch]:
    try:
        columns, count = describe(admin)
        everyone = None if allows_everyone is None else allows_everyone(admin)
        undescribed = sum(each is not None for each in columns.get("error", ()))
        status: Columns = {
            "own_principal": [admin.principal],
            "allow_everyone": [everyone],
            "undescribed": [undescribed],
        }
    except NotListed as error:
        refusal = Refusal.BROKER_TOO_OLD if isinstance(error, TooOld) else Refusal.NOT_PERMITTED
        yield failure(schema, admin.name, refusal.value, str(error))
        return
    own: Columns = {"cluster": [admin.name] * count, "observed_at": [datetime.now(UTC)] * count}
    yield record_batch(schema, {**columns, **own}, count)
    yield record_batch(schema, {"cluster": [admin.name], **status}, 1)
