"""Existing topics, evaluated by the policies of creates: which of them could not be created today."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.kafka.config_values import is_set_on_topic, values_by_name
from topicledger.manifests.ignored import Ignored, is_ignored
from topicledger.manifests.rows import Transform
from topicledger.model import Action
from topicledger.phases import VALUES
from topicledger.resources.topics.plan.changes import with_described
from topicledger.resources.topics.plan.decide import live_counts

_ENDED = ("phase", "outcome", "error", "error_message", "violations", "before", "after", "alters")


def as_creates(configs: DataFrame | None, ignored: Ignored) -> Transform:
    """Convert existing topics to validated creates of their current state; others, and internal ones, are left out.

    In: `phases.DECIDED`; `configs` of these topics, as `changes.describe` returns them. Out: the same columns, one
    row per (cluster, topic). Owner and labels stay as declared. No other topics exist besides them: their use is
    counted once, in the order in which a budget counts creates. `ignored`: configs that others manage.
    """

    def own(config: Column) -> Column:
        return is_set_on_topic(config) & ~is_ignored(ignored, config["name"])

    def transform(decisions: DataFrame) -> DataFrame:
        live = live_counts()
        values = {
            "decision": F.lit(Action.CREATE.value),
            "live": F.lit(False),
            "validated": F.lit(True),
            "waits": F.lit(False),
            **live,
            "assignments": F.lit(None).cast("map<int,array<int>>"),
            "configs": values_by_name(F.filter("live_configs", own)),
            **{f"resolved_{name}": column for name, column in live.items()},
            "resolved_configs": values_by_name(F.col("live_configs")).cast(VALUES),
            **{name: F.lit(None).cast(decisions.schema[name].dataType) for name in _ENDED},
        }
        lives = with_described(decisions, configs).where(F.col("live") & ~F.col("internal"))
        return lives.withColumns(values).dropDuplicates(["cluster", "topic"]).select(*decisions.columns)

    return transform
