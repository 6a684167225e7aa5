"""Which client quotas a run alters. A row declares all limits of its entity; other entities are left alone."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.config.settings import Settings
from topicledger.manifests.rows import PRESENT, Transform
from topicledger.observe.listed import Listed
from topicledger.observe.topics import ClusterStatus
from topicledger.phases import DECIDED_RESOURCE
from topicledger.resources.deciding import at_most, decided, warned
from topicledger.resources.quotas import rows as manifests
from topicledger.resources.quotas.actions import MAX_QUOTA_CHANGES
from topicledger.resources.quotas.names import QuotaAction
from topicledger.resources.quotas.rows import OF_QUOTAS
from topicledger.resources.valued import compared

ALTER = QuotaAction.ALTER_QUOTA.value
UNUSUAL = "unusual_quota"
"""Name of the warning about quotas that almost never apply."""


def decide(seen: Listed, clusters: Mapping[str, ClusterStatus], settings: Settings, judged_by: Transform) -> Transform:
    """Return phases decide, policy and guard for quotas: see `Deciding.decide`.

    The decision is alter_quota, unchanged or unmanaged. `before` and `after` have the limits that differ. Actions that
    a policy refuses don't count for the guard.
    """

    def transform(judged: DataFrame) -> DataFrame:
        sets = F.col("state").eqNullSafe(F.lit(PRESENT))
        return (
            judged.transform(compared(OF_QUOTAS, seen, clusters))
            .transform(judged_by)
            .transform(at_most(ALTER, MAX_QUOTA_CHANGES, settings.guards))
            .transform(warned(UNUSUAL, F.when(decided(ALTER) & sets, manifests.unusual())))
            .select(*DECIDED_RESOURCE.names)
        )

    return transform
