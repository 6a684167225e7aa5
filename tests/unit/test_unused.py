"""Which topics count as unused, by rows of `usage`: unknown never does, and too short a memory says so."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from tests.unit.frames import frame
from topicledger.drift.usage import with_growth
from topicledger.plan.unused import declared_without_use
from topicledger.schemas import MANIFESTS, USAGE, USAGES

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
LIVE = {"group": "readers", "state": "Stable", "members": 1, "lag": 0}
EMPTY = {**LIVE, "group": "gone", "state": "Empty", "members": 0}


def seen(topic: str, days_ago: float, **values: Any) -> dict[str, Any]:
    row = {"cluster": "main", "topic": topic, "topic_id": f"id of {topic}", "observed_at": NOW - timedelta(days_ago)}
    return {**row, "end_offset": 7, "bytes": 100, "groups": [], "reasons": {}, **values}


def twice(topic: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row from before the last 30 days, and one from yesterday."""
    return [seen(topic, 31, **before), seen(topic, 1, **after)]


def test_a_topic_is_unused_only_if_every_audit_says_so(spark: SparkSession) -> None:
    unknown = {"groups": None, "reasons": {"groups": "no ACL"}}
    usage = [
        *twice("unused", {}, {"groups": [EMPTY]}),
        *twice("once.live", {"groups": [LIVE]}, {}),
        *twice("live", {}, {"groups": [LIVE, EMPTY]}),
        *twice("written", {}, {"end_offset": 8}),
        *twice("unknown", {}, unknown),
        *twice("no.offset", {}, {"end_offset": None, "reasons": {"end_offset": "partitions [0] have no leader"}}),
        *twice("again", {"topic_id": "another"}, {}),
        *twice("no.id", {"topic_id": None}, {"topic_id": None}),
        *twice("named", {}, {}),
        *twice("expired", {}, {}),
        *twice("absent", {}, {}),
        seen("young", 10),
        seen("forgotten", 40),
        *[seen("between", 31), seen("between", 20, **unknown), seen("between", 1)],
    ]
    names = {str(row["topic"]) for row in usage} | {"never"}
    manifests = [
        {"cluster": "main", "topic": each, "state": "absent" if each == "absent" else "present", "owner": "payments"}
        for each in names
    ]
    usages = [
        {"cluster": "main", "topic": "named", "consumer": "billing"},
        {"cluster": "main", "topic": "expired", "consumer": "billing", "valid_until": NOW - timedelta(1)},
    ]
    found = declared_without_use(
        frame(spark, MANIFESTS.schema, manifests),
        frame(spark, USAGE.schema, usage),
        frame(spark, USAGES.schema, usages),
        30,
        NOW,
    )
    memory = "the memory is too short: audits with usage observe it since "
    assert {row["topic"]: row["used"] for row in found.collect()} == {
        "unused": None,
        "once.live": None,
        "expired": None,
        "live": "groups had members on it: readers",
        "written": "records were written: its end offset was 7 and is 8",
        "unknown": "its use was unknown at 2026-11-25T12:00:00Z: no ACL",
        "no.offset": "its use was unknown at 2026-11-25T12:00:00Z: partitions [0] have no leader",
        "again": f"{memory}2026-11-25T12:00:00Z, and 30 days are complete at 2026-12-25T12:00:00Z",
        "no.id": "it has no topic id, so it may be another topic now",
        "named": "the table usages names billing",
        "young": f"{memory}2026-11-16T12:00:00Z, and 30 days are complete at 2026-12-16T12:00:00Z",
        "forgotten": "no audit with usage observed it in the last 30 days",
        "between": "its use was unknown at 2026-11-06T12:00:00Z: no ACL",
        "never": "no audit with usage has observed it",
    }


def test_growth_counts_from_the_last_known_row_of_the_same_topic(spark: SparkSession) -> None:
    earlier = [
        seen("grown", 3, end_offset=5, bytes=40),
        seen("grown", 2, end_offset=None),
        seen("grown", 9, end_offset=1, bytes=1),
        seen("lost", 3, end_offset=9, bytes=None),
        seen("again", 3, topic_id="another"),
    ]
    rows = [seen(each, 0) for each in ("grown", "lost", "again")] + [seen("no.id", 0, topic_id=None)]
    found = frame(spark, USAGE.schema, rows).drop("since", "records_since", "bytes_since")
    grown = {row["topic"]: row for row in found.transform(with_growth(frame(spark, USAGE.schema, earlier))).collect()}
    values = {topic: (row["records_since"], row["bytes_since"]) for topic, row in grown.items()}
    assert values == {"grown": (2, 60), "lost": (None, None), "again": (None, None), "no.id": (None, None)}
    assert grown["grown"]["since"].astimezone(UTC) == NOW - timedelta(3)
    assert grown["grown"]["reasons"] == {}
    assert grown["lost"]["reasons"] == {
        "records_since": "the end offset was 9 at the previous audit and is 7: records were lost",
        "bytes_since": "the previous audit couldn't read the topic's bytes",
    }
    assert set(grown["again"]["reasons"]) == set(grown["no.id"]["reasons"]) == {"since", "records_since", "bytes_since"}
