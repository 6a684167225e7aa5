"""Leases: one run at a time changes a cluster.

Kafka itself can't fence a client. So a driver that changes a cluster holds a lease on its cluster id, which is a row of
`leases`, and renews it while it works. It sends a request only if the lease outlasts the request's time limit, by both
clocks of the driver.
A driver that was stopped, or whose machine was suspended, finds afterwards that it holds no lease any more.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

from topicledger.errors import ClusterError, TopicLedgerError
from topicledger.ledger.lease_holder import CLOCKS, Clocks, Holder
from topicledger.ledger.lease_rows import held_since, holders, is_free, read_rows, released, said, since_death
from topicledger.ledger.tables import Ledger
from topicledger.schemas import LEASES

log = logging.getLogger(__name__)

LEASE_SECONDS = 30.0
"""Shortest time for which a lease is valid without being renewed."""
_ASK_AGAIN_SECONDS = 2.0
_ATTEMPTS = 5
_COMMITS = 6
"""A lease is valid for at least this many times the duration of a commit."""
_LOG_AGAIN_SECONDS = 30.0


class LeaseHeld(TopicLedgerError):
    """Raised if another run is changing a cluster."""


class LeaseLost(ClusterError):
    """Raised if this driver's leases expired or another holder took them; it sends and records nothing more."""


class Leases:
    """Leases that this run holds on clusters; a thread renews them until they are released or lost.

    As a context manager, it releases them at the end; it doesn't touch a lost lease. Once the object is garbage, its
    leases are no longer renewed, and expire.
    """

    def __init__(
        self,
        ledger: Ledger,
        holder: Holder,
        clusters: Mapping[str, str],
        *,
        request_timeout: float,
        clocks: Clocks,
    ) -> None:
        self.contended = False
        """Whether another run may have changed one of the clusters since this one observed them."""
        self.busy: Mapping[str, str] = {}
        """Requested cluster, by name -> the other run that is changing it, in words."""
        self.holder = holder
        self._ledger = ledger
        self._clusters = clusters
        self._request_timeout = request_timeout
        self._clocks = clocks
        self._seconds = lease_seconds(request_timeout)
        self._rows: Sequence[dict[str, Any]] = ()
        self._done: frozenset[str] = frozenset()
        self._expiring: frozenset[str] = frozenset()
        self._tried = False
        self._until = 0.0
        self._expires_at = datetime.min.replace(tzinfo=UTC)
        self._renew_at = 0.0
        self._lost: str | None = None
        self._lost_some: dict[str, str] = {}
        self._died: dict[str, float] = {}
        """Cluster, by name -> when its last holder ended at the latest, by the clock that can't be set."""
        self._renewing = False
        self._changed = threading.Condition()
        self._over = False
        self._wake = threading.Event()
        # The thread has only a weak reference, so that it doesn't keep this object alive.
        self._thread = threading.Thread(
            target=_keep_renewed, args=(weakref.ref(self), self._wake), name="leases", daemon=True
        )
        weakref.finalize(self, self._wake.set)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def release(self) -> None:
        """Release the leases; returns when other runs can take them."""
        self.release_soon()
        self._thread.join()

    def release_soon(self) -> None:
        """Begin to release the leases while the run continues; `release` waits for it."""
        self._over = True
        self._wake.set()

    @property
    def names(self) -> frozenset[str]:
        """The clusters whose leases are held: taken, and not released by `release_some`."""
        return frozenset(self._clusters.values()) - self._done

    def release_some(self, names: Collection[str]) -> None:
        """Begin to release the leases of clusters that are done, while others are still being changed."""
        with self._changed:
            self._done |= frozenset(names)
        if names:  # else the thread would renew all leases, which is a commit
            self._wake.set()

    def let_expire(self, cluster: str) -> None:
        """Let the lease of a cluster expire when this run is done with it, since a request may still be on its way.

        The lease outlasts the request. Later starts of this run wait for that, too: they couldn't tell what was done.
        """
        with self._changed:
            self._expiring |= {cluster}

    @property
    def lost(self) -> Mapping[str, str]:
        """Cluster, by name, whose lease another holder took while this run keeps its other leases -> the reason."""
        return dict(self._lost_some)

    def since_death(self, cluster: str) -> float:
        """See `lease_rows.since_death`; about the last holder of a cluster's lease."""
        return self._clocks.elapsed() - self._died.get(cluster, -math.inf)

    def require(self, cluster: str | None = None) -> None:
        """Raise LeaseLost if the leases expired, or if another holder took all of them or that of `cluster`."""
        with self._changed:
            # While a slow commit is under way, wait: its result tells whether another run took the leases.
            while self._lost is None and self._left() <= 0 and self._renewing:
                self._changed.wait(1.0)
            if self._lost is None and self._left() <= 0:
                self._lose(
                    "its leases expired: it was suspended, its clock was set, or it could not renew them in time"
                )
        if self._lost is not None:
            raise LeaseLost(f"run {self.holder.run_id}: {self._lost}; start it again with its id")
        if cluster is not None and cluster in self._lost_some:
            raise LeaseLost(self._lost_some[cluster])

    def require_for_request(self, cluster: str | None = None) -> None:
        """Wait until the leases outlast a request to `cluster`; has them renewed if necessary. Raises LeaseLost."""
        with self._changed:
            self.require(cluster)
            while self._left() <= self._request_timeout:
                self._wake.set()
                self._changed.wait(timeout=min(1.0, max(0.0, self._left())))
                self.require(cluster)

    def _left(self) -> float:
        """Return the seconds for which the leases are valid: the lower value of the two clocks (`Clocks`)."""
        by_wall = (self._expires_at - self._clocks.now()).total_seconds()
        return min(self._until - self._clocks.elapsed(), by_wall)

    def _lose(self, why: str) -> None:
        with self._changed:
            self._lost = why
            self._changed.notify_all()

    def _write(self, rows: Sequence[dict[str, Any]], *, renewed: bool) -> bool:
        """Write the next state of rows; return whether all of them were still as this driver knew them."""
        began, now = self._clocks.elapsed(), self._clocks.now()
        expires_at = now + timedelta(seconds=self._seconds)
        new = [{**row, "changes": row["changes"] + 1, "expires_at": expires_at} for row in rows]
        for row in new:
            if renewed and row["cluster"] not in self._done:
                continue
            if row["cluster"] in self._expiring:
                row["process"] = self.holder.ended
            else:
                row |= released(row, now, self.since_death(row["cluster"]))
        if self._ledger.compare_and_set(LEASES, "cluster_id", new) < len(new):
            return False
        with self._changed:
            # The lease's time counts from the beginning of the commit: a slow commit uses up part of it.
            self._rows = [row for row in new if row["released_at"] is None and row["process"] == self.holder.process]
            self._until, self._expires_at = began + self._seconds, expires_at
            self._renew_at = began + self._seconds / 3
            # If commits are slow, the next lease must last longer to be renewed in time.
            took = self._clocks.elapsed() - began
            self._seconds = max(self._seconds, _COMMITS * took)
            if rows:
                log.info("leases %s until %s, in %.1f s", "renewed" if renewed else "released", expires_at, took)
            self._changed.notify_all()
        return True

    def _pause(self) -> float:
        """Return the seconds until the next renewal."""
        return max(0.0, self._renew_at - self._clocks.elapsed())

    def _renew(self) -> bool:
        """Renew the leases, or release them if the run is done; return whether there is more to do."""
        self._wake.clear()
        if self._over:
            if self._lost is None and self._left() > 0:
                try:
                    self._write(self._rows, renewed=False)
                except Exception as error:
                    log.warning("leases could not be released, other runs wait until they expire: %s", said(error))
            return False
        try:
            with self._changed:
                self.require()
                self._renewing = True
            if not self._write(self._rows, renewed=True):
                self._keep_what_is_ours()
        except LeaseLost:
            pass
        except Exception as error:
            # Any exception: it would end this thread silently, and the leases would expire.
            log.warning("leases could not be renewed, trying again: %s", said(error))
            self._renew_at = self._clocks.elapsed() + _ASK_AGAIN_SECONDS
        finally:
            with self._changed:
                self._renewing = False
                self._changed.notify_all()
        return self._lost is None

    def _keep_what_is_ours(self) -> None:
        """Keep the leases that the last commit renewed, after another holder took some of them."""
        known, ours = {row["cluster_id"]: row for row in read_rows(self._ledger, self._clusters)}, []
        for row in self._rows:
            mine = {"process": self.holder.process, "host": self.holder.host, "changes": row["changes"] + 1}
            live = known.get(row["cluster_id"], {})
            if mine.items() <= live.items():
                ours += [live] if live["released_at"] is None else []
            elif row["cluster"] not in self._done:
                self._lost_some[row["cluster"]] = (
                    f"run {self.holder.run_id}: a later start of it, or another run, took over cluster "
                    f"{row['cluster']}: nothing more is sent to it, or recorded; start the run again with its id"
                )
        if not ours:
            self._lose("a later start of it, or another run, took over")
            return
        with self._changed:
            self._rows, self._expires_at = ours, min(row["expires_at"] for row in ours)
            left = (self._expires_at - self._clocks.now()).total_seconds()
            self._until = self._clocks.elapsed() + left
            self._renew_at = self._until - self._seconds * 2 / 3
            log.warning("leases of clusters %s are lost, the others are kept", sorted(self._lost_some))
            self._changed.notify_all()

    def _take(self, seen: Iterable[dict[str, Any]]) -> bool:
        """Take every cluster's lease if its row is still as `seen`; return whether all of them are held now."""
        self._tried = True
        known = {row["cluster_id"]: row for row in seen}
        now = self._clocks.now()
        for cluster_id, name in self._clusters.items():
            if cluster_id in known and known[cluster_id]["process"] != self.holder.process:
                self._died[name] = self._clocks.elapsed() - since_death(known[cluster_id], now)
        return self._write(
            [
                {
                    "cluster_id": cluster_id,
                    "cluster": name,
                    "run_id": self.holder.run_id,
                    "host": self.holder.host,
                    "process": self.holder.process,
                    "acquired_at": now,
                    "released_at": None,
                    "changes": known[cluster_id]["changes"] if cluster_id in known else 0,
                }
                for cluster_id, name in self._clusters.items()
            ],
            renewed=True,
        )

    def _leave(self, rows: Sequence[Mapping[str, Any]], clusters: Mapping[str, str]) -> None:
        """Ask for `clusters` (id -> name) without those in `rows`, which other runs hold."""
        held = {row["cluster_id"]: row for row in rows}
        self._clusters = {cluster_id: name for cluster_id, name in clusters.items() if cluster_id not in held}
        self.busy = {clusters[cluster_id]: holders([row]) for cluster_id, row in held.items()}

    def _give_back(self) -> None:
        """Release the leases that were taken, since not all could be; a lease that can't be released expires."""
        if not self._tried:
            return
        try:
            rows = [row for row in read_rows(self._ledger, self._clusters) if row["process"] == self.holder.process]
            held = [row for row in rows if row["released_at"] is None]
            if held:
                now = self._clocks.now()
                freed = [{**row, **released(row, now, self.since_death(row["cluster"]))} for row in held]
                given = [{**row, "changes": row["changes"] + 1} for row in freed]
                self._ledger.compare_and_set(LEASES, "cluster_id", given)
            self._tried = False
        except Exception as error:
            log.warning("leases could not be released, other runs wait until they expire: %s", said(error))

    def _renew_until_usable(self) -> None:
        """Renew leases until they outlast a request: the first commit is the slowest, and takes from their time.

        Raises LeaseLost if commits stay too slow.
        """
        for _ in range(_ATTEMPTS):
            if self._left() > self._request_timeout + self._seconds / 3:
                return
            if not self._write(self._rows, renewed=True):
                break
        raise LeaseLost(
            f"run {self.holder.run_id}: leases of {self._seconds:g} s expire before they can be used: commits to "
            f"{self._ledger.location(LEASES)} take too long; start it again with its id"
        )


def _keep_renewed(of: weakref.ref[Leases], wake: threading.Event) -> None:
    """Renew leases until they are released or lost. If their object is gone, they expire."""
    while (leases := of()) is not None:
        pause = leases._pause()
        del leases
        wake.wait(pause)
        leases = of()
        if leases is None or not leases._renew():
            return
        del leases


def lease_seconds(request_timeout: float) -> float:
    """Return the seconds for which leases are valid: 30, or more so that a renewed lease outlasts a long request."""
    return max(LEASE_SECONDS, 2 * request_timeout)


def take(
    ledger: Ledger,
    run_id: str,
    clusters: Mapping[str, str],
    *,
    observed_since: datetime,
    request_timeout: float,
    wait: bool,
    stop: threading.Event,
    clocks: Clocks = CLOCKS,
    some: bool = False,
    require_ownership: Callable[[], object] = lambda: None,
) -> Leases:
    """Take the leases of clusters (id -> name), all or none; use the result as a context manager.

    With `some`, take the leases that no other run holds, if there are any; the other clusters are `busy`.

    `observed_since`: when the run began to observe its clusters. If another run has held a lease since, the run must
    evaluate its decisions again (`contended`). `request_timeout`: the longest time that a request takes, in seconds.

    A lease is free if it was released, if it expired, or if its holder is a dead earlier start of the same run. An
    earlier start that may be alive, even in this process, is asked to stop, and `take` waits for it. Before it asks, it
    calls `require_ownership`, which raises if a later start has superseded this one.

    Raises LeaseHeld if another run holds a lease, unless `wait`; LeaseLost if `stop` is set while waiting. Before it
    raises, it releases every lease that it took; a lease that can't be released expires.
    """
    ledger.ensure(LEASES)
    leases = Leases(ledger, Holder.here(run_id), clusters, request_timeout=request_timeout, clocks=clocks)
    here = leases.holder
    logged_at = -_LOG_AGAIN_SECONDS
    try:
        while True:
            rows = read_rows(ledger, clusters)
            busy = [row for row in rows if not is_free(row, here, clocks.now())]
            others = [row for row in busy if row["run_id"] != run_id]
            if some and len(others) < len(clusters):
                leases._leave(others, clusters)
                busy, others = [row for row in busy if row["run_id"] == run_id], []
            asked = [row for row in rows if row["cluster_id"] in leases._clusters]
            leases.contended = leases.contended or any(held_since(row, run_id, observed_since) for row in asked)
            if others and not wait:
                raise LeaseHeld(holders(others))
            if not busy:
                if leases._take(rows):
                    leases._renew_until_usable()
                    return leases
                # Another driver was faster with one of them. The next round reads which leases this driver holds.
                continue
            # All or none: if each of two runs held a lease that the other waits for, both would wait for ever.
            leases._give_back()
            if time.monotonic() - logged_at >= _LOG_AGAIN_SECONDS:
                logged_at = time.monotonic()
                log.warning("waiting: %s", holders(busy))
            if len(others) < len(busy):
                require_ownership()
            for row in busy:
                if row["run_id"] == run_id and row["host"] is not None:
                    # Its holder finds the row changed at its next renewal, and stops.
                    ledger.compare_and_set(LEASES, "cluster_id", [{**row, "host": None, "changes": row["changes"] + 1}])
            if stop.wait(_ASK_AGAIN_SECONDS):
                raise LeaseLost(f"run {run_id} was stopped while it waited for a lease; start it again with its id")
    except BaseException:
        leases._give_back()
        raise
