"""Doing one step for every batch of every cluster: clusters side by side, batches in order, outcomes in waves."""

from __future__ import annotations

import logging
import queue
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import functions as F

from topicledger.apply.executor import Executor
from topicledger.apply.progress import Progress
from topicledger.config import logs
from topicledger.config.settings import ClusterSettings
from topicledger.errors import ClusterError, TopicLedgerError
from topicledger.kafka import ClusterAdmin
from topicledger.kafka.sending import ClusterLimits, StaysOpen
from topicledger.ledger.acknowledged import created_by
from topicledger.ledger.leases import Leases
from topicledger.ledger.run import Run, Waves
from topicledger.ledger.throttles import RecordedThrottles
from topicledger.model import Action, Key, Outcome, Phase, PhaseResult, Refusal, Results, Target, TopicResult, Work
from topicledger.model.moves import Withdrawn
from topicledger.observe.clusters import disowned
from topicledger.plan.standing import only
from topicledger.policies import Policy

log = logging.getLogger(__name__)

MAX_CLUSTERS_AT_ONCE = 16
_YIELD_SECONDS = 2.0


class Stopped(TopicLedgerError):
    """The run was asked to stop: what was sent is recorded, the rest stays open."""


class Stop(threading.Event):
    """Set to stop after the batches under way: by SIGTERM, by Ctrl-C, or by the deadline."""

    def __init__(self, *, cancels: bool = False) -> None:
        """`cancels`: whether moves that are under way then are cancelled."""
        super().__init__()
        self.why = "was stopped"
        self.cancels = cancels

    @contextmanager
    def after(self, deadline: float | None) -> Iterator[None]:
        """A context that sets it after `deadline` seconds; None: never."""
        if deadline is None:
            yield
            return

        def reached() -> None:
            if not self.is_set():
                self.why = f"reached its deadline of {deadline:g} s"
                self.set()

        timer = threading.Timer(deadline, reached)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    @contextmanager
    def at_interrupt(self) -> Iterator[None]:
        """A context in which the first Ctrl-C sets it; the next one acts as before: Spark's stops the write."""
        before = signal.getsignal(signal.SIGINT)

        def first(*_: object) -> None:
            signal.signal(signal.SIGINT, before)
            self.set()
            log.warning("stopping after the batches under way; Ctrl-C again stops at once")

        signal.signal(signal.SIGINT, first)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


@dataclass(kw_only=True)
class Context:
    """What the phases share beside the run itself."""

    progress: Progress
    stop: Stop
    policies: Sequence[Policy] = ()
    """Those that judge the run: what always holds, and what the settings name."""
    wait: bool = False
    """Whether to wait for clusters that another run is changing."""
    wait_visible: float = 0.0
    """Seconds that verify waits for leaders."""
    limits: dict[str, ClusterLimits] = field(default_factory=dict)
    """By cluster: the limits of its requests, kept from phase to phase."""
    withdrawn: Mapping[str, Mapping[str, Withdrawn]] = field(default_factory=dict)
    """By cluster and topic that is under way: why nothing more of it is begun."""


Step = Callable[[Executor, Sequence[Target]], Iterator[PhaseResult]]


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What a step came to, over all clusters."""

    results: Mapping[Key, PhaseResult]
    """By action, the last that ended for it; without configs, which are most of what it weighs."""
    problems: Mapping[str, str]
    """By cluster, why the step ended early on it: it can't be reached, or it answers nothing."""
    left_open: Mapping[Key, str] = field(default_factory=dict)
    """By action, why its outcome can't be known now, while others of its cluster went on."""

    @property
    def why_open(self) -> Mapping[str, str]:
        """By cluster, why something is still open on it."""
        by_cluster: dict[str, dict[tuple[str, str], str]] = {}
        for (cluster, resource, action), why in self.left_open.items():
            by_cluster.setdefault(cluster, {})[resource, action] = why
        return {**{name: str(StaysOpen(name, actions)) for name, actions in by_cluster.items()}, **self.problems}

    def ok(self, work: Work) -> Work:
        """Of `work`, what was ok."""
        return only(work, lambda name, target: self._is_ok(self.results.get((name, target.resource, target.action))))

    def under_way(self) -> frozenset[Key]:
        """Those that an earlier start may have sent, and that aren't over."""
        return frozenset(key for key, ended in self.results.items() if ended.outcome is Outcome.PENDING)

    def answers(self) -> Results:
        """What was answered to each action."""
        return {
            key: TopicResult(topic_id=ended.topic_id, num_partitions=ended.num_partitions)
            for key, ended in self.results.items()
        }

    @staticmethod
    def _is_ok(ended: PhaseResult | None) -> bool:
        return ended is not None and ended.outcome is Outcome.OK


def each_cluster(
    run: Run,
    context: Context,
    phase: Phase,
    work: Work,
    step: Step,
    *,
    held: Leases | None = None,
    title: str | None = None,
    before: Callable[[str, int], None] = lambda _, __: None,
    last: Callable[[Executor], None] = lambda _: None,
    ended: Callable[[str], None] = lambda _: None,
) -> StepResult:
    """Do a step for each batch of each cluster, clusters side by side, and append the outcomes in waves.

    `held` allows the step to change clusters. A cluster that can't be reached, or that doesn't answer, is one of
    the result's problems; the others finish. `before` is called with the cluster and the batch's place in `work`,
    from 0, before each step; `last` in each cluster's thread, after its last batch; `ended` with each cluster on which
    nothing is left to do, while others go on, once its outcomes are on their way into the table.

    Raises Stopped when asked to stop, after appending what is known. Raises LeaseLost if no lease is held any more.
    """
    total = sum(len(batch) for _, batches in work.values() for batch in batches)
    if not work:
        return StepResult(results={}, problems={})
    others: Mapping[str, str] = {}
    if phase is Phase.APPLY and step is not Executor.recover:
        # What a name means may have changed since the plan: asked again before anything is changed.
        planned_for = {name: cluster_id for name, (cluster_id, _) in work.items()}
        others = disowned(run.ledger, run.settings, planned_for)
    results: queue.SimpleQueue[Sequence[PhaseResult] | str] = queue.SimpleQueue()
    settings = {cluster.name: cluster for cluster in run.clusters}

    def one_cluster(name: str) -> None:
        try:
            with logs.about(cluster=name):
                refused_as = others.get(name)
                one = _one_cluster(
                    run, context, settings[name], *work[name], phase, step, held, before, last, refused_as
                )
                for ended in one:
                    results.put(ended)
        finally:
            # Its name: it has nothing more.
            results.put(name)

    waves, found = Waves(run, held), dict[Key, PhaseResult]()
    at_once = min(len(work), MAX_CLUSTERS_AT_ONCE)
    with context.progress.phase(title or phase.value, total) as bar, ThreadPoolExecutor(at_once) as pool:
        running = {name: pool.submit(one_cluster, name) for name in work}
        left, over = len(running), list[str]()
        try:
            while left:
                # What can't be recorded any more must not go on being sent.
                run.commits.check()
                waves.flush_if_due()
                if over and left and waves.is_empty and not context.stop.is_set():
                    for name in over:
                        ended(name)
                    over = []
                try:
                    found_now = results.get(timeout=1.0)
                except queue.Empty:
                    continue
                if isinstance(found_now, str):
                    left -= 1
                    if running[found_now].exception() is None:
                        over.append(found_now)
                else:
                    waves.add(_over(found_now))
                    for each in found_now:
                        light = replace(each, result=replace(each.result, configs=None))
                        found[each.cluster, each.resource, each.action] = light
                    bar(len(found_now))
        except BaseException:
            # Interrupted: the batches under way end, and what they learn is kept as well, where it can be.
            context.stop.set()
            while left:
                found_now = results.get()
                if isinstance(found_now, str):
                    left -= 1
                else:
                    waves.add(_over(found_now))
            raise
        finally:
            waves.flush()
    problems, left_open = dict[str, str](), dict[Key, str]()
    for name, future in running.items():
        try:
            future.result()
        except StaysOpen as error:
            left_open |= {(name, resource, action): why for (resource, action), why in error.actions.items()}
            log.warning("%s", error)
        except ClusterError as error:
            problems[name] = str(error)
            log.warning("%s", error)
    if context.stop.is_set():
        raise Stopped(f"run {run.run_id} {context.stop.why}; start it again with its id")
    lost = held.lost if held is not None else {}
    # What is known of these was not recorded.
    problems |= {name: why for name, why in lost.items() if name in work}
    found = {key: each for key, each in found.items() if key[0] not in lost}
    return StepResult(results=found, problems=problems, left_open=left_open)


def _over(ended: Sequence[PhaseResult]) -> Sequence[PhaseResult]:
    """Those that are rows of `audit`: of phase apply, what is pending is under way."""
    return [each for each in ended if (each.phase, each.outcome) != (Phase.APPLY, Outcome.PENDING)]


def _allowed() -> None:
    """Nothing is changed outside of leases: what validates needs none."""


def _validated(run: Run, cluster: str, topics: Collection[str]) -> Mapping[str, TopicResult]:
    """What validateOnly resolved in this run of topics of a cluster, by the rows of `audit`."""
    wanted = run.spark.createDataFrame([(topic,) for topic in topics], "topic string")
    ok = (F.col("phase") == Phase.VALIDATE.value) & (F.col("outcome") == Outcome.OK.value)
    rows = run.audit().where(ok & (F.col("cluster") == cluster) & (F.col("action") == Action.CREATE.value))
    found = rows.join(wanted, on="topic", how="left_semi").select("topic", "num_partitions", "replication_factor")
    return {
        row["topic"]: TopicResult(num_partitions=row["num_partitions"], replication_factor=row["replication_factor"])
        for row in found.collect()
    }


def _one_cluster(
    run: Run,
    context: Context,
    settings: ClusterSettings,
    cluster_id: str,
    batches: Sequence[Sequence[Target]],
    phase: Phase,
    step: Step,
    held: Leases | None,
    before: Callable[[str, int], None],
    last: Callable[[Executor], None],
    refused_as: str | None,
) -> Iterator[Sequence[PhaseResult]]:
    """How each batch of a cluster ended. Raises StaysOpen in the end where that isn't known of some actions."""
    records = run.settings.kafka.max_batch_records
    super_users = frozenset(run.settings.acls.super_users)
    limits = context.limits.setdefault(settings.name, ClusterLimits(max_batch_records=records, super_users=super_users))
    moving = replace(
        limits.moving,
        settings=run.settings.replicas,
        throttles=RecordedThrottles(ledger=run.ledger, run_id=run.run_id, cluster=settings.name, cluster_id=cluster_id),
        withdrawn=context.withdrawn.get(settings.name, {}),
    )
    limits.move_within(moving)
    with ClusterAdmin(settings, run.settings.kafka) as admin:
        executor = Executor(
            cluster=settings.name,
            cluster_id=cluster_id,
            admin=admin,
            limits=limits,
            stop=context.stop,
            may_send=partial(held.require_for_request, settings.name) if held is not None else _allowed,
            waiting=partial(context.progress.quota, settings.name),
            validated=partial(_validated, run, settings.name),
            created_by=partial(created_by, run.ledger, settings.name, cluster_id),
        )
        live_id = executor.live_cluster_id()
        unknown = phase is Phase.APPLY and any(each.maybe_sent for batch in batches for each in batch)
        if live_id != cluster_id and unknown:
            # Only the planned cluster knows what became of it.
            raise executor.wrong_cluster(live_id)
        if refused_as is not None and unknown:
            raise ClusterError(f"cluster {settings.name}: {refused_as}; what may have been sent to it stays open")
        if refused_as is None and live_id != cluster_id:
            refused_as = f"planned for cluster id {cluster_id}, the cluster now says {live_id}; plan again"
        left, left_open = sum(map(len, batches)), dict[tuple[str, str], str]()
        for number, batch in enumerate(batches):
            if context.stop.is_set():
                return
            left -= len(batch)
            executor.expect(left)
            if refused_as is not None:
                refused = [executor.refused(each, phase, Refusal.CLUSTER_ID_MISMATCH, refused_as) for each in batch]
                # What was applied stays applied: there is only nothing left to verify.
                outcome = Outcome.SKIPPED if phase is Phase.VERIFY else Outcome.REFUSED
                yield [replace(each, outcome=outcome) for each in refused]
                continue
            before(settings.name, number)
            ended: list[PhaseResult] = []
            yielded_at = time.monotonic()
            try:
                with logs.about(batch=batch[0].batch):
                    for each in step(executor, batch):
                        ended.append(each)
                        # A batch that a quota paces takes minutes: what is known of it is kept meanwhile.
                        if time.monotonic() - yielded_at >= _YIELD_SECONDS:
                            yield ended
                            ended, yielded_at = [], time.monotonic()
            except StaysOpen as error:
                left_open |= error.actions
            except ClusterError:
                yield ended
                raise
            yield ended
        if left_open:
            raise StaysOpen(settings.name, left_open)
        if refused_as is None:
            last(executor)
