"""Rights and quotas by owner, and how they changed: plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeAlias, TypeVar

OwnerT = TypeVar("OwnerT")
ChangeT = TypeVar("ChangeT")


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
class Owned(Generic[OwnerT, ChangeT]):
    """Rights or quotas by owner, and how they changed."""

    since: str
    """When, in words."""
    owners: Sequence[OwnerT]
    """Those of whom most changed first."""
    changes: Sequence[ChangeT]
    """The newest."""
    total: int
    """Of all changes."""
    owners_query: str
    query: str
    """SQL for all of them."""


Rights: TypeAlias = Owned[OwnerRights, RightChange]
Quotas: TypeAlias = Owned[OwnerQuotas, QuotaChange]
