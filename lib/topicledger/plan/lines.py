"""Planned actions as lines for people: plain values of rows of `plans`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from topicledger.actions.kind import DECLARED
from topicledger.actions.showing import REMOVES, Shown, changes
from topicledger.model import Action, Target
from topicledger.resources.registry import ACTIONS
from topicledger.resources.topics.plan import effects
from topicledger.text import show

ROW = ("owner", "cluster", "topic", "resource", "action", *DECLARED, "before", "after")
"""Columns of `plans` from which a line is made."""
RETURNED = ("num_partitions", "replication_factor")
"""Values that a create can leave to the broker, and that validateOnly returns."""
_MOST_CHARACTERS = 1_000


@dataclass(frozen=True, kw_only=True)
class PlannedAction:
    """One action of a plan."""

    owner: str | None
    """As in the manifests of the plan."""
    cluster: str
    topic: str | None
    """None for an action on a resource other than a topic."""
    resource: str
    """The topic, or the text of another resource."""
    action: str
    what: str | None
    """The change in words."""

    @property
    def sign(self) -> str:
        """`+` adds, `-` removes, `~` changes."""
        return sign_of(self.action)

    def __str__(self) -> str:
        words = f"{self.sign} {self.action} {self.resource}"
        return show(f"{words}: {self.what}" if self.what else words, _MOST_CHARACTERS)


def sign_of(action: str) -> str:
    """As `PlannedAction.sign`."""
    return _shown(action).sign


def planned_action(row: Mapping[str, Any] | Row) -> PlannedAction:
    """Build an action from the columns `ROW`; maps may be mappings or pairs."""
    what = in_words(row)
    return PlannedAction(**{name: row[name] for name in ROW[:5]}, what=what)


def in_words(row: Mapping[str, Any] | Row) -> str | None:
    """The change of a row of `plans` in words: `2 partitions, retention.ms=1`.

    In: `action`, `resource`, and the columns after these in `ROW`.
    """
    assignments = dict(row["assignments"] or ())
    return _shown(row["action"]).words(
        Target(
            resource=row["resource"],
            action=row["action"],
            num_partitions=row["num_partitions"],
            replication_factor=row["replication_factor"],
            assignments=assignments or None,
            configs=dict(row["configs"] or ()),
            before=dict(row["before"] or ()),
            after=dict(row["after"] or ()),
        )
    )


def change_in_words(
    action: str, resource: str, before: Mapping[str, str] | None, after: Mapping[str, str] | None
) -> str | None:
    """As `in_words`, for a change or delete, which needs no other columns."""
    return _shown(action).words(
        Target(resource=resource, action=action, before=dict(before or ()), after=dict(after or ()))
    )


def _shown(action: str) -> Shown:
    # A newer topicledger, or a user's own kind, may have written unknown actions.
    return ACTIONS[action].shown if action in ACTIONS else changes(action)


def with_destroys(plans: DataFrame) -> DataFrame:
    """Add `destroys` (boolean) to actions of plans: whether one removes a resource, or can lose records.

    Added partitions don't count: they lose no record. In: `action`, `before`, `after`.
    """
    removes = F.col("action").isin(*(name for name in ACTIONS if sign_of(name) == REMOVES))
    loses = effects.losses().isNotNull() & (F.col("action") != Action.ADD_PARTITIONS.value)
    found = plans.transform(effects.of_plans).withColumn("destroys", F.coalesce(removes | loses, F.lit(False)))
    return found.select(*plans.columns, "destroys")


def in_order() -> Sequence[Column]:
    """The order of lines: what `destroys` comes first; then by owner and cluster, topics first, by name."""
    by_owner = (F.asc_nulls_last("owner"), F.asc("cluster"), F.asc_nulls_last("topic"))
    return (F.desc("destroys"), *by_owner, F.asc("resource"), F.asc("action"))


def returned() -> dict[str, Column]:
    """`returned_...` of each of `RETURNED`: aggregates of an action's rows of `audit`."""
    return {f"returned_{name}": F.max(name) for name in RETURNED}


def as_returned() -> dict[str, Column]:
    """`RETURNED`, with the broker's values for creates that left them to it.

    In: columns of `plans`, and each of `RETURNED` as `returned_...`.
    """
    left = (F.col("action") == Action.CREATE.value) & ~F.coalesce(F.size("assignments") > 0, F.lit(False))
    return {name: F.when(left, F.coalesce(name, f"returned_{name}")).otherwise(F.col(name)) for name in RETURNED}
