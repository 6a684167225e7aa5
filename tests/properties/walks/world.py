"""The surroundings of runs: a clock, the events of a history, and its story."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.properties.walks.cluster import Cluster
    from tests.properties.walks.ledger import MemoryLeases


class Moment(StrEnum):
    """When something can happen."""

    CHANGE = "change"
    """A request that changes a cluster is sent."""
    READ = "read"
    """A cluster is asked something."""
    COMMIT = "commit"
    """A table is written."""
    OPEN = "open"
    """Before a read that a check begins with, before a commit, or while the run waits: what other clients do between a
    check and its request can't be seen by anybody."""


class To(StrEnum):
    """The kind of request that a fault meets."""

    ANY = "any request"
    MOVES = "moves"
    CANCELS = "cancels"
    THROTTLES = "throttles"
    OTHERS = "other actions"


FAULTS = (
    "lost, done", "lost, not done", "lost, late", "7, done", "7, not done", "-1, done", "-1, not done", "41", "31",
    "44", "crash, done", "crash, not done", "crash, late",
)  # fmt: skip
"""The fate of a request: its answer is lost, it has an error code, or the driver dies meanwhile; and whether it was
carried out."""
AT_COMMIT = ("crash before", "crash after")
AT_READ = ("read lost", "crash")
TO_ALL = (
    "stop",
    "lease lost",
    "a week passes",
    "replicas arrive",
    "replicas are slow",
    "contended",
    "late ones arrive",
)
BY_OTHERS = ("moves", "moves the first", "moves back", "cancels", "deletes", "recreates", "alters", "grows", "makes")
"""Another client's changes of a topic."""
BY_OWNERS = ("declares otherwise", "edits an acl", "removes an acl", "corrects an acl")
"""Changes by the owners of manifests."""
TAKES, RELEASES = "another run takes the lease of", "another run releases"
ELSEWHERE = "a run elsewhere"
ANOTHER_RUN = "another run is started:"
CURSE = "always answers -1"
"""Each request for the topic answers -1 and does nothing, for ever (N1)."""
UNTOLD, TOLD = "isn't described", "is described again"
"""Brokers answer -1 instead of describing the topic, until they describe it again; requests that change it are done."""
GRANTS, REVOKES = "another client adds its ACL on", "another client removes its ACL on"
"""Such ACLs are `estate.foreign`."""


@dataclass(frozen=True)
class Event:
    """Something that happens at the n-th moment of its kind; see `World.at_once`."""

    kind: str
    what: str = ""
    """A topic, or the number of a declared ACL."""
    after: int = 0
    moving: bool = False
    """Whether moments count only while a run of ours moves something."""
    to: To = To.ANY
    """Requests that count, and that a fault meets."""
    times: int = 1
    """How many moments in a row have the fault."""

    @property
    def moment(self) -> Moment:
        if self.kind in FAULTS:
            return Moment.CHANGE
        if self.kind in AT_COMMIT:
            return Moment.COMMIT
        return Moment.READ if self.kind in AT_READ else Moment.OPEN

    def __str__(self) -> str:
        when = f"{self.after} moments later" if self.after else ""
        when += " while replicas move" if self.moving else ""
        when += f" {self.times} times" if self.times > 1 else ""
        when += f" to {self.to}" if self.to is not To.ANY else ""
        return f"{self.kind} {self.what}".strip() + (f" ({when.strip()})" if when else "")


@dataclass(eq=False)
class Pending:
    """An event that is still to come."""

    event: Event
    passed: int = 0
    """Moments of its kind that passed."""


@dataclass(frozen=True, kw_only=True)
class Late:
    """A request whose client has given up, and that arrives later."""

    cluster: str
    run_id: str
    due: float
    """When it arrives at the latest."""
    do: Callable[[], object]


class Crash(BaseException):
    """The driver died: nothing that it does from here on has any effect."""


class Broken(AssertionError):
    """Something that must hold doesn't."""


@dataclass
class World:
    """Clusters, the clock, and the events that are still to come."""

    clusters: dict[str, Cluster] = field(default_factory=dict)
    clock: float = 1_000.0
    story: list[str] = field(default_factory=list)
    reached: Counter[str] = field(default_factory=Counter)
    events: list[Pending] = field(default_factory=list)
    at_once: bool = False
    """Whether each event waits for its own moments; else for the event before it, too."""
    moves: bool = False
    """Whether the run that is on plans moves."""
    dead: bool = False
    """Whether the driver died."""
    stop: Callable[[], object] = lambda: None
    contended: bool = False
    holders: dict[str, MemoryLeases | str] = field(default_factory=dict)
    """By cluster, the leases that are held on it; a text: those of a run that isn't ours."""
    killed: dict[str, tuple[str | None, float]] = field(default_factory=dict)
    """By cluster, the run whose driver died while it held the lease, and when."""
    held_until: dict[tuple[str, str], datetime] = field(default_factory=dict)
    """By cluster and run, when a lease ended last."""
    in_flight: list[Late] = field(default_factory=list)
    elsewhere: Callable[[Event], None] = lambda _: None
    """Carries out events of other people."""
    check: Callable[[], None] = lambda: None
    """Called after each step: raises Broken."""

    def tell(self, *words: object) -> None:
        self.story.append(" ".join(map(str, words)))

    def require(self, condition: object, what: str) -> None:
        if not condition:
            raise Broken("\n".join([what, *self.story]))

    def moment(self, *kinds: Moment, to: To = To.ANY) -> str | None:
        """Let the events that are due happen; return the kind of one that is the step's own fate."""
        if self.dead:
            raise Crash
        self.arrive(lambda each: each.due <= self.clock)
        counted: list[Pending] = []
        while (each := self._next(kinds, to, counted)) is not None:
            counted.append(each)
            event = each.event
            if each.passed < event.after:
                each.passed += 1
                continue
            place = self.events.index(each)
            del self.events[place]
            self.tell("*", event)
            if event.moment is not Moment.OPEN:
                if event.times > 1:
                    self.events.insert(place, Pending(replace(event, after=0, times=event.times - 1)))
                return event.kind
            self.happens(event)
        return None

    def _next(self, kinds: Collection[Moment], to: To, counted: Sequence[Pending]) -> Pending | None:
        """Return the next event for which a moment counts that isn't `counted` yet."""
        for each in self.events if self.at_once else self.events[:1]:
            event = each.event
            met = event.moment is not Moment.CHANGE or event.to in (To.ANY, to)
            waits = event.moving and self.moves and not self.is_moving()
            if event.moment in kinds and met and not waits and each not in counted:
                return each
        return None

    def is_moving(self) -> bool:
        """Whether a run of ours has anything under way."""
        return any(cluster.moved_by_us() for cluster in self.clusters.values())

    def happens(self, event: Event) -> None:
        """An event that is nobody's request."""
        if event.kind == "stop":
            self.stop()
        elif event.kind == "lease lost":
            self.expire()
        elif event.kind == TAKES:
            self.holders.setdefault(event.what, ELSEWHERE)
        elif event.kind == RELEASES:
            self.others_release([event.what])
        elif event.kind == "contended":
            self.contended = True
        elif event.kind == "late ones arrive":
            self.arrive()
        else:
            self.elsewhere(event)
        self.check()

    # -- leases

    def holder(self, cluster: str) -> str | None:
        """Return the run that holds a cluster's lease."""
        found = self.holders.get(cluster)
        return found if found is None or isinstance(found, str) else found.run_id

    def expire(self) -> None:
        """Leases of the driver that is on expire."""
        for name, each in list(self.holders.items()):
            if not isinstance(each, str):
                del self.holders[name]
                self.was_held(name, each.run_id)
                # A lease outlasts the requests that were sent under it, unless it is released.
                self.arrive(lambda late, name=name: late.cluster == name)  # type: ignore[misc]

    def was_killed(self, run_id: str) -> None:
        """The driver of a run died: its leases are free at once for its next start, its requests are on their way."""
        for name, each in list(self.holders.items()):
            if not isinstance(each, str) and each.run_id == run_id:
                del self.holders[name]
                self.was_held(name, run_id)
                self.killed[name] = run_id, self.clock

    def others_release(self, clusters: Iterable[str]) -> None:
        """Runs that aren't ours release leases."""
        for name in clusters:
            if isinstance(self.holders.get(name), str):
                del self.holders[name]
                self.was_held(name, ELSEWHERE)

    def was_held(self, cluster: str, run_id: str) -> None:
        self.held_until[cluster, run_id] = datetime.now(UTC)

    def held_since(self, clusters: Collection[str], run_id: str, moment: datetime) -> bool:
        """Whether another run held a lease since some moment."""
        return any(
            name in clusters and of != run_id and until >= moment for (name, of), until in self.held_until.items()
        )

    def arrive(self, which: Callable[[Late], bool] = lambda _: True) -> None:
        """Late requests arrive."""
        late, self.in_flight = self.in_flight, []
        self.in_flight = [each for each in late if not which(each)]
        for each in filter(which, late):
            self.tell("a late request arrives on", each.cluster)
            each.do()

    def heal(self) -> None:
        """No more events."""
        self.events.clear()
        self.others_release(list(self.holders))
        self.arrive()

    def sleep(self, seconds: float | None) -> None:
        """The run waits."""
        self.moment(Moment.OPEN)
        self.clock += 1.0 if seconds is None else seconds
        for cluster in self.clusters.values():
            cluster.catch_up()
        self.check()

    def die(self) -> None:
        self.tell("the driver dies")
        self.dead = True
        raise Crash
