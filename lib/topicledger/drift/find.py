"""Drift: what is declared beside what lives, and each way in which they differ as a row.

Like everything up to a plan these are transforms that ask no cluster. The checks are in `drift.kinds`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.config.settings import AuditSettings
from topicledger.config.severities import DriftKind, Severity
from topicledger.drift.findings import FINDING, nothing
from topicledger.drift.kinds import checks
from topicledger.kafka.config_values import by_name, values_by_name
from topicledger.ledger.acknowledged import last_creates
from topicledger.manifests.ignored import Ignored, is_ignored
from topicledger.manifests.rows import Transform
from topicledger.model import SET_ON_TOPIC, Outcome

COLUMNS = ("cluster", "cluster_id", "topic", "topic_id", *FINDING.names, "severity")


@dataclass(frozen=True, kw_only=True)
class Estate:
    """What was observed of live clusters; in each DataFrame only the rows of audited clusters count."""

    cluster_ids: Mapping[str, str]
    """Audited cluster -> Kafka's id of it."""
    topics: DataFrame
    """Columns of `observed` less run_id, and `other_leaders`."""
    configs: DataFrame
    """Columns of `observed_configs` less run_id."""
    earlier_configs: DataFrame
    """Columns of `observed_configs`: what the previous audit saw."""
    audit: DataFrame
    """Columns of `audit`: it knows the ids of topics that we created."""
    ignored: Ignored = field(default_factory=dict)
    """Configs that are left to others, by cluster."""
    pinned: Collection[str] = ()
    """Clusters where runs set a declared config also if the topic has its value by default: `changes.pin`."""
    brokers: DataFrame | None = None
    """cluster, broker_id, rack: of those that are up; None where nobody asked."""
    uneven: DataFrame | None = None
    """cluster, topic, partitions (int): topics of placement spread, and how many partitions a run would move to make
    them even; None where nobody asked."""
    moving: DataFrame | None = None
    """cluster, topic, partition: of replicas that are being moved; None where nobody asked."""


def find_drift(estate: Estate, settings: AuditSettings) -> Transform:
    """Compare judged manifests with live clusters.

    In: what `manifests.judge` returns; refused rows are not compared, and the topics they name are not unmanaged.
    Out: `COLUMNS`, a row per (cluster, topic, kind, what) that differs; kinds that are ignored are left out.
    """

    def transform(judged: DataFrame) -> DataFrame:
        found = F.flatten(F.array(*(F.coalesce(check, nothing()) for check in checks(settings))))
        return (
            judged.transform(side_by_side(estate))
            .select("cluster", "cluster_id", "topic", "topic_id", F.explode(found).alias("found"))
            .select("cluster", "cluster_id", "topic", "topic_id", "found.*")
            .withColumn("severity", lookup(settings.severity, F.col("kind")))
            .where("severity is not null")
            .select(*COLUMNS)
        )

    return transform


def side_by_side(estate: Estate) -> Transform:
    """One row for each (cluster, topic) of audited clusters, of either side, with all that checks read.

    In: what `manifests.judge` returns. Out: `state`, `num_partitions`, `replication_factor`, `assignments`, `configs`
    and `owner` as declared; `refused`, where the manifest's row counts for nothing; `topic_id`, `internal`,
    `permitted`, `live_*` and `other_leaders`, null where the topic isn't listed; `live_configs`, `live_by_name`,
    name -> config, without those that are left to others, or `config_error_code`; `earlier_defaults`, name -> value;
    `known_id`; `placement` as declared, `racks`, broker -> rack of those that are up; `moving`, partitions whose
    replicas are being moved; `uneven`, how many partitions of a spread topic a run would move; `pinned`, whether a
    value by default isn't as declared.
    """
    key = ["cluster", "topic"]
    audited = F.col("cluster").isin(*estate.cluster_ids)

    def transform(judged: DataFrame) -> DataFrame:
        # Of identical rows one counts, and the other only notes the copy.
        counts = F.col("topic").isNotNull() & ~F.col("outcome").eqNullSafe(F.lit(Outcome.SKIPPED.value))
        declared = judged.where(audited & counts).select(
            *key, "state", "num_partitions", "replication_factor", "assignments", "configs", "owner", "placement",
            F.col("phase").isNotNull().alias("refused"),
        )  # fmt: skip
        live = estate.topics.where(audited).select(
            *key, "topic_id", "internal", "permitted", "other_leaders",
            F.col("num_partitions").alias("live_num_partitions"), F.col("assignments").alias("live_assignments"),
        )  # fmt: skip
        ours = F.filter("configs", lambda each: ~is_ignored(estate.ignored, each["name"]))
        configs = (
            estate.configs.where(audited)
            .withColumn("live_configs", ours)
            .select(*key, "live_configs", by_name("live_configs").alias("live_by_name"), "config_error_code")
        )
        return (
            declared.join(live, on=key, how="full_outer")
            .join(configs, on=key, how="left")
            .withColumn("cluster_id", lookup(estate.cluster_ids, F.col("cluster")))
            .join(_earlier_defaults(estate.earlier_configs), on=[*key, "cluster_id"], how="left")
            .join(_known_ids(estate.audit), on=[*key, "cluster_id"], how="left")
            .transform(_with_racks(estate.brokers))
            .transform(_with_moving(estate.moving))
            .transform(_with_uneven(estate.uneven))
            .withColumn("pinned", F.col("cluster").isin(*estate.pinned))
        )

    return transform


def _with_racks(brokers: DataFrame | None) -> Transform:
    if brokers is None:
        return lambda rows: rows.withColumn("racks", F.lit(None).cast("map<int,string>"))
    by_cluster = brokers.groupBy("cluster").agg(
        F.map_from_entries(F.collect_list(F.struct("broker_id", "rack"))).alias("racks")
    )
    return lambda rows: rows.join(F.broadcast(by_cluster), on="cluster", how="left")


def _with_moving(moving: DataFrame | None) -> Transform:
    if moving is None:
        return lambda rows: rows.withColumn("moving", F.lit(None).cast("array<int>"))
    by_topic = moving.groupBy("cluster", "topic").agg(F.collect_list("partition").alias("moving"))
    return lambda rows: rows.join(by_topic, on=["cluster", "topic"], how="left")


def _with_uneven(uneven: DataFrame | None) -> Transform:
    if uneven is None:
        return lambda rows: rows.withColumn("uneven", F.lit(None).cast("int"))
    found = uneven.select("cluster", "topic", F.col("partitions").alias("uneven"))
    return lambda rows: rows.join(found, on=["cluster", "topic"], how="left")


def _earlier_defaults(configs: DataFrame) -> DataFrame:
    """The broker's defaults that each topic had at the previous audit, name -> value."""
    by_default = F.filter("configs", lambda each: (each["config_source"] != SET_ON_TOPIC) & ~each["is_sensitive"])
    return configs.select(
        "cluster", "topic", "cluster_id",
        values_by_name(by_default).alias("earlier_defaults"),
    )  # fmt: skip


def _known_ids(audit: DataFrame) -> DataFrame:
    """The id of each topic whose last acknowledged change of ours was its creation."""
    return last_creates(audit).select("cluster", "topic", "cluster_id", F.col("topic_id").alias("known_id"))


def lookup(values: Mapping[str, str] | Mapping[DriftKind, Severity], key: Column) -> Column:
    """The value (string) that a key has; null where it has none."""
    if not values:
        return F.lit(None).cast("string")
    return F.create_map(*(F.lit(str(part)) for item in values.items() for part in item))[key]


def with_since(earlier: DataFrame, now: datetime) -> Transform:
    """Adds `since`: when an unbroken series of audits first found it, else `now`.

    In: `COLUMNS`. `earlier` has the columns of `drift`: of each cluster, what the audit before found there.
    """
    key = ("cluster", "topic", "kind", "what")

    def transform(found: DataFrame) -> DataFrame:
        known = earlier.groupBy(*(F.col(name).alias(f"_{name}") for name in key)).agg(F.min("since").alias("_since"))
        same = [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in key]
        rows = found.join(known, on=same, how="left")
        return rows.select(*found.columns, F.coalesce("_since", F.lit(now)).alias("since"))

    return transform
