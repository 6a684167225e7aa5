"""How far a run's requests may have got: a durable mark for each batch, committed before the batch is sent (C18).

After a crash, only topics in a marked batch may be ours. Batches are marked one ahead, during the requests of the
previous batch, or up to `MOST_AHEAD` ahead if a cluster responds faster than commits are made.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from topicledger.ledger.run import EPOCH_STEP, Run
from topicledger.model import Target, Work
from topicledger.schemas import SENT_BATCHES

MOST_AHEAD = 4

_Batch = tuple[str, str, int]
"""Cluster, action, batch number as in `plans`."""


class SentBatches:
    """Marks batches of a run as sent before they are; `before` is for `dispatch.each_cluster`."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._work: Mapping[str, list[_Batch]] = {}
        self._ahead: dict[str, int] = {}
        self._lock = threading.Lock()
        self._marked: dict[_Batch, Future[None]] = {}
        self._waiting: list[_Batch] = []
        self._commits = 0
        self._failed: BaseException | None = None
        self._thread = ThreadPoolExecutor(1, "sent-batches")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._thread.shutdown(wait=True)

    def begin(self, work: Work) -> None:
        """Begin to mark the first batch of each cluster of `work`, in one commit."""
        self._work = {
            name: [_batch(name, targets[0]) for targets in batches] for name, (_, batches) in work.items() if batches
        }
        self._mark(*(batches[0] for batches in self._work.values()))

    def before(self, cluster: str, number: int) -> None:
        """Wait until a batch is marked, and begin to mark the next one; raises the exception of a failed commit."""
        batches, ahead = self._work[cluster], self._ahead.get(cluster, 1)
        self._mark(*batches[number : number + 1 + ahead])
        marked = self._marked[batches[number]]
        if number and not marked.done():
            # The cluster was faster: mark more batches per commit.
            self._ahead[cluster] = min(2 * ahead, MOST_AHEAD)
        marked.result()

    def _mark(self, *batches: _Batch) -> None:
        with self._lock:
            new = [each for each in batches if each not in self._marked]
            if new:
                self._waiting += new
                # One commit includes all batches that are waiting when it begins.
                self._marked |= dict.fromkeys(new, self._thread.submit(self._commit))

    def _commit(self) -> None:
        if self._failed is not None:
            raise self._failed
        with self._lock:
            batches, self._waiting = self._waiting, []
        try:
            if batches:
                self._append(batches)
        except BaseException as error:
            self._failed = error
            raise

    def _append(self, batches: Sequence[_Batch]) -> None:
        run = self._run
        common = {"run_id": run.run_id, "epoch": run.epoch, "marked_at": datetime.now(UTC)}
        rows = [{**common, "cluster": cluster, "action": action, "batch": batch} for cluster, action, batch in batches]
        self._commits += 1
        version = run.epoch * EPOCH_STEP + self._commits
        run.ledger.append(SENT_BATCHES, run.ledger.rows(SENT_BATCHES, rows), app_id=run.run_id, version=version)


def _batch(cluster: str, target: Target) -> _Batch:
    return cluster, target.action, target.batch
