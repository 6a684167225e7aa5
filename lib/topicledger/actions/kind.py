"""A kind of action: all that plans and phases need of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pyspark.sql import Column

from topicledger.actions.context import ClusterContext
from topicledger.actions.costs import Cost
from topicledger.actions.safeguards import Safeguards
from topicledger.actions.showing import Shown
from topicledger.model import PhaseResult, ResourceType, Target, TopicResult

DECLARED = ("num_partitions", "replication_factor", "assignments", "configs", "placement")
"""Columns of `plans`: what the manifest declares of the topic."""

Step: TypeAlias = Callable[[ClusterContext, Sequence[Target]], Iterator[PhaseResult]]


@dataclass(frozen=True, kw_only=True)
class Steps:
    """What the phases do with actions of a kind. Each function gets targets of it only, of one cluster and batch."""

    validate: Step
    """Yields a row of phase validate for each target; changes nothing."""
    changed_since_plan: Step
    """Of a plan that is applied later than it was made, yields a row of phase apply for each target that isn't sent:
    refused, or skipped where nothing is left to do. What it yields no row for is as the plan saw it."""
    recover: Step
    """Of targets that an earlier start may have sent, yields those that were carried out, or can't be any more, and
    those that are under way, with the outcome pending, which is no row of `audit`; changes nothing. All others were not
    carried out, as the controller says, but for those that `leave_open` named."""
    apply: Step
    """Sends targets; yields a row of phase apply for each, as soon as its outcome is known. Requests go by
    `ClusterContext.send_each`, which compares the cluster's id and checks the lease right before each; what is read
    instead counts only after `require_planned_cluster`."""
    partly_done: Callable[[ClusterContext, Sequence[Target]], Mapping[str, str]] | None
    """For targets without an outcome that `recover` left out: by resource, what the cluster shows of each, in words.
    None if a request is carried out for a target as a whole or not at all."""
    cancel: Step | None
    """Of targets that this run may have sent and that are under way for long, ends what can be ended; yields a row of
    phase apply for each that doesn't go on. None where a request is all there is."""
    verify: Callable[[ClusterContext, Sequence[tuple[Target, TopicResult]]], Iterator[PhaseResult]]
    """Describes once targets that were acknowledged, each with what the answer said; yields a row of phase verify for
    each: ok, failed, pending (acknowledged, not visible yet), or skipped (29)."""


@dataclass(frozen=True, kw_only=True)
class ActionKind:
    """A kind of action."""

    name: str
    """As in `plans.action`."""
    resource_type: ResourceType
    """The type of its resources."""
    option: str | None
    """As `--only` names it; None where no plan finds it by itself."""
    order: int
    """Its place in a run, of its own: all of a cluster's actions of one kind are sent before those of the next."""
    wanted: Callable[[], Column]
    """boolean, of `phases.DECIDED`: whether a judged topic, declared or observed, needs this action. A topic
    can need several. Once the action was carried out it must not be needed any more: else each run sends it again."""
    not_declared: Callable[[], Column]
    """string, of a planned action beside what the latest manifests declare of its topic (`now_state`, `now_owner`,
    `now_labels`, and each of `DECLARED` as `now_...`): why they don't ask for it any more, null where they do."""
    shown: Shown
    """How it reads in a plan, and once it is done."""
    cost: Cost
    safeguards: Safeguards
    steps: Steps
