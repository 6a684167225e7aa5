"""Throttles of moves: intent in a table before they are set, and taken away afterwards, by whichever start comes next.

What another hand set stays: a broker's rate that is set already is kept, replicas of others stay in a topic's list, and
what was changed since it was set isn't touched.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from topicledger import kafka
from topicledger.actions.context import ClusterContext
from topicledger.errors import ClusterError
from topicledger.kafka import Response, error_name
from topicledger.model import AUTHORIZATION_FAILED, SET_ON_TOPIC, Action, Target, TopicResult
from topicledger.model.moves import (
    BROKER,
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    TOPIC,
    Move,
    Throttle,
    ThrottleRecords,
)

log = logging.getLogger(__name__)

_RATES = (LEADER_RATE, FOLLOWER_RATE)
_LISTS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
_EVERY = "*"


@dataclass(frozen=True)
class Throttling:
    """Sets and takes away the throttles of one cluster."""

    context: ClusterContext
    records: ThrottleRecords

    def begin(self, moves: Sequence[Move], rate: int) -> None:
        """Throttle moves to `rate` bytes a second on each broker; what earlier starts left is taken away first."""
        self.end()
        if rate <= 0 or not any(move.adding for move in moves):
            return
        throttles = [*self._rates(moves, rate), *self._lists(moves)]
        if throttles:
            self.records.intend(throttles)
            self._set(throttles, {_key(each): each.value for each in throttles})
            log.info("cluster %s: %d throttles set at %d bytes/s", self.context.cluster, len(throttles), rate)

    def end(self) -> None:
        """Take away what may be set. What is set on a broker that is down stays written down, for a later start.

        Raises ClusterError where the cluster refuses it, or gives no answer: then all stays written down.
        """
        written = self.records.left()
        if not written:
            return
        name, up = self.context.cluster, self._live_brokers()
        left = [each for each in written if each.resource_type != BROKER or int(each.resource) in up]
        live = self._live(left)
        # A third value is another hand's. What isn't shown as set may be on its way, so it is taken away, too.
        ours = [each for each in left if _key(each) in live and live[_key(each)] in (each.value, each.before)]
        self._set(ours, {_key(each): each.before for each in ours})
        self.records.removed(left)
        log.info("cluster %s: %d throttles taken away", name, len(ours))
        for each in (each for each in left if each not in ours):
            log.info(
                "cluster %s: %s of %s %s isn't ours any more", name, each.config, each.resource_type, each.resource
            )
        for each in (each for each in written if each not in left):
            log.warning("cluster %s: %s stays set on broker %s, which is down", name, each.config, each.resource)

    def _live_brokers(self) -> frozenset[int]:
        return frozenset(broker.broker_id for broker in self.context.brokers())

    def _rates(self, moves: Sequence[Move], rate: int) -> Iterator[Throttle]:
        brokers = {broker for move in moves if move.adding for broker in (*move.before, *move.after)}
        for broker in sorted(brokers & self._live_brokers()):
            found = self._ask_broker(broker)
            for config in _RATES:
                # A rate that is set already is another hand's.
                if config not in found:
                    yield Throttle(
                        resource_type=BROKER, resource=str(broker), config=config, before=None, value=str(rate)
                    )

    def _lists(self, moves: Sequence[Move]) -> Iterator[Throttle]:
        wanted: dict[str, dict[str, set[str]]] = {}
        for move in moves:
            if move.adding:
                lists = wanted.setdefault(move.topic, {LEADER_REPLICAS: set(), FOLLOWER_REPLICAS: set()})
                lists[LEADER_REPLICAS] |= {f"{move.partition}:{broker}" for broker in move.before}
                lists[FOLLOWER_REPLICAS] |= {f"{move.partition}:{broker}" for broker in move.adding}
        found = self._topic_configs(wanted)
        for topic, lists in wanted.items():
            for config, replicas in lists.items():
                before = found.get(topic, {}).get(config)
                if topic in found and before != _EVERY:
                    others = set(filter(None, (before or "").split(",")))
                    value = ",".join(sorted(others | replicas))
                    if value != before:
                        yield Throttle(resource_type=TOPIC, resource=topic, config=config, before=before, value=value)

    def _live(self, throttles: Sequence[Throttle]) -> Mapping[tuple[str, str, str], str | None]:
        """What is set now, by config; of a topic that is gone there is nothing."""
        found: dict[tuple[str, str, str], str | None] = {}
        for broker in {each.resource for each in throttles if each.resource_type == BROKER}:
            configs = self._ask_broker(int(broker))
            found |= {(BROKER, broker, name): configs.get(name) for name in _RATES}
        topics = {each.resource for each in throttles if each.resource_type == TOPIC}
        for topic, set_on_it in self._topic_configs(topics).items():
            found |= {(TOPIC, topic, name): set_on_it.get(name) for name in _LISTS}
        return found

    def _ask_broker(self, broker: int) -> Mapping[str, str]:
        return self.context.ask(lambda: self.context.admin.broker_configs(broker, _RATES))

    def _topic_configs(self, topics: Collection[str]) -> dict[str, Mapping[str, str]]:
        found = self.context.describe_configs(sorted(topics), dict.fromkeys(topics, _LISTS))
        for topic, configs in found.items():
            if configs.error_code in AUTHORIZATION_FAILED:
                raise ThrottleRefused(
                    f"cluster {self.context.cluster}: configs of topic {topic} can't be read: grant this principal "
                    "DescribeConfigs on it, or set replicas.throttle = 0"
                )
        return {
            topic: {each.name: str(each.value) for each in configs.configs or () if each.config_source == SET_ON_TOPIC}
            for topic, configs in found.items()
            if configs.error_code == kafka.NONE
        }

    def _set(self, throttles: Sequence[Throttle], values: Mapping[tuple[str, str, str], str | None]) -> None:
        by_resource: dict[tuple[str, str], dict[str, str | None]] = {}
        for each in throttles:
            by_resource.setdefault((each.resource_type, each.resource), {})[each.config] = values[_key(each)]
        for kind, request in ((BROKER, self._alter_brokers), (TOPIC, self._alter_topics)):
            targets = [
                Target(
                    resource=name,
                    action=Action.ALTER_CONFIGS,
                    before=dict.fromkeys(configs, ""),
                    after={config: value for config, value in configs.items() if value is not None},
                )
                for (resource_type, name), configs in by_resource.items()
                if resource_type == kind
            ]
            for target, answer in self.context.send(targets, request, changes=True):
                if answer.result.error_code not in (kafka.NONE, kafka.UNKNOWN_TOPIC_OR_PARTITION):
                    raise ThrottleRefused(
                        f"cluster {self.context.cluster}: {', '.join(sorted(target.touched))} of {kind} "
                        f"{target.resource} can't be altered: {error_name(answer.result.error_code)} "
                        f"{answer.result.error_message or ''}; grant this principal AlterConfigs on the cluster and on "
                        "the topic, or set replicas.throttle = 0"
                    )

    def _alter_topics(self, targets: Sequence[Target]) -> Response:
        return self.context.admin.alter_configs(targets, validate_only=False)

    def _alter_brokers(self, targets: Sequence[Target]) -> Response:
        results: dict[str, TopicResult] = {}
        for target in targets:
            configs = {name: target.after.get(name) for name in target.touched}
            results[target.resource] = self.context.admin.alter_broker_configs(int(target.resource), configs)
        return Response(results=results, throttle_time_ms=0)


class ThrottleRefused(ClusterError):
    """The cluster refuses to set or take away a throttle: no move is begun without it."""


def _key(throttle: Throttle) -> tuple[str, str, str]:
    return throttle.resource_type, throttle.resource, throttle.config
