"""Patterns of topic names in RE2, which matches in linear time whatever the pattern.

Spark's own `rlike` uses Java's engine, which can take exponential time. RE2 has no backreferences and no lookaround,
and reports patterns that use them. A pattern may match anywhere in the name, as with grep; `^` and `$` anchor it.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger.arrow import over_arrow

# Each character that topic names can have, alone and many times: a pattern that matches these matches every name.
_NAMES = [each * times for each in f"{string.ascii_letters}{string.digits}._-" for times in (1, 100)]


def check(pattern: str) -> None:
    """Raise ValueError if RE2 can't compile a pattern."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern=pattern)
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        raise ValueError(f"pattern {pattern!r} is not valid in RE2: {reason}") from None


def matches_all(pattern: str) -> bool:
    """Return whether a legal pattern matches anywhere in every name, as `-changelog$|`, `x*` and `.+` do."""
    return all(pc.match_substring_regex(pa.array(_NAMES), pattern=pattern).to_pylist())


def matches(column: str, pattern: str) -> Column:
    """Return a boolean column: whether the string column matches; null if it is null."""
    check(pattern)

    def match(names: pa.Array) -> pa.Array:
        return pc.match_substring_regex(names, pattern=pattern)

    return over_arrow(match, "boolean", column)


def any_matches(column: str, patterns: Sequence[str]) -> Column:
    """Return a boolean column: whether the string column matches any of the patterns; false if there are none."""
    return reduce(lambda found, pattern: found | matches(column, pattern), patterns, F.lit(False))
