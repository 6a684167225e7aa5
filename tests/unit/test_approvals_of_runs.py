"""Approvals of runs: which run can be approved, by whom, and when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from topicledger.config.guards import GuardSettings
from topicledger.errors import GuardStopped
from topicledger.plan import approvals
from topicledger.plan.approvals import Approvals, approve


@pytest.mark.parametrize("state", ["applying", "planned"])
def test_run_that_is_applied_can_be_approved_after_its_plan_grew(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster was planned later, so the plan waits again: refused for its age, nobody could ever finish it."""
    old = datetime.now(UTC) - timedelta(days=2)
    row = {
        "run_id": "r",
        "state": state,
        "observed_at": old,
        "started_at": old,
        "requested_by": "ann",
        "arguments": {},
        "scope": None,
    }
    waiting = Approvals(run_id="r", requested_by="ann", plan_digest="of two clusters", needed=1, by=())
    monkeypatch.setattr(approvals, "find_run", lambda *_: row)
    monkeypatch.setattr(approvals, "of_run", lambda *_: waiting)
    rows: list[Any] = []
    ledger: Any = SimpleNamespace(
        root="ledger",
        ensure=lambda *_: None,
        rows=lambda _, each: each,
        append=lambda _, each, **__: rows.extend(each),
    )
    settings: Any = SimpleNamespace(guards=GuardSettings(approvals=1))
    if state == "planned":
        with pytest.raises(GuardStopped, match="nothing was sent; plan again"):
            approve(ledger, settings, "r", by="bob")
        assert rows == []
    else:
        approve(ledger, settings, "r", by="bob")
        assert [(each["by"], each["plan_digest"]) for each in rows] == [("bob", "of two clusters")]
