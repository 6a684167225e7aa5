"""Decide which ACLs to add and to remove: joins validated rows of `acls` with the listed ACLs.

Only ACLs of principals that `[acls] manage` names are ever removed. A run never takes permissions from its own
principal or from super users; no setting changes that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from topicledger.config.patterns import any_matches, matches
from topicledger.config.settings import Settings
from topicledger.frames import materialised
from topicledger.manifests.owners import is_one_of
from topicledger.manifests.row_rules import ABSENT, PRESENT
from topicledger.manifests.rows import Transform
from topicledger.model import Decision
from topicledger.observe.listed import Listed
from topicledger.observe.topics import ClusterStatus
from topicledger.phases import DECIDED_RESOURCE, VALUES
from topicledger.resources.acls import rows as manifests
from topicledger.resources.acls.acl import ALLOW, DENY, EVERYONE, WILDCARD
from topicledger.resources.acls.actions import MAX_ACL_DELETES
from topicledger.resources.acls.cluster_acls import principal_unknown
from topicledger.resources.acls.denies import DENIES, Denies, declared_denies
from topicledger.resources.acls.first_acls import first_acls
from topicledger.resources.acls.keeping import (
    LEAVES,
    ROUNDS,
    decided_to_stay,
    kept,
    none_added,
    not_put_back,
    outside,
    refused_adds,
    removed_denies,
    with_denies_kept,
)
from topicledger.resources.acls.last_acls import last_on_cluster_stay, warned_of_last_acls
from topicledger.resources.acls.names import NAMES, AclAction, AclRefusal, AclSettings
from topicledger.resources.acls.needed import OWN_BY_EVERYONE, OWN_RIGHTS, REPLACED_BY, RESTRICTED_BY, RESTRICTS
from topicledger.resources.acls.overlaps import alike, claims, name_covers, of_declared, overlapping
from topicledger.resources.acls.rows import text_of, values_of
from topicledger.resources.deciding import at_most, beside_live, decided, may_be_made, warned
from topicledger.resources.ending import lookup, stopped
from topicledger.schemas import ACL_KEY

ADD, DELETE = AclAction.ACL_ADD.value, AclAction.ACL_DELETE.value


def decide(
    seen: Listed,
    clusters: Mapping[str, ClusterStatus],
    settings: Settings,
    evaluate: Transform,
    scoped: Transform = lambda rows: rows,
) -> Transform:
    """Return phases decide, guard and policy for ACLs: see `Deciding.decide`.

    The decision is acl_add, acl_delete, unchanged or unmanaged; `acl` is a struct of `ACL_KEY`.
    """

    def transform(validated: DataFrame) -> DataFrame:
        denies = declared_denies(validated, seen, list(settings.clusters))
        return (
            validated.transform(guarded(seen, clusters, settings, scoped))
            .transform(_settled(seen, settings, evaluate, denies))
            .transform(warned_of_last_acls(seen, settings))
            .transform(warned(UNUSUAL, F.when(decided(ADD), manifests.unusual("acl"))))
            .transform(_replaced, denies)
            .select("acl", *DECIDED_RESOURCE.names)
        )

    return transform


UNUSUAL = "unusual_acl"
"""Name of the warning about ACLs that almost never apply."""


def _settled(seen: Listed, settings: Settings, evaluate: Transform, denies: Denies | None) -> Transform:
    """Evaluate policies, and keep the last ACLs on a cluster itself.

    Only adds that no policy refused tell which ACLs are the last ones. Policies are then evaluated again with those
    that stay, as in `_evaluated_until_settled`. This ends, since no stopped removal and no refused add is opened again.
    """
    evaluated = _evaluated_until_settled(seen, settings, evaluate, denies)
    last_stay = last_on_cluster_stay(seen, settings)

    def transform(rows: DataFrame) -> DataFrame:
        while True:
            rows = rows.transform(evaluated)
            kept_last = rows.transform(last_stay)
            if kept_last is rows:
                return rows
            rows = kept_last.transform(with_denies_kept)

    return transform


def _evaluated_until_settled(seen: Listed, settings: Settings, evaluate: Transform, denies: Denies | None) -> Transform:
    """Evaluate policies, keep ACLs that refused adds would have replaced, and stop ALLOWs whose DENY isn't added.

    An ACL that is kept still counts in policies, so they are evaluated again. This ends, since each round keeps more
    ACLs than the previous one, or stops more ALLOWs.
    """
    guards, manages = first_acls(seen, settings), bool(settings.of_kinds.of(AclSettings).manage)

    def transform(rows: DataFrame) -> DataFrame:
        ended = rounds = 0
        while True:
            evaluated = rows.transform(evaluate).transform(guards)
            if denies is not None:
                evaluated = evaluated.transform(materialised).transform(denies.stop)
            elif evaluated is rows or not manages:
                return evaluated
            asked, rows = rows, evaluated.transform(materialised)
            adds = rows.transform(refused_adds)
            if adds.isEmpty():
                return rows
            rounds += 1
            if rounds > ROUNDS:
                rows = rows.transform(none_added(asked)).transform(materialised)
                adds = rows.transform(refused_adds)
            if manages:
                rows = rows.transform(kept(adds)).transform(materialised).transform(with_denies_kept)
            lacks_deny = F.coalesce(F.col("error") == AclRefusal.DENY_MISSING.value, F.lit(False))
            before, ended = ended, rows.where(decided_to_stay() | lacks_deny).count()
            if ended == before:
                return rows

    return transform


def guarded(
    seen: Listed, clusters: Mapping[str, ClusterStatus], settings: Settings, scoped: Transform = lambda rows: rows
) -> Transform:
    """Decide, and apply the guards; removals first, so that only removals that will be sent make room.

    In: as `decide`. Out: the rows that policies of ACLs see.
    """
    live = seen.rows.select("cluster", text_of().alias("resource"), F.struct(*ACL_KEY).alias("live_acl"))

    def transform(validated: DataFrame) -> DataFrame:
        own = {name: status.own_principal for name, status in seen.statuses.items()}
        rows = (
            validated.withColumn("acl", F.struct(*ACL_KEY))
            .drop(*ACL_KEY)
            .transform(beside_live(NAMES.resource_type, live, seen, clusters))
            # Policies of ACLs need no answer from brokers.
            .withColumns({"acl": F.coalesce("acl", "live_acl"), "validated": F.lit(True)})
            .transform(_decided(settings, declared_only=seen.declared_only))
            .transform(_keeps_own_access(own, settings, seen.rows))
            .withColumn(LEAVES, _leaves(settings))
            # Each later join of rows with themselves doubles their plan.
            .transform(materialised)
        )
        if not settings.of_kinds.of(AclSettings).manage:
            # Nothing is removed.
            return rows.transform(scoped)
        claimed = validated.transform(of_declared(list(settings.clusters)))
        if seen.declared is not None:
            # A revert: the table's refused and unusual rows count as for any run.
            claimed = claimed.unionByName(seen.declared.transform(of_declared(list(settings.clusters))))
        claimed = claimed.unionByName(rows.transform(refused_adds)).unionByName(rows.transform(not_put_back))
        no_denies = removed_denies(rows).isEmpty()
        if not claimed.isEmpty():
            rows = rows.transform(kept(claimed))
        inside = rows.transform(scoped)
        if inside is not rows:
            left = inside.where((F.col("decision") == Decision.OUTSIDE.value) & (F.col("state") == PRESENT))
            adds = left.select(*claims(outside(), only_alike=True))
            if not adds.isEmpty():
                inside = inside.transform(kept(adds))
        if not no_denies:
            inside = inside.transform(materialised).transform(with_denies_kept)
        return inside.transform(at_most(DELETE, MAX_ACL_DELETES, settings.guards))

    return transform


def _leaves(settings: Settings) -> Column:
    """Return whether rows ask to remove an ALLOW, which may stay after all (boolean); a super user needs none."""
    asked = (F.col("decision") == DELETE) | (F.col("state") == ABSENT)
    needed = ~F.col("acl.principal").isin(*settings.of_kinds.of(AclSettings).super_users)
    return F.coalesce(F.col("live") & asked & (F.col("acl.permission") == ALLOW) & needed, F.lit(False))


def owned_by(owners: tuple[str, ...]) -> Column:
    """See `Scoped.owned_by`: an undeclared ACL belongs to the owners that declare ACLs of its principal.

    One whose row a plan removes has the owner of that row.
    """
    own, undeclared = is_one_of(F.col("owner"), owners), F.col("state").isNull()
    of_principal = F.max(F.when(~undeclared, own)).over(Window.partitionBy("cluster", "acl.principal"))
    return F.when(undeclared, F.coalesce(own, of_principal)).otherwise(own)


def on_topics(names: tuple[str, ...]) -> Column:
    """See `Scoped.on_topics`: an ACL for all topics is about none in particular."""
    named = (F.col("acl.resource_type") == "TOPIC") & (F.col("acl.resource_name") != WILDCARD)
    return named & any_matches("acl.resource_name", names)


def topic_of(field: Callable[[str], Column]) -> Column:
    """See `Scoped.topic_of`: as `on_topics`."""
    name = field("resource_name")
    return F.when((field("resource_type") == "TOPIC") & (name != WILDCARD), name)


def managed(settings: Settings) -> Column:
    """Return whether `[acls] manage` names the principal of the struct `acl`."""
    patterns = settings.of_kinds.of(AclSettings).manage
    return reduce(lambda found, pattern: found | matches("acl.principal", pattern), patterns, F.lit(False))


def _decided(settings: Settings, *, declared_only: bool) -> Transform:
    def transform(rows: DataFrame) -> DataFrame:
        super_users = settings.of_kinds.of(AclSettings).super_users
        super_user = F.col("acl.principal").isin(*super_users) & (F.col("acl.permission") == ALLOW)
        declared = F.col("state").isNotNull()
        decision = (
            F.when(~declared & F.col("_managed") & ~super_user & ~F.lit(declared_only), F.lit(DELETE))
            .when(~declared, F.lit(Decision.UNMANAGED.value))
            .when((F.col("state") == PRESENT) & ~F.col("live"), F.lit(ADD))
            .when((F.col("state") == ABSENT) & F.col("live"), F.lit(DELETE))
            .otherwise(F.lit(Decision.UNCHANGED.value))
        )
        return (
            rows.withColumn("_managed", managed(settings))
            .withColumn("decision", F.when(F.col("phase").isNull(), decision))
            .transform(stopped(decided(DELETE) & ~F.col("_managed"), AclRefusal.NOT_MANAGED, F.lit(_NOT_MANAGED)))
            .transform(stopped(decided(DELETE) & super_user, AclRefusal.OWN_RIGHTS, F.lit(_SUPER_USER)))
        )

    return transform


_NOT_MANAGED = "no pattern of acls.manage matches its principal, so it is not removed: add one if it should be"
_SUPER_USER = "its principal is one of acls.super_users, whose ACLs are never removed"


def _keeps_own_access(own: Mapping[str, str | None], settings: Settings, live: DataFrame) -> Transform:
    """Stop actions that would restrict the run's own principal: removed ALLOWs and added DENYs for it or for everyone.

    Its undeclared ACLs are unmanaged. A super user needs no ACL.
    """

    def transform(rows: DataFrame) -> DataFrame:
        permission, principal = F.col("acl.permission"), F.col("acl.principal")
        takes = (decided(DELETE) & (permission == ALLOW)) | (decided(ADD) & (permission == DENY))
        mine, is_mine = F.col("_own"), principal.eqNullSafe(F.col("_own"))
        free = F.coalesce(mine.isin(*settings.of_kinds.of(AclSettings).super_users), F.lit(False))
        undeclared = F.col("state").isNull() & is_mine & decided(DELETE) & (permission == ALLOW)
        unknown = F.concat_ws("", *_around(principal_unknown("\0"), F.col("cluster")))
        everyone = (principal == EVERYONE) & ~free
        return (
            rows.withColumn("_own", lookup(own, F.col("cluster")))
            .withColumn("decision", F.when(undeclared, F.lit(Decision.UNMANAGED.value)).otherwise(F.col("decision")))
            .transform(stopped(takes & mine.isNull(), AclRefusal.PRINCIPAL_UNKNOWN, unknown))
            .transform(stopped(takes & is_mine, AclRefusal.OWN_RIGHTS, F.lit(OWN_RIGHTS)))
            .transform(_granted_besides(own, live))
            .transform(stopped(takes & everyone & ~F.col("_granted"), AclRefusal.OWN_RIGHTS, F.lit(OWN_BY_EVERYONE)))
        )

    return transform


def _around(text: str, value: Column) -> Sequence[Column]:
    before, after = text.split("\0")
    return F.lit(before), value, F.lit(after)


def _granted_besides(own: Mapping[str, str | None], live: DataFrame) -> Transform:
    """Add `_granted`: for an ALLOW for everyone, whether an ACL of the run's own principal grants at least the same."""

    def transform(rows: DataFrame) -> DataFrame:
        mine = live.where(
            (F.col("principal") == lookup(own, F.col("cluster")))
            & (F.col("permission") == ALLOW)
            & (F.col("host") == WILDCARD)
        ).select("cluster", F.struct(*ACL_KEY).alias("_mine"))
        asked = rows.where(decided(DELETE) & (F.col("acl.principal") == EVERYONE)).select("cluster", "resource", "acl")
        granted = (
            asked.join(mine, on="cluster", how="inner")
            .where(covers("_mine", "acl"))
            .select("cluster", "resource")
            .distinct()
            .withColumn("_granted", F.lit(True))
        )
        return rows.join(F.broadcast(granted), on=["cluster", "resource"], how="left").withColumn(
            "_granted", F.coalesce("_granted", F.lit(False))
        )

    return transform


def covers(wide: str, narrow: str) -> Column:
    """Return whether the grant `wide` (struct) covers the grant `narrow`, ignoring hosts and principals."""
    same_type = F.col(f"{wide}.resource_type") == F.col(f"{narrow}.resource_type")
    operation = F.col(f"{wide}.operation").isin("ALL") | (F.col(f"{wide}.operation") == F.col(f"{narrow}.operation"))
    return same_type & operation & name_covers(wide, narrow)


def _replaced(rows: DataFrame, denies: Denies | None) -> DataFrame:
    """Add `before` and `after`.

    If adds replace all or part of a deleted ACL, `after` of the delete names them: it isn't sent before they exist. If
    a deleted DENY restricts ALLOWs that are deleted, too, `after` names them: it waits until they are gone. `before` of
    an added ALLOW names the declared DENYs that may restrict it: it waits until they exist.
    """
    rows = rows.withColumn(DENIES, F.lit(None).cast("string")) if denies is None else rows.transform(denies.name)
    nothing = F.create_map().cast(VALUES)
    allows = may_be_made(DELETE) & (F.col("acl.permission") == ALLOW)
    # In one select: each further one reads the rows once more.
    claimed = rows.where(decided(ADD) | allows).select(
        *claims(
            F.when(allows, F.lit(RESTRICTS)).otherwise(F.lit(REPLACED_BY)),
            only_alike=True,
            permission=F.when(allows, F.lit(DENY)).otherwise(F.col("acl.permission")),
        ),
        F.col("acl").alias("_other"),
    )
    others = (
        rows.where(may_be_made(DELETE))
        .select("cluster", "resource", F.col("acl").alias("old"))
        .transform(overlapping, claimed)
        .where(alike())
        .groupBy("cluster", "resource")
        .agg(*(_named(name) for name in (REPLACED_BY, RESTRICTS)))
    )
    add, delete = F.col("decision") == ADD, F.col("decision") == DELETE
    denied = add & F.col(DENIES).isNotNull()
    replaced, restricts = F.col(f"_{REPLACED_BY}").isNotNull(), F.col(f"_{RESTRICTS}").isNotNull()
    named = {each: (F.lit(each), F.col(f"_{each}")) for each in (REPLACED_BY, RESTRICTS)}
    return rows.join(others, on=["cluster", "resource"], how="left").withColumns(
        {
            "before": F.when(denied, F.create_map(F.lit(RESTRICTED_BY), F.col(DENIES)))
            .when(add, nothing)
            .when(delete, values_of("acl")),
            "after": F.when(add, values_of("acl"))
            .when(delete & replaced & restricts, F.create_map(*named[REPLACED_BY], *named[RESTRICTS]))
            .when(delete & replaced, F.create_map(*named[REPLACED_BY]))
            .when(delete & restricts, F.create_map(*named[RESTRICTS]))
            .when(delete, nothing),
            "waits": F.col("waits") | (delete & restricts) | denied,
        }
    )


def _named(name: str) -> Column:
    found = F.to_json(F.array_sort(F.collect_set(F.when(F.col("why") == name, F.col("_other")))))
    return F.nullif(found, F.lit("[]")).alias(f"_{name}")


def live(observed: DataFrame) -> DataFrame:
    """See `AsRows.live`."""
    rows = observed.select("cluster", text_of().alias("resource"), F.struct(*ACL_KEY).alias("_live_acl"))
    return rows.select("cluster", "resource", values_of("_live_acl").alias("now"))


def asked_by(planned: DataFrame) -> DataFrame:
    """See `AsRows.asked_by`."""
    return planned.transform(_as_rows, PRESENT, ABSENT)


def _as_rows(changed: DataFrame, added: str, removed: str) -> DataFrame:
    """Convert actions to rows of `acls` without owner and labels, with these states."""
    adds = F.col("action") == ADD
    acl = F.when(adds, F.col("after")).otherwise(F.col("before"))
    state = F.when(adds, F.lit(added)).otherwise(F.lit(removed))
    return changed.withColumns({**{name: acl[name] for name in ACL_KEY}, "state": state})


def undo(done: DataFrame) -> DataFrame:
    """See `AsRows.undo`: added ACLs are removed, and removed ones added again."""
    added, there = F.col("action") == ADD, F.col("now").isNotNull()
    return done.transform(_as_rows, ABSENT, PRESENT).withColumns(
        {
            "stale": F.when(added & ~there, F.lit("it is gone already")).when(~added & there, F.lit("it exists again")),
            "as_before": added != there,
        }
    )
