"""Marks of announcements in the run's row, when the answer to their commit is lost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException

from tests.receiver import receiver
from tests.unit.announcements import REFUSED
from topicledger.config.notify import NotifySettings
from topicledger.ledger.run import Run, find_run, shard_of
from topicledger.ledger.tables import Ledger
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
