"""Runs that are stopped while replicas move, or lose a lease: what later starts do, on clusters in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.properties.walks import driver
from tests.properties.walks.driver import TurnQueue, installed
from tests.properties.walks.estate import EAST, WEST, Estate
from tests.properties.walks.history import Abandon, Start, Walk
from tests.properties.walks.ledger import MemoryLeases
from tests.properties.walks.world import Event, Pending, To
from topicledger import pipeline
from topicledger.apply import dispatch, stages
from topicledger.apply.dispatch import Context, Stopped
from topicledger.apply.executor import Executor
from topicledger.apply.values import Applied
from topicledger.errors import ClusterError
from topicledger.ledger import leases
from topicledger.ledger.run import Run
from topicledger.model import PhaseResult, Target
from topicledger.schemas import AUDIT

SLOW, STOP = Event("replicas are slow"), Event("stop", "", 8, True)


@pytest.fixture(autouse=True)
def _in_memory() -> Iterator[None]:
    """Longer than `monkeypatch`, which would otherwise put the walk's functions back, for all later tests."""
    with installed():
        yield


@contextmanager
def stopped_while_it_moves(appends: str = "step") -> Iterator[Walk]:
    """A walk on which a run was stopped that has moves under way; the clusters are as the run left them."""
    walk = Walk(Estate(appends=appends), Counter())
    step(walk, Start("moves"), SLOW, STOP)
    assert walk.world.is_moving()
    yield walk


def step(walk: Walk, command: Start | Abandon, *events: Event) -> None:
    """One start of a run, or the end of one, and what happens meanwhile."""
    walk.world.events = [*map(Pending, events)]
    walk._do(command)


def now_stop(run: Run, context: Context, *_: Any) -> Any:
    """A step in which the run is asked to stop."""
    context.stop.set()
    raise Stopped(f"run {run.run_id} was stopped")


@pytest.mark.parametrize("phase", ["validate", "verify"])
def test_a_resumed_run_that_is_stopped_outside_of_apply_cancels(phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """--cancel; before it has a lease, and after it has released those that it had."""
    with stopped_while_it_moves() as walk:
        monkeypatch.setattr(pipeline if phase == "validate" else stages, phase, now_stop)
        if phase == "verify":
            monkeypatch.setattr(stages, "apply", lambda *_: Applied(actions={}, answers={}))
        step(walk, Start("moves", cancel=True))
        assert isinstance(walk._last_end, Stopped)
        assert not walk.world.is_moving()
        assert "CANCELLED" in {row["error"] for row in walk.ledger.rows_of(AUDIT)}
        assert [each.throttles() for each in walk.world.clusters.values()] == [{}, {}]


@pytest.mark.parametrize("held", [EAST, WEST])
def test_a_stop_in_a_later_round_cancels_moves_of_earlier_ones(held: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """--wait --cancel: the leases of the earlier round's clusters are released by then, and are taken again."""
    takes: list[list[str]] = []

    def one_first(_ledger: Any, run_id: str, clusters: Mapping[str, str], **_: object) -> MemoryLeases:
        named = {id_: name for id_, name in clusters.items() if takes or name == held}
        takes.append(sorted(named.values()))
        return MemoryLeases(driver.STAGE.world, run_id, named, {})

    with stopped_while_it_moves() as walk:
        monkeypatch.setattr(leases, "take", one_first)
        monkeypatch.setattr(stages, "send", now_stop)
        step(walk, Start("moves", cancel=True, wait=True))
        assert isinstance(walk._last_end, Stopped)
        assert takes[0] == [held]
        assert not walk.world.is_moving()
        assert [each.throttles() for each in walk.world.clusters.values()] == [{}, {}]


@pytest.mark.parametrize("free", [EAST, WEST])
def test_an_abandoned_run_cancels_on_a_free_cluster_while_another_is_busy(
    free: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """runs abandon --cancel, with moves in the east: it waits for a cluster that another run is changing, and cancels
    there as well, but first on the free one."""
    moving: list[list[str]] = []
    with stopped_while_it_moves() as walk:
        clusters = walk.world.clusters
        busy = {name: f"cluster {name} is being changed by run other" for name in clusters.keys() - {free}}

        def free_first(_ledger: Any, run_id: str, asked: Mapping[str, str], **_: object) -> MemoryLeases:
            named = {id_: name for id_, name in asked.items() if moving or name == free}
            moving.append([name for name in (EAST, WEST) if clusters[name].moved_by_us()])
            return MemoryLeases(driver.STAGE.world, run_id, named, {} if len(moving) > 1 else busy)

        monkeypatch.setattr(leases, "take", free_first)
        step(walk, Abandon("moves", cancel=True))
        assert moving == [[EAST], [*busy.keys() - {WEST}]], "before each of the two leases is taken"
        assert not walk.world.is_moving()


def test_without_cancel_a_stop_outside_of_apply_leaves_moves_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with stopped_while_it_moves() as walk:
        monkeypatch.setattr(pipeline, "validate", now_stop)
        step(walk, Start("moves"))
        assert walk.world.is_moving()


@pytest.mark.parametrize(("kind", "to"), [("moves", To.MOVES), ("topics", To.OTHERS)])
def test_a_lease_is_kept_while_a_lost_request_may_arrive(kind: str, to: To) -> None:
    """R2: until it expires, no other run changes the cluster, or removes throttles of moves that may still begin."""
    walk = Walk(Estate(), Counter())
    step(walk, Start(kind), Event("lost, late", to=to), Event("stop"))
    assert isinstance(walk._last_end, Stopped)
    assert [each.cluster for each in walk.world.in_flight] == [EAST]
    assert (walk.world.holder(EAST), walk.world.holder(WEST)) == (f"{kind}-1", None)
    step(walk, Start("topics" if kind == "moves" else "moves"))
    assert walk.world.is_moving() == bool(walk.world.clusters[EAST].throttles()) == (kind == "moves")
    walk.walk([])


@pytest.mark.parametrize("command", [Abandon("moves"), Start("moves", cancel=True)], ids=["abandoned", "stopped"])
def test_a_throttle_stays_while_a_request_of_a_killed_driver_may_arrive(command: Start | Abandon) -> None:
    """R2: the dead driver's lease is free at once for its run, but its request may still begin a move."""
    walk = Walk(Estate(), Counter())
    step(walk, Start("moves"), Event("crash, late", to=To.MOVES))
    assert [each.cluster for each in walk.world.in_flight] == [EAST]
    step(walk, command, Event("stop"))
    walk.walk([])


class Watched(MemoryLeases):
    """Notes whose leases were taken, and released together."""

    taken: list[str]
    released: list[list[str]]

    def release_some(self, names: Collection[str]) -> None:
        if names:
            self.released.append(sorted(names))
        super().release_some(names)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> type[Watched]:
    """Leases from here on, as `installed` has them."""
    Watched.taken, Watched.released = [], []
    return Watched


def take(_ledger: Any, run_id: str, clusters: Mapping[str, str], **_: object) -> MemoryLeases:
    Watched.taken += clusters.values()
    return Watched(driver.STAGE.world, run_id, clusters, {})


def test_a_run_with_nothing_to_do_takes_leases_only_for_throttles(
    watched: type[Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    with stopped_while_it_moves() as walk:
        step(walk, Start("topics"))
        assert walk.world.is_moving()
        monkeypatch.setattr(leases, "take", take)
        step(walk, Start("topics"))
        assert watched.taken == []
        assert walk.world.clusters[EAST].throttles()
        walk.elsewhere(Event("replicas arrive"))
        step(walk, Start("topics"))
        assert watched.taken == [EAST]
        assert [each.throttles() for each in walk.world.clusters.values()] == [{}, {}]


def test_a_resumed_run_releases_a_cluster_that_has_finished(
    watched: type[Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its throttles are gone by then, also those that the earlier start left; the last one is released at the end."""
    with stopped_while_it_moves(appends="row") as walk:
        monkeypatch.setattr(leases, "take", take)
        left_set: list[Mapping[Any, str]] = []
        release_some = Watched.release_some

        def noted(held: Watched, names: Collection[str]) -> None:
            left_set.extend(walk.world.clusters[name].throttles() for name in names)
            release_some(held, names)

        monkeypatch.setattr(Watched, "release_some", noted)
        walk.elsewhere(Event("replicas arrive"))
        step(walk, Start("moves"))
        assert sorted(watched.released) == [[EAST], [WEST]], "one after the other"
        assert left_set == [{}, {}]
        assert walk.state_of("moves") == "finished"


def test_throttles_that_another_run_left_since_the_start_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run looks for them when it starts, and again if another run held its clusters' leases since."""
    with stopped_while_it_moves() as walk:
        walk.elsewhere(Event("replicas arrive"))
        monkeypatch.setattr(pipeline, "clusters_left", lambda _: {})
        step(walk, Start("topics"), Event("contended"))
        assert [each.throttles() for each in walk.world.clusters.values()] == [{}, {}]


class Impatient(TurnQueue):
    """Times out once before each result, as a queue does while a cluster takes long."""

    waited = False

    def get(self, timeout: float | None = None) -> Any:
        self.waited = not self.waited
        if self.waited:
            raise KeyError
        return super().get(timeout)


def test_a_cluster_that_stays_open_is_released_while_another_moves(
    watched: type[Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run may change it meanwhile. --cancel takes its lease again, and ends its moves, too."""
    answers = Executor.apply

    def lost_in_the_west(executor: Executor, batch: Sequence[Target]) -> Iterator[PhaseResult]:
        waits = executor.wait

        def wait(seconds: float) -> None:
            if executor.cluster == WEST:
                raise ClusterError("cluster west doesn't answer")
            TurnQueue().put("the other's turn")
            waits(seconds)

        monkeypatch.setattr(executor, "wait", wait)
        return answers(executor, batch)

    walk = Walk(Estate(appends="row"), Counter())
    monkeypatch.setattr(leases, "take", take)
    monkeypatch.setattr(Executor, "apply", lost_in_the_west)
    monkeypatch.setattr(dispatch.queue, "SimpleQueue", Impatient)
    step(walk, Start("moves", cancel=True), SLOW, replace(STOP, after=16))
    assert isinstance(walk._last_end, Stopped)
    assert watched.released[0] == [WEST], "before the moves in the east are over"
    assert sorted(watched.taken) == [EAST, WEST, WEST]
    ended = {row["resource"]: row["error"] for row in walk.ledger.rows_of(AUDIT) if row["phase"] == "apply"}
    assert (ended["m1"], ended["m3"]) == ("CANCELLED", "CANCELLED")
    assert not walk.world.is_moving()


class TakenOver(MemoryLeases):
    """Another holder takes one of the clusters when its second request is about to be sent."""

    requests = 0

    def require_for_request(self, cluster: str | None = None) -> None:
        self.requests += cluster == WEST
        if self.requests == 2:
            self._world.holders[WEST] = "another"
        self.require(cluster)


def test_a_taken_over_cluster_stays_open_and_the_other_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = Walk(Estate(), Counter())
    with monkeypatch.context() as patched:
        patched.setattr(leases, "take", lambda _, run, names, **__: TakenOver(walk.world, run, names, {}))
        step(walk, Start("topics"))
    assert walk._last_end is None
    applied = [row for row in walk.ledger.rows_of(AUDIT) if row["phase"] in ("apply", "verify")]
    assert {row["cluster"] for row in applied} == {EAST}
    assert "c3" in walk.world.clusters[WEST].topics, "its first request was sent"
    assert walk.is_open("topics")
    walk.world.others_release([WEST])
    step(walk, Start("topics"))
    rows = {row["resource"]: row["error"] for row in walk.ledger.rows_of(AUDIT) if row["phase"] == "apply"}
    assert rows["c3"] == "RECOVERED"
    assert not walk.is_open("topics")
