"""Policies add violations to rows; they never drop one, never stop at the first rule broken, and trust nobody's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType

from tests.unit.frames import DECISIONS, by_topic, decision_rows, dicts, frame, policy_facts
from topicledger import policies
from topicledger.errors import PolicyError
from topicledger.model import Action, Refusal
from topicledger.policies import Facts, FullSight, Policy, RowRule, Rule, SetRule
from topicledger.policies.contract import ADDED, TOPICS
from topicledger.resources import building

ENDED = {"phase": "manifest", "outcome": "refused", "error": "INVALID_STATE", "error_message": "state is gone"}
NOTED = {"phase": "manifest", "outcome": "skipped", "error": "DUPLICATE_MANIFEST", "error_message": "2 identical rows"}
CREATE, DELETE = {"decision": "create"}, {"decision": "delete"}
MAPS = ("assignments", "configs", "labels", "resolved_configs", "before", "after", "alters", "guards")

Evaluated = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def facts(spark: SparkSession) -> Facts:
    return policy_facts(spark)


def told(evaluated: Evaluated) -> dict[str, list[str]]:
    """The names of the policies that each topic breaks, in their order."""
    return {topic: [each["policy"] for each in row["violations"] or ()] for (_, topic), row in evaluated.items()}


def result(row: dict[str, Any]) -> tuple[str | None, ...]:
    return row["phase"], row["outcome"], row["error"], row["error_message"]


@pytest.fixture(scope="module")
def decisions(spark: SparkSession) -> DataFrame:
    return decision_rows(
        spark,
        {"topic": "both.new", **CREATE},
        {"topic": "both_new", **CREATE},
        {"topic": "three.new.a", **CREATE},
        {"topic": "three_new.a", **CREATE},
        {"topic": "three.new_a", **CREATE},
        {"topic": "new.beside_live", **CREATE},
        {"topic": "new.beside.live", "decision": "unmanaged"},
        {"topic": "new.beside_dying", **CREATE},
        {"topic": "new.beside.dying", **DELETE},
        {"topic": "new.beside_internal", **CREATE},
        {"topic": "new.beside.internal", "decision": None, "live": True, "internal": True},
        {"topic": "both.live", "decision": "unchanged"},
        {"topic": "both_live", "decision": "drifted"},
        {"topic": "live.going", **DELETE},
        {"topic": "live_going", "decision": "unmanaged"},
        {"topic": "new.beside_refused", **CREATE},
        {"topic": "new.beside.refused", "decision": None, **ENDED},
        {"topic": "new.beside_stopped", **CREATE},
        {"topic": "new.beside.stopped", **CREATE, **ENDED},
        {"topic": "new.elsewhere", **CREATE},
        {"topic": "new_elsewhere", "cluster": "other", **CREATE},
        {"topic": "alone", **CREATE},
        {"topic": "dash-and.dot", **CREATE},
        {"topic": "dash.and.dot", **CREATE},
        {"topic": "__consumer_offsets", "internal": True, **DELETE},
        {"topic": "__mine", "internal": False, **DELETE},
        {"topic": "__transaction_state", "internal": True, "decision": "unchanged"},
        {"topic": "__share_group_state", "internal": True, **DELETE, **ENDED},
        {"topic": None, "cluster": None, "decision": None, **ENDED},
    )


@pytest.fixture(scope="module")
def evaluated(decisions: DataFrame, facts: Facts) -> Evaluated:
    return by_topic(decisions.transform(policies.evaluate(building.always(), facts)))


COLLISIONS = {
    "both.new": "both_new",
    "both_new": "both.new",
    "three.new.a": "three.new_a, three_new.a",
    "three_new.a": "three.new.a, three.new_a",
    "three.new_a": "three.new.a, three_new.a",
    "new.beside_live": "new.beside.live",
    "new.beside_dying": "new.beside.dying",
    "new.beside_internal": "new.beside.internal",
}


@pytest.mark.parametrize("topic", COLLISIONS)
def test_a_create_whose_metrics_would_collide_is_refused_and_the_others_named(evaluated: Evaluated, topic: str) -> None:
    """C16"""
    row = evaluated["main", topic]
    message = (
        f"in metric names '.' and '_' are the same, so it collides with {COLLISIONS[topic]}; "
        "choose a name that differs otherwise"
    )
    assert result(row) == ("policy", "refused", "NAME_COLLISION", message)
    assert row["violations"] == [{"policy": "name_collision", "message": message, "warns": False}]


@pytest.mark.parametrize(
    "topic",
    [
        "new.beside.live",
        "both.live",
        "both_live",
        "live.going",
        "live_going",
        "new.beside_refused",
        "new.beside_stopped",
        "new.elsewhere",
        "alone",
        "dash-and.dot",
        "dash.and.dot",
    ],
)
def test_a_topic_that_lives_or_whose_likeness_will_not_is_left_alone(evaluated: Evaluated, topic: str) -> None:
    """C16"""
    row = evaluated["main", topic]
    assert (*result(row), row["violations"]) == (None, None, None, None, None)


def test_only_topics_that_kafka_flags_as_internal_are_kept_from_deletion(evaluated: Evaluated) -> None:
    """D9"""
    row = evaluated["main", "__consumer_offsets"]
    assert result(row) == (
        "policy",
        "refused",
        "POLICY_VIOLATION",
        "__consumer_offsets is internal to Kafka and is never deleted; remove it from the manifests",
    )
    assert [violation["policy"] for violation in row["violations"]] == ["internal_topic"]
    assert evaluated["main", "__mine"]["phase"] is None
    assert evaluated["main", "__transaction_state"]["phase"] is None


def test_rows_that_ended_before_stay_as_they_were_and_none_is_dropped(
    decisions: DataFrame, evaluated: Evaluated
) -> None:
    assert len(evaluated) == decisions.count()
    for key in [("main", "__share_group_state"), ("main", "new.beside.refused"), (None, None)]:
        assert {name: evaluated[key][name] for name in ENDED} == ENDED
        assert evaluated[key]["violations"] is None


def rule(name: str, action: Action, condition: str, **more: Any) -> Policy:
    """A policy that says no to topics of a condition."""
    reason = F.when(F.expr(condition), F.concat(F.lit(f"{name} says no to "), "topic"))
    return Policy(name=name, action=action, rule=reason, **more)


def collisions(**more: Any) -> Policy:
    (policy,) = (each for each in building.always() if each.name == "name_collision")
    return Policy(name=policy.name, action=policy.action, rule=policy.rule, error=policy.error, **more)


def test_every_rule_broken_is_told_in_the_order_of_the_policies(spark: SparkSession, facts: Facts) -> None:
    """P3, P4"""
    rows = decision_rows(
        spark,
        {"topic": "a.b", **CREATE},
        {"topic": "c", **CREATE},
        {"topic": "a_b", "decision": "unchanged"},
        {"topic": "d", **DELETE},
    )
    rules = [
        rule("no a", Action.CREATE, "topic like 'a%'"),
        collisions(),
        rule("nothing", Action.CREATE, "true"),
        rule("no deletes of creates", Action.DELETE, "decision = 'create'"),
    ]
    evaluated = by_topic(rows.transform(policies.evaluate(rules, facts)))
    assert told(evaluated) == {"a.b": ["no a", "name_collision", "nothing"], "c": ["nothing"], "a_b": [], "d": []}
    row = evaluated["main", "a.b"]
    assert row["error"] == "POLICY_VIOLATION"
    assert row["error_message"] == "; ".join(each["message"] for each in row["violations"])
    assert row["error_message"].startswith("no a says no to a.b; in metric names")


def test_the_first_refusing_policy_in_order_gives_the_error(spark: SparkSession, facts: Facts) -> None:
    rows = decision_rows(spark, {"topic": "a.b", **CREATE}, {"topic": "a_b", "decision": "unchanged"})

    def errors(*rules: Policy) -> str:
        return str(by_topic(rows.transform(policies.evaluate(rules, facts)))["main", "a.b"]["error"])

    other = rule("other", Action.CREATE, "true", error=Refusal.BUDGET_NOT_FREED)
    warning = rule("warning", Action.CREATE, "true", error=Refusal.UNJUDGEABLE, mode="warn")
    assert errors(warning, collisions(), other) == "NAME_COLLISION"
    assert errors(warning, other, collisions()) == "BUDGET_NOT_FREED"


@pytest.fixture(scope="module")
def warned(spark: SparkSession, facts: Facts) -> Evaluated:
    rows = decision_rows(
        spark,
        {"topic": "both", **CREATE},
        {"topic": "warned", **CREATE},
        {"topic": "refused", **CREATE},
        {"topic": "fine", **CREATE},
    )
    rules = [
        rule("doubt", Action.CREATE, "topic in ('both', 'warned')", mode="warn"),
        rule("no", Action.CREATE, "topic in ('both', 'refused')"),
        rule("more doubt", Action.CREATE, "topic = 'both'", mode="warn"),
    ]
    return by_topic(rows.transform(policies.evaluate(rules, facts)))


def test_a_policy_that_only_warns_refuses_nothing_and_says_that_it_warns(warned: Evaluated) -> None:
    row = warned["main", "warned"]
    assert result(row) == (None, None, None, None)
    assert row["violations"] == [{"policy": "doubt", "message": "doubt says no to warned", "warns": True}]
    assert warned["main", "fine"]["violations"] is None


def test_a_refused_row_keeps_its_warning_and_the_refusals_error(warned: Evaluated) -> None:
    row = warned["main", "both"]
    assert result(row) == ("policy", "refused", "POLICY_VIOLATION", "no says no to both")
    assert row["violations"] == [
        {"policy": "doubt", "message": "doubt says no to both", "warns": True},
        {"policy": "no", "message": "no says no to both", "warns": False},
        {"policy": "more doubt", "message": "more doubt says no to both", "warns": True},
    ]
    assert result(warned["main", "refused"]) == ("policy", "refused", "POLICY_VIOLATION", "no says no to refused")


@pytest.mark.parametrize("users_own", [False, True])
def test_a_policy_evaluates_only_its_clusters_owners_and_labels(
    spark: SparkSession, facts: Facts, users_own: bool
) -> None:
    red, blue = {"colour": "red"}, {"colour": "blue"}
    rows = decision_rows(
        spark,
        {"topic": "all", "owner": "a", "labels": {**red, "tier": "1"}, **CREATE},
        {"topic": "all", "owner": "a", "labels": {**red, "tier": "1"}, "cluster": "other", **CREATE},
        {"topic": "owner", "owner": "b", "labels": blue, **CREATE},
        {"topic": "stranger", "owner": "aa", "labels": {"Colour": "red"}, **CREATE},
        {"topic": "nobody", "labels": {"colour": None}, **CREATE},
        {"topic": "delete", "owner": "a", "labels": red, **DELETE},
        {"topic": "no row", "undeclared": True, **CREATE},
    )

    def named(name: str, **more: Any) -> Policy:
        return rule(name, Action.CREATE, "true", users_own=users_own, mode="warn", **more)

    rules = [
        named("everywhere"),
        named("main", clusters=("main", "third")),
        named("owners", owners=("a", " B ")),
        named("red", labels=red),
        named("red and 1", labels={**red, "tier": "1"}),
        named("all of it", clusters=("other",), owners=("a",), labels=red),
    ]
    asked = ("main", "red and 1") if users_own else tuple(each.name for each in rules)
    evaluated = by_topic(rows.transform(policies.evaluate([each for each in rules if each.name in asked], facts)))
    found = {key: [each["policy"] for each in row["violations"] or ()] for key, row in evaluated.items()}
    expected = {
        ("main", "all"): ["everywhere", "main", "owners", "red", "red and 1"],
        ("other", "all"): ["everywhere", "owners", "red", "red and 1", "all of it"],
        ("main", "owner"): ["everywhere", "main", "owners"],
        ("main", "stranger"): ["everywhere", "main"],
        ("main", "nobody"): ["everywhere", "main"],
        ("main", "delete"): [],
        # Its labels and its owner are unknown.
        ("main", "no row"): ["everywhere", "main", "owners", "red", "red and 1"],
    }
    assert found == {key: [name for name in names if name in asked] for key, names in expected.items()}


@pytest.mark.parametrize("users_own", [False, True])
def test_unevaluable_rows_are_refused_once_that_is_final(spark: SparkSession, facts: Facts, users_own: bool) -> None:
    """C10, C11: nothing more gets known of a create once it was validated, nor ever of a delete."""
    rows = decision_rows(
        spark,
        {"topic": "planned", **CREATE},
        {"topic": "validated", "validated": True, **CREATE},
        {"topic": "planned and broken", **CREATE},
        {"topic": "validated and broken", "validated": True, **CREATE},
        {"topic": "delete", **DELETE},
        {"topic": "unknown", "validated": None, **CREATE},
    )
    unknown = RowRule(
        reason=F.when(F.col("topic").contains("broken"), F.lit("is broken")), unjudgeable=F.lit("nobody knows")
    )

    def named(name: str, action: Action) -> Policy:
        return Policy(name=name, action=action, rule=unknown, users_own=users_own)

    rules = [
        Policy(name="warns", action=Action.CREATE, rule=unknown, mode="warn"),
        named("creates", Action.CREATE),
        named("deletes", Action.DELETE),
    ]
    evaluated = by_topic(rows.transform(policies.evaluate(rules, facts)))
    found = {topic: (row["error"], row["error_message"], row["violations"]) for (_, topic), row in evaluated.items()}

    def both(message: str) -> list[dict[str, Any]]:
        return [
            {"policy": "warns", "message": message, "warns": True},
            {"policy": "creates", "message": message, "warns": False},
        ]

    assert found == {
        "planned": (None, None, None),
        "validated": ("UNJUDGEABLE", "nobody knows", both("nobody knows")),
        "planned and broken": ("POLICY_VIOLATION", "is broken", both("is broken")),
        "validated and broken": ("POLICY_VIOLATION", "is broken", both("is broken")),
        "delete": ("UNJUDGEABLE", "nobody knows", [{"policy": "deletes", "message": "nobody knows", "warns": False}]),
        "unknown": (None, None, None),
    }


def test_a_refusal_of_two_policies_has_the_error_of_the_first(spark: SparkSession, facts: Facts) -> None:
    rows = decision_rows(spark, {"topic": "a", "validated": True, **CREATE})
    unknown = Policy(
        name="unknown",
        action=Action.CREATE,
        rule=RowRule(reason=F.lit(None).cast("string"), unjudgeable=F.lit("nobody knows")),
    )
    no = rule("no", Action.CREATE, "true")
    results = [
        result(dicts(rows.transform(policies.evaluate(each, facts)))[0]) for each in ([unknown, no], [no, unknown])
    ]
    assert results == [
        ("policy", "refused", "UNJUDGEABLE", "nobody knows; no says no to a"),
        ("policy", "refused", "POLICY_VIOLATION", "no says no to a; nobody knows"),
    ]


OR_ELSE = 'or set needs = "visible" to evaluate only visible topics'


def nothing_wrong(topics: DataFrame, facts: Facts) -> DataFrame:
    return topics.withColumn("reason", F.lit(None).cast("string"))


@pytest.mark.thorough
@pytest.mark.parametrize("users_own", [False, True])
def test_a_rule_with_full_sight_refuses_if_topics_may_be_hidden(
    spark: SparkSession, users_own: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """M3: for a create it counts after validate, as for everything that can't be evaluated."""
    clusters = ("seen", "hidden", "unknown", "not asked")
    rows = decision_rows(
        spark,
        *({"cluster": cluster, "topic": "a", "validated": True, **CREATE} for cluster in clusters),
        *({"cluster": cluster, "topic": "b", **DELETE} for cluster in clusters),
        {"cluster": "hidden", "topic": "c", **CREATE},
        {"cluster": "hidden", "topic": "d", "decision": "unchanged"},
    )
    known = policy_facts(spark, unseen={"seen": 0, "hidden": 3, "unknown": "it needs a right"})

    def named(name: str, rule: Any, **more: Any) -> list[Policy]:
        return [Policy(name=name, action=action, rule=rule, users_own=users_own, **more) for action in Action]

    rules = [
        *named("by itself", FullSight(nothing_wrong)),
        *named("by the settings", nothing_wrong, needs="full", mode="warn"),
        *named("unless they say", FullSight(nothing_wrong), needs="visible"),
        *named("no need", nothing_wrong),
    ]
    evaluated = by_topic(rows.transform(policies.evaluate(rules, known)))
    hidden = f"3 topics of cluster hidden are hidden from this principal: grant it Describe on all topics, {OR_ELSE}"
    why = {
        "hidden": hidden,
        "unknown": f"it is unknown whether topics are hidden from this principal: it needs a right; {OR_ELSE}",
        "not asked": f"the cluster was not asked whether topics are hidden from this principal; {OR_ELSE}",
    }
    assert {key: result(row) for key, row in evaluated.items() if row["error"]} == {
        (cluster, topic): ("policy", "refused", "UNJUDGEABLE", message)
        for cluster, message in why.items()
        for topic in "ab"
    }
    assert evaluated["hidden", "a"]["violations"] == [
        {"policy": "by itself", "message": hidden, "warns": False},
        {"policy": "by the settings", "message": hidden, "warns": True},
    ]
    assert caplog.messages == [
        "3 topics of cluster hidden are hidden from this principal: grant it Describe on all topics"
    ]


def test_no_cluster_is_asked_what_is_hidden_where_no_rule_must_know(spark: SparkSession) -> None:
    def asked(clusters: DataFrame) -> DataFrame:
        raise AssertionError("asked")

    known = replace(policy_facts(spark), unseen_topics=asked)
    rows = decision_rows(spark, {"topic": "a", "validated": True, **CREATE})
    rules = [Policy(name="visible", action=Action.CREATE, rule=FullSight(nothing_wrong), needs="visible")]
    assert by_topic(rows.transform(policies.evaluate(rules, known)))["main", "a"]["error"] is None


def first_by_name(most: int, name: str = "", **more: Any) -> Policy:
    """Allow at most this many open creates of a cluster, by name."""
    before = Window.partitionBy("cluster").orderBy("topic").rowsBetween(Window.unboundedPreceding, -1)
    create = (F.col("decision") == "create") & F.col("open")

    def rule(topics: DataFrame, facts: Facts) -> DataFrame:
        rank = F.coalesce(F.count_if(create).over(before), F.lit(0))
        return topics.withColumn("reason", F.when(rank >= most, F.concat(F.lit("number "), rank + 1)))

    return Policy(name=name or f"first {most}", action=Action.CREATE, rule=rule, **more)


@pytest.fixture(scope="module")
def letters(spark: SparkSession) -> DataFrame:
    return decision_rows(spark, *({"topic": topic, **CREATE} for topic in "edcba"))


@pytest.mark.parametrize("users_own", [False, True])
def test_topics_that_a_rule_of_single_topics_refuses_use_nothing_up_whatever_the_order(
    letters: DataFrame, facts: Facts, users_own: bool
) -> None:
    """P3: what is refused elsewhere is still told that it wouldn't fit."""
    rules = [
        first_by_name(2, users_own=users_own),
        rule("no a", Action.CREATE, "topic = 'a'"),
        rule("no b", Action.CREATE, "topic = 'b'", users_own=users_own),
        rule("no e", Action.CREATE, "topic = 'e'"),
    ]
    evaluated = by_topic(letters.transform(policies.evaluate(rules, facts)))
    assert told(evaluated) == {"a": ["no a"], "b": ["no b"], "c": [], "d": [], "e": ["first 2", "no e"]}
    assert evaluated["main", "e"]["error_message"] == "number 3; no e says no to e"


def test_topics_with_warnings_use_up_their_budget(letters: DataFrame, facts: Facts) -> None:
    rules = [first_by_name(2), rule("no a", Action.CREATE, "topic = 'a'", mode="warn")]
    evaluated = by_topic(letters.transform(policies.evaluate(rules, facts)))
    assert told(evaluated) == {"a": ["no a"], "b": [], "c": ["first 2"], "d": ["first 2"], "e": ["first 2"]}


@pytest.mark.thorough
@pytest.mark.parametrize("users_own", [False, True])
def test_rules_of_topics_together_are_asked_in_order_and_each_sees_what_those_before_refused(
    letters: DataFrame, facts: Facts, users_own: bool
) -> None:
    """P4"""

    def evaluated(*rules: Policy) -> dict[str, list[str]]:
        return told(by_topic(letters.transform(policies.evaluate(rules, facts))))

    one, two = first_by_name(1, users_own=users_own), first_by_name(2, users_own=users_own)
    # c is the third of those that are open when `first 2` is asked first, and else the second: b was refused before.
    assert evaluated(two, one) == {
        "a": [],
        "b": ["first 1"],
        "c": ["first 2", "first 1"],
        "d": ["first 2", "first 1"],
        "e": ["first 2", "first 1"],
    }
    assert evaluated(one, two) == {"a": [], **{topic: ["first 1"] for topic in "bcde"}}


def needing_room(**more: Any) -> Policy:
    """Refuses c, and lets all but a wait for room."""

    def rule(topics: DataFrame, facts: Facts) -> DataFrame:
        return topics.withColumns(
            {
                "reason": F.when(F.col("topic") == "c", F.lit("no room")),
                "needs_freed": F.when(F.col("topic") != "b", F.col("topic") != "a"),
            }
        )

    return Policy(name="room", action=Action.CREATE, rule=rule, **more)


@pytest.mark.parametrize("users_own", [False, True])
def test_a_create_waits_for_room_unless_it_is_refused_or_only_warned_of(
    letters: DataFrame, facts: Facts, users_own: bool
) -> None:
    rows = letters.withColumn("waits", F.col("topic") == "a")
    no_d = rule("no d", Action.CREATE, "topic = 'd'")

    def waiting(*rules: Policy) -> set[str]:
        return {row["topic"] for row in rows.transform(policies.evaluate(rules, facts)).where("waits").collect()}

    assert waiting(needing_room(users_own=users_own), no_d) == {"a", "e"}
    assert waiting(needing_room(users_own=users_own, mode="warn"), no_d) == {"a"}


@pytest.mark.thorough
def test_policies_leave_columns_and_untouched_rows_as_they_are(spark: SparkSession, facts: Facts) -> None:
    rows = decision_rows(spark, {"topic": "a", **CREATE}, {"topic": "b", **DELETE}, {"topic": "c"})
    evaluated = rows.transform(policies.evaluate([*building.always(), first_by_name(5), echo()], facts))
    assert evaluated.schema == rows.schema
    assert_df_equality(evaluated.drop(*MAPS), rows.drop(*MAPS), ignore_row_order=True)


def test_without_policies_rows_are_handed_on(spark: SparkSession, facts: Facts) -> None:
    rows = decision_rows(spark, {"topic": "a", **CREATE})
    assert rows.transform(policies.evaluate([], facts)) is rows


def test_evaluating_again_keeps_what_was_told_before_and_does_not_ask_about_what_it_ended(
    spark: SparkSession, facts: Facts
) -> None:
    """Deletes are evaluated first, and creates once it is known which deletes will be sent."""
    rows = decision_rows(
        spark, {"topic": "warned", **DELETE}, {"topic": "refused", **DELETE}, {"topic": "create", **CREATE}
    )
    deletes = [
        rule("doubt", Action.DELETE, "topic = 'warned'", mode="warn"),
        rule("no", Action.DELETE, "topic = 'refused'"),
    ]
    once = rows.transform(policies.evaluate(deletes, facts))
    twice = by_topic(
        once.transform(policies.evaluate([rule("never", Action.DELETE, "topic <> 'warned'"), first_by_name(0)], facts))
    )
    assert told(twice) == {"warned": ["doubt"], "refused": ["no"], "create": ["first 0"]}
    assert twice["main", "refused"]["error_message"] == "no says no to refused"
    assert twice["main", "warned"]["phase"] is None


@pytest.mark.parametrize("users_own", [False, True])
def test_a_row_that_notes_a_copy_stays_beside_the_one_that_counts(
    spark: SparkSession, facts: Facts, users_own: bool
) -> None:
    """C2"""
    rows = decision_rows(
        spark,
        {"topic": "a", **CREATE},
        {"topic": "a", "decision": None, **NOTED},
        {"topic": "b", **CREATE},
        {"topic": "b", "decision": None, **NOTED},
    )
    rules = [first_by_name(1, users_own=users_own), rule("no", Action.CREATE, "topic = 'b'", users_own=users_own)]
    evaluated = dicts(rows.transform(policies.evaluate(rules, facts)))
    assert sorted(
        (row["topic"], row["outcome"], len(row["violations"] or ())) for row in evaluated if row["phase"]
    ) == [
        ("a", "skipped", 0),
        ("b", "refused", 2),
        ("b", "skipped", 0),
    ]
    assert [row["topic"] for row in evaluated if not row["phase"]] == ["a"]


@pytest.mark.thorough
@pytest.mark.parametrize("users_own", [False, True])
def test_nulls_are_evaluated_in_every_column(spark: SparkSession, facts: Facts, users_own: bool) -> None:
    key = {"cluster": "main"}
    rows = frame(
        spark,
        DECISIONS,
        [
            {**key, "topic": "a", **CREATE},
            {**key, "topic": "b", **DELETE},
            {**key, "topic": "c"},
            {**key, **ENDED},
            {"topic": "d", **ENDED},
            {**ENDED},
            {**ENDED},
        ],
    )
    rules = [
        *building.always(),
        rule("all", Action.CREATE, "true", users_own=users_own),
        rule("unknown", Action.DELETE, "owner = 'x'", users_own=users_own, labels={"a": "b"}, owners=("x",)),
        first_by_name(0, users_own=users_own),
    ]
    evaluated = dicts(rows.transform(policies.evaluate(rules, facts)))
    assert len(evaluated) == 7
    assert {row["topic"]: row["violations"] and len(row["violations"]) for row in evaluated} == {
        "a": 2,
        "b": None,
        "c": None,
        "d": None,
        None: None,
    }


def test_verdicts_have_each_policys_inputs_and_answer(spark: SparkSession, facts: Facts) -> None:
    rows = decision_rows(
        spark,
        {"topic": "create", "owner": "me", **CREATE},
        {"topic": "delete", **DELETE},
        {"topic": "ended", **CREATE, **ENDED},
        {"topic": "validated", "validated": True, **CREATE},
    )
    seen = RowRule(
        reason=F.when(F.col("topic") == "create", F.lit("no")),
        unjudgeable=F.lit("nobody knows"),
        inputs=F.concat(F.lit("topic "), "topic"),
    )
    rules = [
        first_by_name(1),
        Policy(name="seen", action=Action.CREATE, rule=seen, mode="warn", owners=("me",)),
        Policy(name="own", action=Action.CREATE, rule=seen, users_own=True),
        Policy(name="deletes", action=Action.DELETE, rule=seen),
    ]
    found = rows.transform(policies.verdicts(rules, facts))
    assert found.columns == [*rows.columns, "verdicts"]
    verdicts = {row["topic"]: row["verdicts"] for row in dicts(found)}
    assert [each["policy"] for each in verdicts["create"]] == ["first 1", "seen", "own", "deletes"]
    assert verdicts["create"][0] == {
        "policy": "first 1",
        "action": "create",
        "mode": "refuse",
        "asked": True,
        "reason": None,
        "unjudgeable": None,
        "inputs": None,
    }
    assert verdicts["create"][1] == {
        "policy": "seen",
        "action": "create",
        "mode": "warn",
        "asked": True,
        "reason": "no",
        "unjudgeable": None,
        "inputs": "topic create",
    }
    asked = {topic: [each["asked"] for each in of_topic] for topic, of_topic in verdicts.items()}
    assert asked == {
        "create": [True, True, True, False],
        "delete": [False, False, False, True],
        "ended": [False, False, False, False],
        "validated": [True, False, True, False],
    }
    assert [each["unjudgeable"] for each in verdicts["validated"]][2:] == ["nobody knows", "nobody knows"]
    assert [each["inputs"] for each in verdicts["validated"]] == [None, *["topic validated"] * 3]


def own(given: Rule, name: str = "house.rules:mine") -> Policy:
    return Policy(name=name, action=Action.CREATE, rule=given, users_own=True)


def echo() -> Policy:
    return own(lambda topics, facts: topics.withColumn("reason", F.lit(None).cast("string")))


def adding(**columns: Any) -> SetRule:
    """A rule that finds nothing wrong, and adds columns."""
    return lambda topics, facts: topics.withColumns({"reason": F.lit(None).cast("string"), **columns})


def failing(topics: DataFrame, facts: Facts) -> DataFrame:
    raise KeyError("tier\n1")


def exiting(topics: DataFrame, facts: Facts) -> DataFrame:
    raise SystemExit(3)


def fails_when_run(topic: str) -> str:
    raise ValueError(f"no tier of {topic}\nis known")


def in_python(topics: DataFrame, facts: Facts) -> DataFrame:
    return topics.withColumn("reason", F.udf(lambda topic: fails_when_run(topic), StringType())("topic"))


BROKEN: dict[str, tuple[Callable[[], Rule], str]] = {
    "raises": (lambda: failing, r"failed: KeyError: 'tier\n1'"),
    "exits": (lambda: exiting, "failed: SystemExit: 3"),
    "takes other arguments": (
        lambda: lambda topics: topics,  # type: ignore[misc, return-value]
        "<lambda>() takes 1 positional argument but 2 were given",
    ),
    "returns nothing": (
        lambda: lambda topics, facts: None,  # type: ignore[return-value]
        "returned NoneType, not a DataFrame",
    ),
    "drops a row": (
        lambda: lambda topics, facts: topics.withColumn("reason", F.lit("no")).where("topic <> 'a'"),
        "must return the rows it was given, each once: a of main (dropped)",
    ),
    "adds a row": (
        lambda: lambda topics, facts: topics.union(topics.where("topic = 'b'")).withColumn("reason", F.lit("no")),
        "must return the rows it was given, each once: b of main (added)",
    ),
    "renames topics": (
        lambda: (
            lambda topics, facts: topics.withColumns({"topic": F.concat("topic", F.lit("!")), "reason": F.lit("no")})
        ),
        # The first three; a long list helps nobody.
        "must return the rows it was given, each once: a of main (dropped), a! of main (added), b of main (dropped)",
    ),
    "has no reason": (lambda: lambda topics, facts: topics, "the returned DataFrame has no column reason"),
    "loses columns": (
        lambda: lambda topics, facts: topics.withColumn("reason", F.lit("no")).drop("open", "owner"),
        "the returned DataFrame has no column owner; has no column open",
    ),
    "adds a column": (
        lambda: adding(severity=F.lit(1)),
        "the returned DataFrame has an unknown column severity",
    ),
    "has reasons that are numbers": (
        lambda: lambda topics, facts: topics.withColumn("reason", F.lit(None).cast("int")),
        "the returned DataFrame has reason as int, not string",
    ),
    "has a condition for a reason": (
        lambda: F.col("num_partitions") > 3,
        "the returned DataFrame has reason as boolean, not string",
    ),
    "has other columns of a wrong type": (
        lambda: adding(needs_freed=F.lit("yes"), unjudgeable=F.lit(1), inputs=F.array(F.lit("a"))),
        "the returned DataFrame has unjudgeable as int, not string; has needs_freed as string, not boolean; "
        "has inputs as array<string>, not string",
    ),
    "asks for a column that is not there": (
        lambda: RowRule(reason=F.col("partitions").cast("string")),
        "failed: [UNRESOLVED_COLUMN.WITH_SUGGESTION]",
    ),
    "fails when it is run": (lambda: F.raise_error(F.lit("no such tier")).cast("string"), "no such tier"),
    "divides by zero": (
        lambda: (F.col("num_partitions") / F.lit(0)).cast("string"),
        "failed: [DIVIDE_BY_ZERO] Division by zero",
    ),
}


@pytest.fixture(scope="module")
def few(spark: SparkSession) -> DataFrame:
    return decision_rows(
        spark, {"topic": "a", "num_partitions": 1, **CREATE}, {"topic": "b", **CREATE}, {"topic": "c"}, {**ENDED}
    ).localCheckpoint()


@pytest.mark.parametrize("broken", BROKEN)
def test_a_policy_of_ones_own_that_is_broken_is_an_error_that_names_it(
    few: DataFrame, facts: Facts, broken: str
) -> None:
    """P4"""
    make, message = BROKEN[broken]
    with pytest.raises(PolicyError) as caught:
        few.transform(policies.evaluate([own(make(), "house.rules:broken")], facts)).collect()
    told = str(caught.value)
    assert told.startswith("policy house.rules:broken")
    assert message in told
    assert "\n" not in told
    assert "Traceback" not in told


@pytest.mark.thorough
def test_an_executors_error_is_reported_in_its_own_words(few: DataFrame, facts: Facts) -> None:
    with pytest.raises(PolicyError, match=r"^policy mine failed: ValueError: no tier of [abc]\\nis known$"):
        few.transform(policies.evaluate([own(in_python, "mine")], facts))


def test_a_users_own_policy_sees_topics_once_and_contract_columns_only(spark: SparkSession, facts: Facts) -> None:
    seen: list[DataFrame] = []

    def looking(topics: DataFrame, given: Facts) -> DataFrame:
        assert given is facts
        seen.append(topics)
        return topics.withColumn("reason", F.lit(None).cast("string"))

    rows = decision_rows(
        spark,
        {"topic": "create", **CREATE},
        {"topic": "create", "decision": None, **NOTED},
        {"topic": "ended", **CREATE, **ENDED},
        {"topic": "refused", **CREATE},
        {"topic": "unmanaged", "decision": "unmanaged"},
        {"topic": "internal", "decision": None, "live": True, "internal": True},
        {"cluster": None, "topic": "nowhere", **ENDED},
        {"topic": None, **ENDED},
    )
    rows.transform(policies.evaluate([rule("no", Action.CREATE, "topic = 'refused'"), own(looking)], facts)).collect()
    (topics,) = seen
    assert tuple(topics.columns) == TOPICS
    # Rows that another policy refused are evaluated, too, so that all problems are reported (P3).
    assert sorted((row["topic"], row["asked"], row["open"]) for row in topics.collect()) == [
        ("create", True, True),
        ("ended", False, False),
        ("internal", False, False),
        ("refused", True, False),
        ("unmanaged", False, False),
    ]


def test_only_permitted_columns_of_a_users_own_policy_count(few: DataFrame, facts: Facts) -> None:
    changed = {
        "topic_id": F.lit("another"),
        "decision": F.lit("delete"),
        "num_partitions": F.lit(99).cast(IntegerType()),
        "configs": F.create_map(F.lit("cleanup.policy"), F.lit("delete")),
        "live": F.lit(True),
        "open": F.lit(False),
        "validated": F.lit("yes"),
    }
    tampering = own(lambda topics, facts: topics.withColumns({"reason": F.lit(None).cast("string"), **changed}))
    evaluated = few.transform(policies.evaluate([tampering, first_by_name(1)], facts))
    without = few.transform(policies.evaluate([first_by_name(1)], facts))
    assert_df_equality(evaluated.drop(*MAPS), without.drop(*MAPS), ignore_row_order=True)
    assert evaluated.where("configs is not null").count() == 0


def test_a_policy_of_ones_own_may_shuffle_rows_and_columns(few: DataFrame, facts: Facts) -> None:
    def shuffled(topics: DataFrame, facts: Facts) -> DataFrame:
        rows = topics.withColumns(
            {
                "reason": F.when(F.col("topic") == "a", F.lit("not a")),
                "unjudgeable": F.lit("who knows"),
                "needs_freed": F.col("topic") == "b",
                "inputs": F.lit("all of it"),
            }
        )
        return rows.select(*sorted(rows.columns, reverse=True)).repartition(5).orderBy(F.desc("topic"))

    evaluated = by_topic(few.transform(policies.evaluate([own(shuffled)], facts)))
    assert told(evaluated) == {"a": ["house.rules:mine"], "b": [], "c": [], None: []}
    assert {topic for (_, topic), row in evaluated.items() if row["waits"]} == {"b"}
    assert set(ADDED).isdisjoint(evaluated["main", "a"])
