"""Brokers that moves give replicas to: a move waits for one that is down, but not for ever."""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Iterator
from dataclasses import replace

from topicledger.actions.context import ClusterContext
from topicledger.kafka.reassignments import Partition
from topicledger.model.moves import Move

log = logging.getLogger(__name__)

_GONE_FOR = 120.0
"""Seconds that a broker may be down before its moves stay open."""


class Receivers:
    """Brokers of one cluster that get replicas, and since when any of them is down."""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context
        self._gone_since: dict[int, float] = {}
        self._too_long: set[int] = set()
        self.unbegun: dict[str, str] = {}
        """Topics with a move that waits for a broker that is down for too long, and isn't begun -> the reason."""

    def gone(self, unfinished: Collection[Move], under_way: Container[Partition]) -> dict[str, str]:
        """Return the topics with a move under way to a broker that is down for too long, with the reason.

        `unfinished`: moves that aren't done; `under_way`: the partitions whose moves may be. Warns of brokers that are
        newly down.
        """
        wanted = {broker for move in unfinished for broker in move.after}
        gone = wanted - {broker.broker_id for broker in self._context.brokers()} if wanted else wanted
        now = self._context.clock()
        if new := gone - self._gone_since.keys():
            log.warning("cluster %s: brokers %s, which get replicas, are down", self._context.cluster, sorted(new))
        self._gone_since = {broker: self._gone_since.get(broker, now) for broker in gone}
        self._too_long = {broker for broker, since in self._gone_since.items() if now - since > _GONE_FOR}
        words = f"which get replicas, are down for more than {_GONE_FOR:g} s; bring them back"
        begun: dict[str, str] = {}
        self.unbegun = {}
        for move in unfinished:
            if waits := self._too_long & {*move.after}:
                topics = begun if (move.topic, move.partition) in under_way else self.unbegun
                topics[move.topic] = f"brokers {sorted(waits)}, {words}"
        return begun

    def are_up(self, move: Move) -> bool:
        """Return whether all brokers of a move were up when last seen; else it would only take room."""
        return self._gone_since.keys().isdisjoint(move.after)

    def copied(self, moves: Collection[Move]) -> Iterator[Move]:
        """Yield the moves under way that may copy records, without the replicas that gone brokers would get."""
        for move in moves:
            left = replace(move, after=tuple(each for each in move.after if each not in self._too_long))
            if left.adding:
                yield left
