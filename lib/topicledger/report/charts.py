"""Charts as numbers: the position of each piece of a bar, for the template to draw as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of a bar; start and size are hundredths of the chart's width (or height)."""

    name: str
    count: int
    start: float
    size: float


@dataclass(frozen=True, kw_only=True)
class Column:
    """One bar of a chart over time."""

    label: str
    x: float
    """Hundredths of the chart's width."""
    width: float
    pieces: Sequence[Piece]
    total: int


def bar(counts: Mapping[str, int], order: Sequence[str], whole: int | None = None) -> list[Piece]:
    """Lay out a stacked bar: pieces side by side, in order.

    The bar's length is its total as a share of `whole`, or the full width without `whole`. A piece is at least half a
    hundredth long, so that it stays visible.
    """
    total = sum(counts.values())
    whole = max(whole or total, total, 1)
    pieces: list[Piece] = []
    at = 0.0
    for name in order:
        count = counts.get(name, 0)
        if count:
            size = min(max(100 * count / whole, 0.5), 100 - at)
            pieces.append(Piece(name=name, count=count, start=round(at, 3), size=round(size, 3)))
            at += size
    return pieces


def timeline(seconds: Sequence[float]) -> list[list[Piece]]:
    """Lay out consecutive times: one bar each, with the time at its position in the whole."""
    whole, at, bars = max(sum(seconds), 0.001), 0.0, []
    for each in seconds:
        size = min(max(100 * each / whole, 0.5), 100 - at)
        bars.append([Piece(name="planned", count=round(each * 1000), start=round(at, 3), size=round(size, 3))])
        at = min(at + 100 * each / whole, 99.5)
    return bars


def columns(
    periods: Sequence[tuple[datetime, Mapping[str, int]]], order: Sequence[str], unit: str = "day"
) -> list[Column]:
    """Lay out one stacked column per period; the highest takes the full height. `unit`: as in `History`."""
    highest = max((sum(counts.values()) for _, counts in periods), default=0)
    step = 100 / max(len(periods), 1)
    return [
        Column(
            label=f"{began:%Y-%m-%dT%H:%MZ}" if unit == "hour" else f"{began:%Y-%m-%d}",
            x=round(number * step + step * 0.1, 3),
            width=round(step * 0.8, 3),
            pieces=bar(counts, order, highest),
            total=sum(counts.values()),
        )
        for number, (began, counts) in enumerate(periods)
    ]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a chart over time."""

    name: str
    points: str
    """Points as SVG's polyline has them: hundredths of the chart's width, and of its height from the top."""
    first: float | None
    """The first value that is known; None if there is none."""
    last: float | None


def lines(series: Mapping[str, Sequence[float | None]], places: Sequence[int], highest: float) -> list[Line]:
    """Lay out lines over the same places, such as days since the first one; `highest` takes the full height.

    A line begins at its first value that is known, and leaves out None, which is unknown.
    """
    width, height = max(places[-1] - places[0], 1), max(highest, 1)
    found = []
    for name, values in series.items():
        known = [(place, value) for place, value in zip(places, values, strict=True) if value is not None]
        points = " ".join(
            f"{100 * (place - places[0]) / width:.2f},{100 - 100 * value / height:.2f}" for place, value in known
        )
        ends = (known[0][1], known[-1][1]) if known else (None, None)
        found.append(Line(name=name, points=points, first=ends[0], last=ends[1]))
    return found
