"""Durations in options: a number, or a number with a unit."""

from __future__ import annotations

from typing import Any

import click

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_WORDS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


# Only newer versions of click take a type here.
class Duration(click.ParamType):  # type: ignore[type-arg]
    """A duration, converted to `unit`: `300s`, `5m`, `1h`, `1d`, or a number without a unit, which is in `unit`.

    `least`, `most`: limits in `unit`. `whole`: the value must be an integer in `unit`.
    """

    name = "duration"

    def __init__(self, unit: str, *, least: float, most: float = float("inf"), whole: bool = False) -> None:
        self.unit = unit
        self.least, self.most, self.whole = least, most, whole

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the duration in the type's unit; raises BadParameter if the text isn't one."""
        given = str(value)
        number = given.rstrip("smhd")
        try:
            seconds = float(number) * _SECONDS[given[len(number) :] or self.unit]
        except (KeyError, ValueError):
            seconds = float("nan")
        found = seconds / _SECONDS[self.unit]
        fits = self.least <= found <= self.most and found < float("inf")
        if not fits or (self.whole and found != int(found)):
            self.fail(f"{given} is not {self}: units are s, m, h and d, as in 7{self.unit}", param, ctx)
        return int(found) if self.whole else found

    def __str__(self) -> str:
        """Return what is accepted, in words."""
        most = "" if self.most == float("inf") else f" and at most {self.most:g}"
        whole = "in whole " if self.whole else "in "
        return f"a duration of at least {self.least:g}{most} ({whole}{_WORDS[self.unit]} without a unit)"
