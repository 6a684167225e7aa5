"""The group configs of live clusters."""

from __future__ import annotations

from topicledger.kafka import ClusterAdmin
from topicledger.observe.listed import Columns
from topicledger.resources.group_configs import requests


def describe(admin: ClusterAdmin) -> tuple[Columns, int]:
    """See `kind.ObservedResources.describe`."""
    found = requests.describe_groups(admin, requests.list_groups(admin))
    # A group whose last config went away meanwhile has none.
    groups = {group: configs for group, configs in found.items() if configs}
    return {"group": list(groups), "configs": [list(each.items()) for each in groups.values()]}, len(groups)
