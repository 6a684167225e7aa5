"""Durations in options: a number, or a number with a unit."""

from __future__ import annotations

from typing import Any

import click

from topicledger.model.prune import MAX_DAYS

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_WORDS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


# Only newer versions of click take a type here.
class Duration(click.ParamType):  # type: ignore[type-arg]
    """A duration, converted to `unit`: `300s`, `5m`, `1h`, `1d`, or a number without a unit, which is in `unit`.

    `least`: the shortest, in `unit`; the longest is `MAX_DAYS`. `whole`: the value must be an integer in `unit`.
    """

    name = "duration"

    def __init__(self, unit: str, *, least: float, whole: bool = False) -> None:
        self.unit = unit
        self.least, self.most, self.whole = least, MAX_DAYS * _SECONDS["d"] // _SECONDS[unit], whole

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the duration in the type's unit; raises BadParameter if the text isn't one."""
        given = str(value)
        number = given.rstrip("smhd")
        try:
            seconds = float(number) * _SECONDS[given[len(number) :] or self.unit]
        except (KeyError, ValueError):
            seconds = float("nan")
        found = seconds / _SECONDS[self.unit]
        fits = self.least <= found <= self.most
        if not fits or (self.whole and found != int(found)):
            self.fail(f"{given} is not {self}: units are s, m, h and d, as in 7{self.unit}", param, ctx)
        return int(found) if self.whole else found

    def __str__(self) -> str:
        """Return what is accepted, in words."""
        whole = "in whole " if self.whole else "in "
        limits = f"at least {self.least:g} and at most {self.most}"
        return f"a duration of {limits} ({whole}{_WORDS[self.unit]} without a unit)"
