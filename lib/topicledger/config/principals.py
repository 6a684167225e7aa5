"""Principals in the settings: a text that isn't one matches nothing, so it would protect nobody."""

from __future__ import annotations

import re

from topicledger.config.toml_table import REFERENCES, TomlTable
from topicledger.text import show

_USER = "User"
_TYPED = re.compile(r"(?P<type>[A-Za-z][A-Za-z0-9_-]*):(?P<name>.+)", re.DOTALL)
_SEVERAL = re.compile(rf"[\s,;|]\s*{_USER}:")
TYPED = "^(?i:user|group):"
"""Matches a user's name that begins with a principal's type, in Python as in Spark."""


def read_principal(table: TomlTable, name: str) -> str | None:
    """Return a principal; None if the key is missing or wrong."""
    value = table.text(name)
    return value if value is None or _is_principal(table, name, value) else None


def read_principals(table: TomlTable, name: str) -> tuple[str, ...]:
    """Return a list of at least one principal; empty if the key is missing. Notes each text that isn't one."""
    return tuple(each for each in table.texts(name) if _is_principal(table, name, each))


def _is_principal(table: TomlTable, name: str, value: str) -> bool:
    why = _why_not(value)
    if why is not None:
        table.problem(name, why)
    return why is None


def _why_not(value: str) -> str | None:
    if value.startswith(REFERENCES):
        # A resolved one would be shown in messages, and the file may hold a password.
        return "can't be an env: or file: reference, since principals are shown in messages: write it as User:NAME"
    shown, found = f'"{show(value)}"', _TYPED.fullmatch(value)
    if value != value.strip():
        return f"{shown} has blanks around it"
    if _SEVERAL.search(value):
        return f"{shown} has several principals: write one per entry"
    if found is None:
        return f"{shown} isn't TYPE:NAME, as brokers write principals, such as User:admin"
    kind, who = found["type"], found["name"]
    if who != who.strip():
        return f"{shown} has blanks around its name"
    if kind != _USER and kind.casefold() == _USER.casefold():
        return f"{shown} would match nothing: brokers write {_USER}:"
    if re.match(TYPED, who):
        return f"{shown} has two types: write {_USER}: once"
    if "*" in who and who != "*":
        return f"{shown} isn't a pattern, since brokers compare it as text: write each name"
    return None
