"""Every kind of action. To add one: a module like `actions.create`, and a row in `ACTIONS`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import get_args

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.actions import acls, add_partitions, alter_configs, create, delete, elect_leaders, quotas, reassign
from topicledger.actions.kind import ActionKind
from topicledger.config.guards import ApprovedClass
from topicledger.model import ResourceType, Target

ACTIONS: dict[str, ActionKind] = {
    kind.name: kind
    for kind in (
        delete.KIND,
        create.KIND,
        add_partitions.KIND,
        alter_configs.KIND,
        reassign.KIND,
        elect_leaders.KIND,
        acls.ADD,
        acls.DELETE,
        quotas.KIND,
    )
}
"""Every kind, by name."""


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
