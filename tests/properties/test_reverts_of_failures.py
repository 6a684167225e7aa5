"""Failed actions of a reverted run, compared with the live resources: on rows in memory."""

from __future__ import annotations

from typing import Any

from tests.properties.rows import functions as F
from tests.properties.walks.driver import functions_in_memory
from tests.properties.walks.ledger import MemoryLedger
from tests.properties.walks.world import World
from topicledger.resources.registry import KINDS
from topicledger.resources.topics.plan import revert
from topicledger.schemas import PLANS


def planned(*rows: dict[str, Any]) -> Any:
    """Return rows of `plans` in memory."""
    ledger = MemoryLedger(World())
    ledger.put(PLANS, [{"run_id": "x", "cluster": "main", **row} for row in rows])
    return ledger.read(PLANS)


def test_failed_actions_that_left_no_trace_need_nothing() -> None:
    """A topic that exists may be the run's; one with another id shows nothing about the run's delete."""
    cases = {
        "there": ("delete", "id", 1),
        "recreated": ("delete", "other", 1),
        "grown": ("add_partitions", "id", 2),
        "same": ("add_partitions", "id", 1),
        "made": ("create", "id", 1),
    }
    topics = [
        {
            "topic": topic,
            "action": action,
            "topic_id": topic_id,
            "num_partitions": count,
            "before": {"num_partitions": "1"},
        }
        for topic, (action, topic_id, count) in cases.items()
    ]
    with functions_in_memory():
        done = F.struct(F.lit("id").alias("topic_id"), F.col("action").alias("action"), F.col("before").alias("before"))
        count = F.col("num_partitions")
        for live, untouched in ((True, {"there", "same"}), (False, {"made"})):
            rows = planned(*topics).withColumns({"live": F.lit(live), "live_num_partitions": count, "_done": done})
            found = rows.withColumn("_untouched", revert._is_untouched()).collect()
            assert {row["topic"] for row in found if row["_untouched"]} == untouched


def test_limits_that_are_as_before_the_run_are_told_from_other_values() -> None:
    (quotas,) = (kind for kind in KINDS if kind.resource_type == "quota")
    now = {"done": "2", "not": "1", "other": "3"}
    changed = {"before": {"producer_byte_rate": "1"}, "after": {"producer_byte_rate": "2"}}
    actions = [
        {"resource": f"user={user}", "action": "alter_quota", **changed, "configs": {"producer_byte_rate": value}}
        for user, value in now.items()
    ]
    with functions_in_memory():
        rows = planned(*actions).withColumn("now", F.col("configs")).transform(quotas.as_rows.undo).collect()
    assert {row["resource"]: (row["stale"] is None, row["as_before"]) for row in rows} == {
        "user=done": (True, False),
        "user=not": (False, True),
        "user=other": (False, False),
    }
