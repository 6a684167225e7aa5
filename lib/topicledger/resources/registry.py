"""All kinds of resources and of actions.

Kinds of resources other than topics are registered in `topicledger.kinds`, actions on topics in
`resources.topics.actions`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from importlib import import_module

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.actions.kind import ActionKind
from topicledger.config.guards import APPROVED_CLASSES
from topicledger.kinds import NAMES
from topicledger.model import TOPIC, Target
from topicledger.resources.kind import ResourceKind
from topicledger.resources.topics.actions import ACTIONS as OF_TOPICS
from topicledger.schemas import RESOURCES, TABLES

KINDS: Sequence[ResourceKind] = tuple(
    import_module(f"topicledger.resources.{names.package}.kind").KIND for names in NAMES
)
"""Kinds of resources other than topics."""
if [kind.table for kind in KINDS] != [*RESOURCES]:
    raise TypeError("schemas.RESOURCES must have the tables of all kinds, in the order of `kinds.NAMES`")
for _table in (each for kind in KINDS for each in (kind.table, kind.observed.table)):
    if TABLES.get(_table.name) is not _table:
        raise TypeError(f"schemas.TABLES lacks the table {_table.name} of a kind")

ACTIONS: dict[str, ActionKind] = {
    kind.name: kind for kind in (*OF_TOPICS, *(action for kind in KINDS for action in kind.actions))
}
"""Kinds of actions on every kind of resource, by name."""


def approved_as(action: str) -> Collection[str]:
    """Return the classes of `guards.approvals_for` to which a plan with such an action belongs.

    An unknown action belongs to every class: a newer version may have planned it.
    """
    return ACTIONS[action].safeguards.approved_as if action in ACTIONS else APPROVED_CLASSES


def in_order() -> Sequence[ActionKind]:
    """Return all kinds of actions, in the order in which a run sends them."""
    return sorted(ACTIONS.values(), key=lambda kind: kind.order)


def by_kind(targets: Sequence[Target]) -> Iterator[tuple[ActionKind, Sequence[Target]]]:
    """Yield kinds with their targets, in order; kinds without targets are left out."""
    for kind in in_order():
        of_kind = [target for target in targets if target.action == kind.name]
        if of_kind:
            yield kind, of_kind


def about(resource_type: str) -> Sequence[ActionKind]:
    """Return the kinds of actions on resources of this type, in order."""
    return [kind for kind in in_order() if kind.resource_type == resource_type]


def found(rows: DataFrame, kinds: Collection[str] | None = None, resource_type: str = TOPIC) -> DataFrame:
    """Add the actions that resources of a type need: of all kinds, or of `kinds`.

    In: `phases.DECIDED` for topics; otherwise the columns that `wanted` of their kinds needs. Out: also `action`, null
    for a resource that needs none; a resource that needs several actions has a row for each.
    """
    names = F.array(
        *(
            F.when(kind.wanted(), F.lit(kind.name))
            for kind in about(resource_type)
            if kinds is None or kind.name in kinds
        )
    )
    # An array of nothing has no type.
    return rows.withColumn("action", F.explode_outer(F.array_compact(names.cast("array<string>"))))
