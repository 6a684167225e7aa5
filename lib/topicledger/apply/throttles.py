"""Throttles that runs left on clusters are taken away, under the leases of these, once nothing moves there any more."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from datetime import UTC, datetime

from topicledger.actions.throttling import Throttling
from topicledger.apply.executor import Executor
from topicledger.config.settings import Settings
from topicledger.errors import ClusterError
from topicledger.kafka import ClusterAdmin
from topicledger.kafka.connection import request_timeout
from topicledger.kafka.sending import ClusterLimits
from topicledger.ledger import leases
from topicledger.ledger.leases import LeaseHeld, LeaseLost, Leases
from topicledger.ledger.run import Run
from topicledger.ledger.tables import Ledger
from topicledger.ledger.throttles import Leftover, RecordedThrottles

log = logging.getLogger(__name__)


def take_away(run: Run, clusters: Mapping[str, Leftover], held: Leases) -> Mapping[str, str]:
    """Take away what protects no move any more on `clusters`, whose leases are held, by whichever run it was set.

    Returns by cluster why that is impossible now, for throttles that `run` set. Those of other runs are a warning: they
    must not stop this one.
    """
    return _take_away(run.ledger, run.settings, run.run_id, clusters, held)


def take_away_left(run: Run, clusters: Mapping[str, Leftover], stop: threading.Event) -> Mapping[str, str]:
    """As `take_away`, each cluster under its lease, taken for that. A cluster that another run is changing is left to
    that run, or to a later one."""
    return take_away_of(run.ledger, run.settings, run.run_id, clusters, stop)


def take_away_of(
    ledger: Ledger, settings: Settings, run_id: str, clusters: Mapping[str, Leftover], stop: threading.Event
) -> Mapping[str, str]:
    """As `take_away_left`, of a run that no driver applies any more."""
    problems: dict[str, str] = {}
    for name, left in clusters.items():
        try:
            with leases.take(
                ledger,
                run_id,
                {left.cluster_id: name},
                observed_since=datetime.now(UTC),
                request_timeout=request_timeout(settings.cluster(name), settings.kafka),
                wait=False,
                stop=stop,
            ) as held:
                problems |= _take_away(ledger, settings, run_id, {name: left}, held)
        except (LeaseHeld, LeaseLost) as error:
            log.warning("throttles of cluster %s stay for now: %s", name, error)
    return problems


def _take_away(
    ledger: Ledger, settings: Settings, run_id: str, clusters: Mapping[str, Leftover], held: Leases
) -> Mapping[str, str]:
    problems: dict[str, str] = {}
    for name, left in clusters.items():
        try:
            _end(ledger, settings, run_id, name, left.cluster_id, held)
        except LeaseLost:
            raise
        except ClusterError as error:
            log.warning("throttles of cluster %s stay for now: %s", name, error)
            if run_id in left.run_ids:
                problems[name] = str(error)
    return problems


def _end(ledger: Ledger, settings: Settings, run_id: str, name: str, cluster_id: str, held: Leases) -> None:
    with ClusterAdmin(settings.cluster(name), settings.kafka) as admin:
        executor = Executor(
            cluster=name,
            cluster_id=cluster_id,
            admin=admin,
            limits=ClusterLimits(max_batch_records=settings.kafka.max_batch_records),
            may_send=held.require_for_request,
        )
        Throttling(executor, RecordedThrottles(ledger=ledger, run_id=run_id, cluster=name, cluster_id=cluster_id)).end()
