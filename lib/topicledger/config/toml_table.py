"""A TOML table that is being checked: every problem is noted with its key."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from topicledger.text import nearest, show

_MAX_TIMEOUT_SECONDS = 2_147_483.0  # Kafka counts milliseconds in an int32
_MAX_AMOUNT = 1e12
REFERENCES = ("env:", "file:")
"""Prefixes of references; the name of a variable or the path of a file follows."""

HOLDS_A_SECRET = "holds a secret: give it as env:NAME or file:PATH"

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class TomlTable:
    """A TOML table being checked: reads return the value or a placeholder, and append errors to ``problems``."""

    def __init__(self, where: str, values: Mapping[str, object], problems: list[str]) -> None:
        self.where = where
        self.values = values
        self.problems = problems

    def key(self, name: str) -> str:
        """Return the full dotted name of a key, as TOML writes it."""
        written = name if _BARE_KEY.fullmatch(name) else json.dumps(show(name), ensure_ascii=False)
        return f"{self.where}.{written}" if self.where else written

    def problem(self, name: str, text: str) -> None:
        self.problems.append(f"`{self.key(name)}` {text}")

    def only(self, *known: str) -> None:
        for name in self.values:
            if name not in known:
                self.problems.append(f"unknown key `{self.key(name)}`; {nearest(name, known)}")

    def table(self, name: str, written: str | None = None) -> TomlTable:
        """Return a table, empty if the key is missing or wrong; `written`: its form in the file, by default [NAME]."""
        value = self.values.get(name, {})
        if not isinstance(value, dict):
            self.problem(name, f"must be a table, {written or f'[{self.key(name)}]'}, not {kind_of(value)}")
            value = {}
        return TomlTable(self.key(name), value, self.problems)

    def text(self, name: str) -> str | None:
        """Return a string that isn't empty; None if the key is missing or wrong."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            self.problem(name, f"must be a string, not {kind_of(value)}")
            return None
        if not value.strip():
            self.problem(name, "must not be empty")
            return None
        return value

    def reference(self, name: str, required: bool = False) -> str | None:
        """Return `env:NAME` or `file:PATH` of a secret; None if missing or wrong. Messages never repeat the value."""
        value = self.text(name)
        if value is None:
            if required and name not in self.values:
                self.problem(name, "is missing: give it as env:NAME or file:PATH")
            return None
        wrong = HOLDS_A_SECRET if not value.startswith(REFERENCES) else only_a_prefix(value)
        if wrong is not None:
            self.problem(name, wrong)
            return None
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of at least one string; empty if the key is missing or wrong."""
        value = self.values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not value or not all(isinstance(each, str) and each for each in value):
            self.problem(name, "must be a list of strings, at least one")
            return ()
        if not all(each.strip() for each in value):
            self.problem(name, "has a blank string, which stands for nothing")
            return ()
        return tuple(value)

    def patterns(self, name: str, *, some: bool = False) -> tuple[str, ...]:
        """Return a list of patterns (RE2), like `texts`; notes those that RE2 can't compile.

        `some`: notes those that match every name, too.
        """
        found = self.texts(name)
        if found:
            # The module takes long to import, and few settings need it.
            from topicledger.config import patterns
        for pattern in found:
            try:
                patterns.check(pattern)
                if some and patterns.matches_all(pattern):
                    self.problem(name, f"pattern {pattern!r} matches every name; match only what belongs to others")
            except ValueError as error:
                self.problem(name, str(error))
        return found

    def text_values(self, name: str) -> Mapping[str, str]:
        """Return a table of at least one string; empty if the key is missing or wrong."""
        value = self.values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict) or not value or not all(isinstance(each, str) for each in value.values()):
            self.problem(name, "must be a table of strings, at least one")
            return {}
        return value

    def integer(self, name: str, default: int, least: int, most: int, why: str = "") -> int:
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            self.problem(name, f"must be an integer, not {kind_of(value)}")
            return default
        if not least <= value <= most:
            self.problem(name, f"must be between {least} and {most}{why}")
            return default
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """Return true or false; `default` if the key is missing or wrong."""
        value = self.values.get(name, default)
        if not isinstance(value, bool):
            self.problem(name, f"must be true or false, not {kind_of(value)}")
            return default
        return value

    def choice(self, name: str, default: str, *known: str) -> str:
        """Return one of `known`; `default` if the key is missing or wrong."""
        value = self.values.get(name, default)
        if value not in known:
            shown = f'"{show(value)}"' if isinstance(value, str) else kind_of(value)
            self.problem(name, f"must be one of {', '.join(known)}, not {shown}")
            return default
        return str(value)

    def amount(self, name: str) -> float | None:
        """Return a number that isn't negative; None if the key is missing or wrong."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.problem(name, f"must be a number, not {kind_of(value)}")
            return None
        if not 0 <= value <= _MAX_AMOUNT:
            self.problem(name, f"must be between 0 and {_MAX_AMOUNT:.0f}")
            return None
        return float(value)

    def seconds(self, name: str, default: float, why: str = "") -> float:
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.problem(name, f"must be a number of seconds, not {kind_of(value)}")
            return default
        if not 0.001 <= value <= _MAX_TIMEOUT_SECONDS:
            self.problem(name, f"must be above 0 (from 0.001 to {_MAX_TIMEOUT_SECONDS:.0f} seconds){why}")
            return default
        return float(value)


def only_a_prefix(reference: str) -> str | None:
    """Return the problem of a reference without a name; None if it has a name."""
    return f"is only `{reference}`: the name of the variable or file is missing" if reference in REFERENCES else None


def kind_of(value: object) -> str:
    """Return a value's TOML type with its article, to be shown instead of the value, which may be a secret."""
    if isinstance(value, bool):
        return "a boolean"
    kinds = {str: "a string", int: "an integer", float: "a float", list: "a list", dict: "a table"}
    return kinds.get(type(value), "a date or time")
