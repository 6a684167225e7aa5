"""A cluster in memory whose replicas move when it is told to, and other hands at work between any two requests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from topicledger.apply.executor import Executor
from topicledger.config.settings import ReplicaSettings
from topicledger.kafka import Cluster, RequestLost, Response
from topicledger.kafka.moving import MoveLimits
from topicledger.kafka.reassignments import Partition, PartitionState, Replicas, TopicState
from topicledger.kafka.sending import ClusterLimits, RetryPolicy
from topicledger.model import SET_ON_TOPIC, Broker, ConfigEntry, ReplicaAction, Target, TopicConfigs, TopicResult
from topicledger.model.moves import BROKER, TOPIC, Throttle, assignments_text

LOST = RequestLost("cluster main at h:1 gave no answer")
ATTEMPTS = 3


class MovingCluster:
    """Stands in for `ClusterAdmin`; a move is over when `finish` says so."""

    reassigns = True
    brokers: tuple[int, ...] = (1, 2, 3)
    """Those that are up."""

    def __init__(self, **topics: Mapping[int, Replicas]) -> None:
        self.replicas: dict[Partition, Replicas] = {
            (topic, part): brokers for topic, parts in topics.items() for part, brokers in parts.items()
        }
        self.ids = {topic: f"id of {topic}" for topic in topics}
        self.targets: dict[Partition, Replicas] = {}
        self.configs: dict[tuple[str, str, str], str] = {}
        self.may_list = True
        self.is_down = False
        self.requests: list[dict[Partition, Replicas | None]] = []
        self.before_request: Callable[[int], Exception | int | None] = lambda number: None
        """Called with the number of an AlterPartitionReassignments request, from 1. If it raises, the request is lost;
        if it returns an exception, the request is carried out and its answer is lost; a returned code refuses it."""
        self.silent: frozenset[str] = frozenset()
        """Topics that are answered -1, each time, and not moved."""
        self.sizes: dict[tuple[str, int, int], int] = {}
        """Bytes by topic, partition and broker."""
        self.before_alter: Callable[[], None] = lambda: None
        """Called before a config is altered."""
        self.in_sync: dict[Partition, frozenset[int]] = {}
        """Partition -> its replicas in sync, if these differ from `replicas`."""

    def finish(self, *partitions: Partition) -> None:
        """The controller is done with moves; with all that have a leader where none are named."""
        for key in partitions or tuple(filter(self._is_led, self.targets)):
            self.replicas[key] = self.targets.pop(key)

    def _is_led(self, key: Partition) -> bool:
        return self._leader(key) >= 0

    def _leader(self, key: Partition) -> int:
        in_sync = self.in_sync.get(key, self.replicas[key])
        return next((each for each in self.replicas[key] if each in in_sync and each in self.brokers), -1)

    def throttles(self) -> set[tuple[str, str, str]]:
        """Return the configs that are set."""
        return set(self.configs)

    def connect_to_controller(self) -> str:
        return "kafka-main"

    def describe_cluster(self) -> Cluster:
        brokers = tuple(
            Broker(broker_id=each, host="h", port=each, rack=None, controller=False) for each in self.brokers
        )
        return Cluster(cluster_id="kafka-main", brokers=brokers, gives_topic_ids=True)

    def list_reassignments(self) -> dict[Partition, Replicas] | None:
        if self.is_down:
            raise LOST
        return dict(self.targets) if self.may_list else None

    def topic_states(self, topics: Sequence[str]) -> dict[str, TopicState]:
        def state(key: Partition) -> PartitionState:
            live, target = self.replicas[key], self.targets.get(key)
            shown = live if target is None else (*target, *(each for each in live if each not in target))
            return PartitionState(shown, self.in_sync.get(key, frozenset(live)), self._leader(key))

        return {
            topic: TopicState(
                topic_id=self.ids[topic], partitions={key[1]: state(key) for key in self.replicas if key[0] == topic}
            )
            for topic in topics
            if topic in self.ids
        }

    def partition_sizes(self, topics: Mapping[str, Collection[int]]) -> dict[Partition, int]:
        return {}

    def replica_sizes(self, topics: Mapping[str, Collection[int]]) -> dict[tuple[str, int, int], int]:
        return self.sizes

    def reassign(self, asked: Mapping[Partition, Replicas | None]) -> tuple[dict[Partition, TopicResult], int]:
        self.requests.append(dict(asked))
        fate = self.before_request(len(self.requests))
        if isinstance(fate, int):
            return dict.fromkeys(asked, TopicResult(error_code=fate, error_message="said the broker")), 0
        for key, brokers in asked.items():
            if key[0] in self.silent:
                continue
            if brokers is None:
                self.targets.pop(key, None)
            elif brokers != self.replicas[key]:
                self.targets[key] = brokers
        if fate is not None:
            raise fate
        return {key: TopicResult(error_code=-1 if key[0] in self.silent else 0) for key in asked}, 0

    def broker_configs(self, broker: int, names: Collection[str]) -> dict[str, str]:
        of_broker = {name: self.configs.get((BROKER, str(broker), name)) for name in names}
        return {name: value for name, value in of_broker.items() if value is not None}

    def alter_broker_configs(self, broker: int, configs: Mapping[str, str | None]) -> TopicResult:
        self.before_alter()
        self._set(BROKER, str(broker), configs)
        return TopicResult()

    def topic_configs(self, topics: Sequence[str], names: Mapping[str, Collection[str]]) -> list[TopicConfigs]:
        return [
            TopicConfigs(topic=topic, configs=self._entries(topic, names[topic]))
            for topic in topics
            if topic in self.ids
        ]

    def _entries(self, topic: str, names: Collection[str]) -> tuple[ConfigEntry, ...]:
        return tuple(
            ConfigEntry(name=name, value=value, config_source=SET_ON_TOPIC, read_only=False, is_sensitive=False)
            for (kind, resource, name), value in self.configs.items()
            if (kind, resource) == (TOPIC, topic) and name in names
        )

    def alter_configs(self, targets: Sequence[Target], *, validate_only: bool) -> Response:
        self.before_alter()
        for target in targets:
            self._set(TOPIC, target.topic, {name: target.after.get(name) for name in target.touched})
        return Response(results={target.topic: TopicResult() for target in targets}, throttle_time_ms=0)

    def _set(self, kind: str, resource: str, configs: Mapping[str, str | None]) -> None:
        for name, value in configs.items():
            if value is None:
                self.configs.pop((kind, resource, name), None)
            else:
                self.configs[kind, resource, name] = value


class Written:
    """Stands in for the table `throttles`."""

    def __init__(self) -> None:
        self.rows: list[Throttle] = []
        self._count = 0

    def intend(self, throttles: Sequence[Throttle]) -> None:
        self._count += 1
        self.rows += [replace(each, run_id="run", set_at=self._count) for each in throttles]

    def left(self) -> Sequence[Throttle]:
        return list(self.rows)

    def removed(self, throttles: Sequence[Throttle]) -> None:
        self.rows = [each for each in self.rows if each not in throttles]


def executor_of(cluster: MovingCluster, written: Written, rate: int = 1_000, **fields: Any) -> Executor:
    """Return the executor of a start of a run; waiting takes no time. `meanwhile`: called at each wait."""
    now, meanwhile = [0.0], fields.pop("meanwhile", lambda: None)

    def sleep(seconds: float) -> None:
        now[0] += seconds
        meanwhile()

    limits = MoveLimits(
        settings=ReplicaSettings(throttle=rate), throttles=written, withdrawn=fields.pop("withdrawn", {})
    )
    return Executor(
        cluster="main",
        cluster_id="kafka-main",
        admin=cluster,  # type: ignore[arg-type]
        limits=ClusterLimits(max_batch_records=100, moving=limits),
        retry_policy=RetryPolicy(attempts=ATTEMPTS),
        sleep=sleep,
        clock=lambda: now[0],
        **fields,
    )


def move(topic: str, before: Mapping[int, Replicas], after: Mapping[int, Replicas], **fields: Any) -> Target:
    """A planned reassignment."""
    return Target(
        resource=topic,
        action=ReplicaAction.REASSIGN,
        topic_id=f"id of {topic}",
        before={"assignments": assignments_text(before)},
        after={"assignments": assignments_text(after), "bytes": "1000"},
        **fields,
    )
