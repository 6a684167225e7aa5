"""Actions of a plan that guards stopped, and what an approval must allow to let them through.

A guard counts per cluster, and so does what an approval allows: it raises the guard for one plan. The guard of removed
rows counts per load of a plan's files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.actions.safeguards import MAX_DISRUPTIONS, MAX_LOSSES, Guard
from topicledger.errors import UsageError
from topicledger.ledger.allowed import Allowed
from topicledger.ledger.outcomes import is_stopped
from topicledger.resources import registry
from topicledger.text import counted, nearest, show

STOPPED = "stopped"
"""Outcome, in what people see, of actions that guards stopped and an approval may let through."""
REMOVED_ROWS = "removed_rows"
"""The guard of loads."""
LOAD = ""
"""In place of a cluster: the load of a plan's files."""
REMOVED_ROWS_ARGUMENT = "removed_rows"
"""Key of a run's arguments: the number of rows that loading the plan's files removes, if it was larger than
guards.max_removed_rows when the plan was made."""
OF_ACTIONS: Collection[Guard] = tuple(
    dict.fromkeys(
        guard
        for guard in (*(kind.safeguards.guard for kind in registry.in_order()), MAX_LOSSES, MAX_DISRUPTIONS)
        if guard is not None
    )
)
"""The guards that count actions."""
GUARDS: Collection[str] = (*(guard.allowed_as for guard in OF_ACTIONS), REMOVED_ROWS)
"""Names of all guards that approvals can raise, as `--allow` has them."""


@dataclass(frozen=True, kw_only=True)
class StoppedActions:
    """Actions of a cluster that the same guards stopped, or the load of a plan's files."""

    cluster: str
    """`LOAD` for the load."""
    needs: Mapping[str, int]
    """Guard -> the number that an approval must allow."""
    actions: int
    """For the load: the rows that it removes."""

    def __str__(self) -> str:
        if self.cluster == LOAD:
            return f"loading the files: {in_words(self.needs)} ({counted(self.actions, 'row')})"
        return f"{show(self.cluster)}: {in_words(self.needs)} ({counted(self.actions, 'action')})"

    def passes(self, allowed: Mapping[str, int]) -> bool:
        """Return whether these numbers let the actions through."""
        return _within(self.needs, allowed)

    def is_let_through(self, allowed: Allowed) -> bool:
        """Return whether one combination of the cluster's numbers lets the actions through."""
        return any(self.passes(each) for each in allowed.get(self.cluster, ()))


def stopped_load(arguments: Mapping[str, str] | None) -> Sequence[StoppedActions]:
    """Return the load of a plan's files if its guard stopped it when the plan was made. In: the run's arguments."""
    count = int((arguments or {}).get(REMOVED_ROWS_ARGUMENT, 0))
    return [StoppedActions(cluster=LOAD, needs={REMOVED_ROWS: count}, actions=count)] if count else []


def all_stopped(plans: DataFrame | None, arguments: Mapping[str, str] | None) -> Sequence[StoppedActions]:
    """Return what guards stopped: actions by cluster, and the load of a plan's files.

    `plans`: rows of `plans` of one run; None if guards stopped no action. `arguments`: the run's.
    """
    return [*(() if plans is None else read_stopped(plans)), *stopped_load(arguments)]


def read_stopped(plans: DataFrame) -> Sequence[StoppedActions]:
    """Read the actions that guards stopped, by cluster. In: rows of `plans` of one run."""
    needs = F.array_sort(F.map_entries("guards")).alias("needs")
    rows = plans.where(is_stopped()).groupBy("cluster", needs).agg(F.count(F.lit(1)).alias("actions")).collect()
    found = [
        StoppedActions(
            cluster=row["cluster"],
            needs={each["key"]: each["value"] for each in row["needs"]},
            actions=row["actions"],
        )
        for row in rows
    ]
    return sorted(found, key=lambda each: (each.cluster, in_words(each.needs)))


def largest(numbers: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    """Return for each guard, by name, the largest of its numbers."""
    found: dict[str, int] = {}
    for each in numbers:
        for name, number in each.items():
            found[name] = max(number, found.get(name, 0))
    return dict(sorted(found.items()))


def most_of(stopped: Iterable[StoppedActions]) -> Mapping[str, int]:
    """Return the numbers that let all of these through."""
    return largest(each.needs for each in stopped)


def stops_load(stopped: Iterable[StoppedActions]) -> bool:
    """Return whether the load of the plan's files is among them: then nothing of the plan can be sent."""
    return any(each.cluster == LOAD for each in stopped)


def by_cluster(stopped: Sequence[StoppedActions], passing: Sequence[StoppedActions]) -> Allowed:
    """Return what lets through `passing`, and nothing else of `stopped`, by cluster."""
    names = dict.fromkeys(each.cluster for each in passing)
    return {name: combined((each.needs for each in passing if each.cluster == name), stopped, name) for name in names}


def combined(
    numbers: Iterable[Mapping[str, int]], stopped: Sequence[StoppedActions], cluster: str | None = None
) -> Sequence[Mapping[str, int]]:
    """Return combinations that let through the same of `stopped` as these: one if that lets through no more.

    `cluster`: only what is stopped there matters; None: everything.
    """
    each_once = {in_words(each): dict(sorted(each.items())) for each in numbers}
    several = [each_once[words] for words in sorted(each_once)]
    together = largest(several)
    may_pass = [each for each in stopped if cluster in (None, each.cluster) and each.passes(together)]
    if all(any(each.passes(one) for one in several) for each in may_pass):
        return [together] if several else []
    return [one for one in several if not any(_within(one, other) for other in several if other is not one)]


def _within(numbers: Mapping[str, int], others: Mapping[str, int]) -> bool:
    return all(number <= others.get(name, 0) for name, number in numbers.items())


def allowed_by_enough(
    stopped: Sequence[StoppedActions], people: Sequence[int], allowed: Collection[Mapping[str, int]]
) -> Sequence[StoppedActions]:
    """Return those that enough people allow, each with numbers of their own: numbers of several people don't add up.

    `people`: how many each of `stopped` needs; `allowed`: numbers by person. Numbers that let actions
    through do so for those of the cluster that need less, too: they take as many people as any of these.
    """
    found = []
    for each in stopped:
        less = (
            count
            for other, count in zip(stopped, people, strict=True)
            if other.cluster == each.cluster and other.passes(each.needs)
        )
        if sum(each.passes(numbers) for numbers in allowed) >= max(1, *less):
            found.append(each)
    return found


def require_needed(run_id: str, stopped: Sequence[StoppedActions], allow: Mapping[str, int]) -> None:
    """Raise UsageError unless `allow` lets something through, and no smaller numbers would let through the same."""
    if not stopped:
        raise UsageError(
            f"guards stopped nothing of run {run_id} that --allow lets through: leave it out; if a version without "
            "--allow made the plan, plan again"
        )
    passing = [each for each in stopped if each.passes(allow)]
    wait = f"what guards stopped of run {run_id} needs {stopped_in_words(stopped)}"
    if not passing:
        raise UsageError(f"--allow {in_words(allow)} lets nothing through: {wait}")
    enough = most_of(passing)
    if enough != dict(sorted(allow.items())):
        raise UsageError(
            f"--allow {in_words(allow)} is more than needed: {in_words(enough)} lets through the same; {wait}"
        )


def in_words(numbers: Mapping[str, int]) -> str:
    """Return numbers as `--allow` has them: `deletes=2,losses=5`."""
    return ",".join(f"{name}={number}" for name, number in sorted(numbers.items()))


def stopped_in_words(stopped: Sequence[StoppedActions]) -> str:
    """Return what each cluster needs: `main: deletes=2 (2 actions); other: deletes=1 (1 action)`."""
    return "; ".join(map(str, stopped))


def approve_command(run_id: str, allow: Mapping[str, int]) -> str:
    """Return the command that approves a plan and allows these numbers."""
    allowed = f" --allow {in_words(allow)}" if allow else ""
    return f"runs approve {run_id}{allowed} --by WHO"


def parse_allow(text: str) -> Mapping[str, int]:
    """Parse `deletes=2,losses=5`. Raises UsageError."""
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = (each.strip() for each in part.partition("="))
        if name not in GUARDS:
            raise UsageError(f"--allow: there is no guard `{show(name)}`; {nearest(name, sorted(GUARDS))}")
        if not (number.isascii() and number.isdecimal() and 0 < int(number) < 2**31):
            raise UsageError(f"--allow {show(part.strip())}: write a number from 1, such as {name}=2")
        if name in found:
            raise UsageError(f"--allow has {name} twice: write it once")
        found[name] = int(number)
    return found
