"""Changes of existing topics that differ from their declaration, as far as `[changes]` allows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from topicledger.config.settings import ChangeSettings, ClusterSettings, KafkaSettings
from topicledger.manifests.row_rules import PRESENT
from topicledger.manifests.rows import Transform
from topicledger.model import AUTHORIZATION_FAILED, Action, Decision, Outcome, Phase, Refusal
from topicledger.observe.topics import Observation
from topicledger.phases import CHANGE, ENDED, null
from topicledger.policies.evaluating import together, warning
from topicledger.resources.ending import ended, with_ended
from topicledger.resources.topics.actions import add_partitions, alter_configs
from topicledger.resources.topics.observe.configs import observe_configs
from topicledger.resources.topics.plan import effects

DESCRIBED = ("cluster", "topic", "configs", "config_error_code", "config_error")
"""Columns of `observed_configs` from which changes are decided."""


_GRANT = (
    "this principal may not describe the topic's configs, so it is unknown whether they need a change; grant it "
    "DescribeConfigs"
)
CAUTION = "config_caution"
"""Name of the warning about what every change of a config does."""
_UNREAD = "its configs could not be described, so it is unknown whether they need a change; run again"


def to_describe(settings: Mapping[str, ChangeSettings], validated: DataFrame, seen: Observation) -> DataFrame | None:
    """Return the existing topics whose configs must be described, since they may need a change.

    Their configs may be altered, their partitions increased, or their number of replicas lowered. In: `settings` by
    cluster; `validated` from `manifests.rows.validate`. Out: columns of `observed`; None if settings allow no change.
    """
    asked = {name: each for name, each in settings.items() if name in seen.known}
    if not asked:
        return None
    accepted = F.col("phase").isNull() & (F.col("state") == PRESENT) & F.col("cluster").isin(*asked)
    declared = validated.where(accepted).select(
        "cluster",
        "topic",
        add_partitions.declared_count().alias("_count"),
        _asks_for_configs(asked).alias("_alters"),
        _declared_replicas().alias("_replicas"),
    )
    grows = _on(asked, lambda each: each.partitions == "grow") & (F.col("_count") > F.col("num_partitions"))
    more = F.exists(F.map_values("assignments"), lambda each: F.size(each) > F.col("_replicas"))
    # A lower number of replicas is compared with min.insync.replicas.
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
    """Return whether configs of a declared, existing topic may be altered. In: `cluster`, `configs` as declared."""
    declares = F.coalesce(F.size(F.map_keys("configs")) > 0, F.lit(False))
    return _on(settings, lambda each: each.configs == "exact") | (
        _on(settings, lambda each: each.configs == "declared") & declares
    )


def _declared_replicas() -> Column:
    """Return the declared number of replicas of each partition (int); null if the manifest leaves it as it is."""
    assigned = F.size(F.try_element_at(F.map_values("assignments"), F.lit(1)))
    return F.coalesce(F.when(assigned > 0, assigned), F.col("replication_factor"))


def describe(
    spark: SparkSession, kafka: KafkaSettings, clusters: Sequence[ClusterSettings], topics: DataFrame, seen: Observation
) -> tuple[Observation, DataFrame]:
    """Describe the configs of `topics` (columns of `observed`) on the executors.

    Returns the observation, in which a cluster that didn't answer is unreachable, and the configs (`DESCRIBED`).
    """
    found = observe_configs(spark, [each for each in clusters if each.name in seen.known], kafka, topics)
    statuses = {
        name: replace(status, error=found.errors[name]) if name in found.errors else status
        for name, status in seen.statuses.items()
    }
    return replace(seen, statuses=statuses), found.configs.select(*DESCRIBED)


def with_described(decisions: DataFrame, configs: DataFrame | None) -> DataFrame:
    """Add `live_configs`, and `_unread`: the struct that ends a row whose configs are needed but unknown.

    In: `phases.DECIDED`; `configs` from `describe`. A topic is refused with NOT_PERMITTED if its configs may not be
    described, and fails if describing them failed for another reason.
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
    """Add changes to topics that need no other action.

    In and out: `phases.DECIDED`. `settings` are by cluster; `configs` is from `describe`. A topic that gets partitions
    has the decision add_partitions; the configs to alter are in `alters`. A topic whose configs are unknown ends
    (`with_described`).
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
            # A topic may be described only for its moves.
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
    """Return the change by the settings of the row's cluster; null if they allow none."""
    found = null(CHANGE)
    for each in dict.fromkeys(settings.values()):
        value = change(each)
        if value is not None:
            names = [name for name, of_cluster in settings.items() if of_cluster == each]
            found = F.when(F.col("cluster").isin(*names), value.cast(CHANGE)).otherwise(found)
    return found


def with_alters(decisions: DataFrame) -> DataFrame:
    """Turn configs to alter into separate actions. In and out: `phases.DECIDED`.

    A topic that needs nothing else has the decision alter_configs; one that gets partitions has a second row.
    """
    nothing_else = F.col("decision").isin(Decision.UNCHANGED.value, Decision.DRIFTED.value)
    rows = F.when(F.col("alters").isNull(), F.array(F.lit(False))).when(nothing_else, F.array(F.lit(True)))
    caution = effects.cautions(F.col("alters.before"), F.col("alters.after"))
    own = {
        "decision": F.lit(Action.ALTER_CONFIGS.value),
        "before": F.col("alters.before"),
        "after": F.col("alters.after"),
        "waits": F.lit(False),
        "resolved_configs": alter_configs.afterwards(),
        "violations": together(F.when(nothing_else, F.col("violations")), warning(CAUTION, caution)),
        **{name: F.lit(None) for name in ("phase", "outcome", "error", "error_message")},
    }
    return (
        decisions.withColumn("_alters", F.explode(rows.otherwise(F.array(F.lit(False), F.lit(True)))))
        .withColumns({name: F.when(F.col("_alters"), value).otherwise(F.col(name)) for name, value in own.items()})
        .select(*decisions.columns)
    )
