"""A Kafka cluster in memory, with what was measured of real ones: R1 to R7, N1 to N7, A2 of docs and tests."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from topicledger import kafka
from topicledger.kafka.reassignments import Partition as Key
from topicledger.kafka.reassignments import PartitionState, Replicas, TopicState
from topicledger.model import TopicResult
from topicledger.model.moves import BROKER, FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS, TOPIC
from topicledger.resources.acls.acl import Acl

COPYING = 3.0
"""Seconds that replicas take to be copied."""
SHOWN_LATER = 0.4
"""Seconds after which metadata shows what ended (R4)."""
ANOTHER = "another client"
NOTHING_IN_PROGRESS = 85


@dataclass
class Reassignment:
    """A partition's move."""

    target: Replicas
    adding: frozenset[int]
    done_at: float
    by: str
    throttled: bool = False
    """Whether it was throttled when it began."""


@dataclass
class Partition:
    """A partition's replicas, in Kafka's order."""

    replicas: Replicas
    under_way: Reassignment | None = None
    shown: tuple[Replicas, float] | None = None
    """Replicas that metadata shows instead, and until when."""


@dataclass
class Topic:
    """A topic."""

    uid: str
    partitions: dict[int, Partition]
    configs: dict[str, str] = field(default_factory=dict)
    by: str = ANOTHER


class Cluster:
    """A controller's state; brokers show it at once, but for replicas that arrived (R4)."""

    def __init__(self, name: str, cluster_id: str) -> None:
        self.name, self.cluster_id = name, cluster_id
        self.topics: dict[str, Topic] = {}
        self.brokers: dict[int, dict[str, str]] = {1: {}, 2: {}, 3: {}}
        self.acls: set[Acl] = set()
        self.now = 0.0
        self.slow = False
        self.cursed: set[str] = set()
        self.untold: set[str] = set()
        """Topics that brokers don't describe: they answer -1 instead."""
        self.open_to_all = False
        """Whether everybody may use a resource that no ACL is about (I2)."""
        self._uid = 0

    def new_uid(self) -> str:
        self._uid += 1
        return f"{self.name}-{self._uid}"

    def make(self, name: str, replicas: dict[int, Replicas], *, by: str = ANOTHER) -> Topic:
        parts = {number: Partition(each) for number, each in replicas.items()}
        self.topics[name] = Topic(self.new_uid(), parts, by=by)
        return self.topics[name]

    def partition(self, key: Key) -> Partition | None:
        topic = self.topics.get(key[0])
        return None if topic is None else topic.partitions.get(key[1])

    # -- moves

    def begin(self, key: Key, target: Replicas, by: str) -> TopicResult:
        """AlterPartitionReassignments: another target wins silently (R2)."""
        part = self.partition(key)
        if part is None:
            return TopicResult(error_code=kafka.UNKNOWN_TOPIC_OR_PARTITION)
        if part.under_way is not None and part.under_way.target == target:
            return TopicResult()
        if part.under_way is None and part.replicas == target:
            return TopicResult()
        current = part.replicas
        adding = frozenset(target) - frozenset(current)
        part.replicas = (*target, *(each for each in current if each not in target))
        done_at = self.now + (COPYING * (20 if self.slow else 1) if adding else 0.0)
        part.under_way = Reassignment(target, adding, done_at, by, throttled=self.is_throttled(key, adding))
        return TopicResult()

    def cancel(self, key: Key) -> TopicResult:
        """Takes away what it was adding, and keeps the rest in its order (R3)."""
        part = self.partition(key)
        if part is None:
            return TopicResult(error_code=kafka.UNKNOWN_TOPIC_OR_PARTITION)
        if part.under_way is None:
            return TopicResult(error_code=NOTHING_IN_PROGRESS)
        part.replicas = tuple(each for each in part.replicas if each not in part.under_way.adding)
        part.under_way = None
        return TopicResult()

    def catch_up(self, *, all_of_them: bool = False) -> None:
        """Replicas that had the time arrive."""
        for topic in self.topics.values():
            for part in topic.partitions.values():
                move = part.under_way
                if move is not None and (all_of_them or move.done_at <= self.now):
                    part.shown = (part.replicas, self.now + SHOWN_LATER)
                    part.replicas, part.under_way = move.target, None

    def moving(self, by: str | None = None) -> dict[Key, Reassignment]:
        """Return the moves under way, of one client or of all."""
        return {
            (name, number): part.under_way
            for name, topic in self.topics.items()
            for number, part in topic.partitions.items()
            if part.under_way is not None and by in (None, part.under_way.by)
        }

    def moved_by_us(self) -> bool:
        """Whether anything is under way that no other client began."""
        return any(
            part.under_way is not None and part.under_way.by != ANOTHER
            for topic in self.topics.values()
            for part in topic.partitions.values()
        )

    def states(self) -> dict[str, TopicState]:
        """Return the metadata of all topics."""
        return {name: self._state(topic) for name, topic in self.topics.items()}

    def _state(self, topic: Topic) -> TopicState:
        shown: dict[int, PartitionState] = {}
        for number, part in topic.partitions.items():
            replicas, isr = part.replicas, set(part.replicas)
            if part.under_way is not None:
                isr -= part.under_way.adding
            elif part.shown is not None and self.now < part.shown[1]:
                replicas = part.shown[0]
            shown[number] = PartitionState(replicas, frozenset(isr), next(iter(sorted(isr)), -1))
        return TopicState(topic_id=topic.uid, partitions=shown)

    # -- throttles

    def is_throttled(self, key: Key, adding: frozenset[int]) -> bool:
        """Whether new replicas of a partition are throttled, and those that they may be copied from."""
        topic = self.topics[key[0]]
        live = set(topic.partitions[key[1]].replicas) - adding
        sides = ((LEADER_RATE, LEADER_REPLICAS, live), (FOLLOWER_RATE, FOLLOWER_REPLICAS, adding))
        return bool(adding) and all(
            rate in self.brokers[each] and f"{key[1]}:{each}" in topic.configs.get(replicas, "").split(",")
            for rate, replicas, brokers in sides
            for each in brokers
        )

    def throttles(self) -> dict[tuple[str, str, str], str]:
        """Return the throttles that are set."""
        found = {
            (BROKER, str(number), name): value
            for number, configs in self.brokers.items()
            for name, value in configs.items()
            if name in (LEADER_RATE, FOLLOWER_RATE)
        }
        for name, topic in self.topics.items():
            found |= {(TOPIC, name, key): value for key, value in topic.configs.items() if "throttled" in key}
        return found

    # -- ACLs

    def is_covered(self, acl: Acl, by: Collection[Acl]) -> bool:
        """Whether any of these is about the same resource; ACLs of a walk name resources in full."""
        about = (acl.resource_type, acl.resource_name)
        return any((each.resource_type, each.resource_name) == about for each in by)

    # -- other clients

    def somebody(self, kind: str, name: str) -> bool:
        """Another client does something to a topic; whether there was anything to do."""
        topic = self.topics.get(name)
        if kind == "makes" and topic is None:
            self.make(name, {0: (1,)})
        elif topic is None:
            return False
        elif kind in ("moves", "moves the first", "moves back"):
            key = (name, min(topic.partitions) if kind == "moves the first" else max(topic.partitions))
            target = (1, 2) if kind == "moves back" else (3, 1)
            part = topic.partitions[key[1]]
            if part.replicas == target or (part.under_way is not None and part.under_way.target == target):
                return False
            self.begin(key, target, ANOTHER)
        elif kind == "cancels":
            return any(self.cancel((name, number)).error_code == kafka.NONE for number in topic.partitions)
        elif kind == "deletes":
            del self.topics[name]
        elif kind == "recreates":
            parts = {number: Partition(part.replicas[:2]) for number, part in topic.partitions.items()}
            self.topics[name] = replace(topic, uid=self.new_uid(), partitions=parts, configs={}, by=ANOTHER)
        elif kind == "alters":
            topic.configs["x"] = "9"
        elif kind == "grows":
            topic.partitions[len(topic.partitions)] = Partition((1,))
        else:
            return False
        return True
