"""The values that the phases of a run hand on to each other from validate on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.model import Key, Results, Work
from topicledger.model.moves import Withdrawn
from topicledger.observe.topics import Observation


@dataclass(frozen=True, kw_only=True)
class Validated:
    """What is going to be sent."""

    actions: Work
    seen: Observation | None = None
    """What this start observed of the run's clusters; None where it didn't have to."""
    observed_since: datetime
    """When this start began to observe them."""
    waiting: DataFrame | None = None
    """(cluster, topic) of creates that need room which a delete has yet to make; None where there are none."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """By cluster, why something is still open on it: nothing more is sent there."""
    left_open: Mapping[Key, str] = field(default_factory=dict)
    """By action, why its outcome isn't known now: it is sent no more by this start."""
    withdrawn: Mapping[str, Mapping[str, Withdrawn]] = field(default_factory=dict)
    """By cluster and topic that is under way: why nothing more of it is begun."""
    elsewhere: frozenset[str] = frozenset()
    """Clusters of the run whose leases aren't held now: nothing is done about them."""

    def of(self, names: Collection[str]) -> Validated:
        """What is going to be sent to these clusters."""
        actions = {name: each for name, each in self.actions.items() if name in names}
        if len(actions) == len(self.actions):
            return self
        waiting = None if self.waiting is None else self.waiting.where(F.col("cluster").isin(*names))
        elsewhere = frozenset(self.actions) - frozenset(names)
        return replace(self, actions=actions, waiting=waiting, elsewhere=elsewhere)


@dataclass(frozen=True, kw_only=True)
class Applied:
    """What was acknowledged."""

    actions: Work
    answers: Results
    problems: Mapping[str, str] = field(default_factory=dict)
    """By cluster, why something is still open on it."""
