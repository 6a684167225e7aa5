"""The ACLs of live clusters, and who this client is to them: asked by the driver or on the executors, as topics are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from topicledger.config.settings import ClusterSettings, KafkaSettings
from topicledger.errors import SecretError, TopicLedgerError
from topicledger.kafka import ClusterAdmin
from topicledger.kafka.access import AclsUnknown
from topicledger.model import Refusal
from topicledger.model.access import Acl
from topicledger.observe.cluster_queries import ClusterAccess, ask_each, record_batch
from topicledger.observe.topics import SECRET_UNRESOLVED
from topicledger.schemas import ACL_KEY, OBSERVED_ACLS

_SCHEMA = StructType(
    [
        *(StructField(f.name, f.dataType) for f in OBSERVED_ACLS.schema if f.name not in ("run_id", "cluster_id")),
        StructField("own_principal", StringType()),
        StructField("error", StringType()),
        StructField("error_message", StringType()),
    ]
)
"""A row per ACL and, with principal null, one per cluster: who this client is to it, or why its ACLs aren't known."""
_ERRORS = {Refusal.NOT_PERMITTED.value: Refusal.NOT_PERMITTED}


@dataclass(frozen=True, kw_only=True)
class AclStatus:
    """How listing a cluster's ACLs went."""

    own_principal: str | None = None
    """Who brokers take this client for; None where nobody knows."""
    error: Refusal | None = None
    """NOT_PERMITTED or CLUSTER_UNREACHABLE where its ACLs aren't known."""
    message: str | None = None
    """Why, for the user."""


@dataclass(frozen=True, kw_only=True)
class AclObservation:
    """What was listed, materialised: reading it asks no cluster again."""

    acls: DataFrame
    """Columns of `observed_acls` less run_id, of clusters whose ACLs are known."""
    statuses: Mapping[str, AclStatus]
    """By cluster that was asked."""

    @property
    def known(self) -> Collection[str]:
        """Clusters whose ACLs are known."""
        return [name for name, status in self.statuses.items() if status.error is None]


def observe_acls(
    spark: SparkSession, clusters: Sequence[ClusterSettings], kafka: KafkaSettings, ids: Mapping[str, str]
) -> AclObservation:
    """List the ACLs of `clusters`, each wholly or not at all. `ids`: Kafka's id of each, by name."""
    found = ask_each(spark, clusters, kafka, _ask, _SCHEMA, unresolved=F.col("error") == SECRET_UNRESOLVED)
    own = found.where("principal is null").select("cluster", "own_principal", "error", "error_message").collect()
    statuses = {
        row["cluster"]: AclStatus(
            own_principal=row["own_principal"],
            error=None if row["error"] is None else _ERRORS.get(row["error"], Refusal.CLUSTER_UNREACHABLE),
            message=row["error_message"],
        )
        for row in own
    }
    known = {name: ids[name] for name, status in statuses.items() if status.error is None}
    cluster_id = F.create_map(*(F.lit(part) for item in known.items() for part in item)) if known else None
    acls = found.where(F.col("principal").isNotNull() & F.col("cluster").isin(*known)).withColumn(
        "cluster_id", F.lit(None).cast("string") if cluster_id is None else cluster_id[F.col("cluster")]
    )
    columns = (name for name in OBSERVED_ACLS.schema.names if name != "run_id")
    return AclObservation(acls=acls.select(*columns), statuses=statuses)


def _ask(access: ClusterAccess) -> Iterator[pa.RecordBatch]:
    name = access.cluster.name
    try:
        with ClusterAdmin(access.cluster, access.kafka) as admin:
            yield _batch(name, sorted(set(admin.describe_acls())))
            yield record_batch(_SCHEMA, {"cluster": [name], "own_principal": [admin.principal]}, 1)
    except AclsUnknown as error:
        yield _failed(name, Refusal.NOT_PERMITTED.value, error)
    except SecretError as error:
        yield _failed(name, SECRET_UNRESOLVED, error)
    except TopicLedgerError as error:
        yield _failed(name, Refusal.CLUSTER_UNREACHABLE.value, error)


def _batch(cluster: str, acls: Sequence[Acl]) -> pa.RecordBatch:
    columns: dict[str, Sequence[object]] = {
        "cluster": [cluster] * len(acls),
        "observed_at": [datetime.now(UTC)] * len(acls),
        **{field: [getattr(each, field) for each in acls] for field in ACL_KEY},
    }
    return record_batch(_SCHEMA, columns, len(acls))


def _failed(cluster: str, error: str, why: TopicLedgerError) -> pa.RecordBatch:
    columns = {"cluster": [cluster], "error": [error], "error_message": [str(why)]}
    return record_batch(_SCHEMA, columns, 1)
