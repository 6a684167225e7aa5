"""Where a topic's replicas are to be: `placement` of a manifest."""

from __future__ import annotations

from dataclasses import dataclass, field
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
    """Evenly over all brokers, in distinct racks where there are enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A rule for the replicas of each partition of a topic."""

    kind: PlacementKind = PlacementKind.ANY
    rack: str | None = None
    """Of `rack`: its name."""
    brokers: frozenset[int] = field(default_factory=frozenset)
    """Of `brokers`: their ids."""

    def __str__(self) -> str:
        if self.kind is PlacementKind.RACK:
            return f"rack:{self.rack}"
        if self.kind is PlacementKind.BROKERS:
            return f"brokers:{','.join(map(str, sorted(self.brokers)))}"
        return self.kind.value


ANYWHERE = Placement()
"""What a manifest without a placement asks for."""


def parse_placement(text: str) -> Placement:
    """The rule that a text stands for. Raises ValueError for one that `manifests` refuses."""
    name, colon, rest = text.partition(":")
    if name == PlacementKind.RACK and rest.strip():
        return Placement(kind=PlacementKind.RACK, rack=rest)
    if name == PlacementKind.BROKERS and rest:
        return Placement(kind=PlacementKind.BROKERS, brokers=frozenset(map(int, rest.split(","))))
    if colon or name in (PlacementKind.RACK, PlacementKind.BROKERS):
        raise ValueError(f"no such placement: {text}")
    return Placement(kind=PlacementKind(name))
