"""Send the actions of a run in parts: what makes room, what waits for it, then moves, which may take days, and more.

A cluster's lease is released once nothing more is sent to it, also if some of its actions stay open. While creates wait
on one cluster, moves on the others begin once the first part is over everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

from pyspark.sql import DataFrame

from topicledger.apply.dispatch import Context, StepResult, each_cluster
from topicledger.apply.executor import Executor
from topicledger.apply.values import Applied, Validated, after
from topicledger.ledger.leases import Leases
from topicledger.ledger.run import Run
from topicledger.ledger.sent_batches import SentBatches
from topicledger.model import Key, Phase, PhaseResult, Target, Work
from topicledger.plan.reevaluate import reevaluate
from topicledger.plan.standing import applied, in_batches, only, sendable, without
from topicledger.policies.contract import MAKE_PARTITIONS
from topicledger.resources import registry


def send(
    run: Run,
    context: Context,
    ready: Validated,
    idle: Work,
    held: Leases,
    sent: SentBatches,
    latest: int,
    leftovers: Collection[str],
    last: Callable[[Executor], None],
) -> Applied:
    """Send the actions; creates that wait for room come after the deletes that make it, and before moves.

    `idle`: clusters whose leases are held, but to which nothing is sent. `leftovers`: cluster ids for which `last` is
    called although nothing is sent there; see `each_cluster`.
    """
    done: list[StepResult] = []
    failed: set[str] = set()

    def send_part(actions: Work, *, more: Collection[str] = ()) -> None:
        """Send some of the actions. `more`: clusters to which this start sends more, unless they fail."""
        work = {name: of_cluster for name, of_cluster in actions.items() if name not in failed}
        later = frozenset(more)

        def released(*names: str) -> None:
            # Other runs may change these clusters while this run continues on its other clusters.
            run.commits.add(partial(held.release_some, frozenset(names) - later))

        def at_last(executor: Executor) -> None:
            # A throttle that can't be removed must not stop what follows.
            if executor.cluster not in later:
                last(executor)

        sent.begin(work)
        step = each_cluster(
            run, context, Phase.APPLY, work, Executor.apply, held=held, before=sent.before, last=at_last, ended=released
        )
        done.append(step)
        failed.update(step.problems)
        later -= failed
        if more:
            released(*work)

    waits = _keys(ready.waiting)
    awaited = frozenset(cluster for cluster, _ in waits)
    open_before = StepResult(results={}, problems=ready.problems, left_open=ready.left_open)
    moves = [kind for kind in registry.in_order() if kind.steps.cancel is not None]

    def needs_room(name: str, target: Target) -> bool:
        return (name, target.topic) in waits and target.action in MAKE_PARTITIONS

    first = only(ready.actions, lambda name, target: not needs_room(name, target))
    moving = only(first, lambda _, target: bool(waits) and registry.ACTIONS[target.action] in moves).keys()

    def is_late(name: str, target: Target) -> bool:
        return name in moving and registry.ACTIONS[target.action].order >= moves[0].order

    early = only(first, lambda name, target: not is_late(name, target))
    late = only(first, is_late)
    everywhere = {**idle, **ready.actions}

    def throttled(names: Collection[str]) -> Work:
        """Return those of the clusters on which throttles were left, without actions."""
        asked = {name: each[0] for name, each in everywhere.items() if name in names}
        left = {name: cluster_id for name, cluster_id in asked.items() if cluster_id in leftovers}
        return {name: (cluster_id, []) for name, cluster_id in left.items() if name not in open_before.why_open}

    untouched = throttled(everywhere.keys() - first.keys())
    if first:
        run.commits.add(partial(held.release_some, idle.keys() - untouched.keys()))
    send_part({**untouched, **early}, more=awaited | late.keys())
    if waits:
        assert ready.seen is not None, "creates wait only if this start has evaluated them"
        version = run.owners_version(latest)
        evaluate = partial(reevaluate, run, context.policies, ready.seen, version, Phase.APPLY, *MAKE_PARTITIONS)
        unsent = partial(without, run, keys=ready.left_open.keys())
        with after(done):
            again = evaluate(waited=ready.waiting, held=held, refusable=unsent)
        # While the outcome of a delete is unknown, its room isn't free: creates that need it still wait.
        fit = waits - _keys(again.waiting)
        left = in_batches(sendable(run, [*ready.problems, *ready.elsewhere], ready.left_open))
        room = only(left, lambda name, target: needs_room(name, target) and (name, target.topic) in fit)
        second = {**throttled(awaited - late.keys()), **room}
        run.commits.add(partial(held.release_some, awaited - second.keys() - late.keys()))
        send_part(second, more=late.keys())
    if late:
        send_part(late)
    whole = StepResult(
        results={key: each for step in done for key, each in step.results.items()},
        problems={name: why for step in (open_before, *done) for name, why in step.problems.items()},
        left_open={key: why for step in (open_before, *done) for key, why in step.left_open.items()},
    )
    return acknowledged(run, ready.actions, whole.results, whole.why_open)


def _keys(waiting: DataFrame | None) -> frozenset[tuple[str, str]]:
    rows = waiting.collect() if waiting is not None else ()
    return frozenset((row["cluster"], row["topic"]) for row in rows)


def acknowledged(run: Run, work: Work, results: Mapping[Key, PhaseResult], problems: Mapping[str, str]) -> Applied:
    """Return the acknowledged actions: of this start, or from the tables if earlier starts sent some, too."""
    if run.resumed:
        actions, answers = applied(run)
        return Applied(actions=actions, answers=answers, problems=problems)
    step = StepResult(results=results, problems=problems)
    return Applied(actions=step.ok(work), answers=step.answers(), problems=problems)
