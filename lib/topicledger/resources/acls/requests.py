"""Requests about ACLs: DescribeAcls, CreateAcls, DeleteAcls (KIP-140, KIP-290), with Kafka's names.

kafka-python's own methods drop which ACL failed and why, and raise if a broker names an operation that they don't know
(A6).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kafka.admin import ConfigResourceType
from kafka.protocol.admin import (
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    ListConfigResourcesRequest,
)

from topicledger.kafka import ClusterAdmin, Response
from topicledger.kafka.connection import (
    CLUSTER_AUTHORIZATION_FAILED,
    NONE,
    SECURITY_DISABLED,
    Connection,
    NotListed,
    RequestLost,
    error_name,
    result_of,
)
from topicledger.model import Target, TopicResult
from topicledger.resources.acls.acl import DENY, Acl

log = logging.getLogger(__name__)

_ANY = 1
_VERSION_WITH_PATTERNS = 1
"""First version of all three requests with pattern types: older brokers take every name for a literal one."""
_VERSION_WITH_USERS = 3
"""First version of all three requests with resources of type USER."""
_NEWER_OPERATIONS = {"TWO_PHASE_COMMIT": (ListConfigResourcesRequest, 1)}
"""Operation without a version of these requests -> a version of a request that came with it (KIP-1142: Kafka 4.1)."""
NO_ALTER = "this principal may not change ACLs: grant it Alter on the cluster"

_OPERATIONS = {
    "ALL": 2, "READ": 3, "WRITE": 4, "CREATE": 5, "DELETE": 6, "ALTER": 7, "DESCRIBE": 8, "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10, "ALTER_CONFIGS": 11, "IDEMPOTENT_WRITE": 12, "CREATE_TOKENS": 13, "DESCRIBE_TOKENS": 14,
    "TWO_PHASE_COMMIT": 15,
}  # fmt: skip
_RESOURCE_TYPES = {"TOPIC": 2, "GROUP": 3, "CLUSTER": 4, "TRANSACTIONAL_ID": 5, "DELEGATION_TOKEN": 6, "USER": 7}
_PATTERN_TYPES = {"LITERAL": 3, "PREFIXED": 4}
_PERMISSIONS = {DENY: 2, "ALLOW": 3}
_UNKNOWN = "UNKNOWN_"
"""Prefix of the number of a value that only newer brokers know."""


def describe_acls(connection: Connection, principals: Collection[str] | None = None) -> list[Acl]:
    """Return every ACL of the cluster; if one principal is named, only its ACLs. Raises NotListed."""
    few = principals is not None and len(principals) == 1
    response = connection.ask(
        DescribeAclsRequest(
            resource_type_filter=_ANY,
            resource_name_filter=None,
            pattern_type_filter=_ANY,
            principal_filter=next(iter(principals)) if few and principals else None,
            host_filter=None,
            operation=_ANY,
            permission_type=_ANY,
        )
    )
    if response.error_code == NONE:
        return [*_acls(response.resources)]
    if response.error_code == CLUSTER_AUTHORIZATION_FAILED:
        raise NotListed(
            f"cluster {connection.name}: its ACLs can't be listed: {connection.needs('Describe on the cluster')}"
        )
    if response.error_code == SECURITY_DISABLED:
        raise NotListed(
            f"cluster {connection.name} has no ACLs, since its brokers have no authorizer (authorizer.class.name): "
            "declare none for it"
        )
    raise RequestLost(f"cluster {connection.name}: ACLs can't be listed: {error_name(response.error_code)}")


def _acls(resources: Sequence[Any]) -> Iterator[Acl]:
    for resource in resources:
        resource_type = _name(_RESOURCE_TYPES, resource.resource_type)
        pattern_type = _name(_PATTERN_TYPES, resource.pattern_type)
        for each in resource.acls:
            yield Acl(
                principal=each.principal,
                permission=_name(_PERMISSIONS, each.permission_type),
                operation=_name(_OPERATIONS, each.operation),
                resource_type=resource_type,
                pattern_type=pattern_type,
                resource_name=resource.resource_name,
                host=each.host,
            )


def may_alter_acls(connection: Connection) -> bool | None:
    """Whether this principal may change ACLs (Alter on the cluster); None if brokers don't report it (before 2.8)."""
    if not connection.supports(DescribeClusterRequest):
        return None
    response = connection.ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
    if response.error_code != NONE:
        return None
    return bool({_OPERATIONS["ALTER"], _OPERATIONS["ALL"]} & set(response.authorized_operations))


ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"
SUPER_USERS = "super.users"


def authorizer_settings(admin: ClusterAdmin) -> Mapping[str, bool | None]:
    """Return by name whether `ALLOW_EVERYONE` and `SUPER_USERS` are set on brokers, to any value.

    True if a broker has it; None if none reports it and not every broker shows its configs. Brokers treat both as
    secrets: they report that one is set, but never its value. Raises ClusterError if the cluster can't be reached.
    """
    found: set[str] = set()
    unknown = False
    for broker_id in (each.broker_id for each in admin.describe_cluster().brokers):
        resource = (ConfigResourceType.BROKER, str(broker_id), [ALLOW_EVERYONE, SUPER_USERS])
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=False)
        try:
            (result,) = admin.ask(request, broker_id).results
        except RequestLost as error:
            # The next brokers may take as long to give no answer.
            log.warning("configs of broker %d are unknown: %s", broker_id, error)
            unknown = True
            break
        found |= {each.name for each in result.configs}
        unknown |= result.error_code != NONE
    return {name: name in found or (None if unknown else False) for name in (ALLOW_EVERYONE, SUPER_USERS)}


def create_acls(admin: ClusterAdmin, targets: Sequence[Target]) -> Response:
    """Send one CreateAcls request; adding an existing ACL does no harm (A2)."""
    response = admin.change(_create_acls_request(targets))
    return Response(results=_created(targets, response), throttle_time_ms=response.throttle_time_ms)


def delete_acls(admin: ClusterAdmin, targets: Sequence[Target]) -> Response:
    """Send one DeleteAcls request; deleting a missing ACL does no harm (A2)."""
    response = admin.change(_delete_acls_request(targets))
    return Response(results=_deleted(targets, response), throttle_time_ms=response.throttle_time_ms)


def _create_acls_request(targets: Sequence[Target]) -> Any:
    """Build a request that adds the ACL in each target's `after`."""
    acls = [Acl.of(target.after) for target in targets]
    return CreateAclsRequest(
        min_version=_min_version(acls),
        creations=[
            CreateAclsRequest.AclCreation(
                resource_type=_number(_RESOURCE_TYPES, each.resource_type),
                resource_name=each.resource_name,
                resource_pattern_type=_number(_PATTERN_TYPES, each.pattern_type),
                principal=each.principal,
                host=each.host,
                operation=_number(_OPERATIONS, each.operation),
                permission_type=_number(_PERMISSIONS, each.permission),
            )
            for each in acls
        ],
    )


def _created(targets: Sequence[Target], response: Any) -> dict[str, TopicResult]:
    """Return a CreateAcls response's answers by resource, in the request's order."""
    return {
        target.resource: result_of(each.error_code, each.error_message, NO_ALTER)
        for target, each in zip(targets, response.results, strict=True)
    }


def _delete_acls_request(targets: Sequence[Target]) -> Any:
    """Build a request that deletes exactly the ACL in each target's `before`, never what a pattern matches (A5)."""
    acls = [Acl.of(target.before) for target in targets]
    return DeleteAclsRequest(
        min_version=_min_version(acls),
        filters=[
            DeleteAclsRequest.DeleteAclsFilter(
                resource_type_filter=_number(_RESOURCE_TYPES, each.resource_type),
                resource_name_filter=each.resource_name,
                pattern_type_filter=_number(_PATTERN_TYPES, each.pattern_type),
                principal_filter=each.principal,
                host_filter=each.host,
                operation=_number(_OPERATIONS, each.operation),
                permission_type=_number(_PERMISSIONS, each.permission),
            )
            for each in acls
        ],
    )


def _deleted(targets: Sequence[Target], response: Any) -> dict[str, TopicResult]:
    """Return a DeleteAcls response's answers by resource, in the request's order; `before` is empty if none matched."""
    found = {}
    for target, each in zip(targets, response.filter_results, strict=True):
        failed = next((match for match in each.matching_acls if match.error_code != NONE), None)
        answer = each if failed is None or each.error_code != NONE else failed
        before = target.before if each.matching_acls else {}
        found[target.resource] = replace(result_of(answer.error_code, answer.error_message, NO_ALTER), before=before)
    return found


def _min_version(acls: Sequence[Acl]) -> int:
    return max(map(_version, acls), default=0)


def _version(acl: Acl) -> int:
    if acl.resource_type == "USER":
        return _VERSION_WITH_USERS
    return 0 if acl.pattern_type == "LITERAL" else _VERSION_WITH_PATTERNS


def knows_acls_like(connection: Connection, acl: Acl) -> bool:
    """Whether the brokers know ACLs like this one, by the versions of their requests.

    A broker drops the connection of a request with an operation that it doesn't know (A4).
    """
    came_with = _NEWER_OPERATIONS.get(acl.operation)
    if came_with is not None and not connection.supports(*came_with):
        return False
    return all(connection.supports(each, _version(acl)) for each in (CreateAclsRequest, DeleteAclsRequest))


def _name(numbers: Mapping[str, int], number: int) -> str:
    return next((name for name, each in numbers.items() if each == number), f"{_UNKNOWN}{number}")


def _number(numbers: Mapping[str, int], name: str) -> int:
    return int(name.removeprefix(_UNKNOWN)) if name.startswith(_UNKNOWN) else numbers[name]
