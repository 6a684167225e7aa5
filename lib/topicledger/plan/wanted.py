"""What a run is to bring about: what manifests declare, that what an earlier run changed is undone, or a prune."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from topicledger import actions
from topicledger.config.settings import ChangeSettings
from topicledger.ledger.run import Run
from topicledger.manifests import rows as manifests
from topicledger.manifests.rows import Transform
from topicledger.model import Action
from topicledger.observe.topics import Observation
from topicledger.plan.changes import to_describe, with_changes


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
    spares: Collection[str] = ()
    """Policies that don't refuse a delete but spare the topic: where no other refuses it, it is skipped."""


def declared(run: Run, selected: Sequence[str] | None) -> Wanted:
    """What manifests declare, as far as `--only` and `[changes]` let the run bring it about."""
    kinds = kinds_of(run)
    asked = narrowed(run.settings.changes, kinds)
    judged = run.manifests(run.manifest_version).transform(
        manifests.judge(list(run.settings.clusters), selected, manifests.yours(run.settings.owners))
    )
    return Wanted(
        judged=judged,
        kinds=kinds,
        to_describe=lambda seen: to_describe(asked, judged, seen),
        changes=(lambda configs: with_changes(asked, configs)) if asked else None,
    )


def kinds_of(run: Run) -> Collection[str]:
    """The kinds of actions that `--only` lets a run plan."""
    return [kind.name for kind in actions.in_order() if run.only is None or kind.option in run.only]


def narrowed(changes: Mapping[str, ChangeSettings], kinds: Collection[str]) -> Mapping[str, ChangeSettings]:
    """Settings of changes by cluster, as far as they are of these kinds; clusters that have none left are left out."""
    of_kinds = {
        name: replace(
            each,
            configs=each.configs if Action.ALTER_CONFIGS.value in kinds else "off",
            partitions=each.partitions if Action.ADD_PARTITIONS.value in kinds else "off",
        )
        for name, each in changes.items()
    }
    return {name: each for name, each in of_kinds.items() if (each.configs, each.partitions) != ("off", "off")}
