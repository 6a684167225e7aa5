"""The strongest of several exit codes counts."""

from __future__ import annotations

import pytest

from topicledger.errors import ExitCode, exit_code

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
