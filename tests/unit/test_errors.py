"""The strongest of several exit codes counts."""

from __future__ import annotations

import pytest

from topicledger.errors import ExitCode, exit_code, most_severe

STRONGEST_FIRST = (ExitCode.ERROR, ExitCode.GUARD_STOPPED, ExitCode.TOPICS_FAILED, ExitCode.CHANGES_PENDING)


@pytest.mark.parametrize("strongest", STRONGEST_FIRST)
def test_the_strongest_of_those_that_hold_is_the_exit_code(strongest: ExitCode) -> None:
    """DESIGN, Commands: 1 is stronger than 4 and 5, and 5 than 4."""
    weaker = STRONGEST_FIRST[STRONGEST_FIRST.index(strongest) :]
    assert exit_code(dict.fromkeys(weaker, True)) is strongest
    assert exit_code({code: code is strongest for code in STRONGEST_FIRST}) is strongest


def test_where_none_holds_all_is_done() -> None:
    assert exit_code({}) is ExitCode.DONE
    assert exit_code(dict.fromkeys(STRONGEST_FIRST, False)) is ExitCode.DONE


@pytest.mark.parametrize(
    ("codes", "worst"),
    [((0, 0), 0), ((5, 0), 5), ((0, 5), 5), ((5, 5), 5), ((4, 5), 5), ((3, 4), 4), ((1, 5), 1), ((3, 0), 3), ((), 0)],
)
def test_the_most_severe_exit_code_wins(codes: tuple[int, ...], worst: int) -> None:
    assert most_severe(*codes) == worst
