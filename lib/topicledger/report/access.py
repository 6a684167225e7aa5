"""ACLs and quotas by owner, and their changes, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeAlias, TypeVar

OwnerT = TypeVar("OwnerT")
ChangeT = TypeVar("ChangeT")


@dataclass(frozen=True, kw_only=True)
class OwnerRights:
    """ACLs that an owner declares on a cluster."""

    cluster: str
    owner: str
    """Empty for ACLs without an owner."""
    rights: int
    principals: int
    added: int
    removed: int


@dataclass(frozen=True, kw_only=True)
class RightChange:
    """An ACL that was added or removed."""

    run_id: str
    cluster: str
    resource: str
    change: str
    """added or removed."""
    principal: str | None
    completed_at: datetime
    owner: str | None = None
    """As in the latest `acls`."""


@dataclass(frozen=True, kw_only=True)
class OwnerQuotas:
    """Quotas that an owner declares on a cluster."""

    cluster: str
    owner: str
    """Empty for quotas without an owner."""
    entities: int
    changed: int


@dataclass(frozen=True, kw_only=True)
class QuotaChange:
    """An entity whose quotas were changed."""

    run_id: str
    cluster: str
    resource: str
    what: str
    """The old and new limits, in words."""
    completed_at: datetime
    owner: str | None = None
    """As in the latest `quotas`."""


@dataclass(frozen=True, kw_only=True)
class Owned(Generic[OwnerT, ChangeT]):
    """ACLs or quotas by owner, and their changes."""

    since: str
    """The time that the changes are from, in words."""
    owners: Sequence[OwnerT]
    """Those with the most changes first."""
    changes: Sequence[ChangeT]
    """The newest ones."""
    total: int
    """The number of all changes."""
    owners_query: str
    query: str
    """SQL for all changes."""


Rights: TypeAlias = Owned[OwnerRights, RightChange]
Quotas: TypeAlias = Owned[OwnerQuotas, QuotaChange]
