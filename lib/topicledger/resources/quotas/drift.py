"""Drift of client quotas: the rows of `quotas` compared with the limits of a cluster's entities."""

from __future__ import annotations

from topicledger.resources.quotas.names import QuotaDrift
from topicledger.resources.quotas.rows import OF_QUOTAS
from topicledger.resources.valued import DriftWords
from topicledger.resources.valued import find as find_values

find = find_values(
    OF_QUOTAS,
    DriftWords(
        missing=QuotaDrift.QUOTA_MISSING,
        differs=QuotaDrift.QUOTA_DIFFERS,
        unmanaged=QuotaDrift.QUOTA_UNMANAGED,
        message_missing="the cluster has no quotas for it",
    ),
)
