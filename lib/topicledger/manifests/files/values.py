"""The few values that all formats become, and the words for them in errors.

Numbers keep the text they were written as, so that a config never changes on its way to Kafka; what could be read in
two ways is a surprise, which its author has to write otherwise.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import TypeAlias

from topicledger.text import show


@dataclass(frozen=True, slots=True)
class Number:
    """A number that has one way to be written, as it was written."""

    text: str
    integer: bool


@dataclass(frozen=True, slots=True)
class Surprise:
    """A scalar that means something else than it seems to, and what to write instead."""

    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Key:
    """A mapping's key: its text, and what it is if not simply text."""

    text: str
    problem: str | None = None


@functools.lru_cache(maxsize=4096)
def text_key(text: str) -> Key:
    """A key that is simply text; shared, since a hundred thousand topics have the same few."""
    return Key(text)


@dataclass(slots=True)
class Object:
    """A mapping; ``duplicates`` are keys that were written again."""

    pairs: list[tuple[Key, Value, int]] = field(default_factory=list)
    """Key, value, line (0 where the format doesn't say)."""
    duplicates: list[tuple[str, int]] = field(default_factory=list)
    """Key, line of the repetition."""
    line: int = 0


Value: TypeAlias = "str | bool | Number | Surprise | Object | list[Value] | None"

TEMPLATE = re.compile(r"\{\{|\{%|\$\{")
TEMPLATE_HINT = "has a placeholder of a template; let its tool fill it in first"
_NAME = re.compile(r"\w[\w./ -]*")
_LONGEST_NAME = 64
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)\.(?:0|[0-9]*[1-9])")


@functools.lru_cache(maxsize=4096)
def plain_number(text: str) -> Number | None:
    """A number written in the one way that says itself: no exponent, sign, separators or zeros to spare."""
    if _INTEGER.fullmatch(text):
        return Number(text, integer=True)
    if _DECIMAL.fullmatch(text) and text != "-0.0":
        return Number(text, integer=False)
    return None


def kind_of(value: Value) -> str:
    """The value in the words of an error: "must be an integer, not {kind_of(value)}"."""
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, str):
        return f'the string "{show(value)}"'
    if isinstance(value, Surprise):
        return f"`{show(value.text)}`"
    if isinstance(value, Number):
        return f"the number {show(value.text)}"
    if isinstance(value, Object):
        return "a mapping"
    return "null" if value is None else "a list"


def type_of(value: Value) -> str:
    """What a value is, without its text: it may be of a file that is no manifest at all, such as a secret."""
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str | Surprise):
        return "a string"
    return "a number" if isinstance(value, Number) else kind_of(value)


def named(name: str) -> str:
    """A key or column for an error, `...` where it doesn't look like a name: a file may hold secrets, not topics."""
    return name if len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) else "..."


def describe(value: Value) -> str:
    """What a value is that should have been a list or mapping; of a surprise, why it is none."""
    return value.reason if isinstance(value, Surprise) else kind_of(value)
