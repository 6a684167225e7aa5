"""Decisions become rows of `plans`, in batches that a broker takes."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from tests.unit.frames import DECISIONS, by_topic, decision_rows, dicts, frame, moves_of
from topicledger.model import Action, ReplicaAction, Target
from topicledger.plan.batches import NEEDS_SOMETHING, batched, of_topics, planned, records
from topicledger.resources import registry
from topicledger.resources.acls.names import AclAction
from topicledger.resources.group_configs.names import GroupConfigAction
from topicledger.resources.quotas.names import QuotaAction
from topicledger.schemas import ACTIONS

MOST_PARTITIONS = 2**31 - 1

COUNTED: dict[str, tuple[dict[str, Any], int]] = {
    "nothing.said": ({}, 2),
    "partitions": ({"num_partitions": 12}, 13),
    "partitions.and.configs": ({"num_partitions": 3, "configs": {"a": "1", "b": "2"}}, 6),
    "configs": ({"configs": {"a": "1"}}, 3),
    "no.configs": ({"configs": {}}, 2),
    "assigned": ({"assignments": {0: [1, 2], 1: [2, 1]}, "configs": {"a": "1"}}, 4),
    "most.partitions": ({"num_partitions": MOST_PARTITIONS}, MOST_PARTITIONS + 1),
    "grows": (
        {"action": "add_partitions", "before": {"num_partitions": "3"}, "after": {"num_partitions": "10"}},
        7,
    ),
    "alters": ({"action": "alter_configs", "before": {"a": "1", "b": "1"}, "after": {"b": "2", "c": "3"}}, 3),
    "resets": ({"action": "alter_configs", "before": {"a": "1"}, "after": {}}, 1),
    "moves": ({"action": "reassign", "before": {"assignments": "0:1;7:1"}, "after": {"assignments": "0:2;7:2"}}, 2),
    "elects": ({"action": "elect_leaders", "before": {"leaders": "0:1;7:1"}, "after": {"partitions": "0,7"}}, 2),
}


def test_records_are_the_topic_its_partitions_and_its_configs(spark: SparkSession) -> None:
    """C15. The driver counts a target the same way."""
    moved = {"moves": moves_of(COUNTED["moves"][0]["before"], COUNTED["moves"][0]["after"])}
    given = (
        {"topic": topic, "action": "create", **fields, **(moved if topic == "moves" else {})}
        for topic, (fields, _) in COUNTED.items()
    )
    rows = frame(spark, StructType([*ACTIONS, DECISIONS["moves"]]), given)
    found = {
        row["topic"]: row["records"]
        for row in dicts(rows.transform(of_topics).select("topic", records().alias("records")))
    }
    assert found == {topic: count for topic, (_, count) in COUNTED.items()}
    for topic, (fields, count) in COUNTED.items():
        target = Target(**{"resource": topic, "action": Action.CREATE, **fields})
        assert registry.ACTIONS[target.action].cost.records(target) == count


SIZED = StructType(
    [
        *(StructField(name, StringType()) for name in ("cluster", "action", "topic", "phase")),
        StructField("num_partitions", IntegerType()),
        *(DECISIONS[name] for name in ("assignments", "configs", "before", "after", "waits", "moves")),
    ]
)


def _random_cases(most: int) -> list[dict[str, Any]]:
    """Forty clusters, each a case of its own: few and many topics, light, heavy and mixed ones, some that ended."""
    random_ = random.Random(most)
    rows = []
    for case in range(40):
        heaviest = random_.choice([1, max(1, most // 4), most, 2 * most])
        for number in range(random_.choice([1, 2, 3, 10, 25])):
            rows.append(
                {
                    "cluster": f"case {case}",
                    "action": random_.choice(["create", "delete"]),
                    "topic": f"t{random_.randrange(10**6)}.{number}",
                    "phase": "policy" if random_.random() < 0.1 else None,
                    "num_partitions": random_.choice([None, random_.randint(1, heaviest)]),
                    "configs": {str(key): "" for key in range(random_.choice([0, 0, 1, 3]))},
                    "waits": False,
                }
            )
    return rows


@pytest.mark.parametrize("most", [1, 2, 3, 10, 101])
def test_no_batch_is_too_large_and_batches_are_numbered_without_gaps(spark: SparkSession, most: int) -> None:
    """C15"""
    rows = frame(spark, SIZED, _random_cases(most)).transform(of_topics).withColumn("records", records())
    groups: dict[tuple[str, str], dict[int, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in dicts(rows.transform(batched(most))):
        if row["phase"] is None:
            groups[row["cluster"], row["action"]][row["batch"]].append(row)
        else:
            assert row["batch"] is None
    for key, batches in groups.items():
        assert sorted(batches) == list(range(len(batches))), key
        for batch in batches.values():
            assert len(batch) == 1 or sum(row["records"] for row in batch) <= most, key
        shared = {number: batch for number, batch in batches.items() if batch[0]["records"] <= max(1, most // 2)}
        assert sorted(shared) == list(range(len(shared))), "topics that share batches go first"
        for number, batch in batches.items():
            assert number in shared or len(batch) == 1, "a heavy topic goes alone"
        names = [sorted(row["topic"] for row in batches[number]) for number in sorted(shared)]
        assert all(before[-1] < after[0] for before, after in pairwise(names)), "by name"
        full = [sum(row["records"] for row in batches[number]) for number in sorted(shared)]
        assert all(before + after > most // 2 for before, after in pairwise(full[:-1])), "no needless batches"


def test_topics_that_are_all_too_heavy_to_share_are_numbered_from_zero(spark: SparkSession) -> None:
    rows = frame(
        spark,
        SIZED,
        (
            {"cluster": "main", "action": "create", "topic": topic, "num_partitions": 9, "waits": False}
            for topic in "abc"
        ),
    )
    assert {row["topic"]: row["batch"] for row in dicts(rows.transform(of_topics).transform(batched(10)))} == {
        "a": 0,
        "b": 1,
        "c": 2,
    }


def test_waiting_creates_come_in_separate_batches_at_the_end(spark: SparkSession) -> None:
    rows = [
        {"cluster": cluster, "action": "create", "topic": topic, "num_partitions": count, "waits": topic in waiting}
        for cluster, waiting in (("some", "abe"), ("all", "abcde"), ("none", ""))
        for topic, count in {"a": 1, "b": 9, "c": 1, "d": 9, "e": 1}.items()
    ]
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for row in dicts(frame(spark, SIZED, rows).transform(of_topics).transform(batched(10))):
        found[row["cluster"]][row["topic"]] = row["batch"]
    assert found["some"] == {"c": 0, "d": 1, "a": 2, "e": 2, "b": 3}
    assert found["all"] == found["none"] == {"a": 0, "c": 0, "e": 0, "b": 1, "d": 2}


def test_no_number_of_partitions_breaks_the_plan_for_the_others(spark: SparkSession) -> None:
    rows = frame(
        spark,
        SIZED,
        (
            {"cluster": "main", "action": "create", "topic": topic, "num_partitions": count, "waits": False}
            for topic, count in {"a": 1, "b": MOST_PARTITIONS, "c": MOST_PARTITIONS, "d": 1}.items()
        ),
    )
    found = {row["topic"]: row["batch"] for row in dicts(rows.transform(of_topics).transform(batched(8_000)))}
    assert found == {"a": 0, "b": 1, "c": 2, "d": 0}


def test_a_plan_has_only_actions_and_refusals(spark: SparkSession) -> None:
    refused = {"phase": "policy", "outcome": "refused", "error": "NAME_COLLISION", "error_message": "collides"}
    unreached = {"phase": "observe", "outcome": "failed", "error": "CLUSTER_UNREACHABLE", "error_message": "dark"}
    now = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    decisions = decision_rows(
        spark,
        {"topic": "new", "decision": "create", "topic_id": "no id of a topic to be", "num_partitions": 2},
        {"topic": "old", "decision": "delete", "topic_id": "id.old"},
        {"topic": "new.refused", "decision": "create", **refused},
        {"topic": "old.refused", "decision": "delete", "topic_id": "id.old.refused", **refused},
        {"topic": "unreached", "cluster_id": None, "decision": None, **unreached},
        {"topic": "unreached.live", "decision": None, "topic_id": "id.live", **unreached},
        {"topic": "same", "decision": "unchanged", "topic_id": "id"},
        {"topic": "drifted", "decision": "drifted", "topic_id": "id"},
        {"topic": "foreign", "decision": "unmanaged", "topic_id": "id"},
        {"topic": "__internal", "decision": None, "internal": True, "topic_id": "id"},
    )
    plan = (
        decisions.transform(registry.found)
        .where(NEEDS_SOMETHING)
        .transform(of_topics)
        .transform(planned("run-1", 7, now, 100))
    )
    every = {
        "run_id": "run-1",
        "cluster": "main",
        "cluster_id": "kafka-main",
        "manifest_version": 7,
        "planned_at": now,
    }
    rows: list[dict[str, Any]] = [
        {"topic": "new", "action": "create", "num_partitions": 2, "batch": 0},
        {"topic": "old", "action": "delete", "topic_id": "id.old", "batch": 0},
        {"topic": "new.refused", "action": "create", **refused},
        {"topic": "old.refused", "action": "delete", "topic_id": "id.old.refused", **refused},
        {"topic": "unreached", "cluster_id": None, **unreached},
        {"topic": "unreached.live", **unreached},
    ]
    about = [{"resource_type": "topic", "resource": row["topic"]} for row in rows]
    expected = frame(spark, ACTIONS, [{**every, **row, **more} for row, more in zip(rows, about, strict=True)])
    assert plan.columns == ACTIONS.names
    maps = ("assignments", "configs", "before", "after", "guards")
    assert_df_equality(
        plan.drop(*maps), expected.drop(*maps), ignore_row_order=True, ignore_nullable=True, ignore_metadata=True
    )


def test_a_plan_keeps_assignments_and_configs_as_declared(spark: SparkSession) -> None:
    fields = {"assignments": {0: [2, 1], 1: [1, 2]}, "configs": {"cleanup.policy": "compact,delete", "b": ""}}
    decisions = decision_rows(spark, {"topic": "new", "decision": "create", **fields})
    plan = (
        decisions.transform(registry.found)
        .where(NEEDS_SOMETHING)
        .transform(of_topics)
        .transform(planned("run-1", None, datetime.now(UTC), 100))
    )
    row = by_topic(plan.withColumn("planned_at", F.lit(None)))["main", "new"]
    assert {name: row[name] for name in fields} == fields
    assert row["manifest_version"] is None


def test_kinds_of_actions_have_places_of_their_own() -> None:
    """Deletes first: they make room for creates."""
    orders = [kind.order for kind in registry.in_order()]
    assert orders == sorted(set(orders))
    names = [kind.name for kind in registry.in_order()]
    assert names == [*Action, *ReplicaAction, *AclAction, *QuotaAction, *GroupConfigAction]
    assert all(registry.ACTIONS[kind.name] is kind for kind in registry.in_order())
