"""Limits on a run or a load as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from topicledger.config.toml_table import TomlTable

ApprovedClass: TypeAlias = Literal["deletes", "losses", "disruptions", "moves", "rights"]
MAX_APPROVALS = 20
"""Largest accepted number of approvals; a larger number is a mistake."""


@dataclass(frozen=True, kw_only=True)
class GuardSettings:
    """Limits on a run or a load as a whole."""

    max_deletes: int = 0
    """Topics that one run may delete, per cluster. If a run would delete more, it deletes none (exit code 5)."""
    max_plan_age: float = 86_400.0
    """Seconds after which nothing more of a plan is sent, not even by a resumed run (exit code 5). It may be changed
    while a run is open."""
    max_changes: int | None = None
    """Existing topics whose configs or partitions one run may change, per cluster. If a run would change more, it
    changes none (exit code 5). By default there is no limit, since [changes] turns changes on."""
    max_losses: int = 0
    """Topics that one run may change, per cluster, in a way that can lose data, makes data less safe (for example with
    fewer replicas), or breaks the order of keys. If a run would change more, it changes none of them (exit code 5)."""
    max_disruptions: int = 0
    """Topics that one run may change, per cluster, in a way that can make brokers refuse records or may fill their
    disks. If a run would change more, it changes none of them (exit code 5)."""
    max_moves: int = 0
    """Partitions whose replicas one run may move, per cluster. If a run would move more, it moves none
    (exit code 5)."""
    max_acl_deletes: int = 0
    """ACLs that one run may remove, per cluster. If a run would remove more, it removes none (exit code 5)."""
    max_quota_changes: int = 0
    """Entities whose client quotas one run may change, per cluster. If a run would change more, it changes none
    (exit code 5)."""
    max_removed_rows: int = 0
    """Rows of `manifests` that one load may remove. A load that would remove more changes nothing (exit code 5)."""
    approvals: int = 0
    """Number of people, not counting the requester, who must approve a plan before it is applied (exit code 5)."""
    approvals_for: Mapping[ApprovedClass, int] = field(default_factory=dict)
    """Higher numbers of approvals for plans that contain `deletes` (of topics), `losses` (see max_losses),
    `disruptions` (see max_disruptions), `moves` (of replicas) or `rights` (ACLs and quotas); the largest number
    applies."""


def read_approvals(table: TomlTable) -> dict[ApprovedClass, int]:
    """[guards.approvals_for]"""
    classes: tuple[ApprovedClass, ...] = get_args(ApprovedClass)
    table.only(*classes)
    return {name: table.integer(name, 0, 0, MAX_APPROVALS) for name in classes if name in table.values}
