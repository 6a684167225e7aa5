"""A history: starts of runs, and what happens meanwhile; and the walk that it makes."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tests.properties.walks.checks import Checks
from tests.properties.walks.driver import STAGE, WalkStop, abandon, set_up
from tests.properties.walks.estate import CLUSTER_OF, EAST, TOPICS, Declared, Estate, clusters, foreign, planned
from tests.properties.walks.ledger import MemoryLedger
from tests.properties.walks.world import (
    ANOTHER_RUN,
    BY_OTHERS,
    CURSE,
    GRANTS,
    REVOKES,
    TOLD,
    UNTOLD,
    Crash,
    Event,
    Moment,
    Pending,
    World,
)
from topicledger import pipeline
from topicledger.apply.dispatch import Context
from topicledger.apply.progress import Progress
from topicledger.errors import GuardStopped, TopicLedgerError
from topicledger.ledger import runs
from topicledger.model import RunState
from topicledger.plan import approvals
from topicledger.plan.allowing import StoppedActions, most_of
from topicledger.schemas import ACLS, AUDIT, MANIFESTS, PLANS, RUNS, THROTTLES, USAGES

KINDS = ("moves", "topics", "acls")
OTHERS = tuple(f"{kind}+" for kind in KINDS)
"""Runs of the same kinds that somebody else starts."""
CONTROLLED_BY = "boss"
_MOST_STARTS = 6


@dataclass(frozen=True)
class Start:
    """The latest run of a kind is started, again where it isn't finished; else a new one."""

    kind: str
    cancel: bool = False
    """`--cancel`: a stop cancels moves that are under way."""
    wait: bool = False
    """`--wait`: for clusters that other runs are changing."""

    def __str__(self) -> str:
        return f"start {self.kind}{' --cancel' if self.cancel else ''}{' --wait' if self.wait else ''}"


@dataclass(frozen=True)
class Abandon:
    """`runs abandon` of the latest run of a kind."""

    kind: str
    cancel: bool = False

    def __str__(self) -> str:
        return f"runs abandon {self.kind}{' --cancel' if self.cancel else ''}"


@dataclass(frozen=True)
class Approve:
    """`runs approve` of the latest run of a kind."""

    kind: str

    def __str__(self) -> str:
        return f"runs approve {self.kind}"


Item = Start | Abandon | Approve | Event


class Walk:
    """One history, from the first start until every run is finished."""

    def __init__(self, estate: Estate, reached: Counter[str]) -> None:
        self.estate, self.settings = estate, estate.settings()
        self.world = world = World(clusters=clusters(estate), reached=reached, at_once=estate.at_once)
        self.declared = Declared()
        self.ledger = MemoryLedger(world)
        self.ledger.late_commits = estate.late_commits
        self.checks = Checks(world, self.ledger, self.settings)
        self._latest: dict[str, str] = {}
        self._numbers: Counter[str] = Counter()
        world.elsewhere = self.elsewhere
        world.check = self.checks.check
        self.ledger.looks = lambda table, version: self.checks.looked.update({table.name: version})
        self.ledger.appends = self._appends
        self.ledger.ensure(RUNS, PLANS, AUDIT, USAGES)
        self.ledger.put(MANIFESTS, self.declared.manifests())
        self.ledger.put(ACLS, self.declared.acl_rows())
        set_up(world, self.ledger, estate, self.checks)
        STAGE.plans = lambda kind, version: planned(
            kind, world.clusters, {row["topic"] for row in self.ledger.versions(MANIFESTS.name)[version]}
        )

    def _appends(self, table: Any, rows: list[dict[str, Any]]) -> None:
        if table is AUDIT and not self.world.dead:
            self.checks.decided(self.checks.run_id, [row for row in rows if row["requested_at"] is None])

    # -- a history

    def walk(self, items: Sequence[Item]) -> None:
        """Go through it, then finish every run."""
        left = deque(items)
        while left:
            item = left.popleft()
            if isinstance(item, Event):
                self._meanwhile([item])
                continue
            self.world.events = []
            while left and isinstance(left[0], Event):
                self.world.events.append(Pending(left.popleft()))
            self._do(item)
            self._meanwhile([each.event for each in self.world.events])
            self.world.events = []
        self._finish()

    def _meanwhile(self, events: Sequence[Event]) -> None:
        """Events that no start was there for."""
        for event in events:
            if event.moment is Moment.OPEN and event.kind not in ("stop", "lease lost", "contended", ANOTHER_RUN):
                self.world.tell("*", event)
                self.world.happens(event)

    def _do(self, item: Start | Abandon | Approve) -> None:
        world = self.world
        world.tell(item)
        self._last_end, self._on = None, item.kind
        world.dead = world.contended = False
        world.expire()
        self.ledger.beside = []
        world.clock += 1.0
        try:
            if isinstance(item, Start):
                self._start(item)
            elif isinstance(item, Abandon):
                self._abandon(item)
            else:
                self._approve(item.kind)
        except (Crash, TopicLedgerError) as end:
            world.tell(f"{type(end).__name__}:", end)
            world.reached[type(end).__name__] += 1
            self._last_end = end
            if isinstance(end, Crash):
                world.was_killed(self.checks.run_id)
        world.dead = world.contended = False
        world.check()

    def _start_meanwhile(self, kind: str) -> None:
        """Another driver starts a run while one is on, and goes as far as it comes."""
        world = self.world
        if self._is_started or world.dead:
            return
        own, beside, self.ledger.beside = (world.stop, world.moves, world.contended), self.ledger.beside, []
        self._is_started = True
        with self.checks.of_another_run():
            try:
                self._start(Start(kind))
            except (Crash, TopicLedgerError) as end:
                world.tell(f"{kind}: {type(end).__name__}:", end)
                if isinstance(end, Crash):
                    world.was_killed(self.checks.run_id)
                world.reached[f"meanwhile {type(end).__name__}"] += 1
            finally:
                self._is_started = world.dead = False
                (world.stop, world.moves, world.contended), self.ledger.beside = own, beside
        world.tell("back to the run before")

    _is_started = False
    """Whether another driver's run is on."""

    _last_end: BaseException | None = None
    _on = ""
    """The kind that the last command is about."""

    def state_of(self, kind: str) -> RunState | None:
        """Return the state of the latest run of a kind; None if it has no row."""
        return self._state(self._latest.get(kind))

    def _state(self, run_id: str | None) -> RunState | None:
        rows = [row["state"] for row in self.ledger.rows_of(RUNS) if row["run_id"] == run_id]
        return RunState(rows[0]) if rows else None

    def is_open(self, kind: str) -> bool:
        """Whether the latest run of a kind isn't over."""
        return self.state_of(kind) not in (None, RunState.FINISHED, RunState.ABANDONED)

    def _start(self, item: Start) -> None:
        if not self.is_open(item.kind):
            self._numbers[item.kind] += 1
            self._latest[item.kind] = f"{item.kind}-{self._numbers[item.kind]}"
        run_id = self._latest[item.kind]
        kind = item.kind.removesuffix("+")
        other = kind if item.kind != kind else f"{kind}+"
        if self.is_open(other) or other == self._on or (self._is_started and kind == self._on.removesuffix("+")):
            # Each may do what the other one planned.
            self.checks.touched |= set(TOPICS)
        self.checks.starts(run_id)
        self.world.moves = kind == "moves"
        stop = WalkStop(cancels=item.cancel)
        self.world.stop = stop.set
        rebalance = None if kind != "moves" or self.estate.by_manifests else _REBALANCE
        request = runs.Request(command="provision", run_id=run_id, requested_by=CONTROLLED_BY, instead=rebalance)
        run = runs.start(self.ledger, self.settings, request)  # type: ignore[arg-type]
        summary = pipeline.provision(run, Context(progress=Progress(), stop=stop, wait=item.wait), planning_only=False)
        self.world.tell(f"{run_id} ends: {summary.state}, {summary.exit_code}, {summary.problems}")
        # Another run of the kind may have begun before this one had a row.
        if self._state(run_id) is RunState.FINISHED:
            self.checks.finished(run_id)

    def _abandon(self, item: Abandon) -> None:
        if self.is_open(item.kind):
            self.checks.starts(self._latest[item.kind])
            abandon(self.settings, self.ledger, self._latest[item.kind], cancel=item.cancel)

    def _approve(self, kind: str) -> None:
        if self.state_of(kind) is not RunState.PLANNED or not self.estate.approvals:
            return
        run_id, allow = self._latest[kind], None
        if self.estate.allows:
            rows = [row for row in self.ledger.rows_of(PLANS) if row["run_id"] == run_id and row["guards"]]
            allow = (
                most_of([StoppedActions(cluster=row["cluster"], needs=row["guards"], actions=1) for row in rows])
                or None
            )
        approvals.approve(self.ledger, self.settings, run_id, by="colleague", allow=allow)  # type: ignore[arg-type]
        self.world.reached["allowed"] += allow is not None

    # -- other people

    def elsewhere(self, event: Event) -> None:
        world = self.world
        if event.kind in BY_OTHERS:
            if world.clusters[CLUSTER_OF[event.what]].somebody(event.kind, event.what):
                self.checks.touched.add(event.what)
                self.checks.of_others.add(event.what)
        elif event.kind == ANOTHER_RUN:
            self._start_meanwhile(event.what)
        elif event.kind == CURSE:
            world.clusters[CLUSTER_OF[event.what]].cursed.add(event.what)
            self.checks.was_cursed.add(event.what)
        elif event.kind == UNTOLD:
            world.clusters[CLUSTER_OF[event.what]].untold.add(event.what)
            self.checks.was_cursed.add(event.what)
        elif event.kind == TOLD:
            world.clusters[CLUSTER_OF[event.what]].untold.discard(event.what)
        elif event.kind == GRANTS:
            world.clusters[EAST].acls.add(foreign(event.what))
        elif event.kind == REVOKES:
            world.clusters[EAST].acls.discard(foreign(event.what))
        elif event.kind == "declares otherwise":
            self.declared.topics ^= {event.what}
            self.checks.touched.add(event.what)
            self.ledger.put(MANIFESTS, self.declared.manifests())
        elif event.kind.endswith(" an acl"):
            if self.declared.edit(event.kind, int(event.what)):
                self.ledger.put(ACLS, self.declared.acl_rows())
        elif event.kind == "replicas arrive":
            for cluster in world.clusters.values():
                cluster.now = world.clock
                cluster.catch_up(all_of_them=True)
        elif event.kind == "replicas are slow":
            for cluster in world.clusters.values():
                cluster.slow = True
        elif event.kind == "a week passes":
            self._pass(timedelta(days=7))

    def _pass(self, time: timedelta) -> None:
        self.checks.may_be_anything = True
        for row in self.ledger.rows_of(PLANS):
            row["planned_at"] -= time
        for row in self.ledger.rows_of(RUNS):
            row["started_at"] -= time

    # -- the end

    def _finish(self) -> None:
        """Nothing more happens: each run comes to its end, and leaves nothing behind.

        Brokers still answer -1 about the topics of which they did: this keeps no run open.
        """
        self.world.heal()
        for cluster in self.world.clusters.values():
            cluster.slow = False
        for kind in (*KINDS, *OTHERS):
            self._finish_one(kind)
            too_old = isinstance(self._last_end, GuardStopped)
            self.world.require(too_old or not self.is_open(kind), f"{self._latest.get(kind)} can't be finished")
        # A throttle stays while brokers answer only errors about its topic.
        for cluster in self.world.clusters.values():
            cluster.cursed, cluster.untold = set(), set()
        self._require_no_throttles()

    def _finish_one(self, kind: str) -> None:
        self._last_end = None
        for number in range(_MOST_STARTS):
            if not self.is_open(kind):
                return
            if number == _MOST_STARTS - 2:
                # A start ends at once if brokers don't show the throttle of a topic that moves, so no time passes.
                self.elsewhere(Event("replicas arrive"))
            if self.estate.approvals and self.state_of(kind) is RunState.PLANNED:
                self._do(Approve(kind))
            self._do(Start(kind))
            if isinstance(self._last_end, GuardStopped):
                # Its plan is too old: a new run is needed.
                return

    def _require_no_throttles(self) -> None:
        """When replicas have arrived, the next run takes away what runs left."""
        world = self.world
        self.elsewhere(Event("replicas arrive"))
        written = [row for row in self._throttles() if row["removed_at"] is None]
        if written:
            # If a run is still open, its plan is too old: a new run is needed.
            self._do(Abandon("topics"))
            self._do(Start("topics"))
            self._finish_one("topics")
            written = [row for row in self._throttles() if row["removed_at"] is None]
        words = [f"{row['cluster']} {row['resource']}" for row in written]
        world.require(not written, f"nothing is moved, and throttles are still written down: {words}")
        left = {name: each.throttles() for name, each in world.clusters.items() if each.throttles()}
        world.require(not left, f"nothing is moved, and throttles are left: {left}")

    def _throttles(self) -> list[dict[str, Any]]:
        return self.ledger.rows_of(THROTTLES)


_REBALANCE = runs.Rebalance(broker=1, fills=False)
