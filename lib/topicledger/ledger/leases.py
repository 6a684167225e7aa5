"""Leases: one run at a time changes a cluster (DESIGN, A run's life).

Kafka itself can't be fenced. So whoever changes a cluster holds a lease on its cluster id, a row of `leases`, renews it
while it works, and sends only while the lease outlasts a request by both of its clocks: a driver that was stopped, or a
machine that was suspended, and woken again finds that it holds nothing any more.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

from topicledger.errors import ClusterError, TopicLedgerError
from topicledger.ledger.lease_holder import CLOCKS, Clocks, Holder
from topicledger.ledger.lease_rows import held_since, holders, is_free, read_rows
from topicledger.ledger.tables import Ledger
from topicledger.schemas import LEASES

log = logging.getLogger(__name__)

LEASE_SECONDS = 30.0
"""How long a lease holds without being renewed, at least."""
_ASK_AGAIN_SECONDS = 2.0
_ATTEMPTS = 5
_COMMITS = 6
"""How many times as long as a commit a lease holds, at least."""
_LOG_AGAIN_SECONDS = 30.0


class LeaseHeld(TopicLedgerError):
    """Another run is changing a cluster: nothing was sent."""


class LeaseLost(ClusterError):
    """This driver's leases expired, or a later start of its run took them: it sends and records nothing more."""


class Leases:
    """Leases that this run holds on clusters; a thread renews them until they are released or lost.

    As a context it releases them at the end; a lost lease is left alone. When the object is gone, its leases are no
    longer renewed: a dead driver's lease expires.
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
        """Clusters, by name, that were asked for and that another run is changing, with who does."""
        self.holder = holder
        self._ledger = ledger
        self._clusters = clusters
        self._request_timeout = request_timeout
        self._clocks = clocks
        self._seconds = lease_seconds(request_timeout)
        self._rows: Sequence[dict[str, Any]] = ()
        self._done: frozenset[str] = frozenset()
        self._tried = False
        self._until = 0.0
        self._expires_at = datetime.min.replace(tzinfo=UTC)
        self._renew_at = 0.0
        self._lost: str | None = None
        self._lost_some: dict[str, str] = {}
        self._renewing = False
        self._changed = threading.Condition()
        self._over = False
        self._wake = threading.Event()
        # The thread must not keep alive what it renews.
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
        """Begin to release the leases, beside what the run still does; `release` waits for it."""
        self._over = True
        self._wake.set()

    @property
    def names(self) -> frozenset[str]:
        """The clusters whose leases were taken."""
        return frozenset(self._clusters.values())

    def release_some(self, names: Collection[str]) -> None:
        """Begin to release the leases of clusters on which nothing is left to do, while others are still changed."""
        with self._changed:
            self._done |= frozenset(names)
        self._wake.set()

    @property
    def lost(self) -> Mapping[str, str]:
        """Clusters, by name, whose leases another holder took while those of others are still held, with the reason."""
        return dict(self._lost_some)

    def require(self, cluster: str | None = None) -> None:
        """Raise LeaseLost if this driver may do nothing more, or nothing more to `cluster`.

        Its time ran out, or another holder took over: all clusters, or this one.
        """
        with self._changed:
            # A slow commit isn't a stop: it will show whether another run took the leases meanwhile.
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
        """Return when the leases outlast a request sent now to `cluster`; has them renewed if they don't.

        Raises LeaseLost.
        """
        with self._changed:
            self.require(cluster)
            while self._left() <= self._request_timeout:
                self._wake.set()
                self._changed.wait(timeout=min(1.0, max(0.0, self._left())))
                self.require(cluster)

    def _left(self) -> float:
        """The seconds for which the leases hold: by the clock that counts sleep, and by that which others go by."""
        by_wall = (self._expires_at - self._clocks.now()).total_seconds()
        return min(self._until - self._clocks.elapsed(), by_wall)

    def _lose(self, why: str) -> None:
        with self._changed:
            self._lost = why
            self._changed.notify_all()

    def _write(self, rows: Sequence[dict[str, Any]], *, renewed: bool) -> bool:
        """Write the next state of rows; whether each of them still was as this driver knew it."""
        began, now = self._clocks.elapsed(), self._clocks.now()
        expires_at = now + timedelta(seconds=self._seconds)
        new = [{**row, "changes": row["changes"] + 1, "expires_at": expires_at} for row in rows]
        new = [{**row, "released_at": now} if not renewed or row["cluster"] in self._done else row for row in new]
        if self._ledger.compare_and_set(LEASES, "cluster_id", new) < len(new):
            return False
        with self._changed:
            # From when it began, not from when it was written: a slow commit takes its time of the lease.
            self._rows = [row for row in new if row["released_at"] is None]
            self._until, self._expires_at = began + self._seconds, expires_at
            self._renew_at = began + self._seconds / 3
            # Where commits are slow, the next lease has to last longer to be renewed in time.
            took = self._clocks.elapsed() - began
            self._seconds = max(self._seconds, _COMMITS * took)
            log.info("leases %s until %s, in %.1f s", "renewed" if renewed else "released", expires_at, took)
            self._changed.notify_all()
        return True

    def _pause(self) -> float:
        """Seconds until they are to be renewed."""
        return max(0.0, self._renew_at - self._clocks.elapsed())

    def _renew(self) -> bool:
        """Renew the leases, or release them where they are over; whether there is more to do."""
        self._wake.clear()
        if self._over:
            if self._lost is None and self._left() > 0:
                try:
                    self._write(self._rows, renewed=False)
                except Exception as error:
                    log.warning("leases could not be released, other runs wait until they expire: %s", _said(error))
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
            # Whatever it is: a thread that ended here would do so silently, and the leases with it.
            log.warning("leases could not be renewed, trying again: %s", _said(error))
            self._renew_at = self._clocks.elapsed() + _ASK_AGAIN_SECONDS
        finally:
            with self._changed:
                self._renewing = False
                self._changed.notify_all()
        return self._lost is None

    def _keep_what_is_ours(self) -> None:
        """Go on with the leases that the last commit renewed, when another holder had taken others of them."""
        known, ours = {row["cluster_id"]: row for row in read_rows(self._ledger, self._clusters)}, []
        for row in self._rows:
            mine = {"process": self.holder.process, "host": self.holder.host, "changes": row["changes"] + 1}
            live = known.get(row["cluster_id"], {})
            if mine.items() <= live.items():
                ours += [live] if live["released_at"] is None else []
            elif row["cluster"] not in self._done:
                self._lost_some[row["cluster"]] = (
                    f"run {self.holder.run_id}: a later start of it, or another run, took over cluster "
                    f"{row['cluster']}: nothing more is sent to it, or recorded of it; start the run again with its id"
                )
        if not ours:
            self._lose("a later start of it, or another run, took over")
            return
        with self._changed:
            self._rows, self._expires_at = ours, min(row["expires_at"] for row in ours)
            left = (self._expires_at - self._clocks.now()).total_seconds()
            self._until = self._clocks.elapsed() + left
            self._renew_at = self._until - self._seconds * 2 / 3
            log.warning("leases of clusters %s are lost, those of others go on", sorted(self._lost_some))
            self._changed.notify_all()

    def _take(self, seen: Iterable[dict[str, Any]]) -> bool:
        """Take every cluster's lease as it was `seen`; whether all of them are held now."""
        self._tried = True
        known = {row["cluster_id"]: row for row in seen}
        now = self._clocks.now()
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
        """Ask for all of `clusters` (id -> name) but those of rows that other runs hold."""
        held = {row["cluster_id"]: row for row in rows}
        self._clusters = {cluster_id: name for cluster_id, name in clusters.items() if cluster_id not in held}
        self.busy = {clusters[cluster_id]: holders([row]) for cluster_id, row in held.items()}

    def _give_back(self) -> None:
        """Release what was taken, where not all could be; what can't be released expires."""
        if not self._tried:
            return
        try:
            rows = [row for row in read_rows(self._ledger, self._clusters) if row["process"] == self.holder.process]
            held = [row for row in rows if row["released_at"] is None]
            if held:
                now = self._clocks.now()
                given = [{**row, "released_at": now, "changes": row["changes"] + 1} for row in held]
                self._ledger.compare_and_set(LEASES, "cluster_id", given)
            self._tried = False
        except Exception as error:
            log.warning("leases could not be released, other runs wait until they expire: %s", _said(error))

    def _make_last(self) -> None:
        """A first commit is the slowest: renew leases that it left too little time."""
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
    """Renews leases until they are released or lost, or their object is gone: then they expire."""
    while (leases := of()) is not None:
        pause = leases._pause()
        del leases
        wake.wait(pause)
        leases = of()
        if leases is None or not leases._renew():
            return
        del leases


def lease_seconds(request_timeout: float) -> float:
    """How long leases hold: 30 s, or more where a request may take longer, so that a renewed one outlasts it."""
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
) -> Leases:
    """Take the leases of clusters (id -> name), all or none; use what it returns as a context.

    With `some` it takes those that no other run holds, where there are any; the others are `busy`.

    `observed_since` is when the run began to observe its clusters: where another run has held a lease since, what the
    run judged must be judged again (`contended`). `request_timeout`: the longest that a request takes, in seconds.

    A lease is free when it was released, when it expired, and when its holder is a dead earlier start of the same run.
    An earlier start that may be alive, even in this process, is asked to stop and waited for. Raises LeaseHeld where
    another run holds a lease, unless `wait`; LeaseLost where `stop` is set while waiting. When it raises, it has given
    back every lease that it took; one that the storage won't take back expires.
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
                raise LeaseHeld(f"{holders(others)}. Nothing was sent; start run {run_id} again later, or with --wait")
            if not busy:
                if leases._take(rows):
                    leases._make_last()
                    return leases
                # Somebody was faster with one of them: what was taken is ours, what not will be seen now.
                continue
            # All or none: two runs that each hold what the other waits for would wait for ever.
            leases._give_back()
            if time.monotonic() - logged_at >= _LOG_AGAIN_SECONDS:
                logged_at = time.monotonic()
                log.warning("waiting: %s", holders(busy))
            for row in busy:
                if row["run_id"] == run_id and row["host"] is not None:
                    # Its holder's next renewal finds the row changed, and stops.
                    ledger.compare_and_set(LEASES, "cluster_id", [{**row, "host": None, "changes": row["changes"] + 1}])
            if stop.wait(_ASK_AGAIN_SECONDS):
                raise LeaseLost(f"run {run_id} was stopped while it waited for a lease; start it again with its id")
    except BaseException:
        leases._give_back()
        raise


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, TopicLedgerError) else repr(error)
