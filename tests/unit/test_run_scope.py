"""The scope of a run: its words, the rows inside of it, and what becomes of those outside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.harness import cluster_settings, policy
from tests.unit.frames import (
    decision_rows,
    dicts,
    frame,
    manifest_rows,
    observed_rows,
    plain,
    policy_facts,
    validated_rows,
)
from topicledger.apply.rendering import scope_line
from topicledger.cli.live_policies import only_inside
from topicledger.config.settings import OwnerLine, Owners, OwnerSettings, PolicySettings, Settings, TablesSettings
from topicledger.manifests import rows as manifests
from topicledger.model import Action
from topicledger.model.renames import REPLACED_BY, UNDECLARED
from topicledger.model.scope import EVERYTHING, Scope
from topicledger.observe.topics import ClusterStatus, Observation
from topicledger.plan import scoping
from topicledger.plan.intent import TOPICS, no_longer_declared
from topicledger.plan.scoping import topics
from topicledger.resources import building
from topicledger.resources.scoped import INSIDE, OF_TOPICS, left_outside, with_inside
from topicledger.resources.topics.plan import guards
from topicledger.resources.topics.plan.topics import decided
from topicledger.resources.topics.plan.wanted import brought_about
from topicledger.schemas import BROKERS, PLANS

ALL_LIMITS = Scope(
    clusters=("c",), kinds=("creates",), owners=("B", "a"), topics=("^x",), resources=("r",), files=True, barred=("z",)
)
REFUSED = {"phase": "manifest", "outcome": "refused", "error": "INVALID_STATE", "error_message": "gone"}


@pytest.mark.parametrize("scope", [EVERYTHING, ALL_LIMITS.in_order()])
def test_a_scope_is_read_as_it_was_written(scope: Scope) -> None:
    assert Scope.from_json(scope.to_json()) == scope


def test_a_scope_is_the_same_in_any_order() -> None:
    assert EVERYTHING.to_json() is None
    assert Scope(owners=("b", "a", "b")).to_json() == Scope(owners=("a", "b")).to_json() == '{"owners": ["a", "b"]}'


def test_a_scope_in_words_names_its_limits() -> None:
    assert str(Scope(clusters=("c",), kinds=("creates",))) == "everything"
    assert str(ALL_LIMITS) == "the files; owners B, a; topic ^x; resource r; not owner z"


ROWS = (
    {"topic": "x.a", "owner": " A "},
    {"topic": "x.b", "owner": "b"},
    {"topic": "y.a", "owner": "a"},
    {"topic": "x"},
)


@pytest.mark.parametrize(
    ("scope", "inside"),
    [
        (Scope(owners=("a",)), {"x.a", "y.a"}),
        (Scope(owners=("a", "B")), {"x.a", "x.b", "y.a"}),
        (Scope(topics=("^x",)), {"x.a", "x.b", "x"}),
        (Scope(topics=("^x", "y")), {"x.a", "x.b", "y.a", "x"}),
        (Scope(topics=("^x",), owners=("a",)), {"x.a"}),
        (Scope(resources=("x",)), set()),
        (Scope(barred=("a",)), {"x.b", "x"}),
        (Scope(files=True), {"x.a", "x"}),
        (Scope(files=True, owners=("a",)), {"x.a"}),
        (Scope(owners=("nobody",)), set()),
    ],
)
def test_a_topic_is_inside_if_every_limit_allows_it(spark: SparkSession, scope: Scope, inside: set[str]) -> None:
    rows = validated_rows(spark, *ROWS)
    files = validated_rows(spark, {"topic": "x.a"}, {"topic": "x"}, {"topic": "x.b", "cluster": "other"})
    found = rows.transform(with_inside(scope, OF_TOPICS, files.select("cluster", "topic")))
    assert {row["topic"] for row in dicts(found.where(INSIDE))} == inside


OWNERS = Owners(
    names={"A": OwnerSettings(topics=("^a[.]",)), "b": OwnerSettings(topics=("[.]b$",), clusters=("other",))},
    lines=(OwnerLine(".*/c", ("c", "a"), "file:1"), OwnerLine("^main/c$", (), "file:2")),
)


def test_a_topic_without_a_row_belongs_to_its_owners_by_the_settings(spark: SparkSession) -> None:
    """One that is declared belongs to its row's owner alone, so that nobody's scope has another team's mistakes."""
    rows = [("main", name) for name in ("a.b", "c.b", "c", "cc", "a.declared", "declared")]
    topics = validated_rows(
        spark,
        *(
            {"cluster": cluster, "topic": topic}
            for cluster, topic in (*rows[:4], ("other", "c.b"), ("main", "a.declared"))
        ),
        {"topic": "declared", "owner": " a "},
    )
    declared = topics.where("topic like '%declared'")

    def inside(*owners: str) -> set[tuple[str, str]]:
        found = topics.transform(only_inside(Scope(owners=owners), OWNERS, declared))
        assert found.columns == topics.columns
        return {(row["cluster"], row["topic"]) for row in dicts(found)}

    assert inside("a") == {("main", "a.b"), ("main", "cc"), ("other", "c.b"), ("main", "c.b"), ("main", "declared")}
    assert inside("B") == {("other", "c.b")}
    assert only_inside(EVERYTHING, OWNERS, declared)(topics) is topics


def test_files_without_topics_leave_every_topic_outside(spark: SparkSession) -> None:
    found = validated_rows(spark, *ROWS).transform(with_inside(Scope(files=True), OF_TOPICS, None))
    assert found.where(INSIDE).isEmpty()


@pytest.fixture
def decisions(spark: SparkSession) -> DataFrame:
    return decision_rows(
        spark,
        {"topic": "mine", "owner": "a", "decision": "delete"},
        {"topic": "mine.wrong", "owner": "a", **REFUSED},
        {"topic": "new", "owner": "b", "decision": "create"},
        {"topic": "gone", "owner": "b", "decision": "delete", "before": {"num_partitions": "1"}},
        {"topic": "altered", "owner": "b", "decision": "unchanged", "alters": {"before": {}, "after": {"x": "1"}}},
        {"topic": "same", "owner": "b", "decision": "unchanged"},
        {"topic": "wrong", "owner": "b", "live": True, **REFUSED},
        {"topic": None, "owner": "b", **REFUSED},
        {"topic": "stranger", "decision": "unmanaged"},
    )


def closed(decisions: DataFrame, scope: Scope) -> dict[str | None, dict[str, Any]]:
    rows = decisions.transform(topics(with_inside(scope, OF_TOPICS, None)))
    assert rows.columns == decisions.columns
    return {row["topic"]: row for row in dicts(rows)}


def test_nothing_outside_is_decided_or_refused(decisions: DataFrame) -> None:
    found = closed(decisions, Scope(owners=("a",)))
    assert {topic: row["decision"] for topic, row in found.items()} == {
        "mine": "delete",
        "mine.wrong": None,
        "new": "outside",
        "gone": "outside",
        "altered": "outside",
        "same": None,
        "wrong": None,
        "stranger": None,
    }
    assert {topic for topic, row in found.items() if row["phase"] is not None} == {"mine.wrong"}
    assert (found["altered"]["alters"], found["gone"]["before"]) == (None, None)
    assert found["wrong"]["live"], "rules about topics together must see it"


def test_guards_count_only_what_is_inside(decisions: DataFrame) -> None:
    within = with_inside(Scope(owners=("a",)), OF_TOPICS, None)
    rows = dicts(decisions.transform(topics(within)).transform(guards.max_deletes(1)))
    assert [row["topic"] for row in rows if row["phase"] == "guard"] == []
    rows = dicts(decisions.transform(guards.max_deletes(1)))
    assert {row["topic"] for row in rows if row["phase"] == "guard"} == {"mine", "gone"}


TOGETHER = Settings(
    path=Path("scoped.toml"),
    tables=TablesSettings(root=""),
    clusters={"main": cluster_settings("main", "127.0.0.1:1")},
    policies=PolicySettings(
        create=(
            policy("partition_budget", max=9),
            policy("replicas_per_broker", max=9),
            policy("topics_per_owner", max=2),
            policy("partitions_per_owner", max=8),
        )
    ),
)
OUTSIDE = (
    {"topic": "out.large", "owner": "a", "num_partitions": 7},
    {"topic": "out.wrong", "owner": "a", "num_partitions": 1, "state": "gone"},
    {"topic": "in_new", "owner": "b", "num_partitions": 1},
)


@pytest.mark.thorough
def test_rules_about_topics_together_count_what_is_outside(spark: SparkSession) -> None:
    """All of them, in a whole decision: a budget that only the scope used up would let each team exceed it alone."""
    new = {"topic": "in.new", "owner": "a", "num_partitions": 1, "replication_factor": 1}
    validated = manifest_rows(spark, new, *OUTSIDE).transform(manifests.validated_by(TOGETHER, None))
    within = with_inside(Scope(topics=("^in[.]",)), OF_TOPICS, None)
    wanted = replace(brought_about(validated, {}, list(Action)), inside=within)
    rules, known = building.from_settings(TOGETHER), policy_facts(spark)

    def broken(*live: Any) -> tuple[str | None, list[str]]:
        seen = Observation(
            topics=observed_rows(spark, *live),
            brokers=frame(spark, BROKERS.schema, [{"cluster": "main", "broker_id": 1}]),
            statuses={"main": ClusterStatus(cluster_id="kafka-main")},
        )
        found = dicts(validated.transform(decided(seen, wanted, None, rules, known, TOGETHER)))
        assert {row["topic"] for row in found if row["phase"] is not None} <= {"in.new"}
        (row,) = (each for each in found if each["topic"] == "in.new")
        return row["error"], [each["policy"] for each in row["violations"] or ()]

    assert broken({"topic": "out.stranger"}) == (None, [])
    live = [{name: row[name] for name in ("topic", "num_partitions")} for row in OUTSIDE]
    everything = [
        "name_collision",
        "partition_budget",
        "partitions_per_owner",
        "replicas_per_broker",
        "topics_per_owner",
    ]
    error, violations = broken(*live, {"topic": "out.stranger"})
    assert (error, sorted(violations)) == ("NAME_COLLISION", everything)


def test_rows_that_are_always_inside_stay_as_they_are(spark: SparkSession) -> None:
    rows = decision_rows(spark, {"topic": None, **REFUSED}, {"topic": "t", "owner": "b", "decision": "create"})
    within = with_inside(Scope(owners=("a",)), OF_TOPICS, None, always=rows["topic"].isNull())
    found = dicts(rows.transform(within).transform(left_outside(tuple(Action), "topic")))
    assert {row["topic"]: (row["phase"], row["decision"]) for row in found} == {
        None: ("manifest", None),
        "t": (None, "outside"),
    }


def test_the_line_about_a_scope_says_only_what_is_known() -> None:
    pending = SimpleNamespace(outside=0, drains=None)
    summary: Any = SimpleNamespace(clusters=[], decisions={"unchanged": 2}, pending=pending)
    assert scope_line(summary, "owner a") == "scope: owner a; nothing is known to be pending outside"
    summary.decisions, summary.pending.outside = {"unchanged": 0}, 1
    assert scope_line(summary, "owner nobody") == (
        "scope: owner nobody: nothing is inside; 1 topic or other resource outside the scope has pending changes; "
        "this run doesn't apply them"
    )
    pending.drains = 3
    assert scope_line(summary, "not owner a").endswith(
        "1 topic outside the scope keeps replicas on broker 3, which won't be empty"
    )


@pytest.mark.thorough
def test_actions_on_what_another_owner_declares_by_now_are_refused(spark: SparkSession) -> None:
    """A plan of one owner must not change what a load has given to another owner since."""
    create = {"run_id": "r", "cluster": "main", "resource_type": "topic", "action": "create", "manifest_version": 3}
    names = ("mine", "theirs", "nobodys")
    plans = frame(spark, plain(PLANS.schema), [{**create, "topic": name, "resource": name} for name in names])
    owners = ({"owner": " A "}, {"owner": "b"}, {})
    latest = validated_rows(spark, *({"topic": name, **owner} for name, owner in zip(names, owners, strict=True)))

    def refused(scope: Scope) -> dict[str, str]:
        rows = plans.transform(no_longer_declared(TOPICS, latest, 7, F.col("manifest_version"), scope=scope))
        return {row["resource"]: row["error_message"] for row in dicts(rows)}

    found = refused(Scope(owners=("a",)))
    assert set(found) == {"theirs", "nobodys"}
    assert found["theirs"] == (
        "the manifests at version 7 give it to b, which is outside the scope of this run (owner a); it was planned "
        "from version 3: plan again"
    )
    assert set(refused(Scope(barred=("B",)))) == {"theirs"}
    assert refused(EVERYTHING) == {}


def test_a_topic_without_a_row_or_a_known_owner_is_barred_by_the_settings(spark: SparkSession) -> None:
    """Its row's history is vacuumed; a requester of another team must not delete it. A declared one keeps its row's."""
    gone = {"decision": "delete", "before": {UNDECLARED: "first"}}
    rows = decision_rows(
        spark,
        {"topic": "a.gone", **gone},
        {"topic": "a.known", "owner": "b", **gone},
        {"topic": "a.replaced", "decision": "delete", "before": {REPLACED_BY: "a.new"}},
        {"topic": "a.declared", "decision": "create"},
        {"topic": "x.gone", **gone},
    )

    def inside(scope: Scope) -> set[str]:
        settings: Any = SimpleNamespace(owners=OWNERS)
        run: Any = SimpleNamespace(scope=scope, settings=settings, unloaded={}, prunes=None, manifest_version=7)
        within = scoping.inside(run)
        assert within is not None
        return {row["topic"] for row in dicts(rows.transform(within).where(INSIDE))}

    assert inside(Scope(barred=("A",))) == {"a.known", "a.declared", "x.gone"}
    assert inside(Scope(owners=("a",))) == {"a.gone", "a.replaced"}


def test_a_scope_names_what_was_asked_for_in_full_and_some_of_the_owners_that_it_leaves_out() -> None:
    """Two scopes that differ must not read alike; all owners but the requester's may be thousands."""
    names = tuple(f"team-{number:02}" for number in range(25))
    assert str(Scope(owners=names)) == f"owners {', '.join(names)}"
    assert str(Scope(barred=names)) == f"not owners {', '.join(names[:20])} and 5 more"
