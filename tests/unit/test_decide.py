"""Declared and live topics become one decision per (cluster, topic)."""

from __future__ import annotations

from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType

from tests.unit.frames import by_topic, decision_rows, dicts, observed_rows, validated_rows
from topicledger.model import TopicInfo
from topicledger.observe.topics import ClusterStatus
from topicledger.phases import DECIDED
from topicledger.resources import registry
from topicledger.resources.topics.actions.delete import shape
from topicledger.resources.topics.plan.decide import decide, without_ignored

LOOKS = {
    "main": ClusterStatus(cluster_id="kafka-main"),
    "it's": ClusterStatus(cluster_id="kafka-two"),
    "dark": ClusterStatus(error="dark can't be reached"),
}
LIVE = {"num_partitions": 2, "replication_factor": 2, "assignments": {0: [1, 2], 1: [2, 1]}}
REFUSED = {"phase": "manifest", "outcome": "refused", "error": "INVALID_STATE", "error_message": "state is gone"}

# topic -> what is declared, what lives (None: nothing), the decision
CASES: dict[str, tuple[dict[str, Any] | None, dict[str, Any] | None, str | None]] = {
    "present.missing": ({}, None, "create"),
    "present.live": ({}, LIVE, "unchanged"),
    "present.live.as.counted": ({"num_partitions": 2, "replication_factor": 2}, LIVE, "unchanged"),
    "present.live.as.assigned": ({"assignments": {1: [2, 1], 0: [1, 2]}}, LIVE, "unchanged"),
    "present.live.other.configs": ({"configs": {"retention.ms": "1"}}, LIVE, "unchanged"),
    "drifted.partitions": ({"num_partitions": 3}, LIVE, "drifted"),
    "drifted.replicas": ({"num_partitions": 2, "replication_factor": 3}, LIVE, "drifted"),
    "drifted.leader": ({"assignments": {0: [2, 1], 1: [2, 1]}}, LIVE, "drifted"),
    "drifted.assigned.partitions": ({"assignments": {0: [1, 2]}}, LIVE, "drifted"),
    "absent.missing": ({"state": "absent"}, None, "unchanged"),
    "absent.live": ({"state": "absent"}, LIVE, "delete"),
    "absent.internal": ({"state": "absent"}, {"internal": True}, "delete"),
    "undeclared": (None, LIVE, "unmanaged"),
    "undeclared.internal": (None, {"internal": True}, None),
    "present.internal": ({}, {"internal": True}, "unchanged"),
    "present.not.permitted": ({}, {"permitted": False, "topic_id": None}, "create"),
    "absent.not.permitted": ({"state": "absent"}, {"permitted": False, "topic_id": None}, None),
    "present.untold": ({}, {"permitted": False, "unknown": "UNKNOWN_SERVER_ERROR", "topic_id": None}, None),
    "absent.untold": ({"state": "absent"}, {"permitted": False, "unknown": "ERROR_9", "topic_id": None}, None),
    "undeclared.untold": (None, {"permitted": False, "unknown": "ERROR_9", "topic_id": None}, None),
    "refused.missing": ({"state": "gone", **REFUSED}, None, None),
    "refused.live": ({"state": "gone", **REFUSED}, LIVE, None),
    "refused.null.state.live": ({"state": None, **REFUSED}, LIVE, None),
}


@pytest.fixture(scope="module")
def decided(spark: SparkSession) -> dict[tuple[str, str], dict[str, Any]]:
    declared = validated_rows(
        spark,
        *({"topic": topic, **fields} for topic, (fields, _, _) in CASES.items() if fields is not None),
        {"topic": "absent.live", "cluster": "it's"},
        {"topic": "a", "cluster": "dark"},
        {"topic": "b", "cluster": "dark", "state": "absent"},
        {"topic": "c", "cluster": "dark", **REFUSED},
        {"topic": "a", "cluster": "nobody's", **REFUSED},
        {"topic": None, **REFUSED},
        {"topic": "a", "cluster": None, **REFUSED},
    )
    observed = observed_rows(
        spark,
        *({"topic": topic, **fields} for topic, (_, fields, _) in CASES.items() if fields is not None),
        # The cluster was lost after its topics were listed.
        {"topic": "a", "cluster": "dark"},
        {"topic": "undeclared", "cluster": "dark"},
    )
    return by_topic(declared.transform(decide(observed, LOOKS)))


@pytest.mark.parametrize("topic", CASES)
def test_each_topic_of_either_side_gets_its_decision(
    decided: dict[tuple[str, str], dict[str, Any]], topic: str
) -> None:
    """D2: absent and no such topic is unchanged."""
    declared, live, decision = CASES[topic]
    row = decided["main", topic]
    assert row["decision"] == decision
    untold = live is not None and "unknown" in live
    assert row["live"] == (None if untold else live is not None and live.get("permitted", True))
    assert row["internal"] == (live is not None and live.get("internal", False))
    assert row["cluster_id"] == "kafka-main"
    if decision is not None or declared is None:
        assert (row["phase"], row["outcome"], row["error"]) == (None, None, None)


def test_no_topic_is_lost_or_doubled(decided: dict[tuple[str, str], dict[str, Any]]) -> None:
    assert len(decided) == len(CASES) + 7


def test_a_topic_that_may_not_be_described_is_not_deleted_but_may_be_tried(
    decided: dict[tuple[str, str], dict[str, Any]],
) -> None:
    """M3"""
    refused, tried = decided["main", "absent.not.permitted"], decided["main", "present.not.permitted"]
    assert (refused["phase"], refused["outcome"], refused["error"]) == ("observe", "refused", "NOT_PERMITTED")
    assert "grant it Describe" in refused["error_message"]
    assert tried["phase"] is None


def test_a_refused_row_stays_as_it_was_and_its_live_topic_is_not_unmanaged(
    decided: dict[tuple[str, str], dict[str, Any]],
) -> None:
    for topic in ("refused.live", "refused.missing", "refused.null.state.live", None):
        row = decided["main", topic]
        assert {name: row[name] for name in REFUSED} == REFUSED
        assert row["decision"] is None
    for cluster in ("nobody's", None):
        assert (decided[cluster, "a"]["error"], decided[cluster, "a"]["cluster_id"]) == ("INVALID_STATE", None)


def test_an_unreachable_cluster_fails_only_its_declared_topics(
    decided: dict[tuple[str, str], dict[str, Any]],
) -> None:
    for topic in ("a", "b"):
        row = decided["dark", topic]
        assert (row["phase"], row["outcome"], row["error"]) == ("observe", "failed", "CLUSTER_UNREACHABLE")
        assert (row["error_message"], row["cluster_id"]) == ("dark can't be reached", None)
    assert decided["dark", "c"]["error"] == "INVALID_STATE"
    assert ("dark", "undeclared") not in decided, "it would be deleted if runs delete undeclared topics"
    failed = [key for key, row in decided.items() if row["outcome"] == "failed" and key[0] != "main"]
    assert sorted(failed) == [("dark", "a"), ("dark", "b")]


def test_topics_about_which_brokers_answer_an_error_fail_alone(
    decided: dict[tuple[str, str], dict[str, Any]],
) -> None:
    rows = [decided["main", topic] for topic in ("present.untold", "absent.untold")]
    assert [(row["phase"], row["outcome"], row["error"]) for row in rows] == [("observe", "failed", "NO_ANSWER")] * 2
    assert "brokers answer UNKNOWN_SERVER_ERROR about the topic, so it is unknown whether" in rows[0]["error_message"]
    failed = [topic for (cluster, topic), row in decided.items() if row["outcome"] == "failed" and cluster == "main"]
    assert sorted(failed) == ["absent.untold", "present.untold"]


def test_the_same_name_in_two_clusters_is_two_topics(decided: dict[tuple[str, str], dict[str, Any]]) -> None:
    here, there = decided["main", "absent.live"], decided["it's", "absent.live"]
    assert (here["decision"], here["cluster_id"], here["topic_id"]) == ("delete", "kafka-main", "id of absent.live")
    assert (there["decision"], there["cluster_id"], there["topic_id"]) == ("create", "kafka-two", None)


def test_decisions_have_the_columns_that_policies_and_guards_rely_on(spark: SparkSession) -> None:
    declared = validated_rows(spark, {"topic": "a", "num_partitions": 2, "owner": "team"}, {"topic": "b"})
    observed = observed_rows(spark, {"topic": "b", "topic_id": "id"}, {"topic": "c", "topic_id": "id.c"})
    decisions = declared.transform(decide(observed, LOOKS))
    expected = decision_rows(
        spark,
        {"topic": "a", "decision": "create", "num_partitions": 2, "owner": "team"},
        {"topic": "b", "decision": "unchanged", "topic_id": "id"},
        {"topic": "c", "decision": "unmanaged", "topic_id": "id.c"},
    )
    assert decisions.columns == DECIDED.names
    maps = ("assignments", "configs", "labels", "resolved_configs", "before", "after", "alters", "guards")
    # Columns' comments come along with the columns of tables.
    assert_df_equality(
        decisions.drop(*maps),
        expected.drop(*maps),
        ignore_row_order=True,
        ignore_nullable=True,
        ignore_metadata=True,
    )


def test_a_topic_that_two_identical_rows_declare_lives_once(spark: SparkSession) -> None:
    """C2: the row that notes the copy stands beside the one that counts."""
    noted = {
        "error": "DUPLICATE_MANIFEST",
        "error_message": "2 identical rows",
        "phase": "manifest",
        "outcome": "skipped",
    }
    declared = validated_rows(spark, {"topic": "a"}, {"topic": "a", **noted})
    decisions = dicts(declared.transform(decide(observed_rows(spark, {"topic": "a", "num_partitions": 4}), LOOKS)))
    lives = [(row["phase"], row["live"], row["live_num_partitions"]) for row in decisions]
    assert sorted(lives, key=str) == [("manifest", False, None), (None, True, 4)]


def test_clusters_that_were_all_out_of_reach_need_no_observed_topics(spark: SparkSession) -> None:
    declared = validated_rows(spark, {"topic": "a", "cluster": "dark"})
    rows = by_topic(declared.transform(decide(observed_rows(spark), {"dark": LOOKS["dark"]})))
    assert rows["dark", "a"]["error"] == "CLUSTER_UNREACHABLE"
    assert by_topic(validated_rows(spark).transform(decide(observed_rows(spark), {}))) == {}


def test_decide_writes_shapes_of_topics_as_the_driver_does(spark: SparkSession) -> None:
    """D7: where topics have no ids, the two are compared before the delete is sent."""
    assignments = {10: [1], 2: [3, 1], 0: [1, 2]}
    observed = observed_rows(
        spark, {"topic": "gone", "num_partitions": 3, "replication_factor": 2, "assignments": assignments}
    )
    rows = validated_rows(spark, {"topic": "gone", "state": "absent"}).transform(decide(observed, LOOKS)).collect()
    described = TopicInfo(topic="gone", assignments={number: tuple(ids) for number, ids in assignments.items()})
    assert [row["before"] for row in rows] == [dict(shape(described))]
    assert rows[0]["before"]["assignments"] == "0:1,2;2:3,1;10:1"


def test_a_run_of_other_kinds_only_needs_no_action_on_topics(spark: SparkSession) -> None:
    found = registry.found(decision_rows(spark, {"topic": "a", "decision": "create"}), ["acl_add"])
    assert found.schema["action"].dataType == StringType()
    assert [row["action"] for row in found.collect()] == [None]


def test_ignored_topics_count_as_nothing_unless_they_are_declared(spark: SparkSession) -> None:
    rows = decision_rows(
        spark,
        {"topic": "app-changelog", "decision": "unmanaged"},
        {"topic": "app-changelog-2", "decision": "unmanaged"},
        {"topic": "declared-changelog", "decision": "unchanged"},
    )
    found = by_topic(rows.transform(without_ignored(["-changelog$"])))
    assert {topic: row["decision"] for (_, topic), row in found.items()} == {
        "app-changelog": None,
        "app-changelog-2": "unmanaged",
        "declared-changelog": "unchanged",
    }
