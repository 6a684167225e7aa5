"""Cancel the moves that a run began: if it is stopped with `--cancel`, and by `runs abandon --cancel`."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import functions as F

from topicledger.apply.dispatch import Context, Stop, Stopped, each_cluster
from topicledger.apply.executor import Executor
from topicledger.kafka.connection import request_timeout
from topicledger.ledger import leases
from topicledger.ledger.leases import LeaseHeld, LeaseLost, Leases
from topicledger.ledger.run import Run
from topicledger.ledger.throttles import clusters_left
from topicledger.model import Phase, RunState, Work
from topicledger.plan.standing import in_batches, sendable
from topicledger.resources import registry
from topicledger.resources.topics.actions.cancelling import StillMoved
from topicledger.resources.topics.apply.throttles import take_away
from topicledger.schemas import AUDIT, PLANS, SENT_BATCHES

log = logging.getLogger(__name__)


def cancel(run: Run, context: Context, held: Leases) -> Mapping[str, str]:
    """Cancel the run's actions under way, record where their replicas are now, and remove throttles without a move.

    Clusters whose lease was released since, because nothing more is sent to them or with `--wait` in an earlier round,
    come after those that are `held`; one that another run is changing by then isn't touched. Returns cluster -> why
    actions are still open. A requested stop doesn't interrupt it.
    """
    # A cluster is changed only under its lease.
    work = {name: of_cluster for name, of_cluster in _under_way(run).items() if name in held.names}
    problems = _cancel(run, context, work, held)
    try:
        return {**problems, **_cancel_unheld(run, replace(context, stop=Stop()), wait=False, but=held.names)}
    except (LeaseHeld, LeaseLost) as error:
        return {**problems, "": str(error)}


def cancel_of(run: Run, context: Context) -> Mapping[str, str]:
    """Cancel as `cancel` does, for a run that no driver applies any more; waits for the leases of a dead start."""
    return _cancel_unheld(run, context, wait=True)


@contextmanager
def cancelled_if_stopped(run: Run, context: Context, closing: ExitStack) -> Iterator[None]:
    """Context without leases in which a stop cancels the moves under way, if the run was started with `--cancel`.

    Leases that `closing` still holds are released before. A cluster that another run is changing by then isn't touched.
    """
    try:
        yield
    except (Stopped, LeaseLost):
        if context.stop.is_set() and context.stop.cancels:
            run.settle()
            closing.close()
            try:
                problems = _cancel_unheld(run, replace(context, stop=Stop()), wait=False)
            except (LeaseHeld, LeaseLost) as error:
                problems = {"": str(error)}
            for problem in problems.values():
                log.warning("not all moves are cancelled: %s", problem)
        raise


def _cancel_unheld(run: Run, context: Context, *, wait: bool, but: Collection[str] = ()) -> Mapping[str, str]:
    """Cancel the run's actions under way on all clusters but these, under leases of their own."""
    if run.state is not RunState.APPLYING:
        return {}
    run.ledger.ensure(PLANS, AUDIT, SENT_BATCHES)
    left = {name: of_cluster for name, of_cluster in _under_way(run).items() if name not in but}
    problems = {
        name: f"cluster {name}: its moves aren't cancelled, since the settings don't have it any more"
        for name in left.keys() - run.settings.clusters.keys()
    }
    left = {name: of_cluster for name, of_cluster in left.items() if name not in problems}
    while left:
        # A cluster whose lease is free doesn't wait for the others.
        with leases.take(
            run.ledger,
            run.run_id,
            {cluster_id: name for name, (cluster_id, _) in left.items()},
            observed_since=datetime.now(UTC),
            request_timeout=max(request_timeout(run.settings.cluster(name), run.settings.kafka) for name in left),
            wait=wait,
            stop=context.stop,
            some=True,
        ) as held:
            work = {name: each for name, each in left.items() if name in held.names}
            problems |= _cancel(run, context, work, held)
            busy, left = held.busy, {name: each for name, each in left.items() if name not in work}
        if not wait:
            return {**busy, **problems}
    return problems


def _under_way(run: Run) -> Work:
    """Return the actions under way of kinds that can be cancelled: without a row that ends them, in marked batches."""
    kinds = [kind.name for kind in registry.in_order() if kind.steps.cancel is not None]
    marked = run.ledger.read(SENT_BATCHES).where(F.col("run_id") == run.run_id)
    rows = sendable(run).where(F.col("action").isin(kinds)).withColumn("maybe_sent", F.lit(True))
    return in_batches(
        rows.join(marked.select("cluster", "action", "batch"), ["cluster", "action", "batch"], "left_semi")
    )


def _cancel(run: Run, context: Context, work: Work, held: Leases) -> Mapping[str, str]:
    if not work:
        return {}
    unstopped = replace(context, stop=Stop())
    last = partial(take_away, run.run_id, clusters_left(run.ledger))
    step = each_cluster(run, unstopped, Phase.APPLY, work, Executor.cancel, held=held, title="cancel", last=last)
    run.settle()
    return step.why(StillMoved)
