"""Random walks of whole runs: several runs, clusters and other clients, on the product's own code; see `walks`.

`make test` walks as many histories as 20 s of one core allow; TOPICLEDGER_WALKS=100000 as many as it says, from another
seed each time (TOPICLEDGER_SEED repeats one).
"""

from __future__ import annotations

import os
import random
from collections import Counter

from hypothesis import HealthCheck, example, given, seed, settings
from hypothesis import strategies as st

from tests.properties.walks.driver import installed
from tests.properties.walks.estate import ALTERS, CREATES, DELETES, GROWS, MOVES, TOPICS, Estate
from tests.properties.walks.history import Abandon, Approve, Item, Start, Walk
from tests.properties.walks.world import AT_COMMIT, AT_READ, CURSE, FAULTS, TO_ALL, Event

WALKS = int(os.environ.get("TOPICLEDGER_WALKS", "450"))
SEED = os.environ.get("TOPICLEDGER_SEED")

_WEIGHTS = {"stop": 16, "replicas are slow": 6, "a week passes": 5, "31": 4}
"""How often what is drawn; others once."""

THINGS = tuple(
    thing
    for thing in (
        *((each, "") for each in (*FAULTS, *FAULTS, *AT_COMMIT, *AT_READ, *TO_ALL)),
        *((each, name) for each in ("moves", "moves the first", "moves back", "cancels") for name in MOVES),
        *((each, name) for each in ("deletes", "recreates") for name in (*MOVES, *DELETES, *ALTERS)),
        *(("makes", name) for name in CREATES),
        *(("grows", name) for name in GROWS),
        *(("alters", name) for name in ALTERS),
        *((CURSE, name) for name in TOPICS),
        *(("declares otherwise", name) for name in TOPICS),
        *((f"{each} an acl", number) for each in ("edits", "moves", "removes", "corrects") for number in "0123"),
    )
    for _ in range(_WEIGHTS.get(thing[0], 1))
)
"""What can happen, and to what."""

COMMANDS: tuple[Item, ...] = (
    *(Start("moves", cancel=cancel) for cancel in (True, False, True, False)),
    *(Start(kind) for kind in ("topics", "topics", "acls", "acls")),
    *(Abandon("moves", cancel=cancel) for cancel in (True, False)),
    *(command(kind) for command in (Abandon, Approve) for kind in ("topics", "acls")),
    Approve("moves"),
)

events = st.builds(
    lambda thing, after, moving: Event(*thing, after, moving),
    st.sampled_from(THINGS),
    st.integers(0, 12),
    st.booleans(),
)
steps = st.tuples(st.sampled_from(COMMANDS), st.lists(events, max_size=3))
items = st.lists(steps, min_size=1, max_size=4).map(
    lambda found: [each for step, more in found for each in (step, *more)]
)
estates = st.builds(
    Estate,
    by_manifests=st.booleans(),
    appends=st.sampled_from(("step", "step", "step", "batch", "row")),
    late_commits=st.booleans(),
    approvals=st.sampled_from((0, 0, 0, 1)),
    max_acl_deletes=st.sampled_from((9, 9, 1)),
)


INTERESTING = (
    "apply reassign ok",
    "apply reassign ok RECOVERED",
    "apply reassign failed CANCELLED",
    "apply acl_add ok",
    "apply acl_delete ok",
    "Crash",
    "Stopped",
)
"""What the walks have to come to, else they show nothing."""


CANCELS = (Start("moves", cancel=True), Event("replicas are slow", "", 0, False), Event("stop", "", 8, True))
"""A history that comes to a cancelled move: chance seldom does."""


def test_whole_runs_keep_their_promises_whatever_happens() -> None:
    """C12, C18, D7, N1, R1 to R5, A2"""
    reached: Counter[str] = Counter()

    @settings(
        max_examples=WALKS,
        deadline=None,
        derandomize="TOPICLEDGER_WALKS" not in os.environ,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(estate=estates, items=items)
    @example(Estate(by_manifests=False, appends="step", late_commits=False, approvals=0, max_acl_deletes=9), [*CANCELS])
    def walk(estate: Estate, items: list[Item]) -> None:
        Walk(estate, reached).walk(items)

    if "TOPICLEDGER_WALKS" in os.environ:
        # A seed goes before `derandomize`.
        walk = seed(int(SEED or random.SystemRandom().getrandbits(32)))(walk)
    with installed():
        walk()
    missing = [each for each in INTERESTING if not reached[each]]
    assert not missing, f"no walk came to {missing}: {reached}"
