"""`runs revert`: plan to undo a run's changes, from the tables alone.

Altered configs get their previous values. Created topics are deleted only on request. Added partitions and deleted
topics can't be undone, and get a refused row.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.frames import materialised
from topicledger.kafka.config_values import is_set_on_topic, same_value_column, values_by_name
from topicledger.ledger.run import Run
from topicledger.ledger.tables import Ledger
from topicledger.manifests import rows as manifests
from topicledger.manifests.ignored import Ignored, is_ignored
from topicledger.manifests.row_rules import ABSENT, PRESENT
from topicledger.model import TOPIC, Action, Decision, Outcome, Phase, Refusal, ReplicaAction
from topicledger.model.renames import REVERTS
from topicledger.observe.topics import Observation
from topicledger.plan.reverted import DONE, changed_by, changed_later
from topicledger.policies.contract import text
from topicledger.policies.evaluating import together, warning
from topicledger.resources import registry
from topicledger.resources.ending import ended, with_ended
from topicledger.resources.topics.plan.changes import with_described
from topicledger.resources.topics.plan.wanted import Wanted
from topicledger.schemas import AUDIT, MANIFESTS, PLANS, SENT_BATCHES

STILL_DECLARED = "manifests"
"""The `policy` of the warning that the manifests still declare the undone values."""
UNSURE = "outcome"
"""The `policy` of the warning that the reverted run may not have made the undone change."""


def undone(run: Run, reverted: str, selected: Sequence[str] | None) -> Wanted:
    """Return the goal that the changes of run `reverted` are undone."""
    run.ledger.ensure(PLANS, AUDIT, SENT_BATCHES)
    validate = manifests.validate(list(run.settings.clusters), selected, manifests.not_ignored(run.settings.scope))
    declared = run.ledger.read(MANIFESTS, run.manifest_version).transform(validate).where(F.col("phase").isNull())
    done = changed_by(run.ledger, reverted, TOPIC).transform(materialised)
    return Wanted(
        validated=_as_manifests(done, declared, deletes=run.deletes_created).transform(validate),
        kinds=[kind.name for kind in registry.in_order()],
        to_describe=partial(_altered, done),
        changes=lambda configs: partial(
            _undo, run=run, reverted=reverted, done=done, declared=declared, configs=configs
        ),
    )


def _as_manifests(done: DataFrame, declared: DataFrame, *, deletes: bool) -> DataFrame:
    """Return rows of `manifests`: the run's topics as they should be after the revert.

    With `deletes`, topics that the run created are absent; all others are present. A topic that no row declares any
    more belongs to its owner of then.
    """
    created = F.bool_or((F.col("action") == Action.CREATE.value) & F.col("known") & F.col("failed").isNull())
    state = F.when(F.lit(deletes) & F.col("_created"), F.lit(ABSENT)).otherwise(F.lit(PRESENT))
    rows = (
        done.groupBy("cluster", "topic")
        .agg(created.alias("_created"), F.max("owner").alias("_owner_then"))
        .join(
            declared.select("cluster", "topic", "owner", "labels", F.lit(True).alias("_declared")),
            on=["cluster", "topic"],
            how="left",
        )
        .withColumns(
            {"state": state, "owner": F.when(F.col("_declared"), F.col("owner")).otherwise(F.col("_owner_then"))}
        )
    )
    own = ("cluster", "topic", "state", "owner", "labels")
    return rows.select(
        *((F.col(c.name) if c.name in own else F.lit(None).cast(c.dataType)).alias(c.name) for c in MANIFESTS.schema)
    )


def _altered(done: DataFrame, seen: Observation) -> DataFrame:
    altered = done.where(F.col("action") == Action.ALTER_CONFIGS.value).select("cluster", "topic")
    return seen.topics.join(altered, on=["cluster", "topic"], how="left_semi")


def _undo(
    decisions: DataFrame,
    *,
    run: Run,
    reverted: str,
    done: DataFrame,
    declared: DataFrame,
    configs: DataFrame | None,
) -> DataFrame:
    """Add the changes that undo each action. In and out: `phases.DECIDED`; a topic has a row for each action."""
    key = ["cluster", "topic"]
    by_topic = done.groupBy(*key).agg(F.collect_list(F.struct(*DONE)).alias("_all"))
    now = declared.select(*key, F.col("configs").alias("_declared"), F.col("state").alias("_state"))
    # A row that has ended already isn't split by action.
    of_row = F.when(F.col("phase").isNull(), F.col("_all")).otherwise(F.slice("_all", 1, 1))
    rows = (
        with_described(decisions, configs)
        .join(by_topic, on=key, how="left")
        .join(now, on=key, how="left")
        .join(_altered_later(run.ledger, reverted, done), on=key, how="left")
        .withColumn("_done", F.explode_outer(of_row))
        .withColumns(_live_and_planned(run.settings.ignored_configs))
        .withColumn("_end", F.when(F.col("phase").isNull(), _end(reverted, deletes=run.deletes_created)))
    )
    undo = F.col("phase").isNull() & F.col("_end").isNull()
    alters = undo & _was(Action.ALTER_CONFIGS)
    differs = lambda name, _: F.array_contains("_differ", name)  # noqa: E731
    after = F.map_filter(F.col("_done.before"), differs)
    change = F.struct(F.map_filter("_live", differs).alias("before"), after.alias("after"))
    stay = F.map_filter("_set", lambda name, _: ~F.array_contains("_differ", name))
    opposite = F.create_map(*(F.lit(each.value) for pair in _OPPOSITE.items() for each in pair))[F.col("_done.action")]
    undeclared = undo & (F.col("decision") == Action.DELETE.value) & F.col("_state").isNull()
    reverts = F.map_concat("before", F.create_map(F.lit(REVERTS), F.lit(reverted)))
    gone = (F.col("decision") == Decision.CREATE.value) & _was(Action.CREATE)
    return (
        rows.withColumns(
            {
                "alters": F.when(alters & (F.size("_differ") > 0), change),
                # Policies evaluate the configs that the topic will have, as otherwise those that its row declares.
                "configs": F.when(alters, F.map_concat(stay, after)).otherwise(F.col("configs")),
                "before": F.when(undeclared, reverts).otherwise(F.col("before")),
                "undeclared": F.col("_state").isNull(),
                "violations": F.when(undo, together(_still_declared(), _unsure(reverted))),
                "live": F.col("live") & ~F.coalesce(_was(Action.ADD_PARTITIONS), F.lit(False)),
                "decision": F.when(F.col("_end").isNotNull(), opposite)
                .when(gone, F.lit(Decision.UNCHANGED.value))
                .otherwise(F.col("decision")),
            }
        )
        .transform(with_ended, "_end")
        .select(*decisions.columns)
    )


_OPPOSITE = {
    Action.CREATE: Action.DELETE,
    Action.DELETE: Action.CREATE,
    Action.ADD_PARTITIONS: Action.ADD_PARTITIONS,
    Action.ALTER_CONFIGS: Action.ALTER_CONFIGS,
    ReplicaAction.REASSIGN: ReplicaAction.REASSIGN,
}
"""Action -> the action that would undo it, for rows that say why it isn't undone."""


def _altered_later(ledger: Ledger, reverted: str, done: DataFrame) -> DataFrame:
    """Return cluster, topic, and `_later`: name of a config -> the last run that altered it since."""
    altered = done.where(F.col("action") == Action.ALTER_CONFIGS.value)
    later = changed_later(ledger, reverted, altered, TOPIC)
    each = later.withColumn("name", F.explode("touched")).withColumnRenamed("resource", "topic")
    by_name = each.groupBy("cluster", "topic", "name").agg(F.max_by("run_id", "completed_at").alias("run_id"))
    return by_name.groupBy("cluster", "topic").agg(
        F.map_from_entries(F.collect_list(F.struct("name", "run_id"))).alias("_later")
    )


def _live_and_planned(ignored: Ignored) -> dict[str, Column]:
    """Return columns that compare the configs which the run touched with the live ones.

    `_set`: all values that are set on the topic; `_live`: those of configs which the run touched. Names of configs:
    `_differ` don't have the value from before the run; `_foreign` have neither that nor the run's value; `_again`
    differ and were altered by a later run; `_left` are in `changes.ignore` by now.
    """
    all_names = F.array_union(F.map_keys(F.col("_done.before")), F.map_keys(F.col("_done.after")))
    names = F.filter(all_names, lambda name: ~is_ignored(ignored, name))
    set_on_topic = values_by_name(F.filter("live_configs", is_set_on_topic))
    all_live = F.coalesce(set_on_topic, F.create_map().cast("map<string,string>"))
    live = F.map_filter(all_live, lambda name, _: F.array_contains(names, name))

    def other_than(name: Column, values: Column) -> Column:
        found, value = live[name], values[name]
        same = F.coalesce(same_value_column(name, found, value), found.isNull() & value.isNull())
        return ~same

    before, after = F.col("_done.before"), F.col("_done.after")
    return {
        "_set": all_live,
        "_live": live,
        "_differ": F.filter(names, lambda name: other_than(name, before)),
        "_foreign": F.filter(names, lambda name: other_than(name, before) & other_than(name, after)),
        "_again": F.filter(
            names,
            lambda name: (
                other_than(name, before) & F.coalesce(F.array_contains(F.map_keys("_later"), name), F.lit(False))
            ),
        ),
        "_left": F.filter(all_names, lambda name: is_ignored(ignored, name)),
    }


def _was(action: Action | ReplicaAction) -> Column:
    return F.col("_done.action") == action.value


def _end(reverted: str, *, deletes: bool) -> Column:
    """Return why an action isn't undone; null if it is undone, or if there is nothing left to undo."""

    def refused(error: Refusal, message: Column, phase: Phase = Phase.OBSERVE) -> Column:
        return ended(F.lit(phase.value), F.lit(Outcome.REFUSED.value), F.lit(error.value), message)

    def not_revertible(*parts: Column | str) -> Column:
        return refused(Refusal.NOT_REVERTIBLE, text(*parts))

    lives = F.col("live")
    other_topic = lives & ~F.col("topic_id").eqNullSafe(F.col("_done.topic_id"))
    recreated = refused(
        Refusal.RECREATED,
        text(
            "run ", reverted, " changed the topic with id ", F.col("_done.topic_id"), ", now it is ", F.col("topic_id")
        ),
    )
    other_cluster = refused(
        Refusal.CLUSTER_ID_MISMATCH,
        text("run ", reverted, " changed cluster ", F.col("_done.cluster_id"), ", and this is ", F.col("cluster_id")),
        Phase.GUARD,
    )
    stays = ended(
        F.lit(Phase.OBSERVE.value),
        F.lit(Outcome.SKIPPED.value),
        F.lit(None).cast("string"),
        text("run ", reverted, " created it: it stays; `runs revert --deletes` deletes it"),
    )
    foreign = F.transform(
        F.array_sort("_foreign"),
        lambda name: text(
            name,
            " is ",
            F.coalesce(F.col("_live")[name], F.lit("not set")),
            F.when(F.col("_done.failed").isNull(), ", the run left it ").otherwise(", the run may have left it "),
            F.coalesce(F.col("_done.after")[name], F.lit("not set")),
        ),
    )
    again = F.transform(F.array_sort("_again"), lambda name: text(name, " by run ", F.col("_later")[name]))
    left = ended(
        F.lit(Phase.OBSERVE.value),
        F.lit(Outcome.SKIPPED.value),
        F.lit(None).cast("string"),
        text("ignored because of changes.ignore in the settings: ", F.array_join(F.array_sort("_left"), ", ")),
    )
    created, altered = _was(Action.CREATE), _was(Action.ALTER_CONFIGS)
    failed = F.col("_done.failed").isNotNull()
    failed_why = (F.col("_done.failed"), "; look at the topic, and declare what it should be")
    no_id = (
        "this cluster gives topics no ids (brokers before 2.8), so it isn't known whether this is still the topic that "
    )
    return (
        F.when(F.col("_done").isNull(), None)
        .when(F.col("cluster_id") != F.col("_done.cluster_id"), other_cluster)
        .when(
            ~F.col("_done.known"),
            not_revertible(
                "run ", reverted, " was abandoned before the outcome of its ", F.col("_done.action"),
                " was known: look at the topic, and declare what it should be",
            ),
        )
        .when(failed & _is_untouched(), None)
        .when(
            failed & _was(Action.DELETE),
            not_revertible("run ", reverted, " may have deleted it, with its records, and failed: ", *failed_why),
        )
        .when(
            failed & _was(Action.ADD_PARTITIONS),
            not_revertible("run ", reverted, " may have added partitions, and failed: ", *failed_why),
        )
        .when(
            failed & created,
            not_revertible("run ", reverted, " may have created it, and failed: ", *failed_why),
        )
        .when(
            _was(Action.DELETE),
            not_revertible("run ", reverted, " deleted it, with its records: declare it to create it again"),
        )
        .when(
            _was(Action.ADD_PARTITIONS),
            not_revertible(
                "run ", reverted, " added partitions, ", F.col("_done.before")["num_partitions"], " -> ",
                F.col("_done.after")["num_partitions"], ", and Kafka can't remove partitions",
            ),
        )
        .when(
            failed & _was(ReplicaAction.REASSIGN),
            not_revertible("run ", reverted, " may have moved some of its replicas, and failed: ", *failed_why),
        )
        .when(
            _was(ReplicaAction.REASSIGN),
            not_revertible("run ", reverted, " moved its replicas: declare where they should be"),
        )
        .when(created & lives & F.col("_done.topic_id").isNull(), not_revertible(no_id, "run ", reverted, " created"))
        .when((created | altered) & other_topic, recreated)
        .when(created & lives & ~F.lit(deletes), stays)
        .when(
            altered & ~lives,
            not_revertible("the topic is gone, or this principal may not describe it: nothing is left to revert"),
        )
        .when(altered & F.col("_unread").isNotNull(), F.col("_unread"))
        .when(
            altered & (F.size("_foreign") > 0),
            not_revertible(
                "changed again since run ", reverted, ": ", F.array_join(foreign, "; "), "; declare what it should be"
            ),
        )
        # A later run may have set the same value: undoing this run would undo that one, too.
        .when(
            altered & (F.size("_again") > 0),
            not_revertible(
                "changed again since run ", reverted, ": ", F.array_join(again, "; "),
                "; revert that run, or declare what it must be",
            ),
        )
        .when(altered & (F.size("_left") > 0) & (F.size("_differ") == 0), left)
    )  # fmt: skip


def _is_untouched() -> Column:
    """Return whether a failed action that can't be undone left no trace on the topic."""
    lives, counted = F.col("live"), F.col("_done.before")["num_partitions"].cast("int")
    untouched = (
        F.when(_was(Action.CREATE), ~lives)
        .when(_was(Action.DELETE), lives & (F.col("topic_id") == F.col("_done.topic_id")))
        .when(_was(Action.ADD_PARTITIONS), lives & (F.col("live_num_partitions") == counted))
    )
    return F.coalesce(untouched, F.lit(False))


def _unsure(reverted: str) -> Column:
    """Return a warning if it is unknown whether the run set the undone values."""
    undone = _was(Action.ALTER_CONFIGS) & (F.size("_differ") > 0) & F.col("_done.failed").isNotNull()
    why = text("it is unknown whether run ", reverted, " set these values, since it failed: ", F.col("_done.failed"))
    return warning(UNSURE, F.when(undone, why))


def _still_declared() -> Column:
    """Return a warning if the manifests still declare the undone values: the next run would set them again."""
    before = F.col("_done.before")
    names = F.filter(
        "_differ",
        lambda name: (
            ~F.coalesce(same_value_column(name, F.col("_declared")[name], before[name]), before[name].isNull())
            & F.col("_declared")[name].isNotNull()
        ),
    )
    configs = F.when(
        _was(Action.ALTER_CONFIGS) & (F.size(names) > 0),
        text(
            "the manifests declare other values, and the next run changes it again: ",
            F.array_join(
                F.transform(F.array_sort(names), lambda name: text(name, " ", F.col("_declared")[name])), ", "
            ),
        ),
    )
    topic = F.when(
        _was(Action.CREATE) & (F.col("decision") == Decision.DELETE.value) & (F.col("_state") == PRESENT),
        text("the manifests declare it present, and the next run creates it again"),
    )
    return warning(STILL_DECLARED, F.coalesce(configs, topic))
