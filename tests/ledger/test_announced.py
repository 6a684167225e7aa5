"""Marks of announcements in the run's row, and starts that an error ends."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException

from tests.receiver import receiver
from tests.unit.announcements import REFUSED
from topicledger.cli.announcing import errors_announced
from topicledger.config.notify import NotifySettings
from topicledger.config.settings import Settings, TablesSettings
from topicledger.ledger import runs
from topicledger.ledger.leases import LeaseHeld
from topicledger.ledger.run import Run, find_run, shard_of
from topicledger.ledger.runs import Request
from topicledger.ledger.tables import Ledger
from topicledger.model import RunState
from topicledger.notify import announce
from topicledger.notify.announcement import of_run
from topicledger.schemas import RUNS, Table


@pytest.mark.thorough
def test_announcement_is_sent_once_although_the_answer_to_its_mark_is_lost(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    own: dict[str, Any] = {"run_id": "nightly", "shard": shard_of("nightly"), "state": "finished"}
    ledger.append(RUNS, ledger.rows(RUNS, [own]), app_id="nightly", version=1)
    update, tries = ledger._update, []

    def lossy(table: Table, condition: str, values: Mapping[str, str]) -> int:
        tries.append(update(table, condition, values))
        if len(tries) == 1:
            raise PySparkException("java.io.IOException: connection reset")
        return tries[-1]

    monkeypatch.setattr(ledger, "_update", lossy)
    run = cast(Run, SimpleNamespace(run_id="nightly", ledger=ledger))
    with receiver() as received:
        monkeypatch.setenv("HOOK", received.url)
        for _ in range(2):
            announce(run, [NotifySettings(url="env:HOOK")], lambda: of_run(REFUSED, "alice", datetime.now(UTC)))
    assert tries == [1, 0]
    assert len(received.posts) == 1
    row = find_run(ledger, "nightly")
    assert row is not None
    assert row["notified"].startswith("failed:")


@pytest.mark.thorough
def test_only_the_start_that_has_the_run_announces_its_error(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(
        path=Path("tests.toml"),
        tables=TablesSettings(root=ledger.root),
        clusters={},
        notify=(NotifySettings(url="env:HOOK"),),
    )
    request = Request(command="provision", run_id="twice", requested_by="bob")
    ledger.ensure(RUNS)
    first = runs.start(ledger, settings, request)
    first.commit_state(RunState.PLANNED)
    later = runs.start(ledger, settings, request)

    def ended(run: Run) -> int:
        with pytest.raises(LeaseHeld), errors_announced(run, "run"):
            raise LeaseHeld("run other is changing cluster main")
        return len(received.posts)

    with receiver() as received:
        monkeypatch.setenv("HOOK", received.url)
        assert [ended(first), ended(later), ended(later)] == [0, 1, 1]
    ((_, event),) = received.posts
    assert (event["subject"], event["data"]["event"], event["data"]["requested_by"]) == ("twice", "failed", "bob")
    assert event["data"]["result"]["error"] == "run other is changing cluster main"
