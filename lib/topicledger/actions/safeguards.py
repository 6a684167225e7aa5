"""Safeguards of actions: the switch that allows them, the guard that counts them, and the approvals that they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger.model import Refusal
from topicledger.naming import RefusalName

Switch: TypeAlias = Literal["configs", "partitions", "replicas"]
"""A setting of [changes]; runs plan none of its actions while it is off."""


@dataclass(frozen=True, kw_only=True)
class Guard:
    """A limit on how many such actions one run may plan on a cluster; a run that plans more sends none of them."""

    setting: str
    """Its name in [guards]."""
    error: RefusalName
    counted: str
    """The counted things, in words."""

    @property
    def allowed_as(self) -> str:
        """Its name in `runs approve --allow`: the setting without `max_`."""
        return self.setting.removeprefix("max_")

    @property
    def advice(self) -> str:
        """What to do if it refused actions, for reports."""
        return f"If they are intended: `plan`, `runs approve RUN_ID --allow {self.allowed_as}=N`, `apply`."

    def message(self, count: Column | str, most: int) -> Column:
        """Return the reason of a refusal: the number of actions, the setting, and the approval that allows them."""
        column = F.col(count) if isinstance(count, str) else count
        allow = f"if they are meant, before a plan is applied: runs approve RUN_ID --allow {self.allowed_as}="
        return F.concat(
            F.lit(f"{self.counted}: "), column, F.lit(f", guards.{self.setting} is {most}; {allow}"), column
        )


@dataclass(frozen=True, kw_only=True)
class Safeguards:
    """Conditions under which a run may plan and send actions of a kind."""

    switch: Switch | None
    """None: a declaration is enough."""
    guard: Guard | None
    """None: no guard counts them. Losses and disruptions have guards of their own, `MAX_LOSSES`, `MAX_DISRUPTIONS`."""
    approved_as: tuple[str, ...]
    """The classes of `guards.approvals_for` to which a plan with such an action belongs, besides `losses` and
    `disruptions`."""


MAX_CHANGES = Guard(
    setting="max_changes",
    error=Refusal.MAX_CHANGES_EXCEEDED,
    counted="topics of this cluster with planned changes",
)
MAX_LOSSES = Guard(
    setting="max_losses",
    error=Refusal.MAX_LOSSES_EXCEEDED,
    counted="topics of this cluster with such changes",
)
MAX_DISRUPTIONS = Guard(
    setting="max_disruptions",
    error=Refusal.MAX_DISRUPTIONS_EXCEEDED,
    counted="topics of this cluster with such changes",
)
