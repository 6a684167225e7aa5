"""Helpers for messages: suggest the nearest known name, and make outside text safe to print."""

from __future__ import annotations

import difflib
import functools
import json
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

_LISTED = 20
_NEAR = 0.7
"""Lowest difflib ratio of similar names: `mian` and `main` have 0.75, `manage` and `main` 0.6."""
_HINTS = 5_000
"""Hints to keep: aliases in a file can repeat a mapping of wrong names thousands of times."""
_SHOWN_CHARACTERS = 120
MESSAGE_CHARACTERS = 2_000
"""Longest message in a terminal cell, a report's result or a diff."""
_NAMED = 3
FORMAT_VERSION = 1
"""The format of every result document."""
SHOWN_FAILURES = 20
"""Failed rows that a summary shows; tables and reports have all of them."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown ``name``: "did you mean `x`?", or else the known names; "" if there are none."""
    return _nearest(name, tuple(known))


def similar(name: str, known: Iterable[str]) -> str:
    """Return "did you mean `x`?" for a name that may be misspelt; "" if no known name is similar."""
    return _similar(name, tuple(known))


@functools.lru_cache(maxsize=_HINTS)
def _nearest(name: str, known: tuple[str, ...]) -> str:
    names = sorted(set(known))
    if not names:
        return ""
    return similar(name, names) or f"known: {listed([f'`{show(each)}`' for each in names], most=_LISTED)}"


@functools.lru_cache(maxsize=_HINTS)
def _similar(name: str, known: tuple[str, ...]) -> str:
    by_folded = {each.casefold(): each for each in sorted(known)}
    near = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=_NEAR)
    return f"did you mean `{show(by_folded[near[0]])}`?" if near else ""


def show(text: str, most: int = _SHOWN_CHARACTERS) -> str:
    """Return ``text`` on one line: control and other invisible characters escaped, cut after ``most``."""
    cut = text if len(text) <= most else text[: most - 3] + "..."
    if cut.isprintable():
        return cut
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)


def printable(text: str) -> str:
    """Escape every control character of ``text`` except line breaks, so that none can act on a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def plain(text: str) -> str:
    """Escape control characters and markup in outside text for `Console.print`; line breaks are kept."""
    return escape(printable(text))


def console(piped: int) -> Console:
    """Return a console on stdout, as wide as the terminal or `piped` columns. It keeps `:smile:` in a name as text."""
    return Console(width=None if sys.stdout.isatty() else piped, emoji=False, highlight=False)


def listed(
    names: Sequence[str], count: int | None = None, *, most: int = _NAMED, between: str = ", ", at_least: bool = False
) -> str:
    """Return the first names, by default three, and how many of `count` follow: `a, b, c and 9 more`.

    `at_least`: whether more than `count` may follow.
    """
    shown = names[:most]
    more = (len(names) if count is None else count) - len(shown)
    return between.join(shown) + (f" and {'at least ' if at_least else ''}{more:,} more" if more > 0 else "")


def counted(count: int, what: str) -> str:
    """Return a number of things: `1 topic`, `1,000 topics`."""
    return f"1 {what}" if count == 1 else f"{count:,} {what}s"


def first_of(shown: int, count: int) -> str:
    """Return a note below a list that isn't complete: `the first 20 of 1,000`."""
    return f"the first {shown:,} of {count:,}"


def grid_of(*names: str, title: str | None = None, numbers: Collection[str] = (), whole: Collection[str] = ()) -> Table:
    """Return a table for the terminal. Long cells are folded, except in `whole`; columns `numbers` end at the right."""
    grid = Table(title=title, title_justify="left")
    for name in names:
        if name in numbers:
            grid.add_column(name, justify="right")
        else:
            grid.add_column(name, overflow="fold", no_wrap=name in whole)
    return grid


def print_first(console: Console, names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print the first rows as a table with columns `names`, and a note if there are more of them."""
    grid = grid_of(*names)
    for row in rows[:SHOWN_FAILURES]:
        grid.add_row(*map(cell, row))
    console.print(grid)
    if len(rows) > SHOWN_FAILURES:
        console.print(f"{first_of(SHOWN_FAILURES, len(rows))}; all of them: --format json")


def any_of(names: Sequence[str]) -> str:
    """Return names as alternatives: `a`, `a or b`, `a, b or c`."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def alike(message: str | None, name: str | None) -> str:
    """Return a message with the whole name masked: messages that differ only in the name compare as equal.

    A short name, such as `a`, stays within other words.
    """
    if not message or not name or name not in message:
        return message or ""
    return re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", "#", message)


def iso_time(moment: datetime) -> str:
    """Format `moment` as ISO 8601 in UTC, to the second.

    A moment without a zone is in this process's own zone, as PySpark's are.
    """
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def duration(seconds: float) -> str:
    """0.4 -> 0.40 s; 83 -> 1 min 23 s; 7260 -> 2 h 1 min. An int has no parts of a second."""
    if seconds < 10 and isinstance(seconds, float):
        return f"{seconds:.2f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} days"


def utc_time(text: str) -> datetime:
    """Parse an ISO 8601 date, or date and time, as UTC if it has no offset; raises ValueError."""
    found = datetime.fromisoformat(text)
    try:
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(str(error)) from None


def document(exit_code: int, content: Mapping[str, object], indent: int | None = 2) -> str:
    """Return a command's result as JSON, with the version of its format and the command's exit code."""
    result = {"format_version": FORMAT_VERSION, "exit_code": int(exit_code), **content}
    return json.dumps(result, default=json_value, indent=indent)


def json_array(items: Iterable[str]) -> Iterator[str]:
    """Yield a JSON array in pieces, one item (JSON) a line."""
    between = "["
    for item in items:
        yield f"{between}\n{item}"
        between = ","
    yield "[]\n" if between == "[" else "\n]\n"


def json_value(value: object) -> str:
    """Return text for a value that JSON has no type for: a moment as ISO 8601 in UTC, with all its digits."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return str(value)


def cell(value: object) -> str:
    """Return outside text for a terminal cell: control characters and markup can't act."""
    return "" if value is None else escape(show(str(value), MESSAGE_CHARACTERS))


def number_text(value: float) -> str:
    """Return a number without an exponent: `1000`, `0.00001`."""
    return format(Decimal(repr(value)), "f").removesuffix(".0")
