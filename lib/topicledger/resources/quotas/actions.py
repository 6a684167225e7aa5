"""alter_quota: AlterClientQuotas (KIP-546, Q1 to Q4). One request has all changes of an entity.

Each entity, and each of its limits, is in a request only once: Kafka applies the first and refuses the second (Q3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topicledger.actions.safeguards import Guard
from topicledger.kafka import ClusterAdmin, Response
from topicledger.kafka.connection import CLUSTER_AUTHORIZATION_FAILED
from topicledger.model import Target
from topicledger.resources.altering import Requests, action
from topicledger.resources.quotas import names, requests
from topicledger.resources.quotas.entity import Entity
from topicledger.resources.quotas.names import NAMES, QuotaRefusal
from topicledger.resources.quotas.rows import OF_QUOTAS
from topicledger.text import number_text


def _describe(admin: ClusterAdmin, targets: Sequence[Target]) -> Mapping[str, Mapping[str, str]]:
    found = requests.describe_quotas(admin)
    limits = {target.resource: found.get(Entity.of_text(target.resource), {}) for target in targets}
    return {resource: {name: number_text(value) for name, value in each.items()} for resource, each in limits.items()}


def _alter(admin: ClusterAdmin, targets: Sequence[Target], *, validate_only: bool) -> Response:
    return requests.alter_quotas(admin, targets, validate_only=validate_only)


def _same(_: str, one: str | None, other: str | None) -> bool:
    """Limits are compared as numbers: two ways to write one are the same limit. NaN equals no number, not even NaN."""
    return one == other or (one and float(one)) == (other and float(other))


_REQUESTS = Requests(
    describe=_describe,
    alter=_alter,
    same=_same,
    not_permitted={CLUSTER_AUTHORIZATION_FAILED: requests.NO_ALTER},
)

_GUARD = Guard(
    setting=names.MAX_QUOTA_CHANGES,
    error=QuotaRefusal.MAX_QUOTA_CHANGES_EXCEEDED,
    counted="planned quota changes of this cluster",
)

KIND = action(OF_QUOTAS, NAMES, _REQUESTS, _GUARD, option="quotas", order=9, unset="none", done="given other quotas")
