"""What a start knows of its own run without reading it from the tables again: each planned action, and how it stands.

The tables say the same, and a resumed run goes by them. A start keeps this up to `REMEMBERED` actions, of a plan that
it made itself, and as long as every row of `audit` came from its own requests (`Run.memory`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from topicledger.model import Action, Outcome, Phase, PhaseResult, Target, TopicResult

REMEMBERED = 100_000
"""Actions that a driver keeps in memory from phase to phase; more are read from the tables again."""

Work = Mapping[str, tuple[str, Sequence[Sequence[Target]]]]
"""By cluster: its id as planned, and its batches in order."""
Results = dict[tuple[str, str, Action], TopicResult]
"""By cluster, topic and action: the topic's id and its number of partitions."""


class Memory:
    """Planned actions, and the last that ended for each."""

    def __init__(self, planned: Work) -> None:
        self._planned = planned
        self._last: dict[tuple[str, str, Action], PhaseResult] = {}

    def keep(self, ended: Iterable[PhaseResult]) -> None:
        """Take outcomes that are rows of `audit`, or are about to be; later ones take the place of earlier ones."""
        for each in ended:
            # Configs are most of what an outcome weighs, and nothing asks for them again.
            self._last[each.cluster, each.topic, each.action] = replace(each, configs=None)

    def all(self) -> Iterator[tuple[str, PhaseResult | None]]:
        """For each planned action its cluster and the last that ended for it, None where nothing did."""
        for name, (_, batches) in self._planned.items():
            for batch in batches:
                for target in batch:
                    yield name, self._last.get((name, target.topic, target.action))

    def ok(self, phase: Phase) -> Work:
        """What was ok in `phase`, and has nothing later."""
        ok = {key for key, ended in self._last.items() if ended.phase is phase and ended.outcome is Outcome.OK}
        left: dict[str, tuple[str, list[list[Target]]]] = {}
        for name, (cluster_id, batches) in self._planned.items():
            kept = [[target for target in batch if (name, target.topic, target.action) in ok] for batch in batches]
            if any(kept):
                left[name] = (cluster_id, [batch for batch in kept if batch])
        return left

    def results(self) -> Results:
        """What the last answer said of each topic."""
        return {
            key: TopicResult(topic_id=ended.topic_id, num_partitions=ended.num_partitions)
            for key, ended in self._last.items()
        }
