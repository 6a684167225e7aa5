"""Approvals that allow what guards stopped: the numbers they need, per cluster, and the people who must give them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from rich.console import Console

from tests.unit.frames import dicts, frame, plain
from topicledger.cli.runs import render_approval
from topicledger.errors import UsageError
from topicledger.ledger.allowed import Allowed, read_allowed, written
from topicledger.ledger.outcomes import open_rows, with_outcomes
from topicledger.phases import MOVES
from topicledger.plan.allowing import (
    GUARDS,
    LOAD,
    StoppedActions,
    allowed_by_enough,
    by_cluster,
    combined,
    most_of,
    parse_allow,
    read_stopped,
    require_needed,
    stopped_in_words,
    stopped_load,
)
from topicledger.plan.approvals import Approvals
from topicledger.plan.batches import batched
from topicledger.resources.registry import ACTIONS
from topicledger.schemas import AUDIT, PLANS

STOPPED = (
    StoppedActions(cluster="east", needs={"deletes": 2}, actions=2),
    StoppedActions(cluster="east", needs={"losses": 3, "moves": 40}, actions=1),
    StoppedActions(cluster="west", needs={"deletes": 5}, actions=5),
)


def test_every_guard_of_the_registry_can_be_allowed() -> None:
    of_kinds = {kind.safeguards.guard.allowed_as for kind in ACTIONS.values() if kind.safeguards.guard}
    assert set(GUARDS) == of_kinds | {"losses", "disruptions", "removed_rows"}
    assert {"deletes", "changes", "moves", "acl_deletes", "quota_changes", "group_config_changes"} <= of_kinds


def let(stopped: Sequence[StoppedActions], *allowed: dict[str, int]) -> Allowed:
    """Return the allowance that the numbers of these people make if one person is enough."""
    return by_cluster(stopped, allowed_by_enough(stopped, [1] * len(stopped), allowed))


def test_numbers_count_per_cluster() -> None:
    """A number lets through each cluster that needs at most as many, as the guard's setting would."""
    assert let(STOPPED, {"deletes": 2}) == {"east": [{"deletes": 2}]}
    assert let(STOPPED, {"deletes": 5}) == {"east": [{"deletes": 2}], "west": [{"deletes": 5}]}
    assert let(STOPPED, {"losses": 3}) == {}
    assert let(STOPPED, {"losses": 3, "moves": 40}) == {"east": [{"losses": 3, "moves": 40}]}
    assert let(STOPPED, most_of(STOPPED)) == {  # type: ignore[arg-type]
        "east": [{"deletes": 2, "losses": 3, "moves": 40}],
        "west": [{"deletes": 5}],
    }
    assert most_of(STOPPED) == {"deletes": 5, "losses": 3, "moves": 40}


@pytest.mark.parametrize(
    ("allow", "message"),
    [
        ({"deletes": 6}, "--allow deletes=6 is more than needed: deletes=5 lets through the same"),
        ({"deletes": 4}, "--allow deletes=4 is more than needed: deletes=2 lets through the same"),
        ({"deletes": 1}, "--allow deletes=1 lets nothing through"),
        ({"losses": 3}, r"--allow losses=3 lets nothing through: .* east: losses=3,moves=40 \(1 action\)"),
        ({"deletes": 2, "changes": 1}, "--allow changes=1,deletes=2 is more than needed: deletes=2 lets"),
        ({"deletes": 2, "losses": 3}, "--allow deletes=2,losses=3 is more than needed: deletes=2 lets"),
    ],
)
def test_allowing_more_than_needed_is_refused(allow: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        require_needed("r", STOPPED, allow)


def test_allowing_what_is_needed_is_accepted() -> None:
    for allow in ({"deletes": 2}, {"deletes": 5}, {"losses": 3, "moves": 40}, most_of(STOPPED)):
        require_needed("r", STOPPED, allow)
    with pytest.raises(UsageError, match="guards stopped nothing of run r that --allow lets through"):
        require_needed("r", (), {"deletes": 1})


def test_a_plan_may_be_allowed_to_remove_rows_of_the_tables() -> None:
    """The load counts by itself: it lets through no deletes, and deletes need no load."""
    stopped = [*STOPPED, *stopped_load({"removed_rows": "7"})]
    assert stopped_in_words(stopped).endswith("; loading the files: removed_rows=7 (7 rows)")
    assert let(stopped, {"removed_rows": 7}) == {LOAD: [{"removed_rows": 7}]}
    require_needed("r", stopped, {"deletes": 2, "removed_rows": 7})
    for number, message in ((6, "lets nothing through"), (8, "removed_rows=7 lets through the same")):
        with pytest.raises(UsageError, match=message):
            require_needed("r", stopped, {"removed_rows": number})
    assert stopped_load({"removed_sha256": "..."}) == stopped_load(None) == []


def test_allowed_guards_are_parsed_and_unknown_ones_listed() -> None:
    assert parse_allow("losses=5, deletes=2") == {"losses": 5, "deletes": 2}
    for text, message in {
        "delete=2": "there is no guard `delete`",
        "max_deletes=2": "there is no guard `max_deletes`.*deletes",
        "deletes": "write a number from 1",
        "deletes=0": "write a number from 1",
        "deletes=-1": "write a number from 1",
        "deletes=1,deletes=2": "has deletes twice",
        "": "there is no guard",
    }.items():
        with pytest.raises(UsageError, match=message):
            parse_allow(text)


def enough(
    stopped: Sequence[StoppedActions], people: Sequence[int], allowed: Sequence[dict[str, int]]
) -> list[dict[str, int]]:
    return [dict(each.needs) for each in allowed_by_enough(stopped, people, allowed)]


def test_as_many_people_must_allow_as_must_approve() -> None:
    bob, carol, dave, eve = {"deletes": 2}, {"deletes": 3}, {"deletes": 5}, {"losses": 3, "moves": 40}
    two = [2, 2, 2]
    assert enough(STOPPED, two, [bob]) == []
    assert enough(STOPPED, two, [bob, carol]) == [{"deletes": 2}]
    assert enough(STOPPED, two, [bob, carol, dave, eve]) == [{"deletes": 2}]
    assert enough(STOPPED, two, [dave, dave]) == [{"deletes": 2}, {"deletes": 5}]
    assert enough(STOPPED, [0, 0, 0], [bob, eve]) == [{"deletes": 2}, {"losses": 3, "moves": 40}]
    assert enough(STOPPED, [0, 0, 0], []) == []
    assert enough((), [], [bob]) == []


LOSES, MOVES_MORE = {"losses": 2}, {"moves": 4}
BOTH = {**LOSES, **MOVES_MORE}
THREE = [StoppedActions(cluster="main", needs=each, actions=1) for each in (LOSES, MOVES_MORE, BOTH)]


def test_numbers_of_two_people_let_through_nothing_that_neither_allowed(spark: SparkSession) -> None:
    """A move to fewer replicas needs both numbers, and each person was told that it stays stopped."""
    ann, bob = LOSES, MOVES_MORE
    assert enough(THREE, [1, 1, 1], [ann, bob]) == [LOSES, MOVES_MORE]
    allowed = let(THREE, ann, bob)
    assert allowed == {"main": [LOSES, MOVES_MORE]}
    assert [each.is_let_through(allowed) for each in THREE] == [True, True, False]
    plans = [row(f"{number}", **GUARDED, guards=each.needs) | {"cluster": "main"} for number, each in enumerate(THREE)]
    opened = frame(spark, plain(PLANS.schema), plans).transform(open_rows(allowed))
    assert {each["topic"] for each in dicts(opened)} == {"0", "1"}
    assert enough(THREE, [1, 1, 1], [ann, bob, BOTH]) == [LOSES, MOVES_MORE, BOTH]
    assert let(THREE, BOTH) == {"main": [BOTH]}


def test_a_number_lets_through_no_action_that_needs_less_and_more_people() -> None:
    """An allowed action takes along those of its cluster that need less."""
    groups = [StoppedActions(cluster="east", needs=each, actions=1) for each in (LOSES, BOTH)]
    assert enough(groups, [2, 1], [BOTH]) == []
    assert enough(groups, [2, 1], [BOTH, LOSES]) == [LOSES]
    assert enough(groups, [2, 1], [BOTH, BOTH]) == [LOSES, BOTH]
    assert enough(groups, [1, 2], [BOTH]) == [LOSES]
    elsewhere = [groups[0], replace(groups[1], cluster="west")]
    assert enough(elsewhere, [2, 1], [BOTH]) == [BOTH]


def test_a_run_keeps_one_combination_unless_it_would_let_through_more() -> None:
    """Older versions read one combination of a cluster, and no list."""
    assert combined([LOSES, MOVES_MORE], THREE[:2]) == [BOTH]
    assert combined([LOSES, MOVES_MORE], THREE) == [LOSES, MOVES_MORE]
    assert combined([LOSES, MOVES_MORE], [replace(THREE[2], cluster="west")], "main") == [BOTH]
    assert combined([LOSES, BOTH, LOSES], THREE) == [BOTH]
    assert combined([], THREE) == []
    one, several = {"main": [BOTH], "": [{"removed_rows": 3}]}, {"main": [LOSES, MOVES_MORE]}
    assert json.loads(written(one)) == {"main": BOTH, "": {"removed_rows": 3}}
    assert [read_allowed(written(each)) for each in (one, several)] == [one, several]
    assert read_allowed(None) == {}


_NUMBERS = st.dictionaries(st.sampled_from(["deletes", "losses", "moves"]), st.integers(1, 3), min_size=1)
_GROUPS = st.lists(st.tuples(st.sampled_from(["east", "west"]), _NUMBERS, st.integers(1, 3)), min_size=1, max_size=6)


@given(_GROUPS, st.lists(_NUMBERS, max_size=4))
def test_actions_are_let_through_only_if_enough_people_allowed_them(
    groups: list[tuple[str, dict[str, int], int]], allowed: list[dict[str, int]]
) -> None:
    stopped = [StoppedActions(cluster=cluster, needs=needs, actions=1) for cluster, needs, _ in groups]
    people = [count for _, _, count in groups]
    passing = allowed_by_enough(stopped, people, allowed)
    kept = read_allowed(written(by_cluster(stopped, passing)))
    for each, count in zip(stopped, people, strict=True):
        assert each.is_let_through(kept) == (each in passing)
        if each in passing:
            assert sum(each.passes(numbers) for numbers in allowed) >= count


def row(topic: str, **more: Any) -> dict[str, Any]:
    action = {"run_id": "r", "cluster": "east", "topic": topic, "resource_type": "topic", "resource": topic}
    return {**action, "action": "delete", **more}


GUARDED = {"phase": "guard", "outcome": "refused", "error": "MAX_DELETES_EXCEEDED", "error_message": "too many"}


def test_allowed_actions_are_open_and_others_stay_stopped(spark: SparkSession) -> None:
    rows = [
        row("open"),
        row("two", **GUARDED, guards={"deletes": 2}),
        row("both", **GUARDED, guards={"deletes": 2, "losses": 1}),
        row("elsewhere", **GUARDED, guards={"deletes": 2}) | {"cluster": "west"},
        row("mismatch", phase="guard", outcome="refused", error="CLUSTER_ID_MISMATCH"),
    ]
    plans = frame(spark, plain(PLANS.schema), rows)
    assert {each["topic"] for each in dicts(plans.transform(open_rows({})))} == {"open"}
    found = dicts(plans.transform(open_rows({"east": [{"deletes": 2}]})))
    assert {each["topic"]: (each["phase"], each["error"]) for each in found} == dict.fromkeys(
        ("open", "two"), (None, None)
    )
    assert read_stopped(plans) == [
        StoppedActions(cluster="east", needs={"deletes": 2}, actions=1),
        StoppedActions(cluster="east", needs={"deletes": 2, "losses": 1}, actions=1),
        StoppedActions(cluster="west", needs={"deletes": 2}, actions=1),
    ]
    audit = frame(spark, plain(AUDIT.schema), [row("two", phase="guard", outcome="refused"), VALIDATED])
    standing = {each["topic"]: each["standing"] for each in dicts(with_outcomes(plans, audit))}
    assert standing == {"open": "planned", "two": "validated", "both": None, "elsewhere": None, "mismatch": None}


VALIDATED = row("two", phase="validate", outcome="ok")


def test_stopped_actions_share_batches_only_with_their_like(spark: SparkSession) -> None:
    rows = [
        row("open", waits=False),
        *(row(topic, **GUARDED, guards={"deletes": 2}, waits=False) for topic in "ab"),
        row("c", **GUARDED, guards={"deletes": 2, "losses": 1}, waits=False),
        row("d", phase="policy", outcome="refused", waits=False),
    ]
    schema = plain(PLANS.schema).add("waits", "boolean").add("moves", MOVES)
    found = dicts(frame(spark, schema, rows).transform(batched(100, guarded=True)))
    assert {each["topic"]: each["batch"] for each in found} == {
        "open": 0,
        "a": 1_000_000,
        "b": 1_000_000,
        "c": 2_000_000,
        "d": None,
    }


@pytest.mark.parametrize(
    ("allows", "left"),
    [
        ({}, "loading the files: removed_rows=1 (1 row); main: deletes=2 (2 actions)"),
        ({"removed_rows": 1}, "main: deletes=2 (2 actions)"),
        ({"removed_rows": 1, "deletes": 2}, None),
    ],
)
def test_an_approval_says_what_guards_still_stop(
    allows: dict[str, int], left: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """An approval without --allow lets nothing of it through."""
    stopped = [
        StoppedActions(cluster=LOAD, needs={"removed_rows": 1}, actions=1),
        StoppedActions(cluster="main", needs={"deletes": 2}, actions=2),
    ]
    found = Approvals(
        run_id="r",
        requested_by="ann",
        plan_digest="",
        needed=1,
        by=("bob",),
        stopped=stopped,
        passing=[each for each in stopped if each.passes(allows)],
    )
    render_approval(found, Console(width=200))
    lines = capsys.readouterr().out.splitlines()
    command = "runs approve r --allow deletes=2,removed_rows=1 --by WHO"
    expected = [] if left is None else [f"still stopped by guards: {left}; if this is meant, before `apply`: {command}"]
    assert lines[2:] == expected
    once = ", once the removed rows are allowed" if left is not None and "loading" in left else ""
    assert lines[1] == f"apply --run-id r applies it{once}"


def test_a_missing_approval_names_one_command_for_all_that_waits() -> None:
    load = StoppedActions(cluster=LOAD, needs={"removed_rows": 1}, actions=1)
    deletes = StoppedActions(cluster="main", needs={"deletes": 2}, actions=2)
    found = Approvals(run_id="r", requested_by="ann", plan_digest="", needed=2, by=("bob",), asked={"losses": 1})
    begin = "it needs the approval of 1 person in addition to bob other than ann, who requested it: runs approve r"
    assert str(found) == f"{begin} --allow losses=1 --by WHO"
    assert found.in_words([deletes]) == (
        f"{begin} --allow deletes=2,losses=1 --by WHO; without --allow it stays stopped"
    )
    assert found.in_words([deletes, load]).endswith(
        "--allow deletes=2,losses=1,removed_rows=1 --by WHO; without --allow nothing is loaded and nothing is sent"
    )


@pytest.mark.parametrize("needed", [1, 2])
def test_approvals_let_nothing_through_while_one_is_missing(needed: int) -> None:
    stopped = [StoppedActions(cluster="main", needs={"deletes": 2}, actions=2)]
    found = Approvals(
        run_id="r",
        requested_by="ann",
        plan_digest="",
        needed=needed,
        by=("bob",),
        stopped=stopped,
        passing=stopped,
    )
    assert found.let_through == ({"main": [{"deletes": 2}]} if needed == 1 else {})


def test_an_approval_names_numbers_together_only_if_allowed_together(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = Approvals(run_id="r", requested_by="ann", plan_digest="", needed=1, by=("bob", "carol"), stopped=THREE)
    render_approval(replace(found, passing=THREE[:2]), Console(width=200))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "run r is approved by bob, carol, with what guards stopped: losses=2; moves=4"
    assert lines[2].startswith("still stopped by guards: main: losses=2,moves=4 (1 action); if this is meant")
    render_approval(replace(found, passing=THREE), Console(width=200))
    assert "with what guards stopped: losses=2,moves=4\n" in capsys.readouterr().out
