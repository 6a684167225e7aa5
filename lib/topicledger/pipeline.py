"""A provisioning run, phase by phase:

    manifest -> observe -> decide -> policy, guard -> plan -> validate -> apply -> verify -> close

Up to the plan all is DataFrames; from there on the driver acts and each outcome becomes a row of `audit`. Each phase
takes the value that the one before returned. A resumed run makes the same values from the tables (`plan.standing`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import functions as F

from topicledger.apply import stages
from topicledger.apply.cancelling import cancelled_if_stopped
from topicledger.apply.dispatch import Context, each_cluster
from topicledger.apply.executor import Executor
from topicledger.apply.summary import Summary, results, summarise
from topicledger.apply.values import Validated
from topicledger.config.settings import ClusterSettings
from topicledger.errors import ExitCode, exit_code
from topicledger.ledger import proof
from topicledger.ledger.outcomes import Standing
from topicledger.ledger.rows import audit_rows
from topicledger.ledger.run import Run
from topicledger.ledger.throttles import clusters_left
from topicledger.ledger.unreached import is_planned
from topicledger.model import OURS, Outcome, Phase, RunState, Work
from topicledger.observe.record import observe_into_tables
from topicledger.observe.topics import Observation, list_clusters
from topicledger.plan import approvals, resources
from topicledger.plan.changes import describe
from topicledger.plan.decisions import NOTHING, Decided, commit_plan, decisions
from topicledger.plan.history import warn_of_changed_back
from topicledger.plan.prune import pruned, rules
from topicledger.plan.reevaluate import reevaluate
from topicledger.plan.revert import undone
from topicledger.plan.standing import in_batches, sendable, standing
from topicledger.plan.wanted import Wanted, declared, rebalanced
from topicledger.policies.contract import MAKE_PARTITIONS
from topicledger.schemas import AUDIT, BROKERS, CLUSTERS, MANIFESTS, OBSERVED, PLANS, USAGES

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What the plan came to."""

    actions: Work
    """Those that its clusters weren't asked about yet."""
    anything: bool
    """Whether `plans` has any row of the run: an action or a refusal."""
    seen: Observation | None
    """What this start observed of all the run's clusters; None where an earlier one observed some of them."""
    observed_since: datetime
    """When this start began to observe them."""
    counts: Mapping[str, int]
    """Topics by decision, of those that need nothing."""
    columns: Mapping[str, object]
    """Of the run's row, what is known by now."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """By cluster, why something is still open on it."""
    warned: bool = True
    """Whether an action may have a warning."""


def provision(
    run: Run, context: Context, *, planning_only: bool, applying_only: bool = False, detailed: bool = False
) -> Summary:
    """Take a run from where it stands to its end, or to the end of its plan.

    `applying_only`: nothing is planned, so that nothing is sent which nobody could read before. Clusters that have no
    plan stay open.
    """
    if run.prunes is not None:
        context = replace(context, policies=[*context.policies, *rules(run, run.prunes)])
    with ExitStack() as closing, run:
        # Beside the plan: a run with nothing to do must not wait for it.
        left = None if planning_only else closing.enter_context(ThreadPoolExecutor(1)).submit(clusters_left, run.ledger)
        planned = plan(run, context, applying_only=applying_only)
        with cancelled_if_stopped(run, context, closing):
            ready = validate(run, context, planned)
        problems = [*planned.problems.values(), *ready.problems.values()]
        waits = _approvals(run, ready)
        if waits is not None and not planning_only:
            summary = close(run, planned, problems, planning_only=True, detailed=detailed)
            code = exit_code({ExitCode.ERROR: summary.exit_code == ExitCode.ERROR, ExitCode.GUARD_STOPPED: True})
            return replace(_waiting(summary, waits), exit_code=int(code))
        if left is not None:
            done = stages.apply(run, context, ready, closing, left.result)
            with cancelled_if_stopped(run, context, closing):
                problems += [*done.problems.values(), *stages.verify(run, context, done).values()]
        summary = close(run, planned, problems, planning_only=planning_only, detailed=detailed)
        return _waiting(summary, waits)


def _waiting(summary: Summary, waits_for: str | None) -> Summary:
    return replace(summary, pending=replace(summary.pending, waits_for=waits_for))


def _approvals(run: Run, ready: Validated) -> str | None:
    """What approval the plan still needs, in words; None where it has what it needs, or nothing to send."""
    guards = run.settings.guards
    if not (guards.approvals or guards.approvals_for) or not ready.actions:
        return None
    run.commits.settle()
    found = approvals.of_run(run.ledger, guards, run.run_id, str(run.row["requested_by"]))
    return str(found) if found.missing else None


def plan(run: Run, context: Context, *, applying_only: bool = False) -> Planned:
    """Everything up to the plan, which is committed before anything is sent, validateOnly included."""
    now = datetime.now(UTC)
    if run.state is RunState.PLANNED:
        return Planned(actions={}, anything=True, seen=None, observed_since=now, counts=run.counts, columns={})
    # Beside observing the clusters: `observe_into_tables` and whoever reads the run's rows wait for it.
    run.commits.add(partial(run.ledger.ensure, MANIFESTS, USAGES, PLANS, AUDIT, OBSERVED, BROKERS, CLUSTERS))
    clusters, again = _clusters_without_plan(run)
    not_planned: dict[str, str] = {}
    if applying_only:
        not_planned, clusters = {each.name: _no_plan(run, each.name) for each in clusters}, []
    seen, decided = _plan_clusters(run, context, clusters, again=again) if clusters else (None, NOTHING)
    # Of a resumed run, earlier starts may have left rows that these counts don't have.
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
        columns={"counts": counts, **({"observed_at": now} if clusters else {})},
        problems=not_planned if seen is None else _unreached(run, seen),
        warned=decided.any_warned or decided.any_altered or run.resumed,
    )


def _no_plan(run: Run, cluster: str) -> str:
    return (
        f"cluster {cluster} has no plan: it could not be reached when run {run.run_id} was planned; what is planned "
        f"for the other clusters goes on; for {cluster} start `plan` again with --run-id {run.run_id}, then `apply`"
    )


def _actions(run: Run) -> Work:
    return in_batches(standing(run, Standing.PLANNED) if run.resumed else run.open_actions())


def validate(run: Run, context: Context, planned: Planned) -> Validated:
    """Ask the clusters about what is planned; policies judge creates again on what the brokers resolved."""
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
        ready = _judged_on_resolved(run, context, ready)
    if planned.problems or ready.problems:
        run.put_state(RunState.PLANNING, **planned.columns)
    elif planned.actions or ready.actions:
        # With nothing to send it is finished at once; where it is applied at once, the next commit says `applying`.
        run.put_state(RunState.PLANNED, **planned.columns)
    return ready


def _judged_on_resolved(run: Run, context: Context, ready: Validated) -> Validated:
    seen = ready.seen
    if seen is None:
        # An earlier start observed the clusters: what it wrote may be another run's by now.
        seen = stages.observe_again(run, context, run.clusters, run.open_actions())
    judged = reevaluate(run, context.policies, seen, run.manifest_version, Phase.POLICY, *MAKE_PARTITIONS)
    actions = in_batches(sendable(run)) if judged.reported else ready.actions
    return replace(ready, actions=actions, seen=seen, waiting=judged.waiting)


def close(run: Run, planned: Planned, problems: Sequence[str], *, planning_only: bool, detailed: bool) -> Summary:
    """Say what the run came to, and finish it where nothing is open: a plan, where it has nothing to send."""
    with ThreadPoolExecutor(1) as beside:
        rows = results(run) if planned.anything else None
        # A plan that has something to send isn't over.
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
        if summary.exit_code == ExitCode.ERROR or (planning_only and summary.pending_changes):
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
    """The clusters still to observe and decide on, and whether an earlier start tried that in vain."""
    if not run.resumed:
        return run.clusters, False
    found = is_planned(run.plans())
    if not found:
        return run.clusters, False
    return [each for each in run.clusters if not found.get(each.name, True)], True


def _plan_clusters(
    run: Run, context: Context, clusters: Sequence[ClusterSettings], *, again: bool
) -> tuple[Observation, Decided]:
    """Observe clusters, decide on them, and commit what was decided where it is anything."""
    settings = run.settings
    selected = [cluster.name for cluster in clusters] if again else run.selected
    with context.progress.phase("observe", len(clusters)), ThreadPoolExecutor(2) as beside:
        listing = beside.submit(list_clusters, run.spark, clusters, settings.kafka)
        others = beside.submit(resources.wanted, run, clusters, selected)
        wanted = _wanted(run, selected)
        accepted = wanted.judged.where(F.col("phase").isNull() & F.col("topic").isNotNull())
        # It is decided, but nothing relies on it, while what was seen is written down.
        with observe_into_tables(run, listing.result(), accepted) as seen:
            wanted.require(seen)
            topics, configs = wanted.to_describe(seen), None
            if topics is not None:
                seen, configs = describe(run.spark, settings.kafka, clusters, topics, seen)
            seen, listed = resources.list_into_tables(run, others.result(), seen)
            decided = decisions(run, context.policies, clusters, wanted, seen, configs, again=again)
            for each in listed:
                decided = decided.also(resources.decisions(run, context.policies, each, seen, again=again))
    if decided.ended or decided.any_planned or again:
        with context.progress.phase("plan"):
            commit_plan(run, decided)
    return seen, decided


def _wanted(run: Run, selected: Sequence[str] | None) -> Wanted:
    if run.prunes is not None:
        return pruned(run, run.prunes, selected)
    if run.reverts is not None:
        return undone(run, run.reverts, selected)
    return declared(run, selected) if run.rebalances is None else rebalanced(run, run.rebalances, selected)


def _unreached(run: Run, seen: Observation) -> Mapping[str, str]:
    """Clusters that were not reached, and that the run has something on: why."""
    errors = {name: status.error for name, status in seen.statuses.items() if status.error is not None}
    for error in errors.values():
        log.warning("%s", error)
    if not errors:
        return {}
    found = is_planned(run.plans())
    return {
        name: f"{error}; the other clusters go on, start run {run.run_id} again for {name}"
        for name, error in errors.items()
        if not found.get(name, True)
    }


def _record_refusals(run: Run) -> None:
    """Rows of `audit` for what ended before validate; they follow from the plan, once."""
    ended = run.plans().where(F.col("phase").isNotNull())
    if run.resumed:
        recorded = run.audit().select("cluster", "resource_type", "resource", "phase", "error")
        same = [ended[name].eqNullSafe(recorded[name]) for name in recorded.columns]
        ended = ended.join(recorded, on=same, how="left_anti")
    # Counts and configs of `audit` are what a broker returned, before and after what was sent: here it was not asked.
    own = ended.drop("num_partitions", "replication_factor", "configs", "before", "after").withColumnRenamed(
        "planned_at", "completed_at"
    )
    code = F.when(F.col("outcome") == Outcome.SKIPPED.value, 0).otherwise(OURS)
    run.append_audit(own.transform(audit_rows(run.run_id, run.manifest_version, error_code=code)))
