"""Words of actions in plans: the sign and the effect. Each kind has its own `Shown`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from topicledger.model import Target
from topicledger.model.renames import REPLACED_BY, REPLACES
from topicledger.model.topic_configs import EFFECTS, ChangeClass
from topicledger.text import counted, listed

_LISTED = 20
"""Most configs of a create, and partitions of a move, to name."""
ADDS, REMOVES, CHANGES = "+", "-", "~"


@dataclass(frozen=True)
class Shown:
    """How plans show actions of a kind."""

    sign: str
    """`+` adds, `-` removes, `~` changes."""
    words: Callable[[Target], str | None]
    """The effect in words; None if the resource's text says everything."""
    done: str
    """The past participle: created, deleted."""


EMPTY = "empty"
"""The word for a value without characters."""


def changed(missing: str) -> Callable[[Target], str]:
    """Words of a change: `retention.ms 100 -> 200, flush.ms default -> 5`. `missing` stands for values not set."""

    def words(target: Target) -> str:
        sides = target.before, target.after
        return ", ".join(
            f"{name} {' -> '.join(value_of(each, name, missing) for each in sides)}" for name in sorted(target.touched)
        )

    return words


def value_of(values: Mapping[str, str], name: str, missing: str) -> str:
    """Return a value in words; `missing` stands for one that is not set."""
    return values.get(name, missing) or EMPTY


def created(target: Target) -> str:
    """`2 partitions, replication factor 3, retention.ms=1`: as declared."""
    assigned, partitions = target.assignments, target.num_partitions
    replicas, configs = target.replication_factor, sorted(f"{name}={value}" for name, value in target.configs.items())
    parts = (
        # The plan has both for a topic with a placement.
        counted(len(assigned), "assigned partition") if assigned and partitions is None else None,
        None if partitions is None else counted(partitions, "partition"),
        None if replicas is None else f"replication factor {replicas}",
        _first(configs),
        f"replaces {target.before[REPLACES]}" if REPLACES in target.before else None,
    )
    return ", ".join(filter(None, parts)) or "the broker's defaults"


def deleted(target: Target) -> str | None:
    """The number of deleted partitions, in words."""
    partitions, by = target.before.get("num_partitions"), target.before.get(REPLACED_BY)
    parts = (None if partitions is None else counted(int(partitions), "partition"), by and f"replaced by {by}")
    return ", ".join(filter(None, parts)) or None


def moved(target: Target) -> str:
    """`0: 1,2 -> 2,3; 1: 2,3 -> 3,1`: the replicas of each moved partition, the preferred leader first.

    Partitions that get fewer replicas are a loss, which the words mention.
    """
    before, after = target.replicas_before, target.replicas_after

    def brokers(of: Mapping[int, tuple[int, ...]], partition: int) -> str:
        return ",".join(map(str, of.get(partition, ())))

    moves = (f"{each}: {brokers(before, each)} -> {brokers(after, each)}" for each in sorted(after))
    size = target.after.get("bytes")
    fewer = [each for each in after if len(after[each]) < len(before.get(each, ()))]
    least = min((len(after[each]) for each in fewer), default=0)
    most = max((len(before[each]) for each in fewer), default=0)
    lost = f"replication factor {most} -> {least} {EFFECTS[ChangeClass.LESS_SAFE]}; " if fewer else ""
    return lost + _first(moves, "; ") + ("" if size is None else f"; {size} bytes")


def elected(target: Target) -> str:
    """The partitions whose preferred replica should lead."""
    partitions = target.after.get("partitions", "").split(",")
    return f"preferred leaders of {'partition' if len(partitions) == 1 else 'partitions'} {_first(partitions)}"


def _first(texts: Iterable[str], between: str = ", ") -> str:
    """The first 20, and the number of the others."""
    return listed(list(texts), most=_LISTED, between=between)


def changes(done: str) -> Shown:
    """Build `Shown` of a kind that changes a topic's configs or counts, with old and new values."""
    return Shown(CHANGES, changed("default"), done)
