"""Drift: declared and live state side by side, with one row per difference.

These are transforms that send no request to a cluster. The checks are in `resources.topics.drift.kinds`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.config.settings import AuditSettings
from topicledger.drift.findings import FINDING, nothing
from topicledger.kafka.config_values import by_name, values_by_name
from topicledger.ledger.acknowledged import last_creates
from topicledger.manifests.ignored import Ignored, is_ignored
from topicledger.manifests.rows import Transform
from topicledger.model import SET_ON_TOPIC, Outcome
from topicledger.resources.ending import lookup
from topicledger.resources.topics.drift.kinds import checks

DRIFT_COLUMNS = ("cluster", "cluster_id", "topic", "topic_id", *FINDING.names, "severity")


@dataclass(frozen=True, kw_only=True)
class Estate:
    """Observations of live clusters; in each DataFrame only the rows of audited clusters are used."""

    cluster_ids: Mapping[str, str]
    """Audited cluster -> its Kafka cluster id."""
    topics: DataFrame
    """Columns of `observed` without run_id, and `other_leaders`."""
    configs: DataFrame
    """Columns of `observed_configs` without run_id."""
    earlier_configs: DataFrame
    """Columns of `observed_configs`, as the previous audit observed them."""
    audit: DataFrame
    """Columns of `audit`, which has the ids of topics that we created."""
    ignored: Ignored = field(default_factory=dict)
    """Configs that others manage, by cluster."""
    pinned: Collection[str] = ()
    """Clusters where runs set a declared config even if the topic already has its value by default: `changes.pin`."""
    brokers: DataFrame | None = None
    """Brokers that are up: cluster, broker_id, rack; None if not queried."""
    uneven: DataFrame | None = None
    """Topics with placement `spread`, and the number of partitions that a run would move to balance them: cluster,
    topic, partitions (int); None if not queried."""
    moving: DataFrame | None = None
    """Partitions whose replicas are being moved: cluster, topic, partition; None if not queried."""
    moves_unknown: Mapping[str, str] = field(default_factory=dict)
    """Cluster that didn't say which replicas are being moved -> why."""


def find_drift(estate: Estate, settings: AuditSettings) -> Transform:
    """Compare validated manifests with live clusters.

    In: as from `manifests.rows.validate`; refused rows aren't compared, and the topics they name aren't unmanaged.
    Out: `DRIFT_COLUMNS`, one row per (cluster, topic, kind, what) that differs; ignored kinds are left out.
    """

    def transform(validated: DataFrame) -> DataFrame:
        found = F.flatten(F.array(*(F.coalesce(check, nothing()) for check in checks(settings))))
        return (
            validated.transform(side_by_side(estate))
            .select("cluster", "cluster_id", "topic", "topic_id", F.explode(found).alias("found"))
            .select("cluster", "cluster_id", "topic", "topic_id", "found.*")
            .withColumn("severity", lookup(settings.severity, F.col("kind")))
            .where("severity is not null")
            .select(*DRIFT_COLUMNS)
        )

    return transform


def side_by_side(estate: Estate) -> Transform:
    """Join declared and live topics of audited clusters: one row per (cluster, topic), with all columns of the checks.

    In: the result of `manifests.rows.validate`. Out: `state`, `num_partitions`, `replication_factor`, `assignments`,
    `configs`, `owner` and `placement` as declared; `refused`, true if the manifest row was refused; `topic_id`,
    `internal`, `permitted`, `unknown`, `live_*` and `other_leaders`, null if the topic isn't listed; `live_configs` and
    `live_by_name` (name -> config), without configs that others manage, or `config_error_code` and `config_error`;
    `earlier_defaults`, name -> value; `known_id`; `known_run`; `racks`, broker -> rack, of brokers that are up;
    `moving`, partitions whose replicas are being moved; `uneven`, the number of partitions of a spread topic that a run
    would move; `pinned`, true if a default value doesn't satisfy a declared config.
    """
    key = ["cluster", "topic"]
    audited = F.col("cluster").isin(*estate.cluster_ids)

    def transform(validated: DataFrame) -> DataFrame:
        # Only one of several identical rows is compared; a skipped one just records the duplicate.
        counts = F.col("topic").isNotNull() & ~F.col("outcome").eqNullSafe(F.lit(Outcome.SKIPPED.value))
        declared = validated.where(audited & counts).select(
            *key, "state", "num_partitions", "replication_factor", "assignments", "configs", "owner", "placement",
            F.col("phase").isNotNull().alias("refused"),
        )  # fmt: skip
        live = estate.topics.where(audited).select(
            *key, "topic_id", "internal", "permitted", "unknown", "other_leaders",
            F.col("num_partitions").alias("live_num_partitions"), F.col("assignments").alias("live_assignments"),
        )  # fmt: skip
        ours = F.filter("configs", lambda each: ~is_ignored(estate.ignored, each["name"]))
        configs = (
            estate.configs.where(audited)
            .withColumn("live_configs", ours)
            .select(
                *key, "live_configs", by_name("live_configs").alias("live_by_name"), "config_error_code", "config_error"
            )
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
    """Broker defaults of each topic at the previous audit, name -> value."""
    by_default = F.filter("configs", lambda each: (each["config_source"] != SET_ON_TOPIC) & ~each["is_sensitive"])
    return configs.select(
        "cluster", "topic", "cluster_id",
        values_by_name(by_default).alias("earlier_defaults"),
    )  # fmt: skip


def _known_ids(audit: DataFrame) -> DataFrame:
    """Ids of topics whose last acknowledged change of ours was their creation, and the runs that created them."""
    created = {"topic_id": "known_id", "run_id": "known_run"}
    return last_creates(audit).withColumnsRenamed(created)


def with_since(earlier: DataFrame, now: datetime) -> Transform:
    """Add `since`: when the first of an unbroken series of audits found it, else `now`.

    In: `DRIFT_COLUMNS`. `earlier` has the columns of `drift`, as the previous audit of each cluster found them.
    """
    key = ("cluster", "topic", "kind", "what")

    def transform(found: DataFrame) -> DataFrame:
        known = earlier.groupBy(*(F.col(name).alias(f"_{name}") for name in key)).agg(F.min("since").alias("_since"))
        same = [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in key]
        rows = found.join(known, on=same, how="left")
        return rows.select(*found.columns, F.coalesce("_since", F.lit(now)).alias("since"))

    return transform
