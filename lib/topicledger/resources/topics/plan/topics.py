"""Topics in a plan: the goal of a run, the observed configs, and phases decide, policy and guard as one transform."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from topicledger import policies
from topicledger.config.settings import ClusterSettings, KafkaSettings, Settings
from topicledger.frames import materialised
from topicledger.kafka.config_values import is_set_on_topic, values_by_name
from topicledger.ledger.rows import is_replaced
from topicledger.ledger.run import Run
from topicledger.manifests.rows import Transform, validated_by
from topicledger.model import Action, Decision, Outcome, Phase, Refusal, ReplicaAction
from topicledger.naming import ActionName
from topicledger.observe.topics import Observation
from topicledger.phases import EVALUATED, returned
from topicledger.plan import removals, scoping
from topicledger.plan.batches import of_topics
from topicledger.plan.decided import Decided, decided_on
from topicledger.plan.intent import TOPICS, declared_otherwise
from topicledger.plan.reevaluate import facts
from topicledger.policies import Facts, Policy
from topicledger.policies.contract import MAKE_PARTITIONS
from topicledger.resources import registry
from topicledger.resources.topics.observe.configs import observe_configs
from topicledger.resources.topics.observe.log_dirs import observe_log_dirs
from topicledger.resources.topics.plan import guards, moving, placing, recreated
from topicledger.resources.topics.plan.changes import describe, with_alters
from topicledger.resources.topics.plan.decide import decide, left_out, without_ignored
from topicledger.resources.topics.plan.moving import Sizes
from topicledger.resources.topics.plan.prune import pruned
from topicledger.resources.topics.plan.relying import with_needed_min_insync
from topicledger.resources.topics.plan.revert import undone
from topicledger.resources.topics.plan.undeclared import declared_since, deleting, no_longer_asked_for
from topicledger.resources.topics.plan.wanted import Wanted, declared, rebalanced
from topicledger.schemas import MANIFESTS

log = logging.getLogger(__name__)

_COUNTED = (Decision.UNCHANGED, Decision.DRIFTED, Decision.UNMANAGED, Decision.LEFT_OUT, Decision.OUTSIDE)


@dataclass(frozen=True, kw_only=True)
class ObservedTopics:
    """The goal for topics, and the configs of those that may need a change."""

    wanted: Wanted
    clusters: Sequence[ClusterSettings]
    configs: DataFrame | None

    def decide(self, run: Run, policies: Sequence[Policy], seen: Observation, *, again: bool) -> Decided:
        """See `decided.Observed`."""
        settings, wanted, clusters = run.settings, self.wanted, self.clusters
        if run.of_files:
            lost = [name for name in deleting(run) if name in seen.lost]
            removed = removals.with_removed(run, MANIFESTS, validated_by(settings, None), lost)
            wanted = replace(wanted, validated=wanted.validated.transform(removed))
        known = facts(run.ledger, settings, clusters, seen.brokers)
        answers, described = None, self.configs
        if any(name in wanted.replicas.clusters for name in seen.known):
            moving_on = [each for each in clusters if each.name in seen.known and each.name in wanted.replicas.moves]
            sizes = sizes_on(run.spark, moving_on, settings.kafka)
            answers = moving.planned(wanted.marked, seen, sizes, wanted.replicas, wanted.refused)
            if any(rule.action is ReplicaAction.REASSIGN and rule.settings is not None for rule in policies):
                described = _with_moved(run, moving_on, seen, answers, self.configs)

        def made() -> Decided:
            transform = decided(seen, wanted, self.configs, policies, known, settings, answers, described)
            return _of_topics(run, wanted.validated.transform(transform), clusters, seen, again=again)

        found = made()
        if found.any_to_place:
            # Few runs create a topic with a placement. Checking for one beforehand would cost the others time.
            creates = moving.planned(wanted.marked, seen, Sizes(), moving.CREATES)
            answers = creates if answers is None else answers.unionByName(creates)
            found = made()
        return found


@dataclass(frozen=True, kw_only=True)
class TopicsGoal:
    """The goal of a run for topics on clusters."""

    wanted: Wanted
    clusters: Sequence[ClusterSettings]

    def named(self) -> DataFrame | None:
        """See `decided.Goal`: the accepted manifests."""
        return self.wanted.validated.where(F.col("phase").isNull() & F.col("topic").isNotNull())

    def observe(self, run: Run, seen: Observation) -> tuple[Observation, ObservedTopics]:
        """Describe the configs that a run may have to change. Raises if the clusters don't fit the request."""
        wanted = self.wanted
        wanted.require(seen)
        topics, configs = wanted.to_describe(seen), None
        if topics is not None:
            seen, configs = describe(run.spark, run.settings.kafka, self.clusters, topics, seen)
        if wanted.renames is not None:
            wanted = replace(wanted, validated=wanted.renames.inherited(wanted.validated, seen, configs))
        return seen, ObservedTopics(wanted=wanted, clusters=self.clusters, configs=configs)


def goals(run: Run, clusters: Sequence[ClusterSettings], selected: Sequence[str] | None) -> Sequence[TopicsGoal]:
    """Return the goal for topics on `clusters`. `selected`: the clusters whose manifests count (None: all)."""
    if run.prunes is not None:
        wanted = pruned(run, run.prunes, selected)
    elif run.reverts is not None:
        wanted = undone(run, run.reverts, selected)
    elif run.rebalances is not None:
        wanted = rebalanced(run, run.rebalances, selected)
    else:
        wanted = declared(run, selected)
    return [TopicsGoal(wanted=replace(wanted, inside=scoping.inside(run)), clusters=clusters)]


def sizes_on(spark: SparkSession, clusters: Sequence[ClusterSettings], kafka: KafkaSettings) -> Sizes:
    """Return the sizes of replicas and the free room of brokers on the clusters."""
    if not clusters:
        return Sizes()
    found = observe_log_dirs(spark, clusters, kafka)
    for name, error in found.errors.items():
        log.warning("cluster %s: moves are planned without knowing how large replicas are: %s", name, error)
    rooms: dict[str, dict[int, int]] = {}
    for row in found.rooms.where(F.col("usable_bytes").isNotNull()).collect():
        rooms.setdefault(row["cluster"], {})[row["broker_id"]] = row["usable_bytes"]
    return Sizes(replicas=found.sizes, rooms=rooms)


def _with_moved(
    run: Run, clusters: Sequence[ClusterSettings], seen: Observation, answers: DataFrame, configs: DataFrame | None
) -> DataFrame:
    """Add the configs of topics to move to `configs` of `describe`: policies may need them."""
    moves = answers.where(F.col("decision") == ReplicaAction.REASSIGN.value).select("cluster", "topic").distinct()
    topics = seen.topics.join(moves, on=["cluster", "topic"], how="left_semi")
    if configs is not None:
        topics = topics.join(configs.select("cluster", "topic"), on=["cluster", "topic"], how="left_anti")
    _, found = describe(run.spark, run.settings.kafka, clusters, topics, seen)
    return found if configs is None else configs.unionByName(found)


def _of_topics(
    run: Run, rows: DataFrame, clusters: Sequence[ClusterSettings], seen: Observation, *, again: bool
) -> Decided:
    without_ids = [
        each for each in clusters if each.name in seen.known and not seen.statuses[each.name].gives_topic_ids
    ]
    if without_ids:
        rows = rows.transform(_with_configs_before(run, without_ids, seen))
    tallied: Sequence[Decision] = _COUNTED if run.prunes is None else (*_COUNTED, Decision.DECLARED)
    if run.reverts is not None:
        # It is about what that run changed: every other topic would count as unmanaged.
        tallied = (Decision.UNCHANGED, Decision.LEFT_OUT, Decision.OUTSIDE)
    return decided_on(run, rows.transform(of_topics), {each.value: each for each in tallied}, again=again)


def _with_configs_before(run: Run, clusters: Sequence[ClusterSettings], seen: Observation) -> Transform:
    """Add the configs set on topics to `before` of their deletes, for clusters without topic ids (D7)."""

    def transform(decisions: DataFrame) -> DataFrame:
        names = [cluster.name for cluster in clusters]
        delete = F.coalesce(F.col("decision") == Action.DELETE.value, F.lit(False))
        deletes = decisions.where(F.col("cluster").isin(*names) & delete).select("cluster", "topic")
        topics = seen.topics.join(deletes, on=["cluster", "topic"], how="left_semi")
        found = observe_configs(run.spark, clusters, run.settings.kafka, topics).configs
        set_on_topic = F.filter("configs", is_set_on_topic)
        rows = decisions.join(
            found.select("cluster", "topic", values_by_name(set_on_topic).alias("_set")), ["cluster", "topic"], "left"
        )
        before = F.when(delete & F.col("_set").isNotNull(), F.map_concat("before", "_set")).otherwise(F.col("before"))
        return rows.withColumn("before", before).select(*decisions.columns)

    return transform


def decided(
    seen: Observation,
    wanted: Wanted,
    configs: DataFrame | None,
    rules: Sequence[Policy],
    known: Facts,
    settings: Settings,
    answers: DataFrame | None = None,
    described: DataFrame | None = None,
) -> Transform:
    """Return phases decide, policy and guard as one transform. In: `phases.DECLARED`. Out: `phases.EVALUATED`.

    `answers`: the answers of the planner of replicas (`moving.planned`), if it was asked. `described`: `configs`, also
    of topics that only move.
    """

    make_partitions = [rule for rule in rules if rule.action in MAKE_PARTITIONS]

    def transform(validated: DataFrame) -> DataFrame:
        rows = validated.transform(decide(seen.topics, seen.statuses)).transform(left_out(wanted.kinds))
        rows = rows.transform(without_ignored(settings.scope.ignore_topics))
        if wanted.undeclared is not None:
            rows = rows.transform(wanted.undeclared)
        if wanted.renames is not None:
            rows = rows.transform(wanted.renames.decided, configs)
        if answers is not None:
            rows = rows.transform(placing.with_placed_creates(answers))
        if wanted.changes is not None:
            rows = rows.transform(wanted.changes(configs))
        if wanted.renames is not None:
            rows = rows.transform(wanted.renames.keeping)
        rows = (
            rows.transform(scoping.topics(wanted.inside))
            .transform(deletes_evaluated(rules, known, settings))
            .transform(_spared(wanted.spares, None if wanted.renames is None else is_replaced()))
            .transform(recreated.evaluate(make_partitions, known, wanted.created))
        )
        if wanted.changes is not None:
            rows = rows.transform(with_alters).transform(_evaluated_alone(Action.ALTER_CONFIGS, rules, known))
            rows = rows.transform(guards.max_changes(settings.guards.max_changes))
        if answers is not None:
            moves = placing.with_moves(answers, validated, seen, configs if described is None else described)
            rows = rows.transform(moves).transform(_evaluated_alone(ReplicaAction.REASSIGN, rules, known))
            if wanted.changes is not None:
                rows = rows.transform(with_needed_min_insync(rules))
        if wanted.changes is not None or answers is not None:
            rows = rows.transform(guards.max_losses(settings.guards.max_losses))
            rows = rows.transform(guards.max_disruptions(settings.guards.max_disruptions))
        if answers is not None:
            rows = rows.transform(placing.without_growing)
            rows = rows.transform(guards.max_moves(settings.guards.max_moves))
        return returned("guard", rows.transform(registry.found, wanted.kinds), EVALUATED)

    return transform


def _evaluated_alone(action: ActionName, rules: Sequence[Policy], known: Facts) -> Transform:
    """Evaluate policies of one kind of action. A user's own policies get each topic once: only rows of this kind."""
    evaluating = policies.evaluate([rule for rule in rules if rule.action is action], known)
    users_own = any(rule.users_own and rule.action is action for rule in rules)

    def transform(decisions: DataFrame) -> DataFrame:
        if not users_own:
            return decisions.transform(evaluating)
        rows, chosen = decisions.transform(materialised), F.col("decision").eqNullSafe(F.lit(action.value))
        return rows.where(~chosen).unionByName(rows.where(chosen).transform(evaluating))

    return transform


def deletes_evaluated(rules: Sequence[Policy], known: Facts, settings: Settings) -> Transform:
    """Evaluate policies of deletes and their guard first: only deletes that will be sent make room for creates."""

    def transform(decisions: DataFrame) -> DataFrame:
        return decisions.transform(
            policies.evaluate([rule for rule in rules if rule.action is Action.DELETE], known)
        ).transform(guards.max_deletes(settings.guards.max_deletes))

    return transform


def _spared(policies: Collection[str], replaced: Column | None) -> Transform:
    """Skip actions that only these policies refuse, with their reason; actions that can't be evaluated stay refused.

    `replaced`: only these actions, which are skipped if they can't be evaluated, too: a replaced topic just stays.
    """
    errors = [Refusal.POLICY_VIOLATION.value, *([] if replaced is None else [Refusal.UNJUDGEABLE.value])]

    def transform(decisions: DataFrame) -> DataFrame:
        refusing = F.filter("violations", lambda each: ~F.coalesce(each["warns"], F.lit(False)))
        others = F.exists(refusing, lambda each: ~each["policy"].isin(*policies))
        used = (F.col("phase") == Phase.POLICY.value) & F.col("error").isin(*errors) & ~others
        if replaced is not None:
            used &= replaced
        spared = F.coalesce(used, F.lit(False))
        return decisions.withColumns(
            {
                "outcome": F.when(spared, F.lit(Outcome.SKIPPED.value)).otherwise(F.col("outcome")),
                "error": F.when(~spared, F.col("error")),
            }
        )

    return transform if policies else lambda decisions: decisions


def changed_declarations(run: Run, latest: int) -> Transform:
    """Return the transform that refuses topics' actions which the manifests at version `latest` don't ask for."""
    now = run.ledger.read(MANIFESTS, latest)
    if run.prunes is not None:
        return declared_since(now, latest, list(run.settings.clusters))
    if run.by_manifests and not run.of_earlier_manifests:
        declared = now.transform(validated_by(run.settings, run.selected))
        return no_longer_asked_for(now, declared, latest, run, run.scope)
    # The plan differs from the manifests on purpose: only a change of the manifests since the plan matters.
    then = run.latest_version_then
    return declared_otherwise(TOPICS, run.ledger.read(MANIFESTS, then), now, then, latest)
