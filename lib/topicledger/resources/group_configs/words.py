"""Words for group configs in messages, help texts and advice."""

from __future__ import annotations

from collections.abc import Mapping

from topicledger.naming import DriftName
from topicledger.resources.group_configs.names import GroupConfigDrift, GroupConfigRefusal
from topicledger.resources.kind import Words

OF_DRIFT: Mapping[DriftName, str] = {
    GroupConfigDrift.GROUP_CONFIG_MISSING: (
        "Run `provision`: it sets the configs, within guards.max_group_config_changes."
    ),
    GroupConfigDrift.GROUP_CONFIG_DIFFERS: (
        "Run `provision`, which sets the declared configs and resets others, within guards.max_group_config_changes, "
        "or declare the live ones."
    ),
    GroupConfigDrift.GROUP_CONFIG_UNMANAGED: (
        "Declare the group, or declare it absent: until then, runs don't change it."
    ),
}
"""What to do about each kind of drift."""

WORDS = Words(
    declared="group",
    export_help="Also export the group configs (Kafka 4.1 and later).",
    advice={
        GroupConfigRefusal.INVALID_GROUP_CONFIG: "Correct the row of group_configs, as the message says.",
    },
    explain_help="Explain the configs of a group instead of a topic.",
)
