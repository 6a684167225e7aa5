"""Requests about group configs: ListConfigResources (KIP-1142), DescribeConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kafka.admin import ConfigResourceType
from kafka.protocol.admin import DescribeConfigsRequest, ListConfigResourcesRequest

from topicledger.kafka import ClusterAdmin, Response
from topicledger.kafka.changes import alter_configs_request, altered
from topicledger.kafka.connection import (
    CLUSTER_AUTHORIZATION_FAILED,
    GROUP_AUTHORIZATION_FAILED,
    NONE,
    Connection,
    NotListed,
    RequestLost,
    TooOld,
    error_name,
)
from topicledger.model import Refusal, Target
from topicledger.observe.listed import Undescribed

NO_ALTER = "this principal may not change configs of this group: grant it AlterConfigs on the group"
_SET_ON_GROUP = 8
"""Kafka's ConfigSource DYNAMIC_GROUP_CONFIG; brokers describe all other configs of a group, too."""
_LISTS_GROUPS = 1
"""The version of ListConfigResources that lists groups (Kafka 4.1)."""
_BATCH = 500
"""Groups in one DescribeConfigs request."""


def list_groups(connection: Connection) -> list[str]:
    """Return the groups that have at least one config; a group need not exist. Raises NotListed."""
    _require_version(connection)
    response = connection.ask(ListConfigResourcesRequest(resource_types=[ConfigResourceType.GROUP]))
    if response.error_code == CLUSTER_AUTHORIZATION_FAILED:
        raise NotListed(
            f"cluster {connection.name}: its group configs can't be listed: "
            + connection.needs("DescribeConfigs on the cluster")
        )
    if response.error_code != NONE:
        raise RequestLost(
            f"cluster {connection.name}: group configs can't be listed: {error_name(response.error_code)}"
        )
    return sorted(each.resource_name for each in response.config_resources)


def describe_groups(connection: Connection, groups: Collection[str]) -> dict[str, dict[str, str] | Undescribed]:
    """Return the configs that are set on each of `groups`, or why they are unknown. Raises TooOld.

    Brokers answer for any name: a group without configs of its own has an empty dictionary.
    """
    _require_version(connection)
    named, found = sorted(groups), dict[str, dict[str, str] | Undescribed]()
    for start in range(0, len(named), _BATCH):
        part = [(ConfigResourceType.GROUP, group, None) for group in named[start : start + _BATCH]]
        for each in connection.ask(DescribeConfigsRequest(resources=part, include_synonyms=False)).results:
            if each.error_code != NONE:
                found[each.resource_name] = _undescribed(connection, each.resource_name, each.error_code)
                continue
            found[each.resource_name] = {
                config.name: config.value
                for config in each.configs
                if config.config_source == _SET_ON_GROUP and config.value is not None
            }
    return found


def _undescribed(connection: Connection, group: str, error_code: int) -> Undescribed:
    words = f"cluster {connection.name}: configs of group {group} can't be described: "
    if error_code in (GROUP_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED):
        needed = connection.needs("DescribeConfigs on the group")
        return Undescribed(error=Refusal.NOT_PERMITTED, message=words + needed)
    answered = f"brokers answer {error_name(error_code)}; look for it in their logs"
    return Undescribed(error=Refusal.NO_ANSWER, message=words + answered)


def describe_targets(admin: ClusterAdmin, targets: Sequence[Target]) -> Mapping[str, Mapping[str, str] | Undescribed]:
    """Return the configs that are set on the targets' groups, or why they are unknown. Raises TooOld."""
    return describe_groups(admin, [target.resource for target in targets])


def alter_groups(admin: ClusterAdmin, targets: Sequence[Target], *, validate_only: bool) -> Response:
    """Send one IncrementalAlterConfigs request; with `validate_only` it changes nothing."""
    request = alter_configs_request(targets, validate_only=validate_only, of=ConfigResourceType.GROUP)
    response = admin.change(request)
    return Response(results=altered(response), throttle_time_ms=response.throttle_time_ms)


def _require_version(connection: Connection) -> None:
    if not connection.supports(ListConfigResourcesRequest, _LISTS_GROUPS):
        raise TooOld(
            f"cluster {connection.name}: its brokers are too old for group configs (before Kafka 4.1): upgrade them, "
            "or remove the cluster's rows from group_configs"
        )
