"""The parts in which a run sends its actions, and when it releases clusters' leases."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from topicledger.apply import parts
from topicledger.apply.dispatch import StepResult
from topicledger.apply.values import Validated
from topicledger.model import Action, ReplicaAction, Target, Work
from topicledger.resources.acls.names import AclAction

CREATE, DELETE, ALTER = Action.CREATE.value, Action.DELETE.value, Action.ALTER_CONFIGS.value
REASSIGN, ACL_DELETE = ReplicaAction.REASSIGN.value, AclAction.ACL_DELETE.value


def work_of(**clusters: tuple[tuple[str, str], ...]) -> Work:
    """Return a batch for each (action, topic) of each cluster."""
    return {
        name: (f"id-{name}", [[Target(resource=topic, action=action)] for action, topic in actions])
        for name, actions in clusters.items()
    }


def sent_by(
    monkeypatch: pytest.MonkeyPatch,
    actions: Work,
    *,
    waits: Collection[tuple[str, str]],
    fit: Collection[str],
    fails: Collection[str] = (),
    idle: Collection[str] = (),
    leftovers: Collection[str] = (),
    stays_open: Collection[str] = (),
) -> list[str]:
    """Send actions, of which creates wait for room; return what was sent and released, in order.

    `fit`: topics for which there is room once the first part was sent. `fails`: clusters that don't answer.
    `leftovers`: ids of those with throttles. `stays_open`: topics without an outcome. The last cluster of a part isn't
    told as done.
    """
    story: list[str] = []

    def each_cluster(*given: Any, ended: Callable[[str], None], last: Callable[[Any], None], **_: Any) -> StepResult:
        work: Work = given[3]
        for place, (name, (_id, batches)) in enumerate(work.items(), 1):
            story.extend(f"{name}: {target.action} {target.topic}" for batch in batches for target in batch)
            last(SimpleNamespace(cluster=name))
            if place < len(work):
                ended(name)
        left_open = {
            (name, target.topic, target.action): "silent"
            for name, (_id, batches) in work.items()
            for batch in batches
            for target in batch
            if target.topic in stays_open
        }
        return StepResult(
            results={}, problems=dict.fromkeys(work.keys() & set(fails), "no answer"), left_open=left_open
        )

    def rows(*some: tuple[str, str]) -> Any:
        return SimpleNamespace(collect=lambda: [{"cluster": name, "topic": topic} for name, topic in some])

    left = [each for each in waits if each[1] not in fit]
    monkeypatch.setattr(parts, "each_cluster", each_cluster)
    monkeypatch.setattr(parts, "sendable", lambda *_: None)
    monkeypatch.setattr(parts, "in_batches", lambda _: actions)
    monkeypatch.setattr(parts, "reevaluate", lambda *_, **__: SimpleNamespace(waiting=rows(*left)))
    released: set[str] = set()

    def take_away(executor: Any) -> None:
        if leftovers:
            story.append(f"{executor.cluster}: throttles")

    def release_some(names: Collection[str]) -> None:
        story.extend(f"{name} released" for name in sorted(set(names) - released))
        released.update(names)

    run: Any = SimpleNamespace(
        commits=SimpleNamespace(add=lambda do: do()), resumed=False, run_id="run", owners_version=lambda _: None
    )
    held: Any = SimpleNamespace(release_some=release_some)
    marks: Any = SimpleNamespace(begin=lambda _: None, before=None)
    seen, context = object(), SimpleNamespace(policies=())
    ready = Validated(actions=actions, seen=seen, observed_since=datetime.now(UTC), waiting=rows(*waits))
    parts.send(run, context, ready, dict.fromkeys(idle, ("id", [])), held, marks, 0, leftovers, take_away)
    return story


def test_creates_that_wait_for_room_do_not_wait_for_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their cluster's lease is released before the moves of another cluster, which may take days."""
    actions = work_of(room=((DELETE, "old"), (CREATE, "new")), far=((CREATE, "quick"), (REASSIGN, "large")))
    story = sent_by(monkeypatch, actions, waits=[("room", "new")], fit=["new"])
    assert story == [
        "room: delete old",
        "far: create quick",
        "room: create new",
        "room released",
        "far: reassign large",
    ]


def test_a_cluster_whose_creates_find_no_room_is_released_before_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    actions = work_of(room=((DELETE, "old"), (CREATE, "new")), far=((REASSIGN, "large"),), near=((DELETE, "x"),))
    story = sent_by(monkeypatch, actions, waits=[("room", "new")], fit=[])
    assert story == ["room: delete old", "near: delete x", "near released", "room released", "far: reassign large"]


def test_a_run_in_which_nothing_waits_sends_everything_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    actions = work_of(one=((REASSIGN, "large"), (DELETE, "x")), other=((CREATE, "y"),))
    story = sent_by(monkeypatch, actions, waits=[], fit=[])
    assert story == ["one: reassign large", "one: delete x", "one released", "other: create y"]


def test_only_clusters_with_moves_wait_for_those_that_need_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other clusters get their removals of ACLs, which come after moves, at once."""
    actions = work_of(
        room=((DELETE, "old"), (CREATE, "new")), acls=((ACL_DELETE, "a"),), far=((REASSIGN, "large"), (ACL_DELETE, "b"))
    )
    story = sent_by(monkeypatch, actions, waits=[("room", "new")], fit=["new"])
    assert story == [
        "room: delete old",
        "acls: acl_delete a",
        "acls released",
        "room: create new",
        "room released",
        "far: reassign large",
        "far: acl_delete b",
    ]


def test_nothing_more_is_sent_to_a_cluster_that_fails_and_its_lease_is_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its moves may rely on what wasn't sent: minimum in-sync replicas, for example."""
    actions = work_of(
        room=((DELETE, "old"), (CREATE, "new")),
        lost=((ALTER, "large"), (REASSIGN, "large")),
        far=((REASSIGN, "other"),),
    )
    story = sent_by(monkeypatch, actions, waits=[("room", "new")], fit=["new"], fails=["lost"])
    assert story == [
        "room: delete old",
        "lost: alter_configs large",
        "lost released",
        "room: create new",
        "room released",
        "far: reassign other",
    ]


def test_clusters_to_which_nothing_is_sent_are_released_first(monkeypatch: pytest.MonkeyPatch) -> None:
    story = sent_by(monkeypatch, work_of(one=((DELETE, "x"),)), waits=[], fit=[], idle=["left"])
    assert story == ["left released", "one: delete x"]


def test_throttles_are_removed_last_on_each_cluster_since_that_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where creates find no room, or nothing else is sent."""
    actions = work_of(
        room=((DELETE, "old"), (CREATE, "new")), full=((CREATE, "large"),), far=((DELETE, "x"), (REASSIGN, "y"))
    )
    waits = [("room", "new"), ("full", "large")]
    story = sent_by(monkeypatch, actions, waits=waits, fit=["new"], leftovers=["id-room", "id-full", "id-far"])
    assert story == [
        "room: delete old",
        "far: delete x",
        "room: create new",
        "room: throttles",
        "room released",
        "full: throttles",
        "full released",
        "far: reassign y",
        "far: throttles",
    ]


def test_all_reasons_of_open_actions_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of each part, and of what was open before, on the same cluster."""
    told: list[str] = []
    monkeypatch.setattr(parts, "acknowledged", lambda _run, _work, _results, problems: told.append(problems["far"]))
    actions = work_of(room=((DELETE, "old"), (CREATE, "new")), far=((ALTER, "a"), (REASSIGN, "m")))
    sent_by(monkeypatch, actions, waits=[("room", "new")], fit=["new"], stays_open=["a", "m"])
    assert told == ["cluster far: a and 1 more: no known outcome (silent); start the run again with its id"]
