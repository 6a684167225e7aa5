"""The first actions of a plan, by owner, for the person who decides on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console

from topicledger.actions.showing import ADDS, REMOVES
from topicledger.ledger.outcomes import is_let_through, is_validated
from topicledger.ledger.run import Run
from topicledger.model.config_texts import with_units
from topicledger.plan.allowing import StoppedActions, approve_command, most_of, stopped_in_words
from topicledger.plan.lines import RETURNED, ROW, PlannedAction, as_returned, in_order, planned_action, with_destroys
from topicledger.resources.topics.apply.moves import PlannedMoves, render_moves
from topicledger.schemas import ACTION_KEY
from topicledger.text import SHOWN_FAILURES, first_of, plain, show

STYLES = {ADDS: "green", REMOVES: "red"}
"""Colours of lines by their sign."""


@dataclass(frozen=True, kw_only=True)
class Pending:
    """Actions that wait to be applied."""

    count: int = 0
    first: Sequence[PlannedAction] = ()
    """The first 20 of a plan: those that can lose something, then the others; each by owner."""
    files: Sequence[str] = ()
    """The files and folders of a plan from files: `apply` loads them."""
    waits_for: str | None = None
    """The approval that the plan still needs, in words."""
    plan_digest: str | None = None
    """The digest of a plan that waits for an approval: `runs approve --plan` approves exactly this plan."""
    moves: Sequence[PlannedMoves] = ()
    """Totals of a plan's moves."""
    scope: str | None = None
    """The run's scope in words; None for everything on its clusters."""
    outside: int = 0
    """Topics and other resources outside the scope with pending changes."""
    drains: int | None = None
    """The broker that a rebalance drains: topics `outside` keep replicas on it."""
    removals: Sequence[str] = ()
    """The first rows that loading the plan's files removes, in words."""
    stopped: Sequence[StoppedActions] = ()
    """Actions of a plan that guards stopped: `runs approve --allow` lets them through."""
    guarded: int = 0
    """Number of topics and other resources that guards stopped, also those that no approval lets through."""


def first_planned(run: Run, results: DataFrame) -> Sequence[PlannedAction]:
    """Read the first planned actions that `apply` sends, in the order of `lines.in_order`.

    `results`: from `summary.results`.
    """
    returned = (F.col(name).alias(f"returned_{name}") for name in RETURNED)
    pending = results.where((F.col("planned") & is_validated()) | is_let_through()).select(*ACTION_KEY, *returned)
    rows = (
        run.open_actions()
        .join(pending, on=list(ACTION_KEY), how="inner")
        .withColumns(as_returned())
        .select(*ROW)
        .transform(with_destroys)
        .orderBy(*in_order())
        .limit(SHOWN_FAILURES)
    )
    return [planned_action(row) for row in rows.collect()]


def heading(owner: str | None, cluster: str) -> str:
    """Return the heading of an owner's lines for a cluster."""
    return f"{show(owner) if owner else 'no owner'} on {show(cluster)}"


def render_planned(pending: Pending, run_id: str, console: Console) -> None:
    """Print the first actions, and the number of all."""
    console.print(f"Planned: {pending.count:,}", style="table.title")
    for (owner, cluster), actions in groupby(pending.first, key=lambda each: (each.owner, each.cluster)):
        console.print(heading(owner, cluster), markup=False, soft_wrap=True)
        for action in actions:
            style = STYLES.get(action.sign)
            console.print(f"  {with_units(str(action))}", style=style, markup=False, soft_wrap=True)
    if pending.count > len(pending.first):
        first = f"{first_of(len(pending.first), pending.count)}, removals and losses first"
        console.print(f"{first}; all of them: runs show {plain(run_id)}", soft_wrap=True)
    render_moves(pending.moves, console)


def render_stopped(pending: Pending, run_id: str, console: Console) -> None:
    """Print what guards stopped, and the command that allows it, unless the missing approval has it."""
    if not pending.stopped:
        return
    console.print(plain(f"stopped by guards: {stopped_in_words(pending.stopped)}"), soft_wrap=True)
    if pending.waits_for is None:
        allow = approve_command(run_id, most_of(pending.stopped))
        console.print(plain(f"if they are meant, before `apply`: {allow}"), soft_wrap=True)
