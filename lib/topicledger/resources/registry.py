"""Every kind of resource and of action.

To add a kind of resource: a package like `quotas`, and its `KIND` in `KINDS`. To add an action on topics: a module like
`actions.create`, and its `KIND` in `ACTIONS`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import get_args

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.actions import add_partitions, alter_configs, create, delete, elect_leaders, reassign
from topicledger.actions.kind import ActionKind
from topicledger.config.guards import ApprovedClass
from topicledger.model import ResourceType, Target
from topicledger.resources.acls import kind as acls
from topicledger.resources.kind import ResourceKind
from topicledger.resources.quotas import kind as quotas

KINDS: Sequence[ResourceKind] = (acls.KIND, quotas.KIND)
"""Kinds of resources beside topics."""

ACTIONS: dict[str, ActionKind] = {
    kind.name: kind
    for kind in (
        delete.KIND,
        create.KIND,
        add_partitions.KIND,
        alter_configs.KIND,
        reassign.KIND,
        elect_leaders.KIND,
        *(action for kind in KINDS for action in kind.actions),
    )
}
"""Kinds of actions on every kind of resource, by name."""


def approved_as(action: str) -> Collection[ApprovedClass]:
    """Return the classes of `guards.approvals_for` that a plan with such an action is of.

    An action that this version doesn't know is of every class: a newer one may have planned it.
    """
    every: tuple[ApprovedClass, ...] = get_args(ApprovedClass)
    return ACTIONS[action].safeguards.approved_as if action in ACTIONS else every


def in_order() -> Sequence[ActionKind]:
    """Every kind, in the order in which a run sends them."""
    return sorted(ACTIONS.values(), key=lambda kind: kind.order)


def by_kind(targets: Sequence[Target]) -> Iterator[tuple[ActionKind, Sequence[Target]]]:
    """Targets by their kind, in order; kinds without targets are left out."""
    for kind in in_order():
        of_kind = [target for target in targets if target.action == kind.name]
        if of_kind:
            yield kind, of_kind


def about(resource_type: ResourceType) -> Sequence[ActionKind]:
    """The kinds of actions on such resources, in order."""
    return [kind for kind in in_order() if kind.resource_type is resource_type]


def found(
    rows: DataFrame, kinds: Collection[str] | None = None, resource_type: ResourceType = ResourceType.TOPIC
) -> DataFrame:
    """The actions that judged resources of a type need, by kind: of all kinds, or of those named.

    In: of topics `phases.DECIDED`, of others what their kinds' `wanted` needs. Out: those and `action`, null
    in the row of what needs none; what needs several has a row for each.
    """
    names = F.array(
        *(
            F.when(kind.wanted(), F.lit(kind.name))
            for kind in about(resource_type)
            if kinds is None or kind.name in kinds
        )
    )
    return rows.withColumn("action", F.explode_outer(F.array_compact(names)))
