"""`prune`: plan to delete topics that no manifest names and that are no longer used.

Kafka doesn't report when a topic was created or last written to. It returns the largest timestamp of the kept records;
for a topic without records, only the end offset. So each prune stores the end offset of each evaluated topic in
`plans.before`. If an earlier prune, long enough ago, saw the same offset of the same topic, nobody has written since.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from topicledger.config import patterns
from topicledger.frames import materialised
from topicledger.ledger.run import Run
from topicledger.manifests.row_rules import ABSENT
from topicledger.model import Action, Decision, Outcome, Phase
from topicledger.model.prune import Prune
from topicledger.model.renames import END_OFFSET
from topicledger.policies.contract import Policy
from topicledger.resources.ending import ended, with_ended
from topicledger.resources.topics.observe.topic_use import read_last_records
from topicledger.resources.topics.plan.decide import live_counts, texts
from topicledger.resources.topics.plan.idle import USED, never_idle, rules_of_use
from topicledger.resources.topics.plan.undeclared import with_named
from topicledger.resources.topics.plan.wanted import Wanted
from topicledger.schemas import MANIFESTS


def rules(run: Run, prune: Prune) -> Sequence[Policy]:
    """Return the policies `idle.USED`, which always apply to a prune: when it is planned, and when it is applied."""
    rules = rules_of_use(run, prune.idle_days)
    return [Policy(name=name, action=Action.DELETE, rule=rule) for name, rule in rules.items()]


def pruned(run: Run, prune: Prune, selected: Sequence[str] | None) -> Wanted:
    """Return the request to delete unused topics that match the patterns and that no manifest names."""
    return Wanted(
        validated=_clusters(run, selected or [cluster.name for cluster in run.clusters]),
        kinds=[Action.DELETE.value],
        changes=lambda configs: partial(_with_deletes, run=run, prune=prune),
        spares=USED,
    )


def _clusters(run: Run, names: Sequence[str]) -> DataFrame:
    """Return a row without a topic for each cluster, with the columns of `manifests.rows.validate`.

    It is in the plan if the cluster can't be reached or is a different one.
    """
    schema = MANIFESTS.schema
    rows = run.spark.createDataFrame([(name, ABSENT) for name in names], "cluster string, state string")
    columns = {name: F.col(name) if name in rows.columns else F.lit(None) for name in schema.names}
    ends = ("error", "error_message", "phase", "outcome")
    return rows.select(
        *(column.cast(schema[name].dataType).alias(name) for name, column in columns.items()),
        *(F.lit(None).cast("string").alias(name) for name in ends),
    )


def _with_deletes(decisions: DataFrame, *, run: Run, prune: Prune) -> DataFrame:
    """Set the decision of matching unmanaged topics to delete; topics that are never pruned end with the reason.

    In and out: `phases.DECIDED`; topics that manifests name are unchanged.
    """
    of_cluster, key = F.col("topic").isNull(), ["cluster", "topic"]
    reached = ~F.bool_or(of_cluster & F.col("phase").isNotNull()).over(Window.partitionBy("cluster"))
    asked_for = reduce(or_, (patterns.matches("topic", pattern) for pattern in prune.patterns))
    asked_for &= ~patterns.any_matches("topic", run.settings.scope.ignore_topics)
    decision = (
        F.when(of_cluster, None)
        .when(F.col("_named") & asked_for & F.col("decision").isNotNull(), F.lit(Decision.DECLARED.value))
        .when(F.col("_named"), F.lit(Decision.UNCHANGED.value))
        .when(asked_for & (F.col("decision") == Decision.UNMANAGED.value), F.lit(Action.DELETE.value))
        .otherwise(F.col("decision"))
    )
    declared = run.ledger.read(MANIFESTS, run.manifest_version)
    rows = (
        decisions.transform(with_named(declared, list(run.settings.clusters)))
        .withColumns({"_reached": reached, "_decided": decision})
        .where(of_cluster | F.col("_reached"))
        .withColumn("decision", F.col("_decided"))
        .transform(materialised)
    )
    delete = F.coalesce(F.col("decision") == Action.DELETE.value, F.lit(False))
    last = read_last_records(run.spark, run.clusters, run.settings.kafka, rows.where(delete).select(*key))
    before = texts({**live_counts(), END_OFFSET: F.col("end_offset")})
    return (
        rows.join(last.select(*key, "end_offset"), on=key, how="left")
        .withColumns(
            {
                "before": F.when(delete, F.map_filter(before, lambda _, value: value.isNotNull())),
                "_end": F.when(delete, F.coalesce(_may_be_meant(), never_idle())),
            }
        )
        .transform(with_ended, "_end")
        .select(*decisions.columns)
    )


def _may_be_meant() -> Column:
    skipped = F.lit(Outcome.SKIPPED.value)
    end = ended(F.lit(Phase.OBSERVE.value), skipped, F.lit(None).cast("string"), F.col("_unreadable"))
    return F.when(F.col("_unreadable").isNotNull(), end)
