"""Limits on a run or a load as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from topicledger.config.toml_table import TomlTable
from topicledger.kinds import NAMES

APPROVED_CLASSES = ("deletes", "losses", "disruptions", "moves", *dict.fromkeys(kind.approved_as for kind in NAMES))
"""Classes of plans that may need more approvals."""
OF_KINDS: Mapping[str, str] = {name: meaning for kind in NAMES for name, meaning in kind.guards.items()}
"""Guards of resources beside topics: name -> meaning."""
_OF_CHANGES = ("max_changes", "max_losses")
MAX_APPROVALS = 20
"""Largest accepted number of approvals; a larger number is a mistake."""


@dataclass(frozen=True, kw_only=True)
class GuardSettings:
    """Limits on a run, per cluster, or a load. Beyond a limit, none of the actions that it counts are done (exit 5)."""

    max_deletes: int = 0
    """Topics that one run may delete. If it would delete more, it deletes none."""
    max_plan_age: float = 86_400.0
    """Seconds after which nothing more of a plan is sent, not even by a resumed run. It may be changed while a run is
    open."""
    max_changes: int | None = None
    """Existing topics whose configs or partitions one run may change. By default there is no limit, since [changes]
    turns changes on."""
    max_losses: int = 0
    """Topics that one run may change in a way that can lose data, makes data less safe (for example with fewer
    replicas), or breaks the order of keys."""
    max_disruptions: int = 0
    """Topics that one run may change in a way that can make brokers refuse records or may fill their disks."""
    max_moves: int = 0
    """Partitions whose replicas one run may move."""
    of_kinds: Mapping[str, int] = field(default_factory=dict)
    """The guards of `OF_KINDS`, 0 if missing."""
    max_removed_rows: int = 0
    """Rows that one load may remove, of all tables together. A load that would remove more changes nothing."""
    approvals: int = 0
    """Number of people, not counting the requester, who must approve a plan before it is applied."""
    approvals_for: Mapping[str, int] = field(default_factory=dict)
    """Higher numbers of approvals for plans that contain `deletes` (of topics), `losses` (see max_losses),
    `disruptions` (see max_disruptions), `moves` (of replicas), or changes of other resources by the names in
    docs/approvals.md; the largest number applies."""

    def digested(self, *, changes: bool) -> dict[str, object]:
        """Return the part that decisions depend on. `changes`: whether [changes] is on; reverts change without it."""
        limits = {name: getattr(self, name) for name in ("max_deletes", *_OF_CHANGES, "max_disruptions", "max_moves")}
        kept = ("max_deletes", *(_OF_CHANGES if changes else ()))
        found = {name: most for name, most in limits.items() if name in kept or most != getattr(GuardSettings(), name)}
        if any(asked := (self.approvals, self.approvals_for)):
            found["approvals"] = asked
        return found | {name: most for name, most in self.of_kinds.items() if most}

    def most(self, name: str) -> int:
        """Return the limit of one of `OF_KINDS`."""
        return self.of_kinds.get(name, 0)


def read_approvals(table: TomlTable) -> dict[str, int]:
    """[guards.approvals_for]"""
    table.only(*APPROVED_CLASSES)
    return {name: table.integer(name, 0, 0, MAX_APPROVALS) for name in APPROVED_CLASSES if name in table.values}
