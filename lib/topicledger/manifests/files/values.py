"""The few kinds of values that all formats are converted to, and their descriptions in errors.

Numbers keep the text as written, so that a config never changes on its way to Kafka. A scalar that could be read in two
ways is a `Surprise`, which its author must write differently.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TypeAlias

from topicledger.model.config_texts import BLANKS, ConfigTextError, stored
from topicledger.text import show


@dataclass(frozen=True, slots=True)
class Number:
    """A number in its only plain form, as written."""

    text: str
    integer: bool


@dataclass(frozen=True, slots=True)
class Surprise:
    """A scalar with a surprising meaning, and what to write instead."""

    text: str
    reason: str


class Filled(str):
    """A text that no quotes make a text: with values of variables in it, or a cell; other fields take `filled`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Key:
    """A mapping's key: its text, and its problem if it isn't plain text."""

    text: str
    problem: str | None = None


@functools.lru_cache(maxsize=4096)
def text_key(text: str) -> Key:
    """Return a plain text key; keys are shared, since many thousands of topics have the same few keys."""
    return Key(text)


@dataclass(slots=True)
class Object:
    """A mapping, with its duplicate keys."""

    pairs: list[tuple[Key, Value, int]] = field(default_factory=list)
    """(key, value, line); the line is 0 if the format doesn't report it."""
    duplicates: list[tuple[str, int]] = field(default_factory=list)
    """(key, line of the repetition)."""
    line: int = 0

    @property
    def names(self) -> set[str]:
        return {key.text for key, _, _ in self.pairs}


UNSET, REMOVED = Surprise("null", "is null"), Surprise("null", "is null in an override")
"""Null for a config or a label in an override: it removes what weaker levels give. `REMOVED`: what its
entry gives."""
Value: TypeAlias = "str | bool | Number | Surprise | Object | list[Value] | None"


class Lines(list["Value"]):
    """A list with the line of each item."""

    __slots__ = ("lines",)

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[int] = []


TEMPLATE = re.compile(r"\{\{|\{%|\$\{|<%")
_PLACEHOLDER = re.compile(
    r"(?<![^\s,:=\[{\"'])(?:\{\{.*?\}\}|\{%.*?%\}|<%.*?%>|\[\[[^\[\]]*\]\]|\$\(\w[\w.]*\)|@\w[\w.-]*@|%\w[\w.]*%"
    r"|\$\{[^{}]*\})"
    r"(?![^\s,\]}\"'])"
)
"""A placeholder that is a whole value; beside others, texts in these brackets may be meant as they are."""
ANY_PLACEHOLDER = f"{TEMPLATE.pattern}|{_PLACEHOLDER.pattern}"
"""Both in one text, for Java as well."""
TEMPLATE_HINT = "contains a template placeholder; render the template first"
_WORD = re.compile(r"[.$]?\w[\w.$ -]*")
_LONGEST_LINE = 1_000
"""Characters of a line in which placeholders are searched."""
_NAME = re.compile(r"\w[\w./ -]*")
_LONGEST_NAME = 64
_EXPONENT = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{0,20})?[eE]\+?[0-9]{1,2}", re.ASCII)
UNUSUAL_BLANK = r"[^\S \t\r\n]|[\u200b\ufeff]"
"""Matches a blank that people take for an ordinary one, and YAML and numbers don't."""
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)\.(?:0|[0-9]*[1-9])")


def is_template(value: Value) -> bool:
    """Return whether a value that is wrong has a template's placeholder; YAML reads `[[ x ]]` as a list in a list."""
    match value:
        case [[str(text)]]:
            return bool(_WORD.fullmatch(text))
        case str(text) | Surprise(text=text):
            return bool(TEMPLATE.search(text) or _PLACEHOLDER.fullmatch(text.strip()))
    return False


@functools.lru_cache(maxsize=4096)
def _any_placeholder(text: str) -> bool:
    return bool(TEMPLATE.search(text) or _PLACEHOLDER.search(text))


def template_hint(value: Value, otherwise: str = "") -> str:
    """Return what to add to a message about a wrong value that has a template's placeholder."""
    return f": it {TEMPLATE_HINT}" if is_template(value) else otherwise


def placeholder_hint(texts: Iterable[tuple[str, str]], message: str) -> str:
    """Return what to add to a message that names or shows one of these texts with a placeholder."""
    found = (name in message or show(text) in message for name, text in texts if _any_placeholder(text))
    return f": it {TEMPLATE_HINT}" if any(found) else ""


def plain_digits(value: Value, below: int) -> str:
    """Return a hint for a value that should be a number above 0 and `below` this one."""
    if isinstance(value, Surprise) and "${" in value.text:
        return f": {value.reason}"
    text = value.text if isinstance(value, Surprise | Number) else value
    if not isinstance(text, str):
        return template_hint(value)
    quoted = "" if isinstance(value, Filled | Surprise | Number) else ", not quoted"
    if _EXPONENT.fullmatch(text) and 0 < (number := Decimal(text)) < below and number == number.to_integral_value():
        return f"; write {int(number)}{quoted}"
    return template_hint(value, f"; write plain digits{quoted}")


def template_at(line: str, column: int) -> bool:
    """Return whether a placeholder covers a column (from 0) of a line."""
    return any(found.start() <= column <= found.end() for found in _PLACEHOLDER.finditer(line[:_LONGEST_LINE]))


@functools.lru_cache(maxsize=4096)
def plain_number(text: str) -> Number | None:
    """Return a number in plain form, without exponent, plus sign, separators or extra zeros; else None."""
    if _INTEGER.fullmatch(text):
        return Number(text, integer=True)
    if _DECIMAL.fullmatch(text) and text != "-0.0":
        return Number(text, integer=False)
    return None


def filled(value: Value) -> Value:
    """Return the number or boolean that a text with variables became, if it became one."""
    if not isinstance(value, Filled):
        return value
    return value == "true" if value in ("true", "false") else plain_number(value) or value


@functools.lru_cache(maxsize=4096)
def config_key(name: str) -> str:
    """Return what all spellings of a config's name have in common."""
    return name.strip(BLANKS).casefold().replace("_", ".").replace("-", ".")


def removes(item: Value) -> bool:
    """Whether a config or a label is null in an override."""
    return item is UNSET or item is REMOVED


def unset_in(value: Value) -> dict[str, int | None]:
    """Return the keys of a mapping that an override removes: the line, or None if the mapping itself had the key."""
    if not isinstance(value, Object):
        return {}
    return {key.text: line if item is UNSET else None for key, item, line in value.pairs if removes(item)}


def kind_of(value: Value) -> str:
    """Describe a value for an error: "must be an integer, not {kind_of(value)}"."""
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, str):
        found = re.search(UNUSUAL_BLANK, value)
        return f'the string "{show(value)}"{f" with {unusual_blank(found[0])}" if found else ""}'
    if isinstance(value, Surprise):
        return f"`{show(value.text)}`"
    if isinstance(value, Number):
        return f"the number {show(value.text)}"
    if isinstance(value, Object):
        return "a mapping"
    return "null" if value is None else "a list"


def unusual_blank(blank: str) -> str:
    """Name a blank that nobody sees: "an unusual blank (U+00A0)"."""
    return f"an unusual blank (U+{ord(blank):04X})"


def type_of(value: Value) -> str:
    """Describe a value's type without its text, since the file may not be a manifest but a secret."""
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str | Surprise):
        return "a string"
    return "a number" if isinstance(value, Number) else kind_of(value)


def named(name: str) -> str:
    """Return a key or column for an error, or `...` if it isn't like a name, since a file may contain secrets."""
    return name if len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) else "..."


def describe(value: Value) -> str:
    """Describe a value that should be a list or mapping; give the reason of a surprise, or name a placeholder."""
    return f"{kind_of(value)}{f': {value.reason}' if isinstance(value, Surprise) else template_hint(value)}"


def advised(config: str, value: Surprise) -> str:
    """Return a surprise's reason; without the advice to quote it if no Kafka accepts the quoted value either."""
    try:
        stored(config, value.text)
    except ConfigTextError as error:
        what_to_write = str(error).partition("; ")[2]
        if what_to_write and not is_template(value):
            return f"{value.reason.partition('; ')[0]}; {what_to_write}"
    return value.reason
