"""Load manifest files into the tables of declarations: check all files, then run one MERGE for each table.

A load adds a row to `runs`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

from pyspark.sql import DataFrame

from topicledger.config.settings import Settings
from topicledger.errors import ExitCode, GuardStopped, TableError, TopicLedgerError, UsageError
from topicledger.files.changes import TableChanges, counts_of, difference, frames, gone
from topicledger.files.read import REASON_CHARACTERS, Foreign, files_arguments
from topicledger.frames import materialised
from topicledger.ledger import proof, runs
from topicledger.ledger.digests import RowsDigest, hashes_of, of_run
from topicledger.ledger.run import PLAN_ARGUMENT, Run, require_new
from topicledger.ledger.tables import Ledger
from topicledger.manifests.files import FileError, FileRow, NotCarriedOver, ParsedManifests
from topicledger.manifests.rows import Transform
from topicledger.model import RunState
from topicledger.model.config_texts import BLANKS
from topicledger.schemas import DECLARING, MANIFESTS, RUNS, TABLES, Table
from topicledger.text import first_of, listed, show

COMMAND = runs.LOAD_COMMAND
SHOWN_REMOVED = 20
_HASHED_ALONE = 500
"""Largest number of rows of a table to remove that a plan keeps the hash of each of: they make 34 kB in the run's row,
which is written again with each of its states."""
_KEYS_SHOWN = 8
Within: TypeAlias = Callable[[Table], Transform]
"""Returns a transform that keeps some rows of a table."""
There: TypeAlias = Callable[[Table], DataFrame]
"""Reads a table."""


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
    warnings: Sequence[FileError] = ()
    """Possible mistakes in the files, each with its place."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """With --cluster: number of entries by other cluster, which were not loaded."""


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
    removals: Removals | None = None,
    compared: Mapping[str, DataFrame] | None = None,
    approved: RowsDigest | None = None,
) -> Loaded:
    """Load what `read` returned into each table in one commit, `manifests` first; a row in `runs` records the load.

    Only adds and changes rows. With `replace`, the files are the complete declaration for the clusters that they name,
    or for the given owners' topics there. `plan`: the run that the files are loaded for. `removals`: the rows that
    `replace` removes, if they are known already. `compared`: by table, `then` of `Ledger.merge`. `approved`: approvals
    of `plan` that came after its end, so that only the load's own row can prove them.

    Raises GuardStopped if more than `guards.max_removed_rows` rows would be removed, UsageError if the run id exists,
    and TableError if a table can't be written: it names those that were.
    """
    tables = frames_beside(ledger, parsed, removals)
    removed = _gone(ledger.read_if_exists, tables, parsed, replace) if removals is None else removals.rows
    ledger.ensure(RUNS, *(table for table in DECLARING if table.name in tables))
    require_new(ledger, run_id, "a load can't be resumed")
    arguments = _arguments(parsed.digests, clusters_of(parsed.every_row), replace, foreign)
    if parsed.variables:
        arguments[runs.VARIABLES_ARGUMENT] = json.dumps(parsed.variables)
    if plan is not None:
        arguments[PLAN_ARGUMENT] = plan
    request = runs.Request(command=COMMAND, run_id=run_id, requested_by=requested_by)
    run = runs.begin(ledger, settings, request, arguments)
    made: list[TableChanges] = []
    try:
        changes = _changes(ledger, tables, removed, compared or {})
        loaded = _loaded_by(changes)
        _require_few_removed(loaded, settings, parsed, replace)
        for each in changes:
            made.append(each.make(ledger))
        loaded = loaded if made == changes else _loaded_by(made)
    except TopicLedgerError as error:
        error.of_run(run.run_id)
        stopped = {"removals_refused": loaded.all_removed} if isinstance(error, GuardStopped) else {}
        _finish(run, counts_of(made) | stopped, error.exit_code)
        if there := [f"`{each.table.name}`" for each in made if each.any]:
            text = f"{error}; but {', '.join(there)} {'is' if len(there) == 1 else 'are'} loaded"
            raise TableError(f"{text}: load the files again").of_run(run.run_id) from error
        raise
    _finish(run, counts_of(made), ExitCode.DONE, approved)
    return dataclasses.replace(_with_leftovers(loaded, parsed), run_id=run.run_id)


def compare(ledger: Ledger, settings: Settings, parsed: ParsedManifests, *, replace: Replace | None = None) -> Loaded:
    """Return the result that `load` would have: check, compare and count, but write and create no table.

    Raises what `load` raises. If the table `manifests` doesn't exist, all rows count as added.
    """
    tables = frames(ledger.spark, parsed.tables)
    loaded = _loaded_by(_changes(ledger, tables, _gone(ledger.read_if_exists, tables, parsed, replace), {}))
    _require_few_removed(loaded, settings, parsed, replace)
    return _with_leftovers(loaded, parsed)


@dataclass(frozen=True, kw_only=True)
class Removals:
    """Rows that a load with `--replace` would remove."""

    rows: Mapping[str, DataFrame]
    """Table name -> rows."""
    lines: Sequence[str]
    """The first rows of each table, in words."""
    count: int
    digest: str
    """By table, the hash of each row, or of all rows if these are more than `_HASHED_ALONE`; as JSON."""


def removals_of(
    ledger: Ledger, parsed: ParsedManifests, replace: Replace, within: Within, there: There | None = None
) -> Removals:
    """Return the rows that `load` would remove, regardless of guards.

    `within`: keeps the rows that may be removed; `there`: reads the tables as they were at an earlier time.
    """
    removed = _gone(there or ledger.read_if_exists, frames(ledger.spark, parsed.tables), parsed, replace)
    return _removals({name: rows.transform(within(TABLES[name])) for name, rows in removed.items()})


def split_removals(removals: Removals, digest: str) -> tuple[Removals, Removals]:
    """Return the rows that `digest`, that of a plan, has, and the others.

    Raises ValueError for a table with other rows than the plan had, if these were too many for a hash of each.
    """
    then, now = json.loads(digest), json.loads(removals.digest)
    planned, others = dict(removals.rows), dict[str, DataFrame]()
    for name in now:
        if now[name] == then.get(name):
            continue
        if isinstance(then.get(name), str) or isinstance(now[name], str):
            raise ValueError(name)
        rows = removals.rows[name].toArrow()
        known = [each in then.get(name, ()) for each in hashes_of(rows)]
        spark, schema = removals.rows[name].sparkSession, TABLES[name].schema
        planned[name] = spark.createDataFrame(rows.filter(known), schema)
        others[name] = spark.createDataFrame(rows.filter([not each for each in known]), schema)
    return (_removals(planned) if others else removals), _removals(others)


def _removals(removed: Mapping[str, DataFrame]) -> Removals:
    counts: dict[str, int] = {}
    hashes: dict[str, str | list[str]] = {}
    for name, rows in removed.items():
        few = rows.limit(_HASHED_ALONE + 1).toArrow()
        if few.num_rows > _HASHED_ALONE:
            every = of_run({name: rows})[name]
            counts[name], hashes[name] = every.rows, every.sha256
        elif few.num_rows:
            counts[name], hashes[name] = few.num_rows, sorted(hashes_of(few))
    lines: list[str] = []
    for table in (each for each in DECLARING if each.name in counts):
        if table is MANIFESTS:
            lines += map(str, _first_removed(removed[table.name]))
            continue
        first = removed[table.name].select(*table.key).orderBy(*table.key).limit(SHOWN_REMOVED).collect()
        lines += [f"{table.name}: {' '.join(show(str(part)) for part in row if part)}" for row in first]
    count = sum(counts.values())
    note = [first_of(len(lines), count)] if count > len(lines) else []
    digest = json.dumps(hashes, sort_keys=True)
    return Removals(rows=removed, lines=[*lines, *note], count=count, digest=digest)


def frames_beside(ledger: Ledger, parsed: ParsedManifests, removals: Removals | None) -> Mapping[str, DataFrame]:
    """Return the rows of files by table; rows may also leave a table that the files have no entries of."""
    left = () if removals is None else removals.rows
    return frames(ledger.spark, {**dict.fromkeys(left, ()), **parsed.tables})


def _gone(
    there: There, tables: Mapping[str, DataFrame], parsed: ParsedManifests, replace: Replace | None
) -> Mapping[str, DataFrame]:
    """Return the rows of each table that no file has, by table; of no table without `replace`.

    Rows are only removed from the clusters that the files have entries of the same table for.
    """
    if replace is None:
        return {}
    listed = frames(tables[MANIFESTS.name].sparkSession, parsed.listed)
    found: dict[str, DataFrame] = {}
    for table in (each for each in DECLARING if each.name in tables):
        rows, clusters = tables[table.name], clusters_of(parsed.tables[table.name])
        if table.name in listed:
            rows = rows.unionByName(listed[table.name])
        found[table.name] = gone(table, there(table), rows, clusters, replace.owners)
    # Read once, so that the same rows are counted, listed and removed.
    return {name: rows.transform(materialised) for name, rows in found.items()}


def _changes(
    ledger: Ledger,
    tables: Mapping[str, DataFrame],
    removed: Mapping[str, DataFrame],
    compared: Mapping[str, DataFrame],
) -> list[TableChanges]:
    """Return the changes of each table, `manifests` first."""
    return [
        difference(ledger, table, tables[table.name], removed.get(table.name), compared.get(table.name))
        for table in DECLARING
        if table.name in tables
    ]


def _loaded_by(changes: Sequence[TableChanges]) -> Loaded:
    """Return the result of the load that makes these changes, `manifests` first."""
    of_topics, *others = changes
    leaving = of_topics.removed if of_topics.counts["removed"] else None
    return dataclasses.replace(
        of_counts(of_topics.counts),
        removed_rows=() if leaving is None else _first_removed(leaving),
        resources={each.table.name: each.counts for each in others},
    )


def _first_removed(topics: DataFrame) -> Sequence[Removed]:
    first = topics.select(*MANIFESTS.key, "owner").orderBy(*MANIFESTS.key).limit(SHOWN_REMOVED).collect()
    return tuple(Removed(**row.asDict()) for row in first)


def clusters_of(rows: Sequence[FileRow]) -> Sequence[str]:
    """Return the clusters that rows of files name."""
    return sorted({row.cluster for row in rows})


def of_counts(counts: Mapping[str, int]) -> Loaded:
    """Return the result for `manifests` with these counts."""
    return Loaded(
        added=counts["added"], changed=counts["changed"], unchanged=counts["unchanged"], removed=counts["removed"]
    )


def _require_few_removed(loaded: Loaded, settings: Settings, parsed: ParsedManifests, replace: Replace | None) -> None:
    if replace is not None and loaded.all_removed > settings.guards.max_removed_rows:
        raise _stopped(loaded, list(parsed.digests), settings, replace)


def _with_leftovers(loaded: Loaded, parsed: ParsedManifests) -> Loaded:
    return dataclasses.replace(
        loaded,
        not_carried_over=tuple(parsed.not_carried_over),
        warnings=tuple(parsed.warnings),
        skipped=parsed.skipped,
        left_out=parsed.left_out,
    )


def _finish(run: Run, counts: Mapping[str, int], code: ExitCode, approved: RowsDigest | None = None) -> None:
    ended: Mapping[str, object] = {
        "finished_at": datetime.now(UTC),
        "manifest_version": run.ledger.latest_version(MANIFESTS),
        "counts": counts,
        "exit_code": int(code),
    }
    if approved is not None:
        ended = proof.sealed(run, proof.ending_of_load(run, approved), ended)
    run.commit_state(RunState.FINISHED, **ended)


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
    named = listed(list(map(show, files)))
    count = loaded.all_removed
    rows = "1 row" if count == 1 else f"{count:,} rows"
    of_owners, or_else = "", "; --replace-owner OWNER instead of --replace removes only rows of that owner"
    if replace.owners:
        of_owners, or_else = f" of {', '.join(map(show, replace.owners))}", ""
    lines = [
        f"rows of manifests that loading {named} would remove:",
        *(f"  {line}" for line in _lines(loaded)),
        f"{rows}{of_owners} in all, and guards.max_removed_rows is {settings.guards.max_removed_rows:,}: "
        f"nothing was loaded. If they should be removed, set max_removed_rows = {count} under [guards] in "
        f"{settings.path} and start the command again{or_else}. Or `plan` the files with the same options: an approval "
        "can allow one plan to remove them",
    ]
    first = [dataclasses.asdict(row) for row in loaded.removed_rows]
    return GuardStopped("\n".join(lines)).with_details({"removals_refused": count, "removed_rows": first})


def removals(loaded: Loaded) -> list[str]:
    """Return lines for the terminal: the first removed rows, and the number of the others."""
    return [f"removed: {line}" for line in _lines(loaded)]


def _lines(loaded: Loaded) -> list[str]:
    shown = len(loaded.removed_rows)
    others = {table: counts["removed"] for table, counts in loaded.resources.items() if counts["removed"]}
    return [
        *map(str, loaded.removed_rows),
        *([first_of(shown, loaded.removed)] if loaded.removed > shown else []),
        *(f"rows of {table}: {count:,}" for table, count in others.items()),
    ]


def leftovers(found: Loaded | ParsedManifests) -> list[str]:
    """Return lines for the terminal about unsupported fields and skipped entries; equal ones share a line."""
    alike: dict[str, list[NotCarriedOver]] = {}
    for each in found.not_carried_over:
        alike.setdefault(each.what, []).append(each)
    lines = []
    for what, those in alike.items():
        keys = list(dict.fromkeys(each.key for each in those))
        named = listed([f"`{show(key)}`" for key in keys], most=_KEYS_SHOWN)
        first = f"{show(those[0].file)}:{those[0].line}"
        place = first if len(those) == 1 else f"{len(those)} times, first at {first}"
        lines.append(f"not carried over: {named} ({show(what, REASON_CHARACTERS)}), {place}")
    if found.skipped:
        counted = ", ".join(f"{count} {show(kind)}" for kind, count in sorted(found.skipped.items()))
        lines.append(f"skipped: {counted}")
    return lines
