"""Brokers that moves give replicas to: a move waits for one that is down, but not for ever."""

from __future__ import annotations

import logging
from collections.abc import Collection

from topicledger.actions.context import ClusterContext
from topicledger.model.moves import Move

log = logging.getLogger(__name__)

_GONE_FOR = 120.0
"""Seconds that a broker may be down before its moves stay open."""


class Receivers:
    """Brokers of one cluster that get replicas, and since when any of them is down."""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context
        self._gone_since: dict[int, float] = {}

    def left_open(self, under_way: Collection[Move]) -> dict[str, str]:
        """Return the topics that wait for a broker which is down for too long, with the reason; warn of new ones."""
        wanted = {broker for move in under_way for broker in move.after}
        gone = wanted - {broker.broker_id for broker in self._context.brokers()} if wanted else wanted
        now = self._context.clock()
        if new := gone - self._gone_since.keys():
            log.warning("cluster %s: brokers %s, which get replicas, are down", self._context.cluster, sorted(new))
        self._gone_since = {broker: self._gone_since.get(broker, now) for broker in gone}
        too_long = {broker for broker, since in self._gone_since.items() if now - since > _GONE_FOR}
        waits = {move.topic: sorted(too_long & {*move.after}) for move in under_way if too_long & {*move.after}}
        words = f"which get replicas, are down for more than {_GONE_FOR:g} s; bring them back"
        return {topic: f"brokers {brokers}, {words}" for topic, brokers in waits.items()}
