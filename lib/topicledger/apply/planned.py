"""The actions of a plan that a person decides on: the first of them, by owner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table as Grid

from topicledger.apply.moves import PlannedMoves, render_moves
from topicledger.ledger.rows import change_in_words
from topicledger.ledger.run import Run
from topicledger.manifests import owners
from topicledger.model import Action, Outcome, Phase, ResourceType
from topicledger.policies.contract import listed, text
from topicledger.schemas import ACTION_KEY
from topicledger.text import SHOWN_FAILURES, cell


@dataclass(frozen=True, kw_only=True)
class PlannedAction:
    """One action that waits to be applied."""

    owner: str | None
    """As the manifests have it that were planned from."""
    cluster: str
    topic: str | None
    """None of an action on no topic."""
    resource: str
    """What it is about: the topic, or the text of an ACL or a quota's entity."""
    action: str
    what: str | None
    """What it creates, changes or deletes, in words."""


@dataclass(frozen=True, kw_only=True)
class Pending:
    """What waits to be applied."""

    count: int = 0
    first: Sequence[PlannedAction] = ()
    """Of a plan, the first 20, by owner."""
    of_files: bool = False
    """Whether it was planned from files, which have to be loaded first."""
    waits_for: str | None = None
    """What approval the plan still needs, in words."""
    moves: Sequence[PlannedMoves] = ()
    """Of a plan, what its moves come to."""


def first_planned(run: Run, results: DataFrame) -> Sequence[PlannedAction]:
    """The first planned actions that passed validate, by owner, cluster and topic. `results`: see `summary.results`."""
    passed = (F.col("phase") == Phase.VALIDATE.value) & (F.col("outcome") == Outcome.OK.value)
    pending = results.where(F.col("planned") & passed).select(*ACTION_KEY)
    owned = run.manifests(run.manifest_version).transform(owners.of_topics)
    rows = (
        run.open_actions()
        .join(pending, on=list(ACTION_KEY), how="left_semi")
        .join(owned, on=["cluster", "topic"], how="left")
        .withColumn("what", action_in_words())
        .select(*(each.name for each in fields(PlannedAction)))
        .orderBy(F.asc_nulls_last("owner"), "cluster", F.asc_nulls_last("topic"), "resource", "action")
        .limit(SHOWN_FAILURES)
    )
    return [PlannedAction(**row.asDict()) for row in rows.collect()]


def action_in_words() -> Column:
    """What a row of `plans` creates, changes or deletes (string): `2 partitions, retention.ms=1`."""

    def count(value: Column, what: str) -> Column:
        return F.when(value.isNotNull(), text(value, f" {what}", F.when(value.cast("int") == 1, "").otherwise("s")))

    # Of a topic with a placement the plan has both.
    alone = (F.size("assignments") > 0) & F.col("num_partitions").isNull()
    assigned = F.when(alone, count(F.size("assignments"), "assigned partition"))
    entries = F.transform(F.map_entries("configs"), lambda each: F.concat(each["key"], F.lit("="), each["value"]))
    declared = F.concat_ws(
        ", ",
        assigned,
        count(F.col("num_partitions"), "partition"),
        F.when(F.col("replication_factor").isNotNull(), text("replication factor ", F.col("replication_factor"))),
        F.when(F.size("configs") > 0, listed(entries)),
    )
    lost = count(F.try_element_at("before", F.lit("num_partitions")), "partition")
    is_action = F.col("action")
    return (
        F.when(is_action == Action.CREATE.value, F.when(declared == "", "the broker's defaults").otherwise(declared))
        .when(is_action == Action.DELETE.value, lost)
        .when(F.col("resource_type") != ResourceType.ACL.value, change_in_words())
    )


def render_planned(pending: Pending, run_id: str, console: Console) -> None:
    """Print the first, and how many there are in all."""
    # A title of the grid's own would be broken at the grid's width.
    console.print(f"Planned: {pending.count}", style="table.title", highlight=False)
    grid = Grid()
    shown = [each.name for each in fields(PlannedAction) if each.name != "topic"]
    for name in shown:
        grid.add_column(name, overflow="fold")
    for action in pending.first:
        grid.add_row(*(cell(getattr(action, name)) for name in shown))
    console.print(grid)
    if pending.count > len(pending.first):
        first = f"the first {len(pending.first)} of {pending.count}, by owner"
        console.print(f"{first}; all of them: runs show --run-id {run_id}", highlight=False)
    render_moves(pending.moves, console)
