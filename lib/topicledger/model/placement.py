"""Rules for the brokers that may have a topic's replicas: `placement` of a manifest."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum


class PlacementKind(StrEnum):
    """The kinds of placement rules."""

    ANY = "any"
    """On any brokers."""
    RACKS = "racks"
    """Each replica of a partition in a rack of its own."""
    RACK = "rack"
    """All replicas in one rack: `rack:NAME`."""
    BROKERS = "brokers"
    """On these brokers only: `brokers:1,2,3`."""
    SPREAD = "spread"
    """Evenly over all brokers, in distinct racks if there are enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A rule for the replicas of each partition of a topic."""

    kind: PlacementKind = PlacementKind.ANY
    rack: str | None = None
    """The rack's name, for `rack`."""
    brokers: frozenset[int] = field(default_factory=frozenset)
    """The brokers' ids, for `brokers`."""

    def __str__(self) -> str:
        if self.kind is PlacementKind.RACK:
            return f"rack:{self.rack}"
        if self.kind is PlacementKind.BROKERS:
            return f"brokers:{','.join(map(str, sorted(self.brokers)))}"
        return self.kind.value


def allows(placement: Placement, broker: int, rack: str | None) -> bool:
    """Whether `placement` allows replicas on a broker in this rack."""
    if placement.kind is PlacementKind.RACK:
        return rack == placement.rack
    if placement.kind is PlacementKind.RACKS:
        return bool(rack)
    return placement.kind is not PlacementKind.BROKERS or broker in placement.brokers


def without(placement: Placement, broker: int) -> Placement:
    """Return the placement without this broker; unchanged if it names no other broker."""
    others = placement.brokers - {broker}
    return replace(placement, brokers=others) if others else placement


ANYWHERE = Placement()
"""The placement of a manifest that declares none."""


LEGAL = (
    r"any|racks|spread|brokers:[0-9]{1,9}(,[0-9]{1,9})*"
    r"|rack:[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*"
)
"""Regular expression of a whole placement, for Python and for Spark."""


def is_legal(text: str) -> bool:
    """Whether `parse_placement` accepts the text."""
    return re.fullmatch(LEGAL, text) is not None


def parse_placement(text: str) -> Placement:
    """Parse a placement. Raises ValueError for one that `manifests` refuses."""
    if not is_legal(text):
        raise ValueError(f"no such placement: {text}")
    name, _, rest = text.partition(":")
    kind = PlacementKind(name)
    if kind is PlacementKind.BROKERS:
        return Placement(kind=kind, brokers=frozenset(map(int, rest.split(","))))
    return Placement(kind=kind, rack=rest or None)
