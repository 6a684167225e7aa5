"""Waiting for a condition, bounded."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], bool], *, seconds: float, every: float = 0.1) -> None:
    """Return as soon as the condition holds; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        time.sleep(every)
