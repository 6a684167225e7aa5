"""The summary of a run: read from `plans` and `audit`, shown as tables or JSON, turned into an exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.apply.display import displayed
from topicledger.apply.planned import Pending, first_planned
from topicledger.errors import ExitCode, exit_code
from topicledger.kinds import NAMES
from topicledger.ledger import outcomes as folded
from topicledger.ledger.rows import WARNING, read_violations
from topicledger.ledger.run import ALLOWED_ARGUMENT, Run
from topicledger.ledger.sql import sql_text
from topicledger.model import Decision, Outcome, Phase, Refusal, RunState
from topicledger.plan.lines import RETURNED, PlannedAction
from topicledger.plan.planned_files import paths_in, removals_in
from topicledger.plan.resources import COUNTED
from topicledger.resources.topics.apply.moves import PlannedMoves, planned_moves
from topicledger.schemas import AUDIT
from topicledger.text import SHOWN_FAILURES, document

FAILED_OR_REFUSED = (Outcome.FAILED.value, Outcome.REFUSED.value)
_ALIKE = (
    Refusal.CLUSTER_UNREACHABLE.value,
    Refusal.CLUSTER_ID_MISMATCH.value,
    Refusal.SAME_CLUSTER.value,
    Refusal.NOT_YOURS.value,
)
"""Errors with the same reason for many topics of a cluster or an owner, which are shown as one failure."""
_OUTSIDE = (
    Decision.OUTSIDE.value,
    *(name for name, decision in COUNTED.items() if decision is Decision.OUTSIDE),
)
"""Names of counts of what is pending outside the scope."""
_FAILURE = ("cluster", "resource_type", "resource", "phase", "error", "error_message")
"""Columns of the query that a summary has for all failures."""
_GUARDS_WHILE_APPLYING = (
    Refusal.CLUSTER_ID_MISMATCH.value,
    Refusal.PLAN_EXPIRED.value,
    *(each.value for names in NAMES for each in names.refusals if each.acts_like_guard),
)
"""Errors of guards, and of what acts like one, that stop a plan while it is being validated or applied."""


@dataclass(frozen=True, kw_only=True)
class ClusterCounts:
    """Topics of one cluster by the outcome of their last phase."""

    cluster: str | None
    outcomes: Mapping[str, int]
    """Outcome -> topics; `open` counts planned actions whose outcome isn't known yet."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Reason for skipping -> topics: the 20 most common reasons."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One topic that failed or was refused, or all topics of a cluster with a common reason, such as no connection."""

    cluster: str | None
    topic: str | None
    """None for all topics of a cluster, and for an action on another kind of resource."""
    resource: str | None
    """The topic, or the text of another resource; None as for `topic`."""
    action: str | None
    phase: str
    outcome: str
    error_code: int | None
    error: str | None
    error_message: str | None
    topics: int = 1
    """Number of topics."""


@dataclass(frozen=True, kw_only=True)
class Warned:
    """A violation of a policy that only warns."""

    cluster: str
    topic: str | None
    """None for an action on another kind of resource."""
    resource: str
    """The topic, or the text of another resource."""
    action: str
    policy: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A run in numbers, with the first failures."""

    run_id: str
    state: str
    exit_code: int
    manifest_version: int
    clusters: Sequence[ClusterCounts]
    decisions: Mapping[str, int]
    """unchanged, drifted, unmanaged -> topics without a planned action; left_out if `--only` left any out."""
    pending: Pending
    """Planned and validated actions that apply has not sent."""
    failures: Sequence[Failure]
    """The first 20 failures."""
    query: str
    """SQL query for all failures."""
    problems: Sequence[str] = field(default_factory=list)
    """Reasons why the run isn't finished."""
    warnings: Sequence[Warned] = field(default_factory=list)
    """The first 20 warnings."""
    warning_count: int = 0

    @property
    def pending_changes(self) -> int:
        """Number of planned and validated actions that apply has not sent."""
        return self.pending.count

    @property
    def is_pending(self) -> bool:
        """Whether a plan has something to apply, or something that an approval may allow."""
        return self.pending.count > 0 or bool(self.pending.stopped)

    @property
    def waits_for(self) -> str | None:
        """The approval that the plan still needs, in words."""
        return self.pending.waits_for

    @property
    def failure_count(self) -> int:
        """Number of topics that failed or were refused."""
        return sum(self.outcomes().get(outcome, 0) for outcome in FAILED_OR_REFUSED)

    def outcomes(self) -> dict[str, int]:
        """Return outcome -> topics of all clusters."""
        totals: dict[str, int] = {}
        for counts in self.clusters:
            for outcome, count in counts.outcomes.items():
                totals[outcome] = totals.get(outcome, 0) + count
        return totals

    def to_json(self) -> str:
        """Return the versioned result document."""
        counts = {"failure_count": self.failure_count, "outcomes": self.outcomes()}
        found = asdict(self)
        pending = found.pop("pending")
        planned = {
            "pending_changes": pending["count"],
            "planned": pending["first"],
            "waits_for": pending["waits_for"],
            "plan_digest": pending["plan_digest"],
            "moves": pending["moves"],
            "scope": pending["scope"],
            "outside": pending["outside"],
            "stopped": pending["stopped"],
            "removals": pending["removals"],
        }
        return document(self.exit_code, {**found, **counts, **planned})


def summarise(
    run: Run,
    results: DataFrame | None,
    decisions: Mapping[str, int],
    problems: Sequence[str] = (),
    *,
    planning_only: bool,
    detailed_exitcode: bool = False,
    warned: bool = True,
) -> Summary:
    """Summarise a run from the tables, with its exit code.

    `results`: from `results`; None if the run has no action and refused nothing. `decisions`: decision -> topics that
    need no action. `problems`: reasons why actions are still open. `warned`: whether actions of the plan may have
    warnings.
    """
    outcomes: dict[str | None, dict[str, int]] = {}
    unreached = False
    pending = unknown = guarded = 0
    for tally in _tallies(results) if results is not None else ():
        cluster, phase, outcome, topics = tally.cluster, tally.phase, tally.outcome, tally.topics
        of_cluster = outcomes.setdefault(cluster, {})
        validated = phase == Phase.VALIDATE and outcome == Outcome.OK
        # An action that an approval lets through was stopped in phase guard before.
        let_through = tally.planned and phase == Phase.GUARD
        if tally.planned and (validated or let_through or phase in (None, Phase.MANIFEST)):
            # If the run has finished, the row that told the outcome was removed by age.
            name = "unknown" if run.state is RunState.FINISHED else "planned" if planning_only else "open"
            of_cluster[name] = of_cluster.get(name, 0) + topics
            if validated or (let_through and planning_only):
                pending += topics
            else:
                unknown += topics
        if outcome is not None and not validated and not let_through:
            of_cluster[outcome] = of_cluster.get(outcome, 0) + topics
            if outcome == Outcome.REFUSED and phase == Phase.GUARD:
                guarded += topics
            elif outcome in FAILED_OR_REFUSED:
                # A move that had begun when its plan got too old failed; the guard stopped the rest of it.
                guarded += tally.guarded
            unreached |= tally.unreached > 0
    failure_count = sum(
        counts.get(Outcome.FAILED.value, 0) + counts.get(Outcome.REFUSED.value, 0) for counts in outcomes.values()
    )
    any_skipped = any(Outcome.SKIPPED in counts for counts in outcomes.values())
    shown = _shown(
        run,
        results,
        failures=failure_count > 0,
        skipped=any_skipped,
        pending=pending,
        plan=planning_only,
        warned=warned,
    )
    unfinished = bool(problems) or unreached or unknown > 0 or (pending > 0 and not planning_only)
    code = exit_code(
        {
            ExitCode.ERROR: unfinished,
            ExitCode.GUARD_STOPPED: guarded > 0,
            ExitCode.TOPICS_FAILED: failure_count > 0,
            ExitCode.CHANGES_PENDING: planning_only and detailed_exitcode and pending > 0,
        }
    )
    return Summary(
        run_id=run.run_id,
        state=run.state.value,
        exit_code=int(code),
        manifest_version=run.manifest_version,
        clusters=[
            ClusterCounts(cluster=cluster, outcomes=outcomes[cluster], skipped=shown.skipped.get(cluster, {}))
            for cluster in sorted(outcomes, key=lambda name: (name is not None, name or ""))
        ],
        decisions={name: decisions.get(name, 0) for name in _left_alone(run, decisions)},
        pending=Pending(
            count=pending,
            first=shown.planned,
            files=paths_in(run.arguments),
            removals=removals_in(run.arguments),
            moves=shown.moves,
            scope=str(run.scope) if run.scope.narrows else None,
            outside=sum(decisions.get(name, 0) for name in _OUTSIDE),
            drains=None if run.rebalances is None or run.rebalances.fills else run.rebalances.broker,
            guarded=guarded,
        ),
        failures=shown.failures,
        query=(
            f"SELECT {AUDIT.selected(*_FAILURE)} FROM {run.ledger.sql_name(AUDIT)} "
            f"WHERE run_id = {sql_text(run.run_id)} AND outcome IN ('failed', 'refused')"
        ),
        problems=list(dict.fromkeys(problems)),
        warnings=shown.warnings,
        warning_count=shown.warning_count,
    )


@dataclass(frozen=True, kw_only=True)
class _Shown:
    """Parts of a summary that are only shown: neither the run's state nor its exit code depends on them."""

    failures: Sequence[Failure] = field(default_factory=list)
    skipped: Mapping[str | None, Mapping[str, int]] = field(default_factory=dict)
    planned: Sequence[PlannedAction] = ()
    moves: Sequence[PlannedMoves] = ()
    warnings: Sequence[Warned] = ()
    warning_count: int = 0


def _shown(
    run: Run, results: DataFrame | None, *, failures: bool, skipped: bool, pending: int, plan: bool, warned: bool
) -> _Shown:
    """Read what is shown; a part that can't be read is left out, with a warning."""
    if results is None:
        return _Shown()
    again = f"`runs show {run.run_id}` has the rest"
    of_run = f"of run {run.run_id}"
    nothing = _Shown()
    warnings, count = displayed(lambda: _warnings(run, warned=warned), ((), 0), f"the warnings {of_run}", instead=again)
    return _Shown(
        failures=displayed(lambda: _failures(results), (), f"the failures {of_run}", instead=again) if failures else [],
        skipped=displayed(lambda: _skipped(results), nothing.skipped, f"the skipped {of_run}", instead=again)
        if skipped
        else {},
        planned=displayed(lambda: first_planned(run, results), (), f"the plan {of_run}", instead=again)
        if plan and pending
        else (),
        moves=displayed(
            lambda: planned_moves(
                run.plans().transform(folded.let_through(run.allowed)), run.settings.replicas.throttle
            ),
            (),
            f"the bytes of moves {of_run}",
            instead=again,
        )
        if (pending or failures) and _may_move(run)
        else (),
        warnings=warnings,
        warning_count=count,
    )


def _may_move(run: Run) -> bool:
    return run.rebalances is not None or any(each.replicas == "on" for each in run.settings.changes.values())


def _left_alone(run: Run, decisions: Mapping[str, int]) -> Sequence[str]:
    of_prune = [Decision.DECLARED.value] if Decision.DECLARED in decisions else []
    others = [] if run.reverts is not None else [Decision.DRIFTED.value, Decision.UNMANAGED.value]
    always = (Decision.UNCHANGED.value, *others, *of_prune)
    more = (Decision.LEFT_OUT.value, *(name for name in COUNTED if name not in _OUTSIDE))
    return (*always, *(name for name in more if decisions.get(name)))


@dataclass(frozen=True, kw_only=True)
class _Tally:
    """Topics of a cluster by phase and outcome of their last phase; null for planned actions that have none yet."""

    cluster: str | None
    phase: str | None
    outcome: str | None
    planned: bool
    """Whether an action was planned for them."""
    guarded: int
    """Number of them that a guard stopped while the plan was being applied."""
    unreached: int
    """Number of them whose cluster wasn't reached: a later start of the run decides about them."""
    topics: int


def results(run: Run) -> DataFrame:
    """Return each action's result from `audit`; planned actions without one have a null phase.

    An action that guards stop again, since its allowance lapsed, ends there, although an earlier start validated it.
    """
    audit = run.audit()
    if ALLOWED_ARGUMENT in run.arguments:
        audit = folded.without_lapsed(audit, run.plans().transform(folded.let_through(run.allowed)))
    return folded.results(audit, run.open_actions(), *RETURNED)


def _tallies(results: DataFrame) -> Sequence[_Tally]:
    rows = (
        results.groupBy("cluster", "phase", "outcome", "planned")
        .agg(
            F.count(F.lit(1)).alias("topics"),
            F.count_if(F.col("error").isin(*_GUARDS_WHILE_APPLYING)).alias("guarded"),
            F.count_if(F.col("error") == Refusal.CLUSTER_UNREACHABLE.value).alias("unreached"),
        )
        .collect()
    )
    return sorted((_Tally(**row.asDict()) for row in rows), key=lambda each: (each.cluster or "", each.outcome or ""))


def _skipped(results: DataFrame) -> Mapping[str | None, Mapping[str, int]]:
    """Return cluster -> reason for skipping -> topics, for the most common reasons."""
    skipped = results.where((F.col("outcome") == Outcome.SKIPPED.value) & F.col("error_message").isNotNull())
    counted = skipped.groupBy("cluster", "error_message").agg(F.count(F.lit(1)).alias("topics"))
    found: dict[str | None, dict[str, int]] = {}
    for row in counted.orderBy(F.desc("topics"), "cluster", "error_message").limit(SHOWN_FAILURES).collect():
        found.setdefault(row["cluster"], {})[row["error_message"]] = row["topics"]
    return found


def _failures(results: DataFrame) -> Sequence[Failure]:
    shown = [each.name for each in fields(Failure)]
    failed = results.where(F.col("outcome").isin(*FAILED_OR_REFUSED) & ~folded.is_let_through())
    failed = failed.withColumn("topics", F.lit(1)).select(*shown)
    alike = F.coalesce(F.col("error").isin(*_ALIKE), F.lit(False))
    together = ("cluster", "phase", "outcome", "error_code", "error", "error_message")
    one = F.count(F.lit(1)) == 1
    named = (F.when(one, F.any_value(name)).alias(name) for name in shown if name not in (*together, "topics"))
    counted = failed.where(alike).groupBy(*together).agg(F.count(F.lit(1)).cast("int").alias("topics"), *named)
    failed = failed.where(~alike).unionByName(counted.select(*shown))
    return [
        Failure(**row.asDict())
        for row in failed.orderBy("cluster", "topic", "resource").limit(SHOWN_FAILURES).collect()
    ]


def _warnings(run: Run, *, warned: bool) -> tuple[Sequence[Warned], int]:
    """Read the first warnings of policies and of the run itself, and their number. `warned`: see `summarise`."""
    # Policies are evaluated again with the values that brokers resolved, and may warn then.
    made = run.settings.policies
    if not warned and made.recreated == "refuse" and not any(spec.mode == "warn" for spec in made.all):
        return [], 0
    shown = ("cluster", "topic", "resource", "action")
    warnings = (
        run.audit()
        .select(*shown, F.explode(read_violations(F.col("violations"))).alias("violation"))
        .where("violation.warns")
        .select(*shown, "violation.policy", F.concat(F.lit(WARNING), "violation.message").alias("message"))
        .distinct()
    )
    count = warnings.count()
    ordered = warnings.orderBy("cluster", "topic", "resource", "policy", "message")
    first = ordered.limit(SHOWN_FAILURES).collect() if count else []
    return [Warned(**row.asDict()) for row in first], count
