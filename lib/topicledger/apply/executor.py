"""Phases validate, apply and verify for one cluster: each kind of action does its part, batch by batch.

Nothing here knows Spark or Delta: targets come in, `PhaseResult`s go out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from topicledger.actions.context import ClusterContext, WrongCluster
from topicledger.actions.costs import Cost
from topicledger.actions.kind import ActionKind
from topicledger.errors import ClusterError
from topicledger.kafka.sending import NoOutcome, OutcomeUnknown
from topicledger.model import Phase, PhaseResult, Target, TopicResult
from topicledger.resources.registry import ACTIONS, by_kind


class Executor(ClusterContext):
    """One cluster's side of a run: sends planned targets, batch by batch, and yields how each ended.

    Each step raises StaysOpen in the end where the outcomes of some targets can't be known now: those have no row, and
    the next batch can go on.
    """

    def cost(self, target: Target) -> Cost:
        """The cost of an action, by its kind."""
        return ACTIONS[target.action].cost

    def validate(self, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        """One batch before anything is sent. A target that the cluster never says an outcome of is failed: nothing can
        have been done."""
        for kind, of_kind in by_kind(targets):
            try:
                yield from kind.steps.validate(self, of_kind)
            except ClusterError:
                yield from self._failed_validate(of_kind)
                raise
            yield from self._failed_validate(of_kind)
        self.require_none_open()

    def _failed_validate(self, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        for target, silent in self.take_silent(targets):
            if silent.by_itself:
                yield self.without_outcome(target, Phase.VALIDATE, silent, "validateOnly changes nothing")
            else:
                self.leave_open(target, silent.why)

    def changed_since_plan(self, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        """Targets of a saved plan on fresh metadata: yields those that must not be sent any more."""
        for kind, of_kind in by_kind(targets):
            yield from kind.steps.changed_since_plan(self, of_kind)
            self.leave_silent_open(of_kind)
        self.require_none_open()

    def recover(self, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        """What became of targets that an earlier start may have sent (C18, D3); changes nothing."""
        for kind, of_kind in by_kind(targets):
            yield from kind.steps.recover(self, of_kind)
            self.leave_silent_open(of_kind)
        self.require_none_open()

    def apply(self, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        """Send one batch for real; every outcome is known when it is yielded, each as soon as it is."""
        for kind, of_kind in by_kind(targets):
            try:
                yield from kind.steps.apply(self, of_kind)
            except OutcomeUnknown:
                # Without rows for what was sent in vain, the next start would come no further.
                if not self.stop.is_set():
                    yield from self._found_out(kind, self.take_silent(of_kind))
                raise
            yield from self._found_out(kind, self.take_silent(of_kind))
        self.require_none_open()

    def _found_out(self, kind: ActionKind, silent: Sequence[tuple[Target, NoOutcome]]) -> Iterator[PhaseResult]:
        """What became of targets that no answer told an outcome of, by what the cluster shows; the others stay open."""
        if not silent:
            return
        left = {target.resource: (target, why) for target, why in silent}
        partly: Mapping[str, str] = {}
        # Whatever a request did shows by then.
        self.wait(self.retry_policy.visibility)
        unknown = set(left)
        try:
            for ended in kind.steps.recover(self, [replace(target, maybe_sent=True) for target, _ in silent]):
                del left[ended.resource]
                yield ended
            self.leave_silent_open([target for target, _ in silent])
            asked = [replace(target, maybe_sent=False) for target, _ in left.values() if not self.is_open(target)]
            # Those that are as the plan saw them: nothing of these was done.
            unknown = set(left) - {target.resource for target in asked}
            unknown |= {ended.resource for ended in kind.steps.changed_since_plan(self, asked)}
            self.leave_silent_open(asked)
            if kind.steps.partly_done is not None:
                partly = kind.steps.partly_done(self, [target for target in asked if target.resource not in unknown])
        except WrongCluster:
            raise
        except OutcomeUnknown:
            if self.stop.is_set():
                raise
            # A question of these was sent in vain, too: no answer to it says what the change did.
            self.take_silent(())
            unknown = set(left)
        for resource, (target, why) in left.items():
            if resource in unknown or self.is_open(target):
                self.leave_open(target, why.why)
            else:
                conclusion = partly.get(resource, "the cluster shows that nothing of it was done")
                yield self.without_outcome(target, Phase.APPLY, why, conclusion)

    def cancel(self, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        """End what is under way for targets that this run may have sent; yields those that don't go on."""
        for kind, of_kind in by_kind(targets):
            if kind.steps.cancel is not None:
                yield from kind.steps.cancel(self, of_kind)

    def verify(self, applied: Sequence[tuple[Target, TopicResult]]) -> Iterator[PhaseResult]:
        """Describe once what was applied: ok, failed, pending (acknowledged, not visible yet), or skipped (29)."""
        results = {(target.action, target.resource): result for target, result in applied}
        for kind, of_kind in by_kind([target for target, _ in applied]):
            yield from kind.steps.verify(
                self, [(target, results[target.action, target.resource]) for target in of_kind]
            )
