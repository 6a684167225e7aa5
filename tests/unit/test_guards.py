"""Guards stop what a run as a whole may not do."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.unit.frames import by_topic, decision_rows, policy_facts
from topicledger import policies
from topicledger.plan import guards

ENDED = {"phase": "manifest", "outcome": "refused", "error": "INVALID_STATE", "error_message": "state is gone"}


@pytest.fixture(scope="module")
def decisions(spark: SparkSession) -> DataFrame:
    """`main` deletes three topics, one of them internal; `other` two; `third` none."""
    return decision_rows(
        spark,
        {"topic": "a", "decision": "delete"},
        {"topic": "b", "decision": "delete"},
        {"topic": "__offsets", "decision": "delete", "internal": True},
        {"topic": "new", "decision": "create"},
        {"topic": "kept", "decision": "unchanged"},
        {"topic": "refused", "decision": None, **ENDED},
        {"topic": "foreign", "decision": "unmanaged"},
        {"topic": "__internal", "decision": None, "internal": True},
        {"cluster": "other", "cluster_id": "kafka-other", "topic": "a", "decision": "delete"},
        {"cluster": "other", "cluster_id": "kafka-other", "topic": "b", "decision": "delete"},
        {"cluster": "other", "cluster_id": "kafka-other", "topic": "c", "decision": "delete"},
        {"cluster": "third", "cluster_id": None, "topic": "new", "decision": "create"},
    )


def _stopped(rows: DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    return {key: row for key, row in by_topic(rows).items() if row["phase"] == "guard"}


@pytest.mark.parametrize(
    ("most", "clusters"), [(0, {"main", "other"}), (1, {"main", "other"}), (2, {"other"}), (3, set())]
)
def test_all_deletes_of_a_cluster_are_stopped_where_there_are_too_many(
    spark: SparkSession, decisions: DataFrame, most: int, clusters: set[str]
) -> None:
    """The delete that a policy refused doesn't count (D9)."""
    judge = policies.judge(policies.always(), policy_facts(spark))
    judged = decisions.transform(judge).transform(guards.max_deletes(most))
    stopped = _stopped(judged)
    expected = {("main", "a"), ("main", "b"), ("other", "a"), ("other", "b"), ("other", "c")}
    assert set(stopped) == {key for key in expected if key[0] in clusters}
    assert {(row["outcome"], row["error"]) for row in stopped.values()} <= {("refused", "MAX_DELETES_EXCEEDED")}
    for (cluster, _), row in stopped.items():
        count = 2 if cluster == "main" else 3
        assert row["error_message"] == (
            f"planned deletes of this cluster: {count}, guards.max_deletes is {most}; raise it if they are meant"
        )


def test_creates_and_all_other_rows_go_on_where_deletes_are_stopped(decisions: DataFrame) -> None:
    before, after = by_topic(decisions), by_topic(decisions.transform(guards.max_deletes(0)))
    deletes = {key for key, row in before.items() if row["decision"] == "delete"}
    assert {key for key in before if before[key] != after[key]} == deletes
    assert len(after) == len(before)
