"""The ACLs of live clusters, and this client's principal there."""

from __future__ import annotations

from topicledger.kafka import ClusterAdmin
from topicledger.observe.listed import Columns
from topicledger.resources.acls import requests
from topicledger.resources.acls.requests import ALLOW_EVERYONE
from topicledger.schemas import ACL_KEY


def allows_everyone(admin: ClusterAdmin) -> bool | None:
    """Whether any broker has set `allow.everyone.if.no.acl.found`, whose value it hides; None if unknown."""
    return requests.authorizer_settings(admin)[ALLOW_EVERYONE]


def describe(admin: ClusterAdmin) -> tuple[Columns, int]:
    """See `kind.ObservedResources.describe`."""
    acls = sorted(set(requests.describe_acls(admin)))
    return {name: [getattr(each, name) for each in acls] for name in ACL_KEY}, len(acls)
