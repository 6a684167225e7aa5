"""A provisioning run, phase by phase:

    manifest -> observe -> decide -> policy, guard -> plan -> validate -> apply -> verify -> close

Up to the plan, everything is a DataFrame. From there on the driver acts, and each outcome becomes a row of `audit`.
Each phase takes the value that the previous one returned. A resumed run rebuilds these values from the tables
(`plan.standing`).
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.apply import stages
from topicledger.apply.dispatch import Context, Stopped, each_cluster
from topicledger.apply.executor import Executor
from topicledger.apply.summary import Summary, results, summarise
from topicledger.apply.values import Validated
from topicledger.config.settings import ClusterSettings
from topicledger.errors import ExitCode, most_severe
from topicledger.ledger import proof
from topicledger.ledger.outcomes import Standing
from topicledger.ledger.rows import audit_rows
from topicledger.ledger.run import Run
from topicledger.ledger.sql import collected_in_utc
from topicledger.ledger.throttles import clusters_left
from topicledger.ledger.unreached import is_planned
from topicledger.model import OURS, Outcome, Phase, RunState, Work
from topicledger.observe.record import observe_into_tables
from topicledger.observe.topics import Observation, list_clusters
from topicledger.plan import approvals, removals
from topicledger.plan.allowing import StoppedActions, all_stopped
from topicledger.plan.approvals import Approvals
from topicledger.plan.decided import NOTHING, Decided, Observed, commit_plan
from topicledger.plan.kinds import GOALS
from topicledger.plan.planned_files import apply_command, paths_in
from topicledger.plan.reevaluate import reevaluate
from topicledger.plan.standing import in_batches, sendable, standing
from topicledger.policies.contract import MAKE_PARTITIONS
from topicledger.resources.topics.apply.cancelling import cancelled_if_stopped
from topicledger.resources.topics.plan import renames
from topicledger.resources.topics.plan.history import warn_of_changed_back
from topicledger.resources.topics.plan.prune import rules
from topicledger.schemas import AUDIT, BROKERS, CLUSTERS, MANIFESTS, OBSERVED, PLANS, USAGES

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """Result of planning."""

    actions: Work
    """Planned actions that are not validated yet."""
    anything: bool
    """Whether `plans` has any row of the run: an action or a refusal."""
    seen: Observation | None
    """This start's observation of all the run's clusters; None if an earlier start observed some of them."""
    observed_since: datetime
    """When this start began to observe the clusters."""
    counts: Mapping[str, int]
    """Decision -> topics that need no action."""
    columns: Mapping[str, object]
    """Columns of the run's row that are known by now."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Cluster -> why it isn't planned."""
    warned: bool = True
    """Whether an action may have a warning."""
    guarded: bool = False
    """Whether guards may have stopped actions that an approval can allow."""


def provision(
    run: Run,
    context: Context,
    *,
    planning_only: bool,
    applying_only: bool = False,
    detailed: bool = False,
    load: Callable[[], None] = lambda: None,
) -> Summary:
    """Take a run from its current state to its end, or to the end of its plan.

    `applying_only`: plan nothing, so that only actions are sent that somebody could read before. Clusters without a
    plan stay open. `load`: loads the files of an approved plan.
    """
    if run.prunes is not None:
        context = replace(context, policies=[*context.policies, *rules(run, run.prunes)])
    elif of_replaced := renames.rules(run):
        context = replace(context, policies=[*context.policies, *of_replaced])
    if planning_only:
        run = approvals.with_allowed(run)
    with ExitStack() as closing, run:
        # In the background: a run with nothing to do must not wait for it.
        left = None if planning_only else closing.enter_context(ThreadPoolExecutor(1)).submit(clusters_left, run.ledger)
        may_grow = partial(_may_grow, run, applying_only=applying_only)
        approved = None if planning_only else approvals.take_allowed(run, may_grow=may_grow)
        if approved is None or not approved.missing:
            load()
        planned = plan(run, context, planning_only=planning_only, applying_only=applying_only)
        with cancelled_if_stopped(run, context, closing), _kept_if_stopped(run, planned):
            ready = validate(run, context, planned)
        problems = [*planned.problems.values(), *ready.problems.values()]
        if ready.actions and not applying_only:
            approved = approvals.read(run)
        waits = approved if ready.actions and approved is not None and approved.missing else None
        # A plan of which guards stopped everything stays as it is until an approval allows some of it.
        stays = applying_only and not ready.actions and run.state is RunState.PLANNED and bool(_stopped(run, planned))
        if (waits is not None or stays) and not planning_only:
            summary = close(run, planned, problems, planning_only=True, detailed=detailed)
            code = most_severe(summary.exit_code, ExitCode.GUARD_STOPPED)
            return replace(_waiting(summary, waits), exit_code=int(code))
        if left is not None:
            done = stages.apply(run, context, ready, closing, left.result)
            with cancelled_if_stopped(run, context, closing):
                problems += [*done.problems.values(), *stages.verify(run, context, done).values()]
        summary = close(run, planned, problems, planning_only=planning_only, detailed=detailed)
        return _waiting(summary, waits)


def _may_grow(run: Run, *, applying_only: bool) -> bool:
    """Return whether a start may add clusters to the plan that earlier starts couldn't reach."""
    if applying_only:
        return False
    unplanned = run.state is RunState.APPLYING and bool(_clusters_without_plan(run)[0])
    return run.state is RunState.PLANNING or unplanned


def _stopped(run: Run, planned: Planned) -> Sequence[StoppedActions]:
    """Return what guards stopped and no approval allows yet."""
    found = all_stopped(run.plans() if planned.guarded else None, run.arguments)
    return [each for each in found if not each.is_let_through(run.allowed)]


def _waiting(summary: Summary, missing: Approvals | None) -> Summary:
    if missing is None:
        return summary
    waits_for = missing.in_words(summary.pending.stopped)
    pending = replace(summary.pending, waits_for=waits_for, plan_digest=missing.plan_digest)
    return replace(summary, pending=pending)


def plan(run: Run, context: Context, *, planning_only: bool = False, applying_only: bool = False) -> Planned:
    """Run all phases up to plan; the plan is committed before any request is sent, validateOnly included."""
    now = datetime.now(UTC)
    if run.state is RunState.PLANNED:
        # Actions that an approval lets through were not validated yet: that is left to the start that applies them.
        actions = _actions(run) if run.allowed and not planning_only else {}
        return Planned(
            actions=actions,
            anything=True,
            seen=None,
            observed_since=now,
            counts=run.counts,
            columns={},
            guarded=True,
        )
    # In the background while clusters are observed: `observe_into_tables` and readers of the run's rows wait for it.
    run.commits.add(partial(run.ledger.ensure, MANIFESTS, USAGES, PLANS, AUDIT, OBSERVED, BROKERS, CLUSTERS))
    clusters, again = _clusters_without_plan(run)
    not_planned: dict[str, str] = {}
    if applying_only:
        not_planned, clusters = {each.name: _no_plan(run, each.name) for each in clusters}, []
    seen, decided = _plan_clusters(run, context, clusters, again=again) if clusters else (None, NOTHING)
    # In a resumed run, earlier starts may have left rows that aren't in these counts.
    if decided.ended or run.resumed:
        _record_refusals(run)
    if decided.any_altered or (run.resumed and run.settings.changes):
        warn_of_changed_back(run)
    counts = {**run.counts, **{name: run.counts.get(name, 0) + count for name, count in decided.counts.items()}}
    return Planned(
        actions=_actions(run) if decided.any_planned or run.resumed else {},
        anything=decided.ended or decided.any_planned or run.resumed,
        seen=None if again else seen,
        observed_since=now,
        counts=counts,
        columns={"counts": counts, **_observed_at(run, now if clusters else None)},
        problems=not_planned if seen is None else _unreached(run, seen),
        warned=decided.any_warned or decided.any_altered or run.resumed,
        guarded=decided.any_guarded or run.resumed,
    )


def _observed_at(run: Run, at: datetime | None) -> Mapping[str, object]:
    """Return the column `observed_at` of the run's row. `at`: when this start observed clusters, if it did."""
    if at is None and run.row["observed_at"] is None:
        # An earlier start was killed before it wrote that down.
        (found,) = collected_in_utc(run.plans().agg(F.min("planned_at").alias("planned_at")))
        at = found["planned_at"]
    return {} if at is None else {"observed_at": at}


@contextmanager
def _kept_if_stopped(run: Run, planned: Planned) -> Iterator[None]:
    """Context that writes down what planning found if a deadline or a signal stops validate: no start asks again."""
    try:
        yield
    except Stopped:
        if run.state is RunState.PLANNING:
            run.commit_state(RunState.PLANNING, **planned.columns)
        raise


def _no_plan(run: Run, cluster: str) -> str:
    return (
        f"cluster {cluster} has no plan: it could not be reached when run {run.run_id} was planned. The other clusters "
        f"continue; for {cluster} start `plan` again with --run-id {run.run_id}{_with_files(run)}, then `apply`"
    )


def _with_files(run: Run) -> str:
    """Return what else a plan from files needs if it is started again, for a message."""
    paths = paths_in(run.arguments)
    return f", its files ({shlex.join(paths)}) and its options" if paths else ""


def _actions(run: Run) -> Work:
    return in_batches(standing(run, Standing.PLANNED) if run.resumed else run.open_actions())


def validate(run: Run, context: Context, planned: Planned) -> Validated:
    """Validate planned actions on their clusters; policies evaluate creates again with the values from brokers."""
    step = each_cluster(run, context, Phase.VALIDATE, planned.actions, Executor.validate)
    ready = Validated(
        actions=in_batches(sendable(run)) if run.resumed else step.ok(planned.actions),
        seen=planned.seen,
        observed_since=planned.observed_since,
        problems=step.why_open,
    )
    if run.state is not RunState.PLANNING:
        return ready
    if ready.actions and run.settings.policies.create:
        ready = _evaluated_on_resolved(run, context, ready)
    if planned.problems or ready.problems:
        run.put_state(RunState.PLANNING, **planned.columns)
    elif planned.actions or ready.actions or _stopped(run, planned):
        # A run with nothing to send is finished at once. If the plan is applied at once, the next commit is `applying`.
        run.put_state(RunState.PLANNED, **planned.columns)
    return ready


def _evaluated_on_resolved(run: Run, context: Context, ready: Validated) -> Validated:
    seen = ready.seen
    if seen is None:
        # An earlier start observed the clusters, but another run may have replaced its rows by now.
        seen = stages.observe_again(run, context, run.clusters, run.open_actions())
    again = reevaluate(run, context.policies, seen, run.manifest_version, Phase.POLICY, *MAKE_PARTITIONS)
    actions = in_batches(sendable(run)) if again.reported else ready.actions
    return replace(ready, actions=actions, seen=seen, waiting=again.waiting)


def close(run: Run, planned: Planned, problems: Sequence[str], *, planning_only: bool, detailed: bool) -> Summary:
    """Summarise the run, and finish it if nothing is open; a plan is finished only if it has nothing to send."""
    with ThreadPoolExecutor(1) as beside:
        rows = results(run) if planned.anything else None
        # A plan with actions to send isn't over.
        likely_over = rows is not None and not planning_only and not problems
        ending = beside.submit(proof.ending, run) if likely_over else None
        summary = summarise(
            run,
            rows,
            planned.counts,
            problems,
            planning_only=planning_only,
            detailed_exitcode=detailed,
            warned=planned.warned,
        )
        if planning_only and run.state is not RunState.FINISHED:
            stopped = _stopped(run, planned)
            # Rows of the plan tell of stopped actions, but not of a stopped load.
            code = most_severe(summary.exit_code, ExitCode.GUARD_STOPPED if stopped else ExitCode.DONE)
            pending = replace(summary.pending, stopped=stopped)
            summary = replace(summary, pending=pending, exit_code=int(code))
        # An earlier start found something to apply: approvals may allow by now all that waited.
        waits = planning_only and (summary.is_pending or run.found is RunState.PLANNED)
        if planning_only and run.found is RunState.APPLYING:
            # Actions that an earlier start applied may be unverified, and this start verifies nothing.
            command = apply_command(run.run_id, paths_in(run.arguments))
            ends = f"an earlier start applied some of it; to verify that and to end the run: {command}"
            return replace(summary, problems=[*summary.problems, ends])
        if summary.exit_code == ExitCode.ERROR or waits:
            return summary
        ended: Mapping[str, object] = {
            **planned.columns,
            "finished_at": datetime.now(UTC),
            "exit_code": summary.exit_code,
            "counts": {**summary.decisions, **summary.outcomes()},
        }
        if rows is not None:
            ended = proof.sealed(run, ending.result() if ending is not None else proof.ending(run), ended)
    run.commit_state(RunState.FINISHED, **ended)
    return replace(summary, state=run.state.value)


def _clusters_without_plan(run: Run) -> tuple[Sequence[ClusterSettings], bool]:
    """Return the clusters that still need a plan, and whether an earlier start failed to reach them."""
    if not run.resumed:
        return run.clusters, False
    found = is_planned(run.plans())
    if not found:
        return run.clusters, False
    return [each for each in run.clusters if not found.get(each.name, True)], True


def _plan_clusters(
    run: Run, context: Context, clusters: Sequence[ClusterSettings], *, again: bool
) -> tuple[Observation, Decided]:
    """Observe clusters, decide on them, and commit the decisions if there are any."""
    selected = [cluster.name for cluster in clusters] if again else run.selected
    with context.progress.phase("observe", len(clusters)), ThreadPoolExecutor(1 + len(GOALS)) as beside:
        listing = beside.submit(list_clusters, run.spark, clusters, run.settings.kafka)
        wanted = [beside.submit(goals_of, run, clusters, selected) for goals_of in GOALS]
        goals = [goal for each in wanted for goal in each.result()]
        named = reduce(DataFrame.union, [rows for goal in goals if (rows := goal.named()) is not None])
        # Decisions are made while the observation is being committed; nothing relies on them before.
        with observe_into_tables(run, listing.result(), named) as seen:
            observed, decided = list[Observed](), NOTHING
            for goal in goals:
                seen, found = goal.observe(run, seen)
                observed.append(found)
            for found in observed:
                decided = decided.also(found.decide(run, context.policies, seen, again=again))
            if again and run.of_files:
                decided = decided.also(removals.reached_again(run, decided, seen))
    if decided.ended or decided.any_planned or again:
        with context.progress.phase("plan"):
            commit_plan(run, decided)
    return seen, decided


def _unreached(run: Run, seen: Observation) -> Mapping[str, str]:
    """Return cluster -> why it was not reached, for clusters with rows in the plan."""
    errors = {name: status.error for name, status in seen.statuses.items() if status.error is not None}
    if not errors:
        return {}
    found = is_planned(run.plans())
    lacking = {name for name in errors if not found.get(name, True)}
    for name, error in errors.items():
        # The result has those of clusters with rows.
        log.log(logging.INFO if name in lacking else logging.WARNING, "%s", error)
    return {
        name: f"{errors[name]}; this run changes the other clusters. Once it can be reached, start run {run.run_id} "
        f"again{_with_files(run)}"
        for name in errors
        if name in lacking
    }


def _record_refusals(run: Run) -> None:
    """Append the rows of the plan that ended before validate to `audit`, once."""
    ended = run.plans().where(F.col("phase").isNotNull())
    if run.resumed:
        recorded = run.audit().select("cluster", "resource_type", "resource", "phase", "error")
        same = [ended[name].eqNullSafe(recorded[name]) for name in recorded.columns]
        ended = ended.join(recorded, on=same, how="left_anti")
    # These columns of `audit` have values that a broker returned, or that were sent; here no broker was asked.
    own = ended.drop("num_partitions", "replication_factor", "configs", "before", "after").withColumnRenamed(
        "planned_at", "completed_at"
    )
    code = F.when(F.col("outcome") == Outcome.SKIPPED.value, 0).otherwise(OURS)
    run.append_audit(own.transform(audit_rows(run.run_id, run.manifest_version, error_code=code)))
