"""Brokers that moves give replicas to: a move waits for one that is down, but not for ever."""

from __future__ import annotations

import logging
from collections.abc import Collection, Container

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

    def gone(
        self, unfinished: Collection[Move], under_way: Container[Partition]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return the topics whose moves wait for a broker that is down for too long, with the reason; warn of new ones.

        First those with such a move under way, then those with one that isn't begun. `unfinished`: moves that aren't
        done; `under_way`: the partitions whose moves may be.
        """
        wanted = {broker for move in unfinished for broker in move.after}
        gone = wanted - {broker.broker_id for broker in self._context.brokers()} if wanted else wanted
        now = self._context.clock()
        if new := gone - self._gone_since.keys():
            log.warning("cluster %s: brokers %s, which get replicas, are down", self._context.cluster, sorted(new))
        self._gone_since = {broker: self._gone_since.get(broker, now) for broker in gone}
        self._too_long = {broker for broker, since in self._gone_since.items() if now - since > _GONE_FOR}
        words = f"which get replicas, are down for more than {_GONE_FOR:g} s; bring them back"
        begun, unbegun = dict[str, str](), dict[str, str]()
        for move in unfinished:
            if waits := self._too_long & {*move.after}:
                topics = begun if (move.topic, move.partition) in under_way else unbegun
                topics[move.topic] = f"brokers {sorted(waits)}, {words}"
        return begun, unbegun

    def are_up(self, move: Move) -> bool:
        """Return whether all brokers of a move were up when last seen; else it would only take room."""
        return self._gone_since.keys().isdisjoint(move.after)

    def copies(self, move: Move) -> bool:
        """Return whether a move under way may copy records: not while a broker that gets a replica is gone."""
        return self._too_long.isdisjoint({*move.after} - {*move.before})
