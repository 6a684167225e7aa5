"""Phases decide, policy and guard as one transform, and the commit of the resulting plan."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial, reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from topicledger import policies
from topicledger.config.settings import ClusterSettings, KafkaSettings, Settings
from topicledger.frames import materialised, with_metrics
from topicledger.kafka.config_values import is_set_on_topic, values_by_name
from topicledger.ledger.appended import FEW_ROWS
from topicledger.ledger.retries import retried
from topicledger.ledger.run import Run
from topicledger.manifests.rows import Transform
from topicledger.model import Action, Decision, Outcome, Phase, Refusal, ReplicaAction
from topicledger.naming import ActionName
from topicledger.observe.configs import observe_configs
from topicledger.observe.log_dirs import observe_log_dirs
from topicledger.observe.topics import Observation
from topicledger.phases import EVALUATED, returned
from topicledger.plan import guards, moving, recreated, scoping
from topicledger.plan.batches import NEEDS_SOMETHING, of_topics, planned
from topicledger.plan.changes import with_alters
from topicledger.plan.decide import decide, left_out, without_ignored
from topicledger.plan.moving import Sizes
from topicledger.plan.reevaluate import facts
from topicledger.plan.undeclared import is_replaced
from topicledger.plan.wanted import Wanted
from topicledger.policies import Facts, Policy
from topicledger.policies.contract import MAKE_PARTITIONS
from topicledger.resources import registry

log = logging.getLogger(__name__)

_COUNTED = (Decision.UNCHANGED, Decision.DRIFTED, Decision.UNMANAGED, Decision.LEFT_OUT, Decision.OUTSIDE)

_NEED_NOTHING = (Decision.UNCHANGED, Decision.DRIFTED, Decision.LEFT_OUT, Decision.DECLARED)
"""Decisions for declared topics that need no action."""


@dataclass(frozen=True, kw_only=True)
class Decided:
    """Result of phases decide, policy and guard."""

    rows: DataFrame | None = None
    """Actions and refusals from `registry.found`, materialised; None if no cluster was decided on."""
    size: int = 0
    """The number of rows, or more."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Decision -> topics that need no action."""
    ended: bool = False
    """Whether any row ended before validate."""
    any_planned: bool = False
    """Whether there is any planned action."""
    any_altered: bool = False
    """Whether configs will be altered."""
    any_warned: bool = False
    """Whether an action has a warning."""
    any_to_place: bool = False
    """Whether a create still needs assignments from the planner."""
    any_guarded: bool = False
    """Whether a guard stopped an action that an approval may allow."""

    def also(self, other: Decided) -> Decided:
        """Combine both results: other kinds of resources go into the same plan."""
        parts = [each for each in (self.rows, other.rows) if each is not None]
        return Decided(
            rows=reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts) if parts else None,
            size=self.size + other.size,
            counts={**self.counts, **other.counts},
            ended=self.ended or other.ended,
            any_planned=self.any_planned or other.any_planned,
            any_altered=self.any_altered or other.any_altered,
            any_warned=self.any_warned or other.any_warned,
            any_to_place=self.any_to_place or other.any_to_place,
            any_guarded=self.any_guarded or other.any_guarded,
        )


NOTHING = Decided()


def decisions(
    run: Run,
    rules: Sequence[Policy],
    clusters: Sequence[ClusterSettings],
    wanted: Wanted,
    seen: Observation,
    configs: DataFrame | None,
    *,
    again: bool,
) -> Decided:
    """Decide on the observed `clusters`. `again`: they were unreachable in the plan of an earlier start."""
    settings = run.settings
    known = facts(run.ledger, settings, clusters, seen.brokers)
    answers = None
    if any(name in wanted.replicas.clusters for name in seen.known):
        moving_on = [each for each in clusters if each.name in seen.known and each.name in wanted.replicas.moves]
        sizes = sizes_on(run.spark, moving_on, settings.kafka)
        answers = moving.planned(wanted.marked, seen, sizes, wanted.replicas)

    def made() -> Decided:
        rows = wanted.validated.transform(decided(seen, wanted, configs, rules, known, settings, answers))
        return _of_topics(run, rows, clusters, seen, again=again)

    found = made()
    if found.any_to_place:
        # Few runs create a topic with a placement. Checking for one beforehand would cost the others time.
        creates = moving.planned(wanted.marked, seen, Sizes(), moving.CREATES)
        answers = creates if answers is None else answers.unionByName(creates)
        found = made()
    return found


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


def decided_on(run: Run, rows: DataFrame, tallied: Mapping[str, Decision], *, again: bool) -> Decided:
    """Materialise decisions with their actions (`registry.found`), with `resource_type` and `resource`.

    `tallied`: name of a count -> the decision that it counts, for rows that need no action. `again`: see `decisions`.
    """
    ended, acts = F.col("phase").isNotNull(), F.col("action").isNotNull()
    metered = [
        *(F.count_if((F.col("decision") == each.value) & ~acts).alias(name) for name, each in tallied.items()),
        F.count_if(F.expr(NEEDS_SOMETHING)).alias("size"),
        F.count_if(ended).alias("ended"),
        F.count_if(acts & ~ended).alias("planned"),
        F.count_if((F.col("action") == Action.ALTER_CONFIGS.value) & ~ended).alias("altered"),
        F.count_if(acts & F.col("violations").isNotNull()).alias("warned"),
        F.count_if(F.col("guards").isNotNull()).alias("guarded"),
        F.count_if(moving.to_place() if "placement" in rows.columns else F.lit(False)).alias("to_place"),
    ]

    def needed(found: DataFrame) -> DataFrame:
        if again:
            found = found.transform(_decided_again).transform(_not_planned_before(run))
        # If clusters are as declared, no row is left here, and the run needs no batches and no commit.
        return found.where(NEEDS_SOMETHING)

    def decided() -> Decided:
        kept, found = with_metrics(rows, metered, needed)
        return Decided(
            rows=kept,
            size=found["size"],
            counts={name: found[name] for name in tallied},
            ended=found["ended"] > 0,
            any_planned=found["planned"] > 0,
            any_altered=found["altered"] > 0,
            any_warned=found["warned"] > 0,
            any_to_place=found["to_place"] > 0,
            any_guarded=found["guarded"] > 0,
        )

    return retried(f"the plan of run {run.run_id} can't be made", decided)


def commit_plan(run: Run, decided: Decided) -> None:
    """Commit `decided` as rows of `plans`. Raises UsageError if another start has taken the run."""
    run.keep_row()
    run.commits.settle()
    now, most = datetime.now(UTC), run.settings.kafka.max_batch_records
    assert decided.rows is not None, "a plan is committed of what was decided"
    rows = decided.rows.transform(planned(run.run_id, run.manifest_version, now, most, guarded=decided.any_guarded))
    run.append_plan(rows, few=decided.size <= FEW_ROWS)
    if run.id_given:
        # If another start has taken the run, Delta has ignored this plan.
        run.require_ownership()


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
) -> Transform:
    """Return phases decide, policy and guard as one transform. In: `phases.DECLARED`. Out: `phases.EVALUATED`.

    `answers`: the answers of the planner of replicas (`moving.planned`), if it was asked.
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
            rows = rows.transform(moving.with_placed_creates(answers))
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
            moves = moving.with_moves(answers, validated, seen, configs)
            rows = rows.transform(moves).transform(_evaluated_alone(ReplicaAction.REASSIGN, rules, known))
        if wanted.changes is not None or answers is not None:
            rows = rows.transform(guards.max_losses(settings.guards.max_losses))
            rows = rows.transform(guards.max_disruptions(settings.guards.max_disruptions))
        if answers is not None:
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


def _not_planned_before(run: Run) -> Transform:
    """Drop refusals that the plan of an earlier start has already."""

    def transform(decisions: DataFrame) -> DataFrame:
        key = ("cluster", "resource_type", "resource", "phase", "error")
        known = run.plans().where(F.col("error").isNotNull()).select(*(F.col(name).alias(f"_{name}") for name in key))
        same = [F.col("error").isNotNull(), *(F.col(name).eqNullSafe(F.col(f"_{name}")) for name in key)]
        return decisions.join(known, on=same, how="left_anti")

    return transform


def _decided_again(decisions: DataFrame) -> DataFrame:
    """Give each declared topic of a cluster that was unreachable a later row than CLUSTER_UNREACHABLE.

    Topics that need no action are skipped. Topics that end in phase observe, which also has that earlier row, end in
    phase policy instead. Otherwise a topic's result would stay CLUSTER_UNREACHABLE.
    """
    needs_nothing = F.col("decision").isin(*(each.value for each in _NEED_NOTHING))
    # A row without a topic is about its cluster.
    needs_nothing = F.coalesce(needs_nothing, F.lit(False)) | F.col("topic").isNull()
    left_alone = needs_nothing & F.col("action").isNull() & F.col("phase").isNull()
    decided_now = (F.col("phase") == Phase.OBSERVE.value) & (F.col("error") != Refusal.CLUSTER_UNREACHABLE.value)
    message = F.concat_ws(": ", F.lit("nothing to do, now that the cluster was reached"), F.col("decision"))
    return decisions.withColumns(
        {
            "outcome": F.when(left_alone, F.lit(Outcome.SKIPPED.value)).otherwise(F.col("outcome")),
            "error_message": F.when(left_alone, message).otherwise(F.col("error_message")),
            "phase": F.when(left_alone | decided_now, F.lit(Phase.POLICY.value)).otherwise(F.col("phase")),
        }
    )
