"""Remove throttles that runs left on clusters, under the clusters' leases, once nothing moves there any more."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial

from topicledger.actions.context import ClusterContext
from topicledger.apply.dispatch import expect_late_requests, expire_if_in_flight
from topicledger.apply.executor import Executor
from topicledger.config.settings import Settings
from topicledger.errors import ClusterError
from topicledger.kafka import ClusterAdmin
from topicledger.kafka.connection import request_timeout
from topicledger.kafka.sending import ClusterLimits, OutcomeUnknown
from topicledger.ledger import leases
from topicledger.ledger.leases import LeaseHeld, LeaseLost
from topicledger.ledger.tables import Ledger
from topicledger.ledger.throttles import Leftover, RecordedThrottles
from topicledger.observe.clusters import known_ids
from topicledger.resources.topics.actions.throttling import Throttling
from topicledger.resources.topics.actions.unthrottled import ThrottleRefused

log = logging.getLogger(__name__)


def take_away(run_id: str, left: Mapping[str, Leftover], context: ClusterContext) -> None:
    """Remove the throttles of any run that protect no move any more on one cluster, whose lease is held.

    `left`: cluster id -> throttles of earlier starts. Raises ClusterError for throttles of this run that can't be
    removed now. Those of other runs only cause a warning: they must not stop this run.
    """
    moving, here = context.limits.moving, left.get(context.cluster_id)
    if moving.throttles is None or (here is None and not moving.throttled):
        return
    try:
        Throttling(context, moving.throttles).end()
    except (ThrottleRefused, OutcomeUnknown) as error:
        if moving.throttled or (here is not None and run_id in here.run_ids):
            raise
        log.warning("throttles of cluster %s stay for now: %s", context.cluster, error)


def left_on(
    ledger: Ledger, settings: Settings, names: Iterable[str], left: Mapping[str, Leftover]
) -> Mapping[str, tuple[str, Leftover]]:
    """Return the current name of each cluster among `names` -> its id and the throttles left on it.

    A name without a known id is taken for the cluster that had this name when the throttle was set.
    """
    if not left:
        return {}
    ids, found = known_ids(ledger, settings), dict[str, tuple[str, Leftover]]()
    for name in names:
        for cluster_id, each in left.items():
            if ids.get(name) == cluster_id or (name not in ids and name in each.names):
                found[name] = cluster_id, each
    return found


def take_away_left(
    ledger: Ledger,
    settings: Settings,
    run_id: str,
    clusters: Mapping[str, tuple[str, Leftover]],
    stop: threading.Event,
) -> Mapping[str, str]:
    """Remove throttles that protect no move any more, each cluster under its lease. `clusters`: from `left_on`.

    The lease is taken only if there is a throttle to remove. A cluster that another run is changing is left to that
    run, or to a later one. Returns cluster -> why throttles of run `run_id` stay.
    """
    problems: dict[str, str] = {}
    for name, (cluster_id, left) in clusters.items():
        try:
            _take_away_left(ledger, settings, run_id, name, cluster_id, stop)
        except (LeaseHeld, LeaseLost) as error:
            log.warning("throttles of cluster %s stay for now: %s", name, error)
        except ClusterError as error:
            log.warning("throttles of cluster %s stay for now: %s", name, error)
            if run_id in left.run_ids:
                problems[name] = str(error)
    return problems


def _take_away_left(
    ledger: Ledger, settings: Settings, run_id: str, name: str, cluster_id: str, stop: threading.Event
) -> None:
    records = RecordedThrottles(ledger=ledger, run_id=run_id, cluster=name, cluster_id=cluster_id)
    with ClusterAdmin(settings.cluster(name), settings.kafka) as admin:

        def connected(may_send: Callable[[], None]) -> Executor:
            limits = ClusterLimits(max_batch_records=settings.kafka.max_batch_records)
            executor = Executor(
                cluster=name, cluster_id=cluster_id, admin=admin, limits=limits, stop=stop, may_send=may_send
            )
            executor.require_planned_cluster()
            return executor

        if not Throttling(connected(_nothing), records).is_any_over():
            return
        with leases.take(
            ledger,
            run_id,
            {cluster_id: name},
            observed_since=datetime.now(UTC),
            request_timeout=request_timeout(settings.cluster(name), settings.kafka),
            wait=False,
            stop=stop,
        ) as held:
            executor = connected(partial(held.require_for_request, name))
            expect_late_requests(held, executor)
            try:
                Throttling(executor, records).end()
            finally:
                expire_if_in_flight(held, executor)


def _nothing() -> None:
    raise AssertionError("a check changes nothing")
