"""A run's plan as a diff, from `plans` and `audit`: what it adds, removes and changes, and the outcomes so far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from topicledger.apply.display import displayed
from topicledger.ledger.allowed import Allowed, read_allowed
from topicledger.ledger.outcomes import Standing, is_stopped, let_through, with_outcomes, without_lapsed
from topicledger.ledger.rows import read_violations
from topicledger.ledger.run import ALLOWED_ARGUMENT, REVERTS_ARGUMENT
from topicledger.ledger.tables import Ledger
from topicledger.model import Outcome, Phase, Refusal, ReplicaAction, RunState
from topicledger.model.scope import Scope
from topicledger.phases import VIOLATIONS
from topicledger.plan.allowing import STOPPED, StoppedActions, all_stopped
from topicledger.plan.approvals import is_unsent_plan
from topicledger.plan.lines import ROW, PlannedAction, as_returned, in_order, planned_action, returned, with_destroys
from topicledger.plan.planned_files import apply_command, paths_in, removals_in
from topicledger.resources.topics.apply.moves import PlannedMoves, planned_moves
from topicledger.schemas import AUDIT, PLANS, SENT_BATCHES
from topicledger.text import MESSAGE_CHARACTERS, counted, show

PLANNED, OPEN, REMOVED = "planned", "open", "unknown"
"""Outcomes, beside `STOPPED`, of actions without a row of `audit`: `open` if requests may have been sent, `unknown` if
the run has finished, so that the row was removed by age."""
NAMED = 20
"""Most resources, and most reasons, to name for actions with the same outcome."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One action that wasn't refused and didn't fail, or that only guards stopped and an approval may let through."""

    action: PlannedAction
    outcome: str = PLANNED
    """`planned`, `open`, `stopped`, `unknown`, or an outcome of `audit`."""
    warnings: Sequence[str] = ()
    """Names of the policies that warn about it."""
    destroys: bool = False
    """Whether it removes a resource, or can lose records."""

    def __str__(self) -> str:
        warned = f" (warning of {', '.join(map(show, self.warnings))})" if self.warnings else ""
        return f"{self.action}{warned}{'' if self.outcome in (PLANNED, STOPPED) else f' [{self.outcome}]'}"


@dataclass(frozen=True, kw_only=True)
class Reason:
    """A reason that several actions share: their messages differ only in numbers and in their own names."""

    count: int
    message: str | None
    """The first action's message."""
    resources: Sequence[str]
    """The first ones, sorted."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Actions that were refused, failed or were skipped in the same way."""

    cluster: str | None
    action: str | None
    """None if they were refused before an action was planned."""
    outcome: str
    phase: str
    error: str | None
    count: int
    reasons: Sequence[Reason]
    """The most common ones."""
    reason_count: int


@dataclass(frozen=True, kw_only=True)
class PlanDiff:
    """The whole diff; each part is in a stable order."""

    run_id: str
    state: str
    requested_by: str | None
    manifest_version: int
    waits_for: str | None = None
    """The approval that the plan still needs, in words."""
    about: Sequence[tuple[str, str]] = ()
    """A label, and the run that the plan undoes, its scope in words, or the command that continues the run."""
    counts: Sequence[tuple[str, str, int]]
    """Counts of the lines: action, outcome, number."""
    ended: Sequence[Ended] = ()
    lines: Iterable[Line]
    """Stopped ones first, then the others, both in the order of `lines.in_order`. May be read lazily: iterate over it
    only once."""
    moves: Sequence[PlannedMoves] = ()
    """Totals of the planned reassignments."""
    removals: Sequence[str] = ()
    """The first rows that loading the plan's files removes, in words."""
    stopped: Sequence[StoppedActions] = ()
    """Actions of a waiting plan that guards stopped: `runs approve --allow` lets them through."""

    @property
    def line_count(self) -> int:
        return sum(count for _, _, count in self.counts)

    @property
    def ended_count(self) -> int:
        return sum(each.count for each in self.ended)


def read(ledger: Ledger, run: Row, throttle: int, *, most: int | None, allowed: Allowed | None = None) -> PlanDiff:
    """Read a run's diff.

    `run`: its row of `runs`; `throttle`: of moves, bytes per second; `most`: the maximum number of lines to read.
    `allowed`: what approvals let through of a plan that waits.
    """
    run_id = run["run_id"]
    waits = is_unsent_plan(run)
    of_run = F.col("run_id") == run_id
    let = (run["arguments"] or {}).get(ALLOWED_ARGUMENT) if run["state"] == RunState.FINISHED else None
    plans = ledger.read(PLANS).where(of_run).transform(let_through(allowed or read_allowed(let)))
    audit = ledger.read(AUDIT).where(of_run)
    if let is not None:
        audit = without_lapsed(audit, plans)
    rows = _rows(plans, audit, unended=_unended(ledger, run), waits=waits)
    counts: dict[tuple[str, str], int] = {}
    ended = []
    groups = rows.transform(_grouped).collect()
    # If a later start reached a cluster, the plan has other rows for it.
    reached = {row["cluster"] for row in groups if row["is_line"] or row["phase"] in (Phase.POLICY, Phase.GUARD)}
    for row in groups:
        if row["is_line"]:
            key = (row["action"], row["outcome"])
            counts[key] = counts.get(key, 0) + row["count"]
        elif row["error"] != Refusal.CLUSTER_UNREACHABLE or row["cluster"] not in reached:
            reasons = [Reason(**{**each.asDict(), "count": -each["count"]}) for each in row["reasons"]]
            known = {name: row[name] for name in ("cluster", "action", "outcome", "phase", "error", "count")}
            ended.append(Ended(**known, reasons=reasons, reason_count=row["reason_count"]))
    return PlanDiff(
        run_id=run_id,
        state=run["state"],
        requested_by=run["requested_by"],
        manifest_version=run["manifest_version"],
        about=[*_about(run), *_removed(counts)],
        removals=removals_in(run["arguments"]),
        counts=[(*names, count) for names, count in sorted(counts.items())],
        ended=sorted(ended, key=_worst_first),
        lines=_lines(rows, most) if counts else (),
        stopped=all_stopped(plans if any(outcome == STOPPED for _, outcome in counts) else None, run["arguments"])
        if waits
        else (),
        moves=displayed(
            lambda: planned_moves(plans, throttle),
            (),
            f"the bytes of moves of run {run_id}",
            instead="the rest of the diff is complete",
        )
        if ReplicaAction.REASSIGN in {name for name, _ in counts} | {each.action for each in filter(_by_guard, ended)}
        else (),
    )


def _about(run: Row) -> Iterator[tuple[str, str]]:
    if reverted := (run["arguments"] or {}).get(REVERTS_ARGUMENT):
        yield "undoes run ", reverted
    scope = Scope.from_json(run["scope"])
    # A plan from files always has only what they change.
    if replace(scope, files=False).narrows:
        yield "scope: ", str(scope)
    if run["state"] == RunState.APPLYING:
        yield "not finished; to continue it: ", apply_command(run["run_id"], paths_in(run["arguments"]))
    elif run["state"] == RunState.PLANNING:
        yield "not finished; to continue it: ", f"the same command with --run-id {run['run_id']}"


def _unended(ledger: Ledger, run: Row) -> str:
    """Return the outcome of actions that have none in `audit`."""
    if run["state"] == RunState.ABANDONED:
        sent = ledger.read_if_exists(SENT_BATCHES).where(F.col("run_id") == run["run_id"])
        return PLANNED if sent.isEmpty() else OPEN
    return {RunState.APPLYING.value: OPEN, RunState.FINISHED.value: REMOVED}.get(run["state"], PLANNED)


def _removed(counts: Mapping[tuple[str, str], int]) -> Iterator[tuple[str, str]]:
    removed = sum(count for (_, outcome), count in counts.items() if outcome == REMOVED)
    if removed:
        yield "removed by age (`maintain`): ", f"what became of {counted(removed, 'action')}"


def _by_guard(each: Ended) -> bool:
    return each.phase == Phase.GUARD


def _worst_first(each: Ended) -> tuple[int, str, str, str, str]:
    order = [Outcome.FAILED.value, Outcome.REFUSED.value]
    place = order.index(each.outcome) if each.outcome in order else len(order)
    return place, each.cluster or "", each.action or "", each.error or "", each.phase


def _rows(plans: DataFrame, audit: DataFrame, *, unended: str, waits: bool) -> DataFrame:
    """Rows of `plans` with their state: `outcome`, `is_line`, `warned`, and the reason if one ended without success.

    `unended`: the outcome of actions without one. `waits`: whether the plan can still be approved, so that what guards
    stopped isn't refused for good.
    """
    end = ("phase", "outcome", "error", "error_message")
    also_warned = F.flatten(F.collect_set(_warning_policies()))
    stands = F.col("standing").isin(Standing.PLANNED.value, Standing.VALIDATED.value)
    open_ = F.col("action").isNotNull() & F.coalesce(stands, F.lit(False))
    stopped = F.lit(waits) & is_stopped() & F.col("phase").eqNullSafe(Phase.GUARD.value)
    done = F.col("phase").isNull() & F.col("result.outcome").isin(Outcome.OK.value, Outcome.PENDING.value)
    own, result = F.struct(*end), F.struct(*(f"result.{name}" for name in end))
    return (
        with_outcomes(plans, audit, more={**returned(), "_also_warned": also_warned})
        .withColumns(as_returned())
        .withColumn("_is_line", F.coalesce(open_ | done | stopped, F.lit(False)))
        .withColumn("_end", F.when(F.col("phase").isNotNull(), own).otherwise(result))
        .select(
            *ROW,
            F.col("_is_line").alias("is_line"),
            F.when(stopped, STOPPED).when(open_, unended).otherwise(F.col("_end.outcome")).alias("outcome"),
            *(F.when(~F.col("_is_line"), F.col(f"_end.{name}")).alias(name) for name in end if name != "outcome"),
            F.array_sort(
                F.array_union(_warning_policies(), F.coalesce("_also_warned", F.array().cast("array<string>")))
            ).alias("warned"),
        )
    )


def _warning_policies() -> Column:
    """Policies in `violations` that only warn (array<string>)."""
    violations = F.coalesce(read_violations(F.col("violations")), F.array().cast(VIOLATIONS))
    return F.transform(F.filter(violations, lambda each: each["warns"]), lambda each: each["policy"])


def _grouped(rows: DataFrame) -> DataFrame:
    """Count lines by action and outcome, and other rows by how they ended, with their most common reasons."""
    alike = ("is_line", "cluster", "action", "outcome", "phase", "error")
    message = F.when(~F.col("is_line"), F.substring("error_message", 1, MESSAGE_CHARACTERS))
    own = F.replace(F.coalesce("resource", F.lit("")), F.lit(r"\E"), F.lit(r"\E\\E\Q"))
    # As `text.alike`, for columns.
    whole = F.concat(F.lit(r"(?<![\w.-])\Q"), own, F.lit(r"\E(?![\w-]|\.\w)"))
    named = F.regexp_replace(F.coalesce(message, F.lit("")), whole, F.lit("\0"))
    resource = F.when(~F.col("is_line"), F.coalesce("resource", F.lit("")))
    reasons = (
        rows.withColumns({"_message": message, "_alike": F.regexp_replace(named, r"\d+", "0"), "_resource": resource})
        .groupBy(*alike, "_alike")
        .agg(
            F.count(F.lit(1)).alias("_count"),
            F.min_by("_message", "_resource").alias("_message"),
            F.slice(F.array_sort(F.collect_list("_resource")), 1, NAMED).alias("_resources"),
        )
    )
    reason = F.struct(
        (-F.col("_count")).alias("count"), F.col("_message").alias("message"), F.col("_resources").alias("resources")
    )
    return reasons.groupBy(*alike).agg(
        F.sum("_count").alias("count"),
        F.slice(F.array_sort(F.collect_list(reason)), 1, NAMED).alias("reasons"),
        F.count(F.lit(1)).alias("reason_count"),
    )


def _lines(rows: DataFrame, most: int | None) -> Iterator[Line]:
    found = rows.where("is_line").select(*ROW, "outcome", "warned").transform(with_destroys)
    found = found.orderBy(F.desc(F.col("outcome") == STOPPED), *in_order())
    for row in (found if most is None else found.limit(most)).toLocalIterator():
        yield Line(action=planned_action(row), outcome=row["outcome"], warnings=row["warned"], destroys=row["destroys"])
