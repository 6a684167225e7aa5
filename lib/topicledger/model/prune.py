"""The request of the command `prune`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

MAX_DAYS = 36_500
"""A hundred years; dates before the year 1 don't exist."""


@dataclass(frozen=True, kw_only=True)
class Prune:
    """A request to delete topics that no manifest names and that are idle."""

    patterns: Sequence[str]
    """RE2 patterns; at least one must match within the topic's name."""
    idle_days: int
    """Days since the topic was last written to."""

    def to_json(self) -> str:
        """Return the JSON text that `runs.arguments` keeps."""
        return json.dumps({"topics": sorted(set(self.patterns)), "idle_days": self.idle_days})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse what `to_json` returns."""
        found = json.loads(text)
        return cls(patterns=found["topics"], idle_days=found["idle_days"])
