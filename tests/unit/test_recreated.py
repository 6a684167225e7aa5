"""`[policies] recreated = "exempt"`: policies only warn about creates of topics that this ledger created before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.unit.frames import decision_rows, dicts, policy_facts
from topicledger.config.reading import load_settings, read_settings
from topicledger.model import Action, Refusal
from topicledger.policies import Policy
from topicledger.resources.topics.plan.recreated import created_before, evaluate

CREATES = ({"topic": "new", "decision": "create"}, {"topic": "again", "decision": "create"})


def never(**more: Any) -> Policy:
    return replace(Policy(name="never", action=Action.CREATE, rule=F.lit("not here")), **more)


def results(spark: SparkSession, *rules: Policy, exempt: bool = True, rows: Any = CREATES) -> dict[str, Any]:
    created = spark.createDataFrame([("main", "again"), ("other", "new")], "cluster string, topic string")
    decisions = decision_rows(spark, *rows)
    found = decisions.transform(evaluate(rules, policy_facts(spark), created if exempt else None))
    assert found.columns == decisions.columns
    return {
        row["topic"]: (row["error"], [(each["policy"], each["warns"]) for each in row["violations"] or ()])
        for row in dicts(found)
    }


def test_policies_only_warn_about_topics_that_were_created_before(spark: SparkSession) -> None:
    refused = ("POLICY_VIOLATION", [("never", False)])
    assert results(spark, never()) == {"new": refused, "again": (None, [("never", True)])}
    assert results(spark, never(), exempt=False) == {"new": refused, "again": refused}


def test_policies_that_are_always_on_refuse_recreated_topics(spark: SparkSession) -> None:
    assert results(spark, never(error=Refusal.NAME_COLLISION))["again"] == ("NAME_COLLISION", [("never", False)])


def test_other_changes_of_such_topics_are_refused_as_before(spark: SparkSession) -> None:
    found = results(spark, never(action=Action.ADD_PARTITIONS), rows=[{"topic": "again", "decision": "add_partitions"}])
    assert found == {"again": ("POLICY_VIOLATION", [("never", False)])}


def test_the_default_exempts_nothing(tmp_path: Path) -> None:
    def settings(policies: str) -> Path:
        path = tmp_path / "s.toml"
        path.write_text(f'[tables]\nroot = "x"\n[clusters.main]\nbootstrap_servers = ["h:1"]\n{policies}')
        return path

    one = '[[policies.create]]\nuse = "num_partitions"\nmax = 4\n'
    plain, exempt = load_settings(settings(one)), load_settings(settings(f'[policies]\nrecreated = "exempt"\n{one}'))
    assert (plain.policies.recreated, exempt.policies.recreated) == ("refuse", "exempt")
    assert exempt.policies.create == plain.policies.create
    assert plain.digest() != exempt.digest()
    unread: Any = SimpleNamespace()
    assert created_before(unread, plain) is None
    new: Any = SimpleNamespace(exists=lambda _: False)
    assert created_before(new, exempt) is None, "a new ledger has no table audit"
    _, problems = read_settings(settings('[policies]\nrecreated = "warn"\n'))
    assert len(problems) == 1
    assert "policies.recreated" in problems[0]


@pytest.mark.parametrize("mode", ["refuse", "warn"])
def test_a_policy_that_warns_does_so_once(spark: SparkSession, mode: Any) -> None:
    assert results(spark, never(mode=mode))["again"] == (None, [("never", True)])
