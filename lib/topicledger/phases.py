"""A provisioning run, phase by phase:

    manifest -> observe -> decide -> policy, guard -> plan -> validate -> apply -> verify -> close

Up to the plan all is DataFrames; from there on the driver acts and each outcome becomes a row of `audit`. Every phase
reads what is open from the tables, so that a run taken up again goes the same way as one that was never stopped.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import Observation as Metrics
from pyspark.sql import functions as F

from topicledger import guards, manifests, policies
from topicledger.admin import ClusterAdmin
from topicledger.decide import decide
from topicledger.errors import ClusterError, ExitCode, TopicLedgerError
from topicledger.execute import Executor
from topicledger.manifests import Transform
from topicledger.model import OURS, Action, Decision, Ended, Outcome, Phase, Refusal, RunState, Target, TopicResult
from topicledger.observe import observe
from topicledger.plan import planned
from topicledger.progress import Progress
from topicledger.runs import Run, Waves
from topicledger.schemas import AUDIT, BROKERS, MANIFESTS, OBSERVED, PLANS, USAGES
from topicledger.settings import ClusterSettings
from topicledger.summary import Summary, summarise

log = logging.getLogger(__name__)

MAX_CLUSTERS_AT_ONCE = 16
_COUNTED = (Decision.UNCHANGED, Decision.DRIFTED, Decision.UNMANAGED)


class Stopped(TopicLedgerError):
    """The run was asked to stop: what was sent is recorded, the rest stays open."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """What the phases share beside the run itself."""

    progress: Progress
    stop: threading.Event
    """Set to stop after the batches under way."""
    wait_visible: float = 0.0
    """Seconds that verify waits for leaders."""


# -- the pipeline -----------------------------------------------------------------------------------------------------


def carry_out(run: Run, context: Context, *, planning_only: bool, detailed: bool = False) -> Summary:
    """Take a run from where it stands to its end, or to the end of its plan."""
    if run.state is RunState.PLANNING or (run.resumed and run.state is RunState.APPLYING):
        plan(run, context)
    if not planning_only:
        apply(run, context)
    return close(run, planning_only=planning_only, detailed=detailed)


def plan(run: Run, context: Context) -> None:
    """Everything up to validate; commits the plan before anything is sent, validateOnly included."""
    run.ledger.ensure(MANIFESTS, USAGES, PLANS, AUDIT, OBSERVED, BROKERS)
    clusters, again = _clusters_without_plan(run)
    if clusters:
        _plan_clusters(run, context, clusters, again=again)
    if not run.none_ended:
        _record_refusals(run)
    if not run.none_planned:
        _validate(run, context)
    if run.state is RunState.PLANNING:
        run.move_to(RunState.PLANNING if run.problems else RunState.PLANNED, counts=run.counts)


def apply(run: Run, context: Context) -> None:
    """Send what passed, and look once at what it did."""
    if run.none_planned:
        return
    run.ledger.ensure(PLANS, AUDIT)
    if run.state is not RunState.APPLYING:
        if run.resumed:
            before = len(run.problems)
            _judge_again(run, context)
            if len(run.problems) > before:
                # What can't be judged must not be sent; once `applying`, nobody would judge it any more.
                return
        run.move_to(RunState.APPLYING, counts=run.counts)
    _apply(run, context)
    _verify(run, context)


def close(run: Run, *, planning_only: bool, detailed: bool) -> Summary:
    """Say what the run came to, and finish it where nothing is open."""
    summary = summarise(run, planning_only=planning_only, detailed_exitcode=detailed)
    if planning_only or summary.exit_code == ExitCode.ERROR:
        return summary
    counts = {**summary.decisions, **summary.outcomes()}
    run.move_to(RunState.FINISHED, finished_at=datetime.now(UTC), counts=counts, exit_code=summary.exit_code)
    return replace(summary, state=run.state.value)


# -- up to the plan ---------------------------------------------------------------------------------------------------


def _clusters_without_plan(run: Run) -> tuple[Sequence[ClusterSettings], bool]:
    """The clusters still to be looked at and decided on, and whether an earlier start tried that in vain."""
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


def _plan_clusters(run: Run, context: Context, clusters: Sequence[ClusterSettings], *, again: bool) -> None:
    settings = run.settings
    looked_at = [cluster.name for cluster in clusters] if again else run.selected
    judged = run.ledger.read(MANIFESTS, run.manifest_version).transform(
        manifests.judge(list(settings.clusters), looked_at)
    )
    with context.progress.phase("observe", len(clusters)):
        accepted = judged.where(F.col("phase").isNull())
        seen = observe(run.spark, clusters, settings.kafka, accepted)
        _keep(run, OBSERVED, seen.topics, seen.looks)
        _keep(run, BROKERS, seen.brokers, seen.looks)
    expected = {each.name: each.cluster_id for each in clusters if each.cluster_id is not None}
    rules = policies.from_settings(settings)
    decisions = (
        judged.transform(decide(seen.topics, seen.looks))
        .transform(guards.same_cluster(expected))
        # Deletes first, their guard included: only those that will be sent may free anything for a create.
        .transform(policies.judge([rule for rule in rules if rule.action is Action.DELETE]))
        .transform(guards.max_deletes(settings.guards.max_deletes))
        .transform(policies.judge([rule for rule in rules if rule.action is Action.CREATE]))
    )
    metrics = Metrics("decisions")
    ended = F.col("phase").isNotNull()
    counted = [
        *(F.count_if(F.col("decision") == each.value).alias(each.value) for each in _COUNTED),
        F.count_if(ended).alias("_ended"),
        F.count_if(F.col("decision").isin(*(each.value for each in Action)) & ~ended).alias("_planned"),
    ]
    now = datetime.now(UTC)
    rows = decisions.observe(metrics, *counted)
    if again:
        rows = rows.transform(_second_look).transform(_not_told_before(run))
    rows = rows.transform(planned(run.run_id, run.manifest_version, now, settings.kafka.max_batch_records))
    with context.progress.phase("plan"):
        run.ledger.append(PLANS, rows, app_id=run.run_id, version=run.next_version())
    # A plan that came too late was dropped unread, and its metrics would be waited for in vain.
    run.require_ownership()
    found = dict(metrics.get)
    run.none_ended, run.none_planned = not found.pop("_ended"), not found.pop("_planned")
    if run.resumed:
        # Earlier starts may have left rows that these counts don't know of.
        run.none_ended = run.none_planned = False
    run.counts = {name: run.counts.get(name, 0) + count for name, count in found.items()}
    unreached = {name: look.error for name, look in seen.looks.items() if look.error is not None}
    if unreached:
        concerned = run.plans().where(F.col("error") == Refusal.CLUSTER_UNREACHABLE.value).select("cluster").distinct()
        concerned_names = {row["cluster"] for row in concerned.collect()}
        for name, error in unreached.items():
            log.warning("%s", error)
            if name in concerned_names:
                run.problems.append(f"{error}; the other clusters go on, start run {run.run_id} again for {name}")


def _not_told_before(run: Run) -> Transform:
    """Drops what an earlier start's plan says already: refusals that a second look comes to again."""

    def transform(decisions: DataFrame) -> DataFrame:
        key = ("cluster", "topic", "phase", "error")
        told = run.plans().where(F.col("error").isNotNull()).select(*(F.col(name).alias(f"_{name}") for name in key))
        same = [F.col("error").isNotNull(), *(F.col(name).eqNullSafe(F.col(f"_{name}")) for name in key)]
        return decisions.join(told, on=same, how="left_anti")

    return transform


def _second_look(decisions: DataFrame) -> DataFrame:
    """Each declared topic of a cluster that was out of reach gets a row after the one that says so.

    What needs nothing is skipped; what ended at observe, where that row is, ends at policy: else a topic's last phase
    would be CLUSTER_UNREACHABLE for good.
    """
    left_alone = F.col("decision").isin(Decision.UNCHANGED.value, Decision.DRIFTED.value) & F.col("phase").isNull()
    anew = (F.col("phase") == Phase.OBSERVE.value) & (F.col("error") != Refusal.CLUSTER_UNREACHABLE.value)
    message = F.concat(F.lit("nothing to do, now that the cluster was reached: "), F.col("decision"))
    return decisions.withColumns(
        {
            "outcome": F.when(left_alone, F.lit(Outcome.SKIPPED.value)).otherwise(F.col("outcome")),
            "error_message": F.when(left_alone, message).otherwise(F.col("error_message")),
            "phase": F.when(left_alone | anew, F.lit(Phase.POLICY.value)).otherwise(F.col("phase")),
        }
    )


def _keep(run: Run, table: Any, rows: DataFrame, looks: Mapping[str, Any]) -> None:
    reached = [name for name, look in looks.items() if look.error is None]
    run.ledger.replace_clusters(table, rows.withColumn("run_id", F.lit(run.run_id)), reached)


def _record_refusals(run: Run) -> None:
    """Rows of `audit` for what ended before validate; they follow from the plan, once."""
    ended = run.plans().where(F.col("phase").isNotNull())
    if run.resumed:
        told = run.audit().select("cluster", "topic", "phase", "error")
        same = [ended[name].eqNullSafe(told[name]) for name in told.columns]
        ended = ended.join(told, on=same, how="left_anti")
    ours = {
        "error_code": F.when(F.col("outcome") == Outcome.SKIPPED.value, 0).otherwise(OURS),
        "attempt": F.lit(None),
        "requested_at": F.lit(None),
        "completed_at": F.col("planned_at"),
        "configs": F.lit(None),
        "topic_config_error_code": F.lit(None),
        "num_partitions": F.lit(None),
        "replication_factor": F.lit(None),
    }
    rows = ended.withColumns(ours).select(*(F.col(c.name).cast(c.dataType) for c in AUDIT.schema))
    run.append_audit(rows)


# -- validate, apply, verify ------------------------------------------------------------------------------------------


def _open_actions(run: Run) -> DataFrame:
    """Planned actions that nothing ended before validate."""
    return run.plans().where(F.col("phase").isNull() & F.col("action").isNotNull())


def _without(rows: DataFrame, ended: DataFrame) -> DataFrame:
    return rows.join(ended.select("cluster", "topic", "action"), on=["cluster", "topic", "action"], how="left_anti")


def _passed(run: Run) -> DataFrame:
    """Planned actions that passed validate and have no apply row."""
    audit = run.audit()
    valid = audit.where((F.col("phase") == Phase.VALIDATE.value) & (F.col("outcome") == Outcome.OK.value))
    rows = _open_actions(run).join(
        valid.select("cluster", "topic", "action"), on=["cluster", "topic", "action"], how="left_semi"
    )
    return _without(rows, audit.where(F.col("phase") == Phase.APPLY.value))


def _validate(run: Run, context: Context) -> None:
    ended = run.audit().where(F.col("phase") == Phase.VALIDATE.value)
    rows = _without(_open_actions(run), ended)
    work = _work(rows)

    def validate(executor: Executor, batch: Sequence[Target]) -> Iterator[Ended]:
        return executor.validate(batch, lambda topics: _created_by_us(run, executor, topics))

    _each_cluster(run, context, Phase.VALIDATE, work, validate)


def _created_by_us(run: Run, executor: Executor, topics: Collection[str]) -> Collection[str]:
    """Of `topics`, those whose last acknowledged apply in `audit`, of any run, is a create of ours (C21, M3)."""
    wanted = run.spark.createDataFrame([(topic,) for topic in topics], "topic string")
    done = (
        run.ledger.read(AUDIT)
        .where((F.col("cluster") == executor.cluster) & (F.col("cluster_id") == executor.cluster_id))
        .where(F.col("phase") == Phase.APPLY.value)
        .where(F.col("outcome") == Outcome.OK.value)
        .join(wanted, on="topic", how="left_semi")
    )
    last = done.groupBy("topic").agg(F.max_by("action", "completed_at").alias("action"))
    return [row["topic"] for row in last.where(F.col("action") == Action.CREATE.value).collect()]


def _judge_again(run: Run, context: Context) -> None:
    """Before a saved plan is applied: what changed since must not be sent any more."""
    work = _work(_passed(run))
    _each_cluster(run, context, Phase.APPLY, work, lambda executor, batch: executor.changed_since_plan(batch), "check")


def _apply(run: Run, context: Context) -> None:
    _each_cluster(run, context, Phase.APPLY, _work(_passed(run)), lambda executor, batch: executor.apply(batch))


def _verify(run: Run, context: Context) -> None:
    audit = run.audit()
    applied = audit.where((F.col("phase") == Phase.APPLY.value) & (F.col("outcome") == Outcome.OK.value))
    told = applied.select(
        "cluster",
        "topic",
        "action",
        F.col("topic_id").alias("applied_id"),
        F.col("num_partitions").alias("applied_num_partitions"),
    )
    rows = _without(
        _open_actions(run).join(told, on=["cluster", "topic", "action"], how="inner"),
        audit.where(F.col("phase") == Phase.VERIFY.value),
    )
    results: dict[tuple[str, str, str], TopicResult] = {}

    def remember(row: Mapping[str, Any]) -> None:
        results[row["cluster"], row["topic"], row["action"]] = TopicResult(
            topic_id=row["applied_id"], num_partitions=row["applied_num_partitions"]
        )

    work = _work(rows, "applied_id", "applied_num_partitions", each=remember)
    deadline = time.monotonic() + context.wait_visible

    def verify(executor: Executor, batch: Sequence[Target]) -> Iterator[Ended]:
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

    _each_cluster(run, context, Phase.VERIFY, work, verify)


Step = Callable[[Executor, Sequence[Target]], Iterator[Ended]]
Work = Mapping[str, tuple[str, Sequence[Sequence[Target]]]]
"""By cluster: its id as planned, and its batches in order."""


def _work(rows: DataFrame, *more: str, each: Callable[[Mapping[str, Any]], None] | None = None) -> Work:
    """Bring planned actions to the driver as batches: deletes before creates, each in the plan's order."""
    names = ("cluster", "cluster_id", "topic", "action", "topic_id", "num_partitions", "replication_factor")
    columns = (*names, "assignments", "configs", "batch", *more)
    order = [("cluster", "ascending"), ("action", "descending"), ("batch", "ascending"), ("topic", "ascending")]
    table = rows.select(*columns).toArrow().sort_by(order)
    work: dict[str, tuple[str, list[list[Target]]]] = {}
    records = (row for batch in table.to_batches(max_chunksize=10_000) for row in batch.to_pylist())
    for (cluster, _, _), group in groupby(records, key=lambda row: (row["cluster"], row["action"], row["batch"])):
        targets = []
        for row in group:
            if each is not None:
                each(row)
            work.setdefault(cluster, (row["cluster_id"], []))
            targets.append(_target(row))
        work[cluster][1].append(targets)
    return work


def _target(row: Mapping[str, Any]) -> Target:
    assignments = row["assignments"]
    return Target(
        topic=row["topic"],
        action=Action(row["action"]),
        topic_id=row["topic_id"],
        num_partitions=row["num_partitions"],
        replication_factor=row["replication_factor"],
        assignments=None if assignments is None else {partition: tuple(ids) for partition, ids in assignments},
        configs=dict(row["configs"] or ()),
        batch=row["batch"],
    )


def _each_cluster(run: Run, context: Context, phase: Phase, work: Work, step: Step, title: str | None = None) -> None:
    """Do a step for each batch of each cluster, clusters side by side, and append the outcomes in waves.

    A cluster that can't be reached, or whose outcomes can't be learnt, becomes one of the run's problems; the others
    finish. Raises Stopped when asked to stop, after appending what is known.
    """
    total = sum(len(batch) for _, batches in work.values() for batch in batches)
    if not total:
        return
    results: queue.SimpleQueue[Sequence[Ended] | None] = queue.SimpleQueue()
    settings = {cluster.name: cluster for cluster in run.clusters}

    def one_cluster(name: str) -> None:
        try:
            for ended in _one_cluster(run, context, settings[name], *work[name], phase, step):
                results.put(ended)
        finally:
            results.put(None)

    waves = Waves(run)
    at_once = min(len(work), MAX_CLUSTERS_AT_ONCE)
    with context.progress.phase(title or phase.value, total) as bar, ThreadPoolExecutor(at_once) as pool:
        running = {name: pool.submit(one_cluster, name) for name in work}
        left = len(running)
        try:
            while left:
                try:
                    ended = results.get(timeout=1.0)
                except queue.Empty:
                    waves.flush_if_due()
                    continue
                if ended is None:
                    left -= 1
                else:
                    waves.add(ended)
                    waves.flush_if_due()
                    bar(len(ended))
        except BaseException:
            # Interrupted: the batches under way end, and what they learn is kept as well.
            context.stop.set()
            while left:
                ended = results.get()
                left -= ended is None
                waves.add(ended or ())
            raise
        finally:
            waves.flush()
    for future in running.values():
        try:
            future.result()
        except ClusterError as error:
            log.warning("%s", error)
            if str(error) not in run.problems:
                run.problems.append(str(error))
    if context.stop.is_set():
        raise Stopped(f"run {run.run_id} was stopped; start it again with its id")


def _one_cluster(
    run: Run,
    context: Context,
    settings: ClusterSettings,
    cluster_id: str,
    batches: Sequence[Sequence[Target]],
    phase: Phase,
    step: Step,
) -> Iterator[Sequence[Ended]]:
    with ClusterAdmin(settings, run.settings.kafka) as admin:
        live_id = admin.describe_cluster().cluster_id
        executor = Executor(
            cluster=settings.name,
            cluster_id=cluster_id,
            admin=admin,
            max_batch_records=run.settings.kafka.max_batch_records,
            stop=context.stop,
        )
        for batch in batches:
            if context.stop.is_set():
                return
            if live_id != cluster_id:
                message = f"planned for cluster id {cluster_id}, the cluster now says {live_id}; plan again"
                refused = [executor.refused(each, phase, Refusal.CLUSTER_ID_MISMATCH, message) for each in batch]
                # What was applied stays applied: there is only nothing left to look at.
                looked = Outcome.SKIPPED if phase is Phase.VERIFY else Outcome.REFUSED
                yield [replace(each, outcome=looked) for each in refused]
                continue
            ended: list[Ended] = []
            try:
                for each in step(executor, batch):
                    ended.append(each)
            except ClusterError:
                yield ended
                raise
            yield ended
