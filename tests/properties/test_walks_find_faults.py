"""Random walks find faults that the product had, put back one by one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.properties.walks.chance import OF_ACLS, OF_KILLS, OF_MOVES, About, broken, history
from tests.properties.walks.driver import installed
from topicledger.actions.checking import CheckedRequest
from topicledger.actions.context import ClusterContext
from topicledger.apply import dispatch
from topicledger.kafka import Response
from topicledger.kafka.outcomes import NoOutcome, Sent
from topicledger.model import Target
from topicledger.model.moves import LEADER_RATE, LEADER_REPLICAS, Throttle
from topicledger.resources.acls import decide
from topicledger.resources.acls.denies import Denies
from topicledger.resources.topics.actions import cancelling, reassign, waves
from topicledger.resources.topics.actions.throttle_rows import ThrottleKey
from topicledger.resources.topics.actions.throttling import Throttling
from topicledger.resources.topics.apply import throttles

pytestmark = pytest.mark.thorough
HISTORIES = 4000
"""Most faults are found in the first 200 of a kind, which `make test` walks, and all within 4,000."""
Patch = pytest.MonkeyPatch
Written = Mapping[ThrottleKey, Sequence[Throttle]]


def refuses_what_is_under_way(patch: Patch) -> None:
    patch.setattr(dispatch.StepResult, "under_way", lambda _: frozenset())


def forgets_lost_requests(patch: Patch) -> None:
    patch.setattr(ClusterContext, "may_move", lambda _: {})


def refuses_what_others_changed(patch: Patch) -> None:
    patch.setattr(reassign, "_may_be_begun", lambda *_: False)


def removes_throttles_of_moves(patch: Patch) -> None:
    patch.setattr(Throttling, "_over", lambda _, written: written)


def removes_throttles_of_leaders(patch: Patch) -> None:
    over = Throttling._over

    def more(self: Throttling, written: Written) -> Written:
        of_leaders = {key: rows for key, rows in written.items() if key[2] in (LEADER_RATE, LEADER_REPLICAS)}
        return {**over(self, written), **of_leaders}

    patch.setattr(Throttling, "_over", more)


def repeats_without_comparing(patch: Patch) -> None:
    class Once(CheckedRequest):
        def __call__(self, targets: Sequence[Target]) -> Response:
            if not {each.topic for each in targets} <= self._maybe_done:
                return super().__call__(targets)
            self._context.may_send()
            return self._request(targets)

    patch.setattr(waves, "CheckedRequest", Once)


def takes_refused_cancels_for_done(patch: Patch) -> None:
    class Left(cancelling._Left):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.moving = []

    patch.setattr(cancelling, "_Left", Left)


def waits_for_silent_topics(patch: Patch) -> None:
    give_up = Sent.give_up

    def given_up(self: Sent, *given: Any, **more: Any) -> Sequence[tuple[Target, NoOutcome]]:
        self.silent += [(target, replace(each, by_itself=False)) for target, each in give_up(self, *given, **more)]
        return []

    def none(_: Sent) -> Iterator[tuple[Target, NoOutcome]]:
        return iter(())

    patch.setattr(Sent, "give_up", given_up)
    patch.setattr(Sent, "silent_by_itself", none)


def deletes_what_refused_rows_mean(patch: Patch) -> None:
    patch.setattr(decide, "kept", lambda *_: lambda rows: rows)


def adds_allows_without_their_denies(patch: Patch) -> None:
    patch.setattr(Denies, "stop", lambda _, rows: rows)


def forgets_requests_of_killed_drivers(patch: Patch) -> None:
    for each in (dispatch, throttles):
        patch.setattr(each, "expect_late_requests", lambda *_: None)


FAULTS: Mapping[Callable[[Patch], None], tuple[str, About]] = {
    **dict.fromkeys(
        (
            refuses_what_is_under_way,
            forgets_lost_requests,
            refuses_what_others_changed,
            removes_throttles_of_moves,
            removes_throttles_of_leaders,
            repeats_without_comparing,
            takes_refused_cancels_for_done,
            waits_for_silent_topics,
        ),
        ("moves ", OF_MOVES),
    ),
    deletes_what_refused_rows_mean: ("acls ", OF_ACLS),
    adds_allows_without_their_denies: ("acls ", OF_ACLS),
    forgets_requests_of_killed_drivers: ("kills ", OF_KILLS),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: each.__name__)
def test_a_fault_breaks_a_promise_in_some_history(
    fault: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, about = FAULTS[fault]
    fault(monkeypatch)
    with installed():
        found = (number for number in range(HISTORIES) if broken(history(random.Random(f"0 {name}{number}"), about)))
        assert next(found, None) is not None
