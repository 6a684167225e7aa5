"""What tests without a broker and without tables share."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def no_sleep() -> Callable[[float], None]:
    """A sleep that takes no time."""
    return lambda _: None
