"""The brokers a topic's replicas must be on: `placement` of a manifest."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum


class PlacementKind(StrEnum):
    """The rules to choose from."""

    ANY = "any"
    """Wherever they are."""
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
    """Whether a broker of this rack may have replicas."""
    if placement.kind is PlacementKind.RACK:
        return rack == placement.rack
    return placement.kind is not PlacementKind.BROKERS or broker in placement.brokers


def without(placement: Placement, broker: int) -> Placement:
    """The same where other brokers than this one are named."""
    others = placement.brokers - {broker}
    return replace(placement, brokers=others) if others else placement


ANYWHERE = Placement()
"""The placement of a manifest that declares none."""


LEGAL = (
    r"any|racks|spread|brokers:[0-9]{1,9}(,[0-9]{1,9})*"
    r"|rack:[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*"
)
"""A placement in whole, for Python and for Spark."""


def is_legal(text: str) -> bool:
    """Whether `parse_placement` knows it."""
    return re.fullmatch(LEGAL, text) is not None


def parse_placement(text: str) -> Placement:
    """The rule that a text stands for. Raises ValueError for one that `manifests` refuses."""
    if not is_legal(text):
        raise ValueError(f"no such placement: {text}")
    name, _, rest = text.partition(":")
    kind = PlacementKind(name)
    if kind is PlacementKind.BROKERS:
        return Placement(kind=kind, brokers=frozenset(map(int, rest.split(","))))
    return Placement(kind=kind, rack=rest or None)
