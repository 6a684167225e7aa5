"""Throttles of moves: written down before they are set, and taken away once the cluster moves nothing of it any more.

A topic's list protects the partitions that were added to it; a broker's rate protects every move that reads from the
broker or writes to it. Only ListPartitionReassignments shows that a move is over: without its answer all stay set.

What another hand set stays: a broker's rate that is set already is kept, replicas of others stay in a topic's list, and
what was changed since it was set isn't touched.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from topicledger import kafka
from topicledger.actions.context import ClusterContext
from topicledger.errors import ClusterError
from topicledger.kafka import Response, error_name
from topicledger.kafka.reassignments import Partition, Replicas
from topicledger.kafka.sending import NoOutcome, OutcomeUnknown
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

_Key: TypeAlias = tuple[str, str, str]
"""Resource type, resource, config."""


@dataclass
class Throttling:
    """Sets and takes away the throttles of one cluster."""

    context: ClusterContext
    records: ThrottleRecords
    _begun: set[_Key] = field(default_factory=set)
    """Those that this one set."""

    def begin(self, moves: Sequence[Move], rate: int) -> Mapping[str, str]:
        """Throttle moves to `rate` bytes a second on each broker. Throttles that earlier starts left on them stay set,
        with the new rate. Returns by topic why its throttle can't be set."""
        if rate <= 0 or not any(move.adding for move in moves):
            return {}
        written = _by_key(self.records.left())
        throttles = [*self._rates(moves, rate, written), *self._lists(moves, written)]
        refused: Mapping[tuple[str, str], str] = {}
        if throttles:
            self._begun |= {_key(each) for each in throttles}
            self.records.intend(throttles)
            refused = self._set({_key(each): each.value for each in throttles})
            for (kind, _), why in refused.items():
                if kind == BROKER:
                    raise ThrottleRefused(f"{why}, or set replicas.throttle = 0")
            log.info("cluster %s: %d throttles set at %d bytes/s", self.context.cluster, len(throttles), rate)
        return {name: f"{why}, or set replicas.throttle = 0" for (_, name), why in refused.items()}

    def end_if_possible(self) -> None:
        """As `end`. Throttles that only other runs left are a warning if they can't be taken away."""
        try:
            self.end()
        except (ThrottleRefused, OutcomeUnknown) as error:
            if self._begun & _by_key(self.records.left()).keys():
                raise
            log.warning("cluster %s: throttles of other runs stay for now: %s", self.context.cluster, error)

    def end(self) -> int:
        """Take away what protects no move any more, by whichever run it was set; returns how many throttles stay.

        A throttle on a broker that is down stays written down, for a later start, as does each one that the cluster
        refuses to take away: raises ThrottleRefused for these when the others are gone. Raises OutcomeUnknown if the
        cluster gives no answer: then all stays written down.
        """
        written = _by_key(self.records.left())
        if not written:
            return 0
        over = self._over(written)
        if not over:
            return len(written)
        name, up = self.context.cluster, self._live_brokers()
        left = {key: rows for key, rows in over.items() if key[0] != BROKER or int(key[1]) in up}
        refused: dict[tuple[str, str], str] = {}
        live = self._live(left, refused)
        # A third value is another hand's. What isn't shown as set may be on its way, so it is taken away, too.
        ours = {
            key: rows[-1].before
            for key, rows in left.items()
            if key in live and live[key] in {value for each in rows for value in (each.value, each.before)}
        }
        refused |= self._set(ours)
        # The answers count only if it is the planned cluster that gave them.
        self.context.require_planned_cluster()
        # What is as it was before needs no request that succeeds.
        stuck = {key for key in left if key[:2] in refused and (key not in live or live[key] != left[key][-1].before)}
        left = {key: rows for key, rows in left.items() if key not in stuck}
        ours = {key: value for key, value in ours.items() if key not in stuck}
        self.records.removed([each for rows in left.values() for each in rows])
        log.info("cluster %s: %d throttles taken away", name, len(ours))
        for kind, resource, config in left.keys() - ours.keys():
            log.info("cluster %s: %s of %s %s isn't ours any more", name, config, kind, resource)
        for _, resource, config in over.keys() - left.keys() - stuck:
            log.warning("cluster %s: %s stays set on broker %s, which is down", name, config, resource)
        if stuck:
            raise ThrottleRefused(refused[next(iter(sorted(stuck)))[:2]])
        return len(written) - len(left)

    def _over(self, written: Mapping[_Key, Sequence[Throttle]]) -> Mapping[_Key, Sequence[Throttle]]:
        """The throttles that protect nothing which the cluster lists as being moved."""
        name, listed = self.context.cluster, self.context.reassignments()
        if listed is None:
            log.warning(
                "cluster %s: %d throttles stay set: this principal may not list reassignments, so that it is unknown "
                "whether replicas still move; grant it Describe on the cluster",
                name,
                len(written),
            )
            return {}
        brokers = self._moving_brokers(listed)

        def protects(key: _Key, rows: Sequence[Throttle]) -> bool:
            kind, resource, _ = key
            if kind == BROKER:
                return brokers is None or int(resource) in brokers
            return any((resource, each) in listed for each in _partitions(rows))

        over = {key: rows for key, rows in written.items() if not protects(key, rows)}
        if len(over) < len(written):
            log.info("cluster %s: %d throttles stay set: replicas still move", name, len(written) - len(over))
        return over

    def _moving_brokers(self, listed: Mapping[Partition, Replicas]) -> frozenset[int] | None:
        """The brokers that moves read from or write to; None if one of them is unknown."""
        states = self.context.topic_states(sorted({topic for topic, _ in listed}))
        found: set[int] = set()
        for (topic, partition), after in listed.items():
            live = states[topic].partitions.get(partition) if topic in states else None
            if live is None:
                return None
            found |= {*after, *live.replicas}
        return frozenset(found)

    def _live_brokers(self) -> frozenset[int]:
        return frozenset(broker.broker_id for broker in self.context.brokers())

    def _rates(
        self, moves: Sequence[Move], rate: int, written: Mapping[_Key, Sequence[Throttle]]
    ) -> Iterator[Throttle]:
        brokers = {broker for move in moves if move.adding for broker in (*move.before, *move.after)}
        for broker in sorted(brokers & self._live_brokers()):
            found = self._ask_broker(broker)
            for config in _RATES:
                key, live = (BROKER, str(broker), config), found.get(config)
                ours = {each.value for each in written.get(key, ())}
                # A rate that another hand set is kept.
                if live is None or (live in ours and live != str(rate)):
                    yield _throttle(key, before=None, value=str(rate))

    def _lists(self, moves: Sequence[Move], written: Mapping[_Key, Sequence[Throttle]]) -> Iterator[Throttle]:
        wanted: dict[str, dict[str, set[str]]] = {}
        for move in moves:
            if move.adding:
                lists = wanted.setdefault(move.topic, {LEADER_REPLICAS: set(), FOLLOWER_REPLICAS: set()})
                lists[LEADER_REPLICAS] |= {f"{move.partition}:{broker}" for broker in move.before}
                lists[FOLLOWER_REPLICAS] |= {f"{move.partition}:{broker}" for broker in move.adding}
        found = self._topic_configs(wanted)
        for topic, lists in wanted.items():
            for config, replicas in lists.items():
                key, live = (TOPIC, topic, config), found.get(topic, {}).get(config)
                if topic in found and live != _EVERY and not replicas <= _entries(live):
                    ours = {entry for each in written.get(key, ()) for entry in _added(each)}
                    others = _entries(live) - ours
                    before = live if others == _entries(live) else ",".join(sorted(others)) or None
                    yield _throttle(key, before=before, value=",".join(sorted(_entries(live) | replicas)))

    def _live(self, keys: Collection[_Key], refused: dict[tuple[str, str], str]) -> Mapping[_Key, str | None]:
        """What is set now, by config, without topics that are gone. `refused` gets the resources that can't be read."""
        found: dict[_Key, str | None] = {}
        for broker in {resource for kind, resource, _ in keys if kind == BROKER}:
            try:
                configs = self._ask_broker(int(broker))
            except OutcomeUnknown:
                raise
            except ClusterError as error:
                refused[BROKER, broker] = str(error)
                continue
            found |= {(BROKER, broker, name): configs.get(name) for name in _RATES}
        topics = {resource for kind, resource, _ in keys if kind == TOPIC}
        for topic, set_on_it in self._topic_configs(topics, refused).items():
            found |= {(TOPIC, topic, name): set_on_it.get(name) for name in _LISTS}
        return found

    def _ask_broker(self, broker: int) -> Mapping[str, str]:
        return self.context.ask(lambda: self.context.admin.broker_configs(broker, _RATES))

    def _topic_configs(
        self, topics: Collection[str], refused: dict[tuple[str, str], str] | None = None
    ) -> dict[str, Mapping[str, str]]:
        found = self.context.describe_configs(sorted(topics), dict.fromkeys(topics, _LISTS))
        for topic, configs in found.items():
            if configs.error_code in AUTHORIZATION_FAILED:
                why = (
                    f"cluster {self.context.cluster}: configs of topic {topic} can't be read: grant this principal "
                    "DescribeConfigs on it"
                )
                if refused is None:
                    raise ThrottleRefused(f"{why}, or set replicas.throttle = 0")
                refused[TOPIC, topic] = why
        return {
            topic: {each.name: str(each.value) for each in configs.configs or () if each.config_source == SET_ON_TOPIC}
            for topic, configs in found.items()
            if configs.error_code == kafka.NONE
        }

    def _set(self, values: Mapping[_Key, str | None]) -> Mapping[tuple[str, str], str]:
        """Alter configs; returns why by resource that the cluster refuses, or doesn't say an outcome of."""
        refused: dict[tuple[str, str], str] = {}
        by_resource: dict[tuple[str, str], dict[str, str | None]] = {}
        for (resource_type, resource, config), value in values.items():
            by_resource.setdefault((resource_type, resource), {})[config] = value
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
            silent: dict[str, NoOutcome] = {}
            whys: dict[str, str] = {}
            for target, answer in self.context.send_each(targets, request, changes=True, silent=silent):
                if answer.result.error_code not in (kafka.NONE, kafka.UNKNOWN_TOPIC_OR_PARTITION):
                    code = error_name(answer.result.error_code)
                    whys[target.resource] = f"{code} {answer.result.error_message or ''}"
            for each in silent.values():
                if not each.by_itself:
                    raise OutcomeUnknown(
                        f"cluster {self.context.cluster}: throttles have no known outcome ({each.why}); start the run "
                        "again with its id"
                    )
            whys |= {name: each.why for name, each in silent.items()}
            for target in targets:
                if target.resource in whys:
                    refused[kind, target.resource] = (
                        f"cluster {self.context.cluster}: {', '.join(sorted(target.touched))} of {kind} "
                        f"{target.resource} can't be altered: {whys[target.resource]}; grant this principal "
                        "AlterConfigs on the cluster and on the topic"
                    )
        return refused

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


def _key(throttle: Throttle) -> _Key:
    return throttle.resource_type, throttle.resource, throttle.config


def _throttle(key: _Key, *, before: str | None, value: str) -> Throttle:
    resource_type, resource, config = key
    return Throttle(resource_type=resource_type, resource=resource, config=config, before=before, value=value)


def _by_key(written: Sequence[Throttle]) -> Mapping[_Key, Sequence[Throttle]]:
    """The rows of each config, the latest last: a later run adds to a list, or changes a rate, that an earlier one
    left."""
    found: dict[_Key, list[Throttle]] = {}
    for each in written:
        found.setdefault(_key(each), []).append(each)
    return found


def _entries(replicas: str | None) -> set[str]:
    return set(filter(None, (replicas or "").split(",")))


def _added(throttle: Throttle) -> set[str]:
    """The entries of a topic's list that a run added."""
    return _entries(throttle.value) - _entries(throttle.before)


def _partitions(rows: Sequence[Throttle]) -> set[int]:
    """The partitions that a topic's list protects."""
    return {int(entry.partition(":")[0]) for each in rows for entry in _added(each)}
