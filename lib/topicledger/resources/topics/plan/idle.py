"""The policies that find out whether a topic is used, and what plans and audits saw of topics without records."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.ledger.run import Run
from topicledger.model import Outcome, Phase, Refusal
from topicledger.model.renames import END_OFFSET
from topicledger.policies.contract import SetRule
from topicledger.resources.ending import ended
from topicledger.resources.topics.plan.unused import NEVER_PRUNED, TOOLS_OWN, no_live_groups_in_audits
from topicledger.resources.topics.policies.delete import in_use, no_consumer_groups, not_written_for
from topicledger.schemas import PLANS, USAGE

USED = ("in_use", "no_consumer_groups", "no_recent_records", "unused_in_audits")
"""The policies that find out whether a topic is used."""


def rules_of_use(run: Run, days: int) -> Mapping[str, SetRule]:
    """Return the rules of the policies `USED` by name: a topic that was used in the last `days` days is kept.

    A topic is refused if its use is unknown.
    """
    usage = run.ledger.read_if_exists(USAGE)
    quiet = not_written_for(days, lambda: seen_since(run.ledger.read(PLANS), usage))
    rules = (in_use(), no_consumer_groups(), quiet, no_live_groups_in_audits(days, usage))
    return dict(zip(USED, rules, strict=True))


def seen_since(plans: DataFrame, usage: DataFrame) -> DataFrame:
    """Return the end offsets that plans and audits saw: cluster, topic, topic_id, end_offset, first and last time.

    In: rows of `plans` and of `usage`.
    """
    key = ("cluster", "topic", "topic_id")
    by_plans = plans.where(F.col("before")[END_OFFSET].isNotNull()).select(
        *key, F.col("before")[END_OFFSET].cast("long").alias("end_offset"), F.col("planned_at").alias("_at")
    )
    by_audits = usage.where(F.col("end_offset").isNotNull())
    seen = by_plans.unionByName(by_audits.select(*key, "end_offset", F.col("observed_at").alias("_at")))
    return seen.groupBy(*key, "end_offset").agg(F.min("_at").alias("seen_since"), F.max("_at").alias("seen_until"))


def never_idle() -> Column:
    """Return the struct that ends a topic which is never deleted as idle, used or not; null if it may be."""
    phase = F.lit(Phase.OBSERVE.value)
    no_ids = (
        "this cluster gives topics no ids (brokers before 2.8), so it would be unknown at apply whether this is still "
        "the planned topic"
    )
    return F.when(
        F.startswith("topic", F.lit(TOOLS_OWN)),
        ended(phase, F.lit(Outcome.SKIPPED.value), F.lit(None).cast("string"), F.lit(NEVER_PRUNED)),
    ).when(
        F.col("topic_id").isNull(),
        ended(phase, F.lit(Outcome.REFUSED.value), F.lit(Refusal.UNJUDGEABLE.value), F.lit(no_ids)),
    )
