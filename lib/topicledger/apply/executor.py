"""Phases validate, apply and verify for one cluster: each kind of action does its part, batch by batch.

Nothing here knows Spark or Delta: targets come in, `PhaseResult`s go out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from topicledger.actions import by_kind
from topicledger.actions.context import ClusterContext
from topicledger.model import PhaseResult, Target, TopicResult


class Executor(ClusterContext):
    """One cluster's side of a run: sends planned targets, batch by batch, and yields how each ended."""

    def validate(self, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        """One batch before anything is sent."""
        for kind, of_kind in by_kind(targets):
            yield from kind.validate(self, of_kind)

    def changed_since_plan(self, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        """Targets of a saved plan on fresh metadata: yields those that must not be sent any more."""
        for kind, of_kind in by_kind(targets):
            yield from kind.changed_since_plan(self, of_kind)

    def recover(self, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        """What became of targets that an earlier start may have sent (C18, D3); changes nothing."""
        for kind, of_kind in by_kind(targets):
            yield from kind.recover(self, of_kind)

    def apply(self, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        """Send one batch for real; every outcome is known when it is yielded, each as soon as it is."""
        for kind, of_kind in by_kind(targets):
            yield from kind.apply(self, of_kind)

    def cancel(self, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        """End what is under way for targets that this run may have sent; yields those that don't go on."""
        for kind, of_kind in by_kind(targets):
            if kind.cancel is not None:
                yield from kind.cancel(self, of_kind)

    def verify(self, applied: Sequence[tuple[Target, TopicResult]]) -> Iterator[PhaseResult]:
        """Describe once what was applied: ok, failed, pending (acknowledged, not visible yet), or skipped (29)."""
        results = {(target.action, target.resource): result for target, result in applied}
        for kind, of_kind in by_kind([target for target, _ in applied]):
            yield from kind.verify(self, [(target, results[target.action, target.resource]) for target in of_kind])
