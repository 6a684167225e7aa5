"""The policies that topicledger has, by the kind of action that they judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger.ledger.rows import touched
from topicledger.model import AccessAction, Action, Refusal, ReplicaAction
from topicledger.policies import acl, change, create, create_together, delete, moves, quota
from topicledger.policies.contract import Judged, Rule

Factory = Callable[..., Rule]
"""Makes a rule of a policy's settings, its parameters."""

BUILT_IN: Mapping[Judged, Mapping[str, Factory]] = {
    Action.CREATE: {
        each.__name__: each
        for each in (
            create.topic_name_pattern,
            create.topic_name_prefix,
            create.num_partitions,
            create.replication_factor,
            create.configs_allowed,
            create.configs_required,
            create.configs_forbidden,
            create.config_values,
            create.config_range,
            create.min_insync_replicas,
            create.owner_required,
            create.labels_required,
            create_together.distinct_racks,
            create_together.partition_budget,
            create_together.replicas_per_broker,
            create_together.topics_per_owner,
            create_together.partitions_per_owner,
        )
    },
    Action.DELETE: {
        each.__name__: each
        for each in (
            delete.in_use,
            delete.protected_topics,
            create.owner_required,
            delete.no_consumer_groups,
            delete.no_recent_records,
            delete.deletes_per_owner,
            delete.deletes_fraction,
        )
    },
    Action.ADD_PARTITIONS: {
        each.__name__: each for each in (change.partitions_growth, change.keyed_topics_keep_partitions)
    },
    Action.ALTER_CONFIGS: {each.__name__: each for each in (change.config_change_forbidden,)},
    ReplicaAction.REASSIGN: {each.__name__: each for each in (moves.max_bytes_moved,)},
    AccessAction.ACL_ADD: {
        each.__name__: each
        for each in (
            acl.acl_forbidden,
            acl.acl_owner,
            acl.max_acls_per_principal,
            acl.deny_needs_label,
            create.owner_required,
            create.labels_required,
        )
    },
    AccessAction.ALTER_QUOTA: {
        each.__name__: each for each in (quota.quota_range, create.owner_required, create.labels_required)
    },
}
"""The policies to choose from, by what they judge and by name."""

GROWTH_TOO = frozenset({"num_partitions", "partition_budget", "replicas_per_broker", "partitions_per_owner"})
"""Policies of creates that judge added partitions, too."""

ALTERS_TOO: Mapping[str, Callable[[Mapping[str, Any]], Column]] = {
    "configs_allowed": lambda options: F.size(F.array_except(F.map_keys("after"), _names(options["names"]))) > 0,
    "configs_required": lambda options: F.arrays_overlap(change.reset(), _names(options["names"])),
    "configs_forbidden": lambda options: F.arrays_overlap(F.map_keys("after"), _names(options["names"])),
    "config_values": lambda options: F.array_contains(touched(), options["config"]),
    "config_range": lambda options: F.array_contains(touched(), options["config"]),
    "min_insync_replicas": lambda _: F.array_contains(touched(), "min.insync.replicas"),
}
"""Policies of creates that judge altered configs, too: which alters concern them where their scope is `changes`."""

MOVES_TOO = frozenset({"replication_factor", "min_insync_replicas"})
"""Policies of creates that judge moves, too: with scope `changes`, those that change the number of replicas."""

ALWAYS: Mapping[Judged, Mapping[str, tuple[Factory, Refusal]]] = {
    Action.DELETE: {"internal_topic": (delete.internal_topic, Refusal.POLICY_VIOLATION)},
    Action.CREATE: {"name_collision": (create_together.name_collision, Refusal.NAME_COLLISION)},
    Action.ADD_PARTITIONS: {"fewer_partitions": (change.fewer_partitions, Refusal.FEWER_PARTITIONS)},
    ReplicaAction.REASSIGN: {"enough_replicas": (moves.enough_replicas, Refusal.BELOW_MIN_INSYNC)},
}
"""The policies that no setting turns off."""


def _names(names: Sequence[str]) -> Column:
    return F.array(*map(F.lit, names))
