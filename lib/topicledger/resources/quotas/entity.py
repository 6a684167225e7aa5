"""Client quotas: entities, and the text form of their names and limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

DEFAULT = "<default>"
"""Used instead of a name: everyone without quotas of their own."""
IP_LIMIT = "connection_creation_rate"
"""The only limit of an ip; no other entity has it (Q2)."""
WHOLE_LIMITS = ("producer_byte_rate", "consumer_byte_rate", IP_LIMIT)
"""Limits that are whole numbers (Q2)."""
ENTITY = ("user", "client_id", "ip")
LIMITS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    IP_LIMIT,
)
LEAST = 1e-18
"""The smallest limit; tables of changes have 18 decimal places."""
KAFKA_TYPES: Mapping[str, str] = {"user": "user", "client_id": "client-id", "ip": "ip"}
"""Kafka's name of each part of an entity, by ours."""

_TOKEN = re.compile(r"(?:\\.|[^\\ ])+", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_CALLED_DEFAULT = re.compile(r"\\*<default>")


class Entity(NamedTuple):
    """An entity with quotas: a user, a client id, both, or an ip; each a name, `<default>`, or None."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @classmethod
    def of_text(cls, text: str) -> Entity:
        """Parse an entity's text in `plans` and `audit`: see `rows.text_of`."""
        ours = {kind: name for name, kind in KAFKA_TYPES.items()}
        parts = (each.partition("=") for each in _TOKEN.findall(text))
        return cls(**{ours[kind]: _ESCAPED.sub(r"\1", name) for kind, _, name in parts})


def written(name: str | None) -> str:
    """Return Kafka's name as tables store it: None as `<default>`, a literal `<default>` with a backslash."""
    if name is None:
        return DEFAULT
    return f"\\{name}" if _CALLED_DEFAULT.fullmatch(name) else name


def kafka_name(name: str) -> str | None:
    """Return Kafka's name for a stored name; the inverse of `written`."""
    if name == DEFAULT:
        return None
    return name[1:] if _CALLED_DEFAULT.fullmatch(name) else name
