"""List resources beside topics, completely or not at all, in the driver or on the executors, as topics are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from topicledger.config.settings import ClusterSettings, KafkaSettings
from topicledger.kafka import ClusterAdmin
from topicledger.kafka.connection import NotListed, TooOld
from topicledger.model import Refusal
from topicledger.observe.cluster_queries import ask_each, failure, record_batch
from topicledger.schemas import Table

_OF_STATUS = (
    *(StructField(name, StringType()) for name in ("own_principal", "error", "error_message")),
    StructField("allow_everyone", BooleanType()),
)
"""Columns of the one row per cluster without `observed_at`: this client's principal, or why nothing is known."""
_ERRORS = {each.value: each for each in (Refusal.NOT_PERMITTED, Refusal.BROKER_TOO_OLD)}

Columns = Mapping[str, Sequence[object]]
"""Columns of an observed table: a list of values by column name."""
Describe = Callable[[ClusterAdmin], tuple[Columns, int]]
"""Returns the columns of the resources of a cluster, and their number. Raises NotListed if they can't be listed."""


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
    declared_only: bool = False
    """Whether undeclared resources are left alone, managed or not."""

    @property
    def known(self) -> Collection[str]:
        """The clusters that were listed."""
        return [name for name, status in self.statuses.items() if status.error is None]


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
    of_status = found.where("observed_at IS NULL").select("cluster", *(field.name for field in _OF_STATUS))
    statuses = {
        row["cluster"]: ListedStatus(
            own_principal=row["own_principal"],
            allow_everyone=row["allow_everyone"],
            error=None if row["error"] is None else _ERRORS.get(row["error"], Refusal.CLUSTER_UNREACHABLE),
            message=row["error_message"],
        )
        for row in of_status.collect()
    }
    known = {name: ids[name] for name, status in statuses.items() if status.error is None}
    cluster_id = F.create_map(*(F.lit(part) for item in known.items() for part in item)) if known else None
    rows = found.where(F.col("observed_at").isNotNull() & F.col("cluster").isin(*known)).withColumn(
        "cluster_id", F.lit(None).cast("string") if cluster_id is None else cluster_id[F.col("cluster")]
    )
    columns = (name for name in table.schema.names if name != "run_id")
    return Listed(rows=rows.select(*columns), statuses=statuses)


def _ask(
    schema: StructType,
    describe: Describe,
    allows_everyone: Callable[[ClusterAdmin], bool | None] | None,
    admin: ClusterAdmin,
) -> Iterator[pa.RecordBatch]:
    try:
        columns, count = describe(admin)
        everyone = None if allows_everyone is None else allows_everyone(admin)
        status: Columns = {"own_principal": [admin.principal], "allow_everyone": [everyone]}
    except NotListed as error:
        refusal = Refusal.BROKER_TOO_OLD if isinstance(error, TooOld) else Refusal.NOT_PERMITTED
        yield failure(schema, admin.name, refusal.value, str(error))
        return
    own: Columns = {"cluster": [admin.name] * count, "observed_at": [datetime.now(UTC)] * count}
    yield record_batch(schema, {**columns, **own}, count)
    yield record_batch(schema, {"cluster": [admin.name], **status}, 1)
