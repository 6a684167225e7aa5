"""Throttles that an earlier start left on clusters are taken away, under the leases of these."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from datetime import UTC, datetime

from topicledger.actions.throttling import Throttling
from topicledger.apply.executor import Executor
from topicledger.config.settings import Settings
from topicledger.kafka import ClusterAdmin
from topicledger.kafka.connection import request_timeout
from topicledger.kafka.sending import ClusterLimits
from topicledger.ledger import leases
from topicledger.ledger.leases import LeaseHeld, Leases
from topicledger.ledger.tables import Ledger
from topicledger.ledger.throttles import RecordedThrottles, clusters_left

log = logging.getLogger(__name__)


def take_away(ledger: Ledger, settings: Settings, run_id: str, clusters: Mapping[str, str], held: Leases) -> None:
    """Take away what is set on `clusters` (name -> id) by whichever run. Raises ClusterError where it can't be."""
    for name, cluster_id in clusters.items():
        with ClusterAdmin(settings.cluster(name), settings.kafka) as admin:
            executor = Executor(
                cluster=name,
                cluster_id=cluster_id,
                admin=admin,
                limits=ClusterLimits(max_batch_records=settings.kafka.max_batch_records),
                may_send=held.require_for_request,
            )
            records = RecordedThrottles(ledger=ledger, run_id=run_id, cluster=name, cluster_id=cluster_id)
            Throttling(executor, records).end()


def take_away_left(
    ledger: Ledger, settings: Settings, run_id: str, *, wait: bool = False, stop: threading.Event | None = None
) -> None:
    """As `take_away`, of every cluster of the settings that has any, each under its lease.

    What another run is changing is left to that run, or to a later start.
    """
    for name, its_id in clusters_left(ledger).items():
        if name in settings.clusters:
            try:
                _take_away_one(ledger, settings, run_id, name, its_id, wait=wait, stop=stop)
            except LeaseHeld as error:
                log.warning("throttles of cluster %s stay for now: %s", name, error)


def _take_away_one(
    ledger: Ledger,
    settings: Settings,
    run_id: str,
    name: str,
    its_id: str,
    *,
    wait: bool,
    stop: threading.Event | None,
) -> None:
    with leases.take(
        ledger,
        run_id,
        {its_id: name},
        observed_since=datetime.now(UTC),
        request_timeout=request_timeout(settings.cluster(name), settings.kafka),
        wait=wait,
        stop=stop or threading.Event(),
    ) as held:
        take_away(ledger, settings, run_id, {name: its_id}, held)
