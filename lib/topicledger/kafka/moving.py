"""How much of one cluster is moved at once, what isn't begun any more, and where throttles are written down."""

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
    """Where throttles are written down before they are set; None: moves aren't throttled."""
    withdrawn: Mapping[str, Withdrawn] = field(default_factory=dict)
    """By topic that is under way: why no more of its partitions are begun."""
