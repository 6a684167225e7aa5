"""The chain of digests, on rows as somebody may have left them: plain values, no tables."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from topicledger.errors import ExitCode, UsageError
from topicledger.ledger.chain import NEVER, Chain, RunRow
from topicledger.ledger.digests import RowsDigest
from topicledger.ledger.proof import (
    FORMAT,
    INTENT,
    KEY_ID,
    PLAN_APPROVALS_ROWS,
    PLAN_APPROVALS_SHA256,
    SEALS_ABANDONED,
    Signer,
    intent,
)
from topicledger.ledger.verified import ProofFinding, Verified
from topicledger.ledger.verifying import verify_rows, without_digest

AT = datetime(2026, 11, 25, tzinfo=UTC)
SIGNS = Signer(b"0123456789abcdef" * 2)
EARLIER_KEY = Signer(b"fedcba9876543210" * 2)
EARLIER_ID = EARLIER_KEY.about[KEY_ID]


def sealed(run_id: str, *before: RunRow, signs: Signer = SIGNS, hours: int = 0) -> RunRow:
    """Return a run with a digest that ended this many hours after `AT`."""
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


def unsealed(run_id: str, state: str, *, hours: int = 9, started_at: datetime | None = None) -> RunRow:
    return replace(
        sealed(run_id, hours=hours),
        state=state,
        digest="",
        proof={},
        finished_at=NEVER,
        **({} if started_at is None else {"started_at": started_at}),
    )


FIRST = sealed("first")
SECOND = sealed("second", FIRST, hours=1)
THIRD = sealed("third", SECOND, hours=2)
RUNS = [FIRST, SECOND, THIRD]


def before(run: RunRow, *rows: RunRow, other_keys: tuple[str, ...] = ()) -> set[str]:
    found = Chain(rows, SIGNS, other_keys).before(run)
    assert not found.out_of_order
    return {each.run_id for each in rows if each.digest in found.digests}


def verified(
    rows: list[RunRow],
    signs: Signer = SIGNS,
    *,
    since: str | None = None,
    expected: tuple[str, ...] = (),
    other_keys: tuple[str, ...] = (),
) -> Verified:
    """Return the findings if each run without a digest has rows of `audit`, and no other run has any."""
    audited = {("audit", each.run_id): RowsDigest(rows=1) for each in rows if not each.digest}
    return verify_rows(rows, signs, lambda _: audited, since=since, expected=expected, other_keys=other_keys)


def findings(found: Verified) -> list[tuple[str | None, str]]:
    return [(each.run_id, each.kind.value) for each in found.findings]


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
    assert before(now, unsigned, earlier, now, other_keys=(EARLIER_ID,)) == {"unsigned", "earlier"}
    assert before(now, unsigned, earlier, now) == set(), "its key isn't accepted"


FOURTH = sealed("fourth", THIRD, hours=3)
FOREIGN = {**EARLIER_KEY.about, FORMAT: SEALS_ABANDONED}


def claims_other_key(run: RunRow, *before: RunRow, hours: int | None = None) -> RunRow:
    """The row as somebody changes it: it says that another key signed it and names other runs before it."""
    at = run.finished_at if hours is None else AT + timedelta(hours=hours)
    names = [each.digest for each in before]
    return replace(run, proof=FOREIGN, previous=names, text="forged", started_at=at, finished_at=at)


@pytest.mark.parametrize("names", [(), (THIRD,)], ids=["nothing", "the run of --since-run"])
def test_a_row_that_only_claims_another_key_hides_nothing(names: tuple[RunRow, ...]) -> None:
    """It leads --since-run to the newest run as one before it: once even in a circle."""
    rows = [FIRST, claims_other_key(SECOND, FIRST, FOURTH), THIRD, claims_other_key(FOURTH, *names)]
    found = verified(rows, since="third", expected=(FOURTH.digest,))
    assert {("second", "other_key"), ("fourth", "other_key"), (None, "not_found")} <= set(findings(found))
    assert (found.runs, found.earlier, found.exit_code) == (4, 0, 4)


@pytest.mark.parametrize("names", [(), (THIRD,)], ids=["nothing", "the run of --since-run"])
def test_an_accepted_key_moves_no_later_run_before_the_first(names: tuple[RunRow, ...]) -> None:
    rows = [FIRST, claims_other_key(SECOND, FIRST, FOURTH), THIRD, claims_other_key(FOURTH, *names)]
    found = verified(rows, since="third", expected=(FOURTH.digest,), other_keys=(EARLIER_ID,))
    assert {("fourth", "out_of_order"), (None, "not_found")} <= set(findings(found))
    assert (found.first, found.last, found.other_key_runs) == ("first", "third", ["second", "fourth"])
    circle = verified([FIRST, claims_other_key(SECOND, THIRD), THIRD], since="third", other_keys=(EARLIER_ID,))
    assert findings(circle) == [("third", "out_of_order")]


def test_a_forged_early_end_needs_the_accepted_key_and_its_digest_is_not_proven() -> None:
    """The earlier key shows it: with it the forged rows aren't those that were signed."""
    rows = [FIRST, claims_other_key(SECOND, FIRST, FOURTH), THIRD, claims_other_key(FOURTH, hours=-1)]
    found = verified(rows, since="third", expected=(FOURTH.digest,), other_keys=(EARLIER_ID,))
    assert (findings(found), found.other_key_runs) == ([(None, "not_found")], ["second", "fourth"])
    by_earlier_key = verified(rows, EARLIER_KEY, other_keys=(SIGNS.about[KEY_ID],))
    assert {("second", "run_changed"), ("fourth", "run_changed")} <= set(findings(by_earlier_key))


def test_a_run_that_this_key_signed_is_verified_whatever_leads_to_it() -> None:
    """An accepted row names it as before the first, within the time that clocks may differ."""
    beside = sealed("beside", FIRST, hours=2)
    rows = [FIRST, claims_other_key(SECOND, FIRST, beside), THIRD, replace(beside, text="changed")]
    assert ("beside", "run_changed") in findings(verified(rows, since="third", other_keys=(EARLIER_ID,)))
    rows[-1] = beside
    found = verified(rows, since="third", other_keys=(EARLIER_ID,))
    assert (findings(found), found.runs, found.earlier) == ([], 3, 1)


def test_after_a_change_of_keys_each_key_verifies_its_own_runs() -> None:
    old = [first := sealed("first", signs=EARLIER_KEY), second := sealed("second", first, signs=EARLIER_KEY, hours=1)]
    rows = [*old, third := sealed("third", second, hours=2), sealed("fourth", third, hours=3)]
    new = verified(rows, other_keys=(EARLIER_ID,))
    assert (findings(new), new.first, new.last, new.other_key_runs) == ([], "third", "fourth", ["first", "second"])
    since = verified(rows, since="third", other_keys=(EARLIER_ID,))
    assert (findings(since), since.runs, since.earlier, since.other_key_runs) == ([], 2, 2, ["first", "second"])
    earlier = verified(rows, EARLIER_KEY, other_keys=(SIGNS.about[KEY_ID],))
    assert (findings(earlier), earlier.first, earlier.last) == ([], "first", "second")
    assert findings(verified(rows, since="third")) == [("first", "other_key"), ("second", "other_key")]
    rows[1] = replace(second, text="changed")
    assert findings(verified(rows, EARLIER_KEY, other_keys=(SIGNS.about[KEY_ID],))) == [("second", "run_changed")]


def test_a_maintenance_under_another_key_explains_missing_rows_that_only_that_key_proves() -> None:
    """After a change of keys, maintenances are signed with the new key, and old runs with the earlier one.

    A forged maintenance is found by the key that it claims: only both verifications together prove all runs.
    """
    new_id = SIGNS.about[KEY_ID]
    first = sealed("first", signs=EARLIER_KEY)
    kept = replace(first, proof={**first.proof, "audit_rows": "1", "audit_sha256": "0"})
    swept = replace(sealed("swept", kept, hours=30), arguments=SWEEP)
    earlier = verified([kept, swept], EARLIER_KEY, other_keys=(new_id,))
    assert (findings(earlier), earlier.retained, earlier.other_key_runs) == ([], {"first": new_id}, ["swept"])
    written = json.loads(earlier.to_json())
    assert (written["retention"], written["retention_other_keys"]) == (["first"], {"first": new_id})
    assert ("first", "rows_removed") in findings(verified([kept, swept], EARLIER_KEY)), "the key isn't accepted"
    forged = replace(swept, text="forged")
    assert ("swept", "run_changed") in findings(verified([kept, forged], other_keys=(EARLIER_ID,)))
    own = replace(sealed("own", swept, signs=EARLIER_KEY, hours=31), arguments=SWEEP)
    assert verified([kept, swept, own], EARLIER_KEY, other_keys=(new_id,)).retained == {"first": ""}


SWEEP = {"command": "maintain", "audit_retention_days": "0"}
KEPT = replace(FIRST, proof={**FIRST.proof, "audit_rows": "1", "audit_sha256": "0"})


def sweeping(signs: Signer = SIGNS, state: str = "planning", **more: str) -> RunRow:
    """Return a maintenance that has begun to remove rows, or that was killed then."""
    row = replace(unsealed("sweeping", state, hours=30), arguments=SWEEP)
    start = {"run_id": row.run_id, "started_at": row.started_at, "arguments": row.arguments}
    return replace(row, proof={**signs.about, INTENT: intent(signs, start)}, **more)


@pytest.mark.parametrize("signs", [SIGNS, Signer(None)], ids=["with a key", "without"])
def test_a_maintenance_explains_missing_rows_from_its_start(signs: Signer) -> None:
    """It may be killed between the tables, and rows of a run removed before it is sealed."""
    first = sealed("first", signs=signs)
    kept = replace(first, proof={**first.proof, "audit_rows": "1", "audit_sha256": "0"})
    found = verify_rows([kept, sweeping(signs)], signs, lambda _: {})
    assert (findings(found), found.retention, found.exit_code) == ([], ["first"], ExitCode.DONE)
    ended_late = replace(sealed("swept", kept, signs=signs, hours=30), arguments=SWEEP, state="abandoned")
    assert verify_rows([kept, ended_late], signs, lambda _: {}).retention == ["first"]
    same_day = replace(ended_late, started_at=AT + timedelta(hours=2))
    assert ("first", "rows_removed") in findings(verify_rows([kept, same_day], signs, lambda _: {}))


@pytest.mark.parametrize(
    "row",
    [
        sweeping(run_id="another"),
        replace(sweeping(), arguments={**SWEEP, "plans_retention_days": "0"}),
        replace(sweeping(), started_at=AT + timedelta(days=9)),
        sweeping(EARLIER_KEY),
        sweeping(Signer(None)),
        replace(sweeping(), digest="0" * 64, state="finished", finished_at=AT + timedelta(hours=31)),
    ],
    ids=["run", "arguments", "time", "key", "unsigned", "sealed"],
)
def test_a_forged_start_of_a_maintenance_explains_nothing(row: RunRow) -> None:
    found = verify_rows([KEPT, row], SIGNS, lambda _: {}, other_keys=(EARLIER_ID,))
    assert ("first", "rows_removed") in findings(found)


def test_with_a_key_open_runs_are_no_success() -> None:
    """All digests were removed, and every run made an open one: nothing else in the tables shows it."""
    rows = [replace(each, digest="", previous=[], proof={}, state="applying", finished_at=NEVER) for each in RUNS]
    found = verified(rows)
    assert (findings(found), found.open_runs, found.exit_code) == ([], ["first", "second", "third"], 3)
    assert verified([*RUNS, unsealed("killed", "applying")]).exit_code == 3
    assert verified(RUNS).exit_code == 0
    none = Signer(None)
    assert verified([sealed("first", signs=none), unsealed("killed", "applying")], none).exit_code == 0


def test_a_run_that_another_ledger_began_with_is_a_second_root() -> None:
    elsewhere = sealed("elsewhere", hours=1)
    at_once = replace(sealed("at once"), finished_at=FIRST.finished_at + timedelta(minutes=9))
    chain = Chain([*RUNS, elsewhere, at_once], SIGNS)
    assert [each.run_id for each in (*RUNS, elsewhere, at_once) if chain.is_second_root(each)] == ["elsewhere"]


def test_only_a_run_that_ended_long_before_others_is_unknown_to_them() -> None:
    added, late = sealed("added"), sealed("late", hours=2)
    chain = Chain([*RUNS, added, late], SIGNS)
    assert [each.run_id for each in (*RUNS, added, late) if chain.is_unknown(each)] == ["added"]


def tolerated(rows: list[RunRow], signs: Signer = SIGNS, first: RunRow | None = None) -> set[str]:
    """Ids of runs without a digest that are no finding."""
    left = {each.run_id for each in rows if not each.digest}
    found = list(without_digest(left, rows, first, signs))
    assert len(found) == len(left)
    return {each for each in found if not isinstance(each, ProofFinding)}


@pytest.mark.parametrize("signs", [SIGNS, Signer(None)], ids=["with a key", "without"])
def test_only_open_runs_need_no_digest(signs: Signer) -> None:
    rows = [sealed("first", signs=signs)]
    rows += [unsealed(state, state) for state in ("planning", "planned", "applying", "finished", "abandoned", "x", "")]
    rows += [replace(unsealed("ended", "applying"), finished_at=AT)]
    rows += [unsealed("when", "finished", started_at=NEVER)]
    assert tolerated(rows, signs) == {"planning", "planned", "applying"}


@pytest.mark.parametrize("signs", [SIGNS, Signer(None)], ids=["with a key", "without"])
def test_the_newest_run_set_to_abandoned_is_a_finding(signs: Signer) -> None:
    """No later run names its digest. It is the newest of several runs, and the only one, which is the newest of all."""
    first = sealed("first", signs=signs)
    newest = sealed("newest", first, signs=signs, hours=1)
    changed = replace(newest, state="abandoned", text=f"{newest.text} abandoned")
    without = unsealed("newest", "abandoned", hours=1)
    assert findings(verified([first, changed], signs)) == [("newest", "run_changed")]
    assert findings(verified([first, without], signs)) == [("newest", "no_digest")]
    only = replace(first, state="abandoned", text=f"{first.text} abandoned")
    assert findings(verified([only], signs)) == [("first", "run_changed")]
    removed = verified([unsealed("first", "abandoned")], signs)
    assert findings(removed) == ([("first", "no_digest")] if signs.key else [])
    assert removed.unproven_runs == ([] if signs.key else ["first"])


def test_without_a_key_a_run_moved_before_all_digests_is_not_proven() -> None:
    none = Signer(None)
    first = sealed("first", signs=none)
    for state in ("finished", "abandoned"):
        early = unsealed("early", state, hours=-9)
        found = verified([first, early], none)
        assert (findings(found), found.unproven_runs) == ([], ["early"])
        assert findings(verified([FIRST, early])) == [("early", "no_digest")]


def test_with_a_key_a_run_is_before_digests_only_if_from_says_so() -> None:
    older = [unsealed(state, state, hours=-9) for state in ("finished", "abandoned")]
    assert tolerated([*RUNS, *older]) == set()
    assert tolerated([*RUNS, *older], first=SECOND) == {"finished", "abandoned"}
    assert tolerated([*RUNS, *older], first=replace(SECOND, text="changed")) == set()
    assert tolerated(older) == set(), "all digests were removed"


@pytest.mark.parametrize("state", ["finished", "abandoned"])
def test_a_run_moved_before_the_run_to_verify_from_is_no_success(state: str) -> None:
    """Its row alone says when it began: somebody may have unsealed and back-dated the newest run, or added one."""
    moved = unsealed("third", state, hours=-9)
    found = verified([FIRST, SECOND, moved], since="second")
    assert (findings(found), found.unproven_runs, found.exit_code) == ([], ["third"], ExitCode.CHANGES_PENDING)
    kept = verified([FIRST, SECOND, moved], since="second", expected=(THIRD.digest,))
    assert (findings(kept), kept.exit_code) == ([(None, "not_found")], ExitCode.TOPICS_FAILED)
    named = verified([FIRST, SECOND, moved, FOURTH], since="second")
    assert findings(named) == [("fourth", "run_removed")], "a later run names its digest"


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


@pytest.mark.parametrize("any_skipped", [False, True], ids=["without rows", "with rows"])
def test_approvals_after_the_end_of_a_plan_from_files_are_proven_by_its_load(any_skipped: bool) -> None:
    """It had nothing to send, so it ended; its load gives topics to other owners, and needs an approval."""
    plan = replace(sealed("plan", THIRD, hours=3), arguments={"files": "{}"})
    if not any_skipped:
        plan = replace(plan, digest="", previous=[], proof={})
    approved = RowsDigest(rows=1, sha256="of bob")

    def found(*more: RunRow, now: RowsDigest = approved, plan: RunRow = plan) -> Verified:
        return verify_rows([*RUNS, plan, *more], SIGNS, lambda _: {("approvals", "plan"): now})

    waits = found()
    assert (findings(waits), waits.unproven_runs, waits.exit_code) == ([], ["plan"], ExitCode.CHANGES_PENDING)
    load = sealed("load", plan if any_skipped else THIRD, hours=4)
    recorded = {PLAN_APPROVALS_ROWS: "1", PLAN_APPROVALS_SHA256: "of bob"}
    load = replace(load, arguments={"plan": "plan"}, proof={**load.proof, **recorded})
    assert (findings(found(load)), found(load).exit_code) == ([], ExitCode.DONE)
    kind = "rows_added" if any_skipped else "no_digest"
    assert findings(found(load, now=RowsDigest(rows=2, sha256="of bob and mallory"))) == [("plan", kind)]
    forged = replace(load, text="forged")
    assert set(findings(found(forged))) == {("load", "run_changed")}, "an unproven load proves nothing"
    assert found(forged).unproven_runs == ["plan"]
    no_files = found(plan=replace(plan, arguments={}))
    assert findings(no_files) == [("plan", kind)], "approvals of any other plan are proven by its own end"
    for acted in ("ok", "failed", "pending", "refused"):
        applied = found(plan=replace(plan, counts={"unchanged": 1, "skipped": 1, acted: 2}))
        assert findings(applied) == [("plan", kind)], "so are those of a plan from files that was applied"
    ended = found(plan=replace(plan, counts={"unchanged": 1, "skipped": 1, "refused": 0}))
    assert findings(ended) == []
    # A load without approvals has no digest. One of another key proves its approvals only with that key.
    of_other_key = sealed("load", plan if any_skipped else THIRD, signs=EARLIER_KEY, hours=4)
    of_other_key = replace(of_other_key, arguments={"plan": "plan"}, exit_code=0)
    assert [kind for _, kind in findings(found(of_other_key)) if kind in ("rows_added", "no_digest")] == []
    loaded = replace(unsealed("load", "finished"), arguments={"plan": "plan"}, exit_code=0)
    assert findings(found(loaded)) == [("plan", kind)], "so are those of one that was applied and had nothing left"
    assert findings(found(replace(loaded, exit_code=5))) == [], "a load that a guard stopped may be approved"


def test_rows_of_a_run_that_is_not_in_runs_are_a_finding() -> None:
    (found,) = without_digest({""}, RUNS, None, SIGNS)
    assert isinstance(found, ProofFinding)
    assert (found.run_id, found.kind.value) == (None, "run_removed")


def test_a_run_that_begins_while_tables_are_read_is_open_and_not_removed() -> None:
    """`runs` is read first. A run whose row is really gone is still missing when it is read again."""
    reads: list[int] = []

    def found(*late: RunRow) -> Verified:
        rows = {("plans", "begun"): RowsDigest(rows=1)}
        return verify_rows(RUNS, SIGNS, lambda _: rows, again=lambda: reads.append(1) or [*RUNS, *late])

    begun = found(unsealed("begun", "planning"))
    assert (findings(begun), begun.open_runs, begun.unproven_runs) == ([], ["begun"], ["begun"])
    assert begun.exit_code == ExitCode.CHANGES_PENDING
    assert findings(found()) == [("begun", "run_removed")]
    assert (verify_rows(RUNS, SIGNS, lambda _: {}, again=lambda: pytest.fail("read")).findings, len(reads)) == ([], 2)


def test_a_maintenance_that_begins_meanwhile_explains_missing_rows() -> None:
    found = verify_rows([KEPT], SIGNS, lambda _: {}, again=lambda: [KEPT, sweeping()])
    assert (findings(found), found.retention) == ([], ["first"])
    assert findings(verify_rows([KEPT], SIGNS, lambda _: {}, again=lambda: [KEPT])) == [("first", "rows_removed")]


NONE = Signer(None)
FORGED = replace(sealed("forged", SECOND, signs=NONE, hours=9), proof={**NONE.about})
LOST = replace(sealed("lost"), digest="0" * 64)


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([*RUNS, FORGED], ("forged", "not_signed")),
        ([*RUNS, replace(FIRST, digest="", previous=[], proof={})], ("first", "run_added")),
        ([*RUNS, sealed("elsewhere", hours=1)], ("elsewhere", "run_added")),
        ([*RUNS, sealed("later", THIRD, LOST, hours=3)], ("later", "run_removed")),
    ],
    ids=["without a key", "a second row", "of another ledger", "after a run that is gone"],
)
def test_with_a_key_what_somebody_added_is_found(rows: list[RunRow], kind: tuple[str, str]) -> None:
    assert kind in findings(verified(rows))


def test_without_a_key_a_run_that_no_later_run_names_was_added() -> None:
    first = sealed("first", signs=NONE)
    rows = [first, sealed("added", signs=NONE), sealed("second", first, signs=NONE, hours=1)]
    assert findings(verified(rows, NONE)) == [("added", "run_added")]


def test_signed_runs_are_not_verified_without_their_key() -> None:
    with pytest.raises(UsageError, match="run first is signed"):
        verified(RUNS, NONE)


@pytest.mark.parametrize("hours", [-1, 1])
def test_verification_begins_at_the_authentic_one_of_two_rows(hours: int) -> None:
    copied = replace(THIRD, digest="1" * 64, finished_at=THIRD.finished_at + timedelta(hours=hours), text="changed")
    assert verified([*RUNS, copied], since="third").earlier == 2


def test_rows_of_a_run_are_read_if_one_of_its_rows_is_not_before_the_first() -> None:
    """Rows of a run before the first aren't read; a second row with its id must not hide rows of `audit`."""
    left_out: list[set[str]] = []
    for rows in (RUNS, [*RUNS, replace(FIRST, digest="1" * 64, text="changed")]):
        verify_rows(rows, SIGNS, lambda ids: left_out.append(set(ids)) or {}, since="third")
    assert left_out == [{"first", "second"}, {"second"}]


def test_a_row_without_times_is_before_no_run() -> None:
    untimed = replace(claims_other_key(SECOND, FIRST), started_at=NEVER)
    assert ("second", "out_of_order") in findings(
        verified([FIRST, untimed, THIRD], since="third", other_keys=(EARLIER_ID,))
    )


def test_a_maintenance_that_nobody_signed_explains_no_missing_rows() -> None:
    arguments = {"command": "maintain", "audit_retention_days": "0"}
    kept = replace(FIRST, proof={**FIRST.proof, "audit_rows": "1", "audit_sha256": "0"})
    swept = replace(sealed("swept", kept, hours=30), arguments=arguments)
    assert findings(verified([kept, swept])) == []
    forged = replace(sealed("swept", kept, signs=NONE, hours=30), arguments=arguments)
    assert ("first", "rows_removed") in findings(verified([kept, forged]))
