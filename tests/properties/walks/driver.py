"""Puts a walk's clusters, tables and clock in place of Kafka, Spark and time, and starts runs on them.

The product's own code runs, from `runs.start` and `pipeline.provision` down. Replaced are: `ClusterAdmin`,
`Ledger` and `leases.take`, pyspark's functions, threads (one runs at a time, in an order that is the same each time),
and the part of planning that asks clusters about topics.
"""

from __future__ import annotations

import inspect
import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
import pyspark.sql
import pyspark.sql.functions as spark_functions

from tests.properties.rows import columns, frames, functions
from tests.properties.walks.admin import Admin
from tests.properties.walks.checks import ATTEMPTS
from tests.properties.walks.estate import Estate
from tests.properties.walks.ledger import MemoryLeases, MemoryLedger, take
from tests.properties.walks.world import World
from topicledger import arrow, phases, pipeline
from topicledger import frames as computed_once
from topicledger.apply import dispatch, stages
from topicledger.apply.executor import Executor
from topicledger.cli import runs as commands
from topicledger.kafka import config_values, sending
from topicledger.kafka.sending import RetryPolicy
from topicledger.ledger import commits, digests, leases, outcome_waves, proof, runs, sent_batches
from topicledger.ledger import run as run_module
from topicledger.ledger.digests import RowsDigest
from topicledger.observe.listed import Listed, ListedStatus
from topicledger.observe.topics import ClusterStatus, Observation
from topicledger.plan import resources
from topicledger.plan.decided import Decided, commit_plan
from topicledger.plan.reevaluate import Reevaluated
from topicledger.resources import kind as resource_kind
from topicledger.resources.acls import requests as acl_requests
from topicledger.resources.topics.apply import throttles as taking_away
from topicledger.schemas import ACL_KEY


class Stage:
    """The walk that is on: what the fakes are about."""

    world: World
    ledger: MemoryLedger
    estate: Estate
    plans: Callable[[str, int], frames.DataFrame]
    watcher: Any


STAGE = Stage()


def set_up(world: World, ledger: MemoryLedger, estate: Estate, watcher: Any) -> None:
    """Put a walk on the stage."""
    STAGE.world, STAGE.ledger, STAGE.estate, STAGE.watcher = world, ledger, estate, watcher
    outcome_waves.WAVE_OUTCOMES = 10_000 if estate.appends == "step" else 1  # type: ignore[misc]
    dispatch._YIELD_SECONDS = 0.0 if estate.appends == "row" else 1e9  # type: ignore[misc]


# -- threads


class Done:
    """A future of something that was done at once, or is when its result is asked for."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._done = make, False
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        if not self._done:
            self._done = True
            try:
                self._result = self._make()
            except BaseException as error:
                self._error = error

    def done(self) -> bool:
        return self._done

    def exception(self) -> BaseException | None:
        self.run()
        return self._error

    def result(self) -> Any:
        if (error := self.exception()) is not None:
            raise error
        return self._result


class AtOnce:
    """A ThreadPoolExecutor that does each task as it is submitted; with `late_commits`, when it is waited for."""

    late = False

    def __init__(self, *_: object) -> None:
        self._tasks: list[Done] = []

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Done:
        found = _InOrder(self._tasks, partial(task, *arguments))
        if not self.late or not STAGE.estate.late_commits:
            found.run()
        return found

    def map(self, task: Callable[..., Any], items: Any) -> list[Any]:
        return [task(each) for each in items]

    def __enter__(self) -> AtOnce:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def shutdown(self, wait: bool = True) -> None:
        for each in list(self._tasks):
            each.run()


class _InOrder(Done):
    def __init__(self, tasks: list[Done], make: Callable[[], Any]) -> None:
        super().__init__(make)
        tasks.append(self)
        self._tasks = tasks

    def run(self) -> None:
        # A pool of one thread does one after the other.
        while self._tasks and not self._done:
            Done.run(self._tasks.pop(0))


class Late(AtOnce):
    late = True


class Beside(Late):
    """Tasks that are done when they are waited for; but for `late_commits`, when anything else is committed next."""

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Done:
        found = _InOrder(self._tasks, partial(task, *arguments))
        STAGE.ledger.beside.append(found)
        return found


class Turns:
    """Threads of which one runs at a time: each until it has something for the queue, then the next one."""

    def __init__(self, *_: object) -> None:
        self._tasks: deque[_Turn] = deque()
        # The turns of a run that is started meanwhile.
        self._before, Turns.current = Turns.current, self

    current: Turns | None = None

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Done:
        if STAGE.estate.appends == "step":
            # Rows are appended when all are done: it makes no difference whose turn it was.
            at_once = Done(partial(task, *arguments))
            at_once.run()
            return at_once
        found = _Turn(partial(task, *arguments))
        self._tasks.append(found)
        return found

    def step(self) -> None:
        task = self._tasks.popleft()
        if not task.done():
            task.go()
        if not task.done():
            self._tasks.append(task)

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *_: object) -> None:
        while self._tasks:
            self.step()
        Turns.current = self._before


class _Turn(Done):
    on: _Turn | None = None

    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__(make)
        self._mine, self._others = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._over = False

    def _run(self) -> None:
        self._mine.acquire()
        self.run()
        self._over = True
        self._others.release()

    def go(self) -> None:
        if not self._thread.is_alive():
            self._thread.start()
        before, _Turn.on = _Turn.on, self
        self._mine.release()
        self._others.acquire()
        _Turn.on = before

    def let_others(self) -> None:
        self._others.release()
        self._mine.acquire()

    def exception(self) -> BaseException | None:
        # A future waits for its thread, which may have put something into the queue before it ends.
        while not self._over:
            self.go()
        return self._error

    def done(self) -> bool:
        return self._over


class TurnQueue:
    """`queue.SimpleQueue` between such threads."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)
        if item is not None and _Turn.on is not None:
            _Turn.on.let_others()

    def get(self, timeout: float | None = None) -> Any:
        while not self._items:
            assert Turns.current is not None
            Turns.current.step()
        return self._items.popleft()


class WalkStop(dispatch.Stop):
    """A stop whose waits take the world's time."""

    def wait(self, timeout: float | None = None) -> bool:
        STAGE.world.sleep(timeout)
        return self.is_set()


def abandon(settings: Any, ledger: MemoryLedger, run_id: str, *, cancel: bool) -> None:
    """`runs abandon`, the command itself."""
    command = inspect.unwrap(commands.runs_abandon.callback)  # type: ignore[arg-type]
    with mock.patch.multiple(
        commands,
        open_settings=lambda _: settings,
        open_ledger=lambda *_: ledger,
        Stop=WalkStop,
        click=SimpleNamespace(echo=lambda *_: None),
    ):
        command(options=SimpleNamespace(run_id=run_id), cancel=cancel)


# -- what asks clusters and tables


class WalkExecutor(Executor):
    """An executor on the world's clock, that doesn't try for long."""

    def __init__(self, **given: Any) -> None:
        world = STAGE.world
        given |= {
            "clock": lambda: world.clock,
            "sleep": world.sleep,
            "retry_policy": RetryPolicy(attempts=ATTEMPTS, visibility=20.0),
        }
        super().__init__(**given)


def _admin(settings: Any, _: object = None, **__: object) -> Admin:
    return Admin(STAGE.world, STAGE.world.clusters[settings.name], STAGE.watcher)


def _take(_: Any, run_id: str, clusters: Mapping[str, str], *, request_timeout: float, **given: Any) -> MemoryLeases:
    return take(STAGE.world, run_id, clusters, **given)


def _seen(clusters: Any) -> Observation:
    statuses = {each.name: ClusterStatus(cluster_id=STAGE.world.clusters[each.name].cluster_id) for each in clusters}
    nothing = frames.DataFrame([], [])
    return Observation(topics=nothing, brokers=nothing, statuses=statuses)


def _plan_clusters(run: Any, context: Any, clusters: Any, *, again: bool) -> tuple[Observation, Decided]:
    """`pipeline._plan_clusters`, where the walk decides on topics."""
    kind = run.run_id.partition("-")[0].removesuffix("+")
    seen = _seen(clusters)
    rows = STAGE.plans(kind, run.manifest_version)
    decided = Decided(rows=rows, any_planned=bool(rows.rows))
    if kind == "acls":
        observed = []
        for goal in resources.goals(run, clusters, run.selected):
            seen, listed = goal.observe(run, seen)
            observed.append(listed)
        for each in observed:
            decided = decided.also(each.decide(run, context.policies, seen, again=again))
    if decided.ended or decided.any_planned:
        commit_plan(run, decided)
    return seen, decided


def _list_acls(spark: Any, clusters: Any, kafka: Any, ids: Mapping[str, str], *_: object) -> Listed:
    rows = [
        {"cluster": each.name, "cluster_id": ids[each.name], "observed_at": None, **acl._asdict()}
        for each in clusters
        for acl in _admin(each).describe_acls()
    ]
    names = ["cluster", "cluster_id", "observed_at", *ACL_KEY]
    live = STAGE.world.clusters
    statuses = {
        each.name: ListedStatus(own_principal=Admin.principal, allow_everyone=live[each.name].open_to_all)
        for each in clusters
    }
    return Listed(rows=frames.DataFrame(names, rows), statuses=statuses)


def _asked_of(request: str, admin: Admin, *arguments: Any) -> Any:
    return getattr(admin, request)(*arguments)


def _audit_table(run_id: str, manifest_version: int, ended: Any) -> Any:
    STAGE.watcher.rows(run_id, ended)
    names = run_module.AUDIT.schema.names
    rows = []
    for each in ended:
        own = {name: getattr(each, name, None) for name in names}
        own |= {"run_id": run_id, "manifest_version": manifest_version, "configs": None}
        own["violations"] = [{"policy": one.policy, "message": one.message} for one in each.violations] or None
        own |= {name: str(own[name]) for name in ("phase", "outcome", "resource_type")}
        rows.append(own)
    return rows


def _digests(tables: Mapping[str, frames.DataFrame]) -> Mapping[str, RowsDigest]:
    """`digests.of_run` without hashes: what a plan says tells it from another plan."""
    return {
        name: RowsDigest(rows=len(rows.rows), sha256=" ".join(sorted(str(row.get("resource")) for row in rows.rows)))
        for name, rows in tables.items()
    }


def over_arrow(function: Callable[..., Any], _: str, *given: Any) -> columns.Column:
    """`arrow.over_arrow`, for each row by itself."""
    parts = [columns.named(each).of for each in given]

    def of(row: Any, rows: Any) -> Any:
        return function(*(pa.array([part(row, rows)], pa.string()) for part in parts)).to_pylist()[0]

    return columns.Column(of)


_REPLACED = (
    ("F", spark_functions, functions),
    ("Column", pyspark.sql.Column, columns.Column),
    ("DataFrame", pyspark.sql.DataFrame, frames.DataFrame),
    ("Window", pyspark.sql.Window, columns.Window),
    ("over_arrow", arrow.over_arrow, over_arrow),
    *(
        (name, getattr(config_values, name), getattr(functions, name))
        for name in ("is_odd_column", "same_value_column")
    ),
)
"""Names in modules of the product, what they stand for, and what replaces it."""


@contextmanager
def functions_in_memory() -> Iterator[None]:
    """A context in which the product's transforms are of DataFrames in memory."""
    with ExitStack() as all_of_them:
        for name, module in list(sys.modules.items()):
            if name.startswith("topicledger") and module is not None:
                for attribute, real, own in _REPLACED:
                    if real is not None and vars(module).get(attribute) is real:
                        all_of_them.enter_context(mock.patch.object(module, attribute, own))
        all_of_them.enter_context(mock.patch.object(phases, "_types", lambda schema: dict.fromkeys(schema.names, "")))
        yield


@contextmanager
def installed() -> Iterator[None]:
    """A context in which the product runs on what `STAGE` has."""
    with ExitStack() as all_of_them:
        all_of_them.enter_context(functions_in_memory())

        def put(where: Any, **what: Any) -> None:
            for name, value in what.items():
                all_of_them.enter_context(mock.patch.object(where, name, value))

        put(dispatch, ThreadPoolExecutor=Turns, ClusterAdmin=_admin, Executor=WalkExecutor, disowned=lambda *_: {})
        put(dispatch, queue=SimpleNamespace(SimpleQueue=_Queue, Empty=KeyError))
        put(taking_away, ClusterAdmin=_admin, Executor=WalkExecutor)
        put(sending, random=SimpleNamespace(uniform=lambda low, high: (low + high) / 2))
        put(leases, take=_take)
        put(pipeline, ThreadPoolExecutor=AtOnce, _plan_clusters=_plan_clusters, warn_of_changed_back=lambda _: None)
        put(runs, ThreadPoolExecutor=AtOnce, versions=lambda spark: {})
        put(digests, of_run=_digests)
        put(proof, ThreadPoolExecutor=AtOnce, of_run=_digests)
        put(commits, ThreadPoolExecutor=Late)
        put(sent_batches, ThreadPoolExecutor=Beside)
        put(stages, observe_again=lambda run, context, clusters, named: _seen(clusters))
        put(stages, reevaluate=lambda *_, **__: Reevaluated(reported=False, waiting=None))
        put(resources, keep=lambda *_: None)
        put(resource_kind, list_each=_list_acls)
        for request in (
            "describe_acls",
            "create_acls",
            "delete_acls",
            "may_alter_acls",
            "knows_acls_like",
            "authorizer_settings",
        ):
            put(acl_requests, **{request: partial(_asked_of, request)})
        put(computed_once, Observation=frames.Metrics)
        put(run_module, audit_table=_audit_table)
        put(outcome_waves, WAVE_OUTCOMES=1, WAVE_SECONDS=1e9)
        put(dispatch, _YIELD_SECONDS=1e9)
        put(run_module, collected=lambda *_: None)
        put(run_module.Appended, add=lambda *_: None, read=lambda *_: None)
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


class _Queue(TurnQueue):
    def __class_getitem__(cls, _: object) -> type[_Queue]:
        return cls
