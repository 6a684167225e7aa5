"""The first ACL on a resource, where brokers allow everyone what no ACL is about (I2).

With `allow.everyone.if.no.acl.found=true` such an ACL takes the resource from everyone else. Brokers show whether that
is set, and hide its value: where it is set, it counts as true.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from topicledger.actions.acls import principal_unknown
from topicledger.config.settings import Settings
from topicledger.kafka.access import ALLOW_EVERYONE
from topicledger.manifests.rows import Transform
from topicledger.model import AccessAction, Refusal
from topicledger.model.access import ALLOW, EVERYONE, PREFIXED, WILDCARD
from topicledger.observe.listed import Listed
from topicledger.plan.replaced import name_covers
from topicledger.policies.contract import text
from topicledger.resources.deciding import decided, warned
from topicledger.resources.ending import lookup, stopped
from topicledger.schemas import ACL_KEY

FIRST_ACL = "first_acl"
"""The name that these warnings go by."""
_NEEDED = ("ALTER", "CREATE", "ALTER_CONFIGS")
"""What a run does to a cluster itself; each implies the matching DESCRIBE."""
_ADD = AccessAction.ACL_ADD.value


def first_acls(seen: Listed, settings: Settings) -> Transform:
    """Stops the first ACLs on a cluster itself that would take its rights from the run's own principal, and warns of
    the first ones on other resources. In and out: decided rows; those that policies refused count for nothing."""
    open_to_all = {
        name: status.allow_everyone
        for name, status in seen.statuses.items()
        if status.error is None and status.allow_everyone is not False
    }
    if not open_to_all:
        return lambda rows: rows
    own = lookup({name: status.own_principal for name, status in seen.statuses.items()}, F.col("cluster"))
    is_set = F.col("cluster").isin(*(name for name, value in open_to_all.items() if value))
    live = seen.rows.select("cluster", F.struct(*ACL_KEY).alias("_there"))

    def transform(rows: DataFrame) -> DataFrame:
        adds = rows.where(decided(_ADD) & F.col("cluster").isin(*open_to_all)).select("cluster", "resource", "acl")
        same_type = F.col("acl.resource_type") == F.col("_there.resource_type")
        covered = (F.col("_there.cluster_name") == F.col("cluster")) & same_type & name_covers("_there", "acl")
        there = live.select(F.struct(F.col("cluster").alias("cluster_name"), "_there.*").alias("_there"))
        first = adds.join(there, on=covered, how="left_anti").select("cluster", "resource", F.lit(True).alias("_first"))
        known = rows.join(first, on=["cluster", "resource"], how="left").withColumns(
            {"_first": F.coalesce("_first", F.lit(False)) & decided(_ADD), "_own": own}
        )
        return (
            known.transform(_without_own_rights(settings, is_set))
            .withColumn("_first", F.col("_first") & F.col("phase").isNull())
            .transform(_with_warnings(is_set))
            .select(*rows.columns)
        )

    return transform


def _without_own_rights(settings: Settings, is_set: Column) -> Transform:
    of_cluster = F.col("_first") & (F.col("acl.resource_type") == "CLUSTER")
    free = F.coalesce(F.col("_own").isin(*settings.acls.super_users), F.lit(False))
    grants_own = (
        of_cluster
        & (F.col("acl.principal").eqNullSafe(F.col("_own")) | (F.col("acl.principal") == EVERYONE))
        & (F.col("acl.permission") == ALLOW)
        & (F.col("acl.host") == WILDCARD)
    )
    granted = F.collect_set(F.when(grants_own, F.col("acl.operation"))).over(Window.partitionBy("cluster"))
    all_of_them = reduce(lambda one, each: one & F.array_contains("_granted", each), _NEEDED, F.lit(True))
    keeps = grants_own & (F.array_contains("_granted", "ALL") | all_of_them)
    unknown = text(principal_unknown("\0").split("\0")[0], F.col("cluster"), principal_unknown("\0").split("\0")[1])
    why = F.when(is_set, text(ALLOW_EVERYONE, " is set on this cluster (brokers hide its value)")).otherwise(
        text("it isn't known whether ", ALLOW_EVERYONE, " is set on this cluster, since its broker shows no configs")
    )
    message = text(
        why, ": as the first ACL on the cluster itself it may take ", ", ".join(_NEEDED), " from ", F.col("_own"),
        ", which this run signs in as: let a run add ALL for that principal first, or name it in acls.super_users",
    )  # fmt: skip
    return lambda rows: (
        rows.withColumn("_granted", granted)
        .transform(stopped(of_cluster & F.col("_own").isNull(), Refusal.PRINCIPAL_UNKNOWN, unknown))
        .transform(stopped(of_cluster & ~free & ~keeps, Refusal.OWN_RIGHTS, message))
    )


def _with_warnings(is_set: Column) -> Transform:
    """Of each, where it is set; of the first one of a cluster, how many there are, where nobody knows."""
    name, pattern = F.col("acl.resource_name"), F.col("acl.pattern_type")
    every, rest = text("every ", F.col("acl.resource_type")), " that no other ACL is about"
    of_all = F.when((pattern != PREFIXED) & (name == WILDCARD), text(every, rest))
    of_prefix = F.when(pattern == PREFIXED, text(every, " that begins with ", name, " and", rest))
    what = F.coalesce(of_all, of_prefix, text(F.col("acl.resource_type"), " ", name))
    of_set = text(
        ALLOW_EVERYONE, " is set on this cluster (brokers hide its value): where it is true, this first ACL takes ",
        what, " from everybody else",
    )  # fmt: skip
    of_unknown = text(
        "it isn't known whether ", ALLOW_EVERYONE, " is set on this cluster, since its broker shows no configs "
        "(DescribeConfigs on the cluster): where it is true, first ACLs take their resources from everybody else; "
        "first ACLs of this plan: ", F.col("_count"),
    )  # fmt: skip
    of_cluster = Window.partitionBy("cluster")
    place = F.row_number().over(of_cluster.orderBy(F.desc("_first"), "resource"))
    shown = F.when(F.col("_first") & is_set, of_set).when(F.col("_first") & (F.col("_place") == 1), of_unknown)
    return lambda rows: rows.withColumns({"_count": F.count_if("_first").over(of_cluster), "_place": place}).transform(
        warned(FIRST_ACL, shown)
    )
