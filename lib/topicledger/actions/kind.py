"""The definition of a kind of action: all that plans and phases need of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pyspark.sql import Column

from topicledger.actions.context import ClusterContext
from topicledger.actions.costs import Cost
from topicledger.actions.safeguards import Safeguards
from topicledger.actions.showing import Shown
from topicledger.model import PhaseResult, Target, TopicResult

DECLARED = ("num_partitions", "replication_factor", "assignments", "configs", "placement")
"""Columns of `plans` with the values that the manifest declares for a topic."""

Step: TypeAlias = Callable[[ClusterContext, Sequence[Target]], Iterator[PhaseResult]]


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The steps of actions of a kind. Each function gets targets of this kind, of one cluster and one batch."""

    validate: Step
    """Yields a row of phase validate for each target; changes nothing."""
    changed_since_plan: Step
    """Compares targets of a saved plan with the cluster, and yields a row of phase apply for each that must not be
    sent: refused, or skipped if nothing is left to do. Targets without a row are still as in the plan."""
    recover: Step
    """Finds the outcomes of targets that an earlier start may have sent; changes nothing. Yields a row with its outcome
    for each target that was applied, or can't be applied any more. Yields a result with outcome pending, which becomes
    no row, for each target under way, or done in part. Targets that `leave_open` names are unknown. All others were not
    applied if `changed_since_plan` finds them as in the plan, and may be sent."""
    apply: Step
    """Sends targets, and yields a row of phase apply for each as soon as its outcome is known. Requests must use
    `ClusterContext.send_each`, which checks the cluster's id and the lease right before each. Data read from the
    cluster counts only after `require_planned_cluster`."""
    partly_done: Callable[[ClusterContext, Sequence[Target]], Mapping[str, str]] | None
    """Returns resource -> the cluster's state in words, for targets without an outcome that `recover` didn't find done.
    None if a request is applied to a target completely or not at all."""
    cancel: Step | None
    """Cancels targets that this run may have sent and that are under way for long; yields a row of phase apply for each
    that ended. None if the request completes the action."""
    verify: Callable[[ClusterContext, Sequence[tuple[Target, TopicResult]]], Iterator[PhaseResult]]
    """Describes acknowledged targets once, each given with its answer; yields a row of phase verify for each: ok,
    failed, pending (acknowledged, not visible yet), or skipped (TOPIC_AUTHORIZATION_FAILED)."""


@dataclass(frozen=True, kw_only=True)
class ActionKind:
    """A kind of action."""

    name: str
    """As in `plans.action`."""
    resource_type: str
    """The type of its resources."""
    option: str | None
    """Its name in `--only`; None if plans never contain it unasked."""
    order: int
    """Its unique place in a run: all actions of one kind on a cluster are sent before those of the next kind."""
    wanted: Callable[[], Column]
    """Returns whether a topic needs this action (boolean). In: `phases.DECIDED`. A topic can need several actions. Once
    the action is carried out, the topic must not need it any more, or each run would send it again."""
    not_declared: Callable[[], Column]
    """Returns why the latest manifests don't ask for a planned action any more (string); null if they do. In: its row,
    and the topic's current declaration as `now_state`, `now_owner`, `now_labels`, and `now_...` for each of `DECLARED`.
    """
    shown: Shown
    """Its words in a plan, and once it is done."""
    cost: Cost
    safeguards: Safeguards
    steps: Steps
