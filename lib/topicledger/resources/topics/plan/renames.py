"""Topics that replace others (`manifests.replaces`), since Kafka can't rename a topic.

The new topic is created with the old one's partitions, replication factor and configs where its row says none. The old
one stays: no setting but `[changes] replaced_idle_days` deletes it, once nobody has used it for so long, by the same
policies as a prune. Guards, policies and approvals see that like any other delete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.config.patterns import any_matches
from topicledger.config.settings import ClusterSettings
from topicledger.frames import materialised
from topicledger.kafka.config_values import is_set_on_topic, same_value_column, values_by_name
from topicledger.ledger.rows import is_replaced, is_undeclared
from topicledger.ledger.run import Run
from topicledger.manifests.ignored import without_ignored
from topicledger.manifests.row_rules import PRESENT
from topicledger.model import Action, Decision, Outcome, Phase, Refusal
from topicledger.model.renames import END_OFFSET, REPLACED_BY, REPLACES, UNDECLARED
from topicledger.observe.topics import Observation
from topicledger.policies.contract import Policy, text
from topicledger.policies.evaluating import together, warning
from topicledger.resources.ending import ended, with_ended
from topicledger.resources.topics.observe.moves import observe_unsettled
from topicledger.resources.topics.observe.topic_use import read_last_records
from topicledger.resources.topics.plan.decide import live_counts, texts
from topicledger.resources.topics.plan.former import Former
from topicledger.resources.topics.plan.idle import never_idle, rules_of_use
from topicledger.resources.topics.plan.undeclared import idle_days, with_named

_VALUES = "map<string,string>"


@dataclass(frozen=True, kw_only=True)
class Renames:
    """The topics of a run that replace others."""

    run: Run
    rows: DataFrame
    """cluster, topic, `replaces`, owner, labels, and `accepted`: whether the row isn't refused."""
    before: Former | None
    """Owners of old topics, and topics that rows no longer replace; None if the run deletes neither kind."""

    @property
    def _idle_days(self) -> Mapping[str, int]:
        """The idle days after which the run deletes replaced topics, by cluster; none if it deletes none."""
        return {} if self.before is None else idle_days(self.run)

    def to_describe(self, seen: Observation) -> DataFrame:
        """Return the old topics of new ones that don't exist yet (columns of `observed`)."""
        new = self.rows.join(seen.topics, on=["cluster", "topic"], how="left_anti")
        old = new.where("accepted").select("cluster", F.col(REPLACES).alias("topic"))
        return seen.topics.where("permitted").join(old, on=["cluster", "topic"], how="left_semi")

    def inherited(self, validated: DataFrame, seen: Observation, configs: DataFrame | None) -> DataFrame:
        """Give new topics what they take from old ones.

        In: the result of `manifests.rows.validate`, and `configs` of `describe`. A row is refused if the configs of its
        old topic can't be described. A row without a replication factor is refused if replicas of its old topic are, or
        may be, being moved: brokers count those of both places. A row fails if brokers answer an error about its old
        topic, which may exist.
        """
        validated = validated.transform(partial(self._of_known, seen=seen))
        if configs is None:
            return validated
        old = (
            self.to_describe(seen)
            .join(configs, on=["cluster", "topic"], how="left")
            .select(
                "cluster",
                F.col("topic").alias(REPLACES),
                F.col("num_partitions").alias("_partitions"),
                F.col("replication_factor").alias("_replicas"),
                without_ignored(self.run.settings.ignored_configs, _set_on_topic()).alias("_configs"),
                F.lit(True).alias("_lives"),
            )
        )
        new = self.rows.where("accepted").select("cluster", "topic", F.lit(True).alias("_accepted"))
        inherits = F.coalesce(F.col("_lives") & F.col("_accepted") & F.col("phase").isNull(), F.lit(False))
        counts = inherits & F.col("assignments").isNull()
        own = F.coalesce("configs", F.create_map().cast(_VALUES))
        more = F.map_filter("_configs", lambda name, _: ~F.map_contains_key(own, name))
        takes_replicas = counts & F.col("replication_factor").isNull()
        rows = validated.join(old, on=["cluster", REPLACES], how="left").join(new, on=["cluster", "topic"], how="left")
        hidden = _refused(
            Refusal.NOT_PERMITTED,
            ", whose configs this principal can't describe: grant it DescribeConfigs, or leave out replaces",
        )
        asking = {row["cluster"] for row in rows.where(takes_replicas).select("cluster").distinct().collect()}
        moves = self._moves([each for each in self.run.clusters if each.name in asking], self.to_describe(seen))
        end = F.when(inherits & F.col("_configs").isNull(), hidden)
        if moves is not None:
            rows = rows.join(moves, on=["cluster"], how="left")
            moving = F.array_contains("_moving", F.col(REPLACES))
            is_moved = _refused(
                Refusal.REASSIGNMENT_IN_PROGRESS,
                ", whose replicas are being moved, and declares no replication_factor: wait, or declare it",
            )
            unknown = _refused(
                Refusal.NOT_PERMITTED,
                ", declares no replication_factor, and it is unknown whether replicas of the old topic are being "
                "moved: declare it, or grant this principal Describe on the cluster",
            )
            end = F.coalesce(
                end, F.when(takes_replicas & moving, is_moved), F.when(takes_replicas & F.col("_unknown"), unknown)
            )
        return (
            rows.withColumn("_end", end)
            .withColumns(
                {
                    "num_partitions": F.when(counts, F.coalesce("num_partitions", "_partitions")).otherwise(
                        F.col("num_partitions")
                    ),
                    "replication_factor": F.when(counts, F.coalesce("replication_factor", "_replicas")).otherwise(
                        F.col("replication_factor")
                    ),
                    "configs": F.when(inherits & F.col("_configs").isNotNull(), F.map_concat(more, own)).otherwise(
                        F.col("configs")
                    ),
                }
            )
            .transform(with_ended, "_end")
            .select(*validated.columns)
            .transform(materialised)
        )

    def _of_known(self, validated: DataFrame, *, seen: Observation) -> DataFrame:
        untold = seen.topics.where("unknown IS NOT NULL").select(
            "cluster", F.col("topic").alias(REPLACES), F.col("unknown").alias("_answer")
        )
        new = self.rows.where("accepted").join(seen.topics.where("permitted"), on=["cluster", "topic"], how="left_anti")
        asked = new.join(untold, on=["cluster", REPLACES], how="inner").select("cluster", "topic", "_answer")
        message = text(
            "it replaces ", F.col(REPLACES), ", about which brokers answer ", F.col("_answer"), ", so it is unknown "
            "what it takes from there, and nothing is planned for it: look for it in their logs, then run again"
        )  # fmt: skip
        end = ended(F.lit(Phase.OBSERVE.value), F.lit(Outcome.FAILED.value), F.lit(Refusal.NO_ANSWER.value), message)
        unanswered = F.col("_answer").isNotNull() & F.col("phase").isNull()
        return (
            validated.join(F.broadcast(asked), on=["cluster", "topic"], how="left")
            .withColumn("_end", F.when(unanswered, end))
            .transform(with_ended, "_end")
            .select(*validated.columns)
        )

    def _moves(self, clusters: Sequence[ClusterSettings], old: DataFrame) -> DataFrame | None:
        """Return the topics that are being moved: cluster, `_moving` (topics), `_unknown`; None without clusters.

        `old`: columns of `observed`.
        """
        if not clusters:
            return None
        spark = self.run.spark
        moving: dict[str, set[str]] = {each.name: set() for each in clusters}
        its_old = old.where(F.col("cluster").isin(*moving))
        found = observe_unsettled(spark, clusters, self.run.settings.kafka, its_old)
        for row in found.topics.collect():
            moving[row["cluster"]].add(row["topic"])
        rows = [(name, sorted(topics), name in found.unknown) for name, topics in moving.items()]
        return F.broadcast(spark.createDataFrame(rows, "cluster string, _moving array<string>, _unknown boolean"))

    def decided(self, decisions: DataFrame, configs: DataFrame | None) -> DataFrame:
        """Mark creates of new topics, and decide on old ones. In and out: `phases.DECIDED`; `configs`: of `describe`.

        A create whose declaration differs from the old topic has a warning: `defaults` of files count as declared.
        """
        # They are joined with themselves below: each join would double their plan.
        decisions = decisions.transform(materialised)
        live = decisions.where("live").select("cluster", "topic", F.lit(True).alias("_lives"))
        key = ["cluster", "topic"]
        new = self.rows.select(*key, F.col(REPLACES).alias("_old"))
        counts = [F.col(f"live_{name}").alias(f"_old_{name}") for name in ("num_partitions", "replication_factor")]
        lives = decisions.where("live").select("cluster", F.col("topic").alias("_old"), *counts)
        old_configs: DataFrame | None = None
        if configs is not None:
            old_configs = configs.select("cluster", F.col("topic").alias("_old"), _set_on_topic().alias("_old_configs"))
        creates = (F.col("decision") == Action.CREATE.value) & F.col("_old").isNotNull()
        missing = text(
            "the cluster has no topic ", F.col("_old"), " that it could replace, or this principal may not describe "
            "it: it is created like any other"
        )  # fmt: skip
        why = F.when(F.col("_old_num_partitions").isNull(), missing).otherwise(unlike_old())
        rows = decisions.join(new, on=key, how="left").join(lives, on=["cluster", "_old"], how="left")
        rows = (
            rows.withColumn("_old_configs", F.lit(None).cast(_VALUES))
            if old_configs is None
            else rows.join(old_configs, on=["cluster", "_old"], how="left")
        )
        rows = rows.withColumns(
            {
                "before": F.when(creates, F.create_map(F.lit(REPLACES), "_old")).otherwise(F.col("before")),
                "violations": together(F.col("violations"), warning(REPLACES, F.when(creates, why))),
            }
        ).select(*decisions.columns)
        by = (
            self.rows.join(live, on=key, how="left")
            .groupBy("cluster", F.col(REPLACES).alias("topic"))
            # A refused row of another team must not stand for the owner's row.
            .agg(
                F.min(
                    F.struct((~F.col("accepted")).alias("_refused"), "topic", "owner", "accepted", F.col("_lives"))
                ).alias("_by")
            )
        )
        unnamed = (F.col("decision") == Decision.UNMANAGED.value) | is_undeclared()
        replaced = F.coalesce(F.col("_by").isNotNull() & unnamed, F.lit(False))
        decision = F.when(self._may_go(), F.lit(Action.DELETE.value)).otherwise(F.lit(Decision.UNMANAGED.value))
        rows = rows.join(by, on=key, how="left").transform(self._with_former).withColumn("_replaced", replaced)
        rows = rows.transform(self._with_named).withColumns(
            {
                "decision": F.when(F.col("_replaced"), decision).otherwise(F.col("decision")),
                "owner": F.when(F.col("_replaced"), F.coalesce("_owner_then", "_by.owner")).otherwise(F.col("owner")),
                "violations": F.when(~F.col("_replaced"), F.col("violations")),
                "before": F.when(~F.col("_replaced"), F.col("before")),
            }
        )
        return rows.transform(self._with_offsets).select(*decisions.columns)

    def _with_former(self, rows: DataFrame) -> DataFrame:
        """Add `_owner_then` and `_created_by`; `_by` also of undeclared topics that a row replaced once."""
        if self.before is None:
            return rows.withColumns({name: F.lit(None).cast("string") for name in ("_owner_then", "_created_by")})
        once = F.struct(
            F.lit(False).alias("_refused"),
            F.col("_replaced_by").alias("topic"),
            "owner",
            F.lit(True).alias("accepted"),
            F.lit(True).alias("_lives"),
        )
        was = F.col("_by").isNull() & F.col("_replaced_by").isNotNull() & is_undeclared()
        key = ["cluster", "topic"]
        return (
            rows.join(self.before.owners, on=key, how="left")
            .join(self.before.replaced, on=key, how="left")
            .withColumn("_created_by", F.when(was, F.col("before")[UNDECLARED]))
            .withColumn("_by", F.when(F.col("_created_by").isNotNull(), once).otherwise(F.col("_by")))
        )

    def _with_named(self, rows: DataFrame) -> DataFrame:
        """Add the columns of `with_named`, by rows themselves: the row that replaces a topic doesn't keep it."""
        if not self._idle_days:
            return rows
        alone = self.run.manifests(self.run.manifest_version).withColumn(REPLACES, F.lit(None).cast("string"))
        return rows.transform(with_named(alone, list(self.run.settings.clusters)))

    def _may_go(self) -> Column:
        """Return whether an old topic may be deleted, unless it is used. No row may name it, or be meant to."""
        if not self._idle_days:
            return F.lit(False)
        others = any_matches("topic", self.run.settings.scope.ignore_topics)
        done = F.col("_by.accepted") & F.coalesce(F.col("_by._lives"), F.lit(False))
        done &= F.col("_named").isNull() & F.col("_unreadable").isNull()
        return done & F.col("cluster").isin(*self._idle_days) & never_idle().isNull() & ~others

    def _with_offsets(self, rows: DataFrame) -> DataFrame:
        """Add `before` of deletes: what lives, the new topic, and the end offset that later runs compare."""
        if not self._idle_days:
            return rows
        key, goes = ["cluster", "topic"], F.col("_replaced") & (F.col("decision") == Action.DELETE.value)
        last = read_last_records(
            self.run.spark, self.run.clusters, self.run.settings.kafka, rows.where(goes).select(*key)
        )
        found = {
            **live_counts(),
            REPLACED_BY: F.col("_by.topic"),
            UNDECLARED: F.col("_created_by"),
            END_OFFSET: F.col("end_offset"),
        }
        known = F.map_filter(texts(found), lambda _, value: value.isNotNull())
        return rows.join(last.select(*key, "end_offset"), on=key, how="left").withColumn(
            "before", F.when(goes, known).otherwise(F.col("before"))
        )

    def keeping(self, decisions: DataFrame) -> DataFrame:
        """Keep the configs of topics that replace others: they took them from there. In and out: `phases.DECIDED`."""
        mine = self.rows.select("cluster", "topic", F.lit(True).alias("_new"))
        after = F.col("alters.after")
        before = F.map_filter("alters.before", lambda name, _: F.map_contains_key(after, name))
        kept = F.when(F.size(after) > 0, F.struct(before.alias("before"), after.alias("after")))
        resets = F.col("_new") & F.col("alters").isNotNull()
        return (
            decisions.join(mine, on=["cluster", "topic"], how="left")
            .withColumn("alters", F.when(resets, kept).otherwise(F.col("alters")))
            .select(*decisions.columns)
        )


def _refused(error: Refusal, why: str) -> Column:
    """Return the end of a row that replaces a topic, for this reason."""
    message = text("it replaces ", F.col(REPLACES), why)
    return ended(F.lit(Phase.OBSERVE.value), F.lit(Outcome.REFUSED.value), F.lit(error.value), message)


def _set_on_topic() -> Column:
    """Return the configs that are set on a described topic (map<string,string>), without unknown values."""
    return F.map_filter(values_by_name(F.filter("configs", is_set_on_topic)), lambda _, value: value.isNotNull())


def unlike_old() -> Column:
    """Return how a create differs from the topic that it replaces, in words; null if it doesn't.

    In: `phases.DECIDED`, with `_old`, its counts, and `_old_configs`.
    """
    assigned = F.size(F.map_values("assignments"))
    replicas = F.size(F.try_element_at(F.map_values("assignments"), F.lit(1)))
    declared = {
        "num_partitions": F.when(assigned > 0, assigned).otherwise(F.col("num_partitions")),
        "replication_factor": F.when(assigned > 0, replicas).otherwise(F.col("replication_factor")),
    }

    def differs(name: str, words: str, what_then: str) -> Column:
        old, new = F.col(f"_old_{name}"), declared[name]
        return F.when(old != new, F.concat(F.lit(f"{words} "), old, F.lit(" -> "), new, F.lit(what_then)))

    own = F.col("_old_configs")
    other = F.filter(
        F.array_sort(F.map_keys(own)),
        lambda name: ~same_value_column(name, F.try_element_at("configs", name), F.try_element_at(own, name)),
    )
    changed = F.transform(
        F.coalesce(other, F.array().cast("array<string>")),
        lambda name: F.concat(
            name, F.lit(" "), F.try_element_at(own, name), F.lit(" -> "), F.try_element_at("configs", name)
        ),
    )
    found = F.concat_ws(
        ", ",
        differs("num_partitions", "partitions", " (keys go to other partitions)"),
        differs("replication_factor", "replication factor", ""),
        changed,
    )
    return F.when(found != "", text("declared unlike ", F.col("_old"), ", which it replaces: ", found))


def renames(run: Run, validated: DataFrame, before: Former | None) -> Renames | None:
    """Return the topics that replace others, or did; None if there are none.

    In: the result of `manifests.rows.validate`, and what is known of former rows if the run may plan deletes.
    """
    asks = F.col(REPLACES).isNotNull()
    none_did = before is None or before.replaced.isEmpty()
    if none_did and run.manifests(run.manifest_version).where(asks).isEmpty():
        return None
    is_copy = F.col("outcome").eqNullSafe(F.lit(Outcome.SKIPPED.value))
    rows = validated.where(asks & ~is_copy & F.col("state").eqNullSafe(F.lit(PRESENT))).select(
        "cluster", "topic", REPLACES, "owner", F.col("phase").isNull().alias("accepted")
    )
    return Renames(run=run, rows=rows.transform(materialised), before=before)


def rules(run: Run) -> Sequence[Policy]:
    """Return the policies `idle.USED` for replaced topics: when their delete is planned, and when it is applied."""
    by_days = idle_days(run)
    found: list[Policy] = []
    for days in sorted(set(by_days.values())):
        names = tuple(sorted(name for name, each in by_days.items() if each == days))
        policy = partial(Policy, action=Action.DELETE, concerns=is_replaced(), clusters=names)
        found += [policy(name=name, rule=rule) for name, rule in rules_of_use(run, days).items()]
    return found
