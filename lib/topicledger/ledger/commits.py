"""A run's commits: one after the other, while the run continues."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Commits:
    """Makes commits in the order in which they were added, in its own thread.

    After a failed commit no more are made: later commits must not exist without it.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "commits")
        self._last: Future[None] | None = None
        self._failed: BaseException | None = None

    def add(self, commit: Callable[[], object]) -> None:
        """Make a commit after those added before; `settle` raises its exception."""
        self._last = self._thread.submit(self._make, commit)

    def settle(self) -> None:
        """Wait for all added commits; raises the exception of the first failed one."""
        if self._last is not None:
            self._last.result()

    def check(self) -> None:
        """Raise the exception of the first failed commit, without waiting for those under way."""
        if self._failed is not None:
            raise self._failed

    def _make(self, commit: Callable[[], object]) -> None:
        self.check()
        try:
            commit()
        except BaseException as error:
            self._failed = error
            raise
