"""The last ACL on a resource, if brokers allow everyone access to resources without ACLs (I2): see `first_acls`.

Without the last ACL, everybody may use the resource.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.config.settings import Settings
from topicledger.frames import materialised
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


def last_on_cluster_stay(seen: Listed, settings: Settings) -> Transform:
    """Stop removals of the last ACLs on a cluster itself; return the same rows if there are none.

    In: decided rows after policies and guards, materialised. Out: the same, materialised. Removals that guards stopped
    count as removals, since an approval may allow them. A stopped removal stays stopped.
    """
    open_to_all = may_be_open(seen)
    if not open_to_all or not settings.of_kinds.of(AclSettings).manage:
        return lambda rows: rows
    opens = lookup({name: opens_cluster(is_set) for name, is_set in open_to_all.items()}, F.col("cluster"))
    of_cluster = F.col("acl.resource_type") == CLUSTER

    def transform(rows: DataFrame) -> DataFrame:
        if rows.where(_removals(open_to_all) & of_cluster).isEmpty():
            return rows
        last = rows.transform(_with_last(seen, open_to_all)).withColumn("_last", F.col("_last") & of_cluster)
        marked = last.transform(materialised)
        if marked.where("_last").isEmpty():
            return rows
        # No approval may allow it any more.
        reopened = {name: F.when(~F.col("_last"), F.col(name)) for name in ("guards", *ENDED.names)}
        stops = stopped(F.col("_last"), AclRefusal.LAST_CLUSTER_ACL, opens)
        return marked.withColumns(reopened).transform(stops).select(*rows.columns).transform(materialised)

    return transform


def warned_of_last_acls(seen: Listed, settings: Settings) -> Transform:
    """Warn of removals of last ACLs on resources other than a cluster itself, in rows of `last_on_cluster_stay`."""
    open_to_all = may_be_open(seen)
    if not open_to_all or not settings.of_kinds.of(AclSettings).manage:
        return lambda rows: rows
    return lambda rows: (
        rows.transform(_with_last(seen, open_to_all))
        .transform(with_warnings(LAST_ACL, "_last", open_to_all, _LAST))
        .select(*rows.columns)
    )


def _removals(clusters: Collection[str]) -> Column:
    return may_be_made(_DELETE) & F.col("cluster").isin(*clusters)


def _with_last(seen: Listed, open_to_all: Collection[str]) -> Transform:
    """Add `_last` (boolean): whether a row removes an ACL, and none is left or added on its resource."""
    live = seen.rows.select("cluster", text_of().alias("resource"), F.struct(*ACL_KEY).alias("acl"))

    def transform(rows: DataFrame) -> DataFrame:
        named = rows.select("cluster", "resource", "acl", "decision", "phase", "guards")
        removals = named.where(_removals(open_to_all))
        stay = live.join(removals, on=["cluster", "resource"], how="left_anti")
        others = stay.select("cluster", "acl").unionByName(named.where(decided(_ADD)).select("cluster", "acl"))
        last = uncovered(removals, others).select("cluster", "resource", F.lit(True).alias("_last"))
        return rows.join(last, on=["cluster", "resource"], how="left").withColumn(
            "_last", F.coalesce("_last", F.lit(False))
        )

    return transform
