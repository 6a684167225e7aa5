"""alter_group_configs: IncrementalAlterConfigs. All that a group needs goes in one request, in which it is named once.

Brokers refuse the second entry of a group, and a group with a key twice.
"""

from __future__ import annotations

from pyspark.sql import functions as F

from topicledger.actions.costs import TOUCHED_NAMES
from topicledger.actions.kind import ActionKind
from topicledger.actions.safeguards import Guard, Safeguards
from topicledger.actions.showing import CHANGES, Shown, changed
from topicledger.kafka.config_values import same_value
from topicledger.kafka.connection import CLUSTER_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED
from topicledger.resources import valued
from topicledger.resources.altering import Requests, steps
from topicledger.resources.group_configs import names, requests
from topicledger.resources.group_configs.names import NAMES, GroupConfigAction, GroupConfigRefusal
from topicledger.resources.group_configs.rows import OF_GROUPS


def same_config(name: str, one: str | None, other: str | None) -> bool:
    """Whether a broker reads both values as the same one; two missing values are the same."""
    return one is None and other is None if one is None or other is None else bool(same_value(name, one, other))


_REQUESTS = Requests(
    describe=requests.describe_targets,
    alter=requests.alter_groups,
    same=same_config,
    not_permitted=dict.fromkeys((GROUP_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED), requests.NO_ALTER),
)

MAX_GROUP_CONFIG_CHANGES = Guard(
    setting=names.MAX_GROUP_CONFIG_CHANGES,
    error=GroupConfigRefusal.MAX_GROUP_CONFIG_CHANGES_EXCEEDED,
    counted="groups of this cluster whose configs the run would change",
)

KIND = ActionKind(
    name=GroupConfigAction.ALTER_GROUP_CONFIGS.value,
    resource_type=NAMES.resource_type,
    option="groups",
    order=10,
    wanted=lambda: F.col("decision") == GroupConfigAction.ALTER_GROUP_CONFIGS.value,
    not_declared=lambda: valued.not_declared(OF_GROUPS),
    shown=Shown(CHANGES, changed("broker default"), "given other configs"),
    cost=TOUCHED_NAMES,
    safeguards=Safeguards(switch=None, guard=MAX_GROUP_CONFIG_CHANGES, approved_as=(NAMES.approved_as,)),
    steps=steps(_REQUESTS),
)
