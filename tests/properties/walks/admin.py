"""`ClusterAdmin` for a cluster in memory, for one start of a run or one other command."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol, Self

from tests.properties.walks.cluster import Cluster, Partition
from tests.properties.walks.world import Late, Moment, To, World
from topicledger import kafka
from topicledger.kafka import Cluster as Described
from topicledger.kafka import RequestLost, Response
from topicledger.kafka.reassignments import Partition as Key
from topicledger.kafka.reassignments import Replicas, TopicState
from topicledger.model import SET_ON_TOPIC, Broker, ConfigEntry, Target, TopicConfigs, TopicInfo, TopicResult
from topicledger.model.moves import FOLLOWER_REPLICAS, LEADER_REPLICAS
from topicledger.resources.acls.acl import Acl
from topicledger.resources.acls.requests import ALLOW_EVERYONE

_LISTS = frozenset({LEADER_REPLICAS, FOLLOWER_REPLICAS})
_CODES = {
    "7, done": (kafka.REQUEST_TIMED_OUT, True),
    "7, not done": (kafka.REQUEST_TIMED_OUT, False),
    "-1, done": (kafka.UNKNOWN_SERVER_ERROR, True),
    "-1, not done": (kafka.UNKNOWN_SERVER_ERROR, False),
    "41": (kafka.NOT_CONTROLLER, False),
    "31": (31, False),
    "44": (kafka.POLICY_VIOLATION, False),
}
"""Code, and whether the request was carried out nevertheless."""
ARRIVES_WITHIN = 10.0
"""Seconds after which a late request has arrived: brokers and controllers drop those that are older."""
_UNTOLD = "UNKNOWN_SERVER_ERROR"
_CURSED = TopicResult(error_code=kafka.UNKNOWN_SERVER_ERROR, error_message="the server had an error")


class Watcher(Protocol):
    """Checks of each request: see `checks.Checks`."""

    run_id: str
    may_be_anything: bool
    """Whether something happened that refuses actions in general."""

    def sends(self, cluster: Cluster, targets: Sequence[Target]) -> None:
        """Planned actions are about to be sent."""

    def moves(self, cluster: Cluster, targets: Mapping[Key, Replicas | None]) -> None:
        """Partitions are about to be moved, or moves cancelled (None)."""

    def cancel_answered(self, cluster: Cluster, key: Key, code: int) -> None:
        """A cancel was answered."""

    def cancels(self, cluster: Cluster, key: Key) -> None:
        """A move was cancelled, whether or not the run gets to know it."""

    def changes(self, cluster: Cluster) -> None:
        """Anything of a cluster is about to be changed."""

    def answered(self, cluster: Cluster, target: Target) -> None:
        """A planned action was carried out."""

    def has_outcome(self, cluster: Cluster, topic: str, code: int) -> None:
        """A request about a topic was answered; UNKNOWN_SERVER_ERROR if the answer was lost."""


class Admin:
    """The requests of one start to one cluster; each request is a moment of the world."""

    has_default_counts = returns_configs = deletes_by_id = alters_incrementally = reassigns = elects_leaders = True
    principal = "User:topicledger"

    def __init__(self, world: World, cluster: Cluster, watcher: Watcher) -> None:
        self._world, self._cluster, self._watcher = world, cluster, watcher
        self.name = cluster.name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    # -- reads

    def _read(self, *more: Moment) -> Cluster:
        kind = self._world.moment(Moment.READ, *more)
        if kind == "read lost":
            raise RequestLost(f"cluster {self.name}: lost")
        if kind is not None:
            self._world.die()
        self._cluster.now = self._world.clock
        self._cluster.catch_up()
        return self._cluster

    def describe_cluster(self) -> Described:
        cluster = self._read()
        brokers = [
            Broker(broker_id=each, host="h", port=9092, rack=None, controller=each == 1) for each in cluster.brokers
        ]
        return Described(cluster_id=cluster.cluster_id, brokers=tuple(brokers), gives_topic_ids=True)

    def connect_to_controller(self) -> str:
        return self._read().cluster_id

    def describe_topics(self, topics: Sequence[str]) -> Iterator[TopicInfo]:
        cluster = self._read(Moment.OPEN)
        for name in topics:
            topic = cluster.topics.get(name)
            if name in cluster.untold:
                yield TopicInfo(topic=name, permitted=False, unknown=_UNTOLD)
            elif topic is not None:
                assignments = {number: part.replicas for number, part in topic.partitions.items()}
                yield TopicInfo(topic=name, topic_id=topic.uid, assignments=assignments)

    def topic_configs(
        self, topics: Sequence[str], names: Mapping[str, Collection[str]] | None = None
    ) -> Iterator[TopicConfigs]:
        throttles = names is not None and all(set(each) <= _LISTS for each in names.values())
        cluster = self._read(*([Moment.OPEN] if throttles else []))
        for name in topics:
            topic = cluster.topics.get(name)
            if name in cluster.untold:
                yield TopicConfigs(topic=name, error_code=kafka.UNKNOWN_SERVER_ERROR)
            elif topic is None:
                yield TopicConfigs(topic=name, error_code=kafka.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                asked = topic.configs if names is None else names[name]
                found = (
                    ConfigEntry(key, value, False, SET_ON_TOPIC, False)
                    for key, value in topic.configs.items()
                    if key in asked
                )
                yield TopicConfigs(topic=name, configs=tuple(found))

    def topics_reassigned_now(self) -> frozenset[str]:
        return frozenset(topic for topic, _ in self._read(Moment.OPEN).moving())

    def list_reassignments(self) -> dict[Key, Replicas]:
        return {key: each.target for key, each in self._read(Moment.OPEN).moving().items()}

    def topic_states(self, topics: Sequence[str]) -> dict[str, TopicState]:
        cluster = self._read()
        untold = dict.fromkeys(cluster.untold, TopicState(permitted=False, unknown=_UNTOLD))
        states = cluster.states() | untold
        return {name: states[name] for name in topics if name in states}

    def partition_sizes(self, topics: Mapping[str, Collection[int]]) -> dict[Key, int]:
        self._read(Moment.OPEN)
        return {(topic, number): 10 for topic, numbers in topics.items() for number in numbers}

    def replica_sizes(self, topics: Mapping[str, Collection[int]]) -> dict[tuple[str, int, int], int]:
        self._read(Moment.OPEN)
        return {}

    def broker_configs(self, broker_id: int, names: Collection[str]) -> dict[str, str]:
        configs = self._read(Moment.OPEN).brokers[broker_id]
        return {name: configs[name] for name in names if name in configs}

    def describe_acls(self, principals: Collection[str] | None = None) -> list[Acl]:
        return sorted(self._read(Moment.OPEN).acls)

    def describe_quotas(self) -> Mapping[Any, Any]:
        self._read()
        return {}

    def knows_acls_like(self, _: Acl) -> bool:
        return True

    def authorizer_settings(self) -> Mapping[str, bool | None]:
        return {ALLOW_EVERYONE: self._read(Moment.OPEN).open_to_all}

    def may_alter_acls(self) -> bool:
        self._read()
        return True

    # -- changes

    def _change(
        self,
        to: To,
        words: str,
        names: Sequence[str],
        do: Callable[[str], TopicResult],
        cursed: Collection[str] = (),
        accepted: Callable[[str], bool] = lambda _: False,
    ) -> dict[str, TopicResult]:
        """Send one request; `do` carries it out for a name, but for those that are `cursed`.

        `accepted`: whether the same request was carried out for a name before, so that no policy refuses it.
        """
        world, cluster = self._world, self._cluster
        kind = world.moment(Moment.CHANGE, to=to)
        # One connection keeps the order: what is late comes before this request.
        run_id = self._watcher.run_id
        world.arrive(lambda each: (each.cluster, each.run_id) == (cluster.name, run_id))
        cluster.now = world.clock
        if kind in ("31", "44"):
            self._watcher.may_be_anything = True
        world.tell("->", self.name, words)

        def all_of_them() -> dict[str, TopicResult]:
            found = {name: _CURSED if name in cursed else do(name) for name in names}
            world.check()
            return found

        def late() -> None:
            # Another run may be on by then.
            on, self._watcher.run_id = self._watcher.run_id, run_id
            try:
                all_of_them()
            finally:
                self._watcher.run_id = on

        if kind is not None and kind.startswith(("lost", "crash")):
            if kind.endswith(", done"):
                all_of_them()
            elif kind.endswith(", late"):
                world.in_flight.append(
                    Late(cluster=cluster.name, run_id=run_id, due=world.clock + ARRIVES_WITHIN, do=late)
                )
            if kind.startswith("crash"):
                world.die()
            for name in names:
                self._watcher.has_outcome(cluster, name.partition("/")[0], kafka.UNKNOWN_SERVER_ERROR)
            raise RequestLost(f"cluster {self.name}: lost")
        code, done = _CODES.get(kind or "", (kafka.NONE, True))
        results = all_of_them() if done else {}
        if code != kafka.NONE:
            results = {
                name: do(name)
                if code == kafka.POLICY_VIOLATION and accepted(name)
                else TopicResult(error_code=code, error_message=kind)
                for name in names
            }
        for name, each in results.items():
            self._watcher.has_outcome(cluster, name.partition("/")[0], each.error_code)
        world.tell("  ", {name: each.error_code for name, each in results.items()})
        return results

    def _planned(
        self, targets: Sequence[Target], do: Callable[[Target], TopicResult], *, validate_only: bool = False
    ) -> Response:
        """Planned actions, or throttles as alterations that nobody planned."""
        by_name = {target.resource: target for target in targets}
        throttles = all(target.touched <= _LISTS for target in targets) and targets[0].action == "alter_configs"

        def carried_out(name: str) -> TopicResult:
            result = do(by_name[name])
            if result.error_code == kafka.NONE and not validate_only and not throttles:
                self._watcher.answered(self._cluster, by_name[name])
            return result

        words = f"{'validate' if validate_only else 'throttle' if throttles else 'send'} {targets[0].action}"
        if validate_only:
            self._read()
            names = list(by_name)
            results = {name: _CURSED if name in self._cluster.cursed else do(by_name[name]) for name in names}
            return Response(results=results, throttle_time_ms=0)
        if throttles:
            self._watcher.changes(self._cluster)
        else:
            self._watcher.sends(self._cluster, targets)
        to = To.THROTTLES if throttles else To.OTHERS

        def accepted(name: str) -> bool:
            return not throttles and self._watcher.was_carried_out(self._cluster, by_name[name])

        names = list(by_name)
        results = self._change(to, f"{words} {' '.join(by_name)}", names, carried_out, self._cluster.cursed, accepted)
        return Response(results=results, throttle_time_ms=0)

    def create_topics(self, targets: Sequence[Target], *, validate_only: bool) -> Response:
        def do(target: Target) -> TopicResult:
            if target.topic in self._cluster.topics:
                return TopicResult(error_code=kafka.TOPIC_ALREADY_EXISTS)
            count, uid = target.num_partitions or 1, None
            if not validate_only:
                uid = self._cluster.make(target.topic, dict.fromkeys(range(count), (1,)), by=self._watcher.run_id).uid
            return TopicResult(topic_id=uid, num_partitions=count, replication_factor=1, configs=())

        return self._planned(targets, do, validate_only=validate_only)

    def delete_topics(self, targets: Sequence[Target]) -> Response:
        def do(target: Target) -> TopicResult:
            topic = self._cluster.topics.get(target.topic)
            if topic is None or topic.uid != target.topic_id:
                return TopicResult(error_code=kafka.UNKNOWN_TOPIC_ID)
            del self._cluster.topics[target.topic]
            return TopicResult()

        return self._planned(targets, do)

    def add_partitions(self, targets: Sequence[Target], *, validate_only: bool) -> Response:
        def do(target: Target) -> TopicResult:
            topic = self._cluster.topics.get(target.topic)
            if topic is None:
                return TopicResult(error_code=kafka.UNKNOWN_TOPIC_OR_PARTITION)
            if target.grows_to <= len(topic.partitions):
                return TopicResult(error_code=kafka.INVALID_PARTITIONS)
            if not validate_only:
                topic.partitions |= {n: Partition((1,)) for n in range(len(topic.partitions), target.grows_to)}
            return TopicResult()

        return self._planned(targets, do, validate_only=validate_only)

    def alter_configs(self, targets: Sequence[Target], *, validate_only: bool) -> Response:
        def do(target: Target) -> TopicResult:
            topic = self._cluster.topics.get(target.topic)
            if topic is None:
                return TopicResult(error_code=kafka.UNKNOWN_TOPIC_OR_PARTITION)
            if not validate_only:
                for name in target.touched:
                    topic.configs.pop(name, None)
                topic.configs |= target.after
            return TopicResult()

        return self._planned(targets, do, validate_only=validate_only)

    def alter_broker_configs(self, broker_id: int, configs: Mapping[str, str | None]) -> TopicResult:
        def do(_: str) -> TopicResult:
            mine = self._cluster.brokers[broker_id]
            for name, value in configs.items():
                mine.pop(name, None)
                if value is not None:
                    mine[name] = value
            return TopicResult()

        self._watcher.changes(self._cluster)
        words = "sets" if any(configs.values()) else "resets"
        return self._change(To.THROTTLES, f"{words} rates of broker {broker_id}", [str(broker_id)], do)[str(broker_id)]

    def reassign(self, targets: Mapping[Key, Replicas | None]) -> tuple[dict[Key, TopicResult], int]:
        cluster = self._cluster
        self._watcher.moves(cluster, targets)
        by_text = {f"{topic}/{number}": (topic, number) for topic, number in targets}

        def do(text: str) -> TopicResult:
            key = by_text[text]
            target = targets[key]
            if key[0] in cluster.cursed:
                return _CURSED
            if target is not None:
                return cluster.begin(key, target, self._watcher.run_id)
            result = cluster.cancel(key)
            if result.error_code == kafka.NONE:
                self._watcher.cancels(cluster, key)
            return result

        verb, to = ("cancel", To.CANCELS) if None in targets.values() else ("move", To.MOVES)
        found = self._change(to, f"{verb} {' '.join(by_text)}", list(by_text), do)
        for text, each in found.items():
            if targets[by_text[text]] is None:
                self._watcher.cancel_answered(cluster, by_text[text], each.error_code)
        return {by_text[text]: each for text, each in found.items()}, 0

    def create_acls(self, targets: Sequence[Target]) -> Response:
        def do(target: Target) -> TopicResult:
            self._cluster.acls.add(Acl.of(target.after))
            return TopicResult()

        return self._planned(targets, do)

    def delete_acls(self, targets: Sequence[Target]) -> Response:
        def do(target: Target) -> TopicResult:
            acl = Acl.of(target.before)
            there = acl in self._cluster.acls
            self._cluster.acls.discard(acl)
            return TopicResult(before=acl._asdict() if there else {})

        return self._planned(targets, do)
