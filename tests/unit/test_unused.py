"""Which topics count as unused, by rows of `usage`: unknown never does, and too short a memory says so.

Also what deletes take from these rows: groups that had members, and since when an end offset is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.unit.frames import decision_rows, frame, policy_facts
from topicledger.model.renames import END_OFFSET
from topicledger.resources.topics.drift.usage import with_growth
from topicledger.resources.topics.plan.idle import seen_since
from topicledger.resources.topics.plan.unused import declared_without_use, no_live_groups_in_audits
from topicledger.resources.topics.policies.delete import not_written_for
from topicledger.schemas import MANIFESTS, OBSERVED, PLANS, USAGE, USAGES

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
        *[seen("young", 10), seen("young", 1)],
        # The last audit is not recent enough for what may have happened since.
        *[seen("stopped", 60), seen("stopped", 29.9)],
        # Most audits could tell.
        *[seen("once.unknown", 31), seen("once.unknown", 20, **unknown), seen("once.unknown", 9)],
        seen("once.unknown", 1),
        # Records were lost, and as many were written again.
        *[seen("back", 31, end_offset=100), seen("back", 20, end_offset=90), seen("back", 1, end_offset=100)],
        *[seen("lost", 31, end_offset=100), seen("lost", 20, end_offset=90), seen("lost", 1, end_offset=90)],
        *twice("members.unknown", {}, {"groups": [{**LIVE, "members": None}]}),
        *twice("_schemas", {}, {}),
        *twice("recreated", {}, {}),
        seen("forgotten", 40),
        *[seen("never.known", 40, **unknown), seen("never.known", 35, **unknown)],
        seen("unknown.lately", 3, **unknown),
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
    ids = {str(row["topic"]): row["topic_id"] for row in usage} | {"recreated": "another"}
    observed = [{"cluster": "main", "topic": topic, "topic_id": topic_id} for topic, topic_id in ids.items()]
    found = declared_without_use(
        frame(spark, MANIFESTS.schema, manifests),
        frame(spark, USAGE.schema, usage),
        frame(spark, USAGES.schema, usages),
        frame(spark, OBSERVED.schema, observed),
        30,
        NOW,
        ["main"],
    )
    memory = "the memory is too short: audits with usage observe it since "
    written = "records were written or lost: its end offset was"
    last = "the last audit with usage observed it at"
    assert {row["topic"]: row["used"] for row in found.collect()} == {
        "unused": None,
        "once.live": None,
        "once.unknown": None,
        "expired": None,
        "live": "groups had members on it: readers",
        "written": f"{written} 7 and became 8",
        "unknown": "its use was unknown at 2026-11-25T12:00:00Z: no ACL",
        "never.known": "no audit could tell whether it is used",
        "unknown.lately": "its use was unknown at 2026-11-23T12:00:00Z: no ACL",
        "no.offset": "its use was unknown at 2026-11-25T12:00:00Z: partitions [0] have no leader",
        "again": f"{memory}2026-11-25T12:00:00Z, and 30 days are complete at 2026-12-25T12:00:00Z",
        "no.id": "it has no topic id, so it may be another topic now",
        "named": "the table usages names billing",
        "young": f"{memory}2026-11-16T12:00:00Z, and 30 days are complete at 2026-12-16T12:00:00Z",
        "forgotten": f"{last} 2026-10-17T12:00:00Z, more than 2 days ago",
        "stopped": f"{last} 2026-10-27T14:24:00Z, more than 2 days ago",
        "back": f"{written} 100 and became 90",
        "lost": f"{written} 100 and became 90",
        "members.unknown": "groups had members on it: readers",
        "_schemas": "its name begins with _: tools keep their own data in such topics, and prune leaves them",
        "recreated": "it was recreated, or deleted, since",
        "between": "its use was unknown at 2026-11-06T12:00:00Z: no ACL",
        "never": "no audit with usage has observed it",
    }


def test_a_usage_that_can_not_be_read_keeps_the_topics_that_it_may_mean(spark: SparkSession) -> None:
    usages = [{"cluster": "mian", "topic": " unused", "consumer": "billing"}]
    topics = [{"cluster": cluster, "topic": "unused", "state": "present"} for cluster in ("main", "other")]
    found = declared_without_use(
        frame(spark, MANIFESTS.schema, topics),
        frame(spark, USAGE.schema, twice("unused", {}, {})),
        frame(spark, USAGES.schema, usages),
        frame(spark, OBSERVED.schema, []),
        30,
        NOW,
        ["main", "other"],
    )
    kept = 'a row of usages can\'t be read and may mean it: cluster mian, topic " unused", consumer billing'
    assert {row["cluster"]: row["used"] for row in found.collect()} == {"main": kept, "other": kept}


def test_deletes_spare_topics_on_which_a_recent_audit_saw_live_groups(spark: SparkSession) -> None:
    usage = [
        seen("live", 20, groups=[{**LIVE, "group": "writers"}, LIVE, EMPTY]),
        seen("live", 3, groups=[LIVE]),
        seen("live", 1, groups=[EMPTY]),
        seen("left", 31, groups=[LIVE]),
        seen("left", 1, groups=[EMPTY]),
        seen("unknown", 1, groups=None),
        seen("again", 1, topic_id="another", groups=[LIVE]),
        seen("no.id", 1, topic_id=None, groups=[LIVE]),
        seen("live", 1, cluster="other", groups=[LIVE]),
    ]
    names = ("live", "left", "unknown", "again", "no.id", "never")
    topics = [
        {"topic": each, "topic_id": None if each == "no.id" else f"id of {each}", "decision": "delete"}
        for each in names
    ]
    rule = no_live_groups_in_audits(30, frame(spark, USAGE.schema, usage))
    facts = replace(policy_facts(spark), now=NOW)
    found = {
        row["topic"]: (row["reason"], row["inputs"]) for row in rule(decision_rows(spark, *topics), facts).collect()
    }
    why = "groups had members on it in audits of the last 30 days: readers, writers, at last at 2026-11-23T12:00:00Z"
    assert found == {
        "live": (why, "groups in audits: readers, writers"),
        **dict.fromkeys(names[1:], (None, "groups in audits: none")),
    }


def test_an_end_offset_is_known_since_the_first_plan_or_audit_that_saw_it(spark: SparkSession) -> None:
    def planned(topic: str, days_ago: float, end_offset: int | None) -> dict[str, Any]:
        before = {} if end_offset is None else {END_OFFSET: str(end_offset)}
        key = {"cluster": "main", "topic": topic, "topic_id": f"id of {topic}"}
        return {**key, "planned_at": NOW - timedelta(days_ago), "before": before}

    plans = [planned("both", 5, 7), planned("both", 9, 6), planned("plans", 4, 7), planned("none", 4, None)]
    usage = [
        seen("both", 8),
        seen("both", 3),
        seen("audits", 2),
        seen("audits", 6, topic_id="another"),
        seen("audits", 9, end_offset=None),
    ]
    found = seen_since(frame(spark, PLANS.schema, plans), frame(spark, USAGE.schema, usage)).collect()
    days = {
        (row["topic_id"], row["end_offset"]): (NOW - row["seen_since"].astimezone(UTC)).total_seconds() / 86400
        for row in found
    }
    assert days == {
        ("id of both", 6): 9,
        ("id of both", 7): 8,
        ("id of plans", 7): 4,
        ("id of audits", 7): 2,
        ("another", 7): 6,
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


def test_records_with_old_timestamps_are_use(spark: SparkSession) -> None:
    """Mirrored records keep their timestamps: the end offset says that somebody wrote."""
    usage = [
        seen("mirrored", 2),
        *[seen("quiet", 40, end_offset=9), seen("quiet", 2, end_offset=9)],
        *[seen("long.ago", 40), seen("long.ago", 35, end_offset=9)],
        seen("another", 2, topic_id="of another"),
    ]
    names = ["mirrored", "quiet", "long.ago", "another", "never.seen"]
    old = NOW - timedelta(400)
    last = [{"topic": each, "end_offset": 9, "last_record_at": old} for each in names]
    facts = replace(policy_facts(spark, last_records=last), now=NOW)
    earlier = seen_since(frame(spark, PLANS.schema, []), frame(spark, USAGE.schema, usage))
    topics = [{"topic": each, "topic_id": f"id of {each}", "decision": "delete"} for each in names]
    rows = decision_rows(spark, *topics).withColumn("asked", F.lit(True))
    found = {
        row["topic"]: (row["reason"], row["unjudgeable"])
        for row in not_written_for(30, lambda: earlier)(rows, facts).collect()
    }
    why = "its end offset was 7 at 2026-11-24T12:00:00Z, now it is 9; delete it after 30 quiet days"
    assert found == {"mirrored": (why, None), **dict.fromkeys(names[1:], (None, None))}
