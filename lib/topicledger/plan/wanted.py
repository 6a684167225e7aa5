"""What a run is to bring about: what manifests declare, or that what an earlier run changed is undone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from topicledger import actions
from topicledger.config.settings import ChangeSettings
from topicledger.ledger.run import Run
from topicledger.manifests import rows as manifests
from topicledger.manifests.rows import Transform
from topicledger.model import Action, ReplicaAction
from topicledger.observe.topics import Observation
from topicledger.plan.changes import to_describe, with_changes
from topicledger.plan.moving import NOTHING_ASKED, Asked


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a run is to bring about."""

    judged: DataFrame
    """What `manifests.judge` returns: the topics that are to be there, and those that aren't."""
    kinds: Collection[str]
    """The kinds of actions that the run may plan."""
    to_describe: Callable[[Observation], DataFrame | None]
    """The topics whose configs changes are decided on (columns of `observed`); None where there are no changes."""
    changes: Callable[[DataFrame | None], Transform] | None = None
    """Of those configs, what adds to decisions (`contract.COLUMNS`) what is to be changed of topics that exist."""
    replicas: Asked = NOTHING_ASKED
    """Where replicas are to be moved, and leaders elected."""


def declared(run: Run, selected: Sequence[str] | None) -> Wanted:
    """What manifests declare, as far as `--only` and `[changes]` let the run bring it about."""
    kinds = kinds_of(run)
    narrow = narrowed(run.settings.changes, kinds)
    asked = {name: each for name, each in narrow.items() if (each.configs, each.partitions) != ("off", "off")}
    judged = run.manifests(run.manifest_version).transform(
        manifests.judge(list(run.settings.clusters), selected, manifests.yours(run.settings.owners))
    )
    return Wanted(
        judged=judged,
        kinds=kinds,
        to_describe=lambda seen: to_describe(asked, judged, seen),
        changes=(lambda configs: with_changes(asked, configs)) if asked else None,
        replicas=_asked_of_replicas(narrow, kinds),
    )


def _asked_of_replicas(changes: Mapping[str, ChangeSettings], kinds: Collection[str]) -> Asked:
    on = [name for name, each in changes.items() if each.replicas == "on"]
    return Asked(
        moves=on if ReplicaAction.REASSIGN.value in kinds else (),
        elections=on if ReplicaAction.ELECT_LEADERS.value in kinds else (),
        growing=[name for name, each in changes.items() if each.partitions == "grow"],
    )


def kinds_of(run: Run) -> Collection[str]:
    """The kinds of actions that `--only` lets a run plan."""
    return [kind.name for kind in actions.in_order() if run.only is None or kind.option in run.only]


def narrowed(changes: Mapping[str, ChangeSettings], kinds: Collection[str]) -> Mapping[str, ChangeSettings]:
    """Settings of changes by cluster, as far as they are of these kinds; clusters that have none left are left out."""
    kinds_of_moves = {each.value for each in ReplicaAction}
    of_kinds = {
        name: replace(
            each,
            configs=each.configs if Action.ALTER_CONFIGS.value in kinds else "off",
            partitions=each.partitions if Action.ADD_PARTITIONS.value in kinds else "off",
            replicas="off" if kinds_of_moves.isdisjoint(kinds) else each.replicas,
        )
        for name, each in changes.items()
    }
    return {name: each for name, each in of_kinds.items() if each.any}
