"""The goals of a run, for every kind of resource: the phases up to the plan loop over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topicledger.config.settings import ClusterSettings
from topicledger.ledger.run import Run
from topicledger.plan import resources
from topicledger.plan.decided import Goal
from topicledger.resources.topics.plan import topics

GOALS: Sequence[Callable[[Run, Sequence[ClusterSettings], Sequence[str] | None], Sequence[Goal]]] = (
    topics.goals,
    resources.goals,
)
"""Each returns goals on clusters; its last argument are the clusters whose declarations count (None: all). Topics come
first, since the other kinds are compared with them."""
