"""What is to be changed of topics that exist and are declared otherwise, where `[changes]` asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from topicledger.actions import add_partitions, alter_configs
from topicledger.config.settings import ChangeSettings, ClusterSettings, KafkaSettings
from topicledger.manifests.rows import PRESENT, Transform
from topicledger.model import AUTHORIZATION_FAILED, Action, Decision, Outcome, Phase, Refusal
from topicledger.observe.configs import observe_configs
from topicledger.observe.topics import Observation
from topicledger.phases import CHANGE, ENDED, null
from topicledger.resources.ending import ended, with_ended

DESCRIBED = ("cluster", "topic", "configs", "config_error_code", "config_error")
"""Columns of `observed_configs` that changes are decided on."""


_GRANT = (
    "this principal may not describe the topic's configs, so nobody knows what is to be changed; grant it "
    "DescribeConfigs"
)
_UNREAD = "its configs could not be described, so nobody knows what is to be changed; run again"


def to_describe(settings: Mapping[str, ChangeSettings], judged: DataFrame, seen: Observation) -> DataFrame | None:
    """Declared topics that exist and of which configs, or the number of partitions, may have to be changed, or whose
    number of replicas is declared lower than it is.

    In: `settings` by cluster; what `manifests.judge` returns. Out: columns of `observed`; None where nothing asks.
    """
    asked = {name: each for name, each in settings.items() if name in seen.known}
    if not asked:
        return None
    accepted = F.col("phase").isNull() & (F.col("state") == PRESENT) & F.col("cluster").isin(*asked)
    declared = judged.where(accepted).select(
        "cluster",
        "topic",
        add_partitions.declared_count().alias("_count"),
        _asks_for_configs(asked).alias("_alters"),
        _declared_replicas().alias("_replicas"),
    )
    grows = _on(asked, lambda each: each.partitions == "grow") & (F.col("_count") > F.col("num_partitions"))
    more = F.exists(F.map_values("assignments"), lambda each: F.size(each) > F.col("_replicas"))
    # What is lowered is compared with min.insync.replicas.
    lowers = _on(asked, lambda each: each.replicas == "on") & more
    return (
        seen.topics.where("not internal")
        .join(declared, on=["cluster", "topic"])
        .where(F.coalesce(grows, F.lit(False)) | F.col("_alters") | F.coalesce(lowers, F.lit(False)))
        .drop("_count", "_alters", "_replicas")
    )


def _on(settings: Mapping[str, ChangeSettings], mends: Callable[[ChangeSettings], bool]) -> Column:
    return F.col("cluster").isin(*(name for name, each in settings.items() if mends(each)))


def _asks_for_configs(settings: Mapping[str, ChangeSettings]) -> Column:
    """Whether configs of a declared topic that lives may have to be altered. In: `cluster`, `configs` as declared."""
    declares = F.coalesce(F.size(F.map_keys("configs")) > 0, F.lit(False))
    return _on(settings, lambda each: each.configs == "exact") | (
        _on(settings, lambda each: each.configs == "declared") & declares
    )


def _declared_replicas() -> Column:
    """Replicas that each partition has by its manifest (int); null where it leaves them as they are."""
    assigned = F.size(F.try_element_at(F.map_values("assignments"), F.lit(1)))
    return F.coalesce(F.when(assigned > 0, assigned), F.col("replication_factor"))


def describe(
    spark: SparkSession, kafka: KafkaSettings, clusters: Sequence[ClusterSettings], topics: DataFrame, seen: Observation
) -> tuple[Observation, DataFrame]:
    """Describe the configs of `topics` (columns of `observed`), on the executors.

    Returns what was observed, where a cluster that didn't answer this is one that can't be reached, and `DESCRIBED`.
    """
    found = observe_configs(spark, [each for each in clusters if each.name in seen.known], kafka, topics)
    statuses = {
        name: replace(status, error=found.errors[name]) if name in found.errors else status
        for name, status in seen.statuses.items()
    }
    return replace(seen, statuses=statuses), found.configs.select(*DESCRIBED)


def with_described(decisions: DataFrame, configs: DataFrame | None) -> DataFrame:
    """Adds `live_configs`, and `_unread` where they are asked for and not known: what ends the row.

    In: `phases.DECIDED`; `configs` as `describe` returns them. A topic whose configs may not be described is refused,
    NOT_PERMITTED; where describing them failed otherwise, it is failed.
    """
    if configs is None:
        return decisions.withColumn("_unread", null(ENDED))
    hidden = F.coalesce(F.col("config_error_code") != 0, F.lit(False))
    not_permitted = F.col("config_error_code").isin(*AUTHORIZATION_FAILED)
    unread = ended(
        F.lit(Phase.OBSERVE.value),
        F.when(not_permitted, F.lit(Outcome.REFUSED.value)).otherwise(F.lit(Outcome.FAILED.value)),
        F.when(not_permitted, F.lit(Refusal.NOT_PERMITTED.value)).otherwise(F.col("config_error")),
        F.when(not_permitted, F.lit(_GRANT)).otherwise(F.lit(_UNREAD)),
    )
    return (
        decisions.join(configs.withColumnRenamed("configs", "_configs"), on=["cluster", "topic"], how="left")
        .withColumns({"live_configs": F.col("_configs"), "_unread": F.when(hidden, unread)})
        .select(*decisions.columns, "_unread")
    )


def with_changes(settings: Mapping[str, ChangeSettings], configs: DataFrame | None) -> Transform:
    """Adds what is to be changed to topics that need nothing else.

    In and out: `phases.DECIDED`. `settings` are by cluster; `configs` as `describe` returns them. A topic that gets
    partitions has the decision add_partitions; what is to be altered of its configs is `alters`. A topic whose configs
    are not known is ended (`with_described`).
    """

    def transform(decisions: DataFrame) -> DataFrame:
        left_alone = F.col("decision").isin(Decision.UNCHANGED.value, Decision.DRIFTED.value)
        lives = F.col("live") & ~F.col("internal") & F.col("phase").isNull() & left_alone
        grows = _by_cluster(settings, lambda each: add_partitions.counts() if each.partitions == "grow" else None)
        alters = _by_cluster(settings, lambda each: alter_configs.differences(each) if each.configs != "off" else None)
        asks = _asks_for_configs(settings)
        decision = (
            F.when(F.col("_grows").isNotNull(), F.lit(Action.ADD_PARTITIONS.value))
            .when(F.col("_hidden").isNotNull(), F.lit(Action.ALTER_CONFIGS.value))
            .otherwise(F.col("decision"))
        )
        return (
            with_described(decisions, configs)
            .withColumns(
                {
                    "_grows": F.when(lives, grows),
                    "alters": F.when(lives, alters),
                }
            )
            # A topic may be described for its moves alone.
            .withColumn("_hidden", F.when(lives & (F.col("_grows").isNotNull() | asks), F.col("_unread")))
            .withColumns(
                {
                    "decision": decision,
                    "before": F.coalesce("_grows.before", "before"),
                    "after": F.coalesce("_grows.after", "after"),
                }
            )
            .transform(with_ended, "_hidden")
            .select(*decisions.columns)
        )

    return transform


def _by_cluster(settings: Mapping[str, ChangeSettings], change: Callable[[ChangeSettings], Column | None]) -> Column:
    """A change by the settings of its cluster, null where they ask for none."""
    found = null(CHANGE)
    for each in dict.fromkeys(settings.values()):
        value = change(each)
        if value is not None:
            names = [name for name, of_cluster in settings.items() if of_cluster == each]
            found = F.when(F.col("cluster").isin(*names), value.cast(CHANGE)).otherwise(found)
    return found


def with_alters(decisions: DataFrame) -> DataFrame:
    """Turn configs to alter into actions of their own. In and out: `phases.DECIDED`.

    A topic that needs nothing else has the decision alter_configs; one that gets partitions has a second row.
    """
    nothing_else = F.col("decision").isin(Decision.UNCHANGED.value, Decision.DRIFTED.value)
    rows = F.when(F.col("alters").isNull(), F.array(F.lit(False))).when(nothing_else, F.array(F.lit(True)))
    own = {
        "decision": F.lit(Action.ALTER_CONFIGS.value),
        "before": F.col("alters.before"),
        "after": F.col("alters.after"),
        "waits": F.lit(False),
        "resolved_configs": alter_configs.afterwards(),
        "violations": F.when(nothing_else, F.col("violations")),
        **{name: F.lit(None) for name in ("phase", "outcome", "error", "error_message")},
    }
    return (
        decisions.withColumn("_alters", F.explode(rows.otherwise(F.array(F.lit(False), F.lit(True)))))
        .withColumns({name: F.when(F.col("_alters"), value).otherwise(F.col(name)) for name, value in own.items()})
        .select(*decisions.columns)
    )
