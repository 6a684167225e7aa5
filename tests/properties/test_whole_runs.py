"""Random walks of whole runs: several runs, clusters and other clients, on the product's own code; see `walks`.

`make test` walks the same 200 histories each time, 200 about moves, and 150 about ACLs; TOPICLEDGER_WALKS=100000 walks
as many as it says, from another seed each time. TOPICLEDGER_SEED repeats one.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.properties.walks.chance import EVERYTHING, OF_ACLS, OF_KILLS, OF_MOVES, About, broken, history, shortest
from tests.properties.walks.driver import installed

WALKS = int(os.environ.get("TOPICLEDGER_WALKS", "200"))
SEED = os.environ.get("TOPICLEDGER_SEED", "0" if "TOPICLEDGER_WALKS" not in os.environ else str(random.getrandbits(32)))

INTERESTING = (
    "apply reassign ok",
    "apply reassign ok RECOVERED",
    "apply reassign failed CANCELLED",
    "apply acl_add ok",
    "apply reassign refused NO_ANSWER",
    "Crash",
    "meanwhile LeaseHeld",
    "Stopped",
)
"""What the walks have to come to, else they show nothing."""
INTERESTING_MOVES = (
    "apply reassign failed CANCELLED",
    "apply reassign failed CHANGED_SINCE_PLAN",
    "apply reassign failed REASSIGNMENT_IN_PROGRESS",
    "apply reassign ok RECOVERED",
    "apply reassign refused REASSIGNMENT_IN_PROGRESS",
    "run reassign refused PLAN_EXPIRED",
    "Crash",
    "LeaseLost",
)
"""The same for walks about moves."""
INTERESTING_ACLS = (
    "allowed and sent",
    "apply acl_add refused CHANGED_SINCE_PLAN",
    "apply acl_add refused DENY_MISSING",
    "apply acl_add refused OWN_RIGHTS",
    "apply acl_delete ok",
)
"""The same for walks about ACLs."""


def test_whole_runs_keep_their_promises_whatever_happens() -> None:
    """C12, C18, D7, N1, R1 to R5, A2"""
    walked("", EVERYTHING, WALKS, INTERESTING)


def test_runs_that_move_replicas_keep_the_same_promises() -> None:
    """R2, R4, R6: also if requests for moves get lost, and before they are repeated a stop or another client comes."""
    walked("moves ", OF_MOVES, WALKS, INTERESTING_MOVES)


@pytest.mark.thorough
def test_runs_whose_drivers_are_killed_keep_the_same_promises() -> None:
    """R2: also if a request of a killed driver arrives when its run was started again."""
    walked("kills ", OF_KILLS, 3 * WALKS, INTERESTING_MOVES)


def walked(name: str, about: About, walks: int, interesting: Sequence[str]) -> None:
    """Walk through as many histories; each must keep all promises, and together they must reach what is interesting."""
    reached: Counter[str] = Counter()
    with installed():
        for number in range(walks):
            found = history(random.Random(f"{SEED} {name}{number}"), about)
            if (why := broken(found, reached)) is not None:
                # Shorter histories may break something else, which is as good.
                found = shortest(found, lambda each: broken(each) is not None)
                raise AssertionError(
                    f"seed {SEED}, history {name}{number}: {why}\n\nshortest:\n{found}\n\n{broken(found)}"
                )
    missing = [each for each in interesting if not reached[each]]
    assert not missing, f"no walk came to {missing}: {reached}"


def test_runs_about_acls_keep_the_same_promises() -> None:
    """In every second history, every removal of an ACL is stopped by its guard, and an approval allows it.

    On a cluster that is open to all, no first or last ACL on a resource is sent of which the plan didn't warn (I2).
    """
    reached: Counter[str] = Counter()
    with installed():
        for number in range(WALKS * 3 // 4):
            found = history(random.Random(f"{SEED} acls {number}"), OF_ACLS)
            if number % 2:
                found = replace(found, estate=replace(found.estate, approvals=1, allows=True, max_acl_deletes=0))
            why = broken(found, reached)
            assert why is None, f"seed {SEED}, history {number}: {why}\n\n{found}"
    missing = [each for each in INTERESTING_ACLS if not reached[each]]
    assert not missing, f"no walk came to {missing}: {reached}"
