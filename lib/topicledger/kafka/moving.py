"""How much of one cluster is moved at once, and where its throttles are written down."""

from __future__ import annotations

from dataclasses import dataclass, field

from topicledger.config.settings import ReplicaSettings
from topicledger.model.moves import ThrottleRecords


@dataclass(frozen=True, kw_only=True)
class MoveLimits:
    """Limits of moves."""

    settings: ReplicaSettings = field(default_factory=ReplicaSettings)
    throttles: ThrottleRecords | None = None
    """Where throttles are written down before they are set; None: moves aren't throttled."""
