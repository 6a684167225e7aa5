"""Lines of a listing: names with line breaks take several of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_MOST_TRIES = 100
"""Largest number of lines that are tried as the end of one entry, since each try reads the whole entry."""


def entries(
    text: str, *, begins: re.Pattern[str], ends: re.Pattern[str], is_whole: Callable[[str], bool]
) -> Iterator[tuple[int, str]]:
    """Yield each entry of a listing with its first line, joined if its names have line breaks; skip blank lines.

    `begins` matches the first line of an entry, `ends` is found in the last one. A line that isn't part of a whole
    entry is yielded as it is.
    """
    lines = [line.rstrip("\r ") for line in text.split("\n")]
    at = 0
    while at < len(lines):
        first, number = lines[at], at + 1
        at += 1
        if not first.strip():
            continue
        if begins.match(first) and not is_whole(first):
            tries = 0
            for end in range(at, len(lines)):
                if begins.match(lines[end]) or tries == _MOST_TRIES:
                    break
                if ends.search(lines[end]):
                    tries += 1
                    if is_whole(joined := "\n".join(lines[number - 1 : end + 1])):
                        first, at = joined, end + 1
                        break
        yield number, first
