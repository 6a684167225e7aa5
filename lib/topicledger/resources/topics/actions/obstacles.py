"""Obstacles to the end of moves: a broker that gets replicas is down, or a partition has no leader to copy from.

A move waits for either, but not for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import replace

from topicledger.actions.context import ClusterContext
from topicledger.kafka.reassignments import Partition, TopicState
from topicledger.model.moves import LEADER_ADVICE, Move
from topicledger.text import listed

log = logging.getLogger(__name__)

_GONE_FOR = 120.0
"""Seconds that a broker or a leader may be missing before its moves stay open."""
_SHOWN = 5


class Obstacles:
    """Brokers of one cluster that get replicas and are down, and partitions without a leader, since when."""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context
        self._gone_since: dict[int, float] = {}
        self._too_long: set[int] = set()
        self._leaderless_since: dict[Partition, float] = {}
        self._leaderless_too_long: set[Partition] = set()
        self._warned: set[Partition] = set()
        self.unbegun: dict[str, str] = {}
        """Topics with a move that waits for a broker or a leader for too long, and isn't begun -> the reason."""
        self.undescribed: set[str] = set()
        """Topics that brokers list and don't describe: the brokers of their partitions are unknown."""

    def see(self, states: Mapping[str, TopicState]) -> None:
        """Note which partitions have no leader; those that aren't described stay as they were."""
        now = self._context.clock()
        for topic, state in states.items():
            (self.undescribed.discard if state.permitted else self.undescribed.add)(topic)
            for partition, live in state.partitions.items():
                if live.leader >= 0:
                    self._leaderless_since.pop((topic, partition), None)
                else:
                    self._leaderless_since.setdefault((topic, partition), now)

    def gone(self, unfinished: Collection[Move], under_way: Container[Partition]) -> dict[str, str]:
        """Return the topics with a move under way that waits for a broker or a leader for too long, with the reason.

        `unfinished`: moves that aren't done; `under_way`: the partitions whose moves may be. Warns of brokers that are
        newly down, and of partitions that newly have no leader.
        """
        wanted = {broker for move in unfinished for broker in move.after}
        gone = wanted - {broker.broker_id for broker in self._context.brokers()} if wanted else wanted
        now = self._context.clock()
        if new := gone - self._gone_since.keys():
            log.warning("cluster %s: brokers %s, which get replicas, are down", self._context.cluster, sorted(new))
        self._gone_since = {broker: self._gone_since.get(broker, now) for broker in gone}
        self._too_long = {broker for broker, since in self._gone_since.items() if now - since > _GONE_FOR}
        since_when = self._leaderless_since.items()
        self._leaderless_too_long = {key for key, since in since_when if now - since > _GONE_FOR}
        self._warn_of_leaders(unfinished)
        begun: dict[str, str] = {}
        self.unbegun = {}
        for move in unfinished:
            if why := self._why(move):
                topics = begun if (move.topic, move.partition) in under_way else self.unbegun
                topics.setdefault(move.topic, why)
        return begun

    def _why(self, move: Move) -> str | None:
        """Return what a move waits for, if it does so for too long."""
        if waits := self._too_long & {*move.after}:
            words = f"which get replicas, are down for more than {_GONE_FOR:g} s; bring them back"
            return f"brokers {sorted(waits)}, {words}"
        if (move.topic, move.partition) in self._leaderless_too_long:
            words = f"had no leader to copy from for more than {_GONE_FOR:g} s"
            return f"partition {move.partition} has {words}: {LEADER_ADVICE}"
        return None

    def _warn_of_leaders(self, unfinished: Collection[Move]) -> None:
        leaderless = {(move.topic, move.partition) for move in unfinished} & self._leaderless_since.keys()
        if new := [f"{topic}-{partition}" for topic, partition in sorted(leaderless - self._warned)]:
            words = "cluster %s: partitions that the run moves have no leader to copy from: %s"
            log.warning(words, self._context.cluster, listed(new, most=_SHOWN))
        self._warned = leaderless

    def may_begin(self, move: Move) -> bool:
        """Return whether all brokers of a move were up, and it had a leader, when last seen.

        Else it would only take room.
        """
        led = (move.topic, move.partition) not in self._leaderless_since
        return led and self._gone_since.keys().isdisjoint(move.after)

    def copied(self, moves: Collection[Move]) -> Iterator[Move]:
        """Yield the moves under way that may copy records, without the replicas that gone brokers would get.

        A partition that has no leader for too long copies nothing.
        """
        for move in moves:
            left = replace(move, after=tuple(each for each in move.after if each not in self._too_long))
            if left.adding and (move.topic, move.partition) not in self._leaderless_too_long:
                yield left
