"""Requests about client quotas: DescribeClientQuotas and AlterClientQuotas (KIP-546, KIP-612)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest

from topicledger.kafka import ClusterAdmin, Response
from topicledger.kafka.connection import (
    CLUSTER_AUTHORIZATION_FAILED,
    NONE,
    POLICY_VIOLATION,
    UNSUPPORTED_VERSION,
    Connection,
    NotListed,
    RequestLost,
    error_name,
    result_of,
)
from topicledger.model import Target, TopicResult
from topicledger.resources.quotas.entity import KAFKA_TYPES, Entity, kafka_name, written

NO_ALTER = "this principal may not change client quotas: grant it AlterConfigs on the cluster"
TOO_LARGE = "Excessively large number of changes in one request"
"""Our message for POLICY_VIOLATION: brokers have no quota policies, so their limit of records refused it (Q1)."""


def describe_quotas(connection: Connection) -> dict[Entity, Mapping[str, float]]:
    """Return the limits of every entity that has any, with Kafka's names. Raises NotListed.

    The request has no filter, since a filter that isn't strict would match a user's client ids, too (Q4).
    """
    if not connection.supports(DescribeClientQuotasRequest):
        raise NotListed(f"cluster {connection.name}: its brokers are too old to list client quotas (before Kafka 2.6)")
    response = connection.ask(DescribeClientQuotasRequest(components=[], strict=False))
    if response.error_code == NONE:
        return {
            _entity(each.entity): {value.key: value.value for value in each.values} for each in response.entries or ()
        }
    if response.error_code == CLUSTER_AUTHORIZATION_FAILED:
        raise NotListed(
            f"cluster {connection.name}: its client quotas can't be listed: "
            + connection.needs("DescribeConfigs on the cluster")
        )
    if response.error_code == UNSUPPORTED_VERSION:
        raise NotListed(f"cluster {connection.name}: its brokers can't describe client quotas")
    raise RequestLost(f"cluster {connection.name}: quotas can't be described: {error_name(response.error_code)}")


def alter_quotas(admin: ClusterAdmin, targets: Sequence[Target], *, validate_only: bool) -> Response:
    """Send one AlterClientQuotas request; with `validate_only` it changes nothing (Q1)."""
    response = admin.change(_alter_quotas_request(targets, validate_only=validate_only))
    return Response(results=_altered(targets, response), throttle_time_ms=response.throttle_time_ms)


def _alter_quotas_request(targets: Sequence[Target], *, validate_only: bool) -> Any:
    """Build a request that sets each limit of `Target.after`, and removes those that only `Target.before` has."""
    entry = AlterClientQuotasRequest.EntryData
    return AlterClientQuotasRequest(
        entries=[
            entry(
                entity=[
                    entry.EntityData(entity_type=KAFKA_TYPES[name], entity_name=kafka_name(value))
                    for name, value in Entity.of_text(target.resource)._asdict().items()
                    if value is not None
                ],
                ops=[
                    entry.OpData(key=name, value=float(target.after.get(name, 0)), remove=name not in target.after)
                    for name in sorted(target.touched)
                ],
            )
            for target in targets
        ],
        validate_only=validate_only,
    )


def _altered(targets: Sequence[Target], response: Any) -> dict[str, TopicResult]:
    """Return an AlterClientQuotas response's answers by resource; their order differs from the request's."""
    resources = {Entity.of_text(target.resource): target.resource for target in targets}
    found = {resources[_entity(each.entity)]: each for each in response.entries}
    too_large = all(each.error_code == POLICY_VIOLATION for each in found.values())
    return {
        resource: result_of(each.error_code, TOO_LARGE if too_large else each.error_message, NO_ALTER)
        for resource, each in found.items()
    }


def _entity(parts: Iterable[Any]) -> Entity:
    ours = {kind: name for name, kind in KAFKA_TYPES.items()}
    return Entity(**{ours[part.entity_type]: written(part.entity_name) for part in parts})
