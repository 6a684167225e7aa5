"""A run's summary of its failures, and of a plan that waits for approval."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import create_autospec

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from tests.unit.frames import frame, plain
from topicledger.apply.planned import Pending
from topicledger.apply.rendering import is_waiting, nothing_to_send, render, render_waiting
from topicledger.apply.summary import (
    ClusterCounts,
    Failure,
    Summary,
    Warned,
    _failures,
    _left_alone,
    _warnings,
    summarise,
)
from topicledger.apply.summary import results as summary_results
from topicledger.config.settings import PolicySettings, PolicySpec, Settings, TablesSettings
from topicledger.kinds import NAMES
from topicledger.ledger.allowed import read_allowed
from topicledger.ledger.outcomes import open_rows
from topicledger.ledger.rows import WARNING
from topicledger.ledger.run import Run
from topicledger.model import RunState
from topicledger.model.scope import EVERYTHING
from topicledger.plan.allowing import StoppedActions
from topicledger.plan.lines import RETURNED
from topicledger.schemas import AUDIT, PLANS

COLUMNS = "cluster string, topic string, resource string, action string, phase string, outcome string"
ANSWER = "error_code int, error string, error_message string"


def test_topics_with_the_same_reason_are_one_line_with_a_count(spark: SparkSession) -> None:
    """Failures of a different or unreachable cluster, and of rows that another owner declares, are one line each."""
    rows = []
    for error in ("CLUSTER_ID_MISMATCH", "CLUSTER_UNREACHABLE", "NOT_YOURS", "INVALID_CONFIGS"):
        for number in range(30):
            name = f"{error}.{number:02}"
            rows.append(("main", name, name, "create", "guard", "refused", -1, error, "the reason", False))
    alone = ("main", "A.alone", "A.alone", "create", "manifest", "refused", -1, "NOT_YOURS", "another reason", False)
    allowed = ("main", "B", "B", "delete", "guard", "refused", -1, "MAX_DELETES_EXCEEDED", "allowed since", True)
    found = _failures(spark.createDataFrame([*rows, alone, allowed], f"{COLUMNS}, {ANSWER}, planned boolean"))
    assert len(found) == 20
    counted = {(each.error, each.topics): each for each in found if each.topics > 1}
    assert {*counted} == {("CLUSTER_ID_MISMATCH", 30), ("CLUSTER_UNREACHABLE", 30), ("NOT_YOURS", 30)}
    assert all(each.resource is None and each.error_message == "the reason" for each in counted.values())
    assert [(each.resource, each.action) for each in found if each.topics == 1 and each.topic == "A.alone"] == [
        ("A.alone", "create")
    ]
    assert all(each.error != "MAX_DELETES_EXCEEDED" for each in found)


WAITS = "it needs the approval of 1 person other than ann, who requested it"
STOPPED = StoppedActions(cluster="main", needs={"deletes": 3}, actions=3)
BY_GUARDS = [
    "stopped by guards: main: deletes=3 (3 actions)",
    "if they are meant, before `apply`: runs approve R --allow deletes=3 --by WHO",
]


@pytest.mark.parametrize(
    ("pending", "problems", "lines"),
    [
        (Pending(count=2, waits_for=WAITS), [], [f"not approved: {WAITS}"]),
        (
            Pending(count=2, waits_for=WAITS),
            ["cluster a can't be reached", "cluster b can't be reached"],
            [f"not approved: {WAITS}; not finished: cluster a can't be reached and 1 more"],
        ),
        (Pending(stopped=[STOPPED]), [], BY_GUARDS),
        (Pending(stopped=[STOPPED]), ["x"], [*BY_GUARDS, "not finished: x"]),
    ],
)
def test_an_apply_that_sends_nothing_prints_why_and_not_the_plan(
    pending: Pending, problems: list[str], lines: list[str]
) -> None:
    out = io.StringIO()
    summary = Summary(
        run_id="R",
        state="planned",
        exit_code=5,
        manifest_version=1,
        clusters=(),
        decisions={"unchanged": 3},
        pending=pending,
        failures=(),
        query="",
        problems=problems,
    )
    assert is_waiting(summary)
    render_waiting(summary, Console(file=out, width=200))
    assert out.getvalue().splitlines() == lines


def a_failure(error: str, phase: str = "guard") -> Failure:
    return Failure(
        cluster="main", topic="t", resource="t", action="delete", phase=phase, outcome="refused", error_code=-1,
        error=error, error_message="why",
    )  # fmt: skip


def shown(**more: Any) -> list[str]:
    """Return the lines that a plan prints."""
    out = io.StringIO()
    about: dict[str, Any] = {
        "run_id": "R", "state": "planned", "exit_code": 5, "manifest_version": 2, "clusters": (), "pending": Pending(),
        "decisions": {"unchanged": 3}, "failures": (), "query": "",
    }  # fmt: skip
    render(Summary(**{**about, **more}), Console(file=out, width=200))
    return out.getvalue().splitlines()


@pytest.mark.parametrize(
    ("stopped", "refused", "column", "title"),
    [
        ([STOPPED], 3, ["stopped", "3"], "Stopped by guards, until they are allowed: 3"),
        (
            [STOPPED], 5, ["stopped", "3", "refused", "2"],
            "Failed or refused: 2; Stopped by guards, until they are allowed: 3",
        ),
        ([replace(STOPPED, cluster="other")], 3, ["refused", "3"], "Failed or refused: 3"),
        ([], 3, ["refused", "3"], "Failed or refused: 3"),
    ],
)  # fmt: skip
def test_actions_that_wait_for_an_approval_are_not_called_refused(
    stopped: list[StoppedActions], refused: int, column: list[str], title: str
) -> None:
    counts = ClusterCounts(cluster="main", outcomes={"refused": refused})
    lines = shown(
        clusters=[counts], pending=Pending(stopped=stopped), failures=[a_failure("MAX_DELETES_EXCEEDED")] * refused
    )
    names, values = (re.findall(r"\w+", lines[at]) for at in (3, 5))
    assert dict(zip(names, values, strict=True)) == {"cluster": "main", **dict(zip(*[iter(column)] * 2, strict=True))}
    assert title in lines


def test_the_version_of_a_plan_from_files_is_that_before_they_are_loaded() -> None:
    """An `apply` prints it, too, after it loaded them."""
    of_files = Pending(files=["topics/"])
    assert (
        shown(pending=of_files, state="finished")[0]
        == "run R: finished, planned from its files and manifests at version 2"
    )
    assert shown()[0] == "run R: planned, manifests at version 2"


IN_VALUES = "in partitions, replication factor or placement"


@pytest.mark.parametrize(
    ("drifted", "compared", "message"),
    [
        (0, True, "nothing to create, delete or change"),
        (1, True, f"nothing to create, delete or change; 1 topic differs {IN_VALUES}"),
        (0, False, "nothing to create or delete; configs were not compared: run topicledger drift"),
        (
            2, False, f"nothing to create or delete; 2 topics differ {IN_VALUES}; "
            "configs were not compared: run topicledger drift",
        ),
        (0, None, "nothing was planned"),
        (2, None, f"nothing was planned; 2 topics differ {IN_VALUES}"),
    ],
)  # fmt: skip
def test_a_run_with_nothing_to_send_says_only_what_is_known(drifted: int, compared: bool | None, message: str) -> None:
    assert nothing_to_send(drifted, configs_compared=compared) == message


def test_a_revert_counts_only_what_it_is_about() -> None:
    """Topics that its run never touched would be called unmanaged, although most are declared."""
    counted: Any = {"unchanged": 3, "drifted": 2, "unmanaged": 227}
    names = [_left_alone(cast(Run, SimpleNamespace(reverts=each)), counted) for each in ("r0", None)]
    assert names == [("unchanged",), ("unchanged", "drifted", "unmanaged")]


def results_of(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    """Return results of actions on topics, as `summary.results` does."""
    results = spark.createDataFrame(rows, f"{COLUMNS}, {ANSWER}, planned boolean")
    results = results.withColumn("resource_type", F.lit("TOPIC"))
    return results.select("*", *(F.lit(None).cast(AUDIT.schema[name].dataType).alias(name) for name in RETURNED))


def a_run(spark: SparkSession, planned: Sequence[dict[str, Any]]) -> Any:
    """Return a run whose open actions are rows of `plans`."""
    return SimpleNamespace(
        open_actions=lambda: frame(spark, PLANS.schema, planned),
        run_id="R",
        state=RunState.PLANNED,
        manifest_version=1,
        arguments={},
        scope=EVERYTHING,
        settings=SimpleNamespace(policies=PolicySettings(), changes={}),
        rebalances=None,
        reverts=None,
        ledger=SimpleNamespace(sql_name=lambda _: "audit"),
    )


@pytest.mark.parametrize(
    ("outcome", "error", "code"),
    [
        ("failed", "PLAN_EXPIRED", 5),
        ("refused", "PLAN_EXPIRED", 5),
        ("refused", "LAST_CLUSTER_ACL", 5),
        ("failed", "TOPIC_ALREADY_EXISTS", 4),
        ("refused", "CHANGED_SINCE_PLAN", 4),
    ],
)
def test_a_plan_that_gets_too_old_is_stopped_by_a_guard(
    spark: SparkSession, outcome: str, error: str, code: int
) -> None:
    """Also if a move had begun by then: its row is failed, since a part of it was sent."""
    moved = ("main", "t", "t", "reassign", "apply", outcome, -1, error, "1 of 2 partitions moved", True)
    results = results_of(spark, moved)
    found = summarise(a_run(spark, []), results, {}, planning_only=False, warned=False)
    assert (found.exit_code, found.pending.guarded) == (code, code == 5)


@pytest.mark.parametrize(
    ("error", "code"), [("CLUSTER_UNREACHABLE", 1), ("UNKNOWN_TOPIC_OR_PARTITION", 4), ("NO_ANSWER", 4)]
)
def test_only_what_a_later_start_decides_about_keeps_a_run_open(spark: SparkSession, error: str, code: int) -> None:
    """A topic that brokers don't describe has failed: a later start of the run doesn't ask about it again."""
    unseen = ("main", "t", "t", None, "observe", "failed", -1, error, "why", False)
    done = ("main", "u", "u", "create", "verify", "ok", 0, None, None, True)
    found = summarise(a_run(spark, []), results_of(spark, unseen, done), {}, planning_only=False, warned=False)
    assert (found.exit_code, found.failure_count) == (code, 1)


@pytest.mark.parametrize(("planning_only", "code", "pending"), [(True, 0, 2), (False, 1, 1)])
def test_a_plan_counts_actions_that_its_approval_lets_through(
    spark: SparkSession, planning_only: bool, code: int, pending: int
) -> None:
    """Nobody validated them yet, and only `apply` does: for it, they are unfinished until it has."""
    guarded = ("main", "t", "t", "delete", "guard", "refused", -1, "MAX_DELETES_EXCEEDED", "too many", True)
    validated = ("main", "u", "u", "create", "validate", "ok", 0, None, None, True)
    results = results_of(spark, guarded, validated)
    planned = [
        {"cluster": "main", "resource_type": "TOPIC", "resource": name, "topic": name, "action": action}
        for name, action in (("t", "delete"), ("u", "create"))
    ]
    found = summarise(a_run(spark, planned), results, {}, planning_only=planning_only, warned=False)
    assert (found.exit_code, found.pending_changes) == (code, pending)
    assert [each.outcomes for each in found.clusters] == [{"planned" if planning_only else "open": 2}]
    listed = [(each.action, each.resource) for each in found.pending.first]
    assert listed == ([("delete", "t"), ("create", "u")] if planning_only else [])


POLICIES = (
    *(each.name for each in fields(PolicySettings) if each.name not in ("of_kinds", "recreated")),
    *(each.resource_type for each in NAMES),
)
"""Names of the lists of policies in the settings."""


def run_with(spark: SparkSession, kind: str, spec: PolicySpec) -> Run:
    """Return a run with one policy about one kind, whose audit has a warning and a refusal."""
    of_topics = kind in ("create", "delete", "change")
    policies = PolicySettings(**{kind: (spec,)}) if of_topics else PolicySettings(of_kinds={kind: (spec,)})
    run = create_autospec(Run, instance=True)
    run.settings = Settings(path=Path("x"), tables=TablesSettings(root="x"), clusters={}, policies=policies)
    violations = [{"policy": "mild", "message": f"{WARNING}odd"}, {"policy": "strict", "message": "wrong"}]
    row = {"cluster": "main", "resource": "r", "action": kind, "violations": violations}
    run.audit.return_value = frame(spark, AUDIT.schema, [row])
    return run


@pytest.mark.parametrize("kind", POLICIES)
def test_warnings_of_policies_about_each_kind_are_shown(spark: SparkSession, kind: str) -> None:
    """Nothing of the plan has a warning: only policies that may warn later have the run's rows read."""
    refusing = PolicySpec(use="any")
    assert _warnings(run_with(spark, kind, refusing), warned=False) == ([], 0)
    warning = run_with(spark, kind, replace(refusing, mode="warn"))
    (found,), count = _warnings(warning, warned=False)
    message = f"{WARNING}odd"
    assert (found, count) == (
        Warned(cluster="main", topic=None, resource="r", action=kind, policy="mild", message=message),
        1,
    )


@pytest.mark.parametrize("allowed", [{}, {"main": {"deletes": 1}}])
def test_an_action_whose_allowance_lapsed_is_stopped_again(
    spark: SparkSession, allowed: dict[str, dict[str, int]]
) -> None:
    """An earlier start validated it and was killed; then the plan grew. It was counted nowhere, and the run ended."""
    action = {"run_id": "r", "cluster": "main", "resource_type": "topic", "action": "delete"}
    guarded = {"phase": "guard", "outcome": "refused", "error": "MAX_DELETES_EXCEEDED", "error_message": "too many"}
    plans = [{**action, "topic": "a", "resource": "a", **guarded, "guards": {"deletes": 1}}]
    plans += [{**action, "topic": "b", "resource": "b"}]
    validated = {"phase": "validate", "outcome": "ok"}
    audit = [{**action, "topic": name, "resource": name, **validated} for name in "ab"]
    audit += [{**action, "topic": "a", "resource": "a", **guarded}]
    made = frame(spark, plain(PLANS.schema), plans)
    run: Any = SimpleNamespace(
        arguments={"allowed": json.dumps(allowed)},
        allowed=read_allowed(json.dumps(allowed)),
        plans=lambda: made,
        open_actions=lambda: made.transform(open_rows(read_allowed(json.dumps(allowed)))),
        audit=lambda: frame(spark, plain(AUDIT.schema), audit),
    )
    found = {row["resource"]: (row["phase"], row["outcome"], row["planned"]) for row in summary_results(run).collect()}
    stopped = ("validate", "ok", True) if allowed else ("guard", "refused", False)
    assert found == {"a": stopped, "b": ("validate", "ok", True)}
