"""`runs list` and `runs show`: earlier runs, read from the tables."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

import click
from pyspark.sql import Row
from pyspark.sql import functions as F
from rich.table import Table as Grid

from topicledger.actions.showing import CHANGES
from topicledger.apply.display import displayed
from topicledger.config.settings import Settings
from topicledger.errors import ExitCode
from topicledger.ledger.outcomes import by_action, is_stopped, phase_order
from topicledger.ledger.run import require_run
from topicledger.ledger.session import for_few_rows
from topicledger.ledger.tables import Ledger
from topicledger.model import Outcome, RunState
from topicledger.plan import approvals
from topicledger.plan.allowing import stopped_load
from topicledger.plan.lines import change_in_words, sign_of
from topicledger.review import diff, rendering
from topicledger.schemas import ACTION_KEY, APPROVALS, AUDIT, PLANS, RUNS
from topicledger.text import cell, document, duration, iso_time
from topicledger.text import console as text_console

_WIDE = 150
"""Width of a terminal that has room for a run on one line."""
_ID = 31
"""Length of a generated run id."""
FEW_ACTIONS = 10_000
"""Most actions of a run whose rows are read faster with interpreted queries than with compiled ones."""
_PLANNED = (
    "cluster",
    "topic",
    "resource_type",
    "resource",
    "action",
    "num_partitions",
    "replication_factor",
    "before",
    "after",
)


def list_runs(ledger: Ledger, limit: int, *, as_json: bool) -> ExitCode:
    """Print the newest runs."""
    ledger.ensure(RUNS)
    columns = (
        "run_id",
        "command",
        "state",
        "started_at",
        "finished_at",
        "exit_code",
        "manifest_version",
        "requested_by",
        "counts",
    )
    with for_few_rows(ledger.spark):
        runs = ledger.read(RUNS).withColumn("command", F.col("arguments")["command"])
        rows = runs.select(*columns).orderBy(F.desc("started_at"), F.desc("run_id")).limit(limit).collect()
    if as_json:
        click.echo(document(ExitCode.DONE, {"runs": [row.asDict(recursive=True) for row in rows]}))
        return ExitCode.DONE
    print_runs(rows)
    return ExitCode.DONE


def print_runs(rows: Sequence[Row]) -> None:
    """Print runs as a table that fits the terminal."""
    console = text_console(200)
    console.print(runs_grid(rows, narrow=console.width < _WIDE))
    if any(row["state"] in (RunState.PLANNING, RunState.APPLYING) for row in rows):
        # A run under way and a killed one have the same row.
        console.print("planning, applying: under way, or to be continued; `runs show RUN_ID` says how", soft_wrap=True)


def runs_grid(rows: Sequence[Row], *, narrow: bool) -> Grid:
    """Return runs as a table; a narrow table has several lines per run."""
    columns = {
        "run_id": [cell(row["run_id"]) for row in rows],
        "command": [cell(row["command"]) for row in rows],
        "state": [cell(row["state"]) for row in rows],
        "started": [_utc(row["started_at"]) for row in rows],
        "took": [_took(row["started_at"], row["finished_at"]) for row in rows],
        "exit": [cell(row["exit_code"]) for row in rows],
        "manifests": [cell(row["manifest_version"]) for row in rows],
        "requested by": [cell(row["requested_by"]) for row in rows],
        "counts": [_counted(row["counts"] or {}) for row in rows],
    }
    if narrow:
        together = (
            ("run_id", "command", "requested by"),
            ("started", "took"),
            ("state", "exit", "manifests", "counts"),
        )
        columns = {
            "\n".join(names): ["\n".join(lines) for lines in zip(*(columns[name] for name in names), strict=True)]
            for names in together
        }
    grid = Grid()
    for name in columns:
        # Ids and times aren't folded if there is room; otherwise Rich would fold all columns alike.
        whole = name.startswith(("run_id", "started")) and narrow
        widest = max((len(line) for each in columns[name] for line in each.split("\n")), default=0)
        grid.add_column(name, overflow="fold", width=max(12, min(widest, _ID)) if whole else None)
    for cells in zip(*columns.values(), strict=True):
        grid.add_row(*cells)
    return grid


def _utc(moment: datetime | None) -> str:
    return "" if moment is None else iso_time(moment)


def _took(began: datetime | None, ended: datetime | None) -> str:
    """Return the time from a run's first start to its end."""
    if began is None or ended is None:
        return ""
    return duration(round((ended - began).total_seconds()))


def _counted(counts: Mapping[str, int]) -> str:
    """Return counts in words, failures first."""
    order = (Outcome.FAILED.value, Outcome.REFUSED.value)
    names = sorted(counts, key=lambda name: (order.index(name) if name in order else len(order), name))
    return ", ".join(f"{counts[name]} {name}" for name in names if counts[name])


def show_diff(
    ledger: Ledger, settings: Settings, run_id: str, form: str, max_characters: int | None = None
) -> ExitCode:
    """Print a run's plan as a diff, as `text` or `markdown`."""
    if form == "markdown":
        max_characters = max_characters or rendering.COMMENT_CHARACTERS
    most = None if max_characters is None else max_characters // rendering.SHORTEST_LINE
    with _few_or_many(ledger, run_id) as run:
        # Before the plan's rows: if the plan grows in between, this digest approves nothing.
        found = approvals.of_run(ledger, settings.guards, run) if _may_need_approvals(ledger, settings, run) else None
        allowed = found.let_through if found is not None and approvals.is_unsent_plan(run) else {}
        found_diff = diff.read(ledger, run, settings.replicas.throttle, most=most, allowed=allowed)
        if found is not None:
            stopped = [each for each in found_diff.stopped if not each.is_let_through(allowed)]
            waits_for = found.in_words(stopped) if found.missing else None
            exactly = (("to approve exactly this plan, add: ", f"--plan {found.shown_digest}"),)
            about = (*found_diff.about, *(exactly if waits_for or stopped else ()))
            found_diff = replace(found_diff, waits_for=waits_for, stopped=stopped, about=about)
        if form == "markdown":
            pieces = rendering.markdown(found_diff, most=max_characters or 0)
        else:
            pieces = rendering.text(found_diff, most=max_characters, colours=in_colours())
        for piece in pieces:
            click.echo(piece, nl=False)
    return ExitCode.DONE


def _may_need_approvals(ledger: Ledger, settings: Settings, run: Row) -> bool:
    """Return whether a plan can be approved, and the settings ask for that, somebody did it, or guards stopped some."""
    if not approvals.can_be_approved(ledger, run):
        return False
    asked = settings.guards.approvals or settings.guards.approvals_for or stopped_load(run["arguments"])
    if asked or ledger.exists(APPROVALS):
        return True
    if not approvals.is_unsent_plan(run):
        # The diff of a plan under way doesn't ask to allow what guards stopped.
        return False
    return not ledger.read(PLANS).where((F.col("run_id") == run["run_id"]) & is_stopped()).isEmpty()


def in_colours() -> bool:
    """Return whether text is for a terminal and NO_COLOR isn't set (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def show_actions(ledger: Ledger, run_id: str) -> ExitCode:
    """Print every action of a run as JSON, with the result of each phase and the values from validateOnly (C5)."""
    with _few_or_many(ledger, run_id) as run:
        # Before the plan's rows, as for the diff.
        digest = displayed(
            lambda: approvals.digest_of(ledger, run) if approvals.can_be_approved(ledger, run) else None,
            None,
            f"the digest of run {run_id}'s plan",
            instead="the rest is complete",
        )
        actions = _actions(ledger, run_id)
    click.echo(document(ExitCode.DONE, {"run_id": run_id, "plan_digest": digest, "actions": actions}))
    return ExitCode.DONE


@contextmanager
def _few_or_many(ledger: Ledger, run_id: str) -> Iterator[Row]:
    """Context in which queries suit the size of a run; yields its row. Raises UsageError if there is no such run."""
    with for_few_rows(ledger.spark) as for_many:
        ledger.ensure(RUNS, PLANS, AUDIT)
        run = require_run(ledger, run_id)
        if run["counts"] is None or sum(run["counts"].values()) > FEW_ACTIONS:
            for_many()
        yield run


def _change(row: Mapping[str, Any]) -> str | None:
    """Return a change in words; None for other actions, whose resource's text says everything."""
    is_change = row["before"] is not None and row["after"] is not None
    if not is_change or sign_of(row["action"]) != CHANGES:
        return None
    return change_in_words(row["action"], row["resource"], row["before"], row["after"])


def _actions(ledger: Ledger, run_id: str) -> list[dict[str, Any]]:
    plans = ledger.read(PLANS).where(F.col("run_id") == run_id)
    audit = ledger.read(AUDIT).where(F.col("run_id") == run_id)
    shown = ("phase", "outcome", "error_code", "error", "error_message", "attempt", "completed_at")
    order = phase_order()
    phases = by_action(
        audit,
        more={
            "phases": F.array_sort(F.collect_list(F.struct(order.alias("order"), *shown))),
            "resolved": F.max_by(
                F.struct("num_partitions", "replication_factor", "configs"),
                F.when(
                    F.col("num_partitions").isNotNull(), order + F.when(F.col("configs").isNotNull(), 100).otherwise(0)
                ),
            ),
        },
    )
    same = [F.col(f"plan.{name}").eqNullSafe(F.col(f"audited.{name}")) for name in ACTION_KEY]
    rows = (
        plans.alias("plan")
        .join(phases.alias("audited"), on=same, how="left")
        .select(
            *(f"plan.{name}" for name in _PLANNED),
            "audited.phases",
            "audited.resolved",
        )
        .orderBy("cluster", F.asc_nulls_last("topic"), "resource", "action")
    )
    found = []
    for row in rows.toLocalIterator():
        action = row.asDict(recursive=True)
        action["change"] = _change(action)
        action["phases"] = [
            {name: value for name, value in phase.items() if name != "order"} for phase in action["phases"] or ()
        ]
        found.append(action)
    return found
