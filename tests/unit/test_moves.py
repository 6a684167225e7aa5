"""Moves of a plan, and how many of them may be under way."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from topicledger.config.reading import read_settings
from topicledger.model.moves import Move, UnderWay, parse_assignments
from topicledger.resources.topics.apply.moves import planned_moves


def test_assignments_are_read_as_plans_have_them() -> None:
    assert parse_assignments("0:1,2;12:3") == {0: (1, 2), 12: (3,)}
    assert parse_assignments("") == {}
    assert parse_assignments("0:;1:2") == {0: (), 1: (2,)}


def a_move(partition: int, before: tuple[int, ...], after: tuple[int, ...], size: int = 1) -> Move:
    return Move(topic="t", partition=partition, before=before, after=after, size=size)


def test_partitions_under_way_are_limited_for_senders_and_receivers() -> None:
    room = UnderWay(max_partitions=2, max_bytes=100)
    assert room.take(a_move(0, (1,), (2,)))
    assert room.take(a_move(1, (1,), (3,)))
    assert not room.take(a_move(2, (1,), (4,)))
    assert not room.take(a_move(2, (4,), (1, 4)))
    assert room.take(a_move(2, (4,), (2,)))
    assert not room.take(a_move(3, (5,), (2,)))


def test_a_partition_that_is_too_large_goes_alone() -> None:
    room = UnderWay(max_partitions=9, max_bytes=100)
    assert room.take(a_move(0, (1,), (2,), 500))
    assert not room.take(a_move(1, (1,), (3,)))
    assert room.take(a_move(1, (4,), (3,), 60))
    assert not room.take(a_move(2, (4,), (5,), 60))


def test_removed_or_reordered_replicas_need_no_room() -> None:
    room = UnderWay(max_partitions=1, max_bytes=1)
    assert all(room.take(a_move(each, (1, 2, 3), (2, 1), 50)) for each in range(20))


def test_a_move_that_only_changes_the_order_of_replicas_copies_0_bytes(spark: SparkSession) -> None:
    """Its `broker_bytes` name no broker."""
    moved = {
        "topic.order": ("0:1,2,3", {"assignments": "0:3,2,1", "bytes": "0", "broker_bytes": ""}),
        "topic.moved": ("0:1", {"assignments": "0:2", "bytes": "7", "broker_bytes": "1:0,7;2:7,0"}),
    }
    rows = [("main", "reassign", None, None, {"assignments": before}, after) for before, after in moved.values()]
    plans = spark.createDataFrame(rows, PLANNED)
    (both,) = planned_moves(plans, 7)
    assert (both.topics, both.partitions, both.bytes, both.brokers) == (2, 2, 7, {1: (0, 7), 2: (7, 0)})
    (order,) = planned_moves(plans.where("after['bytes'] = '0'"), 7)
    assert (str(order), order.brokers) == ("1 partition of 1 topic, 0 bytes, about 0 s at the throttle", {})


def test_totals_of_moves_have_those_that_an_approval_may_allow(spark: SparkSession) -> None:
    """The person who allows them must see how much they copy; other refused moves copy nothing."""
    moved = ({"assignments": "0:1;1:1"}, {"assignments": "0:2;1:2", "bytes": "7", "broker_bytes": "1:0,7;2:7,0"})
    ends: list[tuple[str | None, dict[str, int] | None]] = [(None, None), ("guard", {"moves": 4}), ("policy", None)]
    plans = spark.createDataFrame([("main", "reassign", *end, *moved) for end in ends], PLANNED)
    (both,) = planned_moves(plans, 0)
    assert (both.topics, both.partitions, both.stopped, both.brokers) == (2, 4, 2, {1: (0, 14), 2: (14, 0)})
    assert str(both) == "4 partitions of 2 topics, 14 bytes; guards stopped 2 of the partitions"
    allowed = plans.withColumn("phase", F.when(F.col("guards").isNull(), F.col("phase")))
    (both,) = planned_moves(allowed, 0)
    assert str(both) == "4 partitions of 2 topics, 14 bytes"


PLANNED = (
    "cluster string, action string, phase string, guards map<string,int>, before map<string,string>, "
    "after map<string,string>"
)


@pytest.mark.parametrize("wrong", ["throttle = -1", "max_partitions_per_broker = 0", "speed = 5", 'throttle = "fast"'])
def test_wrong_limits_are_named(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(f'[tables]\nroot = "x"\n[clusters.a]\nbootstrap_servers = ["a:1"]\n[replicas]\n{wrong}\n')
    _, problems = read_settings(path)
    assert len(problems) == 1
    assert "replicas." in problems[0]
