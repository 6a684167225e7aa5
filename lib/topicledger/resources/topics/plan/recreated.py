"""`[policies] recreated = "exempt"`: creates of topics that this ledger created before, which policies only warn about.

Such a topic was deleted by another client, or its cluster was built again. It passed the policies of then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger import policies
from topicledger.config.settings import Settings
from topicledger.ledger.acknowledged import last_creates
from topicledger.ledger.tables import Ledger
from topicledger.manifests.rows import Transform
from topicledger.model import Action, Refusal
from topicledger.policies import Facts, Policy
from topicledger.schemas import AUDIT

_RECREATED = "_recreated"


def created_before(ledger: Ledger, settings: Settings) -> DataFrame | None:
    """Return topics whose last acknowledged change is a create of ours (cluster, topic); None if none is exempted."""
    # The first run of a ledger begins before its tables are there.
    if settings.policies.recreated != "exempt" or not ledger.exists(AUDIT):
        return None
    return last_creates(ledger.read(AUDIT)).select("cluster", "topic").distinct()


def evaluate(rules: Sequence[Policy], known: Facts, created: DataFrame | None) -> Transform:
    """Evaluate policies, as `policies.evaluate`; those of the settings only warn about creates of `created`."""
    if created is None:
        return policies.evaluate(rules, known)
    marks = created.withColumn(_RECREATED, F.lit(True))
    is_one = F.coalesce(F.col(_RECREATED) & (F.col("decision") == Action.CREATE.value), F.lit(False))

    def transform(decisions: DataFrame) -> DataFrame:
        marked = decisions.join(marks, on=["cluster", "topic"], how="left").withColumn(_RECREATED, is_one)
        return marked.transform(policies.evaluate(list(_exempting(rules)), known)).select(*decisions.columns)

    return transform


def _exempting(rules: Sequence[Policy]) -> Iterator[Policy]:
    """Yield each policy. One that allows exemptions comes twice: it refuses other topics, and warns about these."""
    mine = F.col(_RECREATED)
    for rule in rules:
        if _can_exempt(rule):
            yield replace(rule, concerns=_both(rule.concerns, ~mine))
            yield replace(rule, mode="warn", concerns=_both(rule.concerns, mine))
        else:
            yield rule


def as_warnings(rules: Sequence[Policy]) -> list[Policy]:
    """Return the policies as they are for a topic that was created before."""
    return [replace(rule, mode="warn") if _can_exempt(rule) else rule for rule in rules]


def _can_exempt(rule: Policy) -> bool:
    return rule.error is Refusal.POLICY_VIOLATION and rule.mode == "refuse"


def _both(one: Column | None, other: Column) -> Column:
    return other if one is None else one & other
