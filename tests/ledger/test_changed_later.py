"""Later changes of values that a run changed, from `plans`, `audit` and `sent_batches`, as `runs revert` uses them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from topicledger.ledger.tables import Ledger
from topicledger.model import TOPIC
from topicledger.plan.revert import changed_by, changed_later
from topicledger.schemas import AUDIT, PLANS, SENT_BATCHES

BEGAN = datetime(2026, 11, 25, 12, tzinfo=UTC)


def rows(run_id: str, topic: str, minute: int, change: tuple[str, str], **audit: Any) -> tuple[dict[str, Any], ...]:
    """Return an alter of flush.ms as a row of `plans` and of `audit`."""
    at = BEGAN + timedelta(minutes=minute)
    key = {"run_id": run_id, "cluster": "main", "resource_type": "topic", "resource": topic, "topic": topic}
    changed = {"before": {"flush.ms": change[0]}, "after": {"flush.ms": change[1]}}
    plan = {**key, "owner": "a", "action": "alter_configs", **changed, "batch": 0, "planned_at": at}
    done = {"phase": "apply", "outcome": "ok", "error_code": 0, "completed_at": at + timedelta(seconds=1)}
    return plan, {**key, "action": "alter_configs", **done, **audit}


@pytest.mark.thorough
def test_later_changes_are_found_whatever_the_current_value(ledger: Ledger) -> None:
    """Includes changes whose answer was lost or that may have been sent; excludes refused and earlier changes."""
    made = [
        rows("x", "back", 1, ("a", "b")),
        rows("y", "back", 2, ("b", "c")),
        rows("z", "back", 3, ("c", "b")),
        rows("x", "alone", 1, ("a", "b")),
        rows("w", "alone", 0, ("0", "a")),
        rows("y", "alone", 2, ("b", "c"), outcome="refused"),
        rows("x", "lost", 1, ("a", "b")),
        rows("y", "lost", 2, ("b", "c"), before=None, after={"flush.ms": "c"}),
        rows("x", "maybe", 1, ("a", "b")),
    ]
    (unknown, _) = rows("gone", "maybe", 2, ("b", "c"))
    plans = [*(plan for plan, _ in made), unknown]
    ledger.append(PLANS, ledger.rows(PLANS, plans), app_id="plans", version=1)
    ledger.append(AUDIT, ledger.rows(AUDIT, [audit for _, audit in made]), app_id="audit", version=1)
    sent = {"run_id": "gone", "cluster": "main", "action": "alter_configs", "batch": 0}
    ledger.append(SENT_BATCHES, ledger.rows(SENT_BATCHES, [sent]), app_id="sent", version=1)
    done = changed_by(ledger, "x", TOPIC)
    assert {row["topic"]: (row["known"], row["owner"]) for row in done.collect()} == dict.fromkeys(
        ("back", "alone", "lost", "maybe"), (True, "a")
    )
    later = changed_later(ledger, "x", done, TOPIC)
    assert sorted((row["resource"], row["run_id"], *row["touched"]) for row in later.collect()) == [
        ("back", "y", "flush.ms"),
        ("back", "z", "flush.ms"),
        ("lost", "y", "flush.ms"),
        ("maybe", "gone", "flush.ms"),
    ]


@pytest.mark.thorough
def test_a_move_that_failed_half_way_is_a_change_of_its_run(ledger: Ledger) -> None:
    """A refused one isn't, and neither is a failed alter, which the broker refused as a whole."""
    made = []
    for topic, action, outcome in (
        ("half", "reassign", "failed"),
        ("refused", "reassign", "refused"),
        ("altered", "alter_configs", "failed"),
    ):
        plan, audit = rows("m", topic, 1, ("a", "b"), outcome=outcome, error_message="1 of 2 partitions moved")
        made.append(({**plan, "action": action}, {**audit, "action": action}))
    ledger.append(PLANS, ledger.rows(PLANS, [plan for plan, _ in made]), app_id="plans", version=1)
    ledger.append(AUDIT, ledger.rows(AUDIT, [audit for _, audit in made]), app_id="audit", version=1)
    ledger.ensure(SENT_BATCHES)
    done = changed_by(ledger, "m", TOPIC).collect()
    assert [(row["topic"], row["known"], row["failed"]) for row in done] == [("half", True, "1 of 2 partitions moved")]
