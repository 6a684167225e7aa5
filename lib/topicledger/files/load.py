"""Load manifest files into the table `manifests`: check all of them first, then run one MERGE; adds a row to `runs`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.config.settings import Settings
from topicledger.errors import ExitCode, GuardStopped, TopicLedgerError, UsageError
from topicledger.files import load_resources
from topicledger.files.load_resources import ResourceChanges
from topicledger.files.read import Foreign, files_arguments, frames
from topicledger.ledger import runs
from topicledger.ledger.run import Run, find_run
from topicledger.ledger.tables import Ledger, differ
from topicledger.manifests.files import NotCarriedOver, ParsedManifests
from topicledger.manifests.owners import is_one_of
from topicledger.model import RunState
from topicledger.model.config_texts import BLANKS
from topicledger.schemas import MANIFESTS, RESOURCES, RUNS
from topicledger.text import show

COMMAND = "load_manifests"
PLAN_ARGUMENT = "plan"
"""The run whose plan `apply` loaded the files for."""
SHOWN_REMOVED = 20
_KEYS_SHOWN = 8
_FILES_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class Replace:
    """A request to remove rows that no file has, from the clusters that the files name.

    Raises UsageError for an owner without a name.
    """

    owners: tuple[str, ...] = ()
    """Remove only rows of these owners, compared as everywhere else; empty for rows of all owners."""

    def __post_init__(self) -> None:
        if not all(owner.strip(BLANKS) for owner in self.owners):
            raise UsageError("--replace-owner needs the name of an owner: only --replace removes topics without one")


@dataclass(frozen=True, kw_only=True)
class Removed:
    """A row of `manifests` that no file has."""

    cluster: str
    topic: str | None
    owner: str | None

    def __str__(self) -> str:
        owner = "no owner" if self.owner is None else f"owner {show(self.owner)}"
        return f"{show(self.cluster)} / {'a row without a topic' if self.topic is None else show(self.topic)}, {owner}"


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """Result of a load."""

    added: int
    changed: int
    unchanged: int
    removed: int
    """With --replace: number of rows of the files' clusters that no file has."""
    removed_rows: Sequence[Removed] = ()
    """The first 20 removed rows, by cluster and topic."""
    run_id: str | None = None
    """The id of the load's row in `runs`; None for a dry run, and if the rows don't come from files."""
    not_carried_over: Sequence[NotCarriedOver] = ()
    """With --from: each unsupported field, with its place."""

    @property
    def all_removed(self) -> int:
        """Number of removed rows of all tables."""
        return self.removed + sum(counts["removed"] for counts in self.resources.values())

    resources: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The same counts for rows of other tables, by table; only tables that the files have entries for."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """With --from: counts by kind of entries that aren't topics to manage."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """With --cluster: number of entries by other cluster, which were not loaded."""


@dataclass(frozen=True, kw_only=True)
class _Changes:
    """The changes that a load makes."""

    rows: DataFrame
    loaded: Loaded
    """The result of the load, before it is done."""
    removed: DataFrame | None = None
    """Rows to remove (cluster, topic, owner); None without --replace."""
    removable: Column | None = None
    """Condition of rows that may be removed, with the alias `old`."""
    resources: Sequence[ResourceChanges] = ()
    """Changes of the other tables that the files have entries for."""


def load(
    ledger: Ledger,
    settings: Settings,
    parsed: ParsedManifests,
    *,
    replace: Replace | None = None,
    foreign: Foreign | None = None,
    run_id: str | None = None,
    requested_by: str | None = None,
    plan: str | None = None,
) -> Loaded:
    """Load what `read` returned into `manifests` in one commit, or nothing at all; a row in `runs` records the load.

    Only adds and changes rows. With `replace`, the files are the complete declaration for the clusters that they name,
    or for the given owners' topics there. Raises ManifestFileError listing every row that a run would refuse by itself,
    with its file and line (C1, C3). `plan`: the run that the files are loaded for.

    Raises GuardStopped if more than `guards.max_removed_rows` rows would be removed,
    and UsageError if the run id already exists.
    """
    rows, resources = frames(ledger.spark, parsed)
    ledger.ensure(RUNS, MANIFESTS, *(table for table in RESOURCES if table.name in resources))
    if run_id is not None and find_run(ledger, run_id) is not None:
        raise UsageError(f"run {run_id} already exists; a load can't be resumed: use another run id")
    clusters = sorted({row.cluster for row in parsed.rows})
    named = sorted({*clusters, *(row.cluster for row in parsed.resource_rows)})
    arguments = _arguments(parsed.digests, named, replace, foreign)
    if parsed.variables:
        arguments[runs.VARIABLES_ARGUMENT] = json.dumps(parsed.variables)
    if plan is not None:
        arguments[PLAN_ARGUMENT] = plan
    request = runs.Request(command=COMMAND, run_id=run_id, requested_by=requested_by)
    run = runs.begin(ledger, settings, request, arguments)
    try:
        changes = _difference(ledger.read(MANIFESTS), rows, clusters, replace)
        changes = _with_resources(ledger, changes, resources, parsed, replace)
        _require_few_removed(changes.loaded, settings, parsed, replace)
        _make(ledger, changes)
    except TopicLedgerError as error:
        error.of_run(run.run_id)
        stopped = {"removals_refused": changes.loaded.all_removed} if isinstance(error, GuardStopped) else {}
        _finish(run, dict.fromkeys(("added", "changed", "unchanged", "removed"), 0) | stopped, error.exit_code)
        raise
    loaded = changes.loaded
    counts = {name: getattr(loaded, name) for name in ("added", "changed", "unchanged", "removed")}
    for table, of_table in loaded.resources.items():
        counts |= {f"{table}_{name}": count for name, count in of_table.items()}
    _finish(run, counts, ExitCode.DONE)
    return dataclasses.replace(_with_leftovers(loaded, parsed), run_id=run.run_id)


def compare(ledger: Ledger, settings: Settings, parsed: ParsedManifests, *, replace: Replace | None = None) -> Loaded:
    """Return the result that `load` would have: check, compare and count, but write and create no table.

    Raises what `load` raises. If the table `manifests` doesn't exist, all rows count as added.
    """
    rows, resources = frames(ledger.spark, parsed)
    table = ledger.read(MANIFESTS) if ledger.exists(MANIFESTS) else ledger.rows(MANIFESTS, [])
    changes = _difference(table, rows, sorted({row.cluster for row in parsed.rows}), replace)
    changes = _with_resources(ledger, changes, resources, parsed, replace)
    _require_few_removed(changes.loaded, settings, parsed, replace)
    return _with_leftovers(changes.loaded, parsed)


def _with_resources(
    ledger: Ledger,
    changes: _Changes,
    resources: Mapping[str, DataFrame],
    parsed: ParsedManifests,
    replace: Replace | None,
) -> _Changes:
    """Add the changes of other tables, in the clusters that the files have entries for."""
    owners, found = None if replace is None else replace.owners, []
    for table in RESOURCES:
        if table.name in resources:
            clusters = sorted({row.cluster for row in parsed.resources[table.name]})
            there = ledger.read(table) if ledger.exists(table) else ledger.rows(table, [])
            found.append(load_resources.difference(table, there, resources[table.name], clusters, owners))
    counts = {each.table.name: dict(each.counts) for each in found}
    return dataclasses.replace(changes, resources=found, loaded=dataclasses.replace(changes.loaded, resources=counts))


def _require_few_removed(loaded: Loaded, settings: Settings, parsed: ParsedManifests, replace: Replace | None) -> None:
    if replace is not None and loaded.all_removed > settings.guards.max_removed_rows:
        raise _stopped(loaded, list(parsed.digests), settings, replace)


def _with_leftovers(loaded: Loaded, parsed: ParsedManifests) -> Loaded:
    return dataclasses.replace(
        loaded,
        not_carried_over=tuple(parsed.not_carried_over),
        skipped=parsed.skipped,
        left_out=parsed.left_out,
    )


def merge(ledger: Ledger, rows: DataFrame) -> Loaded:
    """Merge rows of `manifests`, one per (cluster, topic), in one commit, or in none if nothing changes."""
    ledger.ensure(MANIFESTS)
    changes = _difference(ledger.read(MANIFESTS), rows)
    _make(ledger, changes)
    return changes.loaded


def _make(ledger: Ledger, changes: _Changes) -> None:
    loaded = changes.loaded
    if loaded.added or loaded.changed or loaded.removed:
        ledger.merge_manifests(changes.rows, removed=changes.removed, removable=changes.removable)
    for each in changes.resources:
        load_resources.make(ledger, each)


def _finish(run: Run, counts: Mapping[str, int], code: ExitCode) -> None:
    run.commit_state(
        RunState.FINISHED,
        finished_at=datetime.now(UTC),
        manifest_version=run.ledger.latest_version(MANIFESTS),
        counts=counts,
        exit_code=int(code),
    )


def _arguments(
    digests: Mapping[str, str], clusters: Sequence[str], replace: Replace | None, foreign: Foreign | None
) -> dict[str, str]:
    """Return the arguments of the load for its row in `runs`."""
    arguments = {**files_arguments(digests), "clusters": ",".join(clusters)}
    if replace is not None:
        arguments["replace"] = "owners" if replace.owners else "clusters"
        if replace.owners:
            arguments["owners"] = json.dumps(replace.owners)
    if foreign is not None:
        arguments["from"] = foreign.form
    return arguments


def _stopped(loaded: Loaded, files: Sequence[str], settings: Settings, replace: Replace) -> GuardStopped:
    named = ", ".join(show(name) for name in files[:_FILES_SHOWN])
    more = f" and {len(files) - _FILES_SHOWN} more" if len(files) > _FILES_SHOWN else ""
    count = loaded.all_removed
    rows = "1 row" if count == 1 else f"{count:,} rows"
    of_owners, or_else = "", "; --replace-owner OWNER instead of --replace removes only rows of that owner"
    if replace.owners:
        of_owners, or_else = f" of {', '.join(map(show, replace.owners))}", ""
    lines = [
        f"rows of manifests that loading {named}{more} would remove:",
        *(f"  {line}" for line in _lines(loaded)),
        f"{rows}{of_owners} in all, and guards.max_removed_rows is {settings.guards.max_removed_rows:,}: "
        f"nothing was loaded. If they should be removed, set max_removed_rows = {count} under [guards] in "
        f"{settings.path} and load again{or_else}",
    ]
    first = [dataclasses.asdict(row) for row in loaded.removed_rows]
    return GuardStopped("\n".join(lines)).with_details({"removals_refused": count, "removed_rows": first})


def _difference(
    manifests: DataFrame, rows: DataFrame, clusters: Sequence[str] = (), replace: Replace | None = None
) -> _Changes:
    table, key = manifests.alias("old"), ["cluster", "topic"]
    same_key = (F.col("old.cluster") == F.col("new.cluster")) & (F.col("old.topic") == F.col("new.topic"))
    differs = differ(MANIFESTS, "old", "new")
    old = F.col("old.topic").isNotNull()
    counted = (
        table.join(rows.alias("new"), on=same_key, how="right")
        .agg(
            F.count_if(~old).alias("added"),
            F.count_if(old & differs).alias("changed"),
            F.count_if(old & ~differs).alias("unchanged"),
        )
        .collect()[0]
    )
    if replace is None:
        return _Changes(rows=rows, loaded=Loaded(**counted.asDict(), removed=0))
    removable = F.col("old.cluster").isin(*clusters)
    if replace.owners:
        removable = removable & is_one_of(F.col("old.owner"), replace.owners)
    # Read once, so that the same rows are counted, listed and removed.
    removed = table.where(removable).join(rows, on=key, how="left_anti").select(*key, "owner").localCheckpoint()
    count = removed.count()
    first = removed.orderBy(*key).limit(SHOWN_REMOVED).collect() if count else []
    loaded = Loaded(**counted.asDict(), removed=count, removed_rows=tuple(Removed(**row.asDict()) for row in first))
    return _Changes(rows=rows, loaded=loaded, removed=removed, removable=removable)


def removals(loaded: Loaded) -> list[str]:
    """Return lines for the terminal: the first removed rows, and the number of the others."""
    return [f"removed: {line}" for line in _lines(loaded)]


def _lines(loaded: Loaded) -> list[str]:
    more = loaded.removed - len(loaded.removed_rows)
    others = {table: counts["removed"] for table, counts in loaded.resources.items() if counts["removed"]}
    return [
        *map(str, loaded.removed_rows),
        *([f"and {more:,} more"] if more else []),
        *(f"rows of {table}: {count:,}" for table, count in others.items()),
    ]


def leftovers(loaded: Loaded) -> list[str]:
    """Return lines for the terminal about unsupported fields and skipped entries; equal ones share a line."""
    alike: dict[str, list[NotCarriedOver]] = {}
    for each in loaded.not_carried_over:
        alike.setdefault(each.what, []).append(each)
    lines = []
    for what, those in alike.items():
        keys = list(dict.fromkeys(each.key for each in those))
        more = f" and {len(keys) - _KEYS_SHOWN} more" if len(keys) > _KEYS_SHOWN else ""
        named = ", ".join(f"`{show(key)}`" for key in keys[:_KEYS_SHOWN]) + more
        first = f"{show(those[0].file)}:{those[0].line}"
        place = first if len(those) == 1 else f"{len(those)} times, first at {first}"
        lines.append(f"not carried over: {named} ({show(what)}), {place}")
    if loaded.skipped:
        counted = ", ".join(f"{count} {show(kind)}" for kind, count in sorted(loaded.skipped.items()))
        lines.append(f"skipped: {counted}")
    return lines
