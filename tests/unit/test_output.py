"""Output of every command about hostile names on terminals of 80 and 120 columns: it fits, and nothing acts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from pyspark.sql import Row

from tests.outputs import HOSTILE, LONG, WIDTHS, WORDS, problems_of, registered, terminal
from tests.unit.announcements import DONE, drifted
from topicledger.apply.planned import Pending
from topicledger.apply.rendering import render, render_waiting
from topicledger.apply.summary import ClusterCounts, Failure, Summary, Warned
from topicledger.cli import (
    access,
    cluster_check,
    clusters,
    explain,
    live_policies,
    manifests,
    queries,
    reports,
    runs,
    show,
    topics,
    upgrades,
)
from topicledger.drift import summary as drift_summary
from topicledger.drift.summary import ClusterDrift, DriftSummary
from topicledger.errors import ExitCode
from topicledger.files.exported import ClusterExport, Exported, TopicMessage
from topicledger.files.exported import render as render_export
from topicledger.files.load import Loaded, Removed
from topicledger.kafka.abilities import Abilities
from topicledger.ledger import maintain, verified
from topicledger.ledger.verified import Kind, ProofFinding, Verified
from topicledger.plan.approvals import Approvals
from topicledger.plan.lines import PlannedAction
from topicledger.queries import printing
from topicledger.resources.topics.apply.moves import PlannedMoves
from topicledger.review import diff, history, rendering
from topicledger.serving.command import main
from topicledger.text import console, listed

NAMES = (LONG, HOSTILE, "short")
AT = datetime(2026, 11, 26, 1, 2, 3, tzinfo=UTC)

ACTION = PlannedAction(owner=HOSTILE, cluster="main", topic=LONG, resource=LONG, action="alter_configs", what=WORDS)
ORDER_ONLY = PlannedMoves(cluster=HOSTILE, topics=1, partitions=1, bytes=0, unknown=0, brokers={})
MOVES = PlannedMoves(cluster="main", topics=2, partitions=9, bytes=10**15, unknown=1, brokers={1: (10**15, 0)})
FAILURES = [
    Failure(
        cluster=cluster,
        topic=name,
        resource=name,
        action="create",
        phase="validate",
        outcome="failed",
        error_code=40,
        error="INVALID_CONFIG",
        error_message=f"{name} {HOSTILE}{WORDS}",
    )
    for cluster in ("main", HOSTILE)
    for name in NAMES
]
WARNINGS = [
    Warned(
        cluster="main", topic=name, resource=name, action="create", policy=HOSTILE, message=f"warning: {name} {WORDS}"
    )
    for name in NAMES
]
RUN = replace(
    DONE,
    run_id=HOSTILE,
    exit_code=4,
    clusters=[ClusterCounts(cluster=each, outcomes={"ok": 3, "failed": 6}, skipped={WORDS: 2}) for each in NAMES],
    failures=FAILURES,
    warnings=WARNINGS,
    warning_count=70,
    query=f"SELECT '{HOSTILE}'",
    problems=[f"cluster {HOSTILE} gave no answer"],
    pending=Pending(
        count=99, first=[ACTION], waits_for=f"it needs {HOSTILE}", moves=[ORDER_ONLY, MOVES], files=[HOSTILE]
    ),
)
PLAN = replace(RUN, state="planned")
NOTHING = replace(DONE, clusters=[], decisions={"unchanged": 0})
DIFF = diff.PlanDiff(
    run_id=HOSTILE,
    state="planned",
    requested_by=HOSTILE,
    manifest_version=1,
    counts=[("alter_configs", "planned", 1)],
    ended=[
        diff.Ended(
            cluster=HOSTILE,
            action="create",
            outcome="refused",
            phase="policy",
            error=HOSTILE,
            count=2,
            reasons=[diff.Reason(count=2, message=HOSTILE + WORDS, resources=[LONG, HOSTILE])],
            reason_count=1,
        )
    ],
    lines=[diff.Line(action=ACTION, warnings=[HOSTILE])],
    moves=[ORDER_ONLY, MOVES],
    waits_for=HOSTILE,
)


def run_row(name: str) -> Row:
    return Row(
        run_id=name,
        command="plan",
        state="planned",
        started_at=AT,
        finished_at=AT + timedelta(days=1),
        exit_code=None,
        manifest_version=1,
        requested_by=name,
        counts={"ok": 10**9},
    )


def a_run(summary: Summary) -> Callable[[], None]:
    return lambda: render(summary, console(160))


def verdicts() -> None:
    found = [
        explain.PolicyVerdict(
            policy=name,
            action="create",
            mode="warn",
            settings={"a": HOSTILE},
            verdict="broken",
            inputs=name,
            message=name,
        )
        for name in NAMES
    ]
    answer = {"topic": LONG, "cluster": HOSTILE, "decision": "create", "notes": [HOSTILE, WORDS]}
    explain.print_answer(answer, found, as_json=False)


def policies_checked() -> None:
    found = [{"judges": "create", "policy": n, "mode": "warn", "needs": "full", "settings": {n: n}} for n in NAMES]
    explain.print_policies(Path(HOSTILE), found)


def rights() -> None:
    one = access.Permission(
        principal=HOSTILE,
        resource_type="TOPIC",
        pattern_type="LITERAL",
        resource_name="*",
        operation="READ",
        host="*",
        result="allowed",
        because="an ACL",
        acls=[f"User:{HOSTILE} ALLOW READ TOPIC LITERAL {LONG} *"] * 3,
        exceptions=[HOSTILE],
    )
    found = access.Permissions(
        cluster=HOSTILE, source="observed", rights=[one, replace(one, resource_name=LONG)], notes=[HOSTILE]
    )
    access.render(found, console(160))


def nobodys_rights() -> None:
    access.render(access.Permissions(cluster="main", source="declared", rights=[], notes=[]), console(160))


def an_audit() -> None:
    found = drifted(error=1)
    drift = [
        replace(found.drift[0], topic=name, cluster=name, message=WORDS, declared=name, what=name) for name in NAMES
    ]
    kinds = [ClusterDrift(cluster=name, kinds={"config_differs": 1}) for name in NAMES]
    drift_summary.render(
        replace(found, run_id=HOSTILE, clusters=kinds, drift=drift, problems=[HOSTILE], query=HOSTILE), console(160)
    )


def an_export() -> None:
    done = [ClusterExport(cluster=name, topics=1, file=f"/tmp/{name}.yaml", resources={"acls": 1}) for name in NAMES]
    messages = [TopicMessage(cluster=HOSTILE, topic=name, message=HOSTILE + WORDS) for name in NAMES]
    render_export(Exported(clusters=done, not_exported=messages, notes=messages, problems=[HOSTILE]), console(160))


def live() -> None:
    found = live_policies.LivePolicies(
        topics=3,
        ignored=3,
        policies=[
            live_policies.PolicyCounts(policy=n, mode="warn", settings=HOSTILE, asked=1, broken=1, unjudgeable=0)
            for n in NAMES
        ],
        findings=[
            live_policies.PolicyFinding(
                cluster=n, topic=n, owner=n, policy=n, mode="warn", verdict="broken", message=HOSTILE + WORDS
            )
            for n in NAMES
        ],
        problems=[HOSTILE],
        exit_code=ExitCode.DONE,
    )
    live_policies.render(found, console(160))


def an_upgrade() -> None:
    found = upgrades.UpgradeAudit(
        kafka="4.4",
        findings=[
            upgrades.UpgradeFinding(
                cluster=n, topic=topic, owner=n, source="live", effect="breaks", message=HOSTILE + WORDS, topics=3
            )
            for n in NAMES
            for topic in (n, None)
        ],
        ignored=3,
        problems=[HOSTILE],
        exit_code=ExitCode.DONE,
    )
    upgrades.render(found, console(160))


def a_history() -> None:
    events = [
        history.TopicEvent(at=AT, what="failed", run_id=name, details=WORDS, requested_by=HOSTILE) for name in NAMES
    ]
    topics.render(history.TopicHistory(cluster=HOSTILE, topic=LONG, events=events, notes=["gone"]), console(160))


def maintained(*, executed: bool) -> None:
    tables = [
        maintain.TableMaintained(
            table="audit",
            files=10**9,
            bytes=10**15,
            rows_deleted=10**9,
            files_vacuumed=10**9,
            files_after=1,
            error=HOSTILE + WORDS,
            work=("compact", "vacuum"),
        )
    ]
    found = maintain.Maintained(
        executed=executed,
        run_id=HOSTILE,
        exit_code=1,
        abandoned=NAMES,
        abandoned_audits=NAMES,
        contradicted=NAMES,
        tables=tables,
    )
    maintain.render(found, console(160))


def proved() -> None:
    found = Verified(
        runs=3,
        first=HOSTILE,
        last=LONG,
        signed=1,
        retained=dict.fromkeys(NAMES, HOSTILE),
        earlier=1,
        other_key_runs=NAMES,
        unproven_runs=NAMES,
        open_runs=NAMES[:1],
        with_key=True,
        heads=["abc"],
        findings=[
            ProofFinding(run_id=name, kind=Kind.ROWS_CHANGED, table="audit", message="changed") for name in NAMES
        ],
    )
    verified.render(found, console(160))


def approved() -> None:
    runs.render_approval(
        Approvals(run_id=HOSTILE, requested_by=HOSTILE, plan_digest="", needed=3, by=(HOSTILE,)), console(160)
    )


def names_of_clusters() -> None:
    named = [
        clusters.Named(
            name=name,
            in_settings=True,
            settings_cluster_id=HOSTILE,
            cluster_id=HOSTILE,
            accepted_at="2026-11-26T01:02:03Z",
            accepted_how="command",
            accepted_by=HOSTILE,
        )
        for name in NAMES
    ]
    clusters.render_names(clusters.Names(clusters=named), console(160))


def acceptance() -> None:
    found = clusters.Acceptance(
        name=HOSTILE, cluster_id="a", earlier_cluster_id=HOSTILE, changed=True, run_id="r", open_runs=NAMES
    )
    clusters.render_acceptance(found, console(160))


def a_check() -> None:
    abilities = Abilities(
        cluster_id=HOSTILE,
        brokers=3,
        version="4.3",
        provider=None,
        on_cluster=None,
        topics=0,
        on_topics=None,
        without={},
    )
    findings = [cluster_check.Finding(status=each, about=HOSTILE, message=WORDS) for each in cluster_check.Status]
    found = cluster_check.Checked(name=HOSTILE, abilities=abilities, findings=findings)
    cluster_check.render(found, console(160))


def an_answer() -> None:
    rows = [[LONG, HOSTILE, None, 10**18, AT, [HOSTILE], {HOSTILE: WORDS}], [None] * 7]
    printing.render([HOSTILE, "topic", "owner", "bytes", "at", "groups", "labels"], rows, console(160))


def loaded() -> None:
    rows = [Removed(cluster=HOSTILE, topic=name, owner=HOSTILE) for name in NAMES]
    done = Loaded(added=1, changed=0, unchanged=0, removed=4, removed_rows=rows)
    click.echo("\n".join(manifests.in_lines(done, dry_run=True)))


def a_diff() -> None:
    for piece in [*rendering.text(DIFF, colours=show.in_colours()), *rendering.markdown(DIFF)]:
        click.echo(piece, nl=False)


PRINTED: Mapping[tuple[str, ...], list[Callable[[], Any]]] = {
    ("load-manifests",): [loaded],
    ("plan",): [a_run(PLAN), a_run(NOTHING)],
    ("apply",): [a_run(RUN), lambda: render_waiting(RUN, console(160))],
    ("provision",): [a_run(RUN)],
    ("prune",): [a_run(replace(NOTHING, decisions={"declared": 3}))],
    ("rebalance",): [a_run(PLAN)],
    ("drift",): [an_audit],
    ("export",): [an_export],
    ("runs", "list"): [lambda: show.print_runs([run_row(name) for name in NAMES]), lambda: show.print_runs([])],
    ("runs", "show"): [a_diff],
    ("runs", "revert"): [a_run(PLAN)],
    ("runs", "approve"): [approved],
    ("runs", "verify"): [proved],
    ("runs", "abandon"): [lambda: click.echo(runs.abandoned(HOSTILE))],
    ("topics", "show"): [a_history],
    ("clusters", "list"): [names_of_clusters],
    ("clusters", "accept"): [acceptance],
    ("clusters", "check"): [a_check],
    ("sql",): [an_answer],
    ("views",): [lambda: click.echo(queries.created(NAMES, HOSTILE))],
    ("catalog",): [lambda: click.echo(queries.written(10**9, Path(HOSTILE)))],
    ("access", "who"): [rights],
    ("access", "what"): [nobodys_rights],
    ("report",): [lambda: click.echo(reports.written(Path(HOSTILE)))],
    ("maintain",): [lambda: maintained(executed=True), lambda: maintained(executed=False)],
    ("policies", "list"): [lambda: explain.list_policies(None, as_json=False)],
    ("policies", "check"): [policies_checked],
    ("policies", "explain"): [verdicts],
    ("policies", "audit"): [live, an_upgrade],
    ("schema", "manifests"): [],  # JSON, which only programs read
    ("serve",): [],  # Two sentences on stderr, which click writes as they are
    ("help",): [],  # Click prints the same as with --help
}
"""What each command prints for people."""


@pytest.mark.parametrize("path", [*registered(main)], ids=" ".join)
def test_output_of_every_command_fits_a_terminal_and_nothing_acts(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for width in WIDTHS:
        for colours in (True, False):
            for printed in PRINTED[path]:
                with terminal(monkeypatch, width, colours=colours) as screen:
                    printed()
                found += [f"{width} columns: {each}" for each in problems_of(screen.getvalue(), width)]
    assert not found


def test_a_policys_settings_have_the_type_and_unit_of_their_topic_config() -> None:
    assert explain._as_text({"config": "retention.ms", "max": "7d"}) == 'config = "retention.ms" (long, ms), max = "7d"'
    assert explain._as_text({"config": "of.a.fork"}) == 'config = "of.a.fork"'


def test_brackets_in_our_own_words_are_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    found = DriftSummary(
        run_id="r",
        state="finished",
        exit_code=0,
        manifest_version=1,
        clusters=[],
        kinds={},
        severities={},
        drift=[],
        query="",
        ignored={"topics": 1, "acls": 0},
        manifests_refused=0,
    )
    drift_summary.render(found, console(160))
    assert "ignored by [scope] of the settings: topics 1\n" in capsys.readouterr().out


def test_an_approval_of_a_plan_that_grew_meanwhile_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    runs.render_approval(Approvals(run_id="r", requested_by="ann", plan_digest="", needed=1, by=()), console(160))
    expected = "run r isn't approved: its plan has changed since it was approved; read it again: runs show r\n"
    assert capsys.readouterr().out == expected


def test_a_topic_that_nothing_names_and_the_requester_of_an_audit(capsys: pytest.CaptureFixture[str]) -> None:
    topics.render(history.TopicHistory(cluster="main", topic="x", events=[]), console(160))
    event = {"at": AT, "run_id": "r", "requested_by": "root"}
    events = [
        history.TopicEvent(what="approved", details="allowed losses=1", **event),
        history.TopicEvent(what="drift", details="warning config_differs", **event),
    ]
    topics.render(history.TopicHistory(cluster="main", topic="y", events=events), console(160))
    nothing, counted, approved, drifted = capsys.readouterr().out.splitlines()
    assert nothing == "x on main: never declared, planned or found by an audit"
    assert counted == "y on main: 2 events"
    assert "approved by root" in approved
    assert "by root" not in drifted


def test_names_that_a_summary_lacks_are_not_counted_as_if_it_had_them() -> None:
    names = [f"t{number}" for number in range(20)]
    assert listed(names, at_least=True) == "t0, t1, t2 and at least 17 more"
    assert listed(names) == "t0, t1, t2 and 17 more"
    assert listed(names[:3], at_least=True) == "t0, t1, t2"
