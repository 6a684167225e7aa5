"""The first ACL on a resource, if brokers allow everyone access to resources without ACLs (I2).

With `allow.everyone.if.no.acl.found=true`, such an ACL denies the resource to everybody else. Brokers show whether the
property is set, but hide its value: if it is set, it counts as true.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from topicledger.config.settings import Settings
from topicledger.manifests.rows import Transform
from topicledger.observe.listed import Listed
from topicledger.policies.contract import text
from topicledger.resources.acls.acl import ALLOW, EVERYONE, PREFIXED, WILDCARD
from topicledger.resources.acls.cluster_acls import CLUSTER, FIRST_ACL, NEEDED, is_open, principal_unknown, takes_own
from topicledger.resources.acls.names import AclAction, AclRefusal, AclSettings
from topicledger.resources.acls.overlaps import name_covers
from topicledger.resources.deciding import decided, warned
from topicledger.resources.ending import lookup, stopped
from topicledger.schemas import ACL_KEY

_ADD = AclAction.ACL_ADD.value


def may_be_open(seen: Listed) -> Mapping[str, bool | None]:
    """Return each listed cluster on which the property may be set -> true if it is set, None if unknown."""
    return {
        name: status.allow_everyone
        for name, status in seen.statuses.items()
        if status.error is None and status.allow_everyone is not False
    }


def uncovered(acls: DataFrame, others: DataFrame) -> DataFrame:
    """Return the rows of `acls` whose resources none of `others` covers. Both have cluster and `acl`."""
    there = others.select(F.struct("cluster", "acl.*").alias("_there"))
    same_type = F.col("acl.resource_type") == F.col("_there.resource_type")
    covered = (F.col("_there.cluster") == F.col("cluster")) & same_type & name_covers("_there", "acl")
    return acls.join(there, on=covered, how="left_anti")


def first_acls(seen: Listed, settings: Settings) -> Transform:
    """Stop first ACLs on a cluster itself that would lock out the run's own principal; warn of other first ACLs.

    In and out: decided rows; rows that policies refused don't count.
    """
    open_to_all = may_be_open(seen)
    if not open_to_all:
        return lambda rows: rows
    live = seen.rows.select("cluster", F.struct(*ACL_KEY).alias("acl"))

    def transform(rows: DataFrame) -> DataFrame:
        adds = rows.where(decided(_ADD) & F.col("cluster").isin(*open_to_all)).select("cluster", "resource", "acl")
        first = uncovered(adds, live).select("cluster", "resource", F.lit(True).alias("_first"))
        known = rows.join(first, on=["cluster", "resource"], how="left").withColumn(
            "_first", F.coalesce("_first", F.lit(False)) & decided(_ADD)
        )
        return (
            known.transform(_without_own_rights(seen, settings, open_to_all))
            .withColumn("_first", F.col("_first") & F.col("phase").isNull())
            .transform(with_warnings(FIRST_ACL, "_first", open_to_all, _FIRST))
            .select(*rows.columns)
        )

    return transform


def _without_own_rights(seen: Listed, settings: Settings, open_to_all: Mapping[str, bool | None]) -> Transform:
    principals = {name: status.own_principal for name, status in seen.statuses.items()}
    own = lookup(principals, F.col("cluster"))
    of_cluster = F.col("_first") & (F.col("acl.resource_type") == CLUSTER)
    free = F.coalesce(own.isin(*settings.of_kinds.of(AclSettings).super_users), F.lit(False))
    grants_own = (
        of_cluster
        & (F.col("acl.principal").eqNullSafe(own) | (F.col("acl.principal") == EVERYONE))
        & (F.col("acl.permission") == ALLOW)
        & (F.col("acl.host") == WILDCARD)
    )
    granted = F.collect_set(F.when(grants_own, F.col("acl.operation"))).over(Window.partitionBy("cluster"))
    all_of_them = reduce(lambda one, each: one & F.array_contains("_granted", each), NEEDED, F.lit(True))
    keeps = grants_own & (F.array_contains("_granted", "ALL") | all_of_them)
    unknown = {name: principal_unknown(name) for name in open_to_all}
    takes = {name: takes_own(name, is_set) for name, is_set in open_to_all.items()}
    return lambda rows: (
        rows.withColumn("_granted", granted)
        .transform(stopped(of_cluster & own.isNull(), AclRefusal.PRINCIPAL_UNKNOWN, lookup(unknown, F.col("cluster"))))
        .transform(stopped(of_cluster & ~free & ~keeps, AclRefusal.OWN_RIGHTS, lookup(takes, F.col("cluster"))))
    )


@dataclass(frozen=True, kw_only=True)
class Words:
    """Texts of a warning, for one ACL and for all of a cluster."""

    before: str
    after: str
    """The ACL's resource comes between `before` and `after`."""
    all: str
    """Text of the only warning for a cluster on which the property is unknown; the number of its ACLs follows."""


_FIRST = Words(
    before="if it is true, this first ACL ends everybody else's access to ",
    after="",
    all="if it is true, first ACLs end everybody else's access to their resources; first ACLs of this plan: ",
)


def with_warnings(policy: str, column: str, open_to_all: Mapping[str, bool | None], words: Words) -> Transform:
    """Warn of the rows in which `column` (boolean) is true.

    If the property is set, each row gets a warning. If that is unknown, only the first row of a cluster gets one, with
    the number of rows.
    """
    name, pattern = F.col("acl.resource_name"), F.col("acl.pattern_type")
    every, rest = text("every ", F.col("acl.resource_type")), " that no other ACL is about"
    of_all = F.when((pattern != PREFIXED) & (name == WILDCARD), text(every, rest))
    of_prefix = F.when(pattern == PREFIXED, text(every, " that begins with ", name, " and", rest))
    what = F.coalesce(of_all, of_prefix, text(F.col("acl.resource_type"), " ", name))
    why = lookup({name: is_open(is_set) for name, is_set in open_to_all.items()}, F.col("cluster"))
    is_set = F.col("cluster").isin(*(name for name, value in open_to_all.items() if value))
    of_set = text(why, ": ", words.before, what, words.after)
    of_unknown = text(why, " (DescribeConfigs on the cluster): ", words.all, F.col("_count"))
    of_cluster = Window.partitionBy("cluster")
    place = F.row_number().over(of_cluster.orderBy(F.desc(column), "resource"))
    shown = F.when(F.col(column) & is_set, of_set).when(F.col(column) & (F.col("_place") == 1), of_unknown)
    return lambda rows: rows.withColumns({"_count": F.count_if(column).over(of_cluster), "_place": place}).transform(
        warned(policy, shown)
    )
