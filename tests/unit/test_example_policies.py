"""examples/policies: what docs/policies.md shows works, as a user's own."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

from tests.commands import REPOSITORY
from tests.unit.frames import by_topic, decision_rows, policy_facts
from topicledger.model import Action
from topicledger.policies import Policy, Rule, judge


@pytest.fixture(scope="module")
def house_rules() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house_rules", REPOSITORY / "examples/policies/house_rules.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def own(name: str, rule: Rule) -> Policy:
    return Policy(name=f"house_rules:{name}", action=Action.CREATE, rule=rule, users_own=True)


def test_the_example_policies_refuse_what_they_say(spark: SparkSession, house_rules: ModuleType) -> None:
    """P4"""
    create = {"decision": "create", "owner": "a"}
    day = 86_400_000
    rows = decision_rows(
        spark,
        {"topic": "t.1", **create, "labels": {"tier": "gold"}, "configs": {"retention.ms": str(7 * day)}},
        {"topic": "t.2", **create, "labels": {"tier": "gold"}, "configs": {"retention.ms": str(7 * day + 1)}},
        {"topic": "t.3", **create, "labels": {"tier": "lead"}},
        {"topic": "t.4", **create, "labels": {"tier": "silver"}},
        {"topic": "t.5", **create, "labels": {"tier": "silver"}, "configs": {"retention.ms": "-1"}},
        {"topic": "t.6", **create, "labels": {"tier": "silver"}},
        {"topic": "t.7", **create, "labels": {"tier": "silver"}, "owner": "b"},
        {"topic": "t.8", "decision": "unchanged", "owner": "a"},
    )
    rules = [
        own("retention_by_tier", house_rules.retention_by_tier(days={"gold": 7, "silver": 1})),
        own("new_topics_per_owner", house_rules.new_topics_per_owner(max=2)),
    ]
    judged = by_topic(rows.transform(judge(rules, policy_facts(spark))))
    told = {
        topic: [(each["policy"].partition(":")[2], each["message"]) for each in row["violations"]]
        for (_, topic), row in judged.items()
        if row["violations"]
    }
    assert told == {
        "t.2": [("retention_by_tier", "keeps records longer than tier gold allows; retention.ms is at most 604800000")],
        "t.3": [("retention_by_tier", "has no label tier; one of gold, silver")],
        "t.5": [
            ("retention_by_tier", "keeps records longer than tier silver allows; retention.ms is at most 86400000"),
            ("new_topics_per_owner", "one run creates at most 2 topics for a; run again"),
        ],
        "t.6": [("new_topics_per_owner", "one run creates at most 2 topics for a; run again")],
    }


def test_the_example_refuses_settings_that_make_no_sense(house_rules: ModuleType) -> None:
    with pytest.raises(ValueError, match="at least one tier"):
        house_rules.retention_by_tier(days={})
