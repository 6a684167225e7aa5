"""Which rights are to be added and removed: the judged rows of `acls` and the listed ACLs, joined to decisions.

Only what `[acls] manage` names is ever removed. The run's own principal and super users never lose a right by a run:
no setting turns that off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from topicledger.actions.acls import OWN_RIGHTS, REPLACED_BY, principal_unknown
from topicledger.config.patterns import matches
from topicledger.config.settings import Settings
from topicledger.manifests.acls import text_of, values_of
from topicledger.manifests.rows import ABSENT, PRESENT, Transform
from topicledger.model import AccessAction, Decision, Outcome, Phase, Refusal, ResourceType
from topicledger.model.access import ALLOW, DENY, EVERYONE, PREFIXED, WILDCARD
from topicledger.observe.acls import AclObservation
from topicledger.observe.topics import ClusterStatus
from topicledger.plan.changes import with_ended
from topicledger.plan.decide import ENDED, VALUES, ended, lookup
from topicledger.plan.guards import stopped
from topicledger.schemas import ACL_KEY
from topicledger.schemas.tables import VIOLATIONS

ADD, DELETE = AccessAction.ACL_ADD.value, AccessAction.ACL_DELETE.value
COLUMNS = (
    "cluster", "cluster_id", "resource_type", "resource", "acl", "state", "owner", "labels", "decision",
    "phase", "outcome", "error", "error_message", "violations", "before", "after", "waits",
)  # fmt: skip
"""Of a decision about a right: `acl` is a struct of `ACL_KEY`, `resource` its text."""


def decide(
    seen: AclObservation, clusters: Mapping[str, ClusterStatus], settings: Settings, judged_by: Transform
) -> Transform:
    """Phases decide, guard and policy for rights; `judged_by` is the last of them.

    In: what `manifests.acls.judge` returns, materialised. `clusters`: how observing the topics of each went. Out:
    `COLUMNS`, a row per (cluster, right) of either side; the decision is acl_add, acl_delete, unchanged or unmanaged.
    """

    def transform(judged: DataFrame) -> DataFrame:
        return (
            judged.transform(guarded(seen, clusters, settings))
            .transform(judged_by)
            .transform(_replaced)
            .select(*COLUMNS)
        )

    return transform


def guarded(seen: AclObservation, clusters: Mapping[str, ClusterStatus], settings: Settings) -> Transform:
    """Decide and guard: removals first, so that only those that will be sent make room. In: as `decide`. Out: what
    policies of rights see."""

    def transform(judged: DataFrame) -> DataFrame:
        own = {name: status.own_principal for name, status in seen.statuses.items()}
        return (
            judged.transform(_beside_live(seen, clusters))
            .transform(_decided(settings))
            .transform(_protected(own, settings, seen.acls))
            .transform(_max_deletes(settings.guards.max_acl_deletes))
        )

    return transform


def _beside_live(seen: AclObservation, clusters: Mapping[str, ClusterStatus]) -> Transform:
    """Adds `acl`, `live`, and what ended rows whose cluster's ACLs aren't known."""

    def transform(judged: DataFrame) -> DataFrame:
        struct = F.struct(*ACL_KEY)
        live = seen.acls.select("cluster", text_of().alias("resource"), struct.alias("live_acl"))
        declared = judged.withColumn("acl", struct).drop(*ACL_KEY)
        ids = {name: status.cluster_id for name, status in clusters.items()}
        return (
            declared.join(live, on=["cluster", "resource"], how="full_outer")
            .withColumns(
                {
                    "acl": F.coalesce("acl", "live_acl"),
                    "live": F.col("live_acl").isNotNull(),
                    "cluster_id": lookup(ids, F.col("cluster")),
                    "resource_type": F.lit(ResourceType.ACL.value),
                    "violations": F.lit(None).cast(VIOLATIONS),
                    "waits": F.lit(False),
                    # A policy needs no answer of a broker's to judge it.
                    "validated": F.lit(True),
                    "_unknown": F.when(F.col("phase").isNull(), _unknown(seen, clusters)),
                }
            )
            .transform(with_ended, "_unknown")
        )

    return transform


def _unknown(seen: AclObservation, clusters: Mapping[str, ClusterStatus]) -> Column:
    """What ends a declared row of a cluster that can't be reached, is not the one meant, or doesn't list its ACLs."""
    found = {}
    for name, status in clusters.items():
        acls = seen.statuses.get(name)
        if status.error is not None:
            found[name] = (Phase.OBSERVE, Outcome.FAILED, Refusal.CLUSTER_UNREACHABLE, status.error)
        elif status.refused is not None:
            found[name] = (Phase.GUARD, Outcome.REFUSED, status.refused.error, status.refused.message)
        elif acls is not None and acls.error is not None:
            found[name] = (Phase.OBSERVE, Outcome.REFUSED, acls.error, acls.message or "")
    rows: Column = F.lit(None).cast(ENDED)
    for name, values in found.items():
        rows = F.when(F.col("cluster") == name, ended(*map(F.lit, map(str, values)))).otherwise(rows)
    return rows


def _decided(settings: Settings) -> Transform:
    def transform(rows: DataFrame) -> DataFrame:
        managed = reduce(
            lambda found, pattern: found | matches("_principal", pattern), settings.acls.manage, F.lit(False)
        )
        protected = F.col("acl.principal").isin(*settings.acls.super_users) & (F.col("acl.permission") == ALLOW)
        declared = F.col("state").isNotNull()
        decision = (
            F.when(~declared & F.col("_managed") & ~protected, F.lit(DELETE))
            .when(~declared, F.lit(Decision.UNMANAGED.value))
            .when((F.col("state") == PRESENT) & ~F.col("live"), F.lit(ADD))
            .when((F.col("state") == ABSENT) & F.col("live"), F.lit(DELETE))
            .otherwise(F.lit(Decision.UNCHANGED.value))
        )
        return (
            rows.withColumn("_principal", F.col("acl.principal"))
            .withColumn("_managed", managed)
            .withColumn("decision", F.when(F.col("phase").isNull(), decision))
            .transform(stopped(_is(DELETE) & ~F.col("_managed"), Refusal.NOT_MANAGED, F.lit(_NOT_MANAGED)))
            .transform(stopped(_is(DELETE) & protected, Refusal.OWN_RIGHTS, F.lit(_SUPER_USER)))
        )

    return transform


_NOT_MANAGED = "no pattern of acls.manage matches its principal, so it is not removed: name it there if it is meant"
_SUPER_USER = "its principal is one of acls.super_users, whose rights are never removed"


def _is(action: str) -> Column:
    return F.coalesce((F.col("decision") == action) & F.col("phase").isNull(), F.lit(False))


def _protected(own: Mapping[str, str | None], settings: Settings, live: DataFrame) -> Transform:
    """Stops what would take a right from the run's own principal: an ALLOW of its own or of everyone that goes, a DENY
    that comes. Undeclared ACLs of its own are unmanaged. A super user needs no ACL."""

    def transform(rows: DataFrame) -> DataFrame:
        permission, principal = F.col("acl.permission"), F.col("acl.principal")
        takes = (_is(DELETE) & (permission == ALLOW)) | (_is(ADD) & (permission == DENY))
        mine, is_mine = F.col("_own"), principal.eqNullSafe(F.col("_own"))
        free = F.coalesce(mine.isin(*settings.acls.super_users), F.lit(False))
        undeclared = F.col("state").isNull() & is_mine & _is(DELETE) & (permission == ALLOW)
        unknown = F.concat_ws("", *_around(principal_unknown("\0"), F.col("cluster")))
        everyone = (principal == EVERYONE) & ~free
        return (
            rows.withColumn("_own", lookup(own, F.col("cluster")))
            .withColumn("decision", F.when(undeclared, F.lit(Decision.UNMANAGED.value)).otherwise(F.col("decision")))
            .transform(stopped(takes & mine.isNull(), Refusal.PRINCIPAL_UNKNOWN, unknown))
            .transform(stopped(takes & is_mine, Refusal.OWN_RIGHTS, F.lit(OWN_RIGHTS)))
            .transform(_kept_by_own(own, live))
            .transform(stopped(takes & everyone & ~F.col("_kept"), Refusal.OWN_RIGHTS, F.lit(_EVERYONE)))
        )

    return transform


_EVERYONE = (
    "it would take a right from everyone, the principal that this run itself signs in as among them: grant that one "
    "the right by an ACL of its own first, or name it in acls.super_users"
)


def _around(text: str, value: Column) -> Sequence[Column]:
    before, after = text.split("\0")
    return F.lit(before), value, F.lit(after)


def _kept_by_own(own: Mapping[str, str | None], live: DataFrame) -> Transform:
    """Adds `_kept`: of an ALLOW of everyone, whether an ACL of the run's own principal grants at least the same."""

    def transform(rows: DataFrame) -> DataFrame:
        mine = live.where(
            (F.col("principal") == lookup(own, F.col("cluster")))
            & (F.col("permission") == ALLOW)
            & (F.col("host") == WILDCARD)
        ).select("cluster", F.struct(*ACL_KEY).alias("_mine"))
        asked = rows.where(_is(DELETE) & (F.col("acl.principal") == EVERYONE)).select("cluster", "resource", "acl")
        kept = (
            asked.join(mine, on="cluster", how="inner")
            .where(covers("_mine", "acl"))
            .select("cluster", "resource")
            .distinct()
            .withColumn("_kept", F.lit(True))
        )
        return rows.join(F.broadcast(kept), on=["cluster", "resource"], how="left").withColumn(
            "_kept", F.coalesce("_kept", F.lit(False))
        )

    return transform


def covers(wide: str, narrow: str) -> Column:
    """Whether a grant, the struct `wide`, holds wherever the struct `narrow` does; hosts and principals aside."""
    same_type = F.col(f"{wide}.resource_type") == F.col(f"{narrow}.resource_type")
    operation = F.col(f"{wide}.operation").isin("ALL") | (F.col(f"{wide}.operation") == F.col(f"{narrow}.operation"))
    return same_type & operation & _name_covers(wide, narrow)


def _name_covers(wide: str, narrow: str) -> Column:
    name, pattern = F.col(f"{wide}.resource_name"), F.col(f"{wide}.pattern_type")
    other, other_pattern = F.col(f"{narrow}.resource_name"), F.col(f"{narrow}.pattern_type")
    return (
        ((pattern != PREFIXED) & (name == WILDCARD))
        | ((pattern == PREFIXED) & F.startswith(other, name) & (other != WILDCARD))
        | ((pattern == other_pattern) & (name == other))
    )


def _max_deletes(most: int) -> Transform:
    """All removals of a cluster are stopped where there are more than `most` of them; adds go on."""

    def transform(rows: DataFrame) -> DataFrame:
        deletes = F.sum(_is(DELETE).cast("int")).over(Window.partitionBy("cluster"))
        message = F.concat(
            F.lit("planned removals of ACLs on this cluster: "),
            F.col("_deletes"),
            F.lit(f", guards.max_acl_deletes is {most}; raise it if they are meant"),
        )
        stop = _is(DELETE) & (F.col("_deletes") > most)
        return rows.withColumn("_deletes", deletes).transform(stopped(stop, Refusal.MAX_ACL_DELETES_EXCEEDED, message))

    return transform


def _replaced(rows: DataFrame) -> DataFrame:
    """Adds `before` and `after`. Of a delete whose right comes back with another host or pattern, `after` names the
    ACLs that replace it: it isn't sent before they are there."""
    adds = rows.where(F.col("decision") == ADD).select("cluster", F.col("acl").alias("_new"))
    deletes = rows.where(_is(DELETE)).select("cluster", "resource", F.col("acl").alias("_old"))
    alike = (
        (F.col("_new.principal") == F.col("_old.principal"))
        & (F.col("_new.permission") == F.col("_old.permission"))
        & (F.col("_new.resource_type") == F.col("_old.resource_type"))
    )
    operation = (F.col("_new.operation") == F.col("_old.operation")) | (F.col("_new.operation") == "ALL")
    overlap = _name_covers("_new", "_old") | _name_covers("_old", "_new")
    same_cluster = F.col("adds.cluster") == F.col("deletes.cluster")
    replacements = (
        deletes.alias("deletes")
        .join(adds.alias("adds"), on=same_cluster & alike & operation & overlap, how="inner")
        .groupBy("deletes.cluster", "deletes.resource")
        .agg(F.to_json(F.array_sort(F.collect_set("_new"))).alias("_replaced_by"))
    )
    add, delete = F.col("decision") == ADD, F.col("decision") == DELETE
    nothing = F.create_map().cast(VALUES)
    return rows.join(replacements, on=["cluster", "resource"], how="left").withColumns(
        {
            "before": F.when(add, nothing).when(delete, values_of("acl")),
            "after": F.when(add, values_of("acl"))
            .when(delete & F.col("_replaced_by").isNotNull(), F.create_map(F.lit(REPLACED_BY), "_replaced_by"))
            .when(delete, nothing),
        }
    )
