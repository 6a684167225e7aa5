"""What live clusters have beside topics, as rows of its tables: the other half of `export`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from topicledger.config.settings import ClusterSettings, KafkaSettings
from topicledger.ledger.tables import Ledger
from topicledger.manifests import acls, load_resources, quotas
from topicledger.manifests.rows import PRESENT, Rule, Transform, with_reasons
from topicledger.observe.acls import observe_acls
from topicledger.observe.listed import Listed
from topicledger.observe.quotas import observe_quotas
from topicledger.schemas import ACLS, QUOTAS, Table

_LISTS: TypeAlias = Callable[[SparkSession, Sequence[ClusterSettings], KafkaSettings, Mapping[str, str]], Listed]
REASON = "not_exported"


@dataclass(frozen=True, kw_only=True)
class Exportable:
    """A kind of resources beside topics that clusters are asked for."""

    table: Table
    """One of `schemas.RESOURCES`."""
    what: str
    """How messages name one of them."""
    observe: _LISTS
    """Lists it of clusters, with Kafka's id of each."""
    rules: Callable[[], Sequence[Rule]]
    """What a row can get wrong by itself: brokers have what manifests don't take."""
    complete: Transform
    """Rows of `table` with what their nulls stand for."""
    text: Callable[[], Column]
    """The resource's name in messages."""


EXPORTABLE: Sequence[Exportable] = (
    Exportable(
        table=ACLS, what="acl", observe=observe_acls, rules=acls.row_rules, complete=acls.complete, text=acls.text_of
    ),
    Exportable(
        table=QUOTAS,
        what="quota",
        observe=observe_quotas,
        rules=quotas.row_rules,
        complete=quotas.complete,
        text=quotas.text_of,
    ),
)


@dataclass(frozen=True, kw_only=True)
class ResourceExport:
    """What clusters have of one kind."""

    kind: Exportable
    rows: DataFrame
    """Columns of the kind's table and `not_exported`, null but where a row can't be declared; materialised."""
    problems: Mapping[str, str]
    """By cluster that can't be listed: why."""

    @property
    def exported(self) -> DataFrame:
        """Columns of the kind's table."""
        return self.rows.where(F.col(REASON).isNull()).select(*self.kind.table.schema.names)

    def left_out(self) -> Sequence[tuple[str, str, str]]:
        """Cluster, name and reason of what can't be declared."""
        found = self.rows.where(F.col(REASON).isNotNull()).select("cluster", self.kind.text().alias("text"), REASON)
        return [(row["cluster"], row["text"], row[REASON]) for row in found.orderBy("cluster", "text").collect()]

    def entries(self, cluster: str) -> Iterator[Mapping[str, Any]]:
        """A cluster's rows, in the order of their key."""
        own = self.exported.where(F.col("cluster") == cluster).orderBy(*self.kind.table.key)
        return (row.asDict() for row in own.toLocalIterator())

    def merge(self, ledger: Ledger, owner: str | None) -> Mapping[str, int]:
        """Merge the rows into their table, in one commit, or none where it says so already; returns the counts.

        What a cluster doesn't know stays as the table has it: labels, and owners where none is given.
        """
        table = self.kind.table
        ledger.ensure(table)
        there = ledger.read(table)
        known = there.groupBy(*table.key).agg(
            F.any_value("owner").alias("_owner"), F.any_value("labels").alias("_labels")
        )
        same = [F.col(f"new.{name}").eqNullSafe(F.col(f"old.{name}")) for name in table.key]
        kept = {"owner": F.col("_owner") if owner is None else F.col("owner"), "labels": F.col("_labels")}
        rows = self.exported.alias("new").join(known.alias("old"), on=same, how="left")
        own = [kept.get(name, F.col(f"new.{name}")).alias(name) for name in table.schema.names]
        changes = load_resources.difference(table, there, rows.select(*own), [], None)
        load_resources.make(ledger, changes)
        return changes.counts


def export(
    ledger: Ledger,
    kind: Exportable,
    clusters: Sequence[ClusterSettings],
    kafka: KafkaSettings,
    ids: Mapping[str, str],
    *,
    owner: str | None,
    unmanaged: bool,
) -> ResourceExport:
    """List one kind on `clusters`; `unmanaged`: only what no row of its table names."""
    listed = kind.observe(ledger.spark, clusters, kafka, ids)
    rows = listed.rows
    if unmanaged and ledger.exists(kind.table):
        declared = ledger.read(kind.table).transform(kind.complete)
        same = [rows[name].eqNullSafe(declared[name]) for name in kind.table.key]
        rows = rows.join(declared, on=same, how="left_anti")
    option = f"--with-{kind.table.name}"
    problems = {
        name: f"{name}: its {kind.table.name} can't be listed: {status.message}; for the rest leave out {option}"
        for name, status in listed.statuses.items()
        if status.error is not None
    }
    return ResourceExport(kind=kind, rows=rows.transform(_as_rows(kind, owner)).localCheckpoint(), problems=problems)


def _as_rows(kind: Exportable, owner: str | None) -> Transform:
    values = {"state": F.lit(PRESENT), "owner": F.lit(owner), "labels": F.lit(None)}

    def transform(live: DataFrame) -> DataFrame:
        columns = (
            values.get(field.name, F.col(field.name)).cast(field.dataType).alias(field.name)
            for field in kind.table.schema
        )
        return (
            live.select(*columns)
            .transform(with_reasons(kind.rules()))
            .select(*kind.table.schema.names, F.col("error_message").alias(REASON))
        )

    return transform
