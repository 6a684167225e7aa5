"""alter_group_configs: IncrementalAlterConfigs. All that a group needs goes in one request, in which it is named once.

Brokers refuse the second entry of a group, and a group with a key twice.
"""

from __future__ import annotations

from topicledger.actions.safeguards import Guard
from topicledger.kafka.config_values import same_value
from topicledger.kafka.connection import CLUSTER_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED
from topicledger.resources.altering import Requests, action
from topicledger.resources.group_configs import names, requests
from topicledger.resources.group_configs.names import NAMES, GroupConfigRefusal
from topicledger.resources.group_configs.rows import OF_GROUPS


def same_config(name: str, one: str | None, other: str | None) -> bool:
    """Whether a broker reads both values as the same one; two missing values are the same."""
    if name in names.TEXTS or one is None or other is None:
        return one == other
    return bool(same_value(name, one, other))


_REQUESTS = Requests(
    describe=requests.describe_targets,
    alter=requests.alter_groups,
    same=same_config,
    not_permitted=dict.fromkeys((GROUP_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED), requests.NO_ALTER),
)

_GUARD = Guard(
    setting=names.MAX_GROUP_CONFIG_CHANGES,
    error=GroupConfigRefusal.MAX_GROUP_CONFIG_CHANGES_EXCEEDED,
    counted="groups of this cluster whose configs the run would change",
)

KIND = action(
    OF_GROUPS, NAMES, _REQUESTS, _GUARD, option="groups", order=10, unset="broker default", done="given other configs"
)
