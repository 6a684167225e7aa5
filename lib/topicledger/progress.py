"""Progress for people: a bar on stderr where it is a terminal, log lines where it isn't."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

log = logging.getLogger(__name__)


class Progress:
    """Shows the phase under way."""

    def __init__(self, *, shown: bool | None = None) -> None:
        self._shown = sys.stderr.isatty() if shown is None else shown

    @contextmanager
    def phase(self, name: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """Within it, `name` is under way; yields a function that adds to what of `total` is done."""
        log.info("phase %s%s", name, f": {total}" if total is not None else "")
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
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(name, total=total)
            yield lambda done: bar.advance(task, done)
