"""A provisioning run, phase by phase:

    manifest -> observe -> decide -> policy, guard -> plan -> validate -> apply -> verify -> close

Up to the plan all is DataFrames; from there on the driver acts and each outcome becomes a row of `audit`. Every phase
reads what is open from the tables, so that a resumed run goes the same way as one that was never stopped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.apply.dispatch import Context, batches, each_cluster
from topicledger.apply.executor import Executor
from topicledger.apply.summary import Summary, summarise
from topicledger.config.settings import ClusterSettings
from topicledger.errors import ExitCode
from topicledger.kafka.connection import request_timeout
from topicledger.ledger import leases
from topicledger.ledger.acknowledged import created_by_us
from topicledger.ledger.leases import Leases
from topicledger.ledger.memory import REMEMBERED, Memory, Results, Work
from topicledger.ledger.rows import audit_rows
from topicledger.ledger.run import Run
from topicledger.ledger.sent_batches import SentBatches
from topicledger.ledger.standing import applied, passed, without
from topicledger.manifests import rows as manifests
from topicledger.model import (
    OURS,
    Action,
    Outcome,
    Phase,
    PhaseResult,
    Refusal,
    RunState,
    Target,
    TopicResult,
)
from topicledger.observe.record import observe_into_tables
from topicledger.observe.topics import Observation, list_clusters
from topicledger.plan.decisions import plan_rows
from topicledger.plan.intent import expired, no_longer_declared
from topicledger.plan.reevaluate import reevaluate
from topicledger.schemas import AUDIT, BROKERS, CLUSTERS, MANIFESTS, OBSERVED, PLANS, SENT_BATCHES, USAGES

log = logging.getLogger(__name__)


def provision(run: Run, context: Context, *, planning_only: bool, detailed: bool = False) -> Summary:
    """Take a run from where it stands to its end, or to the end of its plan."""
    with run:
        seen = None
        if run.state is RunState.PLANNING or (run.resumed and run.state is RunState.APPLYING):
            seen = plan(run, context)
        if not planning_only:
            apply(run, context, seen)
        elif not run.none_planned:
            # What has nothing to send is finished in one commit.
            run.keep_state()
        return close(run, planning_only=planning_only, detailed=detailed)


def plan(run: Run, context: Context) -> Observation | None:
    """Everything up to validate; commits the plan before anything is sent, validateOnly included.

    Returns what this start observed of the run's clusters; None where it didn't have to.
    """
    # Beside observing the clusters: `observe_into_tables` and whoever reads the run's rows wait for it.
    run.commits.add(partial(run.ledger.ensure, MANIFESTS, USAGES, PLANS, AUDIT, OBSERVED, BROKERS, CLUSTERS))
    clusters, again = _clusters_without_plan(run)
    seen = _plan_clusters(run, context, clusters, again=again) if clusters else None
    if not run.none_ended:
        _record_refusals(run)
    if run.none_planned:
        run.memory = Memory({})
    else:
        _validate(run, context)
    if run.state is RunState.PLANNING:
        if run.settings.policies.create and not run.none_planned:
            if seen is None or again:
                # An earlier start observed the others: what it wrote may be another run's by now.
                seen = _observe_again(run, context, run.clusters, run.open_actions())
            reevaluate(run, context.policies, seen, run.manifest_version, Phase.POLICY, Action.CREATE)
        # Where it is applied at once, its row says so with the commit that says `applying`.
        run.becomes(RunState.PLANNING if run.problems else RunState.PLANNED, counts=run.counts)
    return seen


def apply(run: Run, context: Context, seen: Observation | None) -> None:
    """Send what passed, then verify it. `seen`: what this start observed, where it did."""
    if run.none_planned:
        return
    run.ledger.ensure(MANIFESTS, USAGES, PLANS, AUDIT, OBSERVED, BROKERS, SENT_BATCHES)
    work = batches(passed(run)) if run.memory is None else run.memory.ok(Phase.VALIDATE)
    if work:
        held = run.ending.enter_context(_leases(run, context, work))
        with SentBatches(run) as sent:
            if not _apply_leased(run, context, work, held, sent, seen):
                return
    elif run.state is not RunState.APPLYING:
        run.move_to(RunState.APPLYING, counts=run.counts)
    _verify(run, context)


def _apply_leased(
    run: Run, context: Context, work: Work, held: Leases, sent: SentBatches, seen: Observation | None
) -> bool:
    """Send `work`, what passed validate, while no other run may change its clusters; False where it can't be judged."""
    run.leases = held
    latest = run.ledger.latest_version(MANIFESTS)
    afresh = run.resumed or held.contended
    judged_again = afresh or latest != run.manifest_version
    if judged_again:
        run.keep_state()
        _refuse_outdated(run, context, latest)
        if afresh:
            seen = _judge_afresh(run, context, latest)
        if set(work) <= run.unjudged:
            # What can't be judged must not be sent.
            run.leases = None
            held.release_soon()
            return False
    else:
        # Beside the commit that says `applying`.
        sent.begin(work)
    if run.state is not RunState.APPLYING:
        run.move_to(RunState.APPLYING, counts=run.counts)
    _apply(run, context, sent, None if judged_again else work, seen, latest)
    held.require()
    run.leases = None

    def let_go() -> None:
        held.require()
        held.release_soon()

    # Verify changes nothing: others may have the clusters meanwhile, once what was done to them is kept.
    run.commits.add(let_go)
    return True


def _leases(run: Run, context: Context, work: Work) -> Leases:
    if context.wait or run.resumed:
        # Waiting, for another run or an earlier start of this one, may take long: what was found out is kept before.
        run.keep_state()
        run.commits.settle()
    settings = [cluster for cluster in run.clusters if cluster.name in work]
    return leases.take(
        run.ledger,
        run.run_id,
        {cluster_id: name for name, (cluster_id, _) in work.items()},
        observed_since=run.observed_since,
        request_timeout=max(request_timeout(cluster, run.settings.kafka) for cluster in settings),
        wait=context.wait,
        stop=context.stop,
    )


def close(run: Run, *, planning_only: bool, detailed: bool) -> Summary:
    """Say what the run came to, and finish it where nothing is open: a plan, where it has nothing to send."""
    summary = summarise(run, planning_only=planning_only, detailed_exitcode=detailed)
    if summary.exit_code == ExitCode.ERROR or (planning_only and summary.pending_changes):
        return summary
    counts = {**summary.decisions, **summary.outcomes()}
    run.move_to(RunState.FINISHED, finished_at=datetime.now(UTC), counts=counts, exit_code=summary.exit_code)
    return replace(summary, state=run.state.value)


def _clusters_without_plan(run: Run) -> tuple[Sequence[ClusterSettings], bool]:
    """The clusters still to observe and decide on, and whether an earlier start tried that in vain."""
    if not run.resumed:
        return run.clusters, False
    rows = (
        run.plans()
        .groupBy("cluster")
        .agg(
            F.bool_or(
                (F.col("phase") == Phase.OBSERVE.value) & (F.col("error") == Refusal.CLUSTER_UNREACHABLE.value)
            ).alias("unreached"),
            F.bool_or(F.col("action").isNotNull() | F.col("phase").isin(Phase.POLICY.value, Phase.GUARD.value)).alias(
                "planned"
            ),
        )
    )
    found = {row["cluster"]: (row["unreached"], row["planned"]) for row in rows.collect()}
    if not found:
        return run.clusters, False
    return [each for each in run.clusters if found.get(each.name, (False, False)) == (True, False)], True


def _plan_clusters(run: Run, context: Context, clusters: Sequence[ClusterSettings], *, again: bool) -> Observation:
    """Observe clusters, decide on them, and commit what was decided; returns what was observed."""
    settings = run.settings
    selected = [cluster.name for cluster in clusters] if again else run.selected
    with context.progress.phase("observe", len(clusters)), ThreadPoolExecutor(1) as beside:
        listing = beside.submit(list_clusters, run.spark, clusters, settings.kafka)
        judged = run.ledger.read(MANIFESTS, run.manifest_version).transform(
            manifests.judge(list(settings.clusters), selected)
        )
        accepted = judged.where(F.col("phase").isNull())
        # The plan is made, but not yet asked for, while what was seen is written down.
        with observe_into_tables(run, listing.result(), accepted) as seen:
            rows, metrics = plan_rows(run, context.policies, clusters, judged, seen, again=again)
    with context.progress.phase("plan"):
        tries = run.ledger.append(PLANS, rows, app_id=run.run_id, version=run.next_version())
    # A plan that came too late was dropped unread, and its metrics would be waited for in vain.
    run.require_ownership()
    if tries > 1:
        # Metrics are those of the first try, which failed somewhere on its way.
        rows, metrics = plan_rows(run, context.policies, clusters, judged, seen, again=again)
        rows.write.format("noop").mode("overwrite").save()
    found = dict(metrics.get)
    run.none_ended, run.none_planned = not found.pop("_ended"), not found.pop("_planned")
    if run.resumed:
        # Earlier starts may have left rows that these counts don't know of.
        run.none_ended = run.none_planned = False
    run.counts = {name: run.counts.get(name, 0) + count for name, count in found.items()}
    unreached = {name: status.error for name, status in seen.statuses.items() if status.error is not None}
    if unreached:
        concerned = run.plans().where(F.col("error") == Refusal.CLUSTER_UNREACHABLE.value).select("cluster").distinct()
        concerned_names = {row["cluster"] for row in concerned.collect()}
        for name, error in unreached.items():
            log.warning("%s", error)
            if name in concerned_names:
                run.problems.append(f"{error}; the other clusters go on, start run {run.run_id} again for {name}")
    return seen


def _record_refusals(run: Run) -> None:
    """Rows of `audit` for what ended before validate; they follow from the plan, once."""
    ended = run.plans().where(F.col("phase").isNotNull())
    if run.resumed:
        recorded = run.audit().select("cluster", "topic", "phase", "error")
        same = [ended[name].eqNullSafe(recorded[name]) for name in recorded.columns]
        ended = ended.join(recorded, on=same, how="left_anti")
    # Counts and configs of `audit` are what a broker returned: here it was not asked.
    own = ended.drop("num_partitions", "replication_factor", "configs").withColumnRenamed("planned_at", "completed_at")
    code = F.when(F.col("outcome") == Outcome.SKIPPED.value, 0).otherwise(OURS)
    run.append_audit(own.transform(audit_rows(run.run_id, run.manifest_version, error_code=code)))


def _validate(run: Run, context: Context) -> None:
    rows = run.open_actions()
    if run.resumed:
        rows = without(rows, run.audit().where(F.col("phase") == Phase.VALIDATE.value))
    work = batches(rows)
    if not run.resumed and sum(len(batch) for _, targets in work.values() for batch in targets) <= REMEMBERED:
        run.memory = Memory(work)

    def validate(executor: Executor, batch: Sequence[Target]) -> Iterator[PhaseResult]:
        return executor.validate(
            batch, lambda topics: created_by_us(run.ledger, executor.cluster, executor.cluster_id, topics)
        )

    each_cluster(run, context, Phase.VALIDATE, work, validate)


def _refuse_outdated(run: Run, context: Context, latest: int) -> None:
    """Refuse what the manifests at version `latest` don't ask for any more, and of a run that is being applied what was
    planned too long ago. What earlier starts may have sent is found out first.
    """
    if run.state is RunState.APPLYING:
        maybe_sent = batches(passed(run).where("maybe_sent"))
        run.unjudged |= set(each_cluster(run, context, Phase.APPLY, maybe_sent, Executor.recover, "recover"))
        _refuse(run, _judgeable(run).transform(expired(run.settings.guards.max_plan_age, datetime.now(UTC))))
    if latest != run.manifest_version:
        judged = run.ledger.read(MANIFESTS, latest).transform(
            manifests.judge(list(run.settings.clusters), run.selected)
        )
        _refuse(run, _judgeable(run).transform(no_longer_declared(judged, latest)))


def _judgeable(run: Run) -> DataFrame:
    """What passed, less that of clusters on which it isn't known what earlier starts did."""
    return passed(run).where(~F.col("cluster").isin(*run.unjudged))


def _refuse(run: Run, rows: DataFrame) -> None:
    """End actions (columns `intent.REFUSED`) that are not sent: each gets its apply row."""
    refused = rows.localCheckpoint()
    if refused.isEmpty():
        return
    values = {"phase": F.lit(Phase.APPLY.value), "outcome": F.lit(Outcome.REFUSED.value), "error_code": F.lit(OURS)}
    run.append_audit(refused.transform(audit_rows(run.run_id, run.manifest_version, **values)))


def _judge_afresh(run: Run, context: Context, latest: int) -> Observation | None:
    """Judge a plan again where clusters may have changed since: what may not be sent now is refused.

    Returns what was observed of the clusters on which something is open; None where nothing is.
    """
    check = batches(_judgeable(run))
    run.unjudged |= set(each_cluster(run, context, Phase.APPLY, check, Executor.changed_since_plan, "check"))
    names = {row["cluster"] for row in _judgeable(run).select("cluster").distinct().collect()}
    clusters = [cluster for cluster in run.clusters if cluster.name in names]
    if not clusters:
        return None
    seen = _observe_again(run, context, clusters, passed(run).where(F.col("action") == Action.DELETE.value))
    for name, status in seen.statuses.items():
        problem = status.error if status.refused is None else status.refused.message
        if problem is not None:
            run.unjudged.add(name)
            if problem not in run.problems:
                run.problems.append(problem)
    reevaluate(run, context.policies, seen, latest, Phase.APPLY, *Action)
    return seen


def _observe_again(run: Run, context: Context, clusters: Sequence[ClusterSettings], named: DataFrame) -> Observation:
    """Observe clusters now; `observed` and `brokers` are replaced, too."""
    with context.progress.phase("observe", len(clusters)):
        listing = list_clusters(run.spark, clusters, run.settings.kafka)
        with observe_into_tables(run, listing, named) as seen:
            pass
    return seen


def _apply(
    run: Run, context: Context, sent: SentBatches, work: Work | None, seen: Observation | None, latest: int
) -> None:
    """Send what passed; `work` is all of it where that is known already."""
    waiting = run.waiting
    if waiting is None and work is not None:
        _send(run, context, sent, work)
        return
    rows = _judgeable(run)
    if waiting is None:
        _send(run, context, sent, batches(rows))
        return
    _send(run, context, sent, batches(rows.join(waiting, on=["cluster", "topic"], how="left_anti")))
    assert seen is not None, "creates wait only where this start has judged them"
    reevaluate(run, context.policies, seen, latest, Phase.APPLY, Action.CREATE)
    rows = _judgeable(run).join(waiting, on=["cluster", "topic"], how="left_semi")
    if run.waiting is not None:
        # Deletes whose outcome isn't known yet: their room isn't either.
        rows = rows.join(run.waiting, on=["cluster", "topic"], how="left_anti")
    _send(run, context, sent, batches(rows))


def _send(run: Run, context: Context, sent: SentBatches, work: Work) -> None:
    sent.begin(work)
    each_cluster(run, context, Phase.APPLY, work, Executor.apply, before=sent.before)


def _verify(run: Run, context: Context) -> None:
    work, results = _applied(run) if run.memory is None else (run.memory.ok(Phase.APPLY), run.memory.results())
    deadline = time.monotonic() + context.wait_visible

    def verify(executor: Executor, batch: Sequence[Target]) -> Iterator[PhaseResult]:
        left = list(batch)
        while left:
            pairs = [(target, results[executor.cluster, target.topic, target.action]) for target in left]
            seen = list(executor.verify(pairs))
            again = time.monotonic() < deadline and not context.stop.is_set()
            yield from (ended for ended in seen if not again or ended.outcome is not Outcome.PENDING)
            pending = {ended.topic for ended in seen if ended.outcome is Outcome.PENDING}
            left = [target for target in left if target.topic in pending] if again else []
            if left:
                executor.wait(0.5)

    each_cluster(run, context, Phase.VERIFY, work, verify)


def _applied(run: Run) -> tuple[Work, Results]:
    """What was applied and not verified yet, by the tables."""
    results: Results = {}

    def remember(row: Mapping[str, Any]) -> None:
        results[row["cluster"], row["topic"], Action(row["action"])] = TopicResult(
            topic_id=row["applied_id"], num_partitions=row["applied_num_partitions"]
        )

    return batches(applied(run), "applied_id", "applied_num_partitions", each=remember), results
