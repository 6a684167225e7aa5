"""The group configs of live clusters."""

from __future__ import annotations

from topicledger.kafka import ClusterAdmin
from topicledger.observe.listed import Columns, Undescribed
from topicledger.resources.group_configs import requests


def describe(admin: ClusterAdmin) -> tuple[Columns, int]:
    """See `kind.ObservedResources.describe`."""
    found = requests.describe_groups(admin, requests.list_groups(admin))
    # A group whose last config went away meanwhile has none.
    groups = {group: configs for group, configs in found.items() if configs}
    unknown = [each if isinstance(each, Undescribed) else None for each in groups.values()]
    columns: Columns = {
        "group": list(groups),
        "configs": [None if isinstance(each, Undescribed) else list(each.items()) for each in groups.values()],
        "error": [each and each.error.value for each in unknown],
        "error_message": [each and each.message for each in unknown],
    }
    return columns, len(groups)
