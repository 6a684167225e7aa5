"""Ranges of numbers, in the settings of policies."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger.text import number_text


@dataclass(frozen=True)
class Range:
    """The settings `min` and `max` of a policy. Raises ValueError if they aren't a range of finite numbers."""

    min: float | None
    max: float | None
    above_zero: bool = False

    def __post_init__(self) -> None:
        for name, bound in (("min", self.min), ("max", self.max)):
            if bound is not None and not math.isfinite(bound):
                raise ValueError(f"{name} must be a finite number")
            if bound is not None and self.above_zero and bound <= 0:
                raise ValueError(f"{name} must be above 0")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("min must not be above max")

    def __str__(self) -> str:
        least, most = ("any" if bound is None else number_text(float(bound)) for bound in (self.min, self.max))
        return f"{least} to {most}"

    def excludes(self, value: Column) -> Column:
        """Return whether the number is outside."""
        outside = F.lit(False)
        if self.min is not None:
            outside = outside | (value < self.min)
        if self.max is not None:
            outside = outside | (value > self.max)
        return outside
