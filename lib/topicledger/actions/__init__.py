"""The kinds of actions. To add one: a module like `create`, and a row in `KINDS`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.actions import add_partitions, alter_configs, create, delete
from topicledger.actions.kind import ActionKind
from topicledger.model import Target

KINDS: dict[str, ActionKind] = {
    kind.name: kind for kind in (delete.KIND, create.KIND, add_partitions.KIND, alter_configs.KIND)
}
"""Every kind, by name."""


def in_order() -> Sequence[ActionKind]:
    """Every kind, in the order in which a run sends them."""
    return sorted(KINDS.values(), key=lambda kind: kind.order)


def by_kind(targets: Sequence[Target]) -> Iterator[tuple[ActionKind, Sequence[Target]]]:
    """Targets by their kind, in order; kinds without targets are left out."""
    for kind in in_order():
        of_kind = [target for target in targets if target.action == kind.name]
        if of_kind:
            yield kind, of_kind


def found(rows: DataFrame, kinds: Collection[str] | None = None) -> DataFrame:
    """The actions that judged topics need, by kind: of all kinds, or of those named.

    In: `policies.contract.COLUMNS`. Out: those and `action`, null in the row of a topic that needs none; a topic that
    needs several has a row for each.
    """
    names = F.array(
        *(F.when(kind.wanted(), F.lit(kind.name)) for kind in in_order() if kinds is None or kind.name in kinds)
    )
    return rows.withColumn("action", F.explode_outer(F.array_compact(names)))
