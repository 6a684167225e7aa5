"""The values that the phases of a run return, from validate on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.errors import TopicLedgerError, UsageError
from topicledger.model import Key, Results, Work
from topicledger.model.moves import Withdrawn
from topicledger.observe.topics import Observation


@dataclass(frozen=True, kw_only=True)
class Validated:
    """Actions that will be sent."""

    actions: Work
    seen: Observation | None = None
    """This start's observation of the run's clusters; None if it wasn't needed."""
    observed_since: datetime
    """When this start began to observe them."""
    waiting: DataFrame | None = None
    """Creates (cluster, topic) that wait for deletes to free room; None if there are none."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Cluster -> why actions on it are still open. No more requests are sent to it."""
    left_open: Mapping[Key, str] = field(default_factory=dict)
    """Action -> why its outcome is unknown. This start doesn't send it again."""
    withdrawn: Mapping[str, Mapping[tuple[str, str], Withdrawn]] = field(default_factory=dict)
    """Cluster -> action and resource -> why nothing more is sent of an action that may be under way or done."""
    elsewhere: frozenset[str] = frozenset()
    """Clusters of the run whose leases aren't held now. This start leaves them unchanged."""

    def of(self, names: Collection[str]) -> Validated:
        """The actions that will be sent to these clusters."""
        actions = {name: each for name, each in self.actions.items() if name in names}
        if len(actions) == len(self.actions):
            return self
        waiting = None if self.waiting is None else self.waiting.where(F.col("cluster").isin(*names))
        elsewhere = frozenset(self.actions) - frozenset(names)
        return replace(self, actions=actions, waiting=waiting, elsewhere=elsewhere)


@dataclass(frozen=True, kw_only=True)
class Applied:
    """Acknowledged actions."""

    actions: Work
    answers: Results
    problems: Mapping[str, str] = field(default_factory=dict)
    """Cluster -> why actions on it are still open."""


@contextmanager
def after(done: Collection[object]) -> Iterator[None]:
    """Context in which a usage error becomes another error if something was `done`: it would mean that nothing was."""
    try:
        yield
    except UsageError as error:
        if done:
            raise TopicLedgerError(str(error)) from error
        raise
