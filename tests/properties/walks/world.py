"""The surroundings of runs: a clock, the events of a history, and its story."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.properties.walks.cluster import Cluster


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


FAULTS = (
    "lost, done", "lost, not done", "lost, late", "7, done", "7, not done", "-1, done", "-1, not done", "41", "31",
    "crash, done", "crash, not done",
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
CURSE = "always answers -1"
"""Each planned request for the topic answers -1 and does nothing, for ever (N1); its throttle is set and reset."""


@dataclass(frozen=True)
class Event:
    """Something that happens at the n-th moment of its kind after the event before it."""

    kind: str
    what: str = ""
    """A topic, or the number of a declared ACL."""
    after: int = 0
    moving: bool = False
    """Whether moments count only while a run of ours moves something."""

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
        return f"{self.kind} {self.what}".strip() + (f" ({when.strip()})" if when else "")


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
    events: deque[Event] = field(default_factory=deque)
    passed: int = 0
    """Moments of the next event's kind that passed."""
    moves: bool = False
    """Whether the run that is on plans moves."""
    dead: bool = False
    """Whether the driver died."""
    stop: Callable[[], object] = lambda: None
    lease_lost: bool = False
    contended: bool = False
    in_flight: list[Callable[[], object]] = field(default_factory=list)
    """Requests that arrive late."""
    elsewhere: Callable[[Event], None] = lambda _: None
    """Carries out events of other people."""
    check: Callable[[], None] = lambda: None
    """Called after each step: raises Broken."""

    def tell(self, *words: object) -> None:
        self.story.append(" ".join(map(str, words)))

    def require(self, condition: object, what: str) -> None:
        if not condition:
            raise Broken("\n".join([what, *self.story]))

    def moment(self, *kinds: Moment) -> str | None:
        """Let the events that are due happen; return the kind of one that is the step's own fate."""
        if self.dead:
            raise Crash
        while self.events and self.events[0].moment in kinds:
            event = self.events[0]
            if event.moving and self.moves and not self.is_moving():
                return None
            if self.passed < event.after:
                self.passed += 1
                return None
            self.events.popleft()
            self.passed = 0
            self.tell("*", event)
            if event.moment is not Moment.OPEN:
                return event.kind
            self.happens(event)
        return None

    def is_moving(self) -> bool:
        """Whether a run of ours has anything under way."""
        return any(cluster.moved_by_us() for cluster in self.clusters.values())

    def happens(self, event: Event) -> None:
        """An event that is nobody's request."""
        if event.kind == "stop":
            self.stop()
        elif event.kind == "lease lost":
            self.lease_lost = True
        elif event.kind == "contended":
            self.contended = True
        elif event.kind == "late ones arrive":
            self.arrive()
        else:
            self.elsewhere(event)
        self.check()

    def arrive(self) -> None:
        late, self.in_flight = self.in_flight, []
        for each in late:
            each()

    def heal(self) -> None:
        """No more events."""
        self.events.clear()
        self.passed = 0
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
