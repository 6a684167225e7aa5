"""Brokers that moves give replicas to: a move waits for one that is down, but not for ever."""

from __future__ import annotations

import logging
from collections.abc import Collection

from topicledger.actions.context import ClusterContext

log = logging.getLogger(__name__)

_GONE_FOR = 120.0
"""Seconds that a broker may be down before its moves stay open."""


class Receivers:
    """Brokers of one cluster that get replicas, and since when any of them is down."""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context
        self._gone_since: dict[int, float] = {}

    def gone_too_long(self, broker_ids: Collection[int]) -> frozenset[int]:
        """Return which of these brokers are down for too long; warn of those that went down since the last call."""
        gone = set(broker_ids) - {broker.broker_id for broker in self._context.brokers()} if broker_ids else set()
        now = self._context.clock()
        if new := gone - self._gone_since.keys():
            log.warning("cluster %s: brokers %s, which get replicas, are down", self._context.cluster, sorted(new))
        self._gone_since = {broker: self._gone_since.get(broker, now) for broker in gone}
        return frozenset(broker for broker, since in self._gone_since.items() if now - since > _GONE_FOR)


def why_open(broker_ids: Collection[int]) -> str:
    """Return why a topic whose replicas go to these brokers stays open."""
    return f"brokers {sorted(broker_ids)}, which get replicas, are down for more than {_GONE_FOR:g} s; bring them back"
