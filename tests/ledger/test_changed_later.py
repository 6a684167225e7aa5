"""Later changes of values that a run changed, from `plans`, `audit` and `sent_batches`, as `runs revert` uses them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from topicledger.ledger.tables import Ledger
from topicledger.model import TOPIC
from topicledger.plan.reverted import changed_by, changed_later
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
def test_an_action_that_failed_and_may_have_had_an_effect_is_a_change(ledger: Ledger) -> None:
    """Moves have many requests. Otherwise, a broker's only answer, a refusal, shows that nothing was done."""
    lost = {"outcome": "failed", "error_code": -1, "error": "NO_ANSWER", "attempt": 8, "before": None, "after": None}
    invalid = {"outcome": "failed", "error_code": 40, "error": "INVALID_CONFIG", "attempt": 1}
    cases: dict[str, tuple[str, dict[str, Any]]] = {
        "moved": ("reassign", {**invalid, "error_message": "1 of 2 partitions moved"}),
        "refused": ("reassign", {"outcome": "refused"}),
        "lost": ("alter_configs", {**lost, "error_message": "lost"}),
        "late": ("alter_configs", {**invalid, "attempt": 2, "error_message": "late"}),
        "invalid": ("alter_configs", invalid),
        "unseen": ("alter_configs", {**lost, "phase": "validate"}),
        "exists": ("create", {**invalid, "error_code": 36, "error_message": "exists"}),
        "led": ("elect_leaders", lost),
        "without room": ("create", {**lost, "error": "BUDGET_NOT_FREED", "attempt": None}),
    }
    made = []
    for topic, (action, answer) in cases.items():
        plan, audit = rows("m", topic, 1, ("a", "b"), **answer)
        made.append(({**plan, "action": action}, {**audit, "action": action}))
    ledger.append(PLANS, ledger.rows(PLANS, [plan for plan, _ in made]), app_id="plans", version=1)
    ledger.append(AUDIT, ledger.rows(AUDIT, [audit for _, audit in made]), app_id="audit", version=1)
    ledger.ensure(SENT_BATCHES)
    done = {row["topic"]: row for row in changed_by(ledger, "m", TOPIC).collect()}
    assert {topic: (row["known"], row["failed"]) for topic, row in done.items()} == {
        "moved": (True, "1 of 2 partitions moved"),
        "lost": (True, "lost"),
        "late": (True, "late"),
        "exists": (True, "exists"),
    }
    assert done["lost"]["before"] == {"flush.ms": "a"}
    assert done["lost"]["after"] == {"flush.ms": "b"}
