"""Phases validate, apply and verify for one cluster: each kind of action does its part, batch by batch.

This module doesn't use Spark or Delta: it takes targets and yields `PhaseResult`s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from topicledger.actions import checking
from topicledger.actions.context import ClusterContext, WrongCluster
from topicledger.actions.costs import Cost
from topicledger.actions.kind import ActionKind
from topicledger.errors import ClusterError
from topicledger.kafka.sending import NoOutcome, OutcomeUnknown
from topicledger.model import Outcome, Phase, PhaseResult, Target, TopicResult
from topicledger.resources.registry import ACTIONS, by_kind


class Executor(ClusterContext):
    """Sends the planned targets of one cluster, batch by batch, and yields the result of each.

    Each step raises StaysOpen at its end if the outcomes of some targets can't be known now. These have no row, and the
    next batch can continue.
    """

    def cost(self, target: Target) -> Cost:
        """Return the cost of an action, by its kind."""
        return ACTIONS[target.action].cost

    def may_still_change(self) -> bool:
        """Return whether the cluster may still carry out a request that got no answer; see `may_move`."""
        since = self.clock() - self.retry_policy.visibility
        return any(at > since for at in self.limits.unanswered.values()) or bool(self.may_move())

    def validate(self, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        """Validate one batch. A target fails if the cluster never answers about it: nothing can have been changed."""
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
        """Compare targets of a saved plan with fresh metadata; yield those that must not be sent any more.

        Refused means not sent. So a target that an earlier start may have sent fails: its topic may differ because that
        request was done, and another client changed it afterwards.
        """
        for kind, of_kind in by_kind(targets):
            yield from self._changed_since_plan(kind, of_kind)
        self.require_none_open()

    def _changed_since_plan(self, kind: ActionKind, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        yield from map(checking.never_unsent, kind.steps.changed_since_plan(self, targets) if targets else ())
        self.leave_silent_open(targets)

    def recover(self, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        """Yield the outcomes of targets that an earlier start may have sent (C18, D3); changes nothing.

        Refused means not sent, and the plan's age or the tables may refuse those without an outcome next. So a target
        fails if the cluster doesn't show it, or shows it neither as before nor as planned.
        """
        for kind, of_kind in by_kind(targets):
            left = {target.resource: target for target in of_kind}
            for ended in kind.steps.recover(self, of_kind):
                left.pop(ended.resource, None)
                yield ended
            self.leave_silent_open(of_kind)
            yield from self._changed_since_plan(kind, [each for each in left.values() if not self.is_open(each)])
        self.require_none_open()

    def apply(self, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        """Send one batch; yield each outcome as soon as it is known."""
        for kind, of_kind in by_kind(targets):
            try:
                yield from kind.steps.apply(self, of_kind)
            except OutcomeUnknown:
                # Without rows for targets that got no answer, the next start would fail at the same place.
                if not self.stop.is_set():
                    yield from self._found_out(kind, self.take_silent(of_kind))
                raise
            yield from self._found_out(kind, self.take_silent(of_kind))
        self.require_none_open()

    def _found_out(self, kind: ActionKind, silent: Sequence[tuple[Target, NoOutcome]]) -> Iterator[PhaseResult]:
        """Yield outcomes of targets without an answer, as far as the cluster's state shows them; others stay open."""
        if not silent:
            return
        left = {target.resource: (target, why) for target, why in silent}
        partly: dict[str, str] = {}
        # By then, the effect of a request is visible.
        self.wait(self.retry_policy.visibility)
        unknown = set(left)
        try:
            for ended in kind.steps.recover(self, [replace(target, maybe_sent=True) for target, _ in silent]):
                if ended.outcome is Outcome.PENDING:
                    target, why = left[ended.resource]
                    partly[target.resource] = "the cluster shows that a part of it was done"
                    if kind.steps.cancel is not None:
                        # It is under way.
                        self.leave_open(target, why.why)
                    continue
                del left[ended.resource]
                yield ended
            self.leave_silent_open([target for target, _ in silent])
            asked = [replace(target, maybe_sent=False) for target, _ in left.values() if not self.is_open(target)]
            # Targets that are still as in the plan were not changed.
            unknown = set(left) - {target.resource for target in asked}
            unknown |= {ended.resource for ended in kind.steps.changed_since_plan(self, asked)}
            self.leave_silent_open(asked)
            if kind.steps.partly_done is not None:
                partly |= kind.steps.partly_done(self, [target for target in asked if target.resource not in unknown])
        except WrongCluster:
            raise
        except OutcomeUnknown:
            if self.stop.is_set():
                raise
            # These requests got no answer, either, so the effect of the change is unknown.
            self.take_silent(())
            unknown = set(left)
        for resource, (target, why) in left.items():
            if resource in unknown or self.is_open(target):
                self.leave_open(target, why.why)
            else:
                conclusion = partly.get(resource, "the cluster shows no effect of the request")
                yield self.without_outcome(target, Phase.APPLY, why, conclusion)

    def cancel(self, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        """Cancel targets under way that this run may have sent; yield those that ended."""
        for kind, of_kind in by_kind(targets):
            if kind.steps.cancel is not None:
                yield from kind.steps.cancel(self, of_kind)

    def verify(self, applied: Sequence[tuple[Target, TopicResult]]) -> Iterator[PhaseResult]:
        """Describe applied targets once: ok, failed, pending (acknowledged, not visible yet), or skipped.

        A target is skipped if brokers answer TOPIC_AUTHORIZATION_FAILED.
        """
        results = {(target.action, target.resource): result for target, result in applied}
        for kind, of_kind in by_kind([target for target, _ in applied]):
            yield from kind.steps.verify(
                self, [(target, results[target.action, target.resource]) for target in of_kind]
            )
