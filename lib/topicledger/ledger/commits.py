"""A run's commits: one after the other, beside what the run does meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Commits:
    """Makes commits in the order in which they were added, in a thread of its own.

    After one that failed none is made any more: what would follow from it must not stand without it.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "commits")
        self._last: Future[None] | None = None
        self._failed: BaseException | None = None

    def add(self, commit: Callable[[], object]) -> None:
        """Make a commit after those added before; `settle` raises what went wrong with it."""
        self._last = self._thread.submit(self._make, commit)

    def settle(self) -> None:
        """Returns when all that were added are made; raises what the first one that failed did."""
        if self._last is not None:
            self._last.result()

    def check(self) -> None:
        """Raises what the first one that failed did, without waiting for those under way."""
        if self._failed is not None:
            raise self._failed

    def _make(self, commit: Callable[[], object]) -> None:
        self.check()
        try:
            commit()
        except BaseException as error:
            self._failed = error
            raise
