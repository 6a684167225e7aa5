"""Random walks of whole runs over a cluster in memory: answers that get lost, starts that die, other clients' changes.

A walk is a list of moves. Each request to the cluster, and each commit, takes the next one; when none is left all goes
well, and the run is started again until it is finished. After each row and each request the walk checks what must hold
whatever happens. The code under test is `Executor` with all that it uses; `Run` has the order of `apply/stages.py`.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from topicledger import kafka
from topicledger.apply.executor import Executor
from topicledger.errors import ClusterError
from topicledger.kafka import Cluster, ClusterAdmin, RequestLost, Response
from topicledger.kafka.sending import THROTTLING_QUOTA_EXCEEDED, ClusterLimits, RetryPolicy
from topicledger.model import (
    OURS,
    SET_ON_TOPIC,
    Action,
    ConfigEntry,
    Note,
    Outcome,
    Phase,
    PhaseResult,
    Refusal,
    RunState,
    Target,
    TopicConfigs,
    TopicInfo,
    TopicResult,
)
from topicledger.model.moves import Withdrawn
from topicledger.resources.topics.actions.delete import shape

WALKS = int(os.environ.get("TOPICLEDGER_WALKS", "3000"))

many = settings(
    max_examples=WALKS,
    deadline=None,
    derandomize="TOPICLEDGER_WALKS" not in os.environ,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

PLANNED_ID, ANOTHER_ID = "kafka-main", "kafka-other"
DEFAULT_PARTITIONS = 3
NOT_ASKED_FOR = "not asked for any more"
UNANSWERED = frozenset({kafka.REQUEST_TIMED_OUT, kafka.UNKNOWN_SERVER_ERROR})
"""Answers that don't say whether the request was carried out."""


def create(topic: str, batch: int, **fields: Any) -> Target:
    return Target(resource=topic, action=Action.CREATE, batch=batch, **fields)


CREATES = (
    create("a", 0, num_partitions=2, replication_factor=1, configs={"retention.ms": "1"}),
    create("b", 0, num_partitions=1, replication_factor=1),
    create("c", 1),
)
DELETES = ("x", "y")
GROWS, ALTERS = "g", "k"
CHANGED = {GROWS: (Action.ADD_PARTITIONS, "num_partitions", "3"), ALTERS: (Action.ALTER_CONFIGS, "x", "2")}
"""Topics that exist, and what is to be changed of each: one has 1 partition, one has x=1."""
TOPICS = (*(target.topic for target in CREATES), *DELETES, *CHANGED)


@dataclass(frozen=True, kw_only=True)
class Estate:
    """The kind of cluster, and how the run's commits fall."""

    gives_ids: bool
    """False: brokers before 2.8 (D7)."""
    returns_configs: bool
    """False: brokers before 2.4, which have no default counts and don't return what they used (C4, C11)."""
    appends: str
    """After what outcomes become rows that a crash can't lose: a row, a batch, a step."""
    marked_first: bool
    """Whether the first batch is marked before the run is `applying`: both commits go side by side."""
    deletes: bool
    """Whether there is anything to delete: deletes go first."""


@dataclass(frozen=True, kw_only=True)
class Topic:
    uid: int
    partitions: int
    configs: tuple[tuple[str, str], ...] = ()
    ours: bool = False
    """Whether a request of the run made it."""
    late: bool = False
    """Whether that request arrived after its start had died."""

    def value(self, name: str) -> str | None:
        return str(self.partitions) if name == "num_partitions" else dict(self.configs).get(name)

    def like(self, other: Topic) -> bool:
        return (self.partitions, self.configs) == (other.partitions, other.configs)


State = Mapping[str, Topic]


class Kafka:
    """A controller's topics, and two brokers that list them as they were some changes ago (C21)."""

    def __init__(self, cluster_id: str, topics: State) -> None:
        self.cluster_id = cluster_id
        self.states: list[State] = [topics]
        self.brokers = [0, 0]

    @property
    def now(self) -> State:
        return self.states[-1]

    def put(self, name: str, topic: Topic | None) -> None:
        others = {other: each for other, each in self.now.items() if other != name}
        self.states.append(others if topic is None else {**others, name: topic})

    def catch_up(self, changes: int = 1) -> None:
        self.brokers = [min(seen + changes, len(self.states) - 1) for seen in self.brokers]

    def listed(self) -> State:
        """Return the listing of the next broker: each call asks a different one."""
        self.brokers.reverse()
        return self.states[self.brokers[0]] if self.brokers[0] >= 0 else {}


class Crash(Exception):
    """The driver died."""


class Stopped(Exception):
    """The driver was asked to stop."""


class NotAllowed(ClusterError):
    """The lease is lost."""


Move = tuple[str, str | None]

CARRIED_OUT = {"lost, done": True, "lost, not done": False}
CODES = {
    "7, done": (kafka.REQUEST_TIMED_OUT, True),
    "7, not done": (kafka.REQUEST_TIMED_OUT, False),
    "-1, done": (kafka.UNKNOWN_SERVER_ERROR, True),
    "-1, not done": (kafka.UNKNOWN_SERVER_ERROR, False),
    "41": (kafka.NOT_CONTROLLER, False),
    "89": (THROTTLING_QUOTA_EXCEEDED, False),
}
"""Code, and whether the request was carried out nevertheless."""
FAULTS = (*CARRIED_OUT, "lost, late", *CODES, "crash, done", "crash, not done", "crash, late")
AT_COMMIT = ("crash before the commit", "crash after the commit")
BY_OTHERS = ("makes the same", "makes another", "deletes", "recreates", "alters", "changes", "grows")
TO_ALL = ("late ones arrive", "brokers catch up", "a broker starts", "stop", "lease lost", "another cluster", "too old")
OF_ONE = ("no longer declared", "hidden", "shown", "no right to create", "the right to create")

QUIET: Move = ("", None)
MOVES_OF_ALL: Sequence[Move] = (
    *(QUIET,) * 12,
    *((fault, None) for fault in FAULTS for _ in range(3)),
    *((code, topic) for code in CODES for topic in ("a", "x")),
    *((each, None) for each in (*TO_ALL, "a broker starts", "a broker starts")),
    *((each, topic) for each in BY_OTHERS for topic in TOPICS),
    *(("makes the same", target.topic) for target in CREATES for _ in range(3)),
    *((each, topic) for each in ("changes", "grows", "no longer declared", "hidden") for topic in CHANGED),
    *((each, topic) for each in OF_ONE for topic in ("a", "x")),
)


@dataclass(kw_only=True)
class Asked:
    """Requests that were sent for an action."""

    unanswered: bool = False
    """A request went out whose answer didn't say what it did."""
    since: int = 0
    """The oldest state that a broker could list at the last request."""


class World:
    """The cluster, its clients, and the moves to come."""

    def __init__(
        self, estate: Estate, moves: Iterable[Move], moves_from_apply_on: Iterable[Move], crashes: Mapping[int, str]
    ) -> None:
        self.estate = estate
        self.commits = 0
        self.crashes = crashes
        """By the number of the commit, from 1."""
        self.moves = deque(moves)
        self.moves_from_apply_on = list(moves_from_apply_on)
        self.story: list[str] = []
        self.uid = 100
        before = {name: Topic(uid=number, partitions=1, configs=(("x", "1"),)) for number, name in enumerate(DELETES)}
        before = before if estate.deletes else {}
        before |= {name: Topic(uid=50 + n, partitions=1, configs=(("x", "1"),)) for n, name in enumerate(CHANGED)}
        self.planned = Kafka(PLANNED_ID, before)
        self.another = Kafka(ANOTHER_ID, {name: topic for name, topic in before.items() if name != "x"})
        self.answering = self.planned
        self.hidden: set[str] = set()
        self.no_create: set[str] = set()
        self.undeclared: set[str] = set()
        self.too_old = False
        self.lease_lost = False
        self.stop = threading.Event()
        self.in_flight: list[Callable[[], object]] = []
        self.asked: dict[tuple[Action, str], Asked] = {}
        self.ours_changed: dict[str, tuple[int, bool]] = {}
        """By topic, the state after our last change of it, and whether that came late."""
        self.ours_deleted: dict[int, bool] = {}
        """By uid, whether the request came late."""
        self.clock = 0.0

    def tell(self, *words: object) -> None:
        self.story.append(" ".join(map(str, words)))

    def require(self, condition: object, what: str) -> None:
        assert condition, "\n".join([what, f"{self.estate}", *self.story])

    # -- moves

    def begins_to_apply(self) -> None:
        later, self.moves_from_apply_on = self.moves_from_apply_on, []
        self.moves.extend(later)

    def next(self, *, sending: bool = False) -> Move:
        """The next move that is the request's own; what others do comes before it."""
        while self.moves:
            kind, topic = self.moves[0]
            if sending and kind == "another cluster":
                # Between the check and the request there is always a moment.
                return "", None
            self.moves.popleft()
            if kind:
                self.tell("*", kind, topic or "")
            if kind in FAULTS or not kind:
                return kind, topic
            self._elsewhere(kind, topic)
        self.heal()
        return "", None

    def heal(self) -> None:
        """No more faults: what is under way arrives, and brokers list everything."""
        self.arrive()
        self.lease_lost = False
        self.planned.catch_up(len(self.planned.states))

    def arrive(self) -> None:
        late, self.in_flight = self.in_flight, []
        for each in late:
            each()

    def _elsewhere(self, kind: str, topic: str | None) -> None:
        if topic is not None and kind in BY_OTHERS:
            self._other_client(kind, topic)
        elif kind == "late ones arrive":
            self.arrive()
        elif kind == "brokers catch up":
            self.planned.catch_up()
        elif kind == "a broker starts":
            self.planned.brokers[0] = -1
        elif kind == "stop":
            self.stop.set()
        elif kind == "lease lost":
            self.lease_lost = True
        elif kind == "another cluster":
            self.answering = self.another
        elif kind == "too old":
            self.too_old = True
        elif topic is not None:
            changed = {
                "no longer declared": self.undeclared.add,
                "hidden": self.hidden.add,
                "shown": self.hidden.discard,
                "no right to create": self.no_create.add,
                "the right to create": self.no_create.discard,
            }.get(kind)
            if changed is not None:
                changed(topic)

    def _other_client(self, kind: str, name: str) -> None:
        live = self.planned.now.get(name)
        same = self.made(name, ours=False)
        if live is None:
            if kind in ("makes the same", "makes another"):
                more = kind == "makes another"
                self.planned.put(name, replace(same, partitions=same.partitions + more))
        elif kind == "deletes":
            self.planned.put(name, None)
        elif kind == "recreates":
            self.planned.put(name, None)
            self.planned.put(name, replace(live, uid=self.new_uid(), ours=False, late=False))
        elif kind == "alters":
            self.planned.put(name, replace(live, configs=(*live.configs, ("other", "1"))))
        elif kind == "changes":
            self.planned.put(name, replace(live, configs=tuple({**dict(live.configs), "x": "9"}.items())))
        elif kind == "grows":
            self.planned.put(name, replace(live, partitions=live.partitions + 1))

    def new_uid(self) -> int:
        self.uid += 1
        return self.uid

    def made(self, name: str, *, ours: bool) -> Topic:
        """The topic that comes of what is declared."""
        declared = {target.topic: target for target in CREATES}.get(name)
        if declared is None:
            return Topic(uid=self.new_uid(), partitions=1, configs=(("x", "1"),), ours=ours)
        configs = tuple(sorted(declared.configs.items()))
        partitions = declared.num_partitions or DEFAULT_PARTITIONS
        return Topic(uid=self.new_uid(), partitions=partitions, configs=configs, ours=ours)

    # -- time

    def sleep(self, seconds: float) -> None:
        self.clock += seconds
        self.planned.catch_up()

    def id_of(self, topic: Topic) -> str | None:
        return f"id-{topic.uid}" if self.estate.gives_ids else None


class Admin:
    """`ClusterAdmin` for a `World`, for one start of a run."""

    def __init__(self, world: World, run: Run) -> None:
        self.world = world
        self.run = run
        self.has_default_counts = world.estate.returns_configs
        self.returns_configs = world.estate.returns_configs
        self.deletes_by_id = world.estate.gives_ids
        self.alters_incrementally = True
        self.reassigns = True
        self.seen: dict[str, TopicInfo] = {}
        self.seen_configs: dict[str, TopicConfigs] = {}
        self.ready = ""

    # -- reads

    def _read(self) -> Kafka:
        self.ready = ""
        kind, _ = self.world.next()
        if kind.startswith("lost"):
            raise RequestLost("lost")
        if kind.startswith("crash"):
            raise Crash
        return self.world.answering

    def describe_cluster(self) -> Cluster:
        return Cluster(cluster_id=self._read().cluster_id, brokers=(), gives_topic_ids=self.deletes_by_id)

    def connect_to_controller(self) -> str:
        cluster_id = self._read().cluster_id
        self.ready = "connected"
        return cluster_id

    def may_send(self) -> None:
        self.world.require(self.ready == "connected", "leave to send was asked for before the controller was found")
        if self.world.lease_lost:
            raise NotAllowed("the lease is lost")
        self.ready = "allowed"

    def describe_topics(self, topics: Sequence[str]) -> Iterator[TopicInfo]:
        listed = self._read().listed()
        for name in topics:
            self.seen.pop(name, None)
            topic = listed.get(name)
            if name in self.world.hidden:
                yield TopicInfo(topic=name, permitted=False)
            elif topic is not None:
                self.seen[name] = self._info(name, topic)
                yield self.seen[name]

    def _info(self, name: str, topic: Topic) -> TopicInfo:
        assignments = dict.fromkeys(range(topic.partitions), (1,))
        return TopicInfo(topic=name, topic_id=self.world.id_of(topic), assignments=assignments)

    def topics_reassigned_now(self) -> frozenset[str]:
        self._read()
        return frozenset()

    def topic_configs(
        self, topics: Sequence[str], names: Mapping[str, Collection[str]] | None = None
    ) -> Iterator[TopicConfigs]:
        listed = self._read().listed()
        for name in topics:
            topic = listed.get(name)
            if name in self.world.hidden:
                each = TopicConfigs(topic=name, error_code=kafka.TOPIC_AUTHORIZATION_FAILED)
            elif topic is None:
                each = TopicConfigs(topic=name, error_code=kafka.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                entries = [ConfigEntry(key, value, False, SET_ON_TOPIC, False) for key, value in topic.configs]
                default = ConfigEntry("cleanup.policy", "delete", False, "DEFAULT_CONFIG", False)
                each = TopicConfigs(topic=name, configs=(*entries, default))
            self.seen_configs[name] = each
            yield each

    # -- changes

    def create_topics(self, targets: Sequence[Target], *, validate_only: bool) -> Response:
        world = self.world
        if validate_only:
            self.ready = ""
            for target in targets:
                self._asked(target)

        def done(cluster: Kafka, target: Target, late: bool) -> TopicResult:
            name = target.topic
            if name in world.no_create:
                return TopicResult(error_code=kafka.TOPIC_AUTHORIZATION_FAILED)
            if name in cluster.now:
                return TopicResult(error_code=kafka.TOPIC_ALREADY_EXISTS, error_message="already exists")
            topic = replace(world.made(name, ours=True), late=late)
            if not validate_only:
                cluster.put(name, topic)
            if not self.returns_configs:
                return TopicResult()
            return TopicResult(
                topic_id=None if validate_only else world.id_of(topic),
                num_partitions=topic.partitions,
                replication_factor=1,
                configs=(),
            )

        return self._request(targets, done, changes=not validate_only)

    def add_partitions(self, targets: Sequence[Target], *, validate_only: bool) -> Response:
        def changed(topic: Topic, target: Target) -> Topic | int:
            more = target.grows_to > topic.partitions
            return replace(topic, partitions=target.grows_to) if more else kafka.INVALID_PARTITIONS

        return self._change(targets, changed, validate_only=validate_only)

    def alter_configs(self, targets: Sequence[Target], *, validate_only: bool) -> Response:
        def changed(topic: Topic, target: Target) -> Topic | int:
            if not validate_only and target.topic in self.seen_configs:
                seen = {each.name: each.value for each in self.seen_configs[target.topic].configs or ()}
                expected = (target.before.get("x"), target.after.get("x"))
                self.world.require(seen.get("x") in expected, f"{target.topic} was altered, it had another value")
            return replace(topic, configs=tuple({**dict(topic.configs), **target.after}.items()))

        return self._change(targets, changed, validate_only=validate_only)

    def _change(
        self, targets: Sequence[Target], changed: Callable[[Topic, Target], Topic | int], *, validate_only: bool
    ) -> Response:
        world = self.world
        if validate_only:
            self.ready = ""

        def done(cluster: Kafka, target: Target, late: bool) -> TopicResult:
            live = cluster.now.get(target.topic)
            if live is None or target.topic in world.hidden:
                hidden = target.topic in world.hidden
                code = kafka.TOPIC_AUTHORIZATION_FAILED if hidden else kafka.UNKNOWN_TOPIC_OR_PARTITION
                return TopicResult(error_code=code)
            new = changed(live, target)
            if isinstance(new, int):
                return TopicResult(error_code=new)
            if not validate_only:
                cluster.put(target.topic, new)
                world.ours_changed[target.topic] = (len(cluster.states) - 1, late)
            return TopicResult()

        return self._request(targets, done, changes=not validate_only)

    def delete_topics(self, targets: Sequence[Target]) -> Response:
        world = self.world
        by_id = self.deletes_by_id and all(target.topic_id for target in targets)
        for target in targets:
            if not by_id:
                self._may_go_by_name(target)

        def done(cluster: Kafka, target: Target, late: bool) -> TopicResult:
            live = cluster.now.get(target.topic)
            missing = kafka.UNKNOWN_TOPIC_ID if by_id else kafka.UNKNOWN_TOPIC_OR_PARTITION
            if live is not None and target.topic in world.hidden:
                # As measured on 4.3.1, also by id.
                return TopicResult(error_code=kafka.TOPIC_AUTHORIZATION_FAILED)
            if live is None or (by_id and world.id_of(live) != target.topic_id):
                return TopicResult(error_code=missing)
            world.ours_deleted[live.uid] = late
            cluster.put(target.topic, None)
            return TopicResult()

        return self._request(targets, done, changes=True)

    def _may_go_by_name(self, target: Target) -> None:
        world, name = self.world, target.topic
        world.require(target.topic_id is None, f"{name} was deleted by name though it has an id")
        world.require(not self.run.resumed, f"{name} was deleted by name by a start that took the run up")
        world.require(not self._asked(target).unanswered, f"{name} was deleted by name again after an answer was lost")
        info, configs = self.seen.get(name), self.seen_configs.get(name)
        same = info is not None and configs is not None and shape(info, configs.configs) == target.before
        world.require(same, f"{name} was deleted by name and is another than the one that was planned")

    def _asked(self, target: Target) -> Asked:
        asked = self.world.asked.setdefault((target.action, target.topic), Asked())
        asked.since = max(0, min(self.world.planned.brokers))
        return asked

    def _request(
        self, targets: Sequence[Target], do: Callable[[Kafka, Target, bool], TopicResult], *, changes: bool
    ) -> Response:
        world = self.world
        if changes:
            for target in targets:
                self.run.require_sendable(target)
            world.require(self.ready == "allowed", "sent without leave, or after something that may take long")
        self.ready = ""
        kind, named = world.next(sending=changes)
        cluster = world.answering
        world.require(not changes or cluster is world.planned, "sent to another cluster")
        verb = ("validate" if not changes else "send") + f" {targets[0].action}"
        world.tell("->", verb, *(target.topic for target in targets))

        def provision(late: bool = False) -> dict[str, TopicResult]:
            return {target.topic: do(cluster, target, late) for target in targets}

        def unanswered(some: Iterable[Target]) -> None:
            for target in some if changes else ():
                self._asked(target).unanswered = True

        if kind.startswith(("lost", "crash")):
            unanswered(targets)
            if kind.endswith(", done"):
                provision()
            elif kind.endswith(", late") and changes:
                world.in_flight.append(lambda: provision(late=True))
            raise Crash if kind.startswith("crash") else RequestLost("lost")
        code, done = CODES.get(kind, (kafka.NONE, True))
        struck = [target for target in targets if kind in CODES and named in (None, target.topic)]
        names = {target.topic for target in struck}
        results = {target.topic: do(cluster, target, False) for target in targets if done or target.topic not in names}
        results |= {name: TopicResult(error_code=code) for name in names}
        unanswered(struck if code in UNANSWERED else ())
        for target in targets:
            self._asked(target)
        world.tell("  ", {name: each.error_code for name, each in results.items()})
        return Response(results=results, throttle_time_ms=0)


def planned_change(info: TopicInfo, described: TopicConfigs) -> Target | None:
    """Return the planned change of a topic; None if it needs none, or can't be seen."""
    action, what, wanted = CHANGED[info.topic]
    if not info.permitted or described.configs is None:
        return None
    values = {each.name: str(each.value) for each in described.configs} | {"num_partitions": str(info.num_partitions)}
    if values.get(what) == wanted or (action is Action.ADD_PARTITIONS and info.num_partitions > int(wanted)):
        return None
    before = {what: values[what]} if what in values else {}
    return Target(resource=info.topic, action=action, topic_id=info.topic_id, before=before, after={what: wanted})


class Run:
    """A run's tables, and its starts: the order of `stages.py` and `dispatch.py` for one cluster."""

    def __init__(self, world: World, reached: Counter[str]) -> None:
        self.world = world
        self.reached = reached
        self.state = RunState.PLANNING
        self.plan: Sequence[Target] = ()
        self.marks: dict[tuple[Action, int], int] = {}
        """The first start that marked a batch."""
        self.audit: list[PhaseResult] = []
        self.starts = 0
        self._held: list[PhaseResult] = []
        self._declared: Collection[str] = ()
        self._may_have_sent = False
        self._applying_since: int | None = None

    @property
    def resumed(self) -> bool:
        return self.starts > 1

    # -- tables

    def commit(self, change: Callable[[], object]) -> None:
        self.world.commits += 1
        crash = self.world.crashes.get(self.world.commits)
        if crash != AT_COMMIT[0]:
            change()
        if crash:
            self.world.tell("*", crash)
            raise Crash

    def append(self) -> None:
        held, self._held = self._held, []
        if held:
            self.commit(lambda: self.audit.extend(held))

    def ended(self) -> Collection[tuple[Action, str]]:
        return {
            (row.action, row.topic) for row in self.audit if row.phase is Phase.APPLY or row.outcome is not Outcome.OK
        }

    def validated(self, topics: Collection[str]) -> Mapping[str, TopicResult]:
        return {
            row.topic: TopicResult(num_partitions=row.num_partitions, replication_factor=row.replication_factor)
            for row in self.audit
            if row.topic in topics and row.phase is Phase.VALIDATE and row.outcome is Outcome.OK
        }

    def open(self) -> Sequence[Target]:
        """`Run.open_actions`, less what ended."""
        over = self.ended()
        maybe_sent = {key for key, start in self.marks.items() if self._may_have_sent and start < self.starts}
        return [
            replace(target, maybe_sent=(target.action, target.batch) in maybe_sent)
            for target in self.plan
            if (target.action, target.topic) not in over
        ]

    def passed(self) -> Sequence[Target]:
        valid = {(row.action, row.topic) for row in self.audit if row.phase is Phase.VALIDATE}
        return [target for target in self.open() if (target.action, target.topic) in valid]

    # -- a start

    def start(self) -> bool:
        """One start; whether the run is finished."""
        world = self.world
        self.starts += 1
        world.stop = threading.Event()
        world.lease_lost = False
        # Where it came to mean another cluster, somebody has corrected the address.
        world.answering = world.planned
        world.tell(f"start {self.starts} ({self.state.value})")
        self._held = []
        self._may_have_sent = self.state is RunState.APPLYING
        self.admin = Admin(world, self)
        self.under_way: set[tuple[Action, str]] = set()
        """Actions that an earlier start may have carried out, as far as the cluster shows."""
        self.executor = Executor(
            cluster="main",
            cluster_id=PLANNED_ID,
            admin=cast(ClusterAdmin, self.admin),
            limits=ClusterLimits(max_batch_records=100),
            retry_policy=RetryPolicy(attempts=3, visibility=5.0),
            stop=world.stop,
            sleep=world.sleep,
            clock=lambda: world.clock,
            may_send=self.admin.may_send,
            validated=self.validated,
        )
        try:
            if not self.plan and not self._make_plan():
                return False
            problem = self._validate()
            problem = self._apply() or problem
        except (Crash, Stopped) as end:
            self.reached[type(end).__name__] += 1
            world.tell(type(end).__name__)
            return False
        world.require(problem or not self.open(), "nothing went wrong, and something is open")
        if not problem:
            self.state = RunState.FINISHED
        return not problem

    def _make_plan(self) -> bool:
        try:
            live = self.executor.describe(TOPICS)
            configs = self.executor.describe_configs(list(live))
        except ClusterError:
            return False
        if self.world.answering is not self.world.planned:
            return False
        plan = [target for target in CREATES if target.topic not in live or not live[target.topic].permitted]
        deletes: list[Target] = []
        for name in DELETES:
            info = live.get(name)
            if info is not None and info.permitted:
                found = None if self.world.estate.gives_ids else configs.get(name)
                before = shape(info, found.configs if found is not None else None)
                deletes.append(
                    Target(
                        resource=name,
                        action=Action.DELETE,
                        topic_id=info.topic_id,
                        batch=len(deletes),
                        before=dict(before),
                    )
                )
        changes = [
            change
            for name in CHANGED
            if name in live and name in configs and (change := planned_change(live[name], configs[name])) is not None
        ]
        self.commit(lambda: setattr(self, "plan", [*deletes, *plan, *changes]))
        return True

    def _validate(self) -> bool:
        valid = {(row.action, row.topic) for row in self.audit if row.phase is Phase.VALIDATE}
        left = [target for target in self.open() if (target.action, target.topic) not in valid]
        problem = self._each(left, Phase.VALIDATE, lambda batch: self.executor.validate(batch))
        if self.state is RunState.PLANNING and not problem:
            self.state = RunState.PLANNED
        return problem

    def _apply(self) -> bool:
        work = self.passed()
        if not work:
            return False
        self.world.begins_to_apply()
        self._declared = set(TOPICS) - self.world.undeclared
        changed = bool(self.world.undeclared)
        problem = False
        if self.resumed or changed:
            if self.state is RunState.APPLYING:
                maybe_sent = [target for target in self.passed() if target.maybe_sent]
                problem = self._each(maybe_sent, Phase.APPLY, self.executor.recover)
                if self.world.too_old and not problem:
                    self._refuse(Refusal.PLAN_EXPIRED, self.passed())
            if changed and not problem:
                undeclared = [target for target in self.passed() if target.topic not in self._declared]
                self._refuse(Refusal.CHANGED_SINCE_PLAN, undeclared)
            if self.resumed and not problem:
                unsent = [each for each in self.passed() if (each.action, each.topic) not in self.under_way]
                problem = self._each(unsent, Phase.APPLY, self.executor.changed_since_plan)
            if problem:
                return True
            self._become_applying()
            work = self.passed()
            self._mark(work, 0)
        elif self.world.estate.marked_first:
            self._mark(work, 0)
            self._become_applying()
        else:
            self._become_applying()
            self._mark(work, 0)
        return self._each(work, Phase.APPLY, self.executor.apply, lambda number: self._mark(work, number, number + 1))

    def _become_applying(self) -> None:
        def change() -> None:
            self.state = RunState.APPLYING
            self._applying_since = self._applying_since or self.starts

        if self.state is not RunState.APPLYING:
            self.commit(change)

    def _mark(self, work: Sequence[Target], *numbers: int) -> None:
        keys = batches(work)
        new = [each for number in numbers for each in list(keys)[number : number + 1] if each not in self.marks]
        if new:
            self.commit(lambda: self.marks.update(dict.fromkeys(new, self.starts)))

    def _refuse(self, refusal: Refusal, targets: Sequence[Target]) -> None:
        for target in targets:
            if (target.action, target.topic) in self.under_way:
                # Refused means not sent: nothing more of it is sent, and apply tells its outcome.
                moving = self.executor.limits.moving
                why = Withdrawn(error=refusal, message=NOT_ASKED_FOR)
                self.executor.limits.moving = replace(
                    moving, withdrawn={(target.action, target.topic): why, **moving.withdrawn}
                )
                continue
            row = self.executor.refused(target, Phase.APPLY, refusal, NOT_ASKED_FOR)
            self._tell(target, row, by="run")
        self.append()

    def _each(
        self,
        targets: Sequence[Target],
        phase: Phase,
        step: Callable[[Sequence[Target]], Iterator[PhaseResult]],
        before: Callable[[int], None] = lambda _: None,
    ) -> bool:
        """`each_cluster` for one cluster; whether it became a problem."""
        if not targets:
            return False
        planned = {(target.action, target.topic): target for target in targets}
        problem = False
        try:
            live_id = self.executor.live_cluster_id()
            for number, batch in enumerate(batches(targets).values()):
                if self.world.stop.is_set():
                    break
                if live_id != PLANNED_ID:
                    if phase is Phase.APPLY and any(target.maybe_sent for target in batch):
                        raise self.executor.wrong_cluster(live_id)
                    for target in batch:
                        refused = self.executor.refused(target, phase, Refusal.CLUSTER_ID_MISMATCH, "another cluster")
                        self._tell(target, refused)
                    continue
                before(number)
                for ended in step(batch):
                    if (phase, ended.outcome) == (Phase.APPLY, Outcome.PENDING):
                        self.under_way.add((Action(ended.action), ended.topic))
                        continue
                    self._tell(planned[ended.action, ended.topic], ended)
                    if self.world.estate.appends == "row":
                        self.append()
                if self.world.estate.appends == "batch":
                    self.append()
        except ClusterError as error:
            self.reached[type(error).__name__] += 1
            self.world.tell(type(error).__name__, error)
            problem = True
        self.append()
        if self.world.stop.is_set():
            raise Stopped
        return problem

    # -- what must hold

    def require_sendable(self, target: Target) -> None:
        """Before a request that changes something."""
        require = self.world.require
        require((target.action, target.batch) in self.marks, f"{target.topic} was sent, its batch isn't marked")
        require(self.state is RunState.APPLYING, f"{target.topic} was sent, the run isn't applying")
        require(target.topic in self._declared, f"{target.topic} was sent, the manifests don't ask for it")

    def _tell(self, target: Target, row: PhaseResult, by: str = "") -> None:
        world = self.world
        error = row.error or row.outcome.value
        world.tell("  ", row.phase.value, row.action.value, row.topic, row.outcome.value, error, row.topic_id or "")
        self.reached[f"{by or row.phase.value} {row.action.value} {row.outcome.value} {error}"] += 1
        self._held.append(row)
        if row.phase is Phase.APPLY:
            asked = world.asked.get((row.action, row.topic), Asked())
            if row.error == Note.RECOVERED:
                marked = self.marks.get((row.action, target.batch), self.starts) < self.starts
                applying = self._applying_since is not None and self._applying_since < self.starts
                maybe_ours = asked.unanswered or (marked and applying)
                world.require(maybe_ours, f"{row.topic} is RECOVERED, and nothing was sent for it")
            checks = {Action.CREATE: self._check_create, Action.DELETE: self._check_delete}
            checks.get(cast(Action, row.action), self._check_change)(target, row, asked)

    def _check_change(self, target: Target, row: PhaseResult, asked: Asked) -> None:
        world, name = self.world, row.topic
        _, what, wanted = CHANGED[name]

        def is_so(state: State) -> bool:
            topic = state.get(name)
            return topic is not None and topic.value(what) == wanted

        if row.outcome is Outcome.OK:
            # Requests name topics: one that was recreated after it was compared is changed in its place.
            world.require(any(map(is_so, world.planned.states)), f"{name} is ok, and was never changed so")
            return
        changed, late = world.ours_changed.get(name, (0, True))
        # A topic that we changed is only refused or failed if another client changed or recreated it. If it is hidden,
        # it isn't known whether we did: it fails, since refused means not sent.
        since = [state[name] for state in world.planned.states[changed:] if name in state]
        planned = [topic for topic in since if world.id_of(topic) == target.topic_id and topic.value(what) == wanted]
        unknown = name in world.hidden and row.outcome is not Outcome.REFUSED
        stays = not late and not unknown and len(planned) == len(world.planned.states[changed:])
        world.require(not stays, f"{name} was changed by us and is {row.outcome}, {row.error}")

    def _check_create(self, target: Target, row: PhaseResult, asked: Asked) -> None:
        world, name = self.world, row.topic
        planned, wanted = world.planned, world.made(row.topic, ours=True)
        shown = [state[name] for state in planned.states[asked.since :] if name in state]
        if row.outcome is Outcome.OK:
            claimed = [topic for topic in shown if world.id_of(topic) == row.topic_id or row.topic_id is None]
            if row.error is None:
                claimed = [topic for topic in claimed if topic.ours]
            world.require(any(topic.like(wanted) for topic in claimed), f"{name} is ok, and there was no such topic")
            return
        if row.topic_id is not None:
            ids = {world.id_of(state[name]) for state in planned.states if name in state}
            world.require(row.topic_id in ids, f"{name} never had the id {row.topic_id}")
        live = planned.now.get(name)
        ours = live is not None and live.ours and live.like(wanted) and name not in world.hidden
        found = row.error_code == kafka.TOPIC_ALREADY_EXISTS or (row.error_message or "").startswith(
            "the topic appeared"
        )
        # Changes that arrive late weren't there yet at the time of the question.
        ours = ours and (found or not (live is not None and live.late))
        # Without the right to create it may not be known who made it, but refused means not sent.
        knowable = name not in world.no_create or row.outcome is Outcome.REFUSED
        if ours and len({topic.uid for topic in shown}) == 1 and knowable:
            world.require(False, f"{name} is {row.outcome.value}, {row.error}, and the run made it")

    def _check_delete(self, target: Target, row: PhaseResult, asked: Asked) -> None:
        world, name = self.world, row.topic
        planned = world.planned
        uid = self._planned_uid(target)
        live = {topic.uid for topic in planned.now.values()}
        if row.outcome is Outcome.OK:
            world.require(uid not in live, f"{name} is ok, and it is still there")
            world.require(row.error_code == kafka.NONE and row.topic_id == target.topic_id, f"{name}: {row}")
            return
        if row.error == Refusal.RECREATED:
            world.require(row.error_code != OURS or row.phase is Phase.VALIDATE or target.topic_id, f"{name}: {row}")
        shown = any(name in state for state in planned.states[asked.since :])
        ours = world.ours_deleted.get(uid) is False
        # Without the right to create only the delete itself tells, by id, and it isn't sent any more.
        unknowable = name in world.no_create and (
            str(row.error_message).startswith(NOT_ASKED_FOR) or not world.estate.gives_ids
        )
        # The controller answered only errors about the name: the row says that it is unknown.
        unknowable |= "doesn't tell whether an earlier request of this run deleted the topic" in str(row.error_message)
        if ours and not shown and name not in world.hidden and not unknowable:
            world.require(False, f"{name} is {row.outcome.value}, {row.error}, and the run deleted it")

    def _planned_uid(self, target: Target) -> int:
        if target.topic_id is not None:
            return int(target.topic_id.removeprefix("id-"))
        return DELETES.index(target.topic)

    def check_finished(self) -> None:
        for target in self.plan:
            rows = [row for row in self.audit if (row.action, row.topic) == (target.action, target.topic)]
            ends = [row for row in rows if row.phase is Phase.APPLY or row.outcome is not Outcome.OK]
            self.world.require(len(ends) == 1, f"{target.topic} has {len(ends)} rows that end it")


def batches(targets: Sequence[Target]) -> dict[tuple[Action, int], list[Target]]:
    """Kinds in their order, by batch."""
    kinds = list(Action)
    found: dict[tuple[Action, int], list[Target]] = {}
    for target in sorted(targets, key=lambda each: (kinds.index(Action(each.action)), each.batch, each.topic)):
        found.setdefault((target.action, target.batch), []).append(target)
    return found


INTERESTING = (
    "apply add_partitions ok ok",
    "apply add_partitions ok RECOVERED",
    "apply add_partitions refused CHANGED_SINCE_PLAN",
    "apply add_partitions refused RECREATED",
    "apply alter_configs ok ok",
    "apply alter_configs ok RECOVERED",
    "apply alter_configs refused CHANGED_SINCE_PLAN",
    "apply alter_configs refused RECREATED",
    "apply alter_configs refused NOT_PERMITTED",
    "run alter_configs refused CHANGED_SINCE_PLAN",
    "apply create ok ok",
    "apply create ok RECOVERED",
    "apply create failed TOPIC_ALREADY_EXISTS",
    "apply create refused CHANGED_SINCE_PLAN",
    "run create refused CHANGED_SINCE_PLAN",
    "run create refused PLAN_EXPIRED",
    "apply create refused CLUSTER_ID_MISMATCH",
    "apply delete ok ok",
    "apply delete ok RECOVERED",
    "apply delete failed RECREATED",
    "apply delete refused RECREATED",
    "apply delete refused CHANGED_SINCE_PLAN",
    "OutcomeUnknown",
    "WrongCluster",
    "NotAllowed",
    "Crash",
    "Stopped",
)
"""What the walks have to come to, else they show nothing."""


@pytest.mark.thorough
def test_rows_are_true_and_no_foreign_topic_is_touched() -> None:
    """Sentence 5, C12, C13, C17, C18, C21, D3, D6, D7, M3, N1"""
    reached: Counter[str] = Counter()
    estates = [
        Estate(gives_ids=gives_ids, returns_configs=new, appends=appends, marked_first=first, deletes=deletes)
        for gives_ids, new, appends, first, deletes in product(
            (True, False), (True, True, False), ("row", "batch", "step"), (True, False), (True, True, False)
        )
    ]

    @many
    @example(
        # The first batch is marked, the run isn't applying yet; then another client makes one of its topics.
        estate=Estate(gives_ids=True, returns_configs=True, appends="step", marked_first=True, deletes=False),
        before=[],
        moves=[QUIET] * 4 + [("makes the same", "a")],
        crashes={3: "crash after the commit"},
    )
    @example(
        # Without ids: the broker that is asked before a delete by name doesn't list the topic.
        estate=Estate(gives_ids=False, returns_configs=True, appends="row", marked_first=False, deletes=True),
        before=[],
        moves=[QUIET] * 3 + [("a broker starts", None)],
        crashes={},
    )
    @example(
        # The same, while its configs are read, and when it is described again.
        estate=Estate(gives_ids=False, returns_configs=True, appends="row", marked_first=True, deletes=True),
        before=[],
        moves=[*[QUIET] * 2, ("a broker starts", None), QUIET, ("a broker starts", None), *[QUIET] * 6],
        crashes={},
    )
    @given(
        estate=st.sampled_from(estates),
        before=st.lists(st.sampled_from(MOVES_OF_ALL), max_size=4),
        moves=st.lists(st.sampled_from(MOVES_OF_ALL), min_size=12, max_size=24),
        crashes=st.dictionaries(st.integers(1, 12), st.sampled_from(AT_COMMIT), max_size=2),
    )
    def walk(estate: Estate, before: list[Move], moves: list[Move], crashes: dict[int, str]) -> None:
        world = World(estate, before, moves, crashes)
        run = Run(world, reached)
        most = len(before) + len(moves) + len(crashes) + 3
        while not run.start():
            world.require(run.starts <= most, "the run doesn't come to its end")
        run.check_finished()

    walk()
    missing = [each for each in INTERESTING if not reached[each]]
    assert not missing, f"no walk came to {missing}: {reached}"
