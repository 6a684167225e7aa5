"""Batches of clusters side by side, and their outcomes on the way to the table."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from topicledger import dispatch
from topicledger.commits import Commits
from topicledger.dispatch import Context, Stop, each_cluster
from topicledger.errors import TableError
from topicledger.model import Action, Ended, Outcome, Phase, Target
from topicledger.progress import Progress

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_what_can_not_be_recorded_ends_what_is_being_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch under way ends, and no other is begun."""
    commits, ended, sent = Commits(), list[Ended](), list[str]()
    context = Context(progress=Progress(), stop=Stop())

    def fail() -> None:
        raise TableError("no space left")

    def one_cluster(*arguments: Any) -> Iterator[Sequence[Ended]]:
        for number, batch in enumerate(arguments[4]):
            if context.stop.is_set():
                return
            sent.extend(target.topic for target in batch)
            if number == 0:
                commits.add(fail)
            assert context.stop.wait(10)
            yield [
                Ended(
                    cluster="main",
                    cluster_id="id",
                    topic=target.topic,
                    action=target.action,
                    phase=Phase.APPLY,
                    outcome=Outcome.OK,
                    requested_at=NOON,
                    completed_at=NOON,
                )
                for target in batch
            ]

    monkeypatch.setattr(dispatch, "_one_cluster", one_cluster)
    run: Any = SimpleNamespace(
        clusters=[SimpleNamespace(name="main")],
        commits=commits,
        problems=[],
        run_id="run",
        append_outcomes=ended.extend,
    )
    work = {"main": ("id", [[Target(topic=name, action=Action.CREATE)] for name in ("first", "second")])}
    with pytest.raises(TableError, match="no space left"):
        each_cluster(run, context, Phase.APPLY, work, lambda executor, batch: iter(()))
    assert sent == ["first"]
    assert [each.topic for each in ended] == ["first"]


def test_a_first_interrupt_asks_to_stop_and_the_next_one_ends_everything(caplog: pytest.LogCaptureFixture) -> None:
    stop = Stop()
    with stop.at_interrupt():
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set()
        assert "Ctrl-C again" in caplog.text
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
