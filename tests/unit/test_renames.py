"""Creates that replace a topic: the warning about what their declaration changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.unit.frames import decision_rows, manifest_rows, observed_rows, validated_rows
from topicledger.manifests.rows import validate
from topicledger.resources.topics.observe import moves
from topicledger.resources.topics.observe.moves import ObservedMoves, Unsettled, observe_unsettled
from topicledger.resources.topics.plan import renames
from topicledger.resources.topics.plan.renames import Renames, unlike_old
from topicledger.schemas import CONFIGS

SIX: dict[str, Any] = {"replication_factor": 6, "assignments": {0: [4, 5, 6, 1, 2, 3]}}

COLUMNS = (
    "num_partitions int, replication_factor int, assignments map<int,array<int>>, configs map<string,string>, "
    "_old string, _old_num_partitions int, _old_replication_factor int, _old_configs map<string,string>"
)
OLD: dict[str, Any] = {"retention.ms": "-1", "cleanup.policy": "delete"}


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ((3, 2, None, OLD), None),
        ((None, None, None, None), None),
        ((3, 2, None, {"retention.ms": " -01", "cleanup.policy": "delete , delete"}), None),
        ((2, 2, None, OLD), "partitions 3 -> 2 (keys go to other partitions)"),
        (
            (3, 1, None, {**OLD, "retention.ms": "5", "flush.ms": "1"}),
            "replication factor 2 -> 1, retention.ms -1 -> 5",
        ),
        ((None, None, {0: [1, 2], 1: [2, 1], 2: [1, 2]}, OLD), None),
        (
            (None, None, {0: [1]}, None),
            "partitions 3 -> 1 (keys go to other partitions), replication factor 2 -> 1",
        ),
    ],
)
def test_a_warning_says_what_differs_from_the_old_topic(
    spark: SparkSession, declared: tuple[Any, ...], words: str | None
) -> None:
    rows = spark.createDataFrame([(*declared, "old", 3, 2, OLD)], COLUMNS)
    (row,) = rows.select(unlike_old().alias("found")).collect()
    assert row["found"] == (None if words is None else f"declared unlike old, which it replaces: {words}")


@pytest.mark.parametrize(
    ("moving", "unknown", "errors"),
    [
        ([], {}, {"a": None, "b": None}),
        (["old"], {}, {"a": "REASSIGNMENT_IN_PROGRESS", "b": None}),
        ([], {"main": "no answer"}, {"a": "NOT_PERMITTED", "b": None}),
    ],
    ids=["nothing moves", "the old topic moves", "unknown"],
)
def test_a_topic_takes_no_count_of_replicas_from_one_that_is_being_moved(
    spark: SparkSession,
    moving: list[str],
    unknown: dict[str, str],
    errors: dict[str, str | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers count old and new replicas; a row that declares its replication factor takes none."""
    rows = [{"topic": "a", "replaces": "old"}, {"topic": "b", "replaces": "other", "replication_factor": 3}]
    validated = validated_rows(spark, *({**each, "outcome": None} for each in rows))
    seen: Any = SimpleNamespace(topics=observed_rows(spark, *({"topic": name, **SIX} for name in ("old", "other"))))
    configs = observed_rows(spark, {"topic": "old"}, {"topic": "other"}).select(
        "cluster", "topic", F.array().cast(CONFIGS).alias("configs")
    )
    found = Unsettled(
        topics=spark.createDataFrame([("main", each) for each in moving], "cluster string, topic string"),
        unknown=unknown,
    )
    asked: list[str] = []
    monkeypatch.setattr(renames, "observe_unsettled", lambda _, clusters, *__: asked.extend(clusters) or found)
    settings = SimpleNamespace(ignored_configs={}, kafka=None)
    run: Any = SimpleNamespace(spark=spark, clusters=[SimpleNamespace(name="main")], settings=settings)
    new = validated.select("cluster", "topic", "replaces", "owner", F.lit(True).alias("accepted"))
    inherited = Renames(run=run, rows=new, before=None).inherited(validated, seen, configs).collect()
    assert len(asked) == 1, "only clusters of rows that take the count are asked"
    assert {row["topic"]: row["error"] for row in inherited} == errors
    assert {row["topic"]: row["replication_factor"] for row in inherited if not row["error"]} == {
        name: 6 if name == "a" else 3 for name, error in errors.items() if error is None
    }


def test_a_topic_whose_move_ended_between_two_requests_counts_as_moving(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R4: no listing has it any more, and brokers may still have counted old and new replicas."""
    places = {"old": {0: [4, 5, 6]}, "same": {1: [2, 3], 0: [1, 2]}}
    topics = observed_rows(
        spark,
        {"topic": "old", **SIX},
        {"topic": "same", "assignments": {0: [1, 2], 1: [2, 3]}},
        {"topic": "unanswered", **SIX},
        {"topic": "hidden", "assignments": None},
    )
    later: list[Any] = []
    listed = spark.createDataFrame([("main", "listed", 0)], "cluster string, topic string, partition int")
    monkeypatch.setattr(moves, "observe_moves", lambda *_: ObservedMoves(rows=listed, unknown={"dark": "no answer"}))
    monkeypatch.setattr(moves.time, "sleep", later.append)

    def describe(*_: Any) -> Any:
        assert later == [1.0], "after what brokers may still have shown"
        rows = [("main", topic, its) for topic, its in places.items()]
        return spark.createDataFrame(rows, "cluster string, topic string, assignments map<int,array<int>>")

    monkeypatch.setattr(moves, "ask_about", describe)
    kafka: Any = None
    found = observe_unsettled(spark, [], kafka, topics)
    assert {row["topic"] for row in found.topics.collect()} == {"old", "unanswered", "listed"}
    assert found.unknown == {"dark": "no answer"}


def test_a_topic_is_not_created_without_knowing_what_it_takes_from_the_old_one(spark: SparkSession) -> None:
    """Brokers that answer an error about a topic don't say that it isn't there."""
    rows = [{"topic": "a", "replaces": "old"}, {"topic": "b", "replaces": "gone"}, {"topic": "c", "replaces": "other"}]
    validated = validated_rows(spark, *({**each, "outcome": None} for each in rows))
    answers = {"permitted": False, "unknown": "UNKNOWN_SERVER_ERROR"}
    topics = observed_rows(spark, {"topic": "old", **answers}, {"topic": "other", **answers}, {"topic": "c"})
    seen: Any = SimpleNamespace(topics=topics)
    new = validated.select("cluster", "topic", "replaces", "owner", F.lit(True).alias("accepted"))
    run: Any = SimpleNamespace(spark=spark)
    found = {
        row["topic"]: row for row in Renames(run=run, rows=new, before=None).inherited(validated, seen, None).collect()
    }
    assert {topic: row["error"] for topic, row in found.items()} == {"a": "NO_ANSWER", "b": None, "c": None}
    assert (found["a"]["phase"], found["a"]["outcome"]) == ("observe", "failed")
    assert "it replaces old, about which brokers answer UNKNOWN_SERVER_ERROR" in found["a"]["error_message"]


def test_copies_of_a_row_replace_a_topic_once(spark: SparkSession) -> None:
    """C2: with two rows, a run would create the topic twice, which brokers refuse."""
    declared = manifest_rows(spark, *[{"topic": "a", "replaces": "old"}] * 2)
    run: Any = SimpleNamespace(manifests=lambda _: declared, manifest_version=1)
    found = renames.renames(run, declared.transform(validate(["main"], None)), None)
    assert found is not None
    assert [(row["topic"], row["accepted"]) for row in found.rows.collect()] == [("a", True)]


def test_a_refused_row_of_others_does_not_stand_for_the_row_of_the_owner(spark: SparkSession) -> None:
    """Its topic comes first by name: the old topic would stay for ever, since a refused row replaces nothing."""
    rows = [("main", "orders.new", "legacy", "orders", False), ("main", "payments.new", "legacy", "payments", True)]
    new = spark.createDataFrame(rows, "cluster string, topic string, replaces string, owner string, accepted boolean")
    decisions = decision_rows(
        spark, {"topic": "legacy", "decision": "unmanaged"}, {"topic": "payments.new", "decision": "unchanged"}
    )
    run: Any = SimpleNamespace(by_manifests=False)
    found = Renames(run=run, rows=new, before=None).decided(decisions, None)
    assert {row["topic"]: row["owner"] for row in found.collect()}["legacy"] == "payments"
