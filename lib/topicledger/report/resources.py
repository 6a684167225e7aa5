"""Resources beside topics by owner, and their changes, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from topicledger.resources.kind import ResourceKind


@dataclass(frozen=True, kw_only=True)
class OwnerCounts:
    """Numbers of an owner's declarations on a cluster, and of their changes."""

    cluster: str
    owner: str
    """Empty for resources without an owner."""
    counts: Mapping[str, int]
    """By name in `OwnerLists.have` and `OwnerLists.moved`."""


@dataclass(frozen=True, kw_only=True)
class OwnedChange:
    """A resource that a run changed."""

    run_id: str
    cluster: str
    resource: str
    what: str
    """The change in words."""
    values: Mapping[str, str]
    """Values in `after`, or in `before` of a removal."""
    completed_at: datetime
    owner: str | None = None
    """As in the latest table."""


@dataclass(frozen=True, kw_only=True)
class Owned:
    """Resources of one kind by owner, and their changes."""

    kind: ResourceKind
    since: str
    """The time that the changes are from, in words."""
    owners: Sequence[OwnerCounts]
    """Those with the most changes first."""
    changes: Sequence[OwnedChange]
    """The newest ones."""
    total: int
    """The number of all changes."""
    owners_query: str
    query: str
    """SQL for all changes."""
