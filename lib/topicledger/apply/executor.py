"""Phases validate, apply and verify for one cluster: each kind of action does its part, batch by batch.

Nothing here knows Spark or Delta: targets come in, `PhaseResult`s go out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from topicledger.actions import KINDS, by_kind, verdict
from topicledger.actions.context import ClusterContext
from topicledger.actions.kind import CreatedByUs
from topicledger.kafka.sending import Answer
from topicledger.model import Phase, PhaseResult, Target, TopicResult


class Executor(ClusterContext):
    """One cluster's side of a run: sends planned targets, batch by batch, and yields how each ended."""

    def validate(self, targets: Sequence[Target], created_by_us: CreatedByUs) -> Iterator[PhaseResult]:
        """One batch before anything is sent. `created_by_us`: see `actions.kind`."""
        for kind, of_kind in by_kind(targets):
            yield from kind.validate(self, of_kind, created_by_us)

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

    def verify(self, applied: Sequence[tuple[Target, TopicResult]]) -> Iterator[PhaseResult]:
        """Describe once what was applied: ok, failed, pending (acknowledged, not visible yet), or skipped (29)."""
        if not applied:
            return
        requested_at = datetime.now(UTC)
        live = self.describe([target.topic for target, _ in applied])
        for target, result in applied:
            info = live.get(target.topic)
            outcome, error_code, note, message = verdict(target, result, info)
            seen = info if info is not None and info.permitted and KINDS[target.action].leaves_topic else None
            answer = Answer(
                TopicResult(
                    error_code=error_code,
                    error_message=message,
                    topic_id=seen.topic_id if seen else None,
                    num_partitions=seen.num_partitions if seen else None,
                    replication_factor=seen.replication_factor if seen else None,
                ),
                1,
                requested_at,
                datetime.now(UTC),
            )
            yield self.result(target, Phase.VERIFY, outcome, answer, note=note)
