"""Brokers that moves give replicas to: a move waits for one that is down, but not for ever."""

from __future__ import annotations

import logging
from collections.abc import Collection

from topicledger.actions.context import ClusterContext
from topicledger.kafka.sending import OutcomeUnknown

log = logging.getLogger(__name__)

_GONE_FOR = 120.0
"""Seconds that a broker may be down before its moves stay open."""


class Receivers:
    """Brokers of one cluster that get replicas, and since when any of them is down."""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context
        self._gone_since: float | None = None

    def require_up(self, broker_ids: Collection[int]) -> None:
        """Warn if brokers are down; raise OutcomeUnknown if some are down for too long."""
        gone = set(broker_ids) - {broker.broker_id for broker in self._context.brokers()} if broker_ids else set()
        now = self._context.clock()
        if not gone:
            self._gone_since = None
        elif self._gone_since is None:
            self._gone_since = now
            log.warning("cluster %s: brokers %s, which get replicas, are down", self._context.cluster, sorted(gone))
        elif now - self._gone_since > _GONE_FOR:
            raise OutcomeUnknown(
                f"cluster {self._context.cluster}: brokers {sorted(gone)}, which get replicas, are down for more than "
                f"{_GONE_FOR:g} s; bring them back, and start the run again with its id"
            )
