"""examples/policies: what docs/policies.md shows works, as a user's own."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

from tests.commands import REPOSITORY
from tests.unit.frames import by_topic, decision_rows, policy_facts
from topicledger.config.reading import load_settings
from topicledger.model import Action
from topicledger.policies import Policy, Rule, evaluate
from topicledger.resources import building


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
    evaluated = by_topic(rows.transform(evaluate(rules, policy_facts(spark))))
    told = {
        topic: [(each["policy"].partition(":")[2], each["message"]) for each in row["violations"]]
        for (_, topic), row in evaluated.items()
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


def test_the_file_on_the_page_refuses_what_the_page_shows(
    spark: SparkSession, house_rules: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (REPOSITORY / "docs" / "policies.md").read_text(encoding="utf-8").partition("## A policy of your own")[2]
    (source,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (settings,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (shown,) = re.findall(r"```\n(  ! .*?)```", page, re.DOTALL)
    assert inspect.getsource(house_rules.retention_by_tier) in source
    (tmp_path / "house_rules.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "house_rules", raising=False)
    path = tmp_path / "my.toml"
    minimal = '[tables]\nroot = "ledger"\n[clusters.orders]\nbootstrap_servers = ["localhost:9092"]\n'
    path.write_text(minimal + settings, encoding="utf-8")
    rules = [each for each in building.from_settings(load_settings(path)) if each.users_own]
    create = {"decision": "create", "owner": "payments"}
    month = {"retention.ms": str(30 * 86_400_000)}
    rows = decision_rows(
        spark,
        {"topic": "payments.audit", **create, "labels": {"tier": "gold"}, "configs": month},
        {"topic": "payments.raw", **create},
        {"topic": "payments.authorised", **create, "labels": {"tier": "silver"}},
    )
    refused = by_topic(rows.transform(evaluate(rules, policy_facts(spark)))).items()
    # In the order of `runs show`, which sorts by message: tests/broker/test_how_tos.py runs the page.
    found = sorted(
        (violation["message"], topic, row["error"], violation["policy"])
        for (_, topic), row in refused
        for violation in row["violations"] or ()
    )
    assert shown.splitlines() == [
        f"  ! create {topic} (policy): {error}: {policy}: {message}" for message, topic, error, policy in found
    ]
    monkeypatch.delitem(sys.modules, "house_rules")
