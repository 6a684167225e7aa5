"""Policies add violations to rows; they never drop one and never stop at the first rule broken."""

from __future__ import annotations

from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.unit.frames import by_topic, decision_rows
from topicledger import policies
from topicledger.model import Action, Refusal
from topicledger.policies import Policy

ENDED = {"phase": "manifest", "outcome": "refused", "error": "INVALID_STATE", "error_message": "state is gone"}
CREATE, DELETE = {"decision": "create"}, {"decision": "delete"}


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
def judged(decisions: DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    return by_topic(decisions.transform(policies.judge(policies.always())))


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
def test_a_create_whose_metrics_would_collide_is_refused_and_the_others_named(
    judged: dict[tuple[str, str], dict[str, Any]], topic: str
) -> None:
    """C16"""
    row = judged["main", topic]
    message = (
        f"in metric names '.' and '_' are the same, so it collides with {COLLISIONS[topic]}; "
        "choose a name that differs otherwise"
    )
    assert (row["phase"], row["outcome"], row["error"]) == ("policy", "refused", "NAME_COLLISION")
    assert row["error_message"] == message
    assert row["violations"] == [{"policy": "name_collision", "message": message}]


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
def test_a_topic_that_lives_or_whose_likeness_will_not_is_left_alone(
    judged: dict[tuple[str, str], dict[str, Any]], topic: str
) -> None:
    """C16"""
    row = judged["main", topic]
    assert (row["phase"], row["outcome"], row["error"], row["violations"]) == (None, None, None, None)


def test_only_topics_that_kafka_flags_as_internal_are_kept_from_deletion(
    judged: dict[tuple[str, str], dict[str, Any]],
) -> None:
    """D9"""
    row = judged["main", "__consumer_offsets"]
    assert (row["phase"], row["outcome"], row["error"]) == ("policy", "refused", "POLICY_VIOLATION")
    assert [violation["policy"] for violation in row["violations"]] == ["internal_topic"]
    assert row["error_message"].startswith("__consumer_offsets is internal to Kafka and is never deleted")
    assert judged["main", "__mine"]["phase"] is None
    assert judged["main", "__transaction_state"]["phase"] is None


def test_rows_that_ended_before_stay_as_they_were_and_none_is_dropped(
    decisions: DataFrame, judged: dict[tuple[str, str], dict[str, Any]]
) -> None:
    assert len(judged) == decisions.count()
    for key in [("main", "__share_group_state"), ("main", "new.beside.refused"), (None, None)]:
        assert {name: judged[key][name] for name in ENDED} == ENDED
        assert judged[key]["violations"] is None


def _rule(name: str, action: Action, condition: str, error: Refusal = Refusal.POLICY_VIOLATION) -> Policy:
    reason = F.when(F.expr(condition), F.concat(F.lit(f"{name} says no to "), "topic"))
    return Policy(name=name, action=action, error=error, reasons=lambda rows: rows.withColumn("reason", reason))


def test_every_rule_broken_is_told_in_the_order_of_the_policies(spark: SparkSession) -> None:
    """P3, P4"""
    decisions = decision_rows(
        spark,
        {"topic": "a.b", **CREATE},
        {"topic": "a_b", **CREATE},
        {"topic": "c", **CREATE},
        {"topic": "d", **DELETE},
    )
    rules = [
        _rule("no a", Action.CREATE, "topic like 'a%'"),
        policies.name_collision(),
        _rule("nothing", Action.CREATE, "true"),
        _rule("no deletes of creates", Action.DELETE, "decision = 'create'"),
    ]
    rows = by_topic(decisions.transform(policies.judge(rules)))
    told = {topic: [each["policy"] for each in row["violations"] or ()] for (_, topic), row in rows.items()}
    assert told == {
        "a.b": ["no a", "name_collision", "nothing"],
        "a_b": ["no a", "name_collision", "nothing"],
        "c": ["nothing"],
        "d": [],
    }
    row = rows["main", "a.b"]
    assert row["error"] == "POLICY_VIOLATION"
    assert row["error_message"] == "; ".join(each["message"] for each in row["violations"])
    assert row["error_message"].startswith("no a says no to a.b; in metric names")


def test_policies_leave_columns_and_untouched_rows_as_they_are(spark: SparkSession) -> None:
    decisions = decision_rows(spark, {"topic": "a", **CREATE}, {"topic": "b", **DELETE}, {"topic": "c"})
    judged = decisions.transform(policies.judge(policies.always()))
    maps = ("assignments", "configs", "labels")
    assert judged.columns == decisions.columns
    assert_df_equality(judged.drop(*maps), decisions.drop(*maps), ignore_row_order=True, ignore_nullable=True)
