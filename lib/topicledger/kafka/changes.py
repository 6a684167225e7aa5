"""Requests that change existing topics: IncrementalAlterConfigs (KIP-339) and CreatePartitions (KIP-195)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from kafka.admin import ConfigResourceType
from kafka.protocol.admin import (
    CreatePartitionsRequest,
    IncrementalAlterConfigsRequest,
)

from topicledger.model import Target, TopicResult


class _Operation(IntEnum):
    """Kafka's AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1


def alter_configs_request(
    targets: Sequence[Target], *, validate_only: bool, of: ConfigResourceType = ConfigResourceType.TOPIC
) -> Any:
    """Build a request that sets each config of `Target.after`, and resets those that only `Target.before` has."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    return IncrementalAlterConfigsRequest(
        resources=[
            resource(
                resource_type=of,
                resource_name=target.resource,
                configs=[
                    resource.AlterableConfig(
                        name=name,
                        config_operation=_Operation.SET if name in target.after else _Operation.DELETE,
                        value=target.after.get(name),
                    )
                    for name in sorted(target.touched)
                ],
            )
            for target in targets
        ],
        validate_only=validate_only,
    )


def alter_broker_request(broker_id: int, configs: Mapping[str, str | None]) -> Any:
    """Build a request that sets configs of one broker, or resets those that are None."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    return IncrementalAlterConfigsRequest(
        resources=[
            resource(
                resource_type=ConfigResourceType.BROKER,
                resource_name=str(broker_id),
                configs=[
                    resource.AlterableConfig(
                        name=name,
                        config_operation=_Operation.DELETE if value is None else _Operation.SET,
                        value=value,
                    )
                    for name, value in sorted(configs.items())
                ],
            )
        ],
        validate_only=False,
    )


def altered(response: Any) -> dict[str, TopicResult]:
    """Return an IncrementalAlterConfigs response's answers by resource."""
    return {
        each.resource_name: TopicResult(error_code=each.error_code, error_message=each.error_message)
        for each in response.responses
    }


def create_partitions_request(targets: Sequence[Target], timeout_ms: int, *, validate_only: bool) -> Any:
    """Build a request that raises each topic to `Target.grows_to` partitions, with `Target.assignments` if set (N4)."""
    topic = CreatePartitionsRequest.CreatePartitionsTopic
    return CreatePartitionsRequest(
        topics=[
            topic(
                name=target.topic,
                count=target.grows_to,
                assignments=None
                if target.assignments is None
                else [
                    topic.CreatePartitionsAssignment(broker_ids=list(target.assignments[partition]))
                    for partition in range(target.grows_from, target.grows_to)
                ],
            )
            for target in targets
        ],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )


def grown(response: Any) -> dict[str, TopicResult]:
    """Return a CreatePartitions response's answers by topic; their order differs from the request's (N3)."""
    return {
        each.name: TopicResult(error_code=each.error_code, error_message=each.error_message)
        for each in response.results
    }
