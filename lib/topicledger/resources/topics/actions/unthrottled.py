"""Moves without the throttle that they need, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from topicledger.errors import ClusterError
from topicledger.model.moves import BROKER, TOPIC, Move

Resource: TypeAlias = tuple[str, str]
"""Resource type, resource."""
_WITHOUT = "with replicas.throttle = 0 it moves without a throttle"


class ThrottleRefused(ClusterError):
    """Raised if the cluster refuses to remove a throttle."""


@dataclass(frozen=True, kw_only=True)
class Unthrottled:
    """Topics without the throttle that their moves need; no more of their moves are begun."""

    refused: Mapping[str, str] = field(default_factory=dict)
    """Topic -> why the cluster sets no throttle."""
    silent: Mapping[str, str] = field(default_factory=dict)
    """Topic -> why the outcome is unknown now; a later start may set the throttle."""

    @property
    def topics(self) -> frozenset[str]:
        return frozenset({*self.refused, *self.silent})


@dataclass
class Without:
    """Resources -> why they have no throttle."""

    refused: dict[Resource, str] = field(default_factory=dict)
    untold: dict[Resource, str] = field(default_factory=dict)
    """Topics about which brokers answer only errors."""
    silent: dict[Resource, str] = field(default_factory=dict)

    def of(self, moves: Sequence[Move]) -> Unthrottled:
        """Return the topics among `moves` that need one of these resources."""
        refused, silent = dict[str, str](), dict[str, str]()
        for move in moves:
            for resource in needed(move):
                if resource in self.refused:
                    refused.setdefault(move.topic, f"{self.refused[resource]}; {_WITHOUT}")
                elif resource in self.silent:
                    silent.setdefault(move.topic, self.silent[resource])
        return Unthrottled(
            refused=refused, silent={topic: why for topic, why in silent.items() if topic not in refused}
        )


def needed(move: Move) -> Sequence[Resource]:
    """Return the resources whose throttles a move needs."""
    if not move.adding:
        return []
    return [(TOPIC, move.topic), *((BROKER, str(broker)) for broker in (*move.before, *move.after))]
