"""Phases apply and verify of a run, in this order:

    take the leases -> recover -> refuse (expired, not declared any more) -> evaluate again -> mark -> send -> verify

The plan may be out of date by now, so actions that may not be sent any more are refused before anything is sent.
An action that an earlier start may have sent, or that may be under way, is never refused: no more of it is begun.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.apply.dispatch import Context, Stopped, each_cluster
from topicledger.apply.executor import Executor
from topicledger.apply.parts import acknowledged, send
from topicledger.apply.values import Applied, Validated, after
from topicledger.config.settings import ClusterSettings
from topicledger.frames import materialised
from topicledger.kafka.connection import request_timeout
from topicledger.ledger import leases
from topicledger.ledger.leases import LeaseHeld, Leases
from topicledger.ledger.rows import audit_rows
from topicledger.ledger.run import Run
from topicledger.ledger.sent_batches import SentBatches
from topicledger.ledger.throttles import Leftover, clusters_left
from topicledger.manifests.rows import Transform
from topicledger.model import (
    OURS,
    TOPIC,
    Action,
    Key,
    Outcome,
    Phase,
    PhaseResult,
    Refusal,
    RunState,
    Target,
    Work,
)
from topicledger.model.moves import Withdrawn
from topicledger.observe.record import observe_into_tables
from topicledger.observe.topics import Observation, list_clusters
from topicledger.plan import resources
from topicledger.plan.intent import expired
from topicledger.plan.reevaluate import reevaluate
from topicledger.plan.standing import KEY, in_batches, sendable, without
from topicledger.resources.topics.apply.cancelling import cancel, cancelled_if_stopped
from topicledger.resources.topics.apply.moves import begin_until
from topicledger.resources.topics.apply.throttles import left_on, take_away, take_away_left
from topicledger.resources.topics.plan import topics
from topicledger.schemas import AUDIT, BROKERS, MANIFESTS, OBSERVED, PLANS, SENT_BATCHES, USAGES

log = logging.getLogger(__name__)


def apply(
    run: Run,
    context: Context,
    ready: Validated,
    closing: ExitStack,
    leftovers: Callable[[], Mapping[str, Leftover]],
) -> Applied:
    """Send the actions that passed validate. `closing` ends after the run's last commit; it releases all leases.

    `leftovers`: cluster id -> the throttles that may have been left there before this start. Throttles that protect no
    move any more are removed from the run's clusters, whichever run left them.

    Clusters that no other run holds come first. With `--wait`, the others follow once those runs have released them.
    While this run waits it holds no lease, so two runs never wait for each other.
    """
    done = _apply_all(run, context, ready, closing, leftovers) if ready.actions else acknowledged(run, {}, {}, {})
    idle = [cluster.name for cluster in run.clusters if cluster.name not in ready.actions]
    left = left_on(run.ledger, run.settings, idle, leftovers())
    away = left.keys() - ready.seen.known if ready.seen is not None else frozenset()
    for name in sorted(away):
        log.warning("throttles of cluster %s stay for now: it can't be reached", name)
    left = {name: each for name, each in left.items() if name not in away}
    stay = take_away_left(run.ledger, run.settings, run.run_id, left, context.stop)
    return replace(done, problems={**done.problems, **stay})


def _apply_all(
    run: Run,
    context: Context,
    ready: Validated,
    closing: ExitStack,
    leftovers: Callable[[], Mapping[str, Leftover]],
) -> Applied:
    run.ledger.ensure(MANIFESTS, USAGES, PLANS, AUDIT, OBSERVED, BROKERS, SENT_BATCHES)
    done: list[Applied] = []
    with SentBatches(run) as sent, after(done):
        left = ready.actions
        while left:
            with cancelled_if_stopped(run, context, closing):
                taken = _leases(run, context, replace(ready, actions=left))
            held = closing.enter_context(taken)
            part = ready.of(held.names)
            done.append(_apply_held(run, context, part, held, sent, leftovers))
            left = {name: each for name, each in left.items() if name in held.busy}
            if left and not context.wait:
                problems = {name: f"{why}. {_nothing_sent(run)} to it; {_LATER}" for name, why in held.busy.items()}
                done.append(Applied(actions={}, answers={}, problems=problems))
                break
    return Applied(
        actions={name: each for one in done for name, each in one.actions.items()},
        answers={key: each for one in done for key, each in one.answers.items()},
        problems={name: why for one in done for name, why in one.problems.items()},
    )


_LATER = "start the run again later with its id, or with --wait"


def _nothing_sent(run: Run) -> str:
    return "Nothing more was sent" if run.may_have_sent else "Nothing was sent"


def _apply_held(
    run: Run,
    context: Context,
    ready: Validated,
    held: Leases,
    sent: SentBatches,
    leftovers: Callable[[], Mapping[str, Leftover]],
) -> Applied:
    """Send the actions that passed validate on the clusters whose leases are held."""
    latest = run.ledger.latest_version(MANIFESTS)
    try:
        current = _evaluated_again(run, context, ready, held, latest)
        if current is not ready or run.state is RunState.APPLYING:
            # Delta ignores the rows of a superseded start, also its refusals: without them it must not act.
            run.require_ownership()
        if current is ready:
            # In parallel with the commit of `applying`.
            sent.begin(ready.actions)
        if current.actions and run.state is not RunState.APPLYING:
            run.commit_state(RunState.APPLYING)
        context = replace(context, withdrawn=current.withdrawn, moves_until=begin_until(run, current.actions))
        idle: Work = {
            name: (cluster_id, []) for name, (cluster_id, _) in ready.actions.items() if name not in current.actions
        }
        # Another run that changed these clusters meanwhile may have left throttles, too.
        left = clusters_left(run.ledger) if held.contended else leftovers()
        done = send(run, context, current, idle, held, sent, latest, left, partial(take_away, run.run_id, left))
    except Stopped:
        if context.stop.cancels:
            for problem in cancel(run, context, held).values():
                log.warning("not all moves are cancelled: %s", problem)
        raise
    held.require()

    def let_go() -> None:
        held.require()
        held.release_soon()

    # Verify changes nothing, so other runs may take the clusters once the outcomes are committed.
    run.commits.add(let_go)
    return done


def _leases(run: Run, context: Context, ready: Validated) -> Leases:
    if context.wait or run.resumed:
        # It may take long to wait for another run or an earlier start of this one: commit everything before.
        run.settle()
    settings = [cluster for cluster in run.clusters if cluster.name in ready.actions]
    try:
        return leases.take(
            run.ledger,
            run.run_id,
            {cluster_id: name for name, (cluster_id, _) in ready.actions.items()},
            observed_since=ready.observed_since,
            request_timeout=max(request_timeout(cluster, run.settings.kafka) for cluster in settings),
            wait=context.wait,
            stop=context.stop,
            some=True,
            require_ownership=run.require_ownership,
        )
    except LeaseHeld as error:
        raise LeaseHeld(f"{error}. {_nothing_sent(run)}; {_LATER}") from None


def _evaluated_again(run: Run, context: Context, ready: Validated, held: Leases, latest: int) -> Validated:
    """Return the actions that may still be sent, by the manifests at version `latest`; `ready` if nothing can differ.

    If the run was resumed, or another run held its clusters since it observed them, its actions are evaluated on the
    clusters' current state. Actions that can't be evaluated aren't sent.
    """
    afresh = run.resumed or held.contended
    others_declared = resources.changed_declarations(run, ready.actions)
    if not afresh and latest == run.latest_version_then and not others_declared:
        return ready
    problems: dict[str, str] = {}
    left_open: dict[Key, str] = {}
    under_way: frozenset[Key] = frozenset()
    withdrawn: dict[str, dict[tuple[str, str], Withdrawn]] = {}

    def still_sendable() -> DataFrame:
        return sendable(run, [*problems, *ready.elsewhere], left_open)

    def unsent() -> DataFrame:
        return sendable(run, [*problems, *ready.elsewhere], left_open.keys() | under_way)

    def refusable(rows: DataFrame) -> DataFrame:
        if under_way:
            # An action under way can't be refused, since refused means not sent: no more of it is sent, and apply
            # reports its outcome.
            for row in without(run, rows, under_way, how="left_semi").select(*KEY, "error", "error_message").collect():
                why = Withdrawn(error=Refusal(row["error"]), message=row["error_message"])
                withdrawn.setdefault(row["cluster"], {}).setdefault((row["action"], row["resource"]), why)
        return without(run, rows, left_open.keys() | under_way)

    def refuse(transform: Transform) -> None:
        _refuse(run, refusable(still_sendable().transform(transform)), held)

    if run.may_have_sent:
        # First find the outcomes of actions that earlier starts may have sent. They are read now: an earlier start that
        # lives may have sent more until it lost its lease to this one.
        maybe_sent = in_batches(still_sendable().where("maybe_sent"))
        recovered = each_cluster(run, context, Phase.APPLY, maybe_sent, Executor.recover, held=held, title="recover")
        problems |= recovered.problems
        left_open |= recovered.left_open
        under_way = recovered.under_way()
    if afresh:
        refuse(expired(run.settings.guards.max_plan_age, datetime.now(UTC)))
    for transform in others_declared:
        refuse(transform)
    if run.of_files or latest != run.latest_version_then:
        no_longer = topics.changed_declarations(run, latest)
        refuse(lambda planned: planned.transform(_of_topics).transform(no_longer))
    seen, waiting = ready.seen, ready.waiting
    if afresh:
        # `recover` has compared those that may have been sent.
        check = in_batches(unsent().where("NOT maybe_sent"))
        checked = each_cluster(run, context, Phase.APPLY, check, Executor.changed_since_plan, held=held, title="check")
        problems |= checked.problems
        left_open |= checked.left_open
        for transform, unevaluated in resources.refused_now(run, context.policies, unsent):
            refuse(transform)
            problems |= unevaluated
        left = unsent().transform(_of_topics)
        names = {row["cluster"] for row in left.select("cluster").distinct().collect()}
        clusters = [cluster for cluster in run.clusters if cluster.name in names]
        if clusters:
            seen = observe_again(run, context, clusters, left.where(F.col("action") != Action.CREATE.value))
            for name, status in seen.statuses.items():
                if status.problem is not None:
                    problems[name] = status.problem
            version = run.owners_version(latest)
            again = reevaluate(
                run, context.policies, seen, version, Phase.APPLY, *Action,
                waited=waiting, held=held, refusable=refusable,
            )  # fmt: skip
            waiting = again.waiting
    return Validated(
        actions=in_batches(still_sendable()),
        seen=seen,
        observed_since=ready.observed_since,
        waiting=waiting,
        problems=problems,
        left_open=left_open,
        withdrawn=withdrawn,
        elsewhere=ready.elsewhere,
    )


def _of_topics(planned: DataFrame) -> DataFrame:
    return planned.where(F.col("resource_type") == TOPIC)


def _refuse(run: Run, rows: DataFrame, held: Leases) -> None:
    """Append a row of phase apply for each refused action. In: columns `ending.REFUSED`."""
    refused = rows.transform(materialised)
    if refused.isEmpty():
        return
    values = {"phase": F.lit(Phase.APPLY.value), "outcome": F.lit(Outcome.REFUSED.value), "error_code": F.lit(OURS)}
    run.append_audit(refused.transform(audit_rows(run.run_id, run.manifest_version, **values)), held)


def observe_again(run: Run, context: Context, clusters: Sequence[ClusterSettings], named: DataFrame) -> Observation:
    """Observe clusters again, which also replaces their rows in `observed` and `brokers`."""
    with context.progress.phase("observe", len(clusters)):
        listing = list_clusters(run.spark, clusters, run.settings.kafka)
        with observe_into_tables(run, listing, named) as seen:
            pass
    return seen


def verify(run: Run, context: Context, done: Applied) -> Mapping[str, str]:
    """Describe the acknowledged actions; return cluster -> why actions on it are still open."""
    deadline = time.monotonic() + context.wait_visible

    def verify_batch(executor: Executor, batch: Sequence[Target]) -> Iterator[PhaseResult]:
        left = list(batch)
        while left:
            pairs = [(target, done.answers[executor.cluster, target.resource, target.action]) for target in left]
            seen = list(executor.verify(pairs))
            again = time.monotonic() < deadline and not context.stop.is_set()
            yield from (ended for ended in seen if not again or ended.outcome is not Outcome.PENDING)
            pending = {(ended.resource, ended.action) for ended in seen if ended.outcome is Outcome.PENDING}
            left = [target for target in left if (target.resource, target.action) in pending] if again else []
            if left:
                executor.wait(0.5)

    return each_cluster(run, context, Phase.VERIFY, done.actions, verify_batch).why_open
