"""Which load declared a topic: by the version that each load left, and by its time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyspark.sql import Row

from topicledger.review.history import _of_manifests

NOON = datetime(2026, 11, 24, 12)


def at(seconds: float) -> datetime:
    """As PySpark collects it: without a time zone, in this process's own."""
    return (NOON + timedelta(seconds=seconds)).replace(tzinfo=UTC).astimezone().replace(tzinfo=None)


def change(version: int, seconds: float) -> Row:
    return Row(
        _change_type="insert", _commit_version=version, _commit_timestamp=at(seconds), state="present",
        num_partitions=2, replication_factor=None, placement=None, assignments=None, configs={"a": "1"}, owner="x",
        labels={},
    )  # fmt: skip


def load(run_id: str, version: int, began: float, ended: float) -> Row:
    return Row(
        run_id=run_id, requested_by=f"{run_id}'s", started_at=at(began), finished_at=at(ended), manifest_version=version
    )


def test_a_commit_is_the_load_that_left_its_version() -> None:
    """Also where loads follow each other within the seconds by which clocks may differ."""
    loads = [load("first", 1, 0, 3), load("second", 2, 4, 7)]
    found = list(_of_manifests([change(1, 2), change(2, 6)], loads))
    assert [(each.run_id, each.requested_by, each.at) for each in found] == [
        ("first", "first's", NOON.replace(tzinfo=UTC) + timedelta(seconds=2)),
        ("second", "second's", NOON.replace(tzinfo=UTC) + timedelta(seconds=6)),
    ]
    assert found[0].details == "manifests at version 1: state present, num_partitions 2, configs a=1, owner x"


def test_commits_are_matched_with_loads_by_version_and_time() -> None:
    assert [each.run_id for each in _of_manifests([change(5, 500)], [load("early", 4, 0, 3)])] == [None]
    # Another writer's version came before the load looked which one is the latest.
    assert [each.run_id for each in _of_manifests([change(5, 2)], [load("mine", 6, 0, 3)])] == ["mine"]
    both = [load("mine", 7, 0, 3), load("theirs", 7, 0, 3)]
    assert [each.run_id for each in _of_manifests([change(5, 2)], both)] == [None]
