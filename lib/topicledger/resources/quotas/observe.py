"""The client quotas of live clusters."""

from __future__ import annotations

from topicledger.kafka import ClusterAdmin
from topicledger.observe.listed import Columns
from topicledger.resources.quotas import requests
from topicledger.resources.quotas.entity import ENTITY, LIMITS


def describe(admin: ClusterAdmin) -> tuple[Columns, int]:
    """See `kind.ObservedResources.describe`."""
    # Limits without a column are ignored, so an entity that has only such limits has no row.
    quotas = [(each, limits) for each, limits in requests.describe_quotas(admin).items() if limits.keys() & set(LIMITS)]
    entities = {name: [getattr(each, name) for each, _ in quotas] for name in ENTITY}
    return {**entities, **{name: [limits.get(name) for _, limits in quotas] for name in LIMITS}}, len(quotas)
