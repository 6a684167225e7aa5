"""Throttles of moves: recorded before they are set, and removed once the moves that they protect are over.

A topic's list of throttled replicas protects the partitions that were added to it. A broker's rate protects every move
that reads from or writes to the broker. Only ListPartitionReassignments shows that a move is over: without its answer,
all throttles stay set. They also stay while a request for a move that got no answer may still begin it.

Throttles of other clients aren't touched: a broker's existing rate and other replicas in a topic's list are kept, and
so are values that were changed after we set them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from topicledger import kafka
from topicledger.actions.checking import require_ours
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
from topicledger.resources.topics.actions.moved import outwaited
from topicledger.resources.topics.actions.throttle_rows import (
    ThrottleKey,
    added,
    by_key,
    entries,
    key_of,
    partitions_of,
    throttle_of,
)
from topicledger.resources.topics.actions.unthrottled import Resource, ThrottleRefused, Unthrottled, Without, needed

log = logging.getLogger(__name__)

_RATES = (LEADER_RATE, FOLLOWER_RATE)
_LISTS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
_EVERY = "*"
_GRANT = "grant this principal AlterConfigs on the cluster and on the topic"
_NOT_SHOWN = "the broker asked doesn't show its configs"


@dataclass
class Throttling:
    """Sets and removes the throttles of one cluster."""

    context: ClusterContext
    records: ThrottleRecords
    begun: bool = False
    """Whether `begin` was called."""
    _down: frozenset[int] = frozenset()
    """Brokers of moves that were down when throttles were set last: they have none of ours."""
    _unsettled: bool = False
    """Whether the outcome of the last request that altered throttles is unknown: it may be carried out later."""

    def begin(self, moves: Sequence[Move], rate: int) -> Unthrottled:
        """Throttle moves to `rate` bytes per second on each broker; return the topics that can't be throttled.

        Throttles that earlier starts left there stay set, with the new rate. With rate 0, none is set: throttles that
        protect no move are removed, and the others stay until their moves are over.
        """
        self.begun = True
        if rate <= 0:
            self.end_if_possible()
        if rate <= 0 or not any(move.adding for move in moves):
            return Unthrottled()
        written, without = by_key(self.records.left()), Without()
        throttles = [*self._rates(moves, rate, written, without), *self._lists(moves, written, without)]
        unthrottled = without.of(moves)
        asked = {each for move in moves if move.topic not in unthrottled.topics for each in needed(move)}
        throttles = [each for each in throttles if key_of(each)[:2] in asked]
        if throttles:
            self.context.limits.moving.throttled.update(map(key_of, throttles))
            self.records.intend(throttles)
            set_now = self._set({key_of(each): each.value for each in throttles})
            without.refused |= {**set_now.refused, **set_now.untold}
            without.silent |= set_now.silent
            log.info("cluster %s: %d throttles set at %d bytes/s", self.context.cluster, len(throttles), rate)
        return without.of(moves)

    def complete(self, wave: Sequence[Move], under_way: Collection[Move], rate: int) -> Unthrottled:
        """Set throttles that a later wave lacks, as `begin` does; return the topics that can't be throttled.

        Another client may have removed throttles since, or a broker may have been down.
        """
        if rate <= 0 or not (wave or (self._down and self._down & self._live_brokers())):
            return Unthrottled()
        moves, without = [*under_way, *wave], Without()
        # The record is only read if something is missing: waves may follow each other every second.
        missing = [*self._rates(moves, rate, {}, without), *self._lists(moves, {}, without)]
        return self.begin(moves, rate) if missing or without.of(moves).topics else Unthrottled()

    def end_if_possible(self) -> None:
        """Call `end`; throttles that can't be removed now stay recorded, with a warning."""
        try:
            self.end()
        except (ThrottleRefused, OutcomeUnknown) as error:
            log.warning("cluster %s: throttles stay for now: %s", self.context.cluster, error)

    def is_any_over(self) -> bool:
        """Return whether `end` would find a throttle to remove; changes nothing."""
        stuck: dict[Resource, str] = {}
        left = self._reachable(self._over(by_key(self.records.left())))
        self._live(left, stuck, stuck)
        return any(key[:2] not in stuck for key in left)

    def end(self) -> int:
        """Remove the throttles of any run that protect no move any more; return how many throttles stay.

        A throttle stays recorded for a later run if its broker is down, or if brokers answer only errors about its
        topic: waiting for an answer would keep this run open for good. Each one that the cluster refuses to remove
        stays recorded, too; ThrottleRefused is raised for these once the others are removed. Raises OutcomeUnknown if
        the cluster doesn't answer; then all stay recorded.
        """
        written = by_key(self.records.left())
        if self._unsettled:
            log.warning(
                "cluster %s: %d throttles stay: the outcome of a change is unknown", self.context.cluster, len(written)
            )
            return len(written)
        over = self._over(written)
        words = "throttles stay for %.0f s: a request of a killed driver may still arrive"
        if over and outwaited(self.context, words):
            over = self._over(written)
        if not over:
            return len(written)
        name, left = self.context.cluster, self._reachable(over)
        refused, untold = dict[Resource, str](), dict[Resource, str]()
        live = self._live(left, refused, untold)
        # A value that is neither ours nor the previous one is another client's: it stays. Our own throttle may not be
        # visible yet, so the previous value is set even if the broker shows it already.
        ours = {
            key: rows[-1].before
            for key, rows in left.items()
            if key in live and live[key] in {value for each in rows for value in (each.value, each.before)}
        }
        reset = self._set(ours)
        refused |= {**reset.silent, **reset.refused}
        untold |= reset.untold
        # The answers count only if they are the planned cluster's, and only who holds its lease records them.
        require_ours(self.context)
        # A config that has its previous value is fine even if the request failed.
        stays = refused.keys() | untold.keys()
        stuck = {key for key in left if key[:2] in stays and (key not in live or live[key] != left[key][-1].before)}
        left = {key: rows for key, rows in left.items() if key not in stuck}
        ours = {key: value for key, value in ours.items() if key not in stuck}
        self.records.removed([each for rows in left.values() for each in rows])
        self.context.limits.moving.throttled.difference_update(left)
        log.info("cluster %s: %d throttles removed", name, len(ours))
        for kind, resource, config in left.keys() - ours.keys():
            log.info("cluster %s: %s of %s %s isn't ours any more", name, config, kind, resource)
        for _, resource, config in over.keys() - left.keys() - stuck:
            log.warning("cluster %s: %s stays set on broker %s, which is down", name, config, resource)
        owners = sorted({key[:2] for key in stuck})
        for owner in owners:
            if owner not in refused:
                log.warning("throttles of cluster %s stay for now: %s", name, untold[owner].partition(": ")[2])
        if why := next((refused[owner] for owner in owners if owner in refused), None):
            raise ThrottleRefused(why)
        return len(written) - len(left)

    def _reachable(self, over: Mapping[ThrottleKey, Sequence[Throttle]]) -> Mapping[ThrottleKey, Sequence[Throttle]]:
        """Return the throttles without those on brokers that are down: only the broker itself takes the request."""
        up = self._live_brokers() if over else frozenset()
        return {key: rows for key, rows in over.items() if key[0] != BROKER or int(key[1]) in up}

    def _over(self, written: Mapping[ThrottleKey, Sequence[Throttle]]) -> Mapping[ThrottleKey, Sequence[Throttle]]:
        """Return the throttles that protect no move that the cluster lists or that may still begin."""
        if not written:
            return {}
        name, listed = self.context.cluster, self.context.reassignments()
        if listed is None:
            why = self.context.unlisted
            words = "cluster %s: %d throttles stay set: %s, so that it is unknown whether replicas still move; %s"
            log.warning(words, name, len(written), why.why, why.advice)
            return {}
        listed = {**self.context.may_move(), **listed}
        brokers = self._moving_brokers(listed)

        def protects(key: ThrottleKey, rows: Sequence[Throttle]) -> bool:
            kind, resource, _ = key
            if kind == BROKER:
                return brokers is None or int(resource) in brokers
            return any((resource, each) in listed for each in partitions_of(rows))

        over = {key: rows for key, rows in written.items() if not protects(key, rows)}
        if len(over) < len(written):
            log.info("cluster %s: %d throttles stay set: replicas still move", name, len(written) - len(over))
        return over

    def _moving_brokers(self, listed: Mapping[Partition, Replicas]) -> frozenset[int] | None:
        """Return the brokers that moves read from or write to; None if one of them is unknown."""
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
        self, moves: Sequence[Move], rate: int, written: Mapping[ThrottleKey, Sequence[Throttle]], without: Without
    ) -> Iterator[Throttle]:
        brokers = {broker for move in moves if move.adding for broker in (*move.before, *move.after)}
        self._down = frozenset(brokers - (up := self._live_brokers()))
        for broker in sorted(brokers & up):
            found = self._ask_broker(broker, without.refused, without.silent)
            if found is None:
                continue
            for config in _RATES:
                key, live = (BROKER, str(broker), config), found.get(config)
                ours = {each.value for each in written.get(key, ())}
                # A rate that another client set is kept.
                if live is None or (live in ours and live != str(rate)):
                    yield throttle_of(key, before=None, value=str(rate))

    def _lists(
        self, moves: Sequence[Move], written: Mapping[ThrottleKey, Sequence[Throttle]], without: Without
    ) -> Iterator[Throttle]:
        wanted: dict[str, dict[str, set[str]]] = {}
        for move in moves:
            if move.adding:
                lists = wanted.setdefault(move.topic, {LEADER_REPLICAS: set(), FOLLOWER_REPLICAS: set()})
                lists[LEADER_REPLICAS] |= {f"{move.partition}:{broker}" for broker in move.before}
                lists[FOLLOWER_REPLICAS] |= {f"{move.partition}:{broker}" for broker in move.adding}
        found = self._topic_configs(wanted, without.refused, without.silent)
        for topic, lists in wanted.items():
            if topic not in found and (TOPIC, topic) not in without.refused:
                without.silent.setdefault((TOPIC, topic), f"{_NOT_SHOWN}, so it can't be throttled")
            for config, replicas in lists.items():
                key, live = (TOPIC, topic, config), found.get(topic, {}).get(config)
                if topic in found and live != _EVERY and not replicas <= entries(live):
                    ours = {entry for each in written.get(key, ()) for entry in added(each)}
                    others = entries(live) - ours
                    before = live if others == entries(live) else ",".join(sorted(others)) or None
                    yield throttle_of(key, before=before, value=",".join(sorted(entries(live) | replicas)))

    def _live(
        self, keys: Collection[ThrottleKey], refused: dict[Resource, str], untold: dict[Resource, str]
    ) -> Mapping[ThrottleKey, str | None]:
        """Return config -> its value, without deleted topics; add resources that can't be read to the other arguments.

        `untold`: topics about which brokers answer only errors.
        """
        found: dict[ThrottleKey, str | None] = {}
        for broker in {resource for kind, resource, _ in keys if kind == BROKER}:
            configs = self._ask_broker(int(broker), refused, refused)
            if configs is not None:
                found |= {(BROKER, broker, name): configs.get(name) for name in _RATES}
        topics = {resource for kind, resource, _ in keys if kind == TOPIC}
        shown = self._topic_configs(topics, refused, untold)
        for topic, set_on_it in shown.items():
            found |= {(TOPIC, topic, name): set_on_it.get(name) for name in _LISTS}
        # A broker that lags behind doesn't show the configs of a topic that exists.
        hidden = topics - shown.keys() - {resource for kind, resource in (*refused, *untold) if kind == TOPIC}
        for topic in self.context.topic_states(sorted(hidden)):
            refused[TOPIC, topic] = f"cluster {self.context.cluster}: topic {topic} exists, and {_NOT_SHOWN}"
        return found

    def _ask_broker(
        self, broker: int, refused: dict[Resource, str], silent: dict[Resource, str]
    ) -> Mapping[str, str] | None:
        """Return the rates of a broker; None if it refuses to show them, or only the rest of the cluster answers."""
        try:
            return self.context.ask(lambda: self.context.admin.broker_configs(broker, _RATES))
        except OutcomeUnknown as error:
            self._require_answers()
            silent[BROKER, str(broker)] = str(error)
        except ClusterError as error:
            refused[BROKER, str(broker)] = str(error)
        return None

    def _require_answers(self) -> None:
        """Raise OutcomeUnknown if asked to stop, or if the whole cluster doesn't answer."""
        self.context.wait(0)
        self.context.brokers()

    def _topic_configs(
        self, topics: Collection[str], refused: dict[Resource, str], silent: dict[Resource, str]
    ) -> dict[str, Mapping[str, str]]:
        found = self.context.describe_configs(sorted(topics), dict.fromkeys(topics, _LISTS))
        for topic, configs in found.items():
            words = f"cluster {self.context.cluster}: configs of topic {topic} can't be read"
            if configs.error_code in AUTHORIZATION_FAILED:
                refused[TOPIC, topic] = f"{words}: grant this principal DescribeConfigs on it"
            elif configs.error_code not in (kafka.NONE, kafka.UNKNOWN_TOPIC_OR_PARTITION):
                silent[TOPIC, topic] = f"{words}: {error_name(configs.error_code)}"
        return {
            topic: {each.name: str(each.value) for each in configs.configs or () if each.config_source == SET_ON_TOPIC}
            for topic, configs in found.items()
            if configs.error_code == kafka.NONE
        }

    def _set(self, values: Mapping[ThrottleKey, str | None]) -> Without:
        """Alter configs; return resource -> why it is refused, or why its outcome is unknown.

        A topic without an outcome counts as untold if the cluster answers about other topics: a later start would
        fail, too. A broker may be back by then.
        """
        found = Without()
        self._unsettled = True
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
                    why = f"{error_name(answer.result.error_code)} {answer.result.error_message or ''}".rstrip()
                    denied = answer.result.error_code in AUTHORIZATION_FAILED
                    whys[target.resource] = f"{why}; {_GRANT}" if denied else why
            if silent:
                self._require_answers()
                # By then, the effect of a request is visible.
                self.context.wait(self.context.retry_policy.visibility)
            for target in targets:
                name, lost = target.resource, silent.get(target.resource)
                configs = ", ".join(sorted(target.touched))
                words = f"cluster {self.context.cluster}: {configs} of {kind} {name} can't be altered"
                if name in whys:
                    found.refused[kind, name] = f"{words}: {whys[name]}"
                elif lost is not None:
                    ends = kind == TOPIC and lost.by_itself
                    (found.untold if ends else found.silent)[kind, name] = f"{words}: {lost.why}"
        self._unsettled = False
        return found

    def _alter_topics(self, targets: Sequence[Target]) -> Response:
        return self.context.admin.alter_configs(targets, validate_only=False)

    def _alter_brokers(self, targets: Sequence[Target]) -> Response:
        results: dict[str, TopicResult] = {}
        for target in targets:
            if results:
                # Each broker gets a request, and the lease has to outlast only one.
                require_ours(self.context)
            configs = {name: target.after.get(name) for name in target.touched}
            results[target.resource] = self.context.admin.alter_broker_configs(int(target.resource), configs)
        return Response(results=results, throttle_time_ms=0)
