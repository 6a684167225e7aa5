"""Topics that no row declares: which rows may mean one, and deletes of those whose row was removed.

With `[changes] undeclared = "delete"`, topics that this ledger created and that no row names any more are planned as
deletes. Guards, policies and approvals see them like the deletes of rows with state absent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.config.patterns import any_matches
from topicledger.ledger.acknowledged import last_creates
from topicledger.ledger.maintain import VACUUM_HOURS
from topicledger.ledger.rows import is_replaced, is_undeclared
from topicledger.ledger.run import Run
from topicledger.manifests.legible import is_legible
from topicledger.manifests.meant import clusters_meant, with_meant
from topicledger.manifests.rows import Transform
from topicledger.model import TOPIC, Action, Decision, Outcome, Phase, Refusal
from topicledger.model.renames import REPLACED_BY, REPLACES, UNDECLARED
from topicledger.model.scope import EVERYTHING, Scope
from topicledger.plan.intent import TOPICS, no_longer_declared
from topicledger.policies.contract import text
from topicledger.policies.evaluating import together, warning
from topicledger.resources.ending import ended, refused, with_ended
from topicledger.resources.topics.plan.decide import live_counts, texts
from topicledger.resources.topics.plan.former import Former
from topicledger.schemas import ACTION_KEY, AUDIT

_UNKNOWN = (
    f"it stays: its row was removed more than {VACUUM_HOURS // 24} days ago, or changes of manifests can't be read, "
    "so it is unknown whether another topic replaced it. A row with state absent deletes it"
)


def with_named(declared: DataFrame, clusters: Collection[str]) -> Transform:
    """Add `_named`: whether any row of `manifests`, even a refused one, names the topic. Add `_unreadable` (string).

    In: rows with `replaces`; a row also names the topic that it replaces. `_unreadable` is the reason to keep a topic
    if some row names one that can't be read, and may mean this one. A row whose cluster isn't in `clusters` may mean
    each of them.
    """
    own = F.array("topic")
    names = F.explode(F.when(F.col(REPLACES).isNull(), own).otherwise(F.array("topic", REPLACES))).alias("topic")
    rows = declared.select("cluster", names).select(clusters_meant(clusters), "topic").distinct()
    rows = rows.withColumn("_legible", is_legible())
    named = rows.where("_legible").select("cluster", "topic", F.lit(True).alias("_named"))
    why = text("it stays: a row of manifests names a topic that can't be read and may mean it: ", F.min("topic"))
    unreadable = rows.where("NOT _legible").groupBy("cluster").agg(why.alias("_unreadable"))
    return with_meant(named, unreadable)


def declared_since(now: DataFrame, now_version: int, clusters: Collection[str]) -> Transform:
    """Refuse actions on topics that manifests name by now, like the transforms of `intent`.

    In: rows of `manifests` at version `now_version`, and the settings' clusters.
    """
    message = F.lit(f"no manifest named it when it was planned, but manifests at version {now_version} do: it stays")
    return lambda planned: (
        planned.transform(with_named(now, clusters))
        .withColumn("error_message", F.coalesce(F.when(F.col("_named"), message), F.col("_unreadable")))
        .transform(refused(Refusal.CHANGED_SINCE_PLAN, F.col("error_message")))
    )


def no_longer_asked_for(
    now: DataFrame, declared: DataFrame, version: int, run: Run, scope: Scope = EVERYTHING
) -> Transform:
    """Refuse a plan's actions on topics that no longer follow from `manifests` at `version`; see `intent`.

    `now`: the rows; `declared`: the result of `manifests.rows.validate` for them. `scope`: see `no_longer_declared`.
    """
    then = F.col("manifest_version")
    others = no_longer_declared(TOPICS, declared, version, then, of_files=run.of_files, scope=scope)
    if not (deleting(run) or idle_days(run)):
        return others
    clusters = list(run.settings.clusters)
    # The row that replaces a topic names it as long as the delete is asked for.
    rows_alone = now.withColumn(REPLACES, F.lit(None).cast("string"))
    names, topics = declared_since(now, version, clusters), declared_since(rows_alone, version, clusters)
    replaced = is_replaced() & ~is_undeclared()
    by_others = ((is_undeclared(), names), (replaced, topics), (replaced, _no_longer_replaced(now, version)))

    def transform(planned: DataFrame) -> DataFrame:
        refused_ones = planned.where(~(is_undeclared() | is_replaced())).transform(others)
        for concerned, each in by_others:
            refused_ones = refused_ones.unionByName(planned.where(concerned).transform(each))
        return refused_ones.dropDuplicates([*ACTION_KEY])

    return transform


def deleting(run: Run) -> Collection[str]:
    """Return the clusters on which a run deletes undeclared topics; none for a plan from earlier manifests."""
    if not run.by_manifests or run.of_earlier_manifests:
        return ()
    return [name for name, each in run.settings.changes.items() if each.undeclared == "delete"]


def idle_days(run: Run) -> Mapping[str, int]:
    """Return the idle days after which replaced topics go, by cluster; none for a plan from earlier manifests."""
    if not run.by_manifests or run.of_earlier_manifests:
        return {}
    found = {name: each.replaced_idle_days for name, each in run.settings.changes.items()}
    return {name: days for name, days in found.items() if days is not None}


def _no_longer_replaced(now: DataFrame, version: int) -> Transform:
    """Refuse to delete a replaced topic if the new topic's row no longer names it, like transforms of `intent`.

    In: rows of `manifests` at `version`.
    """
    asked = now.select(
        "cluster", F.col(REPLACES).alias("topic"), F.col("topic").alias("_by"), F.lit(True).alias("_asked")
    )

    def transform(planned: DataFrame) -> DataFrame:
        rows = planned.where(is_replaced() & ~is_undeclared() & (F.col("resource_type") == TOPIC))
        same = rows.withColumn("_by", F.col("before")[REPLACED_BY]).join(asked, ["cluster", "topic", "_by"], "left")
        why = text("manifests at version ", F.lit(version), " don't say any more that ", F.col("_by"), " replaces it")
        return same.transform(refused(Refusal.CHANGED_SINCE_PLAN, F.when(F.col("_asked").isNull(), why)))

    return transform


def with_deletes(run: Run, before: Former | None) -> Transform | None:
    """Return a transform that decides to delete undeclared topics; None if the settings keep them all.

    A topic counts if its id is that of this ledger's last acknowledged create. It has the owner of its last row, null
    if that is unknown. It stays, with the reason, if it is unknown whether a row replaced it. In and out:
    `phases.DECIDED`. `before`: None if the run may plan no deletes.
    """
    clusters = deleting(run)
    if not clusters or before is None:
        return None
    declared = run.manifests(run.manifest_version).select("cluster", "topic", REPLACES)
    return lambda decisions: decisions.transform(
        _with_deletes(
            declared,
            last_creates(run.ledger.read(AUDIT)),
            before,
            clusters,
            list(run.settings.clusters),
            run.settings.scope.ignore_topics,
        )
    )


def _with_deletes(
    declared: DataFrame,
    created: DataFrame,
    former: Former,
    clusters: Collection[str],
    names: Collection[str],
    ignored: tuple[str, ...],
) -> Transform:
    key = ["cluster", "topic"]
    ours = created.select(
        *key, "cluster_id", F.col("topic_id").alias("_created_id"), F.col("run_id").alias("_created_by")
    ).where(F.col("_created_id").isNotNull())
    others = any_matches("topic", ignored)
    stays = ended(F.lit(Phase.OBSERVE.value), F.lit(Outcome.SKIPPED.value), F.lit(None).cast("string"), F.lit(_UNKNOWN))

    def transform(decisions: DataFrame) -> DataFrame:
        gone = (
            (F.col("decision") == Decision.UNMANAGED.value)
            & F.col("cluster").isin(*clusters)
            & (F.col("topic_id") == F.col("_created_id"))
            & F.col("_named").isNull()
            & F.col("_unreadable").isNull()
            & ~others
        )
        rows = (
            decisions.join(ours, on=[*key, "cluster_id"], how="left")
            .join(former.owners, on=key, how="left")
            .join(former.known, on=key, how="left")
            .transform(with_named(declared, names))
            .withColumn("_gone", F.coalesce(gone, F.lit(False)))
            .withColumn("_end", F.when(F.col("_gone") & F.col("_known").isNull(), stays))
        )
        before = texts({**live_counts(), UNDECLARED: F.col("_created_by")})
        why = warning(
            UNDECLARED,
            F.when(F.col("_gone"), text("no row declares it any more; run ", F.col("_created_by"), " created it")),
        )
        rows = rows.withColumns(
            {
                "decision": F.when(F.col("_gone"), F.lit(Action.DELETE.value)).otherwise(F.col("decision")),
                "owner": F.when(F.col("_gone"), F.col("_owner_then")).otherwise(F.col("owner")),
                "before": F.when(F.col("_gone"), before).otherwise(F.col("before")),
                "violations": together(F.col("violations"), why),
            }
        )
        return rows.transform(with_ended, "_end").select(*decisions.columns)

    return transform
