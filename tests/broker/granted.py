"""ACLs of a user who has none at first."""

from __future__ import annotations

from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

from tests.broker.direct import admin_of
from topicledger_testing.embedded_kafka import EmbeddedKafka

USER = "nobody"
CLUSTER, ANY_TOPIC = (ResourceType.CLUSTER, "kafka-cluster"), (ResourceType.TOPIC, "*")
ANY_GROUP = (ResourceType.GROUP, "*")


class Rights:
    """The permissions that the super user grants the user."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self._kafka = kafka

    def allow(self, operation: ACLOperation, resource: tuple[ResourceType, str], pattern: str = "LITERAL") -> None:
        self._create(operation, resource, pattern, ACLPermissionType.ALLOW)

    def deny(self, operation: ACLOperation, resource: tuple[ResourceType, str], pattern: str = "LITERAL") -> None:
        self._create(operation, resource, pattern, ACLPermissionType.DENY)

    def _create(
        self,
        operation: ACLOperation,
        resource: tuple[ResourceType, str],
        pattern: str,
        permission: ACLPermissionType,
    ) -> None:
        acl = ACL(
            principal=f"User:{USER}",
            host="*",
            operation=operation,
            permission_type=permission,
            resource_pattern=ResourcePattern(*resource, ACLResourcePatternType[pattern]),
        )
        with admin_of(self._kafka) as admin:
            admin._admin.create_acls([acl])

    def take_all(self) -> None:
        every = ACLFilter(
            principal=f"User:{USER}",
            host=None,
            operation=ACLOperation.ANY,
            permission_type=ACLPermissionType.ANY,
            resource_pattern=ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
        )
        with admin_of(self._kafka) as admin:
            admin._admin.delete_acls([every])
