"""Limits of moves in one cluster, moves that no longer start or that got no answer, and the record of throttles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from topicledger.config.settings import ReplicaSettings
from topicledger.model.moves import ThrottleRecords, Withdrawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """A move whose last request got no answer."""

    after: tuple[int, ...]
    at: float
    """When the client gave the request up, by the clock of the cluster's context."""


@dataclass(frozen=True, kw_only=True)
class MoveLimits:
    """Limits of moves, and what this start knows of them that no listing shows."""

    settings: ReplicaSettings = field(default_factory=ReplicaSettings)
    throttles: ThrottleRecords | None = None
    """Records throttles before they are set; None if moves aren't throttled."""
    withdrawn: Mapping[tuple[str, str], Withdrawn] = field(default_factory=dict)
    """Action and resource -> why the rest of it isn't sent, although an earlier start may have sent a part: no further
    partitions start to move, and other requests aren't repeated."""
    begin_until: datetime | None = None
    """When the cluster's planned moves expire: none begins after that; None: no limit."""
    unanswered: dict[tuple[str, int], Unanswered] = field(default_factory=dict)
    """By topic and partition: see `ClusterContext.may_move`."""
    late_until: float = -math.inf
    """Until when a request of a killed driver may still be carried out, by the clock of the cluster's context."""
    throttled: set[tuple[str, str, str]] = field(default_factory=set)
    """Resource type, resource and config of throttles that this start set and has not taken away."""

    def is_expired(self) -> bool:
        """Return whether no more moves may begin, since their plan is too old."""
        return self.begin_until is not None and datetime.now(UTC) >= self.begin_until
