"""Batches of clusters side by side, and their outcomes on the way to the table."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import pytest

from topicledger.apply import dispatch
from topicledger.apply.dispatch import Context, Stop, each_cluster
from topicledger.apply.executor import Executor
from topicledger.apply.progress import Progress
from topicledger.config.settings import ReplicaSettings
from topicledger.errors import ClusterError, TableError
from topicledger.kafka import Cluster, ClusterAdmin
from topicledger.kafka.sending import StaysOpen
from topicledger.ledger.commits import Commits
from topicledger.ledger.leases import LeaseLost
from topicledger.model import Action, Outcome, Phase, PhaseResult, Target, TopicResult, Work
from topicledger.naming import Sections
from topicledger.resources.acls.names import AclSettings

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def result(target: Target, cluster: str = "main") -> PhaseResult:
    return PhaseResult(
        cluster=cluster,
        cluster_id="id",
        target=target,
        result=TopicResult(),
        phase=Phase.APPLY,
        outcome=Outcome.OK,
        requested_at=NOON,
        completed_at=NOON,
    )


def run_on(*clusters: str, commits: Commits | None = None, append_outcomes: Any = lambda some, held: None) -> Any:
    """A run on clusters of these names, without tables and settings."""
    return SimpleNamespace(
        clusters=[SimpleNamespace(name=name) for name in clusters],
        commits=commits or Commits(),
        run_id="run",
        ledger=None,
        settings=None,
        append_outcomes=append_outcomes,
    )


def one_create_on(*clusters: str) -> Work:
    """A batch with one create, of a topic with the cluster's name, for each."""
    return {name: ("id", [[Target(resource=name, action=Action.CREATE)]]) for name in clusters}


def test_a_failed_commit_ends_the_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch under way ends, and no other is begun."""
    commits, ended, sent = Commits(), list[PhaseResult](), list[str]()
    context = Context(progress=Progress(), stop=Stop())

    def fail() -> None:
        raise TableError("no space left")

    def one_cluster(*arguments: Any) -> Iterator[Sequence[PhaseResult]]:
        for number, batch in enumerate(arguments[4]):
            if context.stop.is_set():
                return
            sent.extend(target.topic for target in batch)
            if number == 0:
                commits.add(fail)
            assert context.stop.wait(10)
            yield [result(target) for target in batch]

    monkeypatch.setattr(dispatch, "_one_cluster", one_cluster)
    run = run_on("main", commits=commits, append_outcomes=lambda some, held: ended.extend(some))
    work = {"main": ("id", [[Target(resource=name, action=Action.CREATE)] for name in ("first", "second")])}
    with pytest.raises(TableError, match="no space left"):
        each_cluster(run, context, Phase.VALIDATE, work, lambda executor, batch: iter(()))
    assert sent == ["first"]
    assert [each.topic for each in ended] == ["first"]


def test_a_cluster_that_is_done_is_told_once_its_rows_are_on_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease is released then, while the other cluster continues; the caller releases the last one."""
    monkeypatch.setattr("topicledger.ledger.outcome_waves.WAVE_SECONDS", 0.0)
    context, told, recorded = Context(progress=Progress(), stop=Stop()), list[str](), list[str]()
    released = threading.Event()

    def one_cluster(_run: Any, _context: Any, settings: Any, *_: Any) -> Iterator[Sequence[PhaseResult]]:
        if settings.name == "slow":
            assert released.wait(20)
        yield [result(Target(resource=settings.name, action=Action.CREATE))]

    def ended(name: str) -> None:
        assert recorded == ["quick"]
        told.append(name)
        released.set()

    monkeypatch.setattr(dispatch, "_one_cluster", one_cluster)
    run = run_on("quick", "slow", append_outcomes=lambda some, held: recorded.extend(each.resource for each in some))
    work = one_create_on("quick", "slow")
    each_cluster(run, context, Phase.VALIDATE, work, lambda executor, batch: iter(()), ended=ended)
    assert (told, recorded) == (["quick"], ["quick", "slow"])


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ClusterError("cluster open can't be reached"), ["open"]),
        (StaysOpen("open", {("t", "create"): "no known outcome"}), ["open"]),
        (LeaseLost("another run took over cluster open"), []),
        (ValueError("a fault"), []),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_cluster_that_stays_open_is_told_unless_its_lease_is_lost(
    error: Exception, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease is released, too: nothing more is sent to it."""
    ended, waited = list[str](), threading.Event()

    def one_cluster(_run: Any, _context: Any, settings: Any, *_: Any) -> Iterator[Sequence[PhaseResult]]:
        if settings.name == "open":
            raise error
        # Until each second, the reader of results looks for clusters that are over.
        waited.wait(20 if told else 2)
        yield [result(Target(resource=settings.name, action=Action.CREATE))]

    def note(name: str) -> None:
        ended.append(name)
        waited.set()

    monkeypatch.setattr(dispatch, "_one_cluster", one_cluster)
    run, work = run_on("open", "slow"), one_create_on("open", "slow")
    context = Context(progress=Progress(), stop=Stop())
    with nullcontext() if isinstance(error, ClusterError) else pytest.raises(ValueError, match="a fault"):
        each_cluster(run, context, Phase.VALIDATE, work, lambda executor, batch: iter(()), ended=note)
    assert ended == told


def test_a_lost_lease_of_one_cluster_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster stays open, also if all of its actions were answered: what became of them isn't recorded."""

    def one_cluster(_run: Any, _context: Any, settings: Any, *_: Any) -> Iterator[Sequence[PhaseResult]]:
        yield [result(Target(resource=settings.name, action=Action.CREATE), settings.name)]

    monkeypatch.setattr(dispatch, "_one_cluster", one_cluster)
    monkeypatch.setattr(dispatch, "disowned", lambda *_: {})
    run, work = run_on("taken", "held"), one_create_on("taken", "held")
    held: Any = SimpleNamespace(lost={"taken": "another run took over cluster taken"})
    context = Context(progress=Progress(), stop=Stop())
    step = each_cluster(run, context, Phase.APPLY, work, Executor.apply, held=held)
    assert step.problems == {"taken": "another run took over cluster taken"}
    assert list(step.ok(work)) == ["held"]


@pytest.mark.parametrize("maybe_sent", [False, True])
def test_where_another_cluster_answers_only_what_was_never_sent_is_refused(
    monkeypatch: pytest.MonkeyPatch, maybe_sent: bool
) -> None:
    """Actions that may have been sent stay open: only the planned cluster can tell their outcome."""
    admin = create_autospec(ClusterAdmin, instance=True)
    admin.__enter__.return_value = admin
    admin.describe_cluster.return_value = Cluster(cluster_id="another", brokers=(), gives_topic_ids=True)
    monkeypatch.setattr(dispatch, "ClusterAdmin", lambda *_: admin)
    ended: list[PhaseResult] = []
    run: Any = SimpleNamespace(
        clusters=[SimpleNamespace(name="main")],
        settings=SimpleNamespace(
            kafka=SimpleNamespace(max_batch_records=100), replicas=ReplicaSettings(), of_kinds=Sections([AclSettings()])
        ),
        commits=Commits(),
        run_id="run",
        ledger=None,
        append_outcomes=lambda some, held: ended.extend(some),
    )
    work = {"main": ("id", [[Target(resource="a", action=Action.CREATE, maybe_sent=maybe_sent)]])}
    context = Context(progress=Progress(), stop=Stop())
    failed = each_cluster(run, context, Phase.APPLY, work, Executor.recover).problems
    assert [(each.outcome, each.error) for each in ended] == (
        [] if maybe_sent else [(Outcome.REFUSED, "CLUSTER_ID_MISMATCH")]
    )
    assert list(failed) == (["main"] if maybe_sent else [])
    assert all("planned for cluster id id, its brokers now say another" in each for each in failed.values())


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
