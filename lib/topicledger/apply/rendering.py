"""A run's summary for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console

from topicledger.apply.planned import render_planned, render_stopped
from topicledger.apply.summary import Failure, Summary, Warned
from topicledger.ledger.sql import as_command
from topicledger.model import Decision, Outcome, RunState
from topicledger.model.config_texts import with_units
from topicledger.plan.allowing import STOPPED, stops_load
from topicledger.plan.planned_files import apply_command
from topicledger.text import alike, cell, counted, first_of, grid_of, listed, plain

_NOT_COMPARED = "configs were not compared: run topicledger drift"
NOTHING_PLANNED = "nothing was planned"
"""For those who don't know whether the run compared configs."""


def nothing_to_send(drifted: int, *, configs_compared: bool | None) -> str:
    """Return the message of a run with nothing to send.

    `drifted`: topics that differ in values it may not change. `configs_compared`: None if that is unknown.
    """
    nothing = {True: "nothing to create, delete or change", False: "nothing to create or delete", None: NOTHING_PLANNED}
    topics = "1 topic differs" if drifted == 1 else f"{drifted:,} topics differ"
    differ = f"{topics} in partitions, replication factor or placement" if drifted else ""
    not_compared = _NOT_COMPARED if configs_compared is False else ""
    return "; ".join(filter(None, (nothing[configs_compared], differ, not_compared)))


def render(summary: Summary, console: Console, *, configs_compared: bool = False) -> None:
    """Print a summary for people. `configs_compared`: whether the run compared live configs on all its clusters."""
    # The version is that of the plan: an `apply` has loaded the files since.
    files = "planned from its files and " if summary.pending.files else ""
    version = f"{files}manifests at version {summary.manifest_version}"
    console.print(f"run {plain(summary.run_id)}: {summary.state}, {version}")
    says_nothing = not summary.clusters and summary.state in (RunState.FINISHED, RunState.PLANNED)
    if summary.clusters:
        outcomes = _outcomes(summary)
        names = sorted({name for each in outcomes for name in each}, key=_outcome_order)
        # As the grid's title, the text would be wrapped at the grid's small width.
        console.print("Actions by cluster and outcome", style="table.title")
        grid = grid_of("cluster", *names, numbers=names)
        for counts, of_cluster in zip(summary.clusters, outcomes, strict=True):
            cells = [str(of_cluster.get(name, 0) or "") for name in names]
            grid.add_row(cell(counts.cluster), *cells)
        console.print(grid)
        for counts in summary.clusters:
            for reason, topics in counts.skipped.items():
                console.print(f"{topics:,} skipped on {cell(counts.cluster)}: {cell(reason)}", soft_wrap=True)
    elif says_nothing:
        message = nothing_to_send(summary.decisions.get("drifted", 0), configs_compared=configs_compared)
        if Decision.DECLARED in summary.decisions:
            message = "nothing to delete: no topic without a manifest matches"
        console.print(message, soft_wrap=True)
    if declared := summary.decisions.get(Decision.DECLARED, 0):
        them = "it" if declared == 1 else "them"
        text = f"prune keeps {counted(declared, 'matching topic')} because manifests declare {them}"
        console.print(text, soft_wrap=True)
    left_alone = ", ".join(
        f"{count} {name.replace('_', ' ')}" for name, count in summary.decisions.items() if name != Decision.DECLARED
    )
    # The message of a run with nothing to send has it.
    not_compared = "" if configs_compared or says_nothing else f"; {_NOT_COMPARED}"
    console.print(f"left alone: {left_alone}{not_compared}", soft_wrap=True)
    if (scope := summary.pending.scope) is not None:
        console.print(scope_line(summary, scope), soft_wrap=True)
    for line in summary.pending.removals:
        console.print(f"leaves the tables: {plain(line)}", soft_wrap=True)
    if summary.pending.first:
        render_planned(summary.pending, summary.run_id, console)
    render_stopped(summary.pending, summary.run_id, console)
    # A plan that lacks a cluster which can't be reached can be applied to the others.
    if summary.pending_changes and summary.state in (RunState.PLANNING, RunState.PLANNED):
        are, them = ("change is", "it") if summary.pending_changes == 1 else ("changes are", "them")
        first = ""
        if summary.waits_for is not None:
            console.print(f"not approved: {plain(summary.waits_for)}", soft_wrap=True)
            first = "once it is approved, "
        if stops_load(summary.pending.stopped):
            first = "once the removed rows are allowed, "
        command = plain(apply_command(summary.run_id, summary.pending.files))
        console.print(f"{summary.pending_changes} {are} planned: {first}{command} makes {them}", soft_wrap=True)
    if summary.failures:
        _render_failures(summary, console)
    if summary.warnings:
        _render_warnings(summary, console)
    said = {each.error_message for each in summary.failures if each.error_message}
    for problem in summary.problems:
        # The table of failures has the reason.
        known = next((each for each in said if problem.startswith(each)), "")
        if rest := problem.removeprefix(known).lstrip("; "):
            console.print(f"not finished: {plain(rest)}", soft_wrap=True)


def scope_line(summary: Summary, scope: str) -> str:
    """Return the line about the scope, and about what is pending outside of it."""
    outside = summary.pending.outside
    found = "" if summary.clusters or any(summary.decisions.values()) else ": nothing is inside"
    some, have = (
        ("1 topic or other resource", "has") if outside == 1 else (f"{outside:,} topics or other resources", "have")
    )
    pending = (
        f"{some} outside the scope {have} pending changes; this run doesn't apply them"
        if outside
        # Moves are planned only inside, and nothing is known of a cluster that doesn't answer.
        else "nothing is known to be pending outside"
    )
    if outside and summary.pending.drains is not None:
        topics, keep = ("1 topic", "keeps") if outside == 1 else (f"{outside:,} topics", "keep")
        pending = f"{topics} outside the scope {keep} replicas on broker {summary.pending.drains}, which won't be empty"
    return f"scope: {plain(scope)}{found}; {pending}"


def is_waiting(summary: Summary) -> bool:
    """Whether an `apply` sent nothing because an approval is missing, or because guards stopped everything."""
    return summary.waits_for is not None or (summary.state == RunState.PLANNED and bool(summary.pending.stopped))


def render_waiting(summary: Summary, console: Console) -> None:
    """Print which approval an `apply` still needs, without the plan, which its user has read."""
    rest = f"; not finished: {listed(summary.problems, most=1)}" if summary.problems else ""
    if summary.waits_for is not None:
        console.print(f"not approved: {plain(summary.waits_for + rest)}", soft_wrap=True)
        return
    render_stopped(summary.pending, summary.run_id, console)
    if rest:
        console.print(plain(rest.removeprefix("; ")), soft_wrap=True)


def _many(failure: Failure) -> str:
    return f"{failure.topics:,} topics or other resources"


def _outcomes(summary: Summary) -> Sequence[Mapping[str, int]]:
    """Return the outcomes of each cluster; what guards stopped and an approval may allow is `stopped`."""
    found = []
    for counts in summary.clusters:
        stopped = sum(each.actions for each in summary.pending.stopped if each.cluster == counts.cluster)
        refused = counts.outcomes.get(Outcome.REFUSED, 0)
        waiting = min(stopped, refused)
        of_cluster = {**counts.outcomes, Outcome.REFUSED: refused - waiting, STOPPED: waiting}
        found.append({str(name): count for name, count in of_cluster.items() if count})
    return found


def _render_failures(summary: Summary, console: Console) -> None:
    stopped = sum(each.get(STOPPED, 0) for each in _outcomes(summary))
    ended = summary.failure_count - stopped
    titles = [f"Failed or refused: {ended}"] if ended else []
    titles += [f"Stopped by guards, until they are allowed: {stopped}"] if stopped else []
    # As the grid's title, the text would be wrapped at the grid's width.
    console.print("; ".join(titles), style="table.title")
    grid = grid_of("cluster", "resource", "phase", "error", "message")
    shown = sum(failure.topics for failure in summary.failures)
    same: dict[tuple[object, ...], list[Failure]] = {}
    for each in summary.failures:
        said = alike(each.error_message, each.resource)
        same.setdefault((each.cluster, each.phase, each.error, said), []).append(each)
    for failures in same.values():
        first = failures[0]
        names = [str(each.resource or "") if each.topics == 1 else _many(each) for each in failures]
        named = listed(names, at_least=summary.failure_count > shown)
        cells = (first.cluster, named, first.phase, first.error, with_units(first.error_message or ""))
        grid.add_row(*map(cell, cells))
    console.print(grid)
    if summary.failure_count > shown:
        console.print(f"{first_of(shown, summary.failure_count)}; all of them:")
        console.print(plain(as_command(summary.query)), soft_wrap=True)


def _render_warnings(summary: Summary, console: Console) -> None:
    title = f"Warnings: {summary.warning_count}"
    grid = grid_of("cluster", "resource", "action", "policy", "message", title=title)
    same: dict[tuple[object, ...], list[Warned]] = {}
    for each in summary.warnings:
        key = (each.cluster, each.action, each.policy, alike(each.message, each.resource))
        same.setdefault(key, []).append(each)
    for warnings in same.values():
        first = warnings[0]
        names = listed([each.resource for each in warnings], at_least=summary.warning_count > len(summary.warnings))
        grid.add_row(*map(cell, (first.cluster, names, first.action, first.policy, with_units(first.message))))
    console.print(grid)
    if summary.warning_count > len(summary.warnings):
        console.print(first_of(len(summary.warnings), summary.warning_count))


def _outcome_order(name: str) -> tuple[int, str]:
    order = ["planned", "open", "ok", "pending", "skipped", STOPPED, "refused", "failed"]
    return (order.index(name) if name in order else len(order), name)
