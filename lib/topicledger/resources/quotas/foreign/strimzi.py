"""The quotas of Strimzi's KafkaUser resources: `spec.quotas`, for the user's name without its type."""

from __future__ import annotations

from collections.abc import Callable

from topicledger.files.foreign.fields import Fields
from topicledger.manifests.files.entries import Reader
from topicledger.resources.quotas.entity import Entity, written
from topicledger.resources.quotas.foreign.rows import add_quota, limits_of


def read_user(spec: Fields, user: str, reader: Reader) -> Callable[[str | None, str | None], None] | None:
    """See `parts.ReadUser`."""
    quotas = spec.mapping("quotas")
    limits = {} if quotas is None else limits_of(quotas)
    if quotas is None or not limits:
        return None
    line = quotas.line

    def add(cluster: str | None, owner: str | None) -> None:
        add_quota(reader.report, cluster, Entity(user=written(user)), limits, line, owner)

    return add
