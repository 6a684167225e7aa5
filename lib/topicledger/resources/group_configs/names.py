"""Names of group configs in settings, tables and messages."""

from __future__ import annotations

from topicledger.naming import ActionName, DriftName, KindNames, RefusalName


class GroupConfigAction(ActionName):
    """The kind of action on group configs."""

    ALTER_GROUP_CONFIGS = "alter_group_configs"


class GroupConfigRefusal(RefusalName):
    """Errors of group configs only."""

    INVALID_GROUP_CONFIG = "INVALID_GROUP_CONFIG"
    """The row declares configs that no broker accepts, or `scope.ignore_groups` leaves the group to others."""
    MAX_GROUP_CONFIG_CHANGES_EXCEEDED = "MAX_GROUP_CONFIG_CHANGES_EXCEEDED"
    """The run would change more groups than guards.max_group_config_changes: it changes none."""


class GroupConfigDrift(DriftName):
    """The kinds of drift of group configs."""

    GROUP_CONFIG_MISSING = "group_config_missing"
    GROUP_CONFIG_DIFFERS = "group_config_differs"
    GROUP_CONFIG_UNMANAGED = "group_config_unmanaged"


CONFIGS = (
    "consumer.assignment.interval.ms",
    "consumer.assignor.offload.enable",
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "errors.deadletterqueue.copy.record.enable",
    "errors.deadletterqueue.topic.name",
    "share.assignment.interval.ms",
    "share.assignor.offload.enable",
    "share.auto.offset.reset",
    "share.delivery.count.limit",
    "share.heartbeat.interval.ms",
    "share.isolation.level",
    "share.partition.max.record.locks",
    "share.record.lock.duration.ms",
    "share.renew.acknowledge.enable",
    "share.session.timeout.ms",
    "streams.acceptable.recovery.lag",
    "streams.assignment.interval.ms",
    "streams.assignor.name",
    "streams.assignor.offload.enable",
    "streams.heartbeat.interval.ms",
    "streams.initial.rebalance.delay.ms",
    "streams.num.standby.replicas",
    "streams.num.warmup.replicas",
    "streams.rack.aware.assignment.tags",
    "streams.session.timeout.ms",
    "streams.task.offset.interval.ms",
)
"""The configs of groups that Kafka 4.1 to 4.4 knows, from its GroupConfig."""
TEXTS = ("errors.deadletterqueue.topic.name", "streams.assignor.name")
"""Those that are names: `042` and `42` are two topics."""

MAX_GROUP_CONFIG_CHANGES = "max_group_config_changes"

NAMES = KindNames(
    resource_type="group_config",
    package="group_configs",
    one="group config",
    many="group configs",
    actions=GroupConfigAction,
    refusals=GroupConfigRefusal,
    invalid=GroupConfigRefusal.INVALID_GROUP_CONFIG,
    ignores={"ignore_groups": "group"},
    drift={
        GroupConfigDrift.GROUP_CONFIG_MISSING: "error",
        GroupConfigDrift.GROUP_CONFIG_DIFFERS: "error",
        GroupConfigDrift.GROUP_CONFIG_UNMANAGED: "warning",
    },
    guards={
        MAX_GROUP_CONFIG_CHANGES: "Groups whose configs one run may change.",
    },
    section=None,
    approved_as="groups",
)
