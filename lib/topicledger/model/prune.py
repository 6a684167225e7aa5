"""What `prune` asks for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

MAX_DAYS = 36_500
"""A hundred years: a day before the year 1 is no date."""


@dataclass(frozen=True, kw_only=True)
class Prune:
    """A request to delete topics that no manifest names and nobody used for a while."""

    patterns: Sequence[str]
    """RE2: one of them has a match in the topic's name."""
    idle_days: int
    """For how long nobody wrote to the topic."""

    def to_json(self) -> str:
        """As `runs.arguments` keeps it."""
        return json.dumps({"topics": sorted(set(self.patterns)), "idle_days": self.idle_days})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `to_json`."""
        found = json.loads(text)
        return cls(patterns=found["topics"], idle_days=found["idle_days"])
