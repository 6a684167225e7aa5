"""Rights and quotas by owner, and how they changed: plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class OwnerRights:
    """The rights that an owner declares on a cluster."""

    cluster: str
    owner: str
    """Empty where they have none."""
    rights: int
    principals: int
    added: int
    removed: int


@dataclass(frozen=True, kw_only=True)
class RightChange:
    """A right that was added or removed."""

    run_id: str
    cluster: str
    resource: str
    change: str
    """added or removed."""
    principal: str | None
    completed_at: datetime
    owner: str | None = None
    """As the latest `acls` have it."""


@dataclass(frozen=True, kw_only=True)
class Rights:
    """Rights by owner, and how they changed."""

    since: str
    """When, in words."""
    owners: Sequence[OwnerRights]
    """Those whose rights changed most first."""
    changes: Sequence[RightChange]
    """The newest."""
    total: int
    """Of all changes."""
    owners_query: str
    query: str
    """SQL for all of them."""


@dataclass(frozen=True, kw_only=True)
class OwnerQuotas:
    """The quotas that an owner declares on a cluster."""

    cluster: str
    owner: str
    """Empty where they have none."""
    entities: int
    changed: int


@dataclass(frozen=True, kw_only=True)
class QuotaChange:
    """An entity whose quotas were altered."""

    run_id: str
    cluster: str
    resource: str
    what: str
    """From what to what, in words."""
    completed_at: datetime
    owner: str | None = None
    """As the latest `quotas` have it."""


@dataclass(frozen=True, kw_only=True)
class Quotas:
    """Quotas by owner, and how they changed."""

    since: str
    """When, in words."""
    owners: Sequence[OwnerQuotas]
    """Those whose quotas changed most first."""
    changes: Sequence[QuotaChange]
    """The newest."""
    total: int
    """Of all changes."""
    owners_query: str
    query: str
    """SQL for all of them."""
