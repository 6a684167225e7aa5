"""The chain of digests, on rows as somebody may have left them: plain values, no tables."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from topicledger.ledger.chain import NEVER, Chain, RunRow
from topicledger.ledger.proof import FORMAT, SEALS_ABANDONED, Signer
from topicledger.ledger.verifying import Finding, without_digest

AT = datetime(2026, 11, 25, tzinfo=UTC)
SIGNS = Signer(b"0123456789abcdef" * 2)
EARLIER_KEY = Signer(b"fedcba9876543210" * 2)


def sealed(run_id: str, *before: RunRow, signs: Signer = SIGNS, hours: int = 0) -> RunRow:
    """A run with a digest, that ended so many hours after `AT`."""
    text = f"{run_id} {[each.digest for each in before]} {hours}"
    return RunRow(
        run_id=run_id,
        state="finished",
        started_at=AT + timedelta(hours=hours),
        finished_at=AT + timedelta(hours=hours, minutes=1),
        digest=signs.digest(text),
        previous=[each.digest for each in before],
        proof={**signs.about, FORMAT: SEALS_ABANDONED},
        arguments={},
        text=text,
    )


FIRST = sealed("first")
SECOND = sealed("second", FIRST, hours=1)
THIRD = sealed("third", SECOND, hours=2)
RUNS = [FIRST, SECOND, THIRD]


def before(run: RunRow, *rows: RunRow) -> set[str]:
    found = Chain(rows, SIGNS).before(run)
    return {each.run_id for each in rows if each.digest in found}


def test_the_runs_before_a_run_are_those_that_it_names_and_they_name() -> None:
    assert before(THIRD, *RUNS) == {"first", "second"}
    assert before(FIRST, *RUNS) == set()
    assert Chain(RUNS, SIGNS).heads == [THIRD.digest]


def test_a_run_whose_row_was_changed_has_none_before_it() -> None:
    changed = replace(THIRD, text="changed")
    assert before(changed, FIRST, SECOND, changed) == set()


def test_a_changed_row_is_not_before_a_run_and_leads_nowhere() -> None:
    changed = replace(SECOND, text="changed")
    assert before(THIRD, FIRST, changed, THIRD) == set()


def test_a_digest_of_two_rows_is_not_followed() -> None:
    copied = replace(SECOND, run_id="forged")
    assert before(THIRD, FIRST, SECOND, copied, THIRD) == set()


def test_runs_of_an_earlier_key_and_of_none_may_be_before_a_run() -> None:
    unsigned = sealed("unsigned", signs=Signer(None))
    earlier = sealed("earlier", unsigned, signs=EARLIER_KEY)
    now = sealed("now", earlier)
    assert before(now, unsigned, earlier, now) == {"unsigned", "earlier"}


def test_a_run_that_another_ledger_began_with_is_a_second_root() -> None:
    elsewhere = sealed("elsewhere", hours=1)
    at_once = replace(sealed("at once"), finished_at=FIRST.finished_at + timedelta(minutes=9))
    chain = Chain([*RUNS, elsewhere, at_once], SIGNS)
    assert [each.run_id for each in (*RUNS, elsewhere, at_once) if chain.is_second_root(each)] == ["elsewhere"]


def test_only_a_run_that_ended_long_before_others_is_unknown_to_them() -> None:
    added, late = sealed("added"), sealed("late", hours=2)
    chain = Chain([*RUNS, added, late], SIGNS)
    assert [each.run_id for each in (*RUNS, added, late) if chain.is_unknown(each)] == ["added"]


def unsealed(run_id: str, state: str, *, hours: int = 9, started_at: datetime | None = None) -> RunRow:
    return replace(
        sealed(run_id, hours=hours),
        state=state,
        digest="",
        proof={},
        finished_at=NEVER,
        **({} if started_at is None else {"started_at": started_at}),
    )


def tolerated(rows: list[RunRow], signs: Signer = SIGNS, first: RunRow | None = None) -> set[str]:
    """Ids of runs without a digest that are no finding."""
    left = {each.run_id for each in rows if not each.digest}
    found = list(without_digest(left, rows, first, signs))
    assert len(found) == len(left)
    return {each for each in found if not isinstance(each, Finding)}


@pytest.mark.parametrize("signs", [SIGNS, Signer(None)], ids=["with a key", "without"])
def test_only_open_runs_need_no_digest(signs: Signer) -> None:
    rows = [sealed("first", signs=signs)]
    rows += [unsealed(state, state) for state in ("planning", "planned", "applying", "finished", "abandoned", "x", "")]
    rows += [replace(unsealed("ended", "applying"), finished_at=AT)]
    rows += [unsealed("when", "finished", started_at=NEVER)]
    assert tolerated(rows, signs) == {"planning", "planned", "applying"}


def test_with_a_key_a_run_is_before_digests_only_if_from_says_so() -> None:
    older = [unsealed(state, state, hours=-9) for state in ("finished", "abandoned")]
    assert tolerated([*RUNS, *older]) == set()
    assert tolerated([*RUNS, *older], first=SECOND) == {"finished", "abandoned"}
    assert tolerated([*RUNS, *older], first=replace(SECOND, text="changed")) == set()
    assert tolerated(older) == set(), "all digests were removed"


def test_without_a_key_runs_of_an_older_topicledger_are_tolerated() -> None:
    """It gave digests to finished runs only."""
    none = Signer(None)
    finished = [
        replace(each, proof={}) for each in (sealed("first", signs=none), sealed("second", signs=none, hours=1))
    ]
    abandoned = unsealed("abandoned", "abandoned", hours=2)
    assert tolerated([*finished, abandoned, unsealed("older", "finished", hours=-1)], none) == {"abandoned", "older"}
    since = sealed("since", signs=none, hours=3)
    later = unsealed("later", "abandoned", hours=4)
    assert tolerated([*finished, abandoned, since, later], none) == {"abandoned"}


def test_rows_of_a_run_that_is_not_in_runs_are_a_finding() -> None:
    (found,) = without_digest({""}, RUNS, None, SIGNS)
    assert isinstance(found, Finding)
    assert (found.run_id, found.kind.value) == (None, "run_removed")
