"""Limits of moves in one cluster, moves that no longer start, and the record of throttles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from topicledger.config.settings import ReplicaSettings
from topicledger.model.moves import ThrottleRecords, Withdrawn


@dataclass(frozen=True, kw_only=True)
class MoveLimits:
    """Limits of moves."""

    settings: ReplicaSettings = field(default_factory=ReplicaSettings)
    throttles: ThrottleRecords | None = None
    """Records throttles before they are set; None if moves aren't throttled."""
    withdrawn: Mapping[str, Withdrawn] = field(default_factory=dict)
    """Reasons why no more partitions of a topic that is under way start to move, by topic."""
