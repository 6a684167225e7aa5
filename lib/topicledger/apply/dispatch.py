"""Do one step for every batch of every cluster: clusters in parallel, batches in order, outcomes in waves."""

from __future__ import annotations

import logging
import queue
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
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
from topicledger.ledger.leases import LeaseLost, Leases
from topicledger.ledger.outcome_waves import OutcomeWaves
from topicledger.ledger.outcomes import is_validated
from topicledger.ledger.run import Run
from topicledger.ledger.throttles import RecordedThrottles
from topicledger.model import Action, Key, Outcome, Phase, PhaseResult, Refusal, Results, Target, TopicResult, Work
from topicledger.model.moves import Withdrawn
from topicledger.observe.clusters import disowned
from topicledger.plan.standing import only
from topicledger.policies import Policy
from topicledger.resources.topics.actions.cancelling import StillMoved

log = logging.getLogger(__name__)

MAX_CLUSTERS_AT_ONCE = 16
_YIELD_SECONDS = 2.0


class Stopped(TopicLedgerError):
    """Raised if the run was asked to stop: outcomes of sent requests are recorded, the other actions stay open."""


class Stop(threading.Event):
    """Set by SIGTERM, by Ctrl-C, or by the deadline; the run then stops after the batches under way."""

    def __init__(self, *, cancels: bool = False) -> None:
        """`cancels`: whether a stop cancels the moves that are under way."""
        super().__init__()
        self.why = "was stopped"
        self.cancels = cancels

    @contextmanager
    def after(self, deadline: float | None) -> Iterator[None]:
        """Context that sets this event after `deadline` seconds; None: never."""
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
        """Context in which the first Ctrl-C sets this event; the next one acts as before: Spark's stops the write.

        A handler that has `note`, as that of `serve`, is told of the first one, too.
        """
        before = signal.getsignal(signal.SIGINT)

        def first(*_: object) -> None:
            signal.signal(signal.SIGINT, before)
            getattr(before, "note", lambda: None)()
            self.set()
            log.warning("stopping after the batches under way; Ctrl-C again stops at once")

        signal.signal(signal.SIGINT, first)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


@dataclass(kw_only=True)
class Context:
    """Values that the phases share in addition to the run."""

    progress: Progress
    stop: Stop
    policies: Sequence[Policy] = ()
    """The policies of the run: those that always apply, and those of the settings."""
    wait: bool = False
    """Whether to wait for clusters that another run is changing."""
    wait_visible: float = 0.0
    """Seconds that verify waits for leaders."""
    limits: dict[str, ClusterLimits] = field(default_factory=dict)
    """Cluster -> the limits of its requests, kept from phase to phase."""
    withdrawn: Mapping[str, Mapping[tuple[str, str], Withdrawn]] = field(default_factory=dict)
    """Cluster -> action and resource -> why nothing more is sent of an action that an earlier start may have sent."""
    moves_until: Mapping[str, datetime] = field(default_factory=dict)
    """Cluster -> when its planned moves expire: none begins after that."""


Step = Callable[[Executor, Sequence[Target]], Iterator[PhaseResult]]


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """Result of a step on all clusters."""

    results: Mapping[Key, PhaseResult]
    """Action -> its last result, without configs, which would take most of the memory."""
    problems: Mapping[str, str]
    """Cluster -> why the step ended early there: the cluster can't be reached, or doesn't answer."""
    left_open: Mapping[Key, str] = field(default_factory=dict)
    """Action -> why its outcome can't be known now, although the step continued on its cluster."""

    @property
    def why_open(self) -> Mapping[str, str]:
        """Cluster -> why actions on it are still open."""
        return self.why(StaysOpen)

    def why(self, stays_open: type[StaysOpen]) -> Mapping[str, str]:
        """Return cluster -> why actions on it are still open, in the words of `stays_open`."""
        by_cluster: dict[str, dict[tuple[str, str], str]] = {}
        for (cluster, resource, action), why in self.left_open.items():
            by_cluster.setdefault(cluster, {})[resource, action] = why
        return {**{name: str(stays_open(name, actions)) for name, actions in by_cluster.items()}, **self.problems}

    def ok(self, work: Work) -> Work:
        """Return the part of `work` whose outcome is ok."""
        return only(work, lambda name, target: self._is_ok(self.results.get((name, target.resource, target.action))))

    def under_way(self) -> frozenset[Key]:
        """Return the actions that an earlier start may have sent and that haven't ended."""
        return frozenset(key for key, ended in self.results.items() if ended.outcome is Outcome.PENDING)

    def answers(self) -> Results:
        """Return the cluster's answer to each action."""
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
    """Do a step for each batch of each cluster, clusters in parallel, and append the outcomes in waves.

    `held` allows the step to change clusters. A cluster that can't be reached or doesn't answer is one of the result's
    problems; the others finish. Callbacks:

    - `before`, with the cluster and the batch's place in `work` (from 0): before each step;
    - `last`: in each cluster's thread, after its last batch;
    - `ended`, with a cluster that is done, or stays open, while others continue: once its outcomes are being committed.

    Raises Stopped if asked to stop, after appending the known outcomes. Raises LeaseLost if no lease is held any more.
    """
    total = sum(len(batch) for _, batches in work.values() for batch in batches)
    if not work:
        return StepResult(results={}, problems={})
    others: Mapping[str, str] = {}
    if phase is Phase.APPLY and step is not Executor.recover:
        # The settings' name may stand for a different cluster than in the plan: check it before anything is changed.
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
            # The name tells the reader of the queue that this cluster is done.
            results.put(name)

    waves, found = OutcomeWaves(run, held), dict[Key, PhaseResult]()
    at_once = min(len(work), MAX_CLUSTERS_AT_ONCE)
    with context.progress.phase(title or phase.value, total) as bar, ThreadPoolExecutor(at_once) as pool:
        running = {name: pool.submit(one_cluster, name) for name in work}
        left, over = len(running), list[str]()
        try:
            while left:
                # If outcomes can't be recorded any more, nothing more may be sent.
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
                    why = running[found_now].exception()
                    # A lost lease is another holder's.
                    if why is None or (isinstance(why, ClusterError) and not isinstance(why, LeaseLost)):
                        over.append(found_now)
                else:
                    waves.add(_over(found_now))
                    for each in found_now:
                        light = replace(each, result=replace(each.result, configs=None))
                        found[each.cluster, each.resource, each.action] = light
                    bar(len(found_now))
        except BaseException:
            # Interrupted: let the batches under way end, and keep their outcomes if possible.
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
    # The result has these reasons, except if the run is stopped.
    level = logging.WARNING if context.stop.is_set() else logging.INFO
    for name, future in running.items():
        try:
            future.result()
        except StaysOpen as error:
            left_open |= {(name, resource, action): why for (resource, action), why in error.actions.items()}
            log.log(level, "%s", error)
        except ClusterError as error:
            problems[name] = str(error)
            log.log(level, "%s", error)
    if context.stop.is_set():
        raise Stopped(f"run {run.run_id} {context.stop.why}; start it again with its id")
    lost = held.lost if held is not None else {}
    # The outcomes of these clusters were not recorded.
    problems |= {name: why for name, why in lost.items() if name in work}
    found = {key: each for key, each in found.items() if key[0] not in lost}
    return StepResult(results=found, problems=problems, left_open=left_open)


def expire_if_in_flight(held: Leases, executor: Executor) -> None:
    """Let a cluster's lease expire instead of releasing it, if a request without an answer may still change it.

    Another run could otherwise act on a state that this request then changes: take away the throttle of a move that
    begins afterwards, for example.
    """
    if executor.may_still_change():
        held.let_expire(executor.cluster)


def expect_late_requests(held: Leases, executor: Executor) -> None:
    """Note until when a request of the lease's last holder may still be carried out, if that one was killed."""
    late_until = executor.clock() + executor.retry_policy.visibility - held.since_death(executor.cluster)
    executor.limits.move_within(replace(executor.limits.moving, late_until=late_until))


def _over(ended: Sequence[PhaseResult]) -> Sequence[PhaseResult]:
    """Return the results that become rows of `audit`; a pending one of phase apply is still under way."""
    return [each for each in ended if (each.phase, each.outcome) != (Phase.APPLY, Outcome.PENDING)]


def _allowed() -> None:
    """Allow requests without a lease: validateOnly changes nothing."""


def _validated(run: Run, cluster: str, topics: Collection[str]) -> Mapping[str, TopicResult]:
    """Return topic -> the counts that validateOnly resolved in this run, from `audit`."""
    wanted = run.spark.createDataFrame([(topic,) for topic in topics], "topic string")
    rows = run.audit().where(is_validated() & (F.col("cluster") == cluster) & (F.col("action") == Action.CREATE.value))
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
    """Yield the results of each batch of a cluster. Raises StaysOpen at the end if some outcomes are unknown."""
    records = run.settings.kafka.max_batch_records
    of_kinds = run.settings.of_kinds
    limits = context.limits.setdefault(settings.name, ClusterLimits(max_batch_records=records, of_kinds=of_kinds))
    moving = replace(
        limits.moving,
        settings=run.settings.replicas,
        throttles=RecordedThrottles(ledger=run.ledger, run_id=run.run_id, cluster=settings.name, cluster_id=cluster_id),
        withdrawn=context.withdrawn.get(settings.name, {}),
        begin_until=context.moves_until.get(settings.name),
    )
    limits.move_within(moving)
    with ClusterAdmin(settings, run.settings.kafka) as admin, ExitStack() as closing:
        executor = Executor(
            cluster=settings.name,
            cluster_id=cluster_id,
            admin=admin,
            limits=limits,
            stop=context.stop,
            may_send=partial(held.require_for_request, settings.name) if held is not None else _allowed,
            waiting=partial(context.progress.wait, settings.name),
            validated=partial(_validated, run, settings.name),
            created_by=partial(created_by, run.ledger, settings.name, cluster_id),
        )
        if held is not None:
            expect_late_requests(held, executor)
            closing.callback(expire_if_in_flight, held, executor)
        live_id = executor.live_cluster_id()
        unknown = phase is Phase.APPLY and any(each.maybe_sent for batch in batches for each in batch)
        if live_id != cluster_id and unknown:
            # Only the planned cluster can tell the outcome.
            raise executor.wrong_cluster(live_id)
        if refused_as is not None and unknown:
            raise ClusterError(f"cluster {settings.name}: {refused_as}; actions that may have been sent stay open")
        if refused_as is None and live_id != cluster_id:
            refused_as = f"planned for cluster id {cluster_id}, the cluster now says {live_id}; plan again"
        left, left_open = sum(map(len, batches)), dict[tuple[str, str], str]()
        stays_open = StaysOpen
        for number, batch in enumerate(batches):
            if context.stop.is_set():
                return
            left -= len(batch)
            executor.expect(left)
            if refused_as is not None:
                refused = [executor.refused(each, phase, Refusal.CLUSTER_ID_MISMATCH, refused_as) for each in batch]
                # Applied actions stay applied: only their verification is skipped.
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
                        # A batch that the cluster slows down takes minutes: record its known outcomes meanwhile.
                        if time.monotonic() - yielded_at >= _YIELD_SECONDS:
                            yield ended
                            ended, yielded_at = [], time.monotonic()
            except StaysOpen as error:
                left_open |= error.actions
                stays_open = type(error)
            except ClusterError:
                yield ended
                raise
            yield ended
        # Throttles of the moves that were cancelled protect nothing any more, whatever the others do.
        if refused_as is None and (not left_open or stays_open is StillMoved):
            last(executor)
        if left_open:
            raise stays_open(settings.name, left_open)
