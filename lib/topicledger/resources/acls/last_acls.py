"""The last ACL on a resource, if brokers allow everyone access to resources without ACLs (I2): see `first_acls`.

Without the last ACL, everybody may use the resource.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.config.settings import Settings
from topicledger.manifests.rows import Transform
from topicledger.observe.listed import Listed
from topicledger.phases import ENDED
from topicledger.resources.acls.cluster_acls import CLUSTER, LAST_ACL, opens_cluster
from topicledger.resources.acls.first_acls import Words, may_be_open, uncovered, with_warnings
from topicledger.resources.acls.names import AclAction, AclRefusal, AclSettings
from topicledger.resources.acls.rows import text_of
from topicledger.resources.deciding import decided, may_be_made
from topicledger.resources.ending import lookup, stopped
from topicledger.schemas import ACL_KEY

_ADD, _DELETE = AclAction.ACL_ADD.value, AclAction.ACL_DELETE.value
_LAST = Words(
    before="if it is true, everybody may use ",
    after=" once this last ACL on it is removed",
    all="if it is true, everybody may use resources whose last ACL is removed; last ACLs that this plan removes: ",
)


def last_acls(seen: Listed, settings: Settings) -> Transform:
    """Stop removals of the last ACLs on a cluster itself, and warn of last ACLs on other resources.

    In and out: decided rows, after all policies and guards. Removals that guards stopped count as removals, since an
    approval may allow them.
    """
    open_to_all = may_be_open(seen)
    if not open_to_all or not settings.of_kinds.of(AclSettings).manage:
        return lambda rows: rows
    live = seen.rows.select("cluster", text_of().alias("resource"), F.struct(*ACL_KEY).alias("acl"))
    opens = lookup({name: opens_cluster(is_set) for name, is_set in open_to_all.items()}, F.col("cluster"))

    def transform(rows: DataFrame) -> DataFrame:
        named = rows.select("cluster", "resource", "acl", "decision", "phase", "guards")
        removals = named.where(may_be_made(_DELETE) & F.col("cluster").isin(*open_to_all))
        stay = live.join(removals, on=["cluster", "resource"], how="left_anti")
        others = stay.select("cluster", "acl").unionByName(named.where(decided(_ADD)).select("cluster", "acl"))
        last = uncovered(removals, others).select("cluster", "resource", F.lit(True).alias("_last"))
        of_cluster = F.col("_last") & (F.col("acl.resource_type") == CLUSTER)
        opened = {name: F.when(~(of_cluster & F.col("guards").isNotNull()), F.col(name)) for name in ENDED.names}
        unstopped = {**opened, "guards": F.when(~of_cluster, F.col("guards"))}
        return (
            rows.join(last, on=["cluster", "resource"], how="left")
            .withColumn("_last", F.coalesce("_last", F.lit(False)))
            .withColumns(unstopped)
            .transform(stopped(of_cluster, AclRefusal.LAST_CLUSTER_ACL, opens))
            .withColumn("_last", F.col("_last") & may_be_made(_DELETE))
            .transform(with_warnings(LAST_ACL, "_last", open_to_all, _LAST))
            .select(*rows.columns)
        )

    return transform
