"""Rows of `leases`: who holds which cluster, and whether another driver may take it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import functions as F

from topicledger.errors import TopicLedgerError
from topicledger.ledger.lease_holder import Holder
from topicledger.ledger.sql import collected_in_utc
from topicledger.ledger.tables import Ledger
from topicledger.schemas import LEASES
from topicledger.text import iso_time

_CLOCK_SKEW_SECONDS = 2.0
"""By how much the clocks of two drivers may differ."""


def read_rows(ledger: Ledger, clusters: Iterable[str]) -> list[dict[str, Any]]:
    """Return the rows of clusters, by id, with times in UTC."""
    return collected_in_utc(ledger.read(LEASES).where(F.col("cluster_id").isin(*clusters)))


def of_live(ledger: Ledger, run_id: str) -> list[dict[str, Any]]:
    """Return the leases that another driver of a run still holds, as far as is known."""
    if not ledger.exists(LEASES):
        return []
    here, now = Holder.here(run_id), datetime.now(UTC)
    held = ledger.read(LEASES).where((F.col("run_id") == run_id) & F.col("released_at").isNull())
    return [row for row in collected_in_utc(held) if not is_free(row, here, now)]


def is_free(row: Mapping[str, Any], here: Holder, now: datetime) -> bool:
    """Return whether `here` may take a lease: it was released, it expired, or its holder is a dead start of the run."""
    if row["released_at"] is not None or row["process"] == here.process:
        return True
    if now >= row["expires_at"] + timedelta(seconds=_CLOCK_SKEW_SECONDS):
        return True
    if row["run_id"] != here.run_id or row["host"] is None:
        return False
    return Holder(run_id=row["run_id"], host=row["host"], process=row["process"]).is_dead()


def since_death(row: Mapping[str, Any], now: datetime) -> float:
    """Return for how many seconds a holder that didn't release its lease has sent nothing, at least; else infinity.

    It may have been killed, so the cluster may still carry out one of its requests. `released` tells of it, too.
    """
    if row["released_at"] is not None and row["expires_at"] >= row["acquired_at"]:
        return math.inf
    expired: timedelta = now - row["expires_at"]
    return max(0.0, expired.total_seconds())


def released(row: Mapping[str, Any], now: datetime, since: float) -> Mapping[str, datetime]:
    """Return the columns that release a lease; `since`: `since_death` of the holder before, by now.

    If that one was killed, the lease is told to have expired then, before it was acquired. Otherwise the next holder
    wouldn't know that a request may still be on its way.
    """
    if math.isinf(since):
        return {"released_at": now}
    before: datetime = row["acquired_at"] - timedelta(microseconds=1)
    return {"released_at": now, "expires_at": min(now - timedelta(seconds=since), before)}


def held_since(row: Mapping[str, Any], run_id: str, observed_since: datetime) -> bool:
    """Return whether another run may have held a lease since then."""
    until = row["released_at"] or row["expires_at"]
    return bool(row["run_id"] != run_id and until + timedelta(seconds=_CLOCK_SKEW_SECONDS) >= observed_since)


def holders(rows: Sequence[Mapping[str, Any]]) -> str:
    """Describe for messages which runs hold leases, and until when."""
    return "; ".join(
        f"cluster {row['cluster']} (id {row['cluster_id']}) is being changed by run {row['run_id']}"
        + (f" on host {row['host']}, process {row['process'].split(' ')[2]}," if row["host"] else ",")
        + f" since {iso_time(row['acquired_at'])}; its lease holds until {iso_time(row['expires_at'])}"
        for row in rows
    )


def said(error: Exception) -> str:
    """Return an error for a log line."""
    return str(error) if isinstance(error, TopicLedgerError) else repr(error)
