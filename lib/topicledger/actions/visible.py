"""Actions that a cluster shows as done some time after they were sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from topicledger.actions.context import ClusterContext
from topicledger.model import Target


class Observed(Protocol):
    """Resources of some targets, as a cluster shows them."""

    unknown: str | None
    """Why the cluster doesn't show them; None if it does."""

    def is_done(self, target: Target) -> bool:
        """Return whether the resource is as the target asks."""


_O = TypeVar("_O", bound=Observed)


def done_within(
    context: ClusterContext, targets: Sequence[Target], seconds: float, observe: Callable[[Sequence[Target]], _O]
) -> Iterator[tuple[Target, _O]]:
    """Yield the targets that the cluster shows as done within `seconds`, each with what was observed.

    Leaves open the targets that aren't done when the cluster no longer shows them.
    """
    left = list(targets)
    for _ in context.looks(seconds):
        observed = observe(left)
        if observed.unknown is not None:
            for target in left:
                context.leave_open(target, observed.unknown)
            return
        yield from ((target, observed) for target in left if observed.is_done(target))
        left = [target for target in left if not observed.is_done(target)]
        if not left:
            return
