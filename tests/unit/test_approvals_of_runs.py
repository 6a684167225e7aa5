"""Approvals of runs: which run can be approved, by whom, and when."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tests.unit.frames import frame, plain
from topicledger.config.guards import GuardSettings
from topicledger.errors import GuardStopped, UsageError
from topicledger.ledger import digests
from topicledger.ledger.allowed import read_allowed
from topicledger.phases import GUARDED
from topicledger.plan import approvals
from topicledger.plan.allowing import LOAD, StoppedActions
from topicledger.plan.approvals import Approvals, approve
from topicledger.schemas import APPROVALS, PLANS, RUNS, SENT_BATCHES


@pytest.mark.parametrize("state", ["applying", "planned"])
def test_run_that_is_applied_can_be_approved_after_its_plan_grew(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster was planned later, so the plan waits again: refused for its age, nobody could ever finish it."""
    old = datetime.now(UTC) - timedelta(days=2)
    row = {
        "run_id": "r",
        "state": state,
        "observed_at": old,
        "started_at": old,
        "requested_by": "ann",
        "arguments": {},
        "scope": None,
        "epoch": 1,
        "digest": None,
    }
    waiting = Approvals(run_id="r", requested_by="ann", plan_digest="of two clusters", needed=1, by=())
    monkeypatch.setattr(approvals, "require_run", lambda *_: row)
    monkeypatch.setattr(approvals, "of_run", lambda *_: waiting)
    rows: list[Any] = []
    ledger: Any = SimpleNamespace(
        root="ledger",
        ensure=lambda *_: None,
        rows=lambda _, each: each,
        append=lambda _, each, **__: rows.extend(each),
    )
    settings: Any = SimpleNamespace(guards=GuardSettings(approvals=1))
    if state == "planned":
        with pytest.raises(GuardStopped, match="nothing was sent; plan again"):
            approve(ledger, settings, "r", by="bob")
        assert rows == []
    else:
        approve(ledger, settings, "r", by="bob")
        assert [(each["by"], each["plan_digest"]) for each in rows] == [("bob", "of two clusters")]
        # Nothing else of the larger plan needs an approval, but guards stopped some of it.
        monkeypatch.setattr(approvals, "of_run", lambda *_: replace(waiting, needed=0))
        stopped = StoppedActions(cluster="west", needs={"deletes": 1}, actions=1)
        monkeypatch.setattr(approvals, "read_stopped", lambda *_: [stopped])
        with pytest.raises(UsageError, match="run r is being applied"):
            approve(ledger, settings, "r", by="bob")
        approve(ledger, settings, "r", by="bob", allow={"deletes": 1})
        assert rows[-1]["allows"] == {"deletes": 1}


@pytest.mark.parametrize("loaded", [False, True])
def test_a_plan_that_only_changes_tables_can_be_approved_until_it_is_loaded(
    loaded: bool, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    """It is finished, as it has nothing to send; its load may still give topics to other owners."""
    row = {
        "run_id": "r",
        "state": "finished",
        "exit_code": 0,
        "observed_at": None,
        "started_at": datetime.now(UTC),
        "requested_by": "ann",
        "arguments": {"files": "{}"},
        "scope": None,
        "epoch": 1,
        "digest": None,
    }
    load = {"run_id": "l", "exit_code": 0, "arguments": {"command": "load_manifests", "plan": "r" if loaded else "s"}}
    monkeypatch.setattr(approvals, "require_run", lambda *_: row)
    of_plan = Approvals(run_id="r", requested_by="ann", plan_digest="of no action", needed=1, by=())
    monkeypatch.setattr(approvals, "of_run", lambda *_: of_plan)
    rows: list[Any] = []
    ledger: Any = SimpleNamespace(
        read=lambda _: frame(spark, plain(RUNS.schema), [load]),
        ensure=lambda *_: None,
        rows=lambda _, each: each,
        append=lambda _, each, **__: rows.extend(each),
    )
    settings: Any = SimpleNamespace(guards=GuardSettings(approvals=1))
    if loaded:
        with pytest.raises(UsageError, match="is finished"):
            approve(ledger, settings, "r", by="bob")
    else:
        approve(ledger, settings, "r", by="bob")
    assert [each["by"] for each in rows] == ([] if loaded else ["bob"])


@pytest.mark.parametrize(
    ("changed", "recorded", "error"),
    [
        ({"epoch": 2}, False, "run r was started or ended while you approved it, and is planned now: nothing was"),
        ({"state": "finished", "digest": "d"}, False, "is finished now: nothing was approved"),
        ({}, True, "run r ended while you approved it: the approval is recorded, but came too late to count"),
    ],
    ids=["started", "ended", "ended while it was recorded"],
)
def test_an_approval_that_comes_too_late_is_no_success(
    changed: dict[str, Any], recorded: bool, error: str, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    """The run read its approvals before this one: its digest stays without it."""
    row = {
        "run_id": "r",
        "state": "planned",
        "observed_at": datetime.now(UTC),
        "started_at": datetime.now(UTC),
        "requested_by": "ann",
        "arguments": {},
        "scope": None,
        "epoch": 1,
        "digest": None,
        "proof": None,
    }
    ended = {**row, "state": "finished", "digest": "d", "proof": {}}
    reads = iter([row, {**row, **changed}, ended])
    monkeypatch.setattr(approvals, "require_run", lambda *_: next(reads))
    waiting = Approvals(run_id="r", requested_by="ann", plan_digest="d", needed=1, by=())
    monkeypatch.setattr(approvals, "of_run", lambda *_: waiting)
    rows: list[Any] = []
    ledger: Any = SimpleNamespace(
        ensure=lambda *_: None,
        rows=lambda _, each: each,
        append=lambda _, each, **__: rows.extend(each),
        read=lambda _: frame(spark, plain(APPROVALS.schema), [{"run_id": "r", "by": "bob"}]),
    )
    settings: Any = SimpleNamespace(guards=GuardSettings(approvals=1))
    with pytest.raises(UsageError, match=error):
        approve(ledger, settings, "r", by="bob")
    assert bool(rows) is recorded


RUN = {"run_id": "r", "requested_by": "ann", "scope": None, "arguments": {}}


def test_showing_approvals_changes_no_table(spark: SparkSession) -> None:
    """`runs show` has no right to write, and tables of the previous version lack columns."""
    found = approvals.of_run(stored(spark, [{"by": "bob"}]), GuardSettings(approvals=1), RUN)
    assert (found.by, found.missing, found.allows) == (("bob",), 0, {})


def test_allowances_of_another_plan_scope_or_requester_do_not_count(spark: SparkSession) -> None:
    scope = '{"owners": ["a"]}'
    plan = approvals.of_run(stored(spark, [], new=True), GuardSettings(), RUN | {"scope": scope}).plan_digest
    rows = [
        {"by": "bob", "plan_digest": plan, "allows": {"deletes": 2}},
        {"by": "carol", "plan_digest": plan, "allows": {"deletes": 3}},
        {"by": " ANN ", "plan_digest": plan, "allows": {"deletes": 9}},
        {"by": "dan", "plan_digest": "of another plan", "allows": {"deletes": 9}},
        {"by": "eve", "allows": {"losses": 1}},
        {"by": "fay", "plan_digest": plan, "allows": {"deletes": 9}, "run_id": "other"},
    ]
    found = approvals.of_run(stored(spark, rows, new=True), GuardSettings(approvals=2), RUN | {"scope": scope})
    assert (found.by, found.asked, found.allowed_by) == (("bob", "carol"), {"deletes": 3}, {"deletes": 1})
    assert (found.missing, found.allows) == (0, {"deletes": 2})


def test_digest_covers_what_loading_the_files_of_a_plan_changes(spark: SparkSession) -> None:
    """A plan with nothing to send has no rows, as has every other."""
    ledger = stored(spark, [])
    loads: list[dict[str, str]] = [
        {},
        {"files": '{"a.yaml": "1"}'},
        {"files": '{"a.yaml": "2"}'},
        {"files": '{"a.yaml": "2"}', "replaces": "payments"},
        {"files": '{"a.yaml": "2"}', "replaces": "payments", "removed_sha256": '{"manifests": "3"}'},
    ]
    found = [approvals.digest_of(ledger, RUN | {"arguments": {"command": "plan", **each}}) for each in loads]
    assert len({*found}) == len(loads)
    # Allowed numbers are recorded there, too, and aren't part of the plan.
    assert approvals.digest_of(ledger, RUN | {"arguments": {**loads[-1], "allowed": "{}"}}) == found[-1]
    assert found[0] == approvals.digest_of(ledger, RUN | {"arguments": None})


@pytest.mark.thorough
def test_an_allowance_takes_no_approval_away(spark: SparkSession) -> None:
    """Too few people allow the deletes: these stay stopped, and what is open is approved as before."""

    def of(guards: GuardSettings, *rows: dict[str, Any]) -> Approvals:
        return approvals.of_run(stored(spark, list(rows), new=True), guards, RUN)

    bob, carol, dave = ({"by": name} for name in ("bob", "carol", "dave"))
    allow = {"allows": {"deletes": 2}}
    every, only_deletes = GuardSettings(approvals=2), GuardSettings(approvals_for={"deletes": 2})
    for given in ([bob, carol, dave | allow], [bob, carol, bob | allow]):
        found = of(every, *given)
        assert (found.needed, found.missing, found.allows, found.asked) == (2, 0, {}, {"deletes": 2})
    assert of(every, bob | allow, carol | allow).let_through == {"c": [{"deletes": 2}]}
    found = of(only_deletes, bob | allow)
    assert (found.needed, found.missing, found.let_through) == (0, 0, {})
    found = of(only_deletes, bob | allow, dave | allow)
    assert (found.needed, found.missing, found.let_through) == (2, 0, {"c": [{"deletes": 2}]})


def test_one_person_cannot_approve_twice_or_their_own_plan(spark: SparkSession) -> None:
    """Old rows may have several spellings of a name."""
    names = ["José", "Jose\u0301", " ann \u00a0 lee", "Ann Lee", "bob", "bob\u200b", "ｂｏｂ"]
    ledger = stored(spark, [{"by": name, "at": at(number)} for number, name in enumerate(names)])
    found = approvals.of_run(ledger, GuardSettings(approvals=4), RUN)
    assert (found.by, found.missing) == (("José", " ann \u00a0 lee", "bob"), 1)
    found = approvals.of_run(ledger, GuardSettings(approvals=4), RUN | {"requested_by": "ＢＯＢ"})
    assert (found.by, found.missing) == (("José", " ann \u00a0 lee"), 2)


def at(minute: int) -> datetime:
    return datetime(2026, 1, 2, 3, minute, tzinfo=UTC)


def test_each_person_must_allow_all_guards_of_an_action(spark: SparkSession) -> None:
    """Bob allows one of its guards and Carol the other: nobody allowed the action."""
    needs: list[dict[str, int]] = [{"losses": 2}, {"moves": 4}, {"losses": 2, "moves": 4}]
    bob, carol, dave = ({"by": by, "allows": each} for by, each in zip(("bob", "carol", "dave"), needs, strict=True))
    found = approvals.of_run(stored(spark, [bob, carol], new=True, guards=needs), GuardSettings(), RUN)
    assert [each.needs for each in found.passing] == needs[:2]
    assert found.let_through == {"c": needs[:2]}
    found = approvals.of_run(stored(spark, [bob, carol, dave], new=True, guards=needs), GuardSettings(), RUN)
    assert found.let_through == {"c": needs[2:]}


def stored(
    spark: SparkSession, rows: list[dict[str, Any]], *, new: bool = False, guards: Sequence[dict[str, int]] = ()
) -> Any:
    """A ledger that can't be written, with a plan of run r, and approvals: by default of that plan without a scope.

    `guards`: of each stopped action; by default one, of deletes.
    """

    def old(table: Any, column: str) -> StructType:
        return StructType([each for each in plain(table.schema) if new or each.name != column])

    stopped = {"run_id": "r", "cluster": "c", "action": "delete", "phase": "guard"}
    rows_of_plan: list[dict[str, Any]] = [stopped, {**stopped, "action": "create", "phase": None}]
    if new:
        of_stopped: Sequence[dict[str, int]] = guards or [{"deletes": 2}]
        rows_of_plan = [*({**stopped, "guards": each} for each in of_stopped), rows_of_plan[1]]
    plans = frame(spark, old(PLANS, "guards"), rows_of_plan)
    whole = plans.withColumn("guards", F.lit(None).cast(GUARDED)) if not new else plans
    digest = digests.of_run({PLANS.name: plans})[PLANS.name].sha256
    given = frame(spark, old(APPROVALS, "allows"), [{"run_id": "r", "plan_digest": digest, **row} for row in rows])
    every = given if new else given.withColumn("allows", F.lit(None).cast(GUARDED))
    return SimpleNamespace(
        stored=lambda _: plans, exists=lambda _: True, read=lambda table: whole if table is PLANS else every
    )


@pytest.mark.parametrize(
    ("sent", "missing", "allowed"),
    [
        (False, 0, {"west": {"deletes": 1}}),
        (False, 1, {}),
        (True, 0, {"east": {"deletes": 2}, "west": {"deletes": 1}}),
        (True, 1, {"east": {"deletes": 2}}),
    ],
)
def test_an_allowance_of_a_smaller_plan_lapses_if_nothing_was_sent(
    sent: bool, missing: int, allowed: dict[str, dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start took it and was killed; then another cluster was planned, and others approved the larger plan."""
    stopped = [StoppedActions(cluster=name, needs={"deletes": count}, actions=count) for name, count in SIZES.items()]
    found = Approvals(
        run_id="r", requested_by="ann", plan_digest="", needed=missing, by=(), stopped=stopped, passing=stopped[1:]
    )
    monkeypatch.setattr(approvals, "_may_allow", lambda _: True)
    monkeypatch.setattr(approvals, "of_run", lambda *_: replace(found, allowed_by={} if missing else {"deletes": 1}))
    kept: dict[str, Any] = {"allowed": json.dumps({"east": {"deletes": 2}})}
    run: Any = SimpleNamespace(
        run_id="r",
        row={"requested_by": "ann"},
        state="planned",
        resumed=True,
        commits=SimpleNamespace(settle=lambda: None),
        ledger=None,
        settings=SimpleNamespace(guards=GuardSettings()),
        arguments=kept,
        allowed={"east": [{"deletes": 2}]},
        may_have_sent=sent,
        commit_state=lambda _, arguments: kept.update(arguments),
    )
    monkeypatch.setattr(approvals, "_may_be_sent", lambda run: run.allowed)
    found = approvals.take_allowed(run, may_grow=lambda: False)
    assert found is not None
    assert found.missing == missing
    assert json.loads(kept["allowed"]) == allowed
    # This start plans another cluster, so that the approvals lapse before anything is sent.
    run.allowed = read_allowed(kept["allowed"])
    approvals.take_allowed(run, may_grow=lambda: True)
    assert json.loads(kept["allowed"]) == (allowed if sent else {})


SIZES = {"east": 2, "west": 1}


def test_an_allowance_stays_only_where_stopped_actions_may_be_sent(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one cluster a start marked a stopped batch, on another an open one, on one none; on one it lives."""
    stopped = {"run_id": "r", "action": "delete", "phase": "guard", "guards": {"deletes": 1}, "batch": 1}
    rows = [{**stopped, "cluster": name} for name in ("sent", "open", "none")]
    plans = frame(spark, PLANS.schema, [*rows, {**stopped, "cluster": "open", "guards": None, "batch": 0}])
    marks = [
        {"run_id": run_id, "epoch": 0, "cluster": cluster, "action": "delete", "batch": batch}
        for run_id, cluster, batch in (("r", "sent", 1), ("r", "open", 0), ("another", "none", 1))
    ]
    monkeypatch.setattr(approvals, "of_live", lambda *_: [{"cluster": "live"}])
    allowed = {name: [{"deletes": 1}] for name in ("sent", "open", "none", "live", LOAD)}
    run: Any = SimpleNamespace(
        run_id="r",
        allowed=allowed,
        plans=lambda: plans,
        ledger=SimpleNamespace(read=lambda _: frame(spark, SENT_BATCHES.schema, marks)),
    )
    assert set(approvals._may_be_sent(run)) == {"sent", "live", LOAD}


@pytest.mark.parametrize("asked_again", [False, True])
def test_a_later_start_merges_no_combinations_of_an_earlier_one(asked_again: bool) -> None:
    """Two people allowed one action each, and an earlier start may have sent these; a third action needs both."""
    one, two = {"losses": 2}, {"moves": 4}
    stopped = [StoppedActions(cluster="main", needs=each, actions=1) for each in (one, two, {**one, **two})]
    found = Approvals(run_id="r", requested_by="ann", plan_digest="", needed=0, by=())
    if asked_again:
        found = replace(found, stopped=stopped, passing=stopped[1:2])
    before = {"main": [one, two]}
    kept: list[Any] = []
    run: Any = SimpleNamespace(
        resumed=True,
        state="applying",
        arguments={},
        allowed=before,
        may_have_sent=True,
        commit_state=lambda _, arguments: kept.append(read_allowed(arguments["allowed"])),
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(approvals, "read", lambda _: found)
        patched.setattr(approvals, "_may_be_sent", lambda run: run.allowed)
        approvals.take_allowed(run, may_grow=lambda: False)
        assert kept == [], "as it was"
        run.allowed = {"main": [one]}
        approvals.take_allowed(run, may_grow=lambda: False)
    assert kept == ([before] if asked_again else [])


@pytest.mark.parametrize(
    ("state", "observed", "unsent"),
    [("planned", True, True), ("planning", True, True), ("planning", False, False), ("applying", True, False)],
)
def test_a_plan_that_lacks_a_cluster_can_be_approved_too(state: str, observed: bool, unsent: bool) -> None:
    row = {"state": state, "observed_at": datetime.now(UTC) if observed else None}
    assert approvals.is_unsent_plan(row) is unsent
