"""A run's commits beside the run."""

import threading
from functools import partial

import pytest

from topicledger.ledger.commits import Commits


def test_they_are_made_in_order_beside_what_comes_next() -> None:
    commits, made, held = Commits(), list[int](), threading.Event()
    commits.add(partial(held.wait, 10))
    for number in range(5):
        commits.add(partial(made.append, number))
    assert made == []
    held.set()
    commits.settle()
    assert made == [0, 1, 2, 3, 4]


def test_after_one_that_failed_none_is_made() -> None:
    commits, made, held = Commits(), list[str](), threading.Event()

    def fail() -> None:
        held.wait(10)
        raise OSError("no space left")

    commits.add(partial(made.append, "before"))
    commits.add(fail)
    commits.add(partial(made.append, "after"))
    commits.check()
    held.set()
    with pytest.raises(OSError, match="no space left"):
        commits.settle()
    with pytest.raises(OSError, match="no space left"):
        commits.check()
    commits.add(partial(made.append, "later"))
    with pytest.raises(OSError, match="no space left"):
        commits.settle()
    assert made == ["before"]
