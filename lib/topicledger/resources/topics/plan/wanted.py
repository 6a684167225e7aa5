"""The goal of a run: what manifests declare, the undoing of an earlier run, a rebalance, or a prune."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.actions.safeguards import Switch
from topicledger.config.settings import ChangeSettings
from topicledger.errors import ClusterError, GuardStopped, UsageError
from topicledger.ledger.run import Run
from topicledger.manifests import rows as manifests
from topicledger.manifests.legible import is_legible
from topicledger.manifests.meant import clusters_meant, has_cluster
from topicledger.manifests.owners import belongs_to
from topicledger.manifests.rows import Transform
from topicledger.model import Action, Outcome, ReplicaAction
from topicledger.model.moves import Rebalance
from topicledger.observe.topics import Observation
from topicledger.policies.contract import text
from topicledger.resources import registry
from topicledger.resources.scoped import INSIDE
from topicledger.resources.topics.observe.topic_use import read_unseen_topics
from topicledger.resources.topics.plan.changes import to_describe, with_changes
from topicledger.resources.topics.plan.former import former
from topicledger.resources.topics.plan.idle import USED
from topicledger.resources.topics.plan.moving import NOTHING_ASKED, Asked
from topicledger.resources.topics.plan.recreated import created_before
from topicledger.resources.topics.plan.renames import Renames, renames
from topicledger.resources.topics.plan.undeclared import deleting, idle_days, with_deletes


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The goal of a run on topics."""

    validated: DataFrame
    """Rows from `manifests.rows.validate`: topics that should exist, and topics that should not."""
    kinds: Collection[str]
    """The kinds of actions that the run may plan."""
    require: Callable[[Observation], None] = lambda _: None
    """Raises if the observed clusters don't fit the request; the run then plans nothing."""
    to_describe: Callable[[Observation], DataFrame | None] = lambda _: None
    """Returns the topics whose configs are needed for changes (columns of `observed`); None if there are no changes."""
    changes: Callable[[DataFrame | None], Transform] | None = None
    """Adds the changes of existing topics to decisions (`phases.DECIDED`), from those configs."""
    spares: Collection[str] = ()
    """Policies that skip a delete instead of refusing it, unless another policy refuses it."""
    replicas: Asked = NOTHING_ASKED
    """The request to the planner of replicas and leaders."""
    refused: DataFrame | None = None
    """Topics whose rows are refused, for a rebalance (`moving.planned`)."""
    undeclared: Transform | None = None
    """Decides to delete topics whose row was removed (`undeclared.with_deletes`); None: they stay."""
    created: DataFrame | None = None
    """Topics that policies of creates only warn about (`recreated.created_before`); None if there is no such rule."""
    renames: Renames | None = None
    """Topics that replace others; None if there are none. If there are, `spares` skips only deletes of
    replaced topics."""
    inside: Transform | None = None
    """Adds `scoped.INSIDE`: whether a topic is in the run's scope (`scoping.inside`); None if all are."""

    @property
    def marked(self) -> DataFrame:
        """The rows of `validated` with `INSIDE`: the planner leaves the replicas of topics outside as they are."""
        return (
            self.validated.withColumn(INSIDE, F.lit(True))
            if self.inside is None
            else self.validated.transform(self.inside)
        )


def declared(run: Run, selected: Sequence[str] | None) -> Wanted:
    """Return the goal that manifests declare, as far as `--only` and `[changes]` allow."""
    validated = run.manifests(run.manifest_version).transform(manifests.validated_by(run.settings, selected))
    kinds = kinds_of(run)
    deletes = Action.DELETE.value in kinds
    before = former(run) if deletes and (deleting(run) or idle_days(run)) else None
    removed = with_deletes(run, before)
    goal = brought_about(validated, run.settings.changes, kinds)
    replaced = renames(run, validated, before)
    if replaced is not None:
        goal = replace(goal, renames=replaced, to_describe=partial(_to_describe, goal, replaced), spares=USED)
    return replace(goal, undeclared=removed, created=created_before(run.ledger, run.settings))


def _to_describe(goal: Wanted, replaced: Renames, seen: Observation) -> DataFrame:
    """Return the topics to describe for `goal`, and the old topics whose configs new topics take."""
    others, old = goal.to_describe(seen), replaced.to_describe(seen)
    return old if others is None else others.unionByName(old).dropDuplicates(["cluster", "topic"])


def brought_about(validated: DataFrame, changes: Mapping[str, ChangeSettings], kinds: Collection[str]) -> Wanted:
    """Return the goal of making topics match `validated`, as far as settings and `kinds` allow."""
    narrow = narrowed(changes, kinds)
    asked = {name: each for name, each in narrow.items() if (each.configs, each.partitions) != ("off", "off")}
    return Wanted(
        validated=validated,
        kinds=kinds,
        to_describe=lambda seen: to_describe(narrow, validated, seen),
        changes=(lambda configs: with_changes(asked, configs)) if asked else None,
        replicas=_asked_of_replicas(narrow, kinds),
    )


def rebalanced(run: Run, rebalance: Rebalance, selected: Sequence[str] | None) -> Wanted:
    """Return the goal that a broker is drained or filled, as far as the manifests' placements allow."""
    names, known = [each.name for each in run.clusters], list(run.settings.clusters)
    # A row of an unknown cluster may mean a selected one.
    inside = F.lit(True) if selected is None else F.col("cluster").isin(*selected) | ~has_cluster(known)
    rows = run.manifests(run.manifest_version).where(inside).transform(manifests.validated_by(run.settings, None))
    legible = is_legible()
    any_topic = text("a row names a topic that can't be read and may mean it: ", F.col("error_message"))
    wrong = rows.where(F.col("outcome") == Outcome.REFUSED.value).withColumns(
        {
            "error_message": F.when(legible, F.col("error_message")).otherwise(any_topic),
            "topic": F.when(legible, F.col("topic")),
        }
    )
    barred = run.scope.barred

    def require_broker(seen: Observation) -> None:
        """Raise ClusterError if a cluster wasn't reached, and UsageError if it has no such broker."""
        for name in names:
            problem = seen.statuses[name].problem
            if problem is not None:
                raise ClusterError(problem)
            up = [row["broker_id"] for row in seen.brokers.where(F.col("cluster") == name).collect()]
            has = F.exists(F.flatten(F.map_values("assignments")), lambda each: each == rebalance.broker)
            # A broker that is gone for good can be drained, too.
            if rebalance.broker not in up and (rebalance.fills or seen.topics.where(has).isEmpty()):
                raise UsageError(
                    f"cluster {name} has no broker {rebalance.broker} that is up: it has "
                    f"{', '.join(map(str, sorted(up)))}"
                )
        if not rebalance.fills:
            _require_all_seen(run, rebalance.broker)

    return Wanted(
        validated=rows.where(F.col("phase").isNull()),
        refused=wrong.select(clusters_meant(known), "topic", "error", "error_message"),
        kinds=list(ReplicaAction),
        require=require_broker,
        replicas=Asked(
            moves=names,
            elections=names,
            rebalance=rebalance,
            outside=belongs_to(run.settings.owners, barred) if barred else None,
        ),
    )


def _require_all_seen(run: Run, broker: int) -> None:
    """Raise GuardStopped if a broker to drain has, or may have, replicas of topics hidden from this principal.

    These replicas would stay, and be lost with the broker.
    """
    named = run.spark.createDataFrame([(each.name,) for each in run.clusters], "cluster string")
    asked = read_unseen_topics(run.spark, run.clusters, run.settings.kafka, named, on=broker)
    for row in asked.collect():
        where = f"cluster {row['cluster']}: broker {broker} can't be drained"
        if row["unseen"] is None:
            raise GuardStopped(f"{where}: it is unknown whether topics are hidden from this principal: {row['error']}")
        if row["unseen"]:
            hidden = "1 topic is" if row["unseen"] == 1 else f"{row['unseen']} topics are"
            raise GuardStopped(
                f"{where}: {hidden} hidden from this principal and may have replicas there, which would be lost with "
                "it: grant it Describe on all topics"
            )


def _asked_of_replicas(changes: Mapping[str, ChangeSettings], kinds: Collection[str]) -> Asked:
    on = [name for name, each in changes.items() if each.replicas == "on"]
    return Asked(
        moves=on if ReplicaAction.REASSIGN.value in kinds else (),
        elections=on if ReplicaAction.ELECT_LEADERS.value in kinds else (),
        growing=[name for name, each in changes.items() if each.partitions == "grow"],
    )


def kinds_of(run: Run) -> Collection[str]:
    """Return the kinds of actions that `--only` allows a run to plan."""
    return [kind.name for kind in registry.in_order() if not run.scope.kinds or kind.option in run.scope.kinds]


def narrowed(changes: Mapping[str, ChangeSettings], kinds: Collection[str]) -> Mapping[str, ChangeSettings]:
    """Return the settings of changes by cluster, limited to these kinds; clusters without any left are left out."""
    wanted = {kind.safeguards.switch for kind in registry.in_order() if kind.name in kinds}
    off: dict[str, Any] = {switch: "off" for switch in get_args(Switch) if switch not in wanted}
    of_kinds = {name: replace(each, **off) for name, each in changes.items()}
    return {name: each for name, each in of_kinds.items() if each.any}


def compares_configs(run: Run) -> bool:
    """Return whether the run compares the configs of topics on all its clusters."""
    changes = narrowed(run.settings.changes, kinds_of(run))
    return all(name in changes and changes[name].configs != "off" for name in run.selected or run.settings.clusters)
