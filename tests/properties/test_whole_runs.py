"""Random walks of whole runs: several runs, clusters and other clients, on the product's own code; see `walks`.

`make test` walks the same 450 histories each time; TOPICLEDGER_WALKS=100000 as many as it says, from another seed each
time. TOPICLEDGER_SEED repeats one.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace

from tests.properties.walks.chance import History, history, shortest
from tests.properties.walks.driver import installed
from tests.properties.walks.history import Walk
from tests.properties.walks.world import Broken

WALKS = int(os.environ.get("TOPICLEDGER_WALKS", "450"))
SEED = os.environ.get("TOPICLEDGER_SEED", "0" if "TOPICLEDGER_WALKS" not in os.environ else str(random.getrandbits(32)))

INTERESTING = (
    "apply reassign ok",
    "apply reassign ok RECOVERED",
    "apply reassign failed CANCELLED",
    "apply acl_add ok",
    "apply acl_delete ok",
    "Crash",
    "meanwhile LeaseHeld",
    "Stopped",
)
"""What the walks have to come to, else they show nothing."""


def test_whole_runs_keep_their_promises_whatever_happens() -> None:
    """C12, C18, D7, N1, R1 to R5, A2"""
    reached: Counter[str] = Counter()
    with installed():
        for number in range(WALKS):
            found = history(random.Random(f"{SEED} {number}"))
            if (why := broken(found, reached)) is not None:
                # Shorter histories may break something else, which is as good.
                found = shortest(found, lambda each: broken(each) is not None)
                raise AssertionError(f"seed {SEED}, history {number}: {why}\n\nshortest:\n{found}\n\n{broken(found)}")
    missing = [each for each in INTERESTING if not reached[each]]
    assert not missing, f"no walk came to {missing}: {reached}"


def test_actions_that_an_approval_allows_keep_the_same_promises() -> None:
    """Every removal of an ACL is stopped by its guard, and allowed."""
    reached: Counter[str] = Counter()
    with installed():
        for number in range(WALKS // 3):
            found = history(random.Random(f"{SEED} allowed {number}"))
            found = replace(found, estate=replace(found.estate, approvals=1, allows=True, max_acl_deletes=0))
            why = broken(found, reached)
            assert why is None, f"seed {SEED}, history {number}: {why}\n\n{found}"
    assert reached["allowed and sent"], reached


def broken(found: History, reached: Counter[str] | None = None) -> Broken | None:
    """Walk through a history; return the promise that it broke."""
    try:
        Walk(found.estate, Counter() if reached is None else reached).walk(found.items)
    except Broken as error:
        return error
    return None
