"""Progress for people: a bar if stderr is a terminal, else log lines.

"Quota" means Kafka's controller mutation quota here (KIP-599).
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.text import Text

from topicledger.kafka.sending import QuotaWait
from topicledger.text import duration

log = logging.getLogger(__name__)


class _BarWithNotes(Bar):
    """A bar, and below it a line for each cluster that the run waits for."""

    notes: tuple[str, ...] = ()

    def show_below(self, notes: tuple[str, ...]) -> None:
        self.notes = notes

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        for note in self.notes:
            yield Text(note)


class Progress:
    """Shows the phase under way, and the clusters that the run waits for. Thread-safe."""

    def __init__(
        self, *, shown: bool | None = None, every: float = 30.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`every`: seconds between two log lines about the same cluster's quota, if no bar is shown."""
        self.took: dict[str, float] = {}
        """Phase -> seconds so far, by `clock`."""
        self.waited: dict[str, float] = {}
        """Cluster -> seconds of waiting for its quota."""
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._every = every
        self._clock = clock
        self._lock = threading.Lock()
        self._waits: dict[str, str] = {}
        self._logged: dict[tuple[str, bool], float] = {}
        self._bar: _BarWithNotes | None = None

    @contextmanager
    def phase(self, name: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """Context of phase `name`; yields a function that adds to the number of items done, of `total`."""
        log.info("phase %s%s", name, f": {total}" if total is not None else "")
        began = self._clock()
        try:
            with self._bar_for(name, total) as advance:
                yield advance
        finally:
            self.took[name] = self.took.get(name, 0.0) + self._clock() - began

    @contextmanager
    def _bar_for(self, name: str, total: int | None) -> Iterator[Callable[[int], None]]:
        if not self._shown:
            yield lambda done: None
            return
        columns = (
            TextColumn("{task.description:>9}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with _BarWithNotes(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(name, total=total)
            with self._lock:
                self._bar = bar
            try:
                yield lambda done: bar.advance(task, done)
            finally:
                with self._lock:
                    self._bar = None

    def wait(self, cluster: str, wait: QuotaWait | None) -> None:
        """Show a wait for a cluster's quota (C17); None when it is over."""
        with self._lock:
            if wait is None:
                self._waits.pop(cluster, None)
            else:
                self.waited[cluster] = self.waited.get(cluster, 0.0) + wait.seconds
                self._waits[cluster] = f"{cluster} waits for its quota: {_described(wait)}"
            if self._bar is not None:
                self._bar.show_below(tuple(self._waits.values()))
            elif wait is not None and not self._shown:
                # The first line with a known rate is logged at once.
                now, key = self._clock(), (cluster, wait.rate is None)
                if now - self._logged.get(key, float("-inf")) >= self._every:
                    self._logged[key] = now
                    log.info("cluster %s", self._waits[cluster])


def _described(wait: QuotaWait) -> str:
    if wait.rate is None or wait.eta is None:
        return f"{wait.left} topics left"
    return f"{wait.rate:.3g} partitions/s, {wait.left} topics left, about {duration(round(wait.eta))}"
